//! The rules by which vLLM 0.32 declares the sampling fields that endpoints share, and its checks of them before those
//! of types.

use crate::{
    json::Node,
    pydantic::{
        Schema::{self, Dict, Float, Int, IntIn, List, Literal, Nullable, Object, ShortList, Str, Text, Union},
        Shape::Dataclass,
        branch, optional,
    },
    wire::fields::before::{Checked, is_minus_one, is_true, not_negative, refuse},
};

/// A request may have at most this many stop strings (vLLM: `VLLM_MAX_STOP_STRINGS`).
pub(crate) const MOST_STOP_STRINGS: usize = 4;

pub(crate) const STOP: Schema = Nullable(&Union(&[branch(Str), branch(ShortList(&Str, MOST_STOP_STRINGS))]));
pub(crate) const TRUNCATION_SIDE: Schema = Nullable(&Literal(&["left", "right"]));
pub(crate) const TRUNCATE_PROMPT_TOKENS: Schema = Nullable(&IntIn(-1, Some(i64::MAX)));
pub(crate) const CACHE_SALT: Schema = Nullable(&Text(1, 1024));
pub(crate) const MM_PAYLOAD: Schema = Literal(&["tensors", "none"]);
pub(crate) const STREAM_INTERVAL: Schema = Nullable(&IntIn(1, None));
pub(crate) const XARGS: Schema = Nullable(&Dict(&Union(&[
    branch(Str),
    branch(Int),
    branch(Float),
    branch(List(&Union(&[branch(Str), branch(Int), branch(Float)]))),
])));
pub(crate) const REPETITION_DETECTION: Schema = Nullable(&Object(
    Dataclass("RepetitionDetectionParams"),
    &[optional("max_pattern_size", Int), optional("min_pattern_size", Int), optional("min_count", Int)],
));

/// The refusal of log-probs of a prompt in a stream.
pub(crate) const NO_PROMPT_LOGPROBS: &str = "`prompt_logprobs` are not available when `stream=True`.";

/// The refusal of chosen tokens without log-probs.
pub(crate) const NO_LOGPROBS: &str = "when using `logprob_token_ids`, `logprobs` must be set to true.";

/// Checks the field for log-probs of a prompt, which no stream has.
pub(crate) fn prompt_logprobs(body: &Node<'_>, value: Option<f64>) -> Checked {
    if is_true(body, "stream") && value.is_some_and(|value| value > 0.0 || is_minus_one(value)) {
        return refuse("prompt_logprobs", NO_PROMPT_LOGPROBS);
    }
    not_negative(body, "prompt_logprobs", value)
}

/// Refuses chosen tokens with beam search, which does not report their log-probs.
pub(crate) fn beam_search(body: &Node<'_>) -> Checked {
    if is_true(body, "logprob_token_ids") && is_true(body, "use_beam_search") {
        return refuse("logprob_token_ids", "`logprob_token_ids` is not supported with beam search.");
    }
    Ok(())
}
