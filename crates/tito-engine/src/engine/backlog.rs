//! Outputs that were sampled and not read yet, counted in bytes: those of each sequence, and those of all together.
//!
//! Owns the bounds, and who has to wait because of them. Refuses to stop a sequence by itself: the engine asks after
//! each output whether its sequence has to pause, and is told when it can go on.
//!
//! A sequence whose outputs are read as they come is never held up for the sake of those that are not: beyond the
//! bound over all, a sequence pauses only while it has something unread of its own, or more than it is spared for.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Instant,
};

use futures::Stream;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::{
    EngineError, EngineOutput, RequestTimes, SampledToken,
    meters::{SamplingMeter, SamplingMeters},
};
use crate::sampling::TopLogprob;

/// An output, or why there is none.
type Output = Result<EngineOutput, EngineError>;

/// How many bytes may wait for clients. One output more than that may: it is known only once it is there.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// The most that may wait of one sequence.
    pub sequence: usize,
    /// The most that may wait of all sequences together.
    pub all: usize,
    /// So much of a sequence may always wait, however much waits of all others.
    pub spared: usize,
}

impl Default for Bounds {
    /// Some 3,000 tokens of a sequence with 20 alternatives each, for 256 sequences.
    fn default() -> Self {
        Self { sequence: 1 << 20, all: 1 << 28, spared: 0 }
    }
}

/// What waits for all clients of an engine.
#[derive(Debug)]
pub struct Backlog {
    bounds: Bounds,
    bytes: AtomicUsize,
    meters: SamplingMeters,
}

/// What waits for the client of one sequence.
struct Unread {
    all: Arc<Backlog>,
    state: Mutex<BacklogState>,
}

#[derive(Default)]
struct BacklogState {
    bytes: usize,
    /// The sequence waits to be told that there is room.
    paused: bool,
    /// Nobody reads any more.
    gone: bool,
}

/// Where an engine sends the outputs of a sequence; sending never waits. Clones are the same place.
#[derive(Clone)]
pub struct Sender {
    unread: Arc<Unread>,
    outputs: mpsc::UnboundedSender<Output>,
    meter: Arc<Mutex<SamplingMeter>>,
    timed: bool,
}

/// The outputs of a sequence, for its client.
pub struct Receiver {
    unread: Arc<Unread>,
    outputs: mpsc::UnboundedReceiver<Output>,
    on_room: Box<dyn Fn() + Send + Sync>,
}

/// Nobody reads any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

impl Backlog {
    /// Nothing waits yet.
    pub fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self { bounds, bytes: AtomicUsize::new(0), meters: SamplingMeters::new() })
    }

    /// The two ends of a sequence whose request has `arrived`; `on_room` is called by whoever reads, when a sequence that
    /// paused can go on.
    #[expect(clippy::disallowed_methods, reason = "what waits is bounded by its bytes, not by the number of outputs")]
    pub fn channel(
        self: &Arc<Self>,
        prompt_tokens: usize,
        arrived: Instant,
        on_room: impl Fn() + Send + Sync + 'static,
    ) -> (Sender, Receiver) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let unread = Arc::new(Unread { all: Arc::clone(self), state: Mutex::default() });
        let meter = Arc::new(Mutex::new(self.meters.start(prompt_tokens, arrived)));
        let outputs = Sender { unread: Arc::clone(&unread), outputs: sender, meter, timed: false };
        (outputs, Receiver { unread, outputs: receiver, on_room: Box::new(on_room) })
    }

    /// Bytes that wait for all clients.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    fn is_full(&self) -> bool {
        self.bytes() > self.bounds.all
    }
}

impl Unread {
    /// Whether the sequence has to pause.
    fn is_full(&self, state: &BacklogState) -> bool {
        state.bytes > self.all.bounds.sequence || (state.bytes > self.all.bounds.spared && self.all.is_full())
    }

    /// Whether a sequence that paused can go on. Half of its room is free again then, so that it does not pause at
    /// every token.
    fn has_room(&self, state: &BacklogState) -> bool {
        state.bytes <= self.all.bounds.spared || (state.bytes <= self.all.bounds.sequence / 2 && !self.all.is_full())
    }
}

impl Sender {
    /// Sends the times of the sequence before each of its tokens, if they are asked for.
    #[must_use]
    pub fn timed(self, timed: bool) -> Self {
        Self { timed, ..self }
    }

    /// Takes note that the sequence begins to run.
    pub fn scheduled(&self) {
        self.meter.lock().scheduled();
    }

    /// How long the sequence was in each phase so far.
    pub(crate) fn times(&self) -> RequestTimes {
        self.meter.lock().times()
    }

    /// Whether a token was sent.
    pub(crate) fn has_sampled(&self) -> bool {
        self.meter.lock().has_sampled()
    }

    /// Sends an output, and counts it as sampled.
    pub fn send(&self, output: Output) -> Result<(), Gone> {
        if let Ok(output) = &output {
            let mut meter = self.meter.lock();
            meter.observe(output);
            let times = (self.timed && matches!(output, EngineOutput::Token(_))).then(|| meter.times());
            drop(meter);
            if let Some(times) = times {
                self.push(Ok(EngineOutput::Times(times)))?;
            }
        }
        self.push(output)
    }

    fn push(&self, output: Output) -> Result<(), Gone> {
        let mut state = self.unread.state.lock();
        if state.gone {
            return Err(Gone);
        }
        let bytes = size(&output);
        state.bytes += bytes;
        self.unread.all.bytes.fetch_add(bytes, Ordering::AcqRel);
        // The receiver says that it is gone before it is, under the same lock.
        self.outputs.send(output).map_err(|_| Gone)
    }

    /// Whether the sequence has to pause now; if so, the receiver tells when it can go on.
    pub fn pauses(&self) -> bool {
        let mut state = self.unread.state.lock();
        state.paused = !state.gone && self.unread.is_full(&state);
        state.paused
    }

    /// Resolves when nobody reads any more.
    pub async fn closed(&self) {
        self.outputs.closed().await;
    }
}

impl Stream for Receiver {
    type Item = Output;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Output>> {
        let polled = self.outputs.poll_recv(context);
        if let Poll::Ready(Some(output)) = &polled {
            self.took(size(output));
        }
        polled
    }
}

impl Receiver {
    fn took(&self, bytes: usize) {
        let mut state = self.unread.state.lock();
        state.bytes -= bytes;
        self.unread.all.bytes.fetch_sub(bytes, Ordering::AcqRel);
        let goes_on = state.paused && self.unread.has_room(&state);
        if goes_on {
            state.paused = false;
            drop(state);
            (self.on_room)();
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut state = self.unread.state.lock();
        state.gone = true;
        self.unread.all.bytes.fetch_sub(std::mem::take(&mut state.bytes), Ordering::AcqRel);
    }
}

/// What an output takes up.
fn size(output: &Output) -> usize {
    let token = |token: &SampledToken| {
        let mask = token.sampling_mask.as_ref().map_or(0, |mask| size_of_val(&**mask));
        size_of::<SampledToken>() + token.top_logprobs.len() * size_of::<TopLogprob>() + mask
    };
    let inner = match output {
        Ok(EngineOutput::Token(sampled)) => token(sampled),
        Ok(EngineOutput::Prompt(prompt)) => {
            prompt.logprobs.iter().map(token).sum::<usize>() + size_of_val(prompt.candidates.as_slice())
        }
        Ok(EngineOutput::Routes(routes)) => size_of_val(routes.0.as_slice()),
        Ok(EngineOutput::Weights(_) | EngineOutput::Times(_) | EngineOutput::Finished(_)) | Err(_) => 0,
    };
    size_of::<Output>() + inner
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use futures::{FutureExt, StreamExt};

    use super::*;
    use crate::engine::PromptOutput;

    #[expect(clippy::unnecessary_wraps, reason = "what a sequence gives may be an error")]
    fn token(alternatives: usize) -> Output {
        let top_logprobs = vec![TopLogprob { id: 1, logprob: 0.0, rank: 1 }; alternatives];
        Ok(EngineOutput::Token(SampledToken { id: 1, logprob: 0.0, rank: 1, top_logprobs, sampling_mask: None }))
    }

    /// Room for `sequence` tokens of a sequence and `all` of all.
    fn backlog(sequence: usize, all: usize) -> Arc<Backlog> {
        let one = size(&token(5));
        Backlog::new(Bounds { sequence: sequence * one, all: all * one, spared: 0 })
    }

    struct Ends {
        sender: Sender,
        receiver: Receiver,
        told: Arc<AtomicU32>,
    }

    fn ends(backlog: &Arc<Backlog>) -> Ends {
        let told = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&told);
        let (sender, receiver) = backlog.channel(1, Instant::now(), move || _ = count.fetch_add(1, Ordering::Relaxed));
        Ends { sender, receiver, told }
    }

    impl Ends {
        /// Sends until it has to pause; how many tokens that were.
        fn fill(&self) -> usize {
            (1..100).find(|_| self.sender.send(token(5)).is_ok() && self.sender.pauses()).expect("there is a bound")
        }

        /// Reads until the sequence can go on; how many tokens that were.
        fn drain(&mut self) -> usize {
            let before = self.told.load(Ordering::Relaxed);
            let read = (1..100).find(|_| {
                assert!(self.receiver.next().now_or_never().is_some(), "it was never told");
                self.told.load(Ordering::Relaxed) > before
            });
            read.expect("it is told")
        }
    }

    #[test]
    fn a_sequence_pauses_beyond_its_bound_and_goes_on_when_half_of_it_is_read() {
        let backlog = backlog(8, 100);
        let mut ends = ends(&backlog);
        assert_eq!((ends.fill(), ends.drain(), ends.fill(), ends.drain()), (9, 5, 5, 5));
        drop(ends);
        assert_eq!(backlog.bytes(), 0);
    }

    #[test]
    fn beyond_the_bound_over_all_a_sequence_pauses_only_while_it_has_something_unread() {
        let backlog = backlog(8, 20);
        let unread: Vec<Ends> = (0..4).map(|_| ends(&backlog)).collect();
        assert_eq!(unread.iter().map(Ends::fill).collect::<Vec<_>>(), [9, 9, 3, 1]);
        let mut read = ends(&backlog);
        for _ in 0..50 {
            assert_eq!((read.fill(), read.drain()), (1, 1));
        }
        drop(unread);
        assert_eq!((backlog.bytes(), read.fill()), (0, 9));
    }

    #[test]
    fn all_that_is_said_of_a_prompt_counts() {
        let of = |logprobs: usize, candidates: usize| {
            let token = SampledToken { id: 1, logprob: 0.0, rank: 1, top_logprobs: Vec::new(), sampling_mask: None };
            let prompt = PromptOutput {
                logprobs: vec![token; logprobs],
                candidates: vec![0.0; candidates],
                ..PromptOutput::default()
            };
            size(&Ok(EngineOutput::Prompt(prompt)))
        };
        let more = (of(3, 0) - of(0, 0), of(0, 3_000) - of(0, 0));
        assert_eq!(more, (3 * size_of::<SampledToken>(), 3_000 * size_of::<f32>()));
    }

    #[test]
    fn one_output_that_is_larger_than_the_bound_is_sent_and_then_waited_for() {
        let backlog = backlog(1, 100);
        let mut ends = ends(&backlog);
        assert_eq!(ends.sender.send(token(5_000)), Ok(()));
        assert!(ends.sender.pauses());
        assert_eq!((ends.drain(), backlog.bytes()), (1, 0));
    }

    #[test]
    fn nobody_waits_for_a_reader_that_is_gone() {
        let backlog = backlog(1, 1);
        let Ends { sender, receiver, .. } = ends(&backlog);
        assert_eq!(sender.send(token(50)), Ok(()));
        drop(receiver);
        assert_eq!((backlog.bytes(), sender.pauses(), sender.send(token(5))), (0, false, Err(Gone)));
        assert_eq!(backlog.bytes(), 0);
    }
}
