//! GLM 4.5 to 4.7: `<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>` (vLLM
//! `parser/glm47_moe.py`, called `glm45` and `glm47`).
//!
//! Only functions of the request are called. The tool's schema says what type a value has.

use super::{
    call_format::{CallFormat, CallReader},
    forcing::{Demand, Forcing, Grammar as Written},
    machine::{self, Act, Draft, Grammar, Reading, State},
    one_by_one::Spelling,
    schema::Signatures,
};
use crate::{
    chat::FunctionTool,
    json::{Object, Value},
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

pub(super) const GLM45: CallFormat = named("glm45", on_lines);
pub(super) const GLM47: CallFormat = named("glm47", on_one_line);

const fn named(name: &'static str, grammar: fn(&Demand<'_>) -> Format) -> CallFormat {
    let written = Written { splits_schemas: true, ..Written::new(grammar) };
    CallFormat::engine(name, reader, Forcing::Native(written), MARKS)
}

/// What GLM 4.5 and 4.6 write: name, keys and values on lines of their own.
fn on_lines(demand: &Demand<'_>) -> Format {
    let spelling = Spelling { key: KEY, value: "</arg_key>\n<arg_value>", end: "</arg_value>\n" };
    let tags = demand.each(|tool| Tag::new(format!("{CALL}{}\n", tool.name), spelling.arguments(tool), CALL_END));
    demand.list(tags, "\n", CALL)
}

/// What GLM 4.7 writes.
fn on_one_line(demand: &Demand<'_>) -> Format {
    let spelling = Spelling { key: KEY, value: "</arg_key><arg_value>", end: VALUE_END };
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

    fn step(state: State, marker: &str) -> Option<(State, Act)> {
        Some(match (state, marker) {
            (State::Content, CALL) => (State::Name, Act::Open),
            (State::Name, KEY) => (State::Arguments, Act::Keep),
            (State::Name | State::Arguments, CALL_END) => (State::Content, Act::Close),
            _ => return None,
        })
    }

    fn read(draft: Draft, tools: &Signatures) -> Reading {
        let name = marker::trim(&draft.name).to_owned();
        machine::named(Draft { name, ..draft }, tools, |name| tools.allow(name), arguments)
    }
}

/// The values after their keys. A pair that nothing ends is dropped.
fn arguments(body: &str) -> Value {
    let mut arguments = Object::new();
    let mut rest = body;
    while let Some((_, after)) = rest.split_once(KEY) {
        let Some((key, value, next)) = pair(after) else { break };
        arguments.insert(marker::trim(key).to_owned(), Value::from(value));
        rest = next;
    }
    Value::from(arguments)
}

/// The key, which ends where a value begins after it, the value, and what follows them.
fn pair(text: &str) -> Option<(&str, &str, &str)> {
    text.match_indices(KEY_END).find_map(|(at, _)| {
        let value = text[at + KEY_END.len()..].trim_start().strip_prefix(VALUE)?;
        let (value, next) = value.split_once(VALUE_END)?;
        Some((&text[..at], value, next))
    })
}

#[cfg(test)]
mod tests {
    use crate::parser::tools::tests::check;

    #[test]
    fn texts_give_what_vllm_gives() {
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
                    "I look.",
                    &[("f", r#"{"integer": 1}"#), ("g", "{}")],
                ),
                ("a <tool_call>h\n</tool_call> b", "a  b", &[]),
                ("a <tool_call>h\n</tool_call> b <tool_call>g\n</tool_call> c", "a", &[("g", "{}")]),
                ("<tool_call>g</tool_call>", "", &[("g", "{}")]),
                (
                    "<tool_call> f <arg_key>string</arg_key><arg_value> é\n</arg_value><arg_key> integer </arg_key>\n<arg_value>x",
                    "",
                    &[("f", r#"{"string": " é\n"}"#)],
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
