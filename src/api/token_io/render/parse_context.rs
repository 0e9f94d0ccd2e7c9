//! What a rendered chat has its answer read with.

use crate::{
    api::chat_completions::shown::ShownInChat,
    json::{Object, Value},
    state::Api,
    wire::token_io::{generate::ParseContext, render::RenderFields},
};

/// What is known of a chat besides its fields.
#[derive(Default)]
pub(super) struct ChatBefore {
    /// The calls that the conversation makes.
    calls: usize,
    /// What the message repeats before the answer.
    echo: Option<String>,
    /// The role of the message, if it is not that of answers.
    role: Option<String>,
    /// Whether a part of the conversation was cut off.
    is_cut: bool,
}

impl ChatBefore {
    /// That of a conversation with so many calls.
    pub(super) fn with_calls(calls: usize) -> Self {
        Self { calls, ..Self::default() }
    }

    /// Adds what the message shows besides the answer.
    pub(super) fn shown(self, shown: ShownInChat, api: &Api) -> Self {
        let answering = &api.turns.policies.requests.response_role;
        Self { echo: shown.echo, role: Some(shown.role).filter(|role| role != answering), ..self }
    }

    /// Says whether a part of the conversation was cut off.
    pub(super) fn cut(self, is_cut: bool) -> Self {
        Self { is_cut, ..self }
    }
}

impl RenderFields {
    /// Returns what a server has to know of the chat to read its answer.
    pub(super) fn parse_context(&self, chat_template_kwargs: Object, before: ChatBefore) -> ParseContext {
        let default = if self.tools.is_some() { "auto" } else { "none" };
        let choice = self.tool_choice.as_ref().and_then(|choice| choice.as_str());
        ParseContext {
            tools: self.tools.clone(),
            // A choice that forces a call has been refused before, so it is a word.
            tool_choice: Value::from(choice.unwrap_or(default)),
            parallel_tool_calls: self.parallel_tool_calls.or(Some(true)),
            include_reasoning: self.include_reasoning.unwrap_or(true),
            chat_template_kwargs,
            history_tool_call_cnt: before.calls,
            echo: before.echo,
            role: before.role,
            prompt_is_cut: before.is_cut,
        }
    }
}
