//! One message of a conversation.

use serde::Deserialize;
use utoipa::ToSchema;

use super::{Content, InvalidTool, ThoughtFields, TokenBundle, TokenIds, ToolCall, UnreadFields};
use crate::json::Value;

/// Who speaks. Templates decide which roles they know.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Role(String);

impl Role {
    /// A role of this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The name, as templates see it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the model wrote the message.
    pub fn is_assistant(&self) -> bool {
        self.0 == "assistant"
    }

    /// Whether the message is an instruction of whoever serves the model.
    pub fn instructs(&self) -> bool {
        matches!(self.as_str(), "system" | "developer")
    }
}

/// One message; what vLLM drops before templating is not kept (vLLM 0.32 `renderers/chat_utils.py`).
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(try_from = "WireMessage")]
pub struct Message {
    /// Who speaks.
    #[schema(value_type = String)]
    pub role: Role,
    /// What is said: a string, a list of parts, or null.
    #[schema(value_type = Option<Object>)]
    pub content: Content,
    /// The participant's name.
    pub name: Option<String>,
    /// The calls that an assistant made.
    #[schema(value_type = Option<Vec<Object>>)]
    pub tool_calls: Option<Vec<ToolCall>>,
    /// The call that a tool's message answers.
    pub tool_call_id: Option<String>,
    /// What an assistant thought before it spoke.
    pub reasoning: Option<String>,
    /// Tools that a developer message declares.
    #[schema(value_type = Option<Vec<Object>>)]
    pub tools: Option<Value>,
    /// The `task` of a message, for the templates that read it.
    pub task: Option<String>,
    /// What the message was put together from, if it came as items of the Responses API.
    #[serde(skip)]
    #[schema(ignore)]
    pub items: Option<Vec<AssistantItem>>,
    /// The ids that the message is known to consist of.
    #[serde(flatten)]
    pub tokens: TokenBundle,
}

/// One thing that an assistant said, in the order of the items that a message was put together from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AssistantItem {
    /// A thought.
    Thought(String),
    /// A text, in the parts that it was sent in.
    Text(Vec<String>),
    /// The call of this number.
    Call(usize),
}

/// The message as sent. Fields that vLLM reads from some roles only may be anything elsewhere.
#[derive(Deserialize)]
struct WireMessage {
    role: Role,
    #[serde(default)]
    content: Content,
    name: Option<Value>,
    tool_calls: Option<Value>,
    tool_call_id: Option<Value>,
    reasoning: Option<Value>,
    reasoning_content: Option<Value>,
    thinking: Option<Value>,
    thinking_blocks: Option<Value>,
    reasoning_details: Option<Value>,
    tools: Option<Value>,
    task: Option<Value>,
    function_call: Option<Value>,
    refusal: Option<Value>,
    audio: Option<Value>,
    prompt_token_ids: Option<TokenIds>,
    generation_token_ids: Option<TokenIds>,
}

impl TryFrom<WireMessage> for Message {
    type Error = InvalidTool;

    fn try_from(wire: WireMessage) -> Result<Self, InvalidTool> {
        let is_assistant = wire.role.is_assistant();
        let tool_calls = wire.tool_calls.filter(|_| is_assistant).map_or(Ok(None), tool_calls)?;
        let reasoning = if is_assistant {
            let makes_calls = tool_calls.as_ref().is_some_and(|calls| !calls.is_empty());
            let unread = UnreadFields { function_call: wire.function_call, refusal: wire.refusal, audio: wire.audio };
            unread.refuse_lost(&wire.content, makes_calls)?;
            let thoughts = ThoughtFields {
                reasoning: wire.reasoning,
                reasoning_content: wire.reasoning_content,
                thinking: wire.thinking,
                thinking_blocks: wire.thinking_blocks,
                reasoning_details: wire.reasoning_details,
            };
            thoughts.read()?
        } else {
            None
        };
        Ok(Self {
            role: wire.role,
            content: wire.content,
            name: string(wire.name),
            tool_calls,
            tool_call_id: string(wire.tool_call_id),
            reasoning,
            tools: wire.tools,
            task: string(wire.task),
            items: None,
            tokens: TokenBundle {
                prompt_token_ids: wire.prompt_token_ids,
                generation_token_ids: wire.generation_token_ids,
            },
        })
    }
}

/// vLLM keeps what is a string, and says nothing otherwise.
fn string(value: Option<Value>) -> Option<String> {
    match value {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

fn tool_calls(value: Value) -> Result<Option<Vec<ToolCall>>, InvalidTool> {
    match value {
        Value::Array(calls) => calls.into_iter().map(ToolCall::try_from).collect::<Result<_, _>>().map(Some),
        // Python makes an empty list of either.
        Value::Object(calls) if calls.is_empty() => Ok(None),
        Value::String(calls) if calls.is_empty() => Ok(None),
        Value::Null => Ok(None),
        _ => Err(InvalidTool::new("`tool_calls` must be a list")),
    }
}

impl Message {
    /// Whether it makes calls: an empty list makes none.
    pub(crate) fn makes_calls(&self) -> bool {
        self.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty())
    }

    /// A message that says `text` and nothing else.
    pub fn text(role: &str, text: impl Into<String>) -> Self {
        Self {
            role: Role::new(role),
            content: Content::Text(text.into()),
            name: None,
            tool_calls: None,
            tool_call_id: None,
            reasoning: None,
            tools: None,
            task: None,
            items: None,
            tokens: TokenBundle::default(),
        }
    }

    /// The text of a message that has nothing else.
    pub fn plain_text(&self) -> Option<&str> {
        let Self { role: _, content, name, tool_calls, tool_call_id, reasoning, tools, task, items, tokens } = self;
        let has_more = [name, tool_call_id, reasoning, task].into_iter().any(Option::is_some)
            || tool_calls.is_some()
            || tools.is_some()
            || items.is_some()
            || tokens.is_some();
        match content {
            Content::Text(text) if !has_more => Some(text),
            Content::Empty | Content::Text(_) | Content::Parts(_) => None,
        }
    }
}
