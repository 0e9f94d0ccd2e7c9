//! The request bodies of vLLM 0.32, field by field in its order (`chat_completion/protocol.py`,
//! `completion/protocol.py`, `tokenize/protocol.py`). What tito has besides is left to serde.

use super::{
    messages::MESSAGE,
    schema::{
        Field,
        Schema::{
            self, Any, Bool, Bytes, Dict, Float, Int, IntIn, List, Literal, Nullable, Object, ShortList, Str, Text,
            Union,
        },
        Shape::{Dataclass, Model},
        branch, optional, required,
    },
};

pub(super) const NULLABLE_BOOL: Schema = Nullable(&Bool);
pub(super) const NULLABLE_FLOAT: Schema = Nullable(&Float);
pub(super) const NULLABLE_INT: Schema = Nullable(&Int);
pub(super) const NULLABLE_STR: Schema = Nullable(&Str);
pub(super) const NULLABLE_IDS: Schema = Nullable(&List(&Int));
pub(super) const NULLABLE_DICT: Schema = Nullable(&Dict(&Any));
pub(super) const INT64: Schema = IntIn(i64::MIN, Some(i64::MAX));
/// vLLM's `VLLM_MAX_STOP_STRINGS`.
const MOST_STOP_STRINGS: usize = 4;
pub(super) const STOP: Schema = Nullable(&Union(&[branch(Str), branch(ShortList(&Str, MOST_STOP_STRINGS))]));
const STREAM_OPTIONS: Schema = Nullable(&Object(
    Model,
    &[optional("include_usage", NULLABLE_BOOL), optional("continuous_usage_stats", NULLABLE_BOOL)],
));
const TRUNCATION_SIDE: Schema = Nullable(&Literal(&["left", "right"]));
const TRUNCATE_PROMPT_TOKENS: Schema = Nullable(&IntIn(-1, Some(i64::MAX)));
pub(super) const CACHE_SALT: Schema = Nullable(&Text(1, 1024));
pub(super) const MM_PAYLOAD: Schema = Literal(&["tensors", "none"]);
pub(super) const STREAM_INTERVAL: Schema = Nullable(&IntIn(1, None));
pub(super) const XARGS: Schema = Nullable(&Dict(&Union(&[
    branch(Str),
    branch(Int),
    branch(Float),
    branch(List(&Union(&[branch(Str), branch(Int), branch(Float)]))),
])));
pub(super) const REPETITION_DETECTION: Schema = Nullable(&Object(
    Dataclass("RepetitionDetectionParams"),
    &[optional("max_pattern_size", Int), optional("min_pattern_size", Int), optional("min_count", Int)],
));

/// What an answer must look like.
pub(super) static RESPONSE_FORMAT: Schema = Union(&[
    branch(Object(
        Model,
        &[
            required("type", Literal(&["text", "json_object", "json_schema"])),
            optional(
                "json_schema",
                Nullable(&Object(
                    Model,
                    &[
                        required("name", Str),
                        optional("description", NULLABLE_STR),
                        optional("schema", NULLABLE_DICT),
                        optional("strict", NULLABLE_BOOL),
                    ],
                )),
            ),
        ],
    )),
    branch(Object(Model, &[required("type", Literal(&["structural_tag"])), required("format", Any)])),
    branch(Object(
        Model,
        &[
            required("type", Literal(&["structural_tag"])),
            required(
                "structures",
                List(&Object(
                    Model,
                    &[required("begin", Str), optional("schema", NULLABLE_DICT), required("end", Str)],
                )),
            ),
            required("triggers", List(&Str)),
        ],
    )),
]);

pub(super) const STRUCTURED_OUTPUTS: Schema = Nullable(&Object(
    Dataclass("StructuredOutputsParams"),
    &[
        optional("json", Nullable(&Union(&[branch(Str), branch(Dict(&Any))]))),
        optional("regex", NULLABLE_STR),
        optional("choice", Nullable(&List(&Str))),
        optional("grammar", NULLABLE_STR),
        optional("json_object", NULLABLE_BOOL),
        optional("disable_any_whitespace", Bool),
        optional("disable_additional_properties", Bool),
        optional("whitespace_pattern", NULLABLE_STR),
        optional("structural_tag", NULLABLE_STR),
    ],
));

const TOOLS: Schema = Nullable(&List(&Object(
    Model,
    &[
        optional("type", Literal(&["function"])),
        required(
            "function",
            Object(
                Model,
                &[
                    required("name", Str),
                    optional("description", NULLABLE_STR),
                    optional("parameters", NULLABLE_DICT),
                    optional("strict", NULLABLE_BOOL),
                    optional("defer_loading", NULLABLE_BOOL),
                ],
            ),
        ),
        optional("defer_loading", NULLABLE_BOOL),
    ],
)));

const TOOL_CHOICE: Schema = Nullable(&Union(&[
    branch(Literal(&["none"])),
    branch(Literal(&["auto"])),
    branch(Literal(&["required"])),
    branch(Object(
        Model,
        &[required("function", Object(Model, &[required("name", Str)])), optional("type", Literal(&["function"]))],
    )),
]));

const REASONING_EFFORT: Schema = Nullable(&Literal(&["none", "minimal", "low", "medium", "high", "xhigh", "max"]));

/// `POST /v1/chat/completions`.
pub(super) static CHAT: Schema = Object(
    Model,
    &[
        required("messages", List(&MESSAGE)),
        optional("model", NULLABLE_STR),
        optional("frequency_penalty", NULLABLE_FLOAT),
        optional("logit_bias", Nullable(&Dict(&Float))),
        optional("logprobs", NULLABLE_BOOL),
        optional("top_logprobs", NULLABLE_INT),
        optional("max_tokens", NULLABLE_INT),
        optional("max_completion_tokens", NULLABLE_INT),
        optional("n", NULLABLE_INT),
        optional("presence_penalty", NULLABLE_FLOAT),
        optional("response_format", Nullable(&RESPONSE_FORMAT)),
        optional("seed", Nullable(&INT64)),
        optional("stop", STOP),
        optional("stream", NULLABLE_BOOL),
        optional("stream_options", STREAM_OPTIONS),
        optional("temperature", NULLABLE_FLOAT),
        optional("top_p", NULLABLE_FLOAT),
        optional("tools", TOOLS),
        optional("tool_choice", TOOL_CHOICE),
        optional("reasoning_effort", REASONING_EFFORT),
        optional("thinking_token_budget", NULLABLE_INT),
        optional("include_reasoning", Bool),
        optional("parallel_tool_calls", NULLABLE_BOOL),
        optional("user", NULLABLE_STR),
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
        optional("skip_special_tokens", Bool),
        optional("spaces_between_special_tokens", Bool),
        optional("truncate_prompt_tokens", TRUNCATE_PROMPT_TOKENS),
        optional("truncation_side", TRUNCATION_SIDE),
        optional("prompt_logprobs", NULLABLE_INT),
        optional("logprob_token_ids", NULLABLE_IDS),
        optional("allowed_token_ids", NULLABLE_IDS),
        optional("bad_words", List(&Str)),
        optional("echo", Bool),
        optional("add_generation_prompt", Bool),
        optional("continue_final_message", Bool),
        optional("add_special_tokens", Bool),
        optional("documents", Nullable(&List(&Dict(&Str)))),
        optional("chat_template", NULLABLE_STR),
        optional("chat_template_kwargs", NULLABLE_DICT),
        optional("media_io_kwargs", Nullable(&Dict(&Dict(&Any)))),
        optional("mm_processor_kwargs", NULLABLE_DICT),
        optional("structured_outputs", STRUCTURED_OUTPUTS),
        optional("priority", INT64),
        optional("request_id", Str),
        optional("session_id", NULLABLE_STR),
        optional("return_tokens_as_token_ids", NULLABLE_BOOL),
        optional("return_token_ids", NULLABLE_BOOL),
        optional("routed_experts_prompt_start", IntIn(0, None)),
        optional("return_token_offsets", NULLABLE_BOOL),
        optional("return_prompt_text", NULLABLE_BOOL),
        optional("mm_payload", MM_PAYLOAD),
        optional("return_mm_kwargs", NULLABLE_BOOL),
        optional("cache_salt", CACHE_SALT),
        optional("kv_transfer_params", NULLABLE_DICT),
        optional("ec_transfer_params", NULLABLE_DICT),
        optional("vllm_xargs", XARGS),
        optional("repetition_detection", REPETITION_DETECTION),
        optional("stream_interval", STREAM_INTERVAL),
    ],
);

/// `POST /v1/completions`.
pub(super) static COMPLETION: Schema = Object(
    Model,
    &[
        optional("model", NULLABLE_STR),
        optional(
            "prompt",
            Nullable(&Union(&[
                branch(List(&IntIn(0, None))),
                branch(List(&List(&IntIn(0, None)))),
                branch(Str),
                branch(List(&Str)),
            ])),
        ),
        optional("echo", NULLABLE_BOOL),
        optional("frequency_penalty", NULLABLE_FLOAT),
        optional("logit_bias", Nullable(&Dict(&Float))),
        optional("logprobs", NULLABLE_INT),
        optional("max_tokens", NULLABLE_INT),
        optional("n", Int),
        optional("presence_penalty", NULLABLE_FLOAT),
        optional("seed", Nullable(&INT64)),
        optional("stop", STOP),
        optional("stream", NULLABLE_BOOL),
        optional("stream_options", STREAM_OPTIONS),
        optional("suffix", NULLABLE_STR),
        optional("temperature", NULLABLE_FLOAT),
        optional("top_p", NULLABLE_FLOAT),
        optional("user", NULLABLE_STR),
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
        optional("skip_special_tokens", Bool),
        optional("spaces_between_special_tokens", Bool),
        optional("truncate_prompt_tokens", TRUNCATE_PROMPT_TOKENS),
        optional("truncation_side", TRUNCATION_SIDE),
        optional("allowed_token_ids", NULLABLE_IDS),
        optional("prompt_logprobs", NULLABLE_INT),
        optional("logprob_token_ids", NULLABLE_IDS),
        optional("bad_words", List(&Str)),
        optional("prompt_embeds", Nullable(&Union(&[branch(Bytes), branch(List(&Bytes))]))),
        optional("add_special_tokens", Bool),
        optional("response_format", Nullable(&RESPONSE_FORMAT)),
        optional("structured_outputs", STRUCTURED_OUTPUTS),
        optional("priority", INT64),
        optional("request_id", Str),
        optional("session_id", NULLABLE_STR),
        optional("return_tokens_as_token_ids", NULLABLE_BOOL),
        optional("return_token_ids", NULLABLE_BOOL),
        optional("routed_experts_prompt_start", IntIn(0, None)),
        optional("return_token_offsets", NULLABLE_BOOL),
        optional("mm_payload", MM_PAYLOAD),
        optional("return_mm_kwargs", NULLABLE_BOOL),
        optional("cache_salt", CACHE_SALT),
        optional("kv_transfer_params", NULLABLE_DICT),
        optional("ec_transfer_params", NULLABLE_DICT),
        optional("vllm_xargs", XARGS),
        optional("repetition_detection", REPETITION_DETECTION),
        optional("thinking_token_budget", NULLABLE_INT),
        optional("stream_interval", STREAM_INTERVAL),
    ],
);

/// The half of `POST /tokenize` that takes a text.
static TOKENIZE_TEXT: [Field; 4] = [
    optional("model", NULLABLE_STR),
    required("prompt", Str),
    optional("add_special_tokens", Bool),
    optional("return_token_strs", NULLABLE_BOOL),
];

/// The half that takes a conversation.
static TOKENIZE_CHAT: [Field; 11] = [
    optional("model", NULLABLE_STR),
    required("messages", List(&MESSAGE)),
    optional("add_generation_prompt", Bool),
    optional("return_token_strs", NULLABLE_BOOL),
    optional("continue_final_message", Bool),
    optional("add_special_tokens", Bool),
    optional("chat_template", NULLABLE_STR),
    optional("chat_template_kwargs", NULLABLE_DICT),
    optional("media_io_kwargs", Nullable(&Dict(&Dict(&Any)))),
    optional("mm_processor_kwargs", NULLABLE_DICT),
    optional("tools", TOOLS),
];

pub(super) static TOKENIZE_TEXT_ONLY: Schema = Object(Model, &TOKENIZE_TEXT);
pub(super) static TOKENIZE_CHAT_ONLY: Schema = Object(Model, &TOKENIZE_CHAT);

/// `POST /tokenize`.
pub(super) static TOKENIZE: Schema =
    Union(&[branch(Object(Model, &TOKENIZE_TEXT)), branch(Object(Model, &TOKENIZE_CHAT))]);

/// `POST /detokenize`.
pub(super) static DETOKENIZE: Schema =
    Object(Model, &[optional("model", NULLABLE_STR), required("tokens", List(&IntIn(0, Some(i64::MAX))))]);
