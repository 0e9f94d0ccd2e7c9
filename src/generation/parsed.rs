//! Text to reasoning, content and tool calls; tokens travel along untouched.
//!
//! Where the prompt left the model is told by the prompt's ids, and so is how many tokens it thought.

use std::sync::Arc;

use futures::TryStreamExt;

use super::{Delta, Event, EventStream, TextOptions};
use crate::{
    TokenId,
    parser::{OutputFormat, OutputParser, Piece, ReasoningFormat, ReasoningMarks},
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

/// The tokens that end the reasoning that a prompt leaves open; a vocabulary may lack them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenReasoning {
    /// What follows it is the answer.
    pub end: Option<TokenId>,
    /// A mark that ends reasoning too, and that belongs to the answer.
    pub call: Option<TokenId>,
}

/// The reasoning that `prompt` leaves open; `None` where the answer begins at once, or in channels.
pub fn open_reasoning(format: &OutputFormat, tokenizer: &Tokenizer, prompt: &[TokenId]) -> Option<OpenReasoning> {
    let marks = MarkIds::new(format.reasoning?.marks()?, tokenizer);
    (!marks.closed(tokenizer, prompt)).then_some(OpenReasoning { end: marks.end, call: marks.call })
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

/// The ids of the marks of reasoning, of which a vocabulary may lack some.
struct MarkIds {
    start: Option<TokenId>,
    end: Option<TokenId>,
    call: Option<TokenId>,
    reopens: bool,
}

impl MarkIds {
    fn new(marks: ReasoningMarks, tokenizer: &Tokenizer) -> Self {
        let id = |mark: &str| tokenizer.id_of(mark);
        Self { start: id(marks.start), end: id(marks.end), call: marks.call.and_then(id), reopens: marks.reopens }
    }

    fn ends(&self, id: TokenId) -> bool {
        Some(id) == self.end || Some(id) == self.call
    }

    /// Whether the prompt has ended the reasoning of the turn that is to be generated.
    ///
    /// Looks back to the last special token, after which that turn begins: what earlier turns thought says nothing.
    fn closed(&self, tokenizer: &Tokenizer, prompt: &[TokenId]) -> bool {
        let mut last = prompt.iter().rev().copied();
        let told = last.find(|&id| self.ends(id) || Some(id) == self.start || tokenizer.is_special(id));
        told.is_some_and(|id| self.ends(id))
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
