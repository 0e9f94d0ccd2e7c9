//! Text to content and tool calls; tokens travel along untouched.

use futures::TryStreamExt;

use super::{Delta, Event, EventStream};
use crate::parser::{ToolCallStream, ToolParser};

/// Which calls are read out of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolCallOptions {
    /// The format that the model writes.
    pub parser: ToolParser,
    /// Keep the first call only. All of them must be readable nevertheless.
    pub first_only: bool,
}

/// Reads calls out of the text of `events`. They come with the last delta, as does text that was none after all.
pub(super) fn read(events: EventStream, options: ToolCallOptions) -> EventStream {
    let mut text = ToolCallStream::new(options.parser);
    let read = events.map_ok(move |event| match event {
        Event::Delta(delta) => Event::Delta(read_delta(&mut text, delta, options)),
        prompt @ Event::Prompt(_) => prompt,
    });
    Box::pin(read)
}

fn read_delta(text: &mut ToolCallStream, mut delta: Delta, options: ToolCallOptions) -> Delta {
    delta.text = text.push(&delta.text);
    if delta.finish.is_some() {
        let (rest, mut calls) = text.finish();
        delta.text.push_str(&rest);
        if options.first_only {
            calls.truncate(1);
        }
        delta.tool_calls = calls;
    }
    delta
}
