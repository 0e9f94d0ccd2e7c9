//! The rules by which vLLM 0.32 declares the sampling fields that endpoints share, and its checks of them before those
//! of types.

use super::field;
use crate::{
    json::Node,
    pydantic::{
        Field,
        Schema::{Bool, Float, IntIn, Literal, Nullable},
        optional,
        scalars::NULLABLE_BOOL,
    },
    wire::fields::untyped::{Checked, is_minus_one, is_true, not_negative, refuse},
};

/// How tokens are drawn, how long an answer may be, and how it is decoded, as chats and completions have it.
pub(crate) const SAMPLER: [Field; 14] = [
    optional("use_beam_search", Bool),
    field::TOP_K,
    field::MIN_P,
    field::REPETITION_PENALTY,
    field::WATERMARKING,
    optional("length_penalty", Float),
    field::STOP_TOKEN_IDS,
    field::INCLUDE_STOP_STR_IN_OUTPUT,
    field::IGNORE_EOS,
    field::MIN_TOKENS,
    field::SKIP_SPECIAL_TOKENS,
    optional("spaces_between_special_tokens", Bool),
    optional("truncate_prompt_tokens", Nullable(&IntIn(-1, Some(i64::MAX)))),
    optional("truncation_side", Nullable(&Literal(&["left", "right"]))),
];

/// How a request is named, and what its answer shows of ids, as chats and completions have it.
pub(crate) const REQUEST: [Field; 8] = [
    field::PRIORITY,
    field::REQUEST_ID,
    field::SESSION_ID,
    field::RETURN_TOKENS_AS_TOKEN_IDS,
    field::RETURN_TOKEN_IDS,
    optional("return_weight_versions", Bool),
    optional("routed_experts_prompt_start", IntIn(0, None)),
    optional("return_token_offsets", NULLABLE_BOOL),
];

/// What vLLM's own extensions take, as chats and completions have it.
pub(crate) const EXTENSIONS: [Field; 7] = [
    field::MM_PAYLOAD,
    field::RETURN_MM_KWARGS,
    field::CACHE_SALT,
    field::KV_TRANSFER_PARAMS,
    field::EC_TRANSFER_PARAMS,
    field::VLLM_XARGS,
    field::REPETITION_DETECTION,
];

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
