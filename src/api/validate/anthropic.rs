//! The request bodies of vLLM 0.32's Anthropic endpoints (`entrypoints/anthropic/protocol.py`). What tito has besides is
//! left to serde.

use std::borrow::Cow;

use super::{
    issue::value_error,
    schema::{
        Field,
        Schema::{self, Any, Bool, Dict, Float, Int, List, Literal, Nullable, Object, ShortList, Str, Union},
        Shape::Model,
        branch, optional, required,
    },
};
use crate::{
    api::error::ApiError,
    json::{Items, Kind, Node},
};

const NULLABLE_BOOL: Schema = Nullable(&Bool);
const NULLABLE_STR: Schema = Nullable(&Str);
const NULLABLE_DICT: Schema = Nullable(&Dict(&Any));
const MOST_STOP_SEQUENCES: usize = 4;

static BLOCK: Schema = Object(
    Model,
    &[
        required(
            "type",
            Literal(&["text", "image", "tool_use", "tool_result", "tool_reference", "thinking", "redacted_thinking"]),
        ),
        optional("text", NULLABLE_STR),
        optional("source", NULLABLE_DICT),
        optional("id", NULLABLE_STR),
        optional("tool_use_id", NULLABLE_STR),
        optional("name", NULLABLE_STR),
        optional("input", NULLABLE_DICT),
        optional("content", Nullable(&Union(&[branch(Str), branch(List(&Dict(&Any)))]))),
        optional("is_error", NULLABLE_BOOL),
        optional("tool_name", NULLABLE_STR),
        optional("thinking", NULLABLE_STR),
        optional("signature", NULLABLE_STR),
        optional("data", NULLABLE_STR),
    ],
);

static MESSAGE: Schema = Object(
    Model,
    &[
        required("role", Literal(&["user", "assistant", "system"])),
        required("content", Union(&[branch(Str), branch(List(&BLOCK))])),
    ],
);

const SYSTEM: Schema = Nullable(&Union(&[branch(Str), branch(List(&BLOCK))]));

const TOOLS: Schema = Nullable(&List(&Object(
    Model,
    &[
        required("name", Str),
        optional("description", NULLABLE_STR),
        required("input_schema", Dict(&Any)),
        optional("strict", NULLABLE_BOOL),
        optional("defer_loading", NULLABLE_BOOL),
    ],
)));

const TOOL_CHOICE: Schema = Nullable(&Object(
    Model,
    &[
        required("type", Literal(&["auto", "any", "tool", "none"])),
        optional("name", NULLABLE_STR),
        optional("disable_parallel_tool_use", NULLABLE_BOOL),
    ],
));

const THINKING: Schema = Nullable(&Object(Model, &[required("type", Literal(&["enabled", "disabled", "adaptive"]))]));

const OUTPUT_FORMAT: Schema =
    Nullable(&Object(Model, &[optional("schema", NULLABLE_DICT), optional("type", Literal(&["json_schema"]))]));

const OUTPUT_CONFIG: Schema = Nullable(&Object(
    Model,
    &[
        optional("effort", Nullable(&Literal(&["low", "medium", "high", "xhigh", "max"]))),
        optional("format", OUTPUT_FORMAT),
    ],
));

const CONVERSATION: [Field; 7] = [
    required("model", Str),
    required("messages", List(&MESSAGE)),
    optional("system", SYSTEM),
    optional("tool_choice", TOOL_CHOICE),
    optional("tools", TOOLS),
    optional("thinking", THINKING),
    optional("chat_template_kwargs", NULLABLE_DICT),
];

/// `POST /v1/messages`.
pub(super) static MESSAGES: Schema = Object(
    Model,
    &[
        required("model", Str),
        required("messages", List(&MESSAGE)),
        required("max_tokens", Int),
        optional("metadata", NULLABLE_DICT),
        optional("output_config", OUTPUT_CONFIG),
        optional("output_format", OUTPUT_FORMAT),
        optional("stop_sequences", Nullable(&ShortList(&Str, MOST_STOP_SEQUENCES))),
        optional("stream", NULLABLE_BOOL),
        optional("system", SYSTEM),
        optional("temperature", Nullable(&Float)),
        optional("thinking", THINKING),
        optional("tool_choice", TOOL_CHOICE),
        optional("tools", TOOLS),
        optional("top_k", Nullable(&Int)),
        optional("top_p", Nullable(&Float)),
        optional("kv_transfer_params", NULLABLE_DICT),
        optional("chat_template_kwargs", NULLABLE_DICT),
    ],
);

/// `POST /v1/messages/count_tokens`.
pub(super) static COUNT_TOKENS: Schema = Object(Model, &CONVERSATION);

/// A model has a name; and Claude Code has names of its own for what a user sends.
pub(super) fn named(body: &mut Node<'_>) -> Result<(), ApiError> {
    if body.get("model").and_then(Node::as_str) == Some("") {
        return Err(value_error(&["model".to_owned()], "Value error, Model is required"));
    }
    let Kind::Object(fields) = &mut body.kind else { return Ok(()) };
    let Some(Kind::List(Items::Nodes(messages))) = fields.get_mut("messages").map(|messages| &mut messages.kind) else {
        return Ok(());
    };
    for message in messages {
        let Kind::Object(fields) = &mut message.kind else { continue };
        if let Some(role) = fields.get_mut("role")
            && matches!(role.as_str(), Some("ctx" | "msg"))
        {
            role.kind = Kind::String(Cow::Borrowed("user"));
        }
    }
    Ok(())
}
