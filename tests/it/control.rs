//! The control plane of a native engine with a tiny model: every pair of calls, and what becomes of requests.

use std::{path::Path, sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, stream::BoxStream};
use tokio::task::JoinHandle;

use tito::{
    control::{
        Control, ControlError, ControlPolicy, ControlStatus, Newcomers, PauseMode, SleepLevel, SleepTag, Update,
    },
    engine::{
        Engine, EngineError, NewWeights, Routing, SamplingParams, UpdateError, WeightDtype, WeightTensor,
        native::{NativeEngine, NativeSettings, StepGate, WeightsSource},
    },
    generation::{Event, Finish, GenerationRequest, Generator, collect},
    tokenizer::Tokenizer,
};

use crate::it::patience::until;

pub(super) const MODEL: &str = "tests/golden/native/llama";

pub(super) fn settings() -> NativeSettings {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(MODEL);
    let config = std::fs::read_to_string(directory.join("config.json")).unwrap();
    NativeSettings {
        threads: Some(1),
        kv_cache_bytes: 1 << 20,
        ..NativeSettings::new(WeightsSource::Directory(directory), serde_json::from_str(&config).unwrap())
    }
}

pub(super) fn engine_of(settings: &NativeSettings) -> NativeEngine {
    NativeEngine::load(settings, &mut |_, _| ()).unwrap()
}

pub(super) fn engine() -> Arc<NativeEngine> {
    Arc::new(engine_of(&settings()))
}

/// A control plane, and what generates under it.
pub(super) struct Served {
    pub(super) control: Arc<Control>,
    generator: Generator,
}

impl std::ops::Deref for Served {
    type Target = Arc<Control>;

    fn deref(&self) -> &Arc<Control> {
        &self.control
    }
}

pub(super) fn serve(engine: Arc<dyn Engine>, policy: ControlPolicy) -> Served {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny-model/tokenizer.json");
    let tokenizer = Arc::new(Tokenizer::from_bytes(&std::fs::read(path).unwrap()).unwrap());
    let generator = Generator::new(Arc::clone(&engine), tokenizer);
    Served { control: Control::new(engine, generator.running().clone(), policy), generator }
}

pub(super) fn control(policy: ControlPolicy) -> Served {
    serve(engine(), policy)
}

/// As `control`, with a request for `tokens` tokens under way that goes no further until the gate is opened.
async fn control_with_a_request(tokens: usize) -> (Served, StepGate, JoinHandle<Result<Answered, EngineError>>) {
    let engine = engine();
    let gate = engine.step_gate();
    gate.shut().await.unwrap();
    let control = serve(engine, ControlPolicy::default());
    let running = tokio::spawn(answered(request(&control, tokens)));
    gate.step().await.unwrap();
    assert_eq!(control.engine().load().running, 1);
    (control, gate, running)
}

pub(super) type Events = BoxStream<'static, Result<Event, EngineError>>;

/// Those of several sequences, each with the index of its own.
pub(super) type Indexed = BoxStream<'static, Result<(usize, Event), EngineError>>;

impl Served {
    pub(super) fn generate(&self, request: GenerationRequest) -> Events {
        self.generator.generate(request)
    }

    /// The same, with what refuses it before a stream begins.
    pub(super) fn begin(&self, request: GenerationRequest) -> Result<Indexed, EngineError> {
        self.generator.generate_all([request])
    }
}

/// A request for `tokens` tokens, as a turn would make it.
pub(super) fn request(control: &Served, tokens: usize) -> Events {
    control.generate(generation(tokens))
}

pub(super) fn generation(tokens: usize) -> GenerationRequest {
    let sampling = SamplingParams { max_tokens: tokens, ignore_eos: true, seed: Some(1), ..SamplingParams::default() };
    GenerationRequest {
        prompt_token_ids: [5, 6, 7].into(),
        sequences: 1,
        party: None,
        sampling: Arc::new(sampling.validated(128).unwrap()),
        prompt_logprobs: None,
        candidates: None,
        cache_salt: None,
        adapter: None,
        routing: Routing::default(),
        images: Arc::default(),
        text: Arc::default(),
        owner: None,
        request_ids: ["named".into()].into(),
    }
}

/// How many tokens an answer has, how it ended, and which weights computed it.
pub(super) type Answered = (usize, Finish, Vec<String>);

/// Reads an answer to its end.
pub(super) async fn answered(stream: Events) -> Result<Answered, EngineError> {
    let events = stream.map(|event| event.map(|event| (0, event)));
    let completion = collect(events, 1).await?.remove(0);
    let labels = completion.weights.spans().iter().map(|span| span.label.to_string()).collect();
    Ok((completion.tokens.len(), completion.finish.unwrap(), labels))
}

pub(super) fn norm(value: f32) -> NewWeights {
    NewWeights::Tensors(vec![WeightTensor {
        name: "model.norm.weight".to_owned(),
        dtype: WeightDtype::F32,
        shape: vec![64],
        bytes: value.to_le_bytes().repeat(64).into(),
    }])
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Call {
    PauseAbort,
    PauseWait,
    PauseKeep,
    Resume,
    Sleep(SleepLevel),
    Wake,
    WakeWeights,
    Start,
    Write,
    Finish,
    Cancel,
    Update,
    Reset,
}

const CALLS: [Call; 15] = [
    Call::PauseAbort,
    Call::PauseWait,
    Call::PauseKeep,
    Call::Resume,
    Call::Sleep(SleepLevel::Scheduling),
    Call::Sleep(SleepLevel::KvCache),
    Call::Sleep(SleepLevel::Weights),
    Call::Wake,
    Call::WakeWeights,
    Call::Start,
    Call::Write,
    Call::Finish,
    Call::Cancel,
    Call::Update,
    Call::Reset,
];

async fn call(control: &Arc<Control>, call: Call) -> Result<(), ControlError> {
    match call {
        Call::PauseAbort => control.pause(PauseMode::Abort, Newcomers::Refused).await,
        Call::PauseWait => control.pause(PauseMode::Wait, Newcomers::Refused).await,
        Call::PauseKeep => control.pause(PauseMode::Keep, Newcomers::Refused).await,
        Call::Resume => control.resume().await,
        Call::Sleep(level) => control.sleep(level, PauseMode::Abort).await.map(|_| ()),
        Call::Wake => control.wake_up(None).await.map(|_| ()),
        Call::WakeWeights => control.wake_up(Some(&[SleepTag::Weights])).await.map(|_| ()),
        Call::Start => control.start_update().await,
        Call::Write => control.write_weights(norm(0.5)).await.map(|_| ()),
        Call::Finish => control.finish_update(None).await.map(|_| ()),
        Call::Cancel => control.cancel_update(None).await,
        Call::Update => {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(MODEL);
            control.update(Update { path, label: None, aborts: false }).await.map(|_| ())
        }
        Call::Reset => control.reset_prefix_cache(true).await.map(|_| ()),
    }
}

/// What a server is in after some calls, written down anew: which calls are possible, and what is left to be done before
/// a token comes.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a part of the state of its own")]
struct Model {
    paused: bool,
    refuses: bool,
    asleep: bool,
    kv_cache_gone: bool,
    weights_gone: bool,
    /// Some weights are missing, whether or not there is memory for them.
    lacks: bool,
    updating: bool,
    /// Whether something was written since an update began.
    wrote: bool,
}

impl Model {
    /// Whether a call is done; what becomes of the state.
    fn after(mut self, call: Call) -> (bool, Self) {
        let done = match call {
            Call::PauseAbort | Call::PauseWait | Call::PauseKeep => {
                (self.paused, self.refuses) = (true, call != Call::PauseKeep);
                true
            }
            Call::Resume => {
                (self.paused, self.refuses) = (false, false);
                true
            }
            Call::Sleep(_) if self.updating => false,
            Call::Sleep(level) => {
                self.asleep = true;
                self.kv_cache_gone |= level >= SleepLevel::KvCache;
                self.weights_gone |= level == SleepLevel::Weights;
                self.lacks |= level == SleepLevel::Weights;
                true
            }
            Call::Wake => {
                (self.asleep, self.kv_cache_gone, self.weights_gone) = (false, false, false);
                true
            }
            Call::WakeWeights => {
                self.weights_gone = false;
                self.asleep &= self.kv_cache_gone;
                true
            }
            Call::Start if self.updating || self.weights_gone => false,
            Call::Start => {
                (self.updating, self.wrote) = (true, false);
                true
            }
            Call::Write => {
                self.wrote |= self.updating;
                self.updating
            }
            Call::Finish => {
                // Nothing is no update, and one that brings some of the weights that lack leaves the rest to others.
                let done = self.updating && self.wrote;
                self.updating = false;
                done
            }
            Call::Cancel => {
                self.updating = false;
                true
            }
            Call::Update => {
                let done = !self.updating && !self.weights_gone;
                self.lacks &= !done;
                // One that comes amid another ends it.
                self.updating = false;
                done
            }
            Call::Reset => true,
        };
        (done, self)
    }
}

#[tokio::test]
async fn every_pair_of_calls_is_done_or_refused_and_leaves_a_server_that_can_be_had_back() {
    // From every state there is a way back, so that one server goes through all of them.
    let control = control(ControlPolicy::default());
    for first in CALLS {
        for second in CALLS {
            let mut model = Model::default();
            for (index, one) in [first, second].into_iter().enumerate() {
                let (done, after) = model.after(one);
                let outcome = call(&control, one).await;
                assert_eq!(outcome.is_ok(), done, "{first:?}, {second:?} [{index}]: {outcome:?} from {model:?}");
                model = after;
            }
            let shown = control.status();
            // No request runs that a pause would wait for.
            let held = model.paused || model.asleep;
            let expected = ControlStatus { paused: model.paused, asleep: model.asleep, updating: model.updating, held };
            assert_eq!(control.stands_still(), held || model.updating || model.lacks);
            assert_eq!(shown, expected, "{first:?}, {second:?}");
            assert_eq!(control.lacking() > 0, model.lacks, "{first:?}, {second:?}");
            let outcome = request(&control, 2).next().now_or_never();
            match outcome {
                Some(Some(Err(EngineError::Paused))) => assert!(model.refuses, "{first:?}, {second:?}"),
                Some(Some(Err(EngineError::WithoutWeights { .. }))) => assert!(model.lacks, "{first:?}, {second:?}"),
                other => assert!(!model.refuses && !model.lacks, "{first:?}, {second:?}: {other:?}"),
            }
            for one in [Call::Cancel, Call::Wake, Call::Resume] {
                call(&control, one).await.unwrap();
            }
            if model.lacks {
                call(&control, Call::Update).await.unwrap();
            }
            let (tokens, finish, _) = answered(request(&control, 2)).await.unwrap();
            assert_eq!((tokens, finish), (2, Finish::Length), "{first:?}, {second:?}");
        }
    }
}

#[tokio::test]
async fn a_pause_ends_awaits_or_keeps_the_requests_that_run() {
    for mode in [PauseMode::Abort, PauseMode::Wait, PauseMode::Keep] {
        let (control, gate, running) = control_with_a_request(400).await;
        match mode {
            PauseMode::Abort => {
                control.pause(mode, Newcomers::Refused).await.unwrap();
                assert_eq!(running.await.unwrap().unwrap().1, Finish::Abort);
            }
            PauseMode::Wait => {
                let mut pausing = Box::pin(control.pause(mode, Newcomers::Refused));
                assert!(pausing.as_mut().now_or_never().is_none());
                gate.open().await.unwrap();
                pausing.await.unwrap();
                let (tokens, finish, _) = running.await.unwrap().unwrap();
                assert_eq!((tokens, finish), (400, Finish::Length));
            }
            PauseMode::Keep => {
                control.pause(mode, Newcomers::Refused).await.unwrap();
                gate.open().await.unwrap();
                control.write_weights(norm(0.5)).await.unwrap_err();
                control.start_update().await.unwrap();
                control.write_weights(norm(0.5)).await.unwrap();
                control.finish_update(Some("new".into())).await.unwrap();
                assert!(!running.is_finished());
                control.resume().await.unwrap();
                let (tokens, finish, labels) = running.await.unwrap().unwrap();
                assert_eq!((tokens, finish), (400, Finish::Length));
                assert_eq!(labels.last().map(String::as_str), Some("new"));
            }
        }
    }
}

#[tokio::test]
async fn requests_that_come_during_a_pause_are_refused_or_wait_as_the_server_was_told() {
    for (mode, newcomers, queues, waits) in [
        (PauseMode::Abort, Newcomers::Refused, false, false),
        (PauseMode::Wait, Newcomers::Refused, false, false),
        (PauseMode::Keep, Newcomers::Refused, false, true),
        (PauseMode::Abort, Newcomers::Queued, false, true),
        (PauseMode::Abort, Newcomers::Refused, true, true),
    ] {
        let control = control(ControlPolicy { queue_while_paused: queues, ..ControlPolicy::default() });
        control.pause(mode, newcomers).await.unwrap();
        let mut stream = request(&control, 3);
        let first = stream.next().now_or_never();
        if !waits {
            assert_eq!(first, Some(Some(Err(EngineError::Paused))), "{mode:?}");
            continue;
        }
        assert_eq!(first, None, "{mode:?}");
        control.resume().await.unwrap();
        assert_eq!(answered(stream).await.unwrap().0, 3, "{mode:?}");
    }
}

#[tokio::test]
async fn a_pause_that_waits_ends_with_a_resume() {
    let control = control(ControlPolicy::default());
    // Nobody reads this one, so that it never ends.
    let unread = request(&control, 400);
    let pausing = tokio::spawn({
        let control = Arc::clone(&control.control);
        async move { control.pause(PauseMode::Wait, Newcomers::Refused).await }
    });
    until("the pause is shown", async || control.status().paused).await;
    control.resume().await.unwrap();
    drop(unread);
    assert!(matches!(pausing.await.unwrap(), Err(ControlError::State(_))));
    assert_eq!(answered(request(&control, 2)).await.unwrap().0, 2);
}

#[tokio::test]
async fn a_sleep_that_waits_lets_what_a_pause_kept_go_on_to_its_end() {
    let (control, gate, running) = control_with_a_request(300).await;
    control.pause(PauseMode::Keep, Newcomers::Refused).await.unwrap();
    gate.open().await.unwrap();
    assert!(!running.is_finished());
    control.sleep(SleepLevel::Scheduling, PauseMode::Wait).await.unwrap();
    assert_eq!(running.await.unwrap().unwrap().1, Finish::Length);
    assert_eq!(control.status(), ControlStatus { paused: true, asleep: true, updating: false, held: true });
    assert!(request(&control, 2).next().now_or_never().is_none());
}

#[tokio::test]
async fn an_update_of_which_nothing_more_comes_is_undone() {
    let mut update_timeout = Duration::from_millis(200);
    let (control, before) = loop {
        let control = control(ControlPolicy { update_timeout, ..ControlPolicy::default() });
        let before = control.checksums().await.unwrap();
        control.start_update().await.unwrap();
        match control.write_weights(norm(0.5)).await {
            Ok(_) => break (control, before),
            // A machine that was held up for as long gets longer.
            Err(ControlError::Update(UpdateError::OutOfOrder(_))) => update_timeout *= 2,
            Err(error) => panic!("{error:?}"),
        }
    };
    match control.checksums().await {
        Err(error) => assert!(matches!(error, ControlError::Update(UpdateError::Unsettled)), "{error:?}"),
        // On a machine that was held up, the update is undone already.
        Ok(sums) => assert_eq!(sums, before),
    }
    until("the update is undone", async || !control.status().updating).await;
    assert_eq!(control.checksums().await.unwrap(), before);
    let late = control.finish_update(None).await;
    assert!(matches!(late, Err(ControlError::Update(UpdateError::OutOfOrder(_)))), "{late:?}");
}

#[tokio::test]
async fn an_engine_that_cannot_be_controlled_says_so_and_can_still_be_paused() {
    let info = tito::engine::EngineInfo::scripted(16, 64);
    let engine = tito::engine::scripted::ScriptedEngine::hashed(info, vec![2]);
    let control = serve(Arc::new(engine), ControlPolicy::default());
    let refused = control.pause(PauseMode::Keep, Newcomers::Refused).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the engine `scripted` cannot keep running requests in a pause; start the server with --engine native"
    );
    assert!(!control.status().paused);
    for mode in [PauseMode::Abort, PauseMode::Wait] {
        control.pause(mode, Newcomers::Refused).await.unwrap();
        assert!(control.status().paused);
        control.resume().await.unwrap();
    }
    assert!(matches!(control.start_update().await, Err(ControlError::Unsupported { .. })));
}

/// A file of safetensors with one tensor of 64 numbers.
pub(super) fn norm_file(name: &str, value: f32) -> Vec<u8> {
    let header = serde_json::json!({ name: { "dtype": "F32", "shape": [64], "data_offsets": [0, 256] } }).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(value.to_le_bytes().repeat(64));
    file
}

pub(super) async fn streamed(control: &Served, file: &[u8], piece: usize) -> Result<Option<String>, ControlError> {
    let pieces: Vec<Result<bytes::Bytes, String>> =
        file.chunks(piece).map(|piece| Ok(bytes::Bytes::copy_from_slice(piece))).collect();
    let updated = control.update_from_stream(futures::stream::iter(pieces), Some("streamed".into())).await?;
    Ok(updated.map(|updated| updated.version.label.to_string()))
}

#[tokio::test]
async fn a_stream_of_weights_is_taken_whole_or_not_at_all() {
    let control = control(ControlPolicy::default());
    let before = control.checksums().await.unwrap();
    let name = "model.norm.weight";
    let file = norm_file(name, 0.25);
    for (bad, what) in [
        (file[..file.len() - 1].to_vec(), "ended early"),
        ([&file[..], b"x"].concat(), "follow the stream's last tensor"),
        (norm_file("model.norm.bias", 0.25), "model.norm.bias"),
        (vec![255; 64], "header"),
        (Vec::new(), "ended early"),
    ] {
        let refused = streamed(&control, &bad, 50).await.unwrap_err();
        assert!(
            matches!(&refused, ControlError::Update(UpdateError::Refused(reason)) if reason.contains(what)),
            "{refused}"
        );
        assert_eq!((control.checksums().await.unwrap() == before, control.status().updating), (true, false));
    }
    assert_eq!(streamed(&control, &file, 1).await.unwrap().as_deref(), Some("streamed"));
    let after = control.checksums().await.unwrap();
    let changed: Vec<&String> =
        after.iter().filter(|(name, sum)| before[*name] != **sum).map(|(name, _)| name).collect();
    assert_eq!(changed, [name]);
    // Within an update in phases, a stream is a part of it.
    control.start_update().await.unwrap();
    assert_eq!(streamed(&control, &norm_file(name, 0.5), 1_000).await.unwrap(), None);
    assert!(control.status().updating);
    control.cancel_update(None).await.unwrap();
    assert_eq!(control.checksums().await.unwrap(), after);
}
