//! GLM 4.5 to 4.7: `<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>` (vLLM
//! `parser/glm47_moe.py`, called `glm45` and `glm47`, and `ling3` for Ling 3, which writes like 4.7).
//!
//! Only functions of the request are called. The tool's schema says what type a value has.

use super::{
    call_format::{CallFormat, CallReader},
    forcing::{Demand, Forcing, Grammar as Written},
    machine::{self, Act, Arguments, Draft, Grammar, Reading, ToolCallState},
    one_by_one::Spelling,
    schema::Signatures,
};
use crate::{
    chat::FunctionTool,
    parser::marker,
    structured::{Format, Tag},
};

const CALL: &str = "<tool_call>";
const CALL_END: &str = "</tool_call>";
const KEY: &str = "<arg_key>";
const KEY_END: &str = "</arg_key>";
const VALUE: &str = "<arg_value>";
const VALUE_END: &str = "</arg_value>";

/// All that may be special tokens.
const MARKS: &[&str] = &[CALL, CALL_END, KEY, KEY_END, VALUE, VALUE_END, "<think>", "</think>"];

pub(super) const GLM45: CallFormat = call_format("glm45", on_lines);
pub(super) const GLM47: CallFormat = call_format("glm47", on_one_line);
pub(super) const LING3: CallFormat = call_format("ling3", on_one_line);

const fn call_format(name: &'static str, grammar: fn(&Demand<'_>) -> Format) -> CallFormat {
    let written = Written { splits_schemas: true, ..Written::new(grammar) };
    CallFormat { begins_call: &[CALL], ..CallFormat::engine(name, reader, Forcing::Native(written), MARKS) }
}

/// What GLM 4.5 and 4.6 write: name, keys and values on lines of their own.
fn on_lines(demand: &Demand<'_>) -> Format {
    let spelling = Spelling::new(KEY, "</arg_key>\n<arg_value>", "</arg_value>\n");
    let tags = demand.each(|tool| Tag::new(format!("{CALL}{}\n", tool.name), spelling.arguments(tool), CALL_END));
    demand.list(tags, "\n", CALL)
}

/// What GLM 4.7 writes.
fn on_one_line(demand: &Demand<'_>) -> Format {
    let spelling = Spelling::new(KEY, "</arg_key><arg_value>", VALUE_END);
    let tags = demand.each(|tool| Tag::new(format!("{CALL}{}", tool.name), spelling.arguments(tool), CALL_END));
    demand.list(tags, "", CALL)
}

fn reader(tools: &[FunctionTool]) -> Box<dyn CallReader> {
    machine::reader::<Glm45>(tools)
}

#[derive(Debug)]
struct Glm45;

impl Grammar for Glm45 {
    const MARKERS: &'static [&'static str] = MARKS;

    fn step(state: ToolCallState, marker: &str) -> Option<(ToolCallState, Act)> {
        Some(match (state, marker) {
            (ToolCallState::Content, CALL) => (ToolCallState::Name, Act::Open),
            // Within a value it is text.
            (ToolCallState::Name | ToolCallState::Arguments, CALL) => (ToolCallState::Name, Act::Next),
            (ToolCallState::Arguments, VALUE) => (ToolCallState::Value, Act::Keep),
            (ToolCallState::Name, KEY) | (ToolCallState::Value, VALUE_END | KEY) => {
                (ToolCallState::Arguments, Act::Keep)
            }
            (ToolCallState::Name | ToolCallState::Arguments | ToolCallState::Value, CALL_END) => {
                (ToolCallState::Content, Act::Close)
            }
            _ => return None,
        })
    }

    fn read(draft: Draft, tools: &Signatures) -> Reading {
        machine::read_call(&draft, tools, |name| tools.allow(name), arguments)
    }
}

/// The values after their keys. Where the end is missing, the next key ends a value, or the end of the call.
fn arguments(body: &str) -> Arguments {
    let mut arguments = Arguments::default();
    let mut rest = body;
    while let Some((before, after)) = rest.split_once(KEY) {
        arguments.unread.push_str(marker::trim(before));
        let Some((key, value)) = key(after) else {
            let (key, value) = after.split_once(KEY_END).unwrap_or((after, ""));
            let begun = VALUE.starts_with(value.trim_start());
            if begun {
                arguments.begun = Some((marker::trim(key).to_owned(), rest[before.len()..].to_owned()));
            } else {
                arguments.unread.push_str(&rest[before.len()..]);
            }
            return arguments;
        };
        let (end, next) = match marker::first(value, &[VALUE_END, KEY]) {
            Some((end, VALUE_END)) => (end, &value[end + VALUE_END.len()..]),
            Some((end, _)) => (end, &value[end..]),
            None => {
                arguments.open = true;
                (value.len(), "")
            }
        };
        arguments.insert(marker::trim(key), &value[..end], &rest[before.len()..rest.len() - next.len()]);
        rest = next;
    }
    arguments.unread.push_str(marker::trim(rest));
    arguments
}

/// The key, which ends where a value begins after it, and the text from that value on.
fn key(text: &str) -> Option<(&str, &str)> {
    text.match_indices(KEY_END).find_map(|(at, _)| {
        let value = text[at + KEY_END.len()..].trim_start().strip_prefix(VALUE)?;
        Some((&text[..at], value))
    })
}

#[cfg(test)]
mod tests {
    use crate::parser::tools::tests::check;

    #[test]
    fn texts_are_read_so() {
        check(
            "glm45",
            &[
                (
                    "<tool_call>f\n<arg_key>integer</arg_key>\n<arg_value>7</arg_value>\n<arg_key>number</arg_key>\n<arg_value>2.0</arg_value>\n<arg_key>boolean</arg_key>\n<arg_value>true</arg_value>\n<arg_key>object</arg_key>\n<arg_value>{\"b\": [1.0, null]}</arg_value>\n<arg_key>array</arg_key>\n<arg_value>[1]</arg_value>\n<arg_key>string</arg_key>\n<arg_value>1</arg_value>\n<arg_key>nullable</arg_key>\n<arg_value>null</arg_value>\n<arg_key>other</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
                    "",
                    &[(
                        "f",
                        r#"{"integer": 7, "number": 2, "boolean": true, "object": {"b": [1.0, null]}, "array": [1], "string": "1", "nullable": null, "other": "1"}"#,
                    )],
                ),
                (
                    "I look.\n<tool_call>f\n<arg_key>integer</arg_key>\n<arg_value>1</arg_value>\n</tool_call>\n<tool_call>g\n</tool_call> done",
                    "I look. done",
                    &[("f", r#"{"integer": 1}"#), ("g", "{}")],
                ),
                ("a <tool_call>h\n</tool_call> b", "a <tool_call>h\n</tool_call> b", &[]),
                (
                    "a <tool_call>h\n</tool_call> b <tool_call>g\n</tool_call> c",
                    "a <tool_call>h\n</tool_call> b c",
                    &[("g", "{}")],
                ),
                ("<tool_call>g</tool_call>", "", &[("g", "{}")]),
                (
                    "<tool_call> f <arg_key>string</arg_key><arg_value> é\n</arg_value><arg_key> integer </arg_key>\n<arg_value>x",
                    "",
                    &[("f", "{\"string\": \" é\\n\", \"integer\": \"x")],
                ),
                (
                    "<tool_call>f<arg_key>a</arg_key>b</arg_key><arg_value>1</arg_value></tool_call>",
                    "",
                    &[("f", r#"{"a</arg_key>b": "1"}"#)],
                ),
                ("so <tool_call>", "so ", &[]),
                ("so </tool_call>", "so </tool_call>", &[]),
                ("<tool_call></tool_call>", "", &[]),
                (
                    "<tool_call>f<arg_key>string</arg_key><arg_value><tool_call></arg_value></tool_call>",
                    "",
                    &[("f", r#"{"string": "<tool_call>"}"#)],
                ),
            ],
        );
    }
}
