//! The sequences of a request, each of which is made when there may be a seat for it.
//!
//! Owns how many of them exist at a time. Refuses to know who is next in the engine: their places are taken together,
//! before the first one starts, and number them in their order, whenever each of them starts.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use futures::{
    FutureExt, StreamExt, TryStreamExt,
    stream::{self, BoxStream, SelectAll},
};

use super::{
    Delta, Door, Event, EventStream, Finish, GenerationRequest, Generator, Loops, TextDecoder, events,
    meters::{Meter, Meters, Siblings},
    parsed,
    running::{Entering, Registration},
    unread::ended_unless_read,
};
use crate::{
    engine::{EngineError, EngineOutput, FinishReason, SequenceRequest, Ticket},
    request_trace::{self, Asked, RequestTrace},
};

/// For each seat of the engine, one sequence that sits in it and one that is ready to.
const SEQUENCES_A_SEAT: usize = 2;

/// The sequences of one prompt.
struct Group {
    request: GenerationRequest,
    started: usize,
    siblings: Arc<Siblings>,
    registration: Arc<Registration>,
    meters: Meters,
}

/// The sequences of a request that did not start yet.
struct Unstarted {
    generator: Generator,
    /// The first one is the next one.
    groups: std::vec::IntoIter<Group>,
    group: Option<Group>,
    /// That of the next sequence.
    index: usize,
    /// How many there are in all.
    sequences: usize,
    arrival: Arrival,
    /// The request's.
    span: tracing::Span,
}

/// A request, as it arrives.
#[derive(Clone)]
struct Arrival {
    at: Instant,
    /// Where it is noted what happens to it, if it is.
    trace: Option<Arc<RequestTrace>>,
}

impl Arrival {
    /// The sequences of `requests` arrive now.
    fn of(requests: &[GenerationRequest]) -> Self {
        let trace = request_trace::current();
        if let (Some(trace), Some(first)) = (&trace, requests.first()) {
            trace.asks(Asked {
                id: first.request_ids.first().cloned(),
                prompt_tokens: requests.iter().map(|request| request.prompt_token_ids.len()).sum(),
                n: first.sequences,
                sequences: requests.iter().map(|request| request.sequences).sum(),
                max_tokens: first.sampling.max_tokens,
                top_p: first.sampling.top_p,
                temperature: first.sampling.temperature,
                adapter: first.adapter.as_ref().map(|adapter| Arc::clone(adapter.name())),
            });
        }
        Self { at: Instant::now(), trace }
    }
}

/// A request that waits at the door.
struct Waiting {
    requests: Vec<GenerationRequest>,
    /// Those of its prompts.
    registrations: Vec<Arc<Registration>>,
    arrival: Arrival,
}

/// An event of a sequence, with the index of that one.
type Indexed = Result<(usize, Event), EngineError>;

/// The stream of a request that is refused when it has waited.
fn failing(error: EngineError) -> BoxStream<'static, Indexed> {
    stream::once(async { Err(error) }).boxed()
}

impl Generator {
    /// Starts one generation.
    #[cfg(any(test, feature = "internals"))]
    pub fn generate(&self, request: GenerationRequest) -> EventStream {
        self.generate_all([request]).unwrap_or_else(failing).map_ok(|(_, event)| event).boxed()
    }

    /// Generates all sequences of several prompts; each event comes with the index of its sequence, those of the first
    /// prompt coming first. Sequences start in this order, as the engine has seats for them and the stream is read.
    ///
    /// # Errors
    /// There is no room for them, or new requests are refused: known before a stream begins, so that it is a status.
    pub fn generate_all(
        &self,
        requests: impl IntoIterator<Item = GenerationRequest>,
    ) -> Result<BoxStream<'static, Indexed>, EngineError> {
        let mut requests: Vec<GenerationRequest> = requests.into_iter().collect();
        for request in &mut requests {
            self.seed(request);
        }
        let party = requests.first().and_then(|request| request.party.clone());
        let sequences = requests.iter().map(|request| request.sequences).sum();
        let arrival = Arrival::of(&requests);
        let mut places = match self.engine.reserve(party, sequences) {
            Ok(places) => places,
            Err(error) => return Err(self.refused(&requests, error, arrival)),
        };
        let prompts = requests.iter().map(|request| Entering {
            owner: request.owner.as_ref(),
            ids: &request.request_ids,
            adapter: request.adapter.as_ref().map(|adapter| adapter.id()),
            places: places.split_off(request.sequences),
        });
        let registrations = self.running.register(prompts);
        self.clone().at_the_door(Waiting { requests, registrations, arrival })
    }

    /// Begins, once the door is open.
    fn at_the_door(self, waiting: Waiting) -> Result<BoxStream<'static, Indexed>, EngineError> {
        let door = self.running.admit(&waiting.registrations);
        // Nobody knows when lost weights come again. Sequences of a request that has begun wait for them in the engine.
        if door == Door::Open
            && let Some(error) = self.without_weights()
        {
            return Err(self.refused(&waiting.requests, error, waiting.arrival));
        }
        Ok(match door {
            Door::Open => self.begun(waiting),
            _ if waiting.registrations.iter().all(|registration| registration.is_ended()) => self.ended(&waiting),
            Door::Refusing => return Err(self.refused(&waiting.requests, EngineError::Paused, waiting.arrival)),
            Door::Queueing => {
                let begin = async move {
                    self.running.admitted(&waiting.registrations).await;
                    self.at_the_door(waiting).unwrap_or_else(failing)
                };
                begin.flatten_stream().boxed()
            }
        })
    }

    /// Why nothing can be sampled for a request that comes now, if weights are lost.
    fn without_weights(&self) -> Option<EngineError> {
        let missing = self.engine.control()?.lacking();
        (missing > 0).then_some(EngineError::WithoutWeights { missing })
    }

    fn begun(self, waiting: Waiting) -> BoxStream<'static, Indexed> {
        let Waiting { requests, registrations, arrival } = waiting;
        let group = |(request, registration): (GenerationRequest, _)| Group {
            siblings: Siblings::new(request.sequences),
            registration,
            meters: self.meters.clone(),
            started: 0,
            request,
        };
        let (most, patience) = (self.engine.seats().saturating_mul(SEQUENCES_A_SEAT), self.patience);
        let sequences = requests.iter().map(|request| request.sequences).sum();
        let groups: Vec<Group> = requests.into_iter().zip(registrations).map(group).collect();
        let mut unstarted = Unstarted {
            generator: self,
            groups: groups.into_iter(),
            group: None,
            index: 0,
            sequences,
            arrival,
            span: tracing::Span::current(),
        };
        let mut started = SelectAll::new();
        unstarted.start(&mut started, most);
        let events = stream::poll_fn(move |context| unstarted.poll(&mut started, most, context)).boxed();
        ended_unless_read(events, patience)
    }

    /// The stream of a request that was ended before it began.
    fn ended(&self, Waiting { requests, arrival, .. }: &Waiting) -> BoxStream<'static, Indexed> {
        let mut events = Vec::new();
        for request in requests {
            let siblings = Siblings::new(request.sequences);
            for _ in 0..request.sequences {
                let event = Ok(Event::Delta(Delta { finish: Some(Finish::Abort), ..Delta::default() }));
                let span = tracing::Span::current();
                self.meter(request, Arc::clone(&siblings), arrival.clone(), span).observe(&event);
                events.push(event.map(|event| (events.len(), event)));
            }
        }
        stream::iter(events).boxed()
    }

    /// Counts a request that gets no places, for the reason that is given back.
    fn refused(&self, requests: &[GenerationRequest], error: EngineError, arrival: Arrival) -> EngineError {
        if let Some(request) = requests.first() {
            let mut meter = self.meter(request, Siblings::new(1), arrival, tracing::Span::current());
            meter.observe(&Err(error.clone()));
        }
        error
    }

    fn meter(
        &self,
        request: &GenerationRequest,
        siblings: Arc<Siblings>,
        Arrival { at, trace }: Arrival,
        span: tracing::Span,
    ) -> Meter {
        let prompt = &request.prompt_token_ids;
        let meter = self.meters.start(prompt.len(), request.sampling.max_tokens, siblings, at).tracing(trace);
        let Some(log) = self.log else { return meter };
        let shown = log.max_ids.unwrap_or(usize::MAX).min(prompt.len());
        tracing::debug!(parent: &span, prompt_token_ids = ?&prompt[..shown], "received");
        meter.logging(span, request.adapter.as_ref().map(|adapter| Arc::clone(adapter.name())))
    }

    /// Starts a sequence in its place.
    fn start(&self, group: &Group, mut meter: Meter) -> EventStream {
        let request = &group.request;
        let sampling = request.sampling.of_sequence(group.started);
        let (text, prompt) = (Arc::clone(&request.text), Arc::clone(&request.prompt_token_ids));
        let decoder = match TextDecoder::new(&self.tokenizer, &prompt, Arc::clone(&text), sampling.min_tokens) {
            Ok(decoder) => decoder,
            Err(error) => {
                let error = EngineError::Failed(format!("cannot decode after the prompt: {error}"));
                return stream::once(async { Err(error) }).boxed();
            }
        };
        let engine = &self.engine;
        let outputs = |ticket: Ticket| {
            let request = SequenceRequest {
                prompt_token_ids: Arc::clone(&prompt),
                sampling: Arc::clone(&sampling),
                prompt_logprobs: request.prompt_logprobs,
                candidates: request.candidates.clone(),
                cache_salt: request.cache_salt.clone(),
                adapter: request.adapter.clone(),
                routing: request.routing.clone(),
                images: Arc::clone(&request.images),
                timed: meter.is_traced() || (self.timed && request.sequences == 1),
            };
            engine.start(ticket, request).map(ended_by_shutdown).boxed()
        };
        let outputs = group.registration.register(outputs);
        let loops = Loops::new(&sampling);
        let ends = move |id, sampled| sampling.finish_after(id, sampled);
        let counted = events(outputs, decoder, loops, ends).inspect(move |event| meter.observe(event));
        parsed::read(counted.boxed(), &text, &self.tokenizer, &prompt)
    }
}

/// A sequence of a request that has begun, but that starts when the engine was told to stop, ends as those do that wait in
/// the engine.
fn ended_by_shutdown(output: Result<EngineOutput, EngineError>) -> Result<EngineOutput, EngineError> {
    if output == Err(EngineError::ShutDown) { Ok(EngineOutput::Finished(FinishReason::Abort)) } else { output }
}

impl Unstarted {
    fn poll(
        &mut self,
        started: &mut SelectAll<BoxStream<'static, Indexed>>,
        most: usize,
        context: &mut Context<'_>,
    ) -> Poll<Option<Indexed>> {
        loop {
            self.start(started, most);
            match started.poll_next_unpin(context) {
                Poll::Ready(None) if self.index < self.sequences => {}
                poll => return poll,
            }
        }
    }

    /// Starts as many as there may be at a time.
    fn start(&mut self, started: &mut SelectAll<BoxStream<'static, Indexed>>, most: usize) {
        while started.len() < most
            && let Some(events) = self.next()
        {
            started.push(events);
        }
    }

    /// Starts the next one, if there is one.
    fn next(&mut self) -> Option<BoxStream<'static, Indexed>> {
        while self.group.as_ref().is_none_or(|group| group.started == group.request.sequences) {
            self.group = Some(self.groups.next()?);
        }
        let group = self.group.as_mut()?;
        let index = self.index;
        self.index += 1;
        let siblings = Arc::clone(&group.siblings);
        let meter = self.generator.meter(&group.request, siblings, self.arrival.clone(), self.span.clone());
        let events = self.generator.start(group, meter);
        group.started += 1;
        Some(events.map_ok(move |event| (index, event)).boxed())
    }
}

/// Sequences that never started end with their request.
impl Drop for Group {
    fn drop(&mut self) {
        self.meters.never_started(&self.siblings, self.request.sequences - self.started);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use futures::{FutureExt, future::BoxFuture};

    use super::*;
    use crate::{
        TokenId,
        engine::{
            Engine, EngineInfo, EngineLoad, Party, Reservation, Routing, SamplingParams, TokenStream,
            scripted::{Gate, ScriptedEngine},
        },
        generation::{Completion, Finish, TextOptions, collect, decode::tests::spaced},
    };

    /// An engine that counts the sequences that exist.
    struct Counting {
        engine: ScriptedEngine,
        /// Now, at most, and in all.
        counts: Arc<[AtomicUsize; 3]>,
    }

    impl Engine for Counting {
        fn reserve(&self, party: Option<Party>, sequences: usize) -> Result<Reservation, EngineError> {
            self.engine.reserve(party, sequences)
        }

        fn start(&self, ticket: Ticket, request: SequenceRequest) -> TokenStream {
            let present = self.counts[0].fetch_add(1, Ordering::Relaxed) + 1;
            self.counts[1].fetch_max(present, Ordering::Relaxed);
            self.counts[2].fetch_add(1, Ordering::Relaxed);
            let gone = Gone(Arc::clone(&self.counts));
            self.engine.start(ticket, request).inspect(move |_| _ = &gone).boxed()
        }

        fn seats(&self) -> usize {
            self.engine.seats()
        }

        fn info(&self) -> &EngineInfo {
            self.engine.info()
        }

        fn load(&self) -> EngineLoad {
            self.engine.load()
        }

        fn health(&self) -> Result<(), EngineError> {
            self.engine.health()
        }

        fn shutdown(&self, grace: Duration) -> BoxFuture<'_, ()> {
            self.engine.shutdown(grace)
        }
    }

    struct Gone(Arc<[AtomicUsize; 3]>);

    impl Drop for Gone {
        fn drop(&mut self) {
            self.0[0].fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn engine(seats: usize) -> ScriptedEngine {
        ScriptedEngine::hashed(EngineInfo::scripted(4, 64), vec![2]).with_seats(seats, 100)
    }

    fn generator(engine: ScriptedEngine) -> (Generator, Arc<[AtomicUsize; 3]>) {
        let counts: Arc<[AtomicUsize; 3]> = Arc::default();
        let engine = Counting { engine, counts: Arc::clone(&counts) };
        (Generator::new(Arc::new(engine), spaced()), counts)
    }

    fn request(prompt: &[TokenId], sequences: usize, seed: Option<u64>) -> GenerationRequest {
        let sampling = SamplingParams { seed, max_tokens: 9, ..SamplingParams::default() };
        GenerationRequest {
            prompt_token_ids: prompt.into(),
            sequences,
            party: None,
            owner: None,
            sampling: sampling.valid(),
            prompt_logprobs: None,
            candidates: None,
            cache_salt: None,
            adapter: None,
            routing: Routing::default(),
            images: Arc::default(),
            text: Arc::new(TextOptions::default()),
            request_ids: Arc::default(),
        }
    }

    async fn completions(generator: &Generator, requests: Vec<GenerationRequest>) -> Vec<Completion> {
        let sequences = requests.iter().map(|request| request.sequences).sum();
        collect(generator.generate_all(requests).unwrap(), sequences).await.unwrap()
    }

    #[tokio::test]
    async fn sequences_are_made_when_there_may_be_seats_for_them_and_wait_until_then() {
        let gate = Gate::shut();
        let (generator, counts) = generator(engine(2).with_gate(gate.clone()));
        let events = generator.generate_all([request(&[3], 30, None), request(&[3, 3], 20, None)]).unwrap();
        let load = generator.engine().load();
        assert_eq!((load.running, load.waiting, counts[2].load(Ordering::Relaxed)), (2, 48, 4));
        gate.open();
        let completions = collect(events, 50).await.unwrap();
        assert!(completions.iter().all(|completion| completion.finish.is_some()));
        assert_eq!([1, 2].map(|which| counts[which].load(Ordering::Relaxed)), [4, 50]);
        assert_eq!((generator.engine().load(), counts[0].load(Ordering::Relaxed)), (EngineLoad::default(), 0));
    }

    #[tokio::test]
    async fn when_a_sequence_starts_decides_nothing() {
        for seed in [None, Some(u64::MAX - 1)] {
            let requests = || vec![request(&[3], 7, seed), request(&[1, 3], 1, seed), request(&[3], 12, seed)];
            let (at_once, few) = (generator(engine(90)).0, generator(engine(1)).0);
            let expected = completions(&at_once, requests()).await;
            assert_eq!(completions(&few, requests()).await, expected);
            assert!(expected.iter().any(|completion| completion.token_ids() != expected[0].token_ids()));
        }
    }

    #[tokio::test]
    async fn requests_without_a_seed_differ_and_a_second_generator_repeats_them() {
        let run = |base| async move {
            let generator = generator(engine(90)).0.with_seed(base);
            let unseeded = || completions(&generator, vec![request(&[3], 2, None)]);
            [unseeded().await, unseeded().await].concat().iter().map(Completion::token_ids).collect::<Vec<_>>()
        };
        let first = run(1).await;
        assert_ne!(first[..2], first[2..]);
        assert_eq!(run(1).await, first);
        assert_ne!(run(2).await, first);
    }

    #[tokio::test]
    async fn a_seed_counts_the_sequences_of_its_prompt() {
        let (generator, _) = generator(engine(2));
        let group = completions(&generator, vec![request(&[3], 5, Some(7))]).await;
        for (index, completion) in (7..).zip(group) {
            assert_eq!(completions(&generator, vec![request(&[3], 1, Some(index))]).await, [completion]);
        }
    }

    #[tokio::test]
    async fn a_request_that_is_dropped_or_does_not_fit_leaves_nothing_behind() {
        let (generator, counts) = generator(engine(2).with_gate(Gate::shut()));
        let events = generator.generate_all([request(&[3], 60, None)]).unwrap();
        let refused = generator.generate_all([request(&[3], 43, None)]);
        assert_eq!((refused.err(), counts[2].load(Ordering::Relaxed)), (Some(EngineError::Overloaded), 4));
        drop(events);
        assert_eq!((generator.engine().load(), counts[0].load(Ordering::Relaxed)), (EngineLoad::default(), 0));
        assert!(generator.generate_all([request(&[3], 102, None)]).unwrap().next().now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_request_that_is_aborted_ends_all_of_its_sequences() {
        let (generator, counts) = generator(engine(1).with_gate(Gate::shut()));
        let events = generator
            .generate_all([GenerationRequest { request_ids: ["a".into()].into(), ..request(&[3], 40, None) }])
            .unwrap();
        assert_eq!(generator.running().abort(None, ["a"]), 40);
        // Nobody has read anything of it.
        assert_eq!((generator.engine().load(), counts[0].load(Ordering::Relaxed)), (EngineLoad::default(), 0));
        let completions = collect(events, 40).await.unwrap();
        assert!(completions.iter().all(|completion| completion.finish == Some(Finish::Abort)));
        assert_eq!((counts[2].load(Ordering::Relaxed), generator.running().abort(None, ["a"])), (2, 0));
    }
}
