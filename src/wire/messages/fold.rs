//! Adds the events of a stream up to the message, which is the JSON answer.

use super::{
    answer::{AnswerMessage, Block, BlockDelta, MessageEvent},
    tool_input::input_of,
};
use crate::json::Value;

/// The message that events add up to; it is not there before its end.
#[derive(Default)]
pub(crate) struct MessageFold {
    message: Option<AnswerMessage>,
    ended: bool,
}

impl MessageFold {
    /// Adds the next event.
    pub(crate) fn push(&mut self, event: MessageEvent) {
        if let MessageEvent::MessageStart { message } = event {
            self.message = Some(AnswerMessage { stop_reason: None, stop_sequence: None, ..*message });
            return;
        }
        let Some(message) = &mut self.message else { return };
        match event {
            MessageEvent::ContentBlockStart { content_block, .. } => message.content.push(content_block),
            MessageEvent::ContentBlockDelta { index, delta } => {
                if let Some(block) = message.content.get_mut(index) {
                    block.push(delta);
                }
            }
            MessageEvent::MessageDelta { delta, usage } => {
                message.stop_reason = delta.stop_reason.map(Some);
                message.stop_sequence = delta.stop_sequence.map(Some);
                message.sampled = delta.sampled;
                message.weight_versions = delta.weight_versions;
                message.dropped_tool_calls = delta.dropped_tool_calls;
                message.usage = usage;
            }
            MessageEvent::MessageStop => self.ended = true,
            MessageEvent::MessageStart { .. } | MessageEvent::ContentBlockStop { .. } => {}
        }
    }

    /// Returns the message, if it has ended.
    pub(crate) fn into_ended(self) -> Option<AnswerMessage> {
        self.message.filter(|_| self.ended)
    }
}

impl Block {
    fn push(&mut self, delta: BlockDelta) {
        match (self, delta) {
            (Self::Text { text }, BlockDelta::TextDelta { text: more }) => text.push_str(&more),
            (Self::Thinking { thinking, .. }, BlockDelta::ThinkingDelta { thinking: more }) => thinking.push_str(&more),
            (Self::Thinking { signature, .. }, BlockDelta::SignatureDelta { signature: whole }) => {
                *signature = Some(whole);
            }
            // The input of a call comes in one piece.
            (Self::ToolUse { input, .. }, BlockDelta::InputJsonDelta { partial_json }) => {
                *input = Value::parse(&partial_json).unwrap_or_else(|_| input_of(&partial_json));
            }
            _ => {}
        }
    }
}
