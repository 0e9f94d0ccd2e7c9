//! FunctionGemma: `<start_function_call>call:NAME{KEY:<escape>VALUE<escape>,…}<end_function_call>` (vLLM
//! `tool_parsers/functiongemma_tool_parser.py`, called `functiongemma`).
//!
//! The tool's schema says what type a value has. A value that it does not name is JSON where it can be read as such, and text
//! otherwise. The last call may lack its end. Where a part of the arguments cannot be read, there is no call.
//!
//! What deviates on purpose:
//! - vLLM asks no schema: a text that is JSON becomes a number or an object there, also where the schema wants text.
//! - JSON that has no form here (an integer of more than 4300 digits, half of a surrogate pair, a number that is too large
//!   for a float) is text. vLLM finds no call in such an answer, or cannot send it.

use super::{
    call_format::{CallFormat, CallReader},
    forcing::Forcing,
    machine::{self, Act, Arguments, Callee, Draft, Grammar, Reading, ToolCallState},
    schema::{Signatures, is_finite},
};
use crate::{
    chat::FunctionTool,
    json::Value,
    parser::{ToolCall, marker},
};

const START: &str = "<start_function_call>";
const END: &str = "<end_function_call>";
const ESCAPE: &str = "<escape>";
const BRACE: &str = "{";
const MARKS: &[&str] = &[START, END, ESCAPE];

pub(super) const FUNCTIONGEMMA: CallFormat = CallFormat {
    marks: MARKS,
    begins_call: &[START],
    trims: true,
    ..CallFormat::new("functiongemma", reader, Forcing::BareJson)
};

fn reader(tools: &[FunctionTool]) -> Box<dyn CallReader> {
    machine::reader(FunctionGemma, tools)
}

#[derive(Debug)]
struct FunctionGemma;

impl Grammar for FunctionGemma {
    const MARKERS: &'static [&'static str] = &[START, END, ESCAPE, BRACE];
    const QUOTES_VALUES: bool = true;

    fn step(&self, state: ToolCallState, marker: &str) -> Option<(ToolCallState, Act)> {
        Some(match (state, marker) {
            (ToolCallState::Content, START) => (ToolCallState::Name, Act::Open),
            (ToolCallState::Name, BRACE) => (ToolCallState::Arguments, Act::Drop),
            (ToolCallState::Name | ToolCallState::Arguments, START) => (ToolCallState::Name, Act::Next),
            (ToolCallState::Name | ToolCallState::Arguments | ToolCallState::Value, END) => {
                (ToolCallState::Content, Act::Close)
            }
            (ToolCallState::Arguments, ESCAPE) => (ToolCallState::Value, Act::Keep),
            (ToolCallState::Value, ESCAPE) => (ToolCallState::Arguments, Act::Keep),
            _ => return None,
        })
    }

    fn read(&self, draft: Draft, tools: &Signatures) -> Reading {
        let name = draft.name.strip_prefix("call:").filter(|name| !name.is_empty() && name.chars().all(is_word));
        let Some(name) = name else { return Reading::default() };
        let arguments = arguments(&draft.arguments, &Callee { name, tools });
        if !arguments.unread.is_empty() {
            return Reading::default();
        }
        let written = tools.fit_untyped(name, Value::from(arguments.values).to_json_string());
        let written = if arguments.open && !draft.ended {
            machine::unclosed(&written).to_owned()
        } else if draft.cut && !marker::trim_end(&draft.arguments).ends_with('}') {
            machine::cut_off(written)
        } else {
            written
        };
        Reading { call: Some(ToolCall::new(name.to_owned(), written)), unread: String::new() }
    }
}

/// The values of `KEY:<escape>VALUE<escape>,…}`. A value without marks around it ends at a comma.
fn arguments(body: &str, callee: &Callee<'_>) -> Arguments {
    let mut arguments = Arguments::default();
    let mut rest = separated(body);
    while !rest.is_empty() {
        let key = &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())];
        let Some(value) = rest[key.len()..].strip_prefix(':').filter(|_| !key.is_empty()) else {
            arguments.unread.push_str(rest);
            break;
        };
        let (value, next) = match value.strip_prefix(ESCAPE) {
            Some(value) => value.split_once(ESCAPE).unwrap_or_else(|| {
                arguments.open = true;
                (value, "")
            }),
            None => value.split_at(value.find([',', '}', '{', '[']).unwrap_or_else(|| {
                arguments.open = true;
                value.len()
            })),
        };
        let written = &rest[..rest.len() - next.len()];
        let is_typed = callee.tools.names(callee.name, key);
        let json = if is_typed { None } else { Value::parse_literally(value).ok().filter(is_finite) };
        arguments.insert(key, json.unwrap_or_else(|| Value::from(value)), written);
        rest = separated(next);
    }
    arguments
}

/// The text after the punctuation between arguments.
fn separated(text: &str) -> &str {
    text.trim_start_matches(|c| marker::is_space(c) || matches!(c, ',' | '}'))
}

/// What a name is made of.
fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use crate::parser::tools::tests::check;

    #[test]
    fn texts_are_read_so() {
        check(
            "functiongemma",
            &[
                (
                    r#"<start_function_call>call:f{a:<escape>1<escape>,b:<escape>é {x}<escape>,c:<escape>{"d": [1.0]}<escape>}<end_function_call>"#,
                    "",
                    &[("f", r#"{"a": 1, "b": "é {x}", "c": {"d": [1.0]}}"#)],
                ),
                (
                    "I look. <start_function_call>call:f{}<end_function_call> and <start_function_call>call:g{a:<escape>true<escape>}<end_function_call> done",
                    "I look. and done",
                    &[("f", "{}"), ("g", r#"{"a": true}"#)],
                ),
                ("<start_function_call>call:f{a:<escape>x<escape>,b:<escape>y", "", &[("f", r#"{"a": "x", "b": "y"#)]),
                (
                    "so <start_function_call>f{}<end_function_call>",
                    "so <start_function_call>f{}<end_function_call>",
                    &[],
                ),
                ("so <start_function_call>call:f", "so <start_function_call>call:f", &[]),
                (
                    "<start_function_call>call:{}<end_function_call>",
                    "<start_function_call>call:{}<end_function_call>",
                    &[],
                ),
                (
                    "so <start_function_call>x <start_function_call>call:f{}<end_function_call>",
                    "so <start_function_call>x",
                    &[("f", "{}")],
                ),
                (
                    r#"<start_function_call>call:f{a:<escape>"q"<escape>,a:<escape>z<escape>}<end_function_call>"#,
                    r#"<start_function_call>call:f{a:<escape>"q"<escape>,a:<escape>z<escape>}<end_function_call>"#,
                    &[],
                ),
                ("<start_function_call>call:f{a:1,b:<escape>2<escape>", "", &[("f", r#"{"a": 1, "b": 2}"#)]),
                // A number may have more digits than came.
                ("<start_function_call>call:f{a:12", "", &[("f", r#"{"a": 12"#)]),
                ("<start_function_call>call:f{a:12,", "", &[("f", r#"{"a": 12}"#)]),
                // Text is what the schema calls text.
                (
                    "<start_function_call>call:f{string:<escape>true<escape>,integer:7,a:2.50}<end_function_call>",
                    "",
                    &[("f", r#"{"string": "true", "integer": 7, "a": 2.50}"#)],
                ),
                (
                    r#"<start_function_call>call:f{string:<escape>{"k": 1}<escape>,object:<escape>{"k": 1}<escape>}<end_function_call>"#,
                    "",
                    &[("f", r#"{"string": "{\"k\": 1}", "object": {"k": 1}}"#)],
                ),
            ],
        );
    }
}
