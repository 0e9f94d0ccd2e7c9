//! The wire shape of requests to `POST /v1/messages` and `POST /v1/messages/count_tokens`.

use serde::Deserialize;
use utoipa::ToSchema;

use super::rules;
use crate::{
    chat::{TokenBundle, TokenIds},
    json::Value,
    trajectory::Said,
    wire::{
        body::{Body, Rules},
        fields::sampling::SamplingFields,
        said::SaidFields,
    },
};

/// A conversation to be continued, as Anthropic has it. Unknown fields are ignored.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct MessagesRequest {
    /// One of the served names.
    pub model: String,
    /// The conversation, oldest message first.
    pub messages: Vec<InputMessage>,
    /// Tokens to generate; clamped to the room that the prompt leaves.
    #[schema(required)]
    pub max_tokens: Option<i64>,
    /// The system prompt: a string or a list of text blocks.
    #[schema(value_type = Option<Object>)]
    pub system: Option<Value>,
    /// Texts that end the generation, at most four.
    pub stop_sequences: Option<Vec<String>>,
    /// Answer with server-sent events.
    pub stream: Option<bool>,
    /// Tools that the template may show.
    pub tools: Option<Vec<InputTool>>,
    /// Whether the model calls tools.
    pub tool_choice: Option<InputToolChoice>,
    /// Whether the model thinks.
    pub thinking: Option<Thinking>,
    /// The form of the answer, and how much to think.
    pub output_config: Option<OutputConfig>,
    /// The older place of `output_config.format`.
    pub output_format: Option<JsonOutputFormat>,
    /// `user_id` in it names the conversation, where nothing else does.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Value>,
    /// Refused where it would change the conversation.
    #[schema(value_type = Option<Object>)]
    pub context_management: Option<Value>,
    /// Refused unless empty: the server calls no tools.
    #[schema(value_type = Option<Vec<Object>>)]
    pub mcp_servers: Option<Value>,
    /// Refused: the server runs no code.
    #[schema(value_type = Option<Object>)]
    pub container: Option<Value>,
    /// Further variables of the template.
    #[schema(value_type = Option<Object>)]
    pub chat_template_kwargs: Option<Value>,
    /// `prompt_token_ids` in it is the whole prompt; everything else is ignored.
    #[schema(value_type = Option<Object>)]
    pub kv_transfer_params: Option<Value>,
    /// End the prompt with the start of an assistant message (default true).
    pub add_generation_prompt: Option<bool>,
    /// End the prompt inside the last message.
    pub continue_final_message: Option<bool>,
    /// Ids that the prompt must start with, whatever the messages carry: prompt and generation of the latest turn.
    #[schema(value_type = Option<Vec<u32>>)]
    pub required_prefix_token_ids: Option<TokenIds>,
    /// The whole prompt: messages are not rendered.
    #[schema(value_type = Option<Vec<u32>>)]
    pub prompt_token_ids: Option<TokenIds>,
    /// The client's name for the conversation; the header `X-Session-ID` wins.
    pub session_id: Option<String>,
    /// Arguments for a server's own extensions, of which `session_id` is read.
    #[schema(value_type = Option<Object>)]
    pub vllm_xargs: Option<Value>,
    /// Report what became of the ids of earlier turns, drift included.
    pub return_token_continuity: Option<bool>,
    /// Becomes part of the answer's id; the header `X-Request-Id` wins.
    pub request_id: Option<String>,
    /// What the client says, where that is captured.
    #[serde(skip)]
    #[schema(ignore)]
    pub said: Option<Said>,
    /// How to sample.
    #[serde(flatten)]
    pub sampling: SamplingFields,
}

impl Body for MessagesRequest {
    const RULES: &'static Rules = &rules::MESSAGES_RULES;
    const SAID: Option<&'static SaidFields> =
        Some(&SaidFields { dialect: "messages", items: "messages", system: Some("system") });

    fn take_said(&mut self, said: Said) {
        self.said = Some(said);
    }
}

/// A conversation whose prompt is to be counted: the same fields, all of them checked; `max_tokens` may be left out.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(transparent)]
pub(crate) struct CountTokensRequest(pub MessagesRequest);

impl InputTool {
    /// Returns what a tool is called that a server would run: by the name that `tool_choice` has for it, or its type.
    pub(crate) fn served_elsewhere(&self) -> Option<&str> {
        if self.input_schema.is_some() {
            return None;
        }
        let kind = self.kind.as_ref().and_then(Value::as_str).filter(|kind| *kind != "custom")?;
        Some(if self.name.is_empty() { kind } else { &self.name })
    }

    /// Whether it is a search for tools that a server would run.
    pub(crate) fn is_search(&self) -> bool {
        self.kind.as_ref().and_then(Value::as_str).is_some_and(|kind| kind.starts_with("tool_search_tool"))
    }
}

impl Body for CountTokensRequest {
    const RULES: &'static Rules = &rules::COUNT_TOKENS_RULES;
}

/// One message. Sent back as it was answered, an assistant's continues the conversation from exactly its ids.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct InputMessage {
    /// `user`, `assistant` or `system`.
    pub role: String,
    /// A string or a list of blocks: `text`, `thinking`, `redacted_thinking`, `tool_use`, `tool_result`. The content of a
    /// result is a string or a list of `text` and `tool_reference`.
    #[schema(value_type = Object)]
    pub content: Value,
    #[schema(value_type = Option<Vec<u32>>)]
    prompt_token_ids: Option<TokenIds>,
    #[schema(value_type = Option<Vec<u32>>)]
    generation_token_ids: Option<TokenIds>,
    #[schema(ignore)]
    tool_calls: Option<Value>,
    #[schema(ignore)]
    reasoning: Option<Value>,
    #[schema(ignore)]
    reasoning_content: Option<Value>,
}

impl InputMessage {
    /// Returns the field of a chat in which an assistant's message says something, and the type of the block to send
    /// instead.
    pub(crate) fn field_of_a_chat(&self) -> Option<(&'static str, &'static str)> {
        let says = |value: &Option<Value>| match value {
            None | Some(Value::Null) => false,
            Some(Value::String(text)) => !text.is_empty(),
            Some(Value::Array(items)) => !items.is_empty(),
            Some(_) => true,
        };
        [
            ("tool_calls", &self.tool_calls, "tool_use"),
            ("reasoning", &self.reasoning, "thinking"),
            ("reasoning_content", &self.reasoning_content, "thinking"),
        ]
        .into_iter()
        .find_map(|(field, value, block)| says(value).then_some((field, block)))
    }

    /// Takes the ids that the message carries.
    pub(crate) fn take_tokens(&mut self) -> TokenBundle {
        TokenBundle {
            prompt_token_ids: self.prompt_token_ids.take(),
            generation_token_ids: self.generation_token_ids.take(),
        }
    }
}

/// A tool that the client runs, or the name of one that a server would run.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct InputTool {
    /// Its type; one without an `input_schema` that is not `custom`, such as `web_search_20250305`, is not shown to the
    /// model, and named in the answer.
    #[serde(rename = "type")]
    #[schema(value_type = Option<String>)]
    pub kind: Option<Value>,
    /// Its name.
    #[serde(default)]
    #[schema(required)]
    pub name: String,
    /// What it does.
    pub description: Option<String>,
    /// The JSON schema of its input.
    #[schema(value_type = Option<Object>)]
    pub input_schema: Option<Value>,
    /// Whether inputs must follow the schema.
    pub strict: Option<bool>,
    /// Keep the tool out of the head of the prompt. A `tool_reference` in the result of a tool shows it there.
    pub defer_loading: Option<bool>,
}

/// Whether the model calls.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct InputToolChoice {
    /// `auto`, `any`, `tool` or `none`.
    #[serde(rename = "type")]
    pub kind: String,
    /// With `tool`: which one.
    pub name: Option<String>,
    /// True keeps the first call of an answer only.
    pub disable_parallel_tool_use: Option<bool>,
}

/// Whether the model thinks.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct Thinking {
    /// `enabled`, `adaptive` or `disabled`.
    #[serde(rename = "type")]
    pub kind: String,
    /// With `enabled`: at least 1024 and less than `max_tokens`. After this many tokens of thoughts their end is forced.
    /// Needs `--reasoning-parser`.
    #[schema(value_type = Option<i64>)]
    pub budget_tokens: Option<Value>,
}

/// What is wanted of the output.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct OutputConfig {
    /// How much to think, for templates that read it.
    pub effort: Option<String>,
    /// What the answer must look like.
    pub format: Option<JsonOutputFormat>,
}

/// JSON that a schema describes.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct JsonOutputFormat {
    /// The schema.
    #[schema(required, value_type = Object)]
    pub schema: Option<serde_json::Value>,
}
