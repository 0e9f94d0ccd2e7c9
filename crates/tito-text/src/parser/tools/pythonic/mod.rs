//! Calls in Python: `[NAME(KEY=VALUE, …), …]` (vLLM `tool_parsers/pythonic_tool_parser.py` and
//! `llama4_pythonic_tool_parser.py`, called `pythonic` and `llama4_pythonic`).
//!
//! The whole text is a list of calls, or it is content. Llama 4 may put it between `<|python_start|>` and `<|python_end|>`.
//!
//! What deviates on purpose:
//! - Only a list of calls with keys is read as Python, and nothing may come after it but white space and comments. vLLM
//!   loses arguments without a key, and what comes after the list; here such a text is content.
//! - So it is where two arguments are called alike.
//! - `\N{…}`, half of a surrogate pair, and hexadecimal, octal and binary integers beyond 128 bits make content, too.
//! - vLLM's check may run for long, and then gives up after a second. Ours looks at each character once.

mod gate;
mod literal;
pub(super) mod marked;
mod source;
mod string;

use self::{gate::Gate, source::Source};
use super::{
    call_format::{CallFormat, CallReader},
    forcing::Forcing,
};
use crate::{
    chat::FunctionTool,
    json::{Object, Value},
    parser::{Piece, ToolCall, marker},
};

const START: &str = "<|python_start|>";
const END: &str = "<|python_end|>";
/// What Llama 4 may put around a list.
const MARKS: &[&str] = &[START, END];

pub(super) const PYTHONIC: CallFormat =
    CallFormat { keeps_special_tokens: false, ..CallFormat::new("pythonic", reader, Forcing::BareJson) };
pub(super) const LLAMA4_PYTHONIC: CallFormat = CallFormat {
    marks: MARKS,
    begins_call: &[START],
    keeps_special_tokens: false,
    ..CallFormat::new("llama4_pythonic", llama4_reader, Forcing::BareJson)
};

fn reader(_tools: &[FunctionTool]) -> Box<dyn CallReader> {
    Reader::boxed(false)
}

fn llama4_reader(_tools: &[FunctionTool]) -> Box<dyn CallReader> {
    Reader::boxed(true)
}

#[derive(Debug)]
struct Reader {
    /// Whether the list may stand between tokens.
    wraps: bool,
    /// What was not given out.
    text: String,
    gate: Gate,
    /// How many bytes of the text the gate has seen.
    seen: usize,
    /// Whether the text is content.
    decided: bool,
}

impl Reader {
    fn boxed(wraps: bool) -> Box<dyn CallReader> {
        Box::new(Self { wraps, text: String::new(), gate: Gate::new(), seen: 0, decided: false })
    }

    /// Whether the text may still turn out to begin with the token in front of a list.
    fn may_be_wrapped(&self) -> bool {
        self.wraps && (self.text.starts_with(START) || START.starts_with(&self.text))
    }

    fn give(&mut self, out: &mut Vec<Piece>) {
        if !self.text.is_empty() {
            out.push(Piece::Content(std::mem::take(&mut self.text)));
        }
    }
}

impl CallReader for Reader {
    fn push(&mut self, text: &str, out: &mut Vec<Piece>) {
        self.text.push_str(text);
        if !self.decided && !self.may_be_wrapped() {
            self.gate.push(&self.text[self.seen..]);
            self.seen = self.text.len();
            self.decided = self.gate.is_shut();
        }
        if self.decided {
            self.give(out);
        }
    }

    fn finish(&mut self, out: &mut Vec<Piece>) {
        let wrapped = self.text.strip_prefix(START).filter(|_| self.wraps).map(|text| {
            let text = marker::trim(text);
            text.strip_suffix(END).unwrap_or(text)
        });
        let calls = if self.decided { None } else { calls(wrapped.unwrap_or(&self.text)) };
        match calls {
            Some(calls) => out.extend(calls.into_iter().map(Piece::Call)),
            None => self.give(out),
        }
    }

    fn is_in_call(&self) -> bool {
        !self.decided && !marker::is_blank(&self.text)
    }
}

/// The value that a whole text writes as Python does.
pub(super) fn literal(text: &str) -> Option<Value> {
    let mut source = Source::new(text);
    let value = literal::value(&mut source)?;
    ends(source.rest()).then_some(value)
}

/// The calls of a whole text; `None` where it is no list of calls.
fn calls(text: &str) -> Option<Vec<ToolCall>> {
    let mut gate = Gate::new();
    gate.push(text);
    if !gate.is_open() || text.contains('\0') {
        return None;
    }
    let text = with_newlines(text);
    list(&mut Source::new(&text)).filter(|(_, rest)| ends(rest)).map(|(calls, _)| calls)
}

/// The text with the one line end as which Python reads every kind.
fn with_newlines(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}

/// The calls of a list, and what comes after it.
fn list<'t>(source: &mut Source<'t>) -> Option<(Vec<ToolCall>, &'t str)> {
    source.take('[').then_some(())?;
    let mut calls = Vec::new();
    source.items(']', |source| {
        calls.push(call(source)?);
        Some(())
    })?;
    Some((calls, source.rest()))
}

/// Whether nothing comes after the list but white space and comments.
fn ends(rest: &str) -> bool {
    let mut lines = rest.split('\n').map(|line| line.split('#').next().unwrap_or(line));
    lines.all(|line| line.trim_matches([' ', '\t', '\u{c}', ';']).is_empty())
}

/// `NAME(KEY=VALUE, …)`, with a value for each key.
fn call(source: &mut Source<'_>) -> Option<ToolCall> {
    let mut name = source.name()?.to_owned();
    while source.take('.') {
        name.push('.');
        name.push_str(source.name()?);
    }
    source.take('(').then_some(())?;
    let mut arguments = Object::default();
    source.items(')', |source| {
        let key = source.keyword()?.to_owned();
        arguments.insert(key, literal::value(source)?).is_none().then_some(())
    })?;
    Some(ToolCall::new(name, Value::from(arguments).to_json_string()))
}

#[cfg(test)]
mod tests;
