//! What sampled ids say, read as this server reads its own answers, and whether a message says the same.

use super::{
    AnswerFormats, PromptError,
    comparison::{Comparison, LONGEST_STOP_STRING, decode},
    splice::spoken,
};
use crate::{
    TokenId,
    chat::{self, Message, canonical_arguments},
    json::Value,
    parser::{
        ForcedCall, OutputFormat, OutputParser, Piece, PromptReasoning, ReasoningParser, SpecialTokens, ToolCall,
        ToolFormat,
    },
};

/// What an answer says.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) reasoning: String,
    pub(super) content: String,
    pub(super) calls: Vec<ToolCall>,
}

/// The marks of thoughts where nobody reads any.
const THOUGHTS: [&str; 2] = ["<think>", "</think>"];

/// Where the prompt of an answer left the reasoning, which only its ids would tell.
const LEFT: [PromptReasoning; 3] = [PromptReasoning::Unmarked, PromptReasoning::Begun(0), PromptReasoning::Ended];

impl Comparison<'_> {
    /// Whether an answer fits, read in one of the ways in which this server may have read it: with calls or without, as they
    /// were forced or free, behind open thoughts or none, cut off or ended.
    pub(super) fn reads(
        &self,
        sampled: &[TokenId],
        message: &Message,
        mut fits: impl FnMut(&Reading) -> bool,
    ) -> Result<bool, PromptError> {
        let formats = self.formats;
        let reasoning = formats.reasoning.map(|parser| parser.format(&self.prompt.template_kwargs));
        let sampled = self.without_stop(sampled);
        let lefts = if reasoning.is_some() { &LEFT[..] } else { &LEFT[..1] };
        for tools in self.tool_formats(message) {
            let format = OutputFormat::new(reasoning, tools, formats.tools);
            let text = self.text_of(sampled, &format.special_tokens())?;
            let mut ways = lefts.iter().flat_map(|&left| [(left, false), (left, true)]);
            if ways.any(|(left, cut_off)| fits(&read(&text, &format, left, cut_off))) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The ways in which calls may have been read; `None` is not at all.
    fn tool_formats(&self, message: &Message) -> impl Iterator<Item = Option<ToolFormat>> {
        let format = self.call_format();
        let calls = message.tool_calls.iter().flatten();
        let forced = calls.take(1).flat_map(|call| [ForcedCall::Required, ForcedCall::Named(call.name.clone())]);
        let forced = forced.map(Some).collect::<Vec<_>>();
        let read = [None]
            .into_iter()
            .chain(forced)
            .filter_map(move |forced| Some(Some(ToolFormat { forced, ..format.clone()? })));
        read.chain([None])
    }

    /// How calls are read that the model makes by itself; `None` where nobody reads any.
    pub(super) fn call_format(&self) -> Option<ToolFormat> {
        let parser = self.formats.tools?;
        let tools = self.prompt.tools.as_deref().unwrap_or_default().into();
        Some(ToolFormat { parser, tools, forced: None, first_only: false, held: false })
    }

    /// A text without thoughts, and without the marks of empty ones. Those without an end reach to the end of the turn.
    pub(super) fn without_thoughts(&self, text: &str) -> String {
        let [start, end] = self.thought_marks();
        let seams = self.written.iter().flat_map(|written| written.seams.find(text));
        let mut turns = seams.filter(|seam| self.stops.contains(&seam.id)).map(|seam| seam.start).peekable();
        let mut ends = text.match_indices(end).map(|(place, _)| place).peekable();
        let (mut out, mut at) = (String::new(), 0);
        while let Some(before) = text[at..].find(start) {
            out.push_str(&text[at..at + before]);
            let thoughts = at + before + start.len();
            // Each place is passed once, however many thoughts there are.
            while ends.next_if(|place| *place < thoughts).is_some() {}
            while turns.next_if(|place| *place < thoughts).is_some() {}
            let turn = turns.peek().copied().unwrap_or(text.len());
            at = ends.peek().filter(|place| **place + end.len() <= turn).map_or(turn, |place| place + end.len());
        }
        out.push_str(&text[at..]);
        out.replace(end, "")
    }

    /// What begins and ends thoughts.
    pub(super) fn thought_marks(&self) -> [&'static str; 2] {
        thought_marks(self.formats)
    }

    /// Sampled ids without the one that ended them.
    pub(super) fn without_stop<'i>(&self, sampled: &'i [TokenId]) -> &'i [TokenId] {
        match sampled.split_last() {
            Some((last, before)) if self.stops.contains(last) => before,
            _ => sampled,
        }
    }

    /// Whether a client may have left out the end of a text: it is nothing, or may be a stop string, where no token ended the answer.
    pub(super) fn may_be_stop_string(&self, left: &str, sampled: &[TokenId]) -> bool {
        left.is_empty() || (left.len() <= LONGEST_STOP_STRING && self.without_stop(sampled).len() == sampled.len())
    }

    /// The text of ids in which these special tokens have one.
    fn text_of(&self, ids: &[TokenId], special: &SpecialTokens) -> Result<String, PromptError> {
        let is_shown = |id: &TokenId| match special {
            SpecialTokens::All => true,
            SpecialTokens::AsAsked => !self.tokenizer.is_special(*id),
            SpecialTokens::Only(marks) => {
                let is_mark = |token: String| marks.contains(&token.as_str());
                !self.tokenizer.is_special(*id) || self.tokenizer.token(*id).is_some_and(is_mark)
            }
        };
        let ids: Vec<TokenId> = ids.iter().filter(|id| is_shown(id)).copied().collect();
        decode(self.tokenizer, &ids, false)
    }
}

/// What begins and ends thoughts in these formats.
pub(super) fn thought_marks(formats: AnswerFormats) -> [&'static str; 2] {
    let marks = formats.reasoning.and_then(ReasoningParser::marks);
    marks.map_or(THOUGHTS, |marks| [marks.start, marks.end])
}

/// What a text says behind such a prompt.
pub(super) fn read(text: &str, format: &OutputFormat, left: PromptReasoning, cut_off: bool) -> Reading {
    let mut parser = OutputParser::new(format, left);
    let mut pieces = parser.push(text);
    if cut_off {
        parser.cut_off();
    }
    pieces.extend(parser.finish());
    let mut reading = Reading::default();
    for piece in pieces {
        match piece {
            Piece::Reasoning(text) => reading.reasoning.push_str(&text),
            Piece::Content(text) => reading.content.push_str(&text),
            Piece::Call(call) => reading.calls.push(call),
        }
    }
    reading
}

impl Reading {
    /// Whether a message says the same; it may leave out what it thought, and an end of its text of which `may_be_left_out` says so.
    pub(super) fn is_said_by(&self, message: &Message, may_be_left_out: impl Fn(&str) -> bool) -> bool {
        let content: String = message.content.texts().collect();
        let thought = message.reasoning.as_deref().unwrap_or_default().trim();
        trimmed(&self.content).strip_prefix(trimmed(&content)).is_some_and(may_be_left_out)
            && (thought.is_empty() || thought == self.reasoning.trim())
            && same_calls(&self.calls, message.tool_calls.as_deref().unwrap_or_default())
    }
}

/// A text without the white space around it, and without half a character at its end.
fn trimmed(text: &str) -> &str {
    spoken(text).trim_start()
}

/// Whether calls are those of a message: the same names and arguments, in this order.
pub(super) fn same_calls(read: &[ToolCall], said: &[chat::ToolCall]) -> bool {
    let same = |read: &ToolCall, said: &chat::ToolCall| {
        read.name == said.name
            && match (canonical_arguments(&read.arguments), said.canonical_arguments()) {
                (Ok(read), Ok(said)) => same_value(&read, &said),
                (Err(read), Err(said)) => read == said,
                _ => false,
            }
    };
    read.len() == said.len() && read.iter().zip(said).all(|(read, said)| same(read, said))
}

/// Whether two values are the same, but for the types of scalars: in formats that write each argument as a text, the tools of the
/// request say what it is, and an earlier request may have had others.
fn same_value(read: &Value, said: &Value) -> bool {
    match (read, said) {
        (Value::Array(read), Value::Array(said)) => {
            read.len() == said.len() && read.iter().zip(said).all(|(read, said)| same_value(read, said))
        }
        (Value::Object(read), Value::Object(said)) => {
            let same = |(key, read)| said.get(key).is_some_and(|said| same_value(read, said));
            read.len() == said.len() && read.iter().all(same)
        }
        (Value::String(text), other) | (other, Value::String(text)) => {
            other.as_str() == Some(text) || canonical_arguments(text).is_ok_and(|value| value == *other)
        }
        _ => read == said,
    }
}

/// The scalars of the arguments of a call, as texts.
pub(super) fn scalars(call: &chat::ToolCall) -> Vec<String> {
    fn collect(value: &Value, texts: &mut Vec<String>) {
        match value {
            Value::Array(values) => values.iter().for_each(|value| collect(value, texts)),
            Value::Object(fields) => fields.values().for_each(|value| collect(value, texts)),
            Value::String(text) => texts.push(text.clone()),
            value => texts.push(value.to_json_string()),
        }
    }
    let mut texts = Vec::new();
    match call.canonical_arguments() {
        Ok(value) => collect(&value, &mut texts),
        Err(text) => texts.push(text.to_owned()),
    }
    texts
}
