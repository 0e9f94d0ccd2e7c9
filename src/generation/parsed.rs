//! Text to reasoning, content and tool calls; tokens travel along untouched.

use std::sync::Arc;

use futures::TryStreamExt;

use super::{Delta, Event, EventStream, TextOptions, marks::MarkIds};
use crate::{
    TokenId,
    parser::{OutputFormat, OutputParser, Piece, ReasoningFormat},
    tokenizer::Tokenizer,
};

/// Reads `events`' text as `options` say, after the ids of the prompt.
pub(super) fn read(
    events: EventStream,
    options: &TextOptions,
    tokenizer: &Arc<Tokenizer>,
    prompt: &[TokenId],
) -> EventStream {
    if options.format.is_plain() {
        return events;
    }
    let mut reader = Reader::new(&options.format, tokenizer, prompt);
    Box::pin(events.map_ok(move |event| match event {
        Event::Delta(delta) => Event::Delta(reader.read(delta)),
        prompt @ Event::Prompt(_) => prompt,
    }))
}

struct Reader {
    parser: OutputParser,
    counter: Option<Counter>,
}

impl Reader {
    fn new(format: &OutputFormat, tokenizer: &Arc<Tokenizer>, prompt: &[TokenId]) -> Self {
        let marks = format.reasoning.and_then(ReasoningFormat::marks);
        let marks = marks.map(|marks| MarkIds::new(marks, tokenizer));
        let closed = marks.as_ref().is_some_and(|marks| marks.closed(tokenizer, prompt));
        let counter = format.reasoning.is_some().then(|| match marks {
            Some(marks) if marks.end.is_some() => {
                Counter::ByIds { marks, tokenizer: Arc::clone(tokenizer), open: !closed }
            }
            _ => Counter::ByText { tokenizer: Arc::clone(tokenizer) },
        });
        Self { parser: OutputParser::new(format, closed), counter }
    }

    fn read(&mut self, mut delta: Delta) -> Delta {
        let text = std::mem::take(&mut delta.text);
        let mut pieces = if text.is_empty() { Vec::new() } else { self.parser.push(&text) };
        if delta.finish.is_some() {
            pieces.extend(self.parser.finish());
        }
        for piece in pieces {
            match piece {
                Piece::Reasoning(text) => delta.reasoning.get_or_insert_default().push_str(&text),
                Piece::Content(text) => delta.text.push_str(&text),
                Piece::Call(call) => delta.tool_calls.push(call),
            }
        }
        if let Some(counter) = &mut self.counter {
            let ids = delta.tokens.iter().map(|token| token.id);
            delta.reasoning_tokens = counter.count(ids, self.parser.is_reasoning());
        }
        delta
    }
}

/// Counts the tokens of reasoning.
enum Counter {
    /// The tokens between the marks are reasoning, but for special tokens.
    ByIds { marks: MarkIds, tokenizer: Arc<Tokenizer>, open: bool },
    /// The tokens after which the text is in reasoning are: no tokens of the vocabulary mark it.
    ByText { tokenizer: Arc<Tokenizer> },
}

impl Counter {
    fn count(&mut self, ids: impl Iterator<Item = TokenId>, text_is_open: bool) -> usize {
        let (marks, tokenizer, open) = match self {
            Self::ByIds { marks, tokenizer, open } => (marks, tokenizer, open),
            Self::ByText { tokenizer } => return ids.filter(|&id| text_is_open && !tokenizer.is_special(id)).count(),
        };
        ids.filter(|&id| {
            let starts = Some(id) == marks.start;
            if *open && marks.ends(id) {
                *open = false;
            } else if starts && marks.reopens {
                *open = true;
            }
            *open && !starts && !tokenizer.is_special(id)
        })
        .count()
    }
}
