//! The fields that bodies of several endpoints have, each declared once, as vLLM 0.32 does. Endpoints list them in orders
//! of their own, which are those of pydantic's complaints.

use crate::{
    pydantic::{
        Field,
        Schema::{self, Bool, Dict, Float, Int, IntIn, List, Literal, Nullable, Object, ShortList, Str, Text, Union},
        Shape::Dataclass,
        branch, optional,
        scalars::{INT64, NULLABLE_BOOL, NULLABLE_DICT, NULLABLE_FLOAT, NULLABLE_IDS, NULLABLE_INT, NULLABLE_STR},
    },
    wire::fields::{stream_options, structured::rules as structured},
};

/// The request of a dialect of OpenAI or Anthropic may have at most this many stop strings (vLLM: `VLLM_MAX_STOP_STRINGS`).
pub(crate) const MOST_STOP_STRINGS: usize = 4;

/// The schema of `repetition_detection`.
pub(crate) const DETECTION: Schema = Nullable(&Object(
    Dataclass("RepetitionDetectionParams"),
    &[optional("max_pattern_size", Int), optional("min_pattern_size", Int), optional("min_count", Int)],
));

const STOPS: Schema = Nullable(&Union(&[branch(Str), branch(ShortList(&Str, MOST_STOP_STRINGS))]));
const XARGS: Schema = Nullable(&Dict(&Union(&[
    branch(Str),
    branch(Int),
    branch(Float),
    branch(List(&Union(&[branch(Str), branch(Int), branch(Float)]))),
])));

pub(crate) const ALLOWED_TOKEN_IDS: Field = optional("allowed_token_ids", NULLABLE_IDS);
pub(crate) const BAD_WORDS: Field = optional("bad_words", List(&Str));
pub(crate) const CACHE_SALT: Field = optional("cache_salt", Nullable(&Text(1, 1024)));
pub(crate) const EC_TRANSFER_PARAMS: Field = optional("ec_transfer_params", NULLABLE_DICT);
pub(crate) const FREQUENCY_PENALTY: Field = optional("frequency_penalty", NULLABLE_FLOAT);
pub(crate) const IGNORE_EOS: Field = optional("ignore_eos", Bool);
pub(crate) const INCLUDE_STOP_STR_IN_OUTPUT: Field = optional("include_stop_str_in_output", Bool);
pub(crate) const KV_TRANSFER_PARAMS: Field = optional("kv_transfer_params", NULLABLE_DICT);
pub(crate) const LOGIT_BIAS: Field = optional("logit_bias", Nullable(&Dict(&Float)));
pub(crate) const LOGPROB_TOKEN_IDS: Field = optional("logprob_token_ids", NULLABLE_IDS);
pub(crate) const MAX_TOKENS: Field = optional("max_tokens", NULLABLE_INT);
pub(crate) const MIN_P: Field = optional("min_p", NULLABLE_FLOAT);
pub(crate) const MIN_TOKENS: Field = optional("min_tokens", Int);
pub(crate) const MM_PAYLOAD: Field = optional("mm_payload", Literal(&["tensors", "none"]));
pub(crate) const PRESENCE_PENALTY: Field = optional("presence_penalty", NULLABLE_FLOAT);
pub(crate) const PRIORITY: Field = optional("priority", INT64);
pub(crate) const PROMPT_LOGPROBS: Field = optional("prompt_logprobs", NULLABLE_INT);
pub(crate) const REPETITION_DETECTION: Field = optional("repetition_detection", DETECTION);
pub(crate) const REPETITION_PENALTY: Field = optional("repetition_penalty", NULLABLE_FLOAT);
pub(crate) const REQUEST_ID: Field = optional("request_id", Str);
pub(crate) const RESPONSE_FORMAT: Field = optional("response_format", Nullable(&structured::RESPONSE_FORMAT));
pub(crate) const RETURN_MM_KWARGS: Field = optional("return_mm_kwargs", NULLABLE_BOOL);
pub(crate) const RETURN_TOKENS_AS_TOKEN_IDS: Field = optional("return_tokens_as_token_ids", NULLABLE_BOOL);
pub(crate) const RETURN_TOKEN_IDS: Field = optional("return_token_ids", NULLABLE_BOOL);
pub(crate) const SEED: Field = optional("seed", Nullable(&INT64));
pub(crate) const SESSION_ID: Field = optional("session_id", NULLABLE_STR);
pub(crate) const SKIP_SPECIAL_TOKENS: Field = optional("skip_special_tokens", NULLABLE_BOOL);
pub(crate) const STOP: Field = optional("stop", STOPS);
pub(crate) const STOP_TOKEN_IDS: Field = optional("stop_token_ids", NULLABLE_IDS);
pub(crate) const STREAM: Field = optional("stream", NULLABLE_BOOL);
pub(crate) const STREAM_INTERVAL: Field = optional("stream_interval", Nullable(&IntIn(1, None)));
pub(crate) const STREAM_OPTIONS: Field = optional("stream_options", stream_options::STREAM_OPTIONS);
pub(crate) const STRUCTURED_OUTPUTS: Field = optional("structured_outputs", structured::STRUCTURED_OUTPUTS);
pub(crate) const TEMPERATURE: Field = optional("temperature", NULLABLE_FLOAT);
pub(crate) const THINKING_TOKEN_BUDGET: Field = optional("thinking_token_budget", NULLABLE_INT);
pub(crate) const TOP_K: Field = optional("top_k", NULLABLE_INT);
pub(crate) const TOP_P: Field = optional("top_p", NULLABLE_FLOAT);
pub(crate) const VLLM_XARGS: Field = optional("vllm_xargs", XARGS);
pub(crate) const WATERMARKING: Field = optional("watermarking", NULLABLE_BOOL);
