//! Qwen 3 Coder: `<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>` (vLLM
//! `parser/qwen3.py`, called `qwen3_coder` and `qwen3_xml`).
//!
//! One newline is taken off either end of a value, and the tool's schema says what type it has. A value that nothing ends
//! is dropped.

use super::{
    call_format::{CallFormat, CallReader},
    forcing::{Demand, Forcing, Grammar as Written},
    machine::{self, Act, Draft, Grammar, Reading, State},
    one_by_one::Spelling,
    parameters,
    schema::Signatures,
};
use crate::{
    chat::FunctionTool,
    json::{Object, Value},
    structured::{Format, Tag},
};

const CALL: &str = "<tool_call>";
const CALL_END: &str = "</tool_call>";
const FUNCTION: &str = "<function=";
const FUNCTION_END: &str = "</function>";
const NAME_END: &str = ">";
/// Marks that are text everywhere, and that hold a `>` which ends no name.
const TEXT: [&str; 4] = ["<think>", "</think>", "<parameter=", "</parameter>"];

/// All that may be special tokens.
const MARKS: &[&str] = &[CALL, CALL_END, FUNCTION, FUNCTION_END, NAME_END, TEXT[0], TEXT[1], TEXT[2], TEXT[3]];

pub(super) const QWEN3_CODER: CallFormat = named("qwen3_coder");
pub(super) const QWEN3_XML: CallFormat = named("qwen3_xml");

const fn named(name: &'static str) -> CallFormat {
    let written = Written { splits_schemas: true, ..Written::new(grammar) };
    CallFormat::engine(name, reader, Forcing::Native(written), MARKS)
}

fn grammar(demand: &Demand<'_>) -> Format {
    let spelling = Spelling { key: TEXT[2], value: ">\n", end: "\n</parameter>\n" };
    let begin = |name: &str| format!("{CALL}\n{FUNCTION}{name}>\n");
    let end = format!("{FUNCTION_END}\n{CALL_END}");
    let tags = demand.each(|tool| Tag::new(begin(tool.name), spelling.arguments(tool), &*end));
    demand.list(tags, "\n", CALL)
}

fn reader(tools: &[FunctionTool]) -> Box<dyn CallReader> {
    machine::reader::<Qwen3Coder>(tools)
}

#[derive(Debug)]
struct Qwen3Coder;

impl Grammar for Qwen3Coder {
    const MARKERS: &'static [&'static str] = MARKS;

    fn step(state: State, marker: &str) -> Option<(State, Act)> {
        Some(match (state, marker) {
            (State::Content | State::Between, CALL) => (State::Preamble, Act::Open),
            (State::Content | State::Between, FUNCTION) => (State::Name, Act::Open),
            (State::Preamble, CALL_END) => (State::Content, Act::Close),
            (State::Preamble, FUNCTION) => (State::Name, Act::Drop),
            (State::Name, NAME_END) => (State::Arguments, Act::Drop),
            (State::Name | State::Arguments, FUNCTION_END) => (State::Between, Act::Close),
            (State::Between, CALL_END) => (State::Content, Act::Drop),
            _ => return None,
        })
    }

    fn read(draft: Draft, tools: &Signatures) -> Reading {
        machine::named(draft, tools, |_| true, arguments)
    }
}

/// The values of `<parameter=KEY>VALUE</parameter>`, of which the end may be missing where the next one begins.
fn arguments(body: &str) -> Value {
    let mut arguments = Object::new();
    let mut rest = body;
    while let Some((_, after)) = parameters::first(rest, opening) {
        let Some((key, value)) = after.trim_start().split_once('>') else { break };
        let Some((end, next)) = parameters::value_end(value, opening) else { break };
        arguments.insert(key.to_owned(), Value::from(without_newlines(&value[..end])));
        rest = next;
    }
    Value::from(arguments)
}

/// The text after `<parameter=`.
fn opening(text: &str) -> Option<&str> {
    parameters::tag(text, &["parameter", "="])
}

fn without_newlines(value: &str) -> &str {
    let value = value.strip_prefix('\n').unwrap_or(value);
    value.strip_suffix('\n').unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use crate::parser::tools::tests::check;

    #[test]
    fn texts_give_what_vllm_gives() {
        check(
            "qwen3_coder",
            &[
                (
                    "<tool_call>\n<function=f>\n<parameter=integer>\n7\n</parameter>\n<parameter=number>\n2.0\n</parameter>\n<parameter=boolean>\ntrue\n</parameter>\n<parameter=object>\n{\"b\": [1.0, null]}\n</parameter>\n<parameter=array>\n[1]\n</parameter>\n<parameter=string>\n1\n</parameter>\n<parameter=nullable>\nnull\n</parameter>\n<parameter=other>\n1\n</parameter>\n</function>\n</tool_call>",
                    "",
                    &[(
                        "f",
                        r#"{"integer": 7, "number": 2, "boolean": true, "object": {"b": [1.0, null]}, "array": [1], "string": "1", "nullable": null, "other": "1"}"#,
                    )],
                ),
                (
                    "I look.\n\n<tool_call>\n<function=f>\n<parameter=integer>\n1\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=g>\n</function>\n</tool_call> done",
                    "I look.",
                    &[("f", r#"{"integer": 1}"#), ("g", "{}")],
                ),
                (
                    "<tool_call>\n<function=h>\n<parameter=a>\n1\n\n</parameter>\n</function>\n</tool_call>",
                    "",
                    &[("h", r#"{"a": "1\n"}"#)],
                ),
                ("  <tool_call>\n<function=g>\n</function>\n</tool_call>", "", &[("g", "{}")]),
                ("<function=f><parameter=string>a</parameter></function> more", "", &[("f", r#"{"string": "a"}"#)]),
                (
                    "<tool_call><function=f><parameter=string>\n\na\n<parameter=integer>x</parameter></function>",
                    "",
                    &[("f", r#"{"string": "\na", "integer": "x"}"#)],
                ),
                (
                    "so <tool_call>\n<function=f>\n<parameter=string>é😀 <b> > </parameter>\n<parameter=integer>7",
                    "so",
                    &[("f", r#"{"string": "é😀 <b> > "}"#)],
                ),
                ("so <tool_call>\n<func", "so ", &[]),
                ("so <tool_call></tool_call> on", "so  on", &[]),
                ("so </tool_call>", "so </tool_call>", &[]),
                ("<tool_call>\n<function=f</function></tool_call>", "", &[("f", "{}")]),
                (
                    r#"<tool_call><function=>{"name": "f", "parameters": {"integer": "1"}}</function></tool_call>"#,
                    "",
                    &[("f", "{}")],
                ),
                (" \n", " \n", &[]),
                ("a <b and <tool", "a <b and <tool", &[]),
                (
                    "<tool_call><function=f><parameter=string>a</function><tool_call><function=g></function>",
                    "",
                    &[("f", "{}"), ("g", "{}")],
                ),
                ("so <tool_call><function= ></function> on", "so ", &[]),
                ("\n<tool_call> ", "", &[]),
            ],
        );
    }
}
