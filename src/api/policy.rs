//! What the server, not the request, decides about conversations and their answers.

use super::error::ApiError;
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
    /// Most prompts of a request (`--max-request-prompts`).
    pub max_prompts: usize,
    /// Most sequences of a request, over all of its prompts (`--max-request-sequences`).
    pub max_sequences: usize,
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
            max_prompts: 1024,
            max_sequences: 16_384,
        }
    }
}

impl RequestPolicy {
    /// Refuses more prompts, and more sequences of them, than a request may have.
    pub(super) fn check_sequences(&self, prompts: usize, n: usize) -> Result<(), ApiError> {
        if prompts > self.max_prompts {
            let message = format!(
                "prompt list length {prompts} exceeds the maximum allowed count of {}. To increase this limit, start \
                 the server with a larger --max-request-prompts. (parameter=prompt)",
                self.max_prompts
            );
            return Err(ApiError::invalid("prompt", message));
        }
        let sequences = prompts.saturating_mul(n);
        if sequences > self.max_sequences {
            let message = format!(
                "an `n` of {n} for {prompts} prompts makes {sequences} sequences, more than the {} of one request: \
                 send several requests, or start the server with a larger --max-request-sequences",
                self.max_sequences
            );
            return Err(ApiError::invalid("n", message));
        }
        Ok(())
    }
}
