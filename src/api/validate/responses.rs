//! The request body of `/v1/responses` (vLLM 0.32 `responses/protocol.py`). Items, tools and choices are unions of
//! dozens of types there; their reader says what is wrong with them.

use super::{
    requests::{
        CACHE_SALT, INT64, NULLABLE_BOOL, NULLABLE_DICT, NULLABLE_FLOAT, NULLABLE_IDS, NULLABLE_INT, NULLABLE_STR,
        REPETITION_DETECTION, STOP, STREAM_INTERVAL, STRUCTURED_OUTPUTS, XARGS,
    },
    schema::{
        Schema::{self, Any, Bool, Dict, Float, Int, List, Literal, Nullable, Object, Str},
        Shape::Model,
        optional, required,
    },
};

/// Those of `OpenAI`, and `token_ids`.
const INCLUDE: Schema = Nullable(&List(&Literal(&[
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
    "token_ids",
])));

const TEXT: Schema = Nullable(&Object(
    Model,
    &[
        optional(
            "format",
            Nullable(&Object(
                Model,
                &[
                    required("type", Literal(&["text", "json_schema", "json_object"])),
                    optional("name", NULLABLE_STR),
                    optional("schema", NULLABLE_DICT),
                    optional("description", NULLABLE_STR),
                    optional("strict", NULLABLE_BOOL),
                ],
            )),
        ),
        optional("verbosity", Nullable(&Literal(&["low", "medium", "high"]))),
    ],
));

const REASONING: Schema = Nullable(&Object(
    Model,
    &[optional("effort", Nullable(&Literal(&["none", "minimal", "low", "medium", "high", "xhigh", "max"])))],
));

/// `POST /v1/responses`.
pub(super) static RESPONSES: Schema = Object(
    Model,
    &[
        optional("background", NULLABLE_BOOL),
        optional("include", INCLUDE),
        required("input", Any),
        optional("instructions", NULLABLE_STR),
        optional("max_output_tokens", NULLABLE_INT),
        optional("max_tool_calls", NULLABLE_INT),
        optional("metadata", Nullable(&Dict(&Str))),
        optional("model", NULLABLE_STR),
        optional("logit_bias", Nullable(&Dict(&Float))),
        optional("parallel_tool_calls", NULLABLE_BOOL),
        optional("previous_response_id", NULLABLE_STR),
        optional("reasoning", REASONING),
        optional("service_tier", Nullable(&Literal(&["auto", "default", "flex", "scale", "priority"]))),
        optional("store", NULLABLE_BOOL),
        optional("stream", NULLABLE_BOOL),
        optional("temperature", NULLABLE_FLOAT),
        optional("text", TEXT),
        optional("tools", Nullable(&List(&Any))),
        optional("top_logprobs", NULLABLE_INT),
        optional("top_p", NULLABLE_FLOAT),
        optional("top_k", NULLABLE_INT),
        optional("min_p", NULLABLE_FLOAT),
        optional("truncation", Nullable(&Literal(&["auto", "disabled"]))),
        optional("user", NULLABLE_STR),
        optional("skip_special_tokens", Bool),
        optional("include_stop_str_in_output", Bool),
        optional("prompt_cache_key", NULLABLE_STR),
        optional("chat_template", NULLABLE_STR),
        optional("chat_template_kwargs", NULLABLE_DICT),
        optional("priority", INT64),
        optional("request_id", Str),
        optional("session_id", NULLABLE_STR),
        optional("cache_salt", CACHE_SALT),
        optional("enable_response_messages", Bool),
        optional("structured_outputs", STRUCTURED_OUTPUTS),
        optional("presence_penalty", NULLABLE_FLOAT),
        optional("frequency_penalty", NULLABLE_FLOAT),
        optional("repetition_penalty", NULLABLE_FLOAT),
        optional("seed", Nullable(&INT64)),
        optional("stop", STOP),
        optional("stop_token_ids", NULLABLE_IDS),
        optional("min_tokens", Int),
        optional("ignore_eos", Bool),
        optional("allowed_token_ids", NULLABLE_IDS),
        optional("bad_words", List(&Str)),
        optional("kv_transfer_params", NULLABLE_DICT),
        optional("vllm_xargs", XARGS),
        optional("repetition_detection", REPETITION_DETECTION),
        optional("return_token_ids", NULLABLE_BOOL),
        optional("return_tokens_as_token_ids", NULLABLE_BOOL),
        optional("stream_interval", STREAM_INTERVAL),
    ],
);
