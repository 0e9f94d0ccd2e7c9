//! An engine without weights, for tests: deterministic and instant. It behaves like a real engine, but its tokens mean
//! nothing.
//!
//! Owns made-up logits, a queue and test hooks; tokens come out of the same sampler as those of a real engine. A token
//! is sampled when it is asked for, so no token waits to be read. A sequence that nobody reads only holds its seat.
//! Refuses to model time: a test that needs a generation to stand still holds a [`Gate`].

mod gate;
mod generation;
mod logits;

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use parking_lot::Mutex;

pub use self::gate::Gate;
use self::{
    generation::{Generation, Routed},
    logits::LogitSource,
};
use super::{
    Engine, EngineError, EngineInfo, EngineLoad, ImageReading, Party, PromptImage, RequestTimes, Reservation,
    RouteShape, SequenceRequest, Ticket, TokenStream, WeightsInUse, admission::Admission, meters::SamplingMeters,
};
use crate::TokenId;

/// The queue is as long as anyone could want in a test.
const MAX_WAITING: usize = 65_536;
/// vLLM's default of `--max-num-seqs`.
const DEFAULT_MAX_NUM_SEQS: usize = 256;

impl EngineInfo {
    /// What is said of a scripted engine.
    pub fn scripted(vocab_size: usize, max_model_len: usize) -> Self {
        Self {
            engine: "scripted",
            device: "cpu".to_owned(),
            dtype: "none".to_owned(),
            vocab_size,
            max_model_len,
            unproven: None,
        }
    }
}

/// An engine whose logits are a hash of the ids so far, or a script.
#[derive(Debug)]
pub struct ScriptedEngine {
    info: EngineInfo,
    source: LogitSource,
    admission: Arc<Admission>,
    gate: Gate,
    cached_tokens: Option<usize>,
    scores_candidates: bool,
    weights: Vec<(usize, WeightsInUse)>,
    /// The same of all sequences but the first one, if it is another.
    later_weights: Option<Vec<(usize, WeightsInUse)>>,
    times: Vec<RequestTimes>,
    mixtures: Option<RouteShape>,
    images: Option<ImageReading>,
    prompt_images: Mutex<Arc<[PromptImage]>>,
    cache_salt: Mutex<Option<Arc<str>>>,
    meters: SamplingMeters,
}

impl ScriptedEngine {
    /// Logits from a hash of all ids so far: some 16 likely tokens a position, and now and then (1 in 24) one of `eos`.
    ///
    /// The same prompt and seed give the same ids.
    pub fn hashed(info: EngineInfo, eos: Vec<TokenId>) -> Self {
        Self::new(info, LogitSource::hashed(eos))
    }

    /// Plays the n-th script for the n-th request, and the last one for every later request.
    ///
    /// The sampler still decides: stop tokens and `max_tokens` end a script early, masks and biases change it.
    /// A script that ends without a stop token ends as [`FinishReason::Abort`](super::FinishReason::Abort).
    pub fn playing(info: EngineInfo, scripts: Vec<Vec<TokenId>>) -> Self {
        Self::new(info, LogitSource::playing(scripts))
    }

    fn new(info: EngineInfo, source: LogitSource) -> Self {
        Self {
            info,
            source,
            admission: Arc::new(Admission::new(DEFAULT_MAX_NUM_SEQS, MAX_WAITING)),
            gate: Gate::opened(),
            cached_tokens: None,
            scores_candidates: true,
            weights: Vec::new(),
            later_weights: None,
            times: Vec::new(),
            mixtures: None,
            images: None,
            prompt_images: Mutex::default(),
            cache_salt: Mutex::default(),
            meters: SamplingMeters::new(),
        }
    }

    /// Sets how many sequences run at a time; the others wait in order.
    #[must_use]
    pub fn with_max_num_seqs(self, max_num_seqs: usize) -> Self {
        self.with_seats(max_num_seqs, MAX_WAITING)
    }

    /// Makes every token wait for `gate`.
    #[cfg(any(test, feature = "internals"))]
    #[must_use]
    pub fn with_gate(mut self, gate: Gate) -> Self {
        self.gate = gate;
        self
    }

    /// Sets how many sequences run at a time and how many may wait for them; further ones are refused.
    #[must_use]
    pub fn with_seats(mut self, max_num_seqs: usize, max_waiting: usize) -> Self {
        self.admission = Arc::new(Admission::new(max_num_seqs, max_waiting));
        self
    }

    /// Gives the seat of a sequence on that nobody has read for `rest`, if another one waits for it; to be set after the
    /// number of seats.
    ///
    /// # Panics
    /// If something is generated already.
    #[must_use]
    pub fn lending_seats_after(mut self, rest: Duration) -> Self {
        let admission = Arc::into_inner(self.admission).expect("nothing is generated yet");
        self.admission = Arc::new(admission.lending_after(rest));
        self
    }

    /// Reports that the first `tokens` of every prompt were cached, at most all but one.
    #[cfg(any(test, feature = "internals"))]
    #[must_use]
    pub fn with_cached_tokens(mut self, tokens: usize) -> Self {
        self.cached_tokens = Some(tokens);
        self
    }

    /// Scores no tokens that a request names at positions of its prompt.
    #[cfg(any(test, feature = "internals"))]
    #[must_use]
    pub fn without_candidates(mut self) -> Self {
        self.scores_candidates = false;
        self
    }

    /// Has every token go through experts of these mixtures: those that are given, or as many from the one on whose
    /// number follows from the places of the token and the mixture.
    #[cfg(any(test, feature = "internals"))]
    #[must_use]
    pub fn with_mixtures(mut self, mixtures: RouteShape) -> Self {
        self.mixtures = Some(mixtures);
        self
    }

    /// Reports for every sequence but the first one that these weights compute its tokens, each from a token on.
    #[must_use]
    pub fn with_later_weights(mut self, weights: Option<Vec<(usize, WeightsInUse)>>) -> Self {
        self.later_weights = weights;
        self
    }

    /// Reports for every sequence that these weights compute its tokens, each from a token on.
    #[cfg(any(test, feature = "internals"))]
    #[must_use]
    pub fn with_weights(mut self, weights: Vec<(usize, WeightsInUse)>) -> Self {
        self.weights = weights;
        self
    }

    /// Takes images, for which this id stands in prompts. What is in them changes no token.
    #[cfg(any(test, feature = "internals"))]
    #[must_use]
    pub fn reading_images(mut self, placeholder: TokenId) -> Self {
        self.images = Some(ImageReading { placeholder, frame: super::ImageFrame::VISION });
        self
    }

    /// The images that the latest request came with.
    #[cfg(any(test, feature = "internals"))]
    pub fn latest_images(&self) -> Arc<[PromptImage]> {
        Arc::clone(&self.prompt_images.lock())
    }

    /// Reports these times of every sequence whose times are asked for, each before the token of its number.
    #[cfg(any(test, feature = "internals"))]
    #[must_use]
    pub fn with_times(mut self, times: Vec<RequestTimes>) -> Self {
        self.times = times;
        self
    }

    /// The salt that the latest request came with.
    #[cfg(any(test, feature = "internals"))]
    pub fn latest_cache_salt(&self) -> Option<Arc<str>> {
        self.cache_salt.lock().clone()
    }

    /// Waits until the load is `wanted`.
    #[cfg(any(test, feature = "internals"))]
    pub async fn until_load(&self, wanted: EngineLoad) {
        self.admission.until(wanted).await;
    }

    fn begin(&self, ticket: Ticket, request: SequenceRequest) -> Result<Generation, EngineError> {
        self.info.check(&request, self)?;
        self.cache_salt.lock().clone_from(&request.cache_salt);
        self.prompt_images.lock().clone_from(&request.images);
        let (number, arrived) = (ticket.number, ticket.arrived);
        let weights = self.later_weights.as_ref().filter(|_| number > 0).unwrap_or(&self.weights);
        let place = self.admission.enter(ticket)?;
        let source = self.source.start(number);
        let meter = self.meters.start(request.prompt_token_ids.len(), arrived);
        let routes = self.mixtures.clone().zip(request.routing.shown_from);
        let routes = routes.map(|(shape, next)| Routed::new(shape, request.routing.given.clone(), next));
        let times = if request.timed { self.times.clone() } else { Vec::new() };
        let generation = Generation::new(request, source, self.info.vocab_size, meter).routed(routes);
        let generation = generation.cached(self.cached_tokens).computed_by(weights.clone()).taking(times);
        Ok(generation.queued(place, self.gate.clone()))
    }
}

impl Engine for ScriptedEngine {
    fn reserve(&self, party: Option<Party>, sequences: usize) -> Result<Reservation, EngineError> {
        self.admission.reserve(party, sequences)
    }

    fn seats(&self) -> usize {
        self.admission.seats()
    }

    fn start(&self, ticket: Ticket, request: SequenceRequest) -> TokenStream {
        match self.begin(ticket, request) {
            Ok(generation) => stream::unfold(generation, |mut generation| async move {
                let output = generation.next().await?;
                Some((output, generation))
            })
            .boxed(),
            Err(error) => stream::once(async { Err(error) }).boxed(),
        }
    }

    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn load(&self) -> EngineLoad {
        self.admission.load()
    }

    fn scores_candidates(&self) -> bool {
        self.scores_candidates
    }

    fn route_shape(&self) -> Option<&RouteShape> {
        self.mixtures.as_ref()
    }

    fn images(&self) -> Option<ImageReading> {
        self.images
    }

    fn health(&self) -> Result<(), EngineError> {
        self.admission.health()
    }

    fn shutdown(&self, grace: Duration) -> BoxFuture<'_, ()> {
        self.admission.shutdown(grace).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{
        EngineOutput, FinishReason, PromptOutput, Routing, SampledToken, SamplingParams, images::tests::image,
    };

    const EOS: TokenId = 2;

    fn info() -> EngineInfo {
        EngineInfo::scripted(512, 4_096)
    }

    fn params(max_tokens: usize) -> SamplingParams {
        SamplingParams { seed: Some(1), max_tokens, eos_token_id: Some(EOS), ..SamplingParams::default() }
    }

    fn request(prompt: &[TokenId], sampling: SamplingParams) -> SequenceRequest {
        SequenceRequest {
            prompt_token_ids: prompt.into(),
            sampling: sampling.valid(),
            prompt_logprobs: None,
            candidates: None,
            cache_salt: None,
            adapter: None,
            routing: Routing::default(),
            images: Arc::default(),
            timed: false,
        }
    }

    #[tokio::test]
    async fn images_are_taken_by_an_engine_that_reads_some_and_can_be_looked_at() {
        let images = [PromptImage { offset: 1, image: image(1, 1, 2) }];
        let asked = || SequenceRequest { images: images.clone().into(), ..request(&[5, 9, 9], params(2)) };
        let engine = ScriptedEngine::hashed(info(), vec![EOS]).reading_images(9);
        assert_eq!(engine.images().map(|reading| reading.placeholder), Some(9));
        assert!(finished(engine.generate(asked())).await.0.len() <= 2);
        assert_eq!(engine.latest_images()[0].image.identity(), images[0].image.identity());
        for (engine, reason) in [
            (ScriptedEngine::hashed(info(), vec![EOS]), "the scripted engine reads no images here"),
            (engine.reading_images(8), "token 1 is 9 rather than its placeholder 8"),
        ] {
            let error = outputs(engine.generate(asked())).await.remove(0).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    async fn outputs(stream: TokenStream) -> Vec<Result<EngineOutput, EngineError>> {
        stream.collect().await
    }

    /// The sampled tokens and the end.
    async fn finished(stream: TokenStream) -> (Vec<SampledToken>, FinishReason) {
        let mut tokens = Vec::new();
        let mut reasons = Vec::new();
        for output in outputs(stream).await {
            match output.unwrap() {
                EngineOutput::Token(token) => tokens.push(token),
                EngineOutput::Finished(reason) => reasons.push(reason),
                EngineOutput::Weights(_) | EngineOutput::Routes(_) | EngineOutput::Times(_) => panic!("it has none"),
                EngineOutput::Prompt(_) => panic!("no prompt log-probs were asked for"),
            }
        }
        let [reason] = reasons[..] else { panic!("{reasons:?}") };
        (tokens, reason)
    }

    async fn ids(stream: TokenStream) -> Vec<TokenId> {
        finished(stream).await.0.iter().map(|token| token.id).collect()
    }

    #[tokio::test]
    async fn the_same_prompt_and_seed_give_the_same_tokens_in_company_too() {
        let engine = ScriptedEngine::hashed(info(), vec![EOS]);
        let generate = || engine.generate(request(&[5, 6, 7], params(200)));
        let alone = finished(generate()).await;
        let company = futures::future::join_all((0..8).map(|_| finished(generate()))).await;
        assert!(company.iter().all(|tokens| *tokens == alone));
        assert_eq!(alone.1, FinishReason::Eos);
        assert_eq!(engine.load(), EngineLoad::default());
    }

    #[tokio::test]
    async fn ids_stay_within_the_vocabulary() {
        let engine = ScriptedEngine::hashed(EngineInfo { vocab_size: 3, ..info() }, vec![EOS]);
        let sampled = ids(engine.generate(request(&[1], SamplingParams { ignore_eos: true, ..params(300) }))).await;
        assert_eq!(sampled.len(), 300);
        assert!(sampled.iter().all(|id| *id < 3));
    }

    #[tokio::test]
    async fn scripts_are_played_in_the_order_of_the_requests() {
        let engine = ScriptedEngine::playing(info(), vec![vec![10, 11, EOS, 12], vec![13, 14]]);
        let generate = |max_tokens| finished(engine.generate(request(&[5], params(max_tokens))));
        let ends = [generate(9).await, generate(2).await, generate(9).await];
        let ends = ends.map(|(tokens, reason)| (tokens.iter().map(|token| token.id).collect::<Vec<_>>(), reason));
        assert_eq!(ends[0], (vec![10, 11, EOS], FinishReason::Eos));
        assert_eq!(ends[1], (vec![13, 14], FinishReason::Length));
        assert_eq!(ends[2], (vec![13, 14], FinishReason::Abort));
    }

    #[tokio::test]
    async fn prompt_log_probs_come_first_and_cover_all_but_the_first_token() {
        let engine = ScriptedEngine::hashed(info(), vec![EOS]);
        let asked = SequenceRequest { prompt_logprobs: Some(2), ..request(&[5, 6, 7], params(1)) };
        let outputs = outputs(engine.generate(asked)).await;
        let Ok(EngineOutput::Prompt(PromptOutput { cached_tokens: 0, logprobs: scores, .. })) = &outputs[0] else {
            panic!("{outputs:?}")
        };
        assert_eq!(
            scores.iter().map(|score| (score.id, score.top_logprobs.len())).collect::<Vec<_>>(),
            [(6, 2), (7, 2)]
        );
        assert!(matches!(outputs[1..], [Ok(EngineOutput::Token(_)), Ok(EngineOutput::Finished(_))]));
    }

    #[tokio::test]
    async fn cached_tokens_are_reported_once_and_never_for_the_whole_prompt() {
        let engine = ScriptedEngine::hashed(info(), vec![EOS]).with_cached_tokens(2);
        for (prompt, cached_tokens) in [(&[5, 6, 7][..], 2), (&[5, 6], 1), (&[5], 0)] {
            let outputs = outputs(engine.generate(request(prompt, params(1)))).await;
            assert_eq!(outputs[0], Ok(EngineOutput::Prompt(PromptOutput { cached_tokens, ..PromptOutput::default() })));
            assert!(matches!(outputs[1..], [Ok(EngineOutput::Token(_)), Ok(EngineOutput::Finished(_))]));
        }
    }

    #[tokio::test]
    async fn a_dropped_stream_frees_its_seat() {
        let gate = Gate::shut();
        let engine = ScriptedEngine::hashed(info(), vec![EOS]).with_max_num_seqs(1).with_gate(gate.clone());
        let endless = || SamplingParams { ignore_eos: true, ..params(4_000) };
        let mut running = engine.generate(request(&[5], endless()));
        let mut waiting = engine.generate(request(&[6], params(1)));
        gate.pass(1);
        assert!(matches!(running.next().await, Some(Ok(EngineOutput::Token(_)))));
        assert!(running.next().now_or_never().is_none());
        assert!(waiting.next().now_or_never().is_none());
        assert_eq!(engine.load(), EngineLoad { running: 1, waiting: 1, ..EngineLoad::default() });
        drop(running);
        assert_eq!(engine.load(), EngineLoad { running: 1, ..EngineLoad::default() });
        gate.open();
        assert_eq!(ids(waiting).await.len(), 1);
        assert_eq!(engine.load(), EngineLoad::default());
    }

    #[tokio::test]
    async fn streams_that_nobody_reads_hold_no_seat_that_others_need_and_go_on_with_the_same_tokens() {
        let engine = ScriptedEngine::hashed(info(), vec![EOS]).with_max_num_seqs(2);
        let engine = engine.lending_seats_after(Duration::from_millis(1));
        let unread = |id| engine.generate(request(&[id], SamplingParams { ignore_eos: true, ..params(300) }));
        let expected = ids(unread(7)).await;
        let mut first = unread(7);
        let Some(Ok(EngineOutput::Token(token))) = first.next().await else { panic!("a token") };
        let others: Vec<TokenStream> = (8..20).map(unread).collect();
        assert_eq!(ids(engine.generate(request(&[5], params(1)))).await.len(), 1);
        let rest = ids(first).await;
        assert_eq!([vec![token.id], rest].concat(), expected);
        drop(others);
        assert_eq!(engine.load(), EngineLoad::default());
    }

    #[tokio::test]
    async fn shutdown_aborts_what_runs_and_what_waits_and_refuses_the_rest() {
        let engine = ScriptedEngine::hashed(info(), vec![EOS]).with_max_num_seqs(1).with_gate(Gate::shut());
        let running = engine.generate(request(&[5], params(9)));
        let waiting = engine.generate(request(&[5], params(9)));
        let ends = async { futures::join!(finished(running), finished(waiting)) };
        let ((), (first, second)) = futures::join!(engine.shutdown(Duration::MAX), ends);
        assert_eq!(first, (Vec::new(), FinishReason::Abort));
        assert_eq!(second, (Vec::new(), FinishReason::Abort));
        let refused = outputs(engine.generate(request(&[5], params(9)))).await;
        assert_eq!(refused, [Err(EngineError::ShutDown)]);
        assert_eq!(engine.health(), Err(EngineError::ShutDown));
    }

    #[tokio::test]
    async fn impossible_requests_are_refused() {
        let engine = ScriptedEngine::hashed(info(), vec![EOS]);
        for (prompt, max_tokens) in [(vec![], 1), (vec![512], 1), (vec![1; 4_000], 97)] {
            let outputs = outputs(engine.generate(request(&prompt, params(max_tokens)))).await;
            assert!(matches!(outputs[..], [Err(EngineError::Unsupported(_))]), "{outputs:?}");
        }
    }
}
