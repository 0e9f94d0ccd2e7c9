//! Calls of the control plane that come between those of others: late, twice, or from a second trainer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
};

use bytes::Bytes;
use futures::{
    StreamExt,
    channel::mpsc::{UnboundedSender, unbounded},
    poll, stream,
};
use tokio::task::JoinHandle;

use super::{
    control::{
        Events, MODEL, Served, answered, control, engine_of, generation, norm, norm_file, request, serve, settings,
        streamed,
    },
    patience::until,
};
use tito::{
    control::{
        ControlError, ControlPolicy, ControlStatus, Newcomers, PauseMode, SleepLevel, SleepTag, Update, Updated,
    },
    engine::{EngineError, UpdateError, native::NativeSettings},
    generation::{Finish, GenerationRequest, collect},
};

const NORM: &str = "model.norm.weight";

/// A body of which only some has come.
struct Body {
    file: Vec<u8>,
    pieces: UnboundedSender<Result<Bytes, String>>,
    answer: JoinHandle<Result<Option<Updated>, ControlError>>,
}

impl Body {
    /// Sends all but the last number of a file, and returns once the update is under way.
    async fn begin(control: &Served, label: &str, value: f32) -> Self {
        let (file, (pieces, come)) = (norm_file(NORM, value), unbounded());
        pieces.unbounded_send(Ok(Bytes::copy_from_slice(&file[..file.len() - 4]))).unwrap();
        let (control, label) = (Arc::clone(control), label.into());
        let taken = Arc::new(AtomicBool::new(false));
        let come = come.inspect({
            let taken = Arc::clone(&taken);
            move |_| taken.store(true, Ordering::Relaxed)
        });
        let answer = tokio::spawn(async move { control.update_from_stream(come, Some(label)).await });
        until("the update has taken what came", async || taken.load(Ordering::Relaxed)).await;
        Self { file, pieces, answer }
    }

    /// Sends the rest.
    async fn end(self) -> Result<Option<String>, ControlError> {
        // Whoever does not read it any more has answered already.
        let _ = self.pieces.unbounded_send(Ok(Bytes::copy_from_slice(&self.file[self.file.len() - 4..])));
        drop(self.pieces);
        let updated = self.answer.await.unwrap()?;
        Ok(updated.map(|updated| updated.version.label.to_string()))
    }
}

/// Compares the weights with those of a server that had one value of the norm written.
async fn has_norm(control: &Served, value: f32) {
    let other = self::control(ControlPolicy::default());
    streamed(&other, &norm_file(NORM, value), 1_000).await.unwrap();
    assert_eq!(control.checksums().await.unwrap(), other.checksums().await.unwrap(), "the norm is not {value}");
}

#[tokio::test]
async fn a_body_is_no_part_of_the_update_of_another_body() {
    let control = control(ControlPolicy::default());
    let first = Body::begin(&control, "first", 0.25).await;
    let second = streamed(&control, &norm_file(NORM, 0.5), 1_000).await;
    assert!(matches!(second, Err(ControlError::State(_))), "{second:?}");
    // Nor do the calls of an update in phases reach it.
    for refused in [
        control.start_update().await,
        control.write_weights(norm(0.5)).await.map(|_| ()),
        control.finish_update(Some("phase".into())).await.map(|_| ()),
    ] {
        assert!(matches!(refused, Err(ControlError::State(_))), "{refused:?}");
    }
    control.cancel_update(None).await.unwrap();
    assert_eq!(first.end().await.unwrap().as_deref(), Some("first"));
    has_norm(&control, 0.25).await;
    assert_eq!((control.weights().number, &*control.weights().label), (1, "first"));
}

#[tokio::test]
async fn a_late_body_reaches_no_update_but_its_own() {
    for in_phases in [true, false] {
        let control = control(ControlPolicy::default());
        let late = Body::begin(&control, "late", 0.25).await;
        // As after --weight-update-timeout.
        control.cancel_update(Some(1)).await.unwrap();
        assert!(!control.status().updating);
        let label = if in_phases {
            control.start_update().await.unwrap();
            control.write_weights(norm(0.5)).await.unwrap();
            let refused = late.end().await;
            assert!(matches!(refused, Err(ControlError::State(_))), "{refused:?}");
            let finished = control.finish_update(Some("phase".into())).await.unwrap();
            finished.version.label.to_string()
        } else {
            let next = Body::begin(&control, "next", 0.5).await;
            let refused = late.end().await;
            assert!(matches!(refused, Err(ControlError::State(_))), "{refused:?}");
            next.end().await.unwrap().unwrap()
        };
        assert_eq!(label, if in_phases { "phase" } else { "next" });
        has_norm(&control, 0.5).await;
    }
}

#[tokio::test]
async fn a_late_part_of_an_update_reaches_no_later_one() {
    let control = control(ControlPolicy::default());
    control.start_update().await.unwrap();
    let late = Body::begin(&control, "part", 0.25).await;
    control.cancel_update(None).await.unwrap();
    control.start_update().await.unwrap();
    control.write_weights(norm(0.5)).await.unwrap();
    let refused = late.end().await;
    assert!(matches!(refused, Err(ControlError::State(_))), "{refused:?}");
    control.finish_update(None).await.unwrap();
    has_norm(&control, 0.5).await;
}

#[tokio::test]
async fn a_body_that_breaks_off_cancels_no_update_but_its_own() {
    let control = control(ControlPolicy::default());
    let late = Body::begin(&control, "late", 0.25).await;
    control.cancel_update(Some(1)).await.unwrap();
    control.start_update().await.unwrap();
    control.write_weights(norm(0.5)).await.unwrap();
    late.pieces.unbounded_send(Err("gone".to_owned())).unwrap();
    let refused = late.answer.await.unwrap();
    assert!(matches!(refused, Err(ControlError::Update(UpdateError::Refused(_)))), "{refused:?}");
    assert!(control.status().updating);
    control.finish_update(None).await.unwrap();
    has_norm(&control, 0.5).await;
}

#[tokio::test]
async fn an_update_is_not_finished_while_a_body_of_it_still_comes() {
    let control = control(ControlPolicy::default());
    control.start_update().await.unwrap();
    let part = Body::begin(&control, "part", 0.25).await;
    let early = control.finish_update(None).await;
    assert!(matches!(early, Err(ControlError::State(_))), "{early:?}");
    assert_eq!(part.end().await.unwrap(), None);
    // A part may say what the weights are called.
    assert_eq!(&*control.finish_update(None).await.unwrap().version.label, "part");
    has_norm(&control, 0.25).await;
}

#[tokio::test]
async fn each_piece_of_a_body_says_that_the_update_goes_on() {
    for in_phases in [false, true] {
        let control = control(ControlPolicy::default());
        if in_phases {
            control.start_update().await.unwrap();
        }
        let body = Body::begin(&control, "slow", 0.25).await;
        let before = control.update_heard().await.unwrap();
        // No tensor is whole yet, so that none is written.
        let next = body.file.len() - 4;
        body.pieces.unbounded_send(Ok(Bytes::copy_from_slice(&body.file[next..=next]))).unwrap();
        until("the piece is heard of", async || control.update_heard().await.unwrap() > before).await;
        body.pieces.unbounded_send(Ok(Bytes::copy_from_slice(&body.file[next + 1..]))).unwrap();
        drop(body.pieces);
        assert_eq!(body.answer.await.unwrap().unwrap().is_some(), !in_phases);
    }
}

#[tokio::test]
async fn checksums_that_are_read_while_an_update_comes_and_goes_are_refused() {
    let control = control(ControlPolicy::default());
    let before = control.checksums().await.unwrap();
    let mut reading = Box::pin(control.checksums());
    until("a read is under way", async || match poll!(&mut reading) {
        Poll::Ready(read) => {
            assert_eq!(read.unwrap(), before);
            reading = Box::pin(control.checksums());
            false
        }
        Poll::Pending => true,
    })
    .await;
    control.start_update().await.unwrap();
    control.write_weights(norm(0.5)).await.unwrap();
    control.cancel_update(None).await.unwrap();
    let read = reading.await;
    assert!(matches!(read, Err(ControlError::Update(UpdateError::Unsettled))), "{read:?}");
    assert_eq!(control.checksums().await.unwrap(), before);
}

#[tokio::test]
async fn a_server_that_waits_to_sleep_does_not_fall_asleep_in_an_update() {
    let control = control(ControlPolicy::default());
    // Nobody reads on, so that it does not end.
    let mut running = request(&control, 400);
    running.next().await.unwrap().unwrap();
    let mut sleeping = Box::pin({
        let control = Arc::clone(&control);
        async move { control.sleep(SleepLevel::Weights, PauseMode::Wait).await }
    });
    // From here on it has the state, until it awaits the request; the update is next.
    assert!(poll!(&mut sleeping).is_pending());
    let sleeping = tokio::spawn(sleeping);
    control.start_update().await.unwrap();
    control.write_weights(norm(0.5)).await.unwrap();
    drop(running);
    let refused = sleeping.await.unwrap();
    assert!(matches!(refused, Err(ControlError::State(_))), "{refused:?}");
    assert!(!control.status().asleep && control.lacking() == 0);
    control.finish_update(None).await.unwrap();
    assert_eq!(answered(request(&control, 2)).await.unwrap().0, 2);
}

#[tokio::test]
async fn a_wake_up_ends_a_sleep_that_still_waits() {
    for tags in [None, Some([SleepTag::KvCache])] {
        let control = control(ControlPolicy::default());
        // Nobody reads on, so that it does not end.
        let mut running = request(&control, 400);
        running.next().await.unwrap().unwrap();
        let mut sleeping = Box::pin({
            let control = Arc::clone(&control);
            async move { control.sleep(SleepLevel::Weights, PauseMode::Wait).await }
        });
        // As above: the call to wake up is next.
        assert!(poll!(&mut sleeping).is_pending());
        let sleeping = tokio::spawn(sleeping);
        assert!(control.wake_up(tags.as_ref().map(|tags| &tags[..])).await.unwrap().awake);
        drop(running);
        let refused = sleeping.await.unwrap();
        assert!(matches!(refused, Err(ControlError::State(_))), "{refused:?}");
        assert!(!control.status().asleep && control.lacking() == 0);
        assert_eq!(answered(request(&control, 2)).await.unwrap().0, 2);
    }
}

#[tokio::test]
async fn a_pause_that_still_waits_outlives_a_sleep() {
    let control = control(ControlPolicy::default());
    let mut running = request(&control, 400);
    running.next().await.unwrap().unwrap();
    let mut pausing = Box::pin({
        let control = Arc::clone(&control);
        async move { control.pause(PauseMode::Wait, Newcomers::Refused).await }
    });
    assert!(poll!(&mut pausing).is_pending());
    let pausing = tokio::spawn(pausing);
    control.sleep(SleepLevel::KvCache, PauseMode::Keep).await.unwrap();
    control.wake_up(None).await.unwrap();
    assert!(control.status().paused && !control.status().held, "it still waits");
    drop(running);
    pausing.await.unwrap().unwrap();
    assert_eq!(control.status(), ControlStatus { paused: true, asleep: false, updating: false, held: true });
}

/// A request that nobody reads on, so that it does not end, and a call that awaits it.
async fn awaited<T: Send + 'static>(
    control: &Served,
    wait: impl Future<Output = Result<T, ControlError>> + Send + 'static,
) -> (Events, JoinHandle<Result<T, ControlError>>) {
    let mut running = request(control, 400);
    running.next().await.unwrap().unwrap();
    let mut waiting = Box::pin(wait);
    assert!(poll!(&mut waiting).is_pending());
    (running, tokio::spawn(waiting))
}

#[tokio::test]
async fn a_wait_that_another_call_supersedes_is_answered_before_the_requests_end() {
    for is_sleep in [false, true] {
        let control = control(ControlPolicy::default());
        let wait = {
            let control = Arc::clone(&control);
            async move {
                if is_sleep {
                    return control.sleep(SleepLevel::KvCache, PauseMode::Wait).await.map(|_| ());
                }
                control.pause(PauseMode::Wait, Newcomers::Refused).await
            }
        };
        let (_running, waiting) = awaited(&control, wait).await;
        control.pause(PauseMode::Keep, Newcomers::Refused).await.unwrap();
        until("the wait is over", async || waiting.is_finished()).await;
        let refused = waiting.await.unwrap();
        assert!(matches!(refused, Err(ControlError::State(_))), "{refused:?}");
        assert_eq!(control.status(), ControlStatus { paused: true, asleep: false, updating: false, held: true });
    }
}

fn is_without_weights<T>(outcome: &Result<T, ControlError>) -> bool {
    matches!(outcome, Err(ControlError::Engine(EngineError::WithoutWeights { .. })))
}

#[tokio::test]
async fn no_request_is_awaited_while_weights_are_lost() {
    let control = control(ControlPolicy::default());
    let pause = {
        let control = Arc::clone(&control);
        async move { control.pause(PauseMode::Wait, Newcomers::Refused).await }
    };
    let (running, waiting) = awaited(&control, pause).await;
    let serving = ControlStatus::default();
    control.reset_weights().await.unwrap();
    until("the wait is over", async || waiting.is_finished()).await;
    assert!(is_without_weights(&waiting.await.unwrap()));
    assert_eq!(control.status(), serving);
    assert!(control.stands_still(), "a server that stops waits for nobody");
    assert!(is_without_weights(&control.pause(PauseMode::Wait, Newcomers::Queued).await));
    assert!(is_without_weights(&control.sleep(SleepLevel::Weights, PauseMode::Wait).await));
    assert_eq!(control.status(), serving);
    // Requests that run go on once the weights are there.
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(MODEL);
    control.update(Update { path, label: None, aborts: false }).await.unwrap();
    assert!(!control.stands_still());
    assert_eq!(answered(running).await.unwrap().1, Finish::Length);
    // Nothing runs that would be awaited.
    control.reset_weights().await.unwrap();
    control.pause(PauseMode::Wait, Newcomers::Refused).await.unwrap();
    assert!(control.status().paused);
}

#[tokio::test]
async fn a_request_that_was_aborted_is_awaited_by_nobody_whether_or_not_it_is_read() {
    let control = control(ControlPolicy::default());
    let mut running = request(&control, 400);
    running.next().await.unwrap().unwrap();
    assert_eq!((control.abort(None), control.abort(None)), (1, 0), "who was ended before does not count again");
    for mode in [PauseMode::Wait, PauseMode::Abort, PauseMode::Wait] {
        let pause = tokio::spawn({
            let control = Arc::clone(&control);
            async move { control.pause(mode, Newcomers::Refused).await }
        });
        until("the pause is there", async || pause.is_finished()).await;
        pause.await.unwrap().unwrap();
    }
    assert_eq!(control.sleep(SleepLevel::KvCache, PauseMode::Wait).await, Ok(SleepLevel::KvCache));
    assert_eq!(answered(running).await.unwrap().1, Finish::Abort);
}

#[tokio::test]
async fn a_refused_pause_brings_back_none_that_was_superseded() {
    for is_paused_before in [false, true] {
        let control = control(ControlPolicy::default());
        let pause = || {
            let control = Arc::clone(&control);
            async move { control.pause(PauseMode::Wait, Newcomers::Refused).await }
        };
        let mut running = request(&control, 400);
        running.next().await.unwrap().unwrap();
        if is_paused_before {
            control.pause(PauseMode::Keep, Newcomers::Refused).await.unwrap();
        }
        let before = control.status();
        let mut waits = Vec::new();
        for _ in 0..2 {
            let mut wait = Box::pin(pause());
            assert!(poll!(&mut wait).is_pending());
            waits.push(tokio::spawn(wait));
        }
        until("the first one is superseded", async || waits[0].is_finished()).await;
        control.reset_weights().await.unwrap();
        let [first, second] = waits.try_into().unwrap();
        let (first, second) = (first.await.unwrap(), second.await.unwrap());
        assert!(matches!(first, Err(ControlError::State(_))), "{first:?}");
        assert!(is_without_weights(&second), "{second:?}");
        assert_eq!(control.status(), before);
    }
}

#[tokio::test]
async fn no_request_is_awaited_on_a_server_that_sleeps() {
    let control = control(ControlPolicy::default());
    let mut running = request(&control, 400);
    running.next().await.unwrap().unwrap();
    control.sleep(SleepLevel::Scheduling, PauseMode::Keep).await.unwrap();
    let before = control.status();
    for refused in [
        control.sleep(SleepLevel::Weights, PauseMode::Wait).await.map(|_| ()),
        control.pause(PauseMode::Wait, Newcomers::Refused).await,
    ] {
        assert!(matches!(refused, Err(ControlError::State(_))), "{refused:?}");
    }
    assert_eq!((control.status(), control.lacking()), (before, 0));
    control.wake_up(None).await.unwrap();
    control.sleep(SleepLevel::Scheduling, PauseMode::Keep).await.unwrap();
    control.abort(None);
    control.pause(PauseMode::Wait, Newcomers::Refused).await.unwrap();
    assert_eq!(control.sleep(SleepLevel::Weights, PauseMode::Wait).await, Ok(SleepLevel::Weights));
    assert_eq!(answered(running).await.unwrap().1, Finish::Abort);
}

#[tokio::test]
async fn lost_weights_refuse_a_request_at_the_door_and_lose_no_sequence_of_one_that_runs() {
    let control =
        serve(Arc::new(engine_of(&NativeSettings { max_num_seqs: 2, ..settings() })), ControlPolicy::default());
    let sequences = 9;
    let mut begun = control.begin(GenerationRequest { sequences, ..generation(4) }).unwrap();
    let first = begun.next().await.unwrap();
    // Some sequences have ended, and others start as soon as somebody reads that.
    until("nothing runs", async || control.engine().load().running == 0).await;
    control.reset_weights().await.unwrap();
    let refused = control.begin(generation(4)).err();
    assert!(matches!(refused, Some(EngineError::WithoutWeights { .. })), "{refused:?}");
    let mut answer = Box::pin(collect(stream::iter([first]).chain(begun).boxed(), sequences));
    assert!(poll!(&mut answer).is_pending(), "the others wait for weights");
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(MODEL);
    control.update(Update { path, label: None, aborts: false }).await.unwrap();
    let completions = answer.await.unwrap();
    assert!(completions.iter().all(|completion| completion.finish == Some(Finish::Length)));
}

#[tokio::test]
async fn a_call_that_has_no_memory_for_weights_or_comes_amid_an_update_says_what_comes_first() {
    let control = control(ControlPolicy::default());
    control.sleep(SleepLevel::Weights, PauseMode::Abort).await.unwrap();
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(MODEL);
    let file = norm_file(NORM, 0.5);
    for refused in [
        control.start_update().await,
        control.update(Update { path: path.clone(), label: None, aborts: false }).await.map(|_| ()),
        streamed(&control, &file, 1_000).await.map(|_| ()),
    ] {
        let Err(ControlError::State(said)) = refused else { panic!("{refused:?}") };
        assert!(said.contains("POST /wake_up?tags=weights"), "{said}");
    }
    control.wake_up(None).await.unwrap();
    control.update(Update { path, label: None, aborts: false }).await.unwrap();
    control.start_update().await.unwrap();
    let Err(ControlError::State(said)) = control.reset_weights().await else { panic!("it was reset") };
    assert!(said.contains("cannot be reset"), "{said}");
}
