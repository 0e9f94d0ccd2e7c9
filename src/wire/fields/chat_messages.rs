//! The messages of a conversation as vLLM 0.32 declares them: OpenAI's kinds, any other role, and Harmony's own.

use super::untyped::{Checked, is_true, iterable, non_null, refuse, take_for};
use crate::{
    json::{Items, Node, NodeKind},
    pydantic::{
        Field,
        Schema::{
            self, Any, Bool, Dict, Float, Int, Iterable, List, Listed, Literal, Member, Nullable, Object, Str, Union,
        },
        Shape::{Model, TypedDict},
        branch, labelled, optional, required,
        scalars::NULLABLE_STR,
    },
    wire::error::ApiError,
};

/// A message.
pub(crate) static MESSAGE: Schema = Union(&[
    labelled("ChatCompletionDeveloperMessageParam", Object(TypedDict, &of_role(&["developer"]))),
    labelled("ChatCompletionSystemMessageParam", Object(TypedDict, &of_role(&["system"]))),
    labelled("ChatCompletionUserMessageParam", Object(TypedDict, &of_role(&["user"]))),
    labelled("ChatCompletionAssistantMessageParam", Object(TypedDict, &ASSISTANT)),
    labelled("ChatCompletionToolMessageParam", Object(TypedDict, &TOOL)),
    labelled("ChatCompletionFunctionMessageParam", Object(TypedDict, &FUNCTION)),
    labelled("CustomChatCompletionMessageParam", Object(TypedDict, &CUSTOM)),
    labelled("Message", Object(Model, &HARMONY)),
]);

/// A call of an assistant's message, which vLLM checks after all other fields.
pub(crate) static TOOL_CALL: Schema = Union(&[
    labelled("ChatCompletionMessageFunctionToolCallParam", FUNCTION_CALL),
    labelled(
        "ChatCompletionMessageCustomToolCallParam",
        Object(
            TypedDict,
            &[
                required("id", Str),
                required("custom", Object(TypedDict, &[required("input", Str), required("name", Str)])),
                required("type", Literal(&["custom"])),
            ],
        ),
    ),
]);

const FUNCTION_CALL: Schema = Object(
    TypedDict,
    &[
        required("id", Str),
        required("function", Object(TypedDict, &[required("arguments", Str), required("name", Str)])),
        required("type", Literal(&["function"])),
    ],
);

/// The content of a message; the parts of a list are checked when they are rendered.
const CONTENT: Schema = Union(&[branch(Str), branch(Iterable)]);

const fn of_role(role: &'static [&'static str]) -> [Field; 3] {
    [required("content", CONTENT), required("role", Literal(role)), optional("name", Str)]
}

static ASSISTANT: [Field; 7] = [
    required("role", Literal(&["assistant"])),
    optional("audio", Nullable(&Object(TypedDict, &[required("id", Str)]))),
    optional("content", Nullable(&CONTENT)),
    optional("function_call", Nullable(&Object(TypedDict, &[required("arguments", Str), required("name", Str)]))),
    optional("name", Str),
    optional("refusal", NULLABLE_STR),
    optional("tool_calls", Iterable),
];

static TOOL: [Field; 3] =
    [required("content", CONTENT), required("role", Literal(&["tool"])), required("tool_call_id", Str)];

static FUNCTION: [Field; 3] =
    [required("content", NULLABLE_STR), required("name", Str), required("role", Literal(&["function"]))];

static CUSTOM: [Field; 8] = [
    required("role", Str),
    optional("content", Union(&[branch(Str), branch(List(&PART))])),
    optional("name", Str),
    optional("tool_call_id", NULLABLE_STR),
    optional("tool_calls", Nullable(&Listed(&FUNCTION_CALL))),
    optional("reasoning", NULLABLE_STR),
    optional(
        "tools",
        Nullable(&List(&Object(
            TypedDict,
            &[
                required(
                    "function",
                    Object(
                        TypedDict,
                        &[
                            required("name", Str),
                            optional("description", Str),
                            optional("parameters", Dict(&Any)),
                            optional("strict", Nullable(&Bool)),
                        ],
                    ),
                ),
                required("type", Literal(&["function"])),
            ],
        ))),
    ),
    optional("task", NULLABLE_STR),
];

static HARMONY: [Field; 5] = [
    required(
        "author",
        Object(
            Model,
            &[
                required("role", Member(&["user", "assistant", "system", "developer", "tool"])),
                optional("name", NULLABLE_STR),
            ],
        ),
    ),
    optional("content", List(&Object(Model, &[]))),
    optional("channel", NULLABLE_STR),
    optional("recipient", NULLABLE_STR),
    optional("content_type", NULLABLE_STR),
];

const CACHE_BREAKPOINT: Field = optional(
    "prompt_cache_breakpoint",
    Object(TypedDict, &[required("mode", Literal(&["explicit"])), optional("ttl", Literal(&["30m", "12h"]))]),
);

const UUID: Field = optional("uuid", NULLABLE_STR);

const EMBEDS: Schema = Nullable(&Union(&[
    branch(Str),
    branch(Dict(&Union(&[branch(Str), branch(List(&Union(&[branch(Int), branch(Float)])))]))),
]));

/// A part of a content list. Nearly every object passes as one kind or another.
static PART: Schema = Union(&[
    labelled(
        "ChatCompletionContentPartTextParam",
        Object(TypedDict, &[required("text", Str), required("type", Literal(&["text"])), CACHE_BREAKPOINT]),
    ),
    labelled(
        "ChatCompletionContentPartImageParam",
        Object(
            TypedDict,
            &[
                required(
                    "image_url",
                    Object(
                        TypedDict,
                        &[required("url", Str), optional("detail", Literal(&["auto", "low", "high", "original"]))],
                    ),
                ),
                required("type", Literal(&["image_url"])),
                CACHE_BREAKPOINT,
            ],
        ),
    ),
    labelled(
        "ChatCompletionContentPartInputAudioParam",
        Object(
            TypedDict,
            &[
                required(
                    "input_audio",
                    Object(TypedDict, &[required("data", Str), required("format", Literal(&["wav", "mp3"]))]),
                ),
                required("type", Literal(&["input_audio"])),
                CACHE_BREAKPOINT,
            ],
        ),
    ),
    labelled(
        "File",
        Object(
            TypedDict,
            &[
                required(
                    "file",
                    Object(
                        TypedDict,
                        &[optional("file_data", Str), optional("file_id", Str), optional("filename", Str)],
                    ),
                ),
                required("type", Literal(&["file"])),
                CACHE_BREAKPOINT,
            ],
        ),
    ),
    labelled(
        "ChatCompletionContentPartAudioParam",
        Object(
            TypedDict,
            &[
                required("audio_url", Object(TypedDict, &[required("url", Str)])),
                required("type", Literal(&["audio_url"])),
            ],
        ),
    ),
    labelled(
        "ChatCompletionContentPartVideoParam",
        Object(
            TypedDict,
            &[
                required("video_url", Object(TypedDict, &[required("url", Str)])),
                required("type", Literal(&["video_url"])),
            ],
        ),
    ),
    labelled(
        "ChatCompletionContentPartRefusalParam",
        Object(TypedDict, &[required("refusal", Str), required("type", Literal(&["refusal"]))]),
    ),
    labelled(
        "CustomChatCompletionContentPILImageParam",
        Object(TypedDict, &[optional("image_pil", Nullable(&Object(Model, &[required("image_pil", Any)]))), UUID]),
    ),
    labelled(
        "CustomChatCompletionContentSimpleImageParam",
        Object(TypedDict, &[optional("image_url", NULLABLE_STR), UUID]),
    ),
    labelled(
        "ChatCompletionContentPartImageEmbedsParam",
        Object(TypedDict, &[optional("image_embeds", EMBEDS), required("type", Literal(&["image_embeds"])), UUID]),
    ),
    labelled(
        "ChatCompletionContentPartAudioEmbedsParam",
        Object(TypedDict, &[optional("audio_embeds", EMBEDS), required("type", Literal(&["audio_embeds"])), UUID]),
    ),
    labelled(
        "ChatCompletionContentPartVideoEmbedsParam",
        Object(TypedDict, &[optional("video_embeds", EMBEDS), required("type", Literal(&["video_embeds"])), UUID]),
    ),
    labelled(
        "ChatCompletionContentPartPromptEmbedsParam",
        Object(TypedDict, &[required("data", Str), required("type", Literal(&["prompt_embeds"]))]),
    ),
    labelled("CustomChatCompletionContentSimpleAudioParam", Object(TypedDict, &[optional("audio_url", NULLABLE_STR)])),
    labelled(
        "CustomChatCompletionContentSimpleVideoParam",
        Object(TypedDict, &[optional("video_url", NULLABLE_STR), UUID]),
    ),
    labelled(
        "CustomChatCompletionContentToolReferenceParam",
        Object(TypedDict, &[optional("name", Str), optional("type", Literal(&["tool_reference"]))]),
    ),
    branch(Str),
    labelled(
        "CustomThinkCompletionContentParam",
        Object(
            TypedDict,
            &[required("thinking", Str), optional("closed", Bool), required("type", Literal(&["thinking"]))],
        ),
    ),
]);

/// Moves `reasoning_content` to `reasoning` where that is missing, and refuses `tool_calls` of which vLLM could not
/// make a list.
pub(crate) fn normalize(body: &mut Node<'_>) -> Checked {
    let NodeKind::Object(fields) = &mut body.kind else { return Ok(()) };
    let Some(NodeKind::List(Items::Nodes(messages))) = fields.get_mut("messages").map(|messages| &mut messages.kind)
    else {
        return Ok(());
    };
    for message in messages {
        if let Some(calls) = non_null(message, "tool_calls") {
            iterable(calls)?;
        }
        take_for(message, "reasoning", "reasoning_content");
    }
    Ok(())
}

/// Refuses a body whose prompt would have to end in two ways, or in another way than its last message says.
pub(crate) fn generation_prompt(body: &Node<'_>) -> Checked {
    let goes_on = is_true(body, "continue_final_message");
    if goes_on && is_true(body, "add_generation_prompt") {
        return Err(two_ends());
    }
    if goes_on { Ok(()) } else { not_begun(body) }
}

/// Refuses a last message that is to be continued by the word of other servers: `DeepSeek` and Mistral have `prefix`,
/// Moonshot and Qwen have `partial`.
fn not_begun(body: &Node<'_>) -> Checked {
    let Some(NodeKind::List(Items::Nodes(messages))) = body.get("messages").map(|messages| &messages.kind) else {
        return Ok(());
    };
    let says = |field: &&str| messages.last().is_some_and(|last| is_true(last, field));
    match ["prefix", "partial"].into_iter().find(says) {
        None => Ok(()),
        Some(field) => {
            let message = format!(
                "`{field}` of a message is not served: to continue the last message, send `continue_final_message`: true \
                 and `add_generation_prompt`: false"
            );
            refuse("messages", message)
        }
    }
}

/// Makes the refusal of a prompt that would have to end in two ways.
pub(crate) fn two_ends() -> ApiError {
    ApiError::invalid_request("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
}
