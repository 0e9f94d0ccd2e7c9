//! What a rendered chat has its answer read with.

use crate::{
    json::{Object, Value},
    wire::token_io::{generate::ParseContext, render::RenderFields},
};

impl RenderFields {
    /// Returns what a server has to know of the chat to read its answer.
    pub(super) fn parse_context(&self, chat_template_kwargs: Object, history_tool_call_cnt: usize) -> ParseContext {
        let default = if self.tools.is_some() { "auto" } else { "none" };
        let choice = self.tool_choice.as_ref().and_then(|choice| choice.as_str());
        ParseContext {
            tools: self.tools.clone(),
            // A choice that forces a call has been refused before, so it is a word.
            tool_choice: Value::from(choice.unwrap_or(default)),
            parallel_tool_calls: self.parallel_tool_calls.or(Some(true)),
            include_reasoning: self.include_reasoning.unwrap_or(true),
            chat_template_kwargs,
            history_tool_call_cnt,
        }
    }
}
