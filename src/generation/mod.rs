//! Sampled tokens to events: text, the end, and the tokens themselves. Ids are never derived from text again.
//!
//! Owns decoding, stop strings, the reading of reasoning and tool calls, and the fold of events into a finished answer.
//! Refuses HTTP shapes.

mod collect;
mod decode;
mod ending;
mod events;
mod marks;
mod meters;
mod parsed;
mod replay;
mod running;
mod scored;
mod seeds;
mod sequences;
mod stream_interval;
mod thoughts;
mod unread;
mod weights;

use std::{sync::Arc, time::Duration};

use async_stream::try_stream;
use futures::{StreamExt, stream::BoxStream};

pub use collect::{Completion, collect};
use decode::TextDecoder;
pub use decode::TextOptions;
pub use events::{Delta, Event, Finish};
pub use marks::{MarkIds, OpenReasoning, end_of_prompt, open_reasoning, reasoning_ended};
use meters::Meters;
pub use replay::Recording;
pub use running::{Door, RunningRequests};
pub(crate) use scored::scored_prompt;
use seeds::Seeds;
pub use stream_interval::batched;
pub use weights::{WeightSpan, WeightSpans};

use crate::{
    TokenId,
    engine::{
        Adapter, Candidates, Engine, EngineError, EngineOutput, FinishReason, Party, PromptImage, Routing,
        SamplingParams, TokenStream, ValidSamplingParams,
    },
    sampling::RepetitionDetection,
    tokenizer::Tokenizer,
};

/// A prompt and the sequences to generate from it, with the text that is wanted from them.
#[derive(Debug, Clone)]
pub struct GenerationRequest {
    /// The prompt, verbatim.
    pub prompt_token_ids: Arc<[TokenId]>,
    /// How many sequences, at least 1.
    pub sequences: usize,
    /// Who takes turns with others at the engine; `None` for the request itself.
    pub party: Option<Party>,
    /// The parameters of the first sequence, see [`ValidSamplingParams::of_sequence`].
    pub sampling: Arc<ValidSamplingParams>,
    /// Report the log-probs of the prompt, with this many alternatives a position.
    pub prompt_logprobs: Option<usize>,
    /// Report the log-probs of these tokens at positions of the prompt.
    pub candidates: Option<Arc<Candidates>>,
    /// Requests share cached prefixes only with requests of the same salt.
    pub cache_salt: Option<Arc<str>>,
    /// The adapter that they go through; `None` for the base.
    pub adapter: Option<Arc<Adapter>>,
    /// What is wanted of the experts that tokens go through.
    pub routing: Routing,
    /// The images of the prompt, in its order. Only for an engine that reads images.
    pub images: Arc<[PromptImage]>,
    /// How tokens become text.
    pub text: Arc<TextOptions>,
    /// The owner of the request: nobody else can abort it by its ids.
    pub owner: Option<Arc<str>>,
    /// The ids by which it can be aborted.
    pub request_ids: Arc<[Arc<str>]>,
}

/// A running generation. Dropping it aborts the generation.
pub type EventStream = BoxStream<'static, Result<Event, EngineError>>;

/// Starts generations on an engine and decodes what comes back. Clones share everything.
#[derive(Clone)]
pub struct Generator {
    engine: Arc<dyn Engine>,
    tokenizer: Arc<Tokenizer>,
    meters: Meters,
    running: RunningRequests,
    log: Option<RequestLog>,
    /// How long events may wait for whoever reads them.
    patience: Option<Duration>,
    seeds: Seeds,
    /// Whether engines report the times of sequences.
    timed: bool,
}

/// What is logged of every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestLog {
    /// The most ids of a prompt that a line of the log shows; prompts are shown at the level `debug` only.
    pub max_ids: Option<usize>,
}

impl Generator {
    /// A generator for an engine whose ids `tokenizer` decodes; it counts in the recorder that is installed now.
    pub fn new(engine: Arc<dyn Engine>, tokenizer: Arc<Tokenizer>) -> Self {
        Self {
            engine,
            tokenizer,
            meters: Meters::new(),
            running: RunningRequests::default(),
            log: None,
            patience: None,
            seeds: Seeds::default(),
            timed: false,
        }
    }

    /// Derives the seeds of requests that bring none from this one and their number.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seeds = Seeds::new(seed);
        self
    }

    /// Gives a request a seed that has none, so that what it samples can be sampled again. [`Self::generate_all`] does so
    /// too; it is for whoever needs to know the seed before.
    pub fn seed(&self, request: &mut GenerationRequest) {
        if request.sampling.seed.is_none() {
            request.sampling = Arc::new(request.sampling.with_seed(self.seeds.draw()));
        }
    }

    /// Has the engine report how long a sequence was in each phase, where a request has one sequence.
    #[must_use]
    pub fn timing(mut self, timed: bool) -> Self {
        self.timed = timed;
        self
    }

    /// Logs every request, if asked to.
    #[must_use]
    pub fn logging(mut self, log: Option<RequestLog>) -> Self {
        self.log = log;
        self
    }

    /// Ends generations whose events nobody has asked for in as long as `patience`; without one, they wait for ever.
    #[must_use]
    pub fn with_patience(mut self, patience: Option<Duration>) -> Self {
        self.patience = patience;
        self
    }

    /// The engine.
    pub fn engine(&self) -> &dyn Engine {
        self.engine.as_ref()
    }

    /// The generations that can be aborted by their ids.
    pub fn running(&self) -> &RunningRequests {
        &self.running
    }
}

/// Decodes `outputs`; `ends` says whether a token, the n-th that was sampled, is the last one.
fn events(
    mut outputs: TokenStream,
    mut decoder: TextDecoder,
    mut loops: Loops,
    ends: impl Fn(TokenId, usize) -> Option<FinishReason> + Send + 'static,
) -> EventStream {
    let (mut sampled, mut weights, mut routes, mut times) = (0, Vec::new(), None, None);
    try_stream! {
        while let Some(output) = outputs.next().await {
            match output? {
                EngineOutput::Prompt(prompt) => yield Event::Prompt(prompt),
                EngineOutput::Weights(in_use) => weights = vec![(0, in_use)],
                EngineOutput::Routes(taken) => routes = Some(taken),
                EngineOutput::Times(so_far) => times = Some(so_far),
                EngineOutput::Finished(reason) => {
                    let delta = Delta { text: decoder.take_held(), finish: Some(reason.into()), ..Delta::default() };
                    yield Event::Delta(delta);
                    return;
                }
                EngineOutput::Token(token) => {
                    sampled += 1;
                    let mut finish = None;
                    let ends = ends(token.id, sampled);
                    // The engine reports the end right after the last token; both go out as one delta.
                    if ends.is_some() && let Some(output) = outputs.next().await {
                        match output? {
                            EngineOutput::Finished(reason) => finish = Some(Finish::from(reason)),
                            other => Err(unexpected(&other))?,
                        }
                    }
                    let is_stop_token = !matches!(ends, None | Some(FinishReason::Length));
                    let piece = decoder.push(token.id, is_stop_token).map_err(|error| {
                        EngineError::Failed(format!("cannot decode sampled token {}: {error}", token.id))
                    })?;
                    let mut text = piece.text;
                    // As in vLLM, loops are looked for after every other end, except for a stop string, which is found
                    // later.
                    if loops.after(token.id) && finish.is_none() {
                        finish = Some(Finish::Repetition);
                    }
                    if let Some(stop) = piece.stop {
                        finish = Some(Finish::StopString(stop));
                    } else if finish.is_some() {
                        text.push_str(&decoder.take_held());
                    }
                    let done = finish.is_some();
                    let (weights, routes, times) = (std::mem::take(&mut weights), routes.take(), times.take());
                    let tokens = vec![token];
                    yield Event::Delta(Delta { tokens, weights, routes, times, text, finish, ..Delta::default() });
                    if done {
                        return;
                    }
                }
            }
        }
        Err(EngineError::Failed("the generation ended without a reason".to_owned()))?;
    }
    .boxed()
}

/// Watches a generation for loops, where that is asked for.
#[derive(Default)]
struct Loops {
    wanted: Option<RepetitionDetection>,
    min_tokens: usize,
    token_ids: Vec<TokenId>,
}

impl Loops {
    fn new(sampling: &SamplingParams) -> Self {
        Self { wanted: sampling.repetition_detection, min_tokens: sampling.min_tokens, token_ids: Vec::new() }
    }

    /// Whether the generation loops with its next token.
    fn after(&mut self, id: TokenId) -> bool {
        let Some(wanted) = self.wanted else { return false };
        self.token_ids.push(id);
        self.token_ids.len() >= self.min_tokens && wanted.found_in(&self.token_ids)
    }
}

fn unexpected(output: &EngineOutput) -> EngineError {
    EngineError::Failed(format!("the engine went on after the last token: {output:?}"))
}
