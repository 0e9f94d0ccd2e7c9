//! Formats that write calls as JSON after a mark: one object, or a list of them, and mostly a mark after it.
//!
//! What is no call is content to the letter: a block that cannot be read, and where the format says so (`spoils`, as
//! vLLM has it) the whole text from the first block on. JSON that the end of the text cuts off is no call.
//!
//! What deviates on purpose: the JSON says where it ends, so that marks within its text are text; vLLM's regular
//! expressions stop at the first. The last block may lack the mark at its end, and any number of blocks may come.

use super::{
    call_format::CallReader,
    forcing::{Demand, Function},
    json_call,
    schema::Signatures,
    until_end::UntilEnd,
};
use crate::{
    chat::FunctionTool,
    json::{Object, Value},
    parser::{Piece, ToolCall, marker, unread::Unread},
    structured::{Format, Tag},
};

/// How a format writes its calls.
#[derive(Debug)]
pub(super) struct Blocks {
    /// What stands before the JSON. Where it ends with `[`, that is the first of the JSON.
    pub(super) begins: &'static [&'static str],
    /// What stands after the JSON, if anything does.
    pub(super) ends: &'static [&'static str],
    pub(super) shape: Shape,
    pub(super) call: Call,
    /// Whether one block that cannot be read makes all of them content.
    pub(super) spoils: bool,
    /// Whether arguments are fitted to the tool's schema.
    pub(super) fits: bool,
    /// Whether the model writes the JSON on lines of its own.
    pub(super) on_lines: bool,
}

/// What the JSON of a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// A call.
    Object,
    /// A list of calls.
    List,
}

/// What a call's object says.
#[derive(Debug)]
pub(super) enum Call {
    /// `{NAME: ARGUMENTS}`.
    Pair,
    /// The name and the arguments under keys of their own.
    Keyed(Keys),
}

/// The keys of a call.
#[derive(Debug)]
pub(super) struct Keys {
    pub(super) name: &'static str,
    /// The keys that arguments may have; the first one that is there counts.
    pub(super) arguments: &'static [&'static str],
    /// Whether arguments may be missing.
    pub(super) may_lack: bool,
    /// Whether arguments that are a text are passed on as that text, and not as the JSON of it.
    pub(super) takes_text: bool,
    /// The key under which the model numbers its calls; the number is the id.
    pub(super) number: Option<&'static str>,
}

impl Keys {
    /// `{"name": …, "arguments": …}`.
    pub(super) const NAMED: Self =
        Self { name: "name", arguments: &["arguments"], may_lack: false, takes_text: false, number: None };
}

impl Blocks {
    /// `{"name": …, "arguments": …}` between two marks.
    pub(super) const fn new(begins: &'static [&'static str], ends: &'static [&'static str], shape: Shape) -> Self {
        Self { begins, ends, shape, call: Call::Keyed(Keys::NAMED), spoils: true, fits: false, on_lines: false }
    }

    pub(super) fn reader(self, tools: &[FunctionTool]) -> Box<dyn CallReader> {
        let tools = Signatures::of(tools);
        Box::new(UntilEnd::new(self.begins, move |text| self.calls(text, &tools)))
    }

    /// The calls of a text that begins with a mark, with what stands between them; `None` where there are none.
    fn calls(&self, text: &str, tools: &Signatures) -> Option<Vec<Piece>> {
        let mut pieces = Vec::new();
        let mut called = false;
        // What stands before `from` was read, and before `at` there is no call.
        let (mut from, mut at) = (0, 0);
        let mut unread = Unread::whole(text);
        while let Some((offset, begin)) = unread.first(self.begins) {
            at += offset;
            match self.block(&text[at..], begin, tools) {
                Some((calls, after)) => {
                    self.outside(&text[from..at], &mut pieces);
                    pieces.extend(calls);
                    called = true;
                    from = text.len() - after.len();
                    at = from;
                }
                None if self.spoils => return None,
                None => at += begin.len(),
            }
            unread.skip(at - (text.len() - unread.len()));
        }
        self.outside(&text[from..], &mut pieces);
        called.then_some(pieces)
    }

    /// The calls of a text that is one block and nothing else.
    pub(super) fn only(&self, text: &str) -> Option<Vec<Piece>> {
        let text = text.trim_start_matches(marker::is_space);
        let begin = self.begins.iter().find(|begin| text.starts_with(**begin))?;
        let (calls, after) = self.block(text, begin, &Signatures::of(&[]))?;
        marker::is_blank(after).then_some(calls)
    }

    /// The calls of the block that `text` begins with, and what follows it.
    fn block<'t>(&self, text: &'t str, begin: &str, tools: &Signatures) -> Option<(Vec<Piece>, &'t str)> {
        let body = text[begin.trim_end_matches('[').len()..].trim_start_matches(marker::is_space);
        let (value, length) = Value::parse_start_literally(body).ok()?;
        let entries = match (self.shape, value) {
            (Shape::List, Value::Array(entries)) => entries,
            (Shape::Object, entry @ Value::Object(_)) => vec![entry],
            _ => return None,
        };
        let mut pieces = Vec::new();
        for entry in entries {
            let Value::Object(entry) = entry else { return None };
            let (call, unread) = self.call.read(entry)?;
            let arguments = if self.fits { tools.fit(&call.name, call.arguments) } else { call.arguments };
            pieces.push(Piece::Call(ToolCall { arguments, ..call }));
            json_call::outside(&unread, &mut pieces);
        }
        if pieces.is_empty() {
            return None;
        }
        let after = &body[length..];
        let unspaced = after.trim_start_matches(marker::is_space);
        let ended = self.ends.iter().find_map(|end| unspaced.strip_prefix(end));
        Some((pieces, ended.unwrap_or(after)))
    }

    /// What stands beside blocks; ends that end nothing are only marks.
    fn outside(&self, text: &str, pieces: &mut Vec<Piece>) {
        let ends_alone = self.ends.iter().any(|end| marker::is_blank(&text.replace(end, "")));
        if !ends_alone {
            json_call::outside(text, pieces);
        }
    }

    /// What forces calls.
    pub(super) fn grammar(&self, demand: &Demand<'_>) -> Format {
        let begin = self.begins[0].trim_end_matches('[');
        let line = if self.on_lines { "\n" } else { "" };
        let end = self.ends.first().map_or_else(String::new, |end| format!("{line}{end}"));
        match self.shape {
            Shape::Object => {
                let begin = format!("{begin}{line}");
                let tags = demand.each(|tool| self.call.tag(tool, &begin, &end));
                demand.list(tags, "\n", self.begins[0])
            }
            Shape::List => {
                let tags = demand.each(|tool| self.call.tag(tool, "", ""));
                demand.section(&format!("{begin}["), tags, ", ", &format!("]{end}"))
            }
        }
    }
}

impl Call {
    /// The call of an object, and what else it says.
    fn read(&self, mut object: Object) -> Option<(ToolCall, String)> {
        let Self::Keyed(keys) = self else { return pair(object) };
        let Some(Value::String(name)) = object.shift_remove(keys.name) else { return None };
        let key = keys.arguments.iter().find(|key| object.contains_key(**key));
        let arguments = match key.and_then(|key| object.shift_remove(*key)) {
            Some(Value::String(text)) if keys.takes_text => text,
            Some(arguments) => arguments.to_json_string(),
            None if keys.may_lack => "{}".to_owned(),
            None => return None,
        };
        let call = (!name.is_empty()).then(|| ToolCall::new(name, arguments))?;
        let id = keys.number.and_then(|key| number(&mut object, key)).unwrap_or(call.id);
        Some((ToolCall { id, ..call }, json_call::unread(object)))
    }

    /// A call of a tool, with something around it.
    fn tag(&self, tool: &Function<'_>, begin: &str, end: &str) -> Tag {
        let name = tool.name;
        let Self::Keyed(keys) = self else {
            return Tag::new(format!("{begin}{{\"{name}\": "), tool.json(), format!("}}{end}"));
        };
        let call = format!("\"{}\": \"{name}\", \"{}\": ", keys.name, keys.arguments[0]);
        let Some(number) = keys.number else {
            return Tag::new(format!("{begin}{{{call}"), tool.json(), format!("}}{end}"));
        };
        let digits = Format::Regex { pattern: "[0-9]+".to_owned(), excludes: Vec::new() };
        let elements = vec![digits, Format::text(format!("\", {call}")), tool.json()];
        Tag::new(format!("{begin}{{\"{number}\": \""), Format::Sequence { elements }, format!("}}{end}"))
    }
}

/// The number that the model gave a call, taken out of it.
fn number(object: &mut Object, key: &str) -> Option<String> {
    let digits = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = object.get(key).and_then(Value::as_str).filter(digits)?.to_owned();
    object.shift_remove(key);
    Some(number)
}

/// `{NAME: ARGUMENTS}`, and nothing else.
fn pair(mut object: Object) -> Option<(ToolCall, String)> {
    let (name, arguments) = object.pop().filter(|_| object.is_empty())?;
    (!name.is_empty()).then(|| (ToolCall::new(name, arguments.to_json_string()), String::new()))
}
