//! What a step does not wait for: structured outputs that take long to follow.
//!
//! Owns the threads that work out, between the steps, which tokens such a sequence may have next. Refuses to decide who
//! is slow, and to know when a sequence goes on.

use std::{
    num::NonZero,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Weak,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

use parking_lot::Mutex;

use crate::sampling::SequenceSampler;

/// A sequence to prepare, if it is still there when its turn comes, and what to do after that.
struct Job {
    sampler: Weak<Mutex<SequenceSampler>>,
    then: Box<dyn FnOnce() + Send>,
}

/// Threads that are started when they are first needed, and that end when this is dropped.
#[derive(Default)]
pub(super) struct Aside {
    jobs: Option<Sender<Job>>,
}

impl Aside {
    /// Prepares the next position of a sequence, and calls `then` from another thread once that is done. Where there are
    /// no threads, the step does it as for any other sequence.
    pub(super) fn prepare(&mut self, sampler: &Arc<Mutex<SequenceSampler>>, then: impl FnOnce() + Send + 'static) {
        let jobs = self.jobs.get_or_insert_with(start);
        let job = Job { sampler: Arc::downgrade(sampler), then: Box::new(then) };
        if let Err(refused) = jobs.send(job) {
            (refused.0.then)();
        }
    }
}

/// Half as many threads as there are cores: the other half is left to those who do not wait for a grammar.
fn start() -> Sender<Job> {
    let (sender, jobs) = channel();
    let jobs = Arc::new(Mutex::new(jobs));
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    for _ in 0..(cores / 2).max(1) {
        let jobs = Arc::clone(&jobs);
        // If no thread could be started, nobody has the receiver, and sending fails.
        let _ = thread::Builder::new().name("grammar".to_owned()).spawn(move || work(&jobs));
    }
    sender
}

fn work(jobs: &Mutex<Receiver<Job>>) {
    loop {
        // The lock is held while waiting, so that whoever has it gets the next job.
        let Ok(job) = jobs.lock().recv() else { return };
        if let Some(sampler) = job.sampler.upgrade() {
            // The step will meet the cause of the panic again, and answers for it.
            let _ = catch_unwind(AssertUnwindSafe(|| sampler.lock().prepare()));
        }
        (job.then)();
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use parking_lot::Condvar;

    use super::super::{
        tests::{bits, collected, engine, params, request, settings},
        *,
    };
    use crate::{
        TokenId,
        engine::{EngineLoad, EngineOutput, FinishReason, SamplingParams},
        sampling::{ConstraintState, SampleError, SharedConstraint, TokenConstraint, TokenMask},
    };

    /// A gate that is opened once.
    #[derive(Debug, Default)]
    struct Gate {
        is_open: parking_lot::Mutex<bool>,
        opened: Condvar,
    }

    impl Gate {
        fn open(&self) {
            *self.is_open.lock() = true;
            self.opened.notify_all();
        }

        fn pass(&self) {
            let mut is_open = self.is_open.lock();
            self.opened.wait_while(&mut is_open, |is_open| !*is_open);
        }
    }

    /// Waits at the second position until a gate opens; allows some tokens, or fails.
    #[derive(Debug, Clone)]
    struct Slow {
        gate: Arc<Gate>,
        position: usize,
        fails_at: Option<usize>,
    }

    impl TokenConstraint for Slow {
        fn start(&self) -> Box<dyn ConstraintState> {
            Box::new(self.clone())
        }
    }

    impl ConstraintState for Slow {
        fn allow(&mut self, mask: &mut TokenMask) -> Result<bool, SampleError> {
            if self.position > 0 {
                self.gate.pass();
            }
            if self.fails_at == Some(self.position) {
                return Err(SampleError::NothingLeft);
            }
            mask.fill(100);
            Ok(false)
        }

        fn accept(&mut self, _id: TokenId) -> Result<(), SampleError> {
            self.position += 1;
            Ok(())
        }
    }

    fn slow(prompt: TokenId, fails_at: Option<usize>) -> (Arc<Gate>, SequenceRequest) {
        let gate = Arc::<Gate>::default();
        let constraint =
            SharedConstraint::new(Arc::new(Slow { gate: Arc::clone(&gate), position: 0, fails_at })).always_long();
        (gate, request(&[prompt; 20], SamplingParams { constraint: Some(constraint), ..params(6) }))
    }

    /// Reads up to the first token: the next one is not prepared before the gate opens.
    async fn first_token(stream: &mut TokenStream) {
        while !matches!(stream.next().await, Some(Ok(EngineOutput::Token(_)))) {}
    }

    #[tokio::test]
    async fn others_do_not_wait_for_a_slow_constraint_and_it_changes_no_bit() {
        let engine = engine(&settings("llama"));
        let (gate, request) = slow(3, None);
        gate.open();
        let alone = collected(engine.generate(request)).await;
        assert_eq!((alone.1.len(), alone.2), (6, FinishReason::Length));

        let (gate, request) = slow(3, None);
        let mut stream = engine.generate(request);
        first_token(&mut stream).await;
        let other = || super::super::tests::request(&[9; 20], params(30));
        assert_eq!(collected(engine.generate(other())).await.1.len(), 30, "while the slow one is in the engine");
        assert_eq!(engine.load(), EngineLoad { paused: 1, ..engine.load() });
        gate.open();
        let (_, tokens, end) = collected(stream).await;
        let (expected, rest) = (bits(&alone), bits(&(Vec::new(), tokens, end)));
        assert_eq!(rest, expected[1..]);
    }

    #[tokio::test]
    async fn a_slow_sequence_that_nobody_reads_any_more_leaves_nothing() {
        let engine = engine(&settings("llama"));
        let (gate, request) = slow(3, None);
        let mut stream = engine.generate(request);
        first_token(&mut stream).await;
        drop(stream);
        assert!(engine.reset_prefix_cache(false).await.unwrap());
        assert_eq!(engine.load().paused, 0);
        gate.open();
        let after = super::super::tests::request(&[9; 20], params(3));
        assert_eq!(collected(engine.generate(after)).await.1.len(), 3);
    }

    #[tokio::test]
    async fn what_fails_aside_is_the_sequences_own_error() {
        let engine = engine(&settings("llama"));
        let (gate, request) = slow(3, Some(1));
        gate.open();
        let outputs: Vec<_> = engine.generate(request).collect().await;
        assert!(matches!(outputs.last(), Some(Err(_))), "{outputs:?}");
        let tokens = outputs.iter().filter(|output| matches!(output, Ok(EngineOutput::Token(_))));
        assert_eq!(tokens.count(), 1);
    }
}
