//! The notes of one request.

use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use crate::engine::RequestTimes;

/// The most prompts, and the most sequences, of a request that are noted one by one.
pub(crate) const MOST_NOTED: usize = 128;

/// What happened to a request.
#[derive(Debug, Clone)]
pub(crate) struct RequestRecord {
    /// The path of its endpoint, as routes are written.
    pub(crate) route: Arc<str>,
    /// When it came, by the clock of the wall; every other time is measured from here.
    pub(crate) began: SystemTime,
    /// The same moment.
    pub(crate) started: Instant,
    /// When nothing worked for it any more.
    pub(crate) ended: Instant,
    /// The prompts that were put into ids, at most [`MOST_NOTED`].
    pub(crate) prompts: Vec<PromptRecord>,
    /// What it asked the engine for; `None` if it was refused before.
    pub(crate) asked: Option<Asked>,
    /// The sequences that began, at most [`MOST_NOTED`].
    pub(crate) sequences: Vec<SequenceRecord>,
    /// What all sequences were together.
    pub(crate) totals: Totals,
    /// How it was answered; `None` if its client went before.
    pub(crate) answer: Option<Answer>,
}

/// A prompt that was put into ids.
#[derive(Debug, Clone)]
pub(crate) struct PromptRecord {
    /// When that began.
    pub(crate) started: Instant,
    /// When it had ended.
    pub(crate) ended: Instant,
    /// What became of the ids of earlier turns; `None` if the prompt was refused.
    pub(crate) verdict: Option<PromptVerdict>,
}

/// What became of the ids of earlier turns, in the names of `token_continuity`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PromptVerdict {
    /// How much of the prompt is what the model saw and sampled.
    pub(crate) outcome: &'static str,
    /// Where known ids came from.
    pub(crate) source: &'static str,
    /// Why the latest message of the model was not continued from its ids.
    pub(crate) reason: Option<&'static str>,
    /// Known ids at the start of the prompt.
    pub(crate) reused: usize,
    /// How many ids follow them.
    pub(crate) new: usize,
}

/// What a request asked the engine for.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// What the request is called.
    pub(crate) id: Option<Arc<str>>,
    /// Tokens of all prompts.
    pub(crate) prompt_tokens: usize,
    /// The answers to each prompt.
    pub(crate) n: usize,
    /// The sequences of all prompts.
    pub(crate) sequences: usize,
    /// The most tokens of a sequence.
    pub(crate) max_tokens: usize,
    /// The share of the most probable tokens that are sampled from.
    pub(crate) top_p: f64,
    /// The temperature; 0 takes the most probable token.
    pub(crate) temperature: f64,
    /// The name of the adapter that was asked for, where one was.
    pub(crate) adapter: Option<Arc<str>>,
}

/// One sequence, from its request's arrival at the engine to its end.
#[derive(Debug, Clone)]
pub(crate) struct SequenceRecord {
    /// When its request arrived there.
    pub(crate) arrived: Instant,
    /// When it had ended.
    pub(crate) ended: Instant,
    /// Tokens of its prompt.
    pub(crate) prompt_tokens: usize,
    /// Those that the engine had not to compute.
    pub(crate) cached_tokens: usize,
    /// Tokens that were sampled.
    pub(crate) sampled: usize,
    /// What ended it, as `vllm:request_success_total` names it.
    pub(crate) finish: &'static str,
    /// The kind of the failure that ended it, where one did.
    pub(crate) failure: Option<&'static str>,
    /// How long it was in each phase; `None` if it ended before its first token.
    pub(crate) times: Option<RequestTimes>,
}

/// All sequences together, those too that are not noted one by one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Totals {
    /// Sequences that began.
    pub(crate) sequences: usize,
    /// Tokens that were sampled.
    pub(crate) sampled: usize,
    /// The kind of the first failure.
    pub(crate) failure: Option<&'static str>,
}

/// How a request was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The status of HTTP.
    pub(crate) status: u16,
    /// The type of the error that was answered.
    pub(crate) error: Option<&'static str>,
}
