//! The rules for the request body of `/v1/responses` (vLLM 0.32 `responses/protocol.py`). Items, tools and choices are
//! unions of dozens of types there; here the code that reads them says what is wrong with them.

use std::borrow::Cow;

use crate::{
    foreign_fields::OF_RESPONSES,
    json::{Items, Node, NodeKind},
    pydantic::{
        Schema::{self, Any, Bool, Dict, List, Literal, Nullable, Object, Str},
        Shape::Model,
        optional, required,
        scalars::{NULLABLE_BOOL, NULLABLE_DICT, NULLABLE_INT, NULLABLE_STR},
    },
    wire::{
        body::Rules,
        fields::{
            cache_salt,
            sampling::field,
            structured::rules::structured_outputs,
            untyped::{Checked, non_null, refuse, take_spelling},
        },
    },
};

/// The rules that the body of a response must keep.
pub(crate) static RULES: Rules = Rules { before: Some(check), foreign: &OF_RESPONSES, ..Rules::new(&RESPONSES) };

/// The refusal of two limits; why it has no name for one of them says `wire::error::wording`.
const TWO_LIMITS: &str = "`max_output_tokens` and the shorter name of a chat for it differ: send one of them";

fn check(body: &mut Node<'_>) -> Checked {
    // Gateways of trainers set the limit of a chat on whatever passes.
    take_spelling(body, "max_output_tokens", "max_tokens", TWO_LIMITS)?;
    older_retention(body);
    tool_usage(body)?;
    structured_outputs(body, None)?;
    cache_salt::check(body.get("cache_salt"))
}

/// Spells `prompt_cache_retention` as it is spelt today: older clients send `in-memory`.
fn older_retention(body: &mut Node<'_>) {
    const FIELD: &str = "prompt_cache_retention";

    if let NodeKind::Object(fields) = &mut body.kind
        && let Some(retention) = fields.get_mut(FIELD).filter(|retention| retention.as_str() == Some("in-memory"))
    {
        retention.kind = NodeKind::String(Cow::Borrowed("in_memory"));
    }
}

/// The values that `OpenAI` has, and `token_ids`.
pub(crate) const INCLUDED: &[&str] = &[
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
    "token_ids",
];

const INCLUDE: Schema = Nullable(&List(&Literal(INCLUDED)));

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

const PROMPT_CACHE_OPTIONS: Schema = Nullable(&Object(
    Model,
    &[
        optional("mode", Literal(&["implicit", "explicit"])),
        optional("ttl", Literal(&["30m"])),
        optional("comparison_response_id", NULLABLE_STR),
        optional("prewarm", NULLABLE_BOOL),
    ],
));

static RESPONSES: Schema = Object(
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
        field::LOGIT_BIAS,
        optional("parallel_tool_calls", NULLABLE_BOOL),
        optional("previous_response_id", NULLABLE_STR),
        optional("reasoning", REASONING),
        optional("service_tier", Nullable(&Literal(&["auto", "default", "flex", "scale", "priority"]))),
        optional("store", NULLABLE_BOOL),
        field::STREAM,
        field::TEMPERATURE,
        optional("text", TEXT),
        optional("tools", Nullable(&List(&Any))),
        optional("top_logprobs", NULLABLE_INT),
        field::TOP_P,
        field::TOP_K,
        field::MIN_P,
        optional("truncation", Nullable(&Literal(&["auto", "disabled"]))),
        optional("user", NULLABLE_STR),
        field::SKIP_SPECIAL_TOKENS,
        field::INCLUDE_STOP_STR_IN_OUTPUT,
        optional("prompt_cache_key", NULLABLE_STR),
        optional("prompt_cache_options", PROMPT_CACHE_OPTIONS),
        optional("prompt_cache_retention", Nullable(&Literal(&["in_memory", "24h"]))),
        optional("safety_identifier", NULLABLE_STR),
        optional("chat_template", NULLABLE_STR),
        optional("chat_template_kwargs", NULLABLE_DICT),
        field::PRIORITY,
        field::MM_PAYLOAD,
        field::RETURN_MM_KWARGS,
        field::REQUEST_ID,
        field::SESSION_ID,
        field::CACHE_SALT,
        optional("enable_response_messages", Bool),
        optional("include_reasoning", Bool),
        optional("media_io_kwargs", Nullable(&Dict(&Dict(&Any)))),
        field::STRUCTURED_OUTPUTS,
        field::PRESENCE_PENALTY,
        field::FREQUENCY_PENALTY,
        field::REPETITION_PENALTY,
        field::SEED,
        field::STOP,
        field::STOP_TOKEN_IDS,
        field::MIN_TOKENS,
        field::IGNORE_EOS,
        field::ALLOWED_TOKEN_IDS,
        field::BAD_WORDS,
        field::KV_TRANSFER_PARAMS,
        field::VLLM_XARGS,
        field::REPETITION_DETECTION,
        field::RETURN_TOKEN_IDS,
        field::RETURN_TOKENS_AS_TOKEN_IDS,
        field::STREAM_INTERVAL,
    ],
);

/// Checks that a choice has tools to choose from. If there are no tools, vLLM writes a choice into the body, so its
/// errors count one field more than the client sent; that is why the field has no text.
fn tool_usage(body: &mut Node<'_>) -> Checked {
    let is_empty = |tools: &Node<'_>| matches!(&tools.kind, NodeKind::List(Items::Nodes(tools)) if tools.is_empty());
    let tools = non_null(body, "tools").filter(|tools| !is_empty(tools));
    let choice = body.get("tool_choice");
    let names_one = choice.is_some_and(|choice| {
        let kind = choice.get("type").and_then(Node::as_str);
        matches!((&choice.kind, kind), (NodeKind::Object(_), Some("function" | "custom")))
    });
    let not_found = || refuse("tool_choice", "Tool choice 'function' not found in 'tools' parameter.");
    if tools.is_some() {
        // The form of a choice in a chat is accepted too.
        let names = |value: &Node<'_>| value.get("name").and_then(Node::as_str).is_some_and(|name| !name.is_empty());
        let has_name = choice.is_some_and(|choice| names(choice) || choice.get("function").is_some_and(names));
        return if names_one && !has_name { not_found() } else { Ok(()) };
    }
    // The tools may be those of the conversation that is continued: who reads it knows them.
    if non_null(body, "previous_response_id").is_some() {
        return Ok(());
    }
    if choice.and_then(Node::as_str) == Some("required") {
        return refuse("tool_choice", "Tool choice 'required' must be specified with 'tools' parameter.");
    }
    if names_one {
        return not_found();
    }
    if let NodeKind::Object(fields) = &mut body.kind {
        let none = Node { text: "", kind: NodeKind::String(Cow::Borrowed("none")) };
        fields.entry("tool_choice".to_owned()).or_insert(none);
    }
    Ok(())
}
