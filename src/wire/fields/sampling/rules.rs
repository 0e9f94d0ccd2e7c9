//! The rules by which vLLM 0.32 declares the sampling fields that endpoints share, and its checks of them before those
//! of types.

use crate::{
    json::Node,
    pydantic::{
        Field,
        Schema::{self, Bool, Dict, Float, Int, IntIn, List, Literal, Nullable, Object, ShortList, Str, Text, Union},
        Shape::Dataclass,
        branch, optional,
        scalars::{INT64, NULLABLE_BOOL, NULLABLE_DICT, NULLABLE_FLOAT, NULLABLE_IDS, NULLABLE_INT, NULLABLE_STR},
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

/// How tokens are drawn, how long an answer may be, and how it is decoded, as chats and completions have it.
pub(crate) const SAMPLER: [Field; 14] = [
    optional("use_beam_search", Bool),
    optional("top_k", NULLABLE_INT),
    optional("min_p", NULLABLE_FLOAT),
    optional("repetition_penalty", NULLABLE_FLOAT),
    optional("watermarking", NULLABLE_BOOL),
    optional("length_penalty", Float),
    optional("stop_token_ids", NULLABLE_IDS),
    optional("include_stop_str_in_output", Bool),
    optional("ignore_eos", Bool),
    optional("min_tokens", Int),
    optional("skip_special_tokens", NULLABLE_BOOL),
    optional("spaces_between_special_tokens", Bool),
    optional("truncate_prompt_tokens", TRUNCATE_PROMPT_TOKENS),
    optional("truncation_side", TRUNCATION_SIDE),
];

/// How a request is named, and what its answer shows of ids, as chats and completions have it.
pub(crate) const REQUEST: [Field; 8] = [
    optional("priority", INT64),
    optional("request_id", Str),
    optional("session_id", NULLABLE_STR),
    optional("return_tokens_as_token_ids", NULLABLE_BOOL),
    optional("return_token_ids", NULLABLE_BOOL),
    optional("return_weight_versions", Bool),
    optional("routed_experts_prompt_start", IntIn(0, None)),
    optional("return_token_offsets", NULLABLE_BOOL),
];

/// What vLLM's own extensions take, as chats and completions have it.
pub(crate) const EXTENSIONS: [Field; 7] = [
    optional("mm_payload", MM_PAYLOAD),
    optional("return_mm_kwargs", NULLABLE_BOOL),
    optional("cache_salt", CACHE_SALT),
    optional("kv_transfer_params", NULLABLE_DICT),
    optional("ec_transfer_params", NULLABLE_DICT),
    optional("vllm_xargs", XARGS),
    optional("repetition_detection", REPETITION_DETECTION),
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
