//! What an answer shows besides what was sampled: who speaks, what is repeated, how many alternatives.

use super::types::ChatCompletionRequest;
use crate::{
    api::{Api, fields::tools::ToolChoice, http::error::ApiError},
    prompt::said,
};

/// What an answer shows.
#[derive(Debug, Clone)]
pub(in crate::api) struct Shown {
    /// Alternatives of each token; `None` is all that there are.
    pub(super) top_logprobs: Option<usize>,
    /// Who speaks.
    pub(super) role: String,
    /// With `echo`, what is put in front of the answer; empty where another role said it.
    pub(in crate::api) echo: Option<String>,
    /// Whether the model could choose to call.
    pub(in crate::api) tool_choice: ToolChoice,
    /// Whether reasoning is in the answer.
    pub(in crate::api) reasoning: bool,
}

impl Shown {
    /// What is shown where no request says what.
    pub(in crate::api) fn plain(api: &Api) -> Self {
        let role = api.turns.policies.requests.response_role.clone();
        Self { top_logprobs: None, role, echo: None, tool_choice: ToolChoice::None, reasoning: true }
    }

    pub(in crate::api) fn new(
        request: &ChatCompletionRequest,
        top_logprobs: Option<usize>,
        tool_choice: ToolChoice,
        api: &Api,
    ) -> Result<Self, ApiError> {
        let last = request.messages.last();
        let role = match last {
            Some(message) if request.add_generation_prompt == Some(false) => message.role.as_str(),
            _ => &api.turns.policies.requests.response_role,
        };
        let echo = match last.filter(|message| message.role.as_str() == role) {
            _ if request.echo != Some(true) => None,
            Some(message) => Some(said(message)?),
            None => Some(String::new()),
        };
        let reasoning = request.include_reasoning.unwrap_or(true);
        Ok(Self { top_logprobs, role: role.to_owned(), echo, tool_choice, reasoning })
    }
}
