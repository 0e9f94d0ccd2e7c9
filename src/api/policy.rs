//! What the server, not the request, decides about conversations and their answers.

use crate::json::Object;

/// The flags that requests are read by, sampling and tool calls aside.
#[derive(Debug, Clone)]
pub struct RequestPolicy {
    /// Who speaks in an answer that the prompt began (`--response-role`).
    pub response_role: String,
    /// Whether requests may bring a chat template of their own (`--trust-request-chat-template`).
    pub trust_request_chat_template: bool,
    /// Variables of the template, where a request does not set them (`--default-chat-template-kwargs`).
    pub default_chat_template_kwargs: Object,
    /// The fewest tokens of a chunk in the middle of a stream (`--stream-interval`).
    pub stream_interval: usize,
    /// End every stream with its usage (`--enable-force-include-usage`).
    pub force_include_usage: bool,
    /// Do not show tools that may not be called (`--exclude-tools-when-tool-choice-none`).
    pub exclude_tools_when_tool_choice_none: bool,
}

impl Default for RequestPolicy {
    /// vLLM's, without flags.
    fn default() -> Self {
        Self {
            response_role: "assistant".to_owned(),
            trust_request_chat_template: false,
            default_chat_template_kwargs: Object::new(),
            stream_interval: 1,
            force_include_usage: false,
            exclude_tools_when_tool_choice_none: false,
        }
    }
}
