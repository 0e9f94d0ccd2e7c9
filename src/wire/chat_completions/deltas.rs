//! Splits a delta into the messages that vLLM sends it in.

use super::types::{ChunkDelta, ChunkFunction, ChunkToolCall};
use crate::{generation::Delta, parser::ToolCall};

/// Takes the messages out of `delta`: reasoning and content together, then two for each call. `called` counts the calls.
pub(crate) fn messages(delta: &mut Delta, called: &mut usize) -> Vec<ChunkDelta> {
    let text = std::mem::take(&mut delta.text);
    let reasoning = delta.reasoning.take().filter(|reasoning| !reasoning.is_empty());
    let mut messages = Vec::new();
    if !text.is_empty() || reasoning.is_some() {
        let content = (!text.is_empty()).then_some(Some(text));
        messages.push(ChunkDelta { content, reasoning, ..ChunkDelta::default() });
    }
    for call in std::mem::take(&mut delta.tool_calls) {
        messages.extend(call_messages(*called, call));
        *called += 1;
    }
    messages
}

/// Makes the two messages of a call: its id, type and name first, then its arguments.
fn call_messages(index: usize, call: ToolCall) -> [ChunkDelta; 2] {
    let name = ChunkToolCall {
        id: Some(call.id),
        kind: Some("function"),
        index,
        function: ChunkFunction { name: Some(call.name), ..ChunkFunction::default() },
    };
    let arguments = ChunkToolCall {
        id: None,
        kind: None,
        index,
        function: ChunkFunction { arguments: Some(call.arguments), ..ChunkFunction::default() },
    };
    [name, arguments].map(|call| ChunkDelta { content: Some(None), tool_calls: vec![call], ..ChunkDelta::default() })
}
