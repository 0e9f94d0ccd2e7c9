//! The rules for the request bodies of vLLM 0.32's Anthropic endpoints (`entrypoints/anthropic/protocol.py`). Fields
//! that only tito has are left to serde.

use std::borrow::Cow;

use crate::{
    foreign_fields::OF_MESSAGES,
    json::{Items, Members, Node, NodeKind},
    pydantic::{
        Field,
        Schema::{
            self, Any, Checked, Dict, Int, IntIn, List, Literal, Nullable, Object, ShortList, Str, Tagged, Union,
        },
        Shape::Model,
        branch, coerced, optional, required,
        scalars::{NULLABLE_BOOL, NULLABLE_DICT, NULLABLE_STR},
    },
    wire::{
        body::Rules,
        fields::{
            sampling::field::{self, MOST_STOP_STRINGS},
            untyped::Checked as Outcome,
        },
    },
};

/// The rules that the body of a message must keep.
pub(crate) static MESSAGES_RULES: Rules =
    Rules { before: Some(brought_into_form), foreign: &OF_MESSAGES, ..Rules::new(&MESSAGES) };

/// The rules that the body of a prompt to be counted must keep.
pub(crate) static COUNT_TOKENS_RULES: Rules =
    Rules { before: Some(brought_into_form), foreign: &OF_MESSAGES, ..Rules::new(&COUNT_TOKENS) };

/// The smallest budget for thinking.
const LEAST_BUDGET: i64 = 1024;

static TOOL: [Field; 5] = [
    required("name", Str),
    optional("description", NULLABLE_STR),
    required("input_schema", Dict(&Any)),
    optional("strict", NULLABLE_BOOL),
    optional("defer_loading", NULLABLE_BOOL),
];

const TOOLS: Schema = Nullable(&List(&Object(Model, &TOOL)));

/// The tool that a `tool_addition` or a `tool_removal` changes.
const TOOL_CHANGE: Schema = Nullable(&Tagged(&[
    ("tool_reference", Object(Model, &[required("type", Literal(&["tool_reference"])), required("name", Str)])),
    (
        "tool_definition",
        Object(Model, &[required("type", Literal(&["tool_definition"])), required("definition", Object(Model, &TOOL))]),
    ),
]));

static BLOCK: Schema = Checked(
    &Object(
        Model,
        &[
            required(
                "type",
                Literal(&[
                    "text",
                    "image",
                    "tool_use",
                    "tool_result",
                    "tool_reference",
                    "thinking",
                    "redacted_thinking",
                    "tool_addition",
                    "tool_removal",
                ]),
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
            optional("tool", TOOL_CHANGE),
        ],
    ),
    tool_change,
);

fn kind<'n>(node: &'n Node<'_>) -> Option<&'n str> {
    node.get("type").and_then(Node::as_str)
}

/// Checks a change of tools: an added tool is named or defined, and a removed tool can only be named.
fn tool_change(block: &Node<'_>) -> Option<&'static str> {
    let tool = block.get("tool").filter(|tool| !tool.is_null());
    match (kind(block), tool) {
        (Some("tool_addition"), None) => Some("tool is required for tool_addition blocks"),
        (Some("tool_removal"), None) => Some("tool is required for tool_removal blocks"),
        (Some("tool_removal"), Some(tool)) if kind(tool) != Some("tool_reference") => {
            Some("tool_removal only accepts a tool_reference")
        }
        _ => None,
    }
}

/// Refuses changes of tools, which only system messages may make.
fn changes_no_tool(content: &Node<'_>) -> Option<&'static str> {
    let NodeKind::List(blocks) = &content.kind else { return None };
    blocks.nodes().find_map(|block| match kind(&block) {
        Some("tool_addition") => Some("tool_addition blocks are only allowed in messages with role \"system\""),
        Some("tool_removal") => Some("tool_removal blocks are only allowed in messages with role \"system\""),
        _ => None,
    })
}

static MESSAGE: Schema = Checked(
    &Object(
        Model,
        &[
            required("role", Literal(&["user", "assistant", "system"])),
            required("content", Union(&[branch(Str), branch(List(&BLOCK))])),
        ],
    ),
    |message| match message.get("role").and_then(Node::as_str) {
        Some("system") => None,
        _ => message.get("content").and_then(changes_no_tool),
    },
);

const SYSTEM: Schema = Checked(&Nullable(&Union(&[branch(Str), branch(List(&BLOCK))])), changes_no_tool);

const TOOL_CHOICE: Schema = Nullable(&Checked(
    &Object(
        Model,
        &[
            required("type", Literal(&["auto", "any", "tool", "none"])),
            optional("name", NULLABLE_STR),
            optional("disable_parallel_tool_use", NULLABLE_BOOL),
        ],
    ),
    |choice| {
        let is_named = choice.get("name").and_then(Node::as_str).is_some_and(|name| !name.is_empty());
        (kind(choice) == Some("tool") && !is_named).then_some("tool_choice.name is required when type is 'tool'")
    },
));

const DISPLAY: Field = optional("display", Nullable(&Literal(&["summarized", "omitted", "updates"])));

const THINKING: Schema = Nullable(&Tagged(&[
    (
        "enabled",
        Object(
            Model,
            &[required("type", Literal(&["enabled"])), required("budget_tokens", IntIn(LEAST_BUDGET, None)), DISPLAY],
        ),
    ),
    ("disabled", Object(Model, &[required("type", Literal(&["disabled"]))])),
    ("adaptive", Object(Model, &[required("type", Literal(&["adaptive"])), DISPLAY])),
]));

const OUTPUT_FORMAT: Schema =
    Nullable(&Object(Model, &[optional("schema", NULLABLE_DICT), optional("type", Literal(&["json_schema"]))]));

const OUTPUT_CONFIG: Schema = Nullable(&Object(
    Model,
    &[
        optional("effort", Nullable(&Literal(&["low", "medium", "high", "xhigh", "max"]))),
        optional("format", OUTPUT_FORMAT),
    ],
));

const MAX_TOKENS: Schema = Checked(&Int, |tokens| {
    let is_positive = coerced(tokens).is_ok_and(|tokens| tokens.to_i128().is_none_or(|tokens| tokens > 0));
    (!is_positive).then_some("max_completion_tokens must be positive")
});

/// Returns the fields of a request; if its prompt is only counted, `max_tokens` may be left out.
const fn fields(max_tokens: Field) -> [Field; 23] {
    [
        required("model", Checked(&Str, |name| (name.as_str() == Some("")).then_some("Model is required"))),
        required("messages", List(&MESSAGE)),
        max_tokens,
        optional("metadata", NULLABLE_DICT),
        optional("output_config", OUTPUT_CONFIG),
        optional("output_format", OUTPUT_FORMAT),
        optional("thinking", THINKING),
        optional("stop_sequences", Nullable(&ShortList(&Str, MOST_STOP_STRINGS))),
        field::STREAM,
        optional("system", SYSTEM),
        field::TEMPERATURE,
        optional("tool_choice", TOOL_CHOICE),
        optional("tools", TOOLS),
        field::TOP_K,
        field::TOP_P,
        field::MM_PAYLOAD,
        field::RETURN_MM_KWARGS,
        field::CACHE_SALT,
        field::WATERMARKING,
        field::KV_TRANSFER_PARAMS,
        field::EC_TRANSFER_PARAMS,
        field::VLLM_XARGS,
        optional("chat_template_kwargs", NULLABLE_DICT),
    ]
}

static MESSAGES_FIELDS: [Field; 23] = fields(required("max_tokens", MAX_TOKENS));
static COUNTED_FIELDS: [Field; 23] = fields(optional("max_tokens", Nullable(&MAX_TOKENS)));

/// The fields of `POST /v1/messages`.
static MESSAGES: Schema = Checked(&Object(Model, &MESSAGES_FIELDS), thinks_within_the_answer);

/// The fields of `POST /v1/messages/count_tokens`. vLLM checks fewer; here a prompt is deliberately only counted if it
/// could be sent.
static COUNT_TOKENS: Schema = Checked(&Object(Model, &COUNTED_FIELDS), thinks_within_the_answer);

/// Checks that a budget for thinking leaves room for an answer, unless another server is to write the answer.
fn thinks_within_the_answer(body: &Node<'_>) -> Option<&'static str> {
    let is_elsewhere = |params: &Node<'_>| params.get("do_remote_decode").is_some_and(Node::is_truthy);
    let thinking = body.get("thinking").filter(|thinking| kind(thinking) == Some("enabled"))?;
    if body.get("kv_transfer_params").is_some_and(is_elsewhere) {
        return None;
    }
    let tokens = |node: &Node<'_>| coerced(node).ok();
    let budget = thinking.get("budget_tokens").and_then(tokens)?;
    let max_tokens = body.get("max_tokens").and_then(tokens)?;
    let fits = match (budget.to_i128(), max_tokens.to_i128()) {
        (Some(budget), Some(max_tokens)) => budget < max_tokens,
        (budget, None) => budget.is_some(),
        (None, Some(_)) => false,
    };
    (!fits).then_some("thinking.budget_tokens must be less than max_completion_tokens")
}

/// Puts a body into the form that the schema describes.
#[expect(clippy::unnecessary_wraps, reason = "a check before the schema may fail")]
fn brought_into_form(body: &mut Node<'_>) -> Outcome {
    let NodeKind::Object(fields) = &mut body.kind else { return Ok(()) };
    complete_served_tools(fields);
    rename_roles(fields);
    Ok(())
}

/// Fills in what tools that a server would run do not have. No reader sees it: the model is not shown them.
fn complete_served_tools(fields: &mut Members<Node<'_>>) {
    let Some(NodeKind::List(Items::Nodes(tools))) = fields.get_mut("tools").map(|tools| &mut tools.kind) else {
        return;
    };
    for tool in tools {
        // The tools of chats and of responses are functions, which no server runs.
        if kind(tool).is_none_or(|kind| matches!(kind, "custom" | "function")) || tool.get("input_schema").is_some() {
            continue;
        }
        let NodeKind::Object(fields) = &mut tool.kind else { continue };
        let unseen = |kind| Node { text: "", kind };
        fields.entry("input_schema".to_owned()).or_insert_with(|| unseen(NodeKind::Object(Members::default())));
        fields.entry("name".to_owned()).or_insert_with(|| unseen(NodeKind::String(Cow::Borrowed(""))));
    }
}

/// Renames the kinds of messages that Claude Code has for what a user sends.
fn rename_roles(fields: &mut Members<Node<'_>>) {
    let Some(NodeKind::List(Items::Nodes(messages))) = fields.get_mut("messages").map(|messages| &mut messages.kind)
    else {
        return;
    };
    for message in messages {
        let NodeKind::Object(fields) = &mut message.kind else { continue };
        if let Some(role) = fields.get_mut("role")
            && matches!(role.as_str(), Some("ctx" | "msg"))
        {
            role.kind = NodeKind::String(Cow::Borrowed("user"));
        }
    }
}
