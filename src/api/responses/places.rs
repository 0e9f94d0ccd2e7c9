//! Errors in the terms of a chat, put into those of a response.

use crate::{
    chat::Message,
    json::{Path, Segment},
    wire::error::ApiError,
};

/// The fields of the request from which the messages of its conversation were made.
#[derive(Debug, Clone)]
pub(super) struct Places {
    /// For each message, the index of the request's item with which it ends; `None` for a stored item and for
    /// instructions.
    items: Vec<Option<usize>>,
    /// Whether the first message is the instructions.
    instructed: bool,
    /// The field with the latest ids of an answer or, if no answer has ids, with the latest answer.
    answered: &'static str,
}

impl Places {
    pub(super) fn new(items: Vec<Option<usize>>, messages: &[Message], instructed: bool) -> Self {
        let carrying = messages.iter().rposition(|message| message.tokens.both().is_some());
        let answer = carrying.or_else(|| messages.iter().rposition(|message| message.role.is_assistant()));
        let is_stored = answer.is_some_and(|answer| items.get(answer) == Some(&None));
        Self { items, instructed, answered: if is_stored { "previous_response_id" } else { "input" } }
    }

    /// Rewrites an error, so that it names the fields of the request.
    pub(super) fn named(&self, error: ApiError) -> ApiError {
        named_as_here(error).elsewhere(|path| match path.segments() {
            [Segment::Name("messages")] => self.answered.into(),
            [Segment::Name("messages"), Segment::Index(0)] if self.instructed => "instructions".into(),
            [Segment::Name("messages"), Segment::Index(message), rest @ ..] => {
                let item = match self.items.get(*message) {
                    Some(Some(item)) => Path::from("input").then(*item),
                    Some(None) => "previous_response_id".into(),
                    None => return path,
                };
                rest.iter().cloned().fold(item, Path::then)
            }
            _ => path,
        })
    }
}

/// Rewrites an error about a field that a response calls otherwise than a chat.
pub(super) fn named_as_here(error: ApiError) -> ApiError {
    error.elsewhere(|path| match path.segments() {
        [Segment::Name("max_tokens" | "max_completion_tokens")] => "max_output_tokens".into(),
        [Segment::Name("truncate_prompt_tokens")] => "truncation".into(),
        [Segment::Name("logprobs")] => "top_logprobs".into(),
        _ => path,
    })
}
