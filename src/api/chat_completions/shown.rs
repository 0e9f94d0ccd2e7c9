//! The parts of an answer besides the sampled tokens: its role, the repeated message, the number of alternatives.

use std::time::Instant;

use crate::{
    generation::Completion,
    prompt::message_text,
    request_fields::tools::ToolChoice,
    sglang::plan::shows_experts,
    state::Api,
    wire::{
        chat_completions::types::{ChatCompletionRequest, SglangExtension},
        error::ApiError,
    },
};

/// The choices of a request about what its answer shows.
#[derive(Debug, Clone)]
pub(in crate::api) struct ShownInChat {
    /// The number of alternatives shown for each token; `None` shows all that there are.
    pub(super) top_logprobs: Option<usize>,
    /// The role of the answer.
    pub(in crate::api) role: String,
    /// With `echo`, the text that is put before the answer; empty if the last message has another role.
    pub(in crate::api) echo: Option<String>,
    /// The choice that the model had about calling tools.
    pub(in crate::api) tool_choice: ToolChoice,
    /// Whether the answer shows reasoning.
    pub(in crate::api) reasoning: bool,
    /// Whether each choice shows the prompt's ids.
    pub(super) prompt_token_ids: bool,
    /// When the request came, where each choice shows what SGLang says of it.
    pub(super) meta_info: Option<Instant>,
    /// What the client calls the request in SGLang's words, which is its name in what SGLang says of it.
    pub(super) rid: Option<String>,
    /// Whether the answer shows experts where SGLang does.
    pub(super) routed_experts: bool,
}

impl ShownInChat {
    /// Returns the defaults, for ids that come without their request.
    pub(in crate::api) fn plain(api: &Api) -> Self {
        let role = api.turns.policies.requests.response_role.clone();
        Self {
            top_logprobs: None,
            role,
            echo: None,
            tool_choice: ToolChoice::None,
            reasoning: true,
            prompt_token_ids: false,
            meta_info: None,
            rid: None,
            routed_experts: false,
        }
    }

    /// Returns what is shown of an answer whose request is known by its `parse_context` only.
    pub(in crate::api) fn of_context(
        tool_choice: ToolChoice,
        reasoning: bool,
        top_logprobs: Option<usize>,
        api: &Api,
    ) -> Self {
        Self { top_logprobs, tool_choice, reasoning, ..Self::plain(api) }
    }

    /// Adds what the message repeats before the answer, and its role where that is not the one of answers.
    pub(in crate::api) fn repeating(self, echo: Option<String>, role: Option<String>) -> Self {
        Self { echo, role: role.unwrap_or(self.role), ..self }
    }

    /// Returns what a request asks for.
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
            Some(message) => Some(message_text(message)?),
            None => Some(String::new()),
        };
        let reasoning = request.include_reasoning.unwrap_or(true);
        Ok(Self {
            top_logprobs,
            role: role.to_owned(),
            echo,
            tool_choice,
            reasoning,
            prompt_token_ids: request.return_prompt_token_ids.unwrap_or(false),
            meta_info: request.return_meta_info.unwrap_or(false).then(Instant::now),
            rid: request.sglang.rid.clone(),
            routed_experts: shows_experts(request.sglang.return_routed_experts, api)?,
        })
    }

    /// What SGLang has beside the choices of an answer.
    pub(super) fn sglext(&self, api: &Api, completions: &[Completion]) -> Option<SglangExtension> {
        let completion = completions.first().filter(|_| self.routed_experts)?;
        Some(SglangExtension { routed_experts: api.routed_experts_of_meta_info(completion.routes.as_ref())? })
    }
}
