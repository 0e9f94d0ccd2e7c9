//! Qwen 3 Coder: `<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>` (vLLM
//! `parser/qwen3.py`, called `qwen3_coder` and `qwen3_xml`).
//!
//! One newline is taken off either end of a value, and the tool's schema says what type it has.

use super::{
    call_format::{CallFormat, CallReader},
    forcing::{Demand, Forcing, Grammar as Written},
    machine::{self, Act, Arguments, Draft, Grammar, Reading, State},
    one_by_one::Spelling,
    parameters,
    schema::Signatures,
};
use crate::{
    chat::FunctionTool,
    parser::marker,
    structured::{Format, Tag},
};

const CALL: &str = "<tool_call>";
const CALL_END: &str = "</tool_call>";
const FUNCTION: &str = "<function=";
const FUNCTION_END: &str = "</function>";
const NAME_END: &str = ">";
const PARAMETER: &str = "<parameter=";
const PARAMETER_END: &str = "</parameter>";
/// Marks that are text everywhere, and that hold a `>` which ends no name.
const TEXT: [&str; 2] = ["<think>", "</think>"];
/// What begins a call even in the middle of a value, whose end is missing then.
const NEXT: [&str; 2] = ["<tool_call>\n<function=", "<tool_call><function="];

/// All that may be special tokens.
const MARKS: &[&str] = &[CALL, CALL_END, FUNCTION, FUNCTION_END, NAME_END, PARAMETER, PARAMETER_END, TEXT[0], TEXT[1]];

pub(super) const QWEN3_CODER: CallFormat = named("qwen3_coder");
pub(super) const QWEN3_XML: CallFormat = named("qwen3_xml");

const fn named(name: &'static str) -> CallFormat {
    let written = Written { splits_schemas: true, ..Written::new(grammar) };
    CallFormat { begins_call: &[CALL], ..CallFormat::engine(name, reader, Forcing::Native(written), MARKS) }
}

fn grammar(demand: &Demand<'_>) -> Format {
    let spelling = Spelling { key: PARAMETER, value: ">\n", end: "\n</parameter>\n" };
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
    const MARKERS: &'static [&'static str] = &[
        CALL,
        CALL_END,
        FUNCTION,
        FUNCTION_END,
        NAME_END,
        PARAMETER,
        PARAMETER_END,
        TEXT[0],
        TEXT[1],
        NEXT[0],
        NEXT[1],
    ];

    fn step(state: State, marker: &str) -> Option<(State, Act)> {
        Some(match (state, marker) {
            (State::Content | State::Between, CALL) => (State::Preamble, Act::Open),
            (State::Content | State::Between, FUNCTION) => (State::Name, Act::Open),
            (State::Content | State::Between, _) if NEXT.contains(&marker) => (State::Name, Act::Open),
            (_, _) if NEXT.contains(&marker) => (State::Name, Act::Next),
            (State::Preamble, FUNCTION) => (State::Name, Act::Drop),
            (State::Name, NAME_END) => (State::Arguments, Act::Drop),
            (State::Name | State::Arguments | State::Value, FUNCTION_END) => (State::Between, Act::Close),
            // Outside of a value nothing else is text.
            (State::Preamble | State::Name | State::Arguments, CALL) => (State::Preamble, Act::Next),
            (State::Name | State::Arguments, FUNCTION) => (State::Name, Act::Next),
            (State::Preamble | State::Name | State::Arguments, CALL_END) => (State::Content, Act::Close),
            (State::Arguments | State::Value, PARAMETER) => (State::Value, Act::Keep),
            (State::Value, PARAMETER_END) => (State::Arguments, Act::Keep),
            (State::Between, CALL_END) => (State::Content, Act::Drop),
            _ => return None,
        })
    }

    fn read(draft: Draft, tools: &Signatures) -> Reading {
        machine::named(&draft, tools, is_name, arguments)
    }
}

/// Whether a function may be called so: in markup whose marks are missing, anything may stand in a name's place.
fn is_name(name: &str) -> bool {
    !name.contains(|c: char| c == '<' || c.is_whitespace())
}

/// The values of `<parameter=KEY>VALUE</parameter>`. Where the end is missing, the next parameter ends a value, or the end
/// of the call.
fn arguments(body: &str) -> Arguments {
    let mut arguments = Arguments::default();
    let mut rest = body;
    while let Some((start, after)) = parameters::first(rest, opening) {
        arguments.unread.push_str(marker::trim(&rest[..start]));
        let Some((key, value)) = after.trim_start().split_once('>') else {
            arguments.begun = Some((after.to_owned(), rest[start..].to_owned()));
            return arguments;
        };
        let (end, next) = parameters::value_end(value, opening).unwrap_or_else(|| {
            arguments.open = true;
            (ends_of_calls_taken_off(value).len(), "")
        });
        arguments.insert(key, without_newlines(&value[..end]), &rest[start..rest.len() - next.len()]);
        rest = next;
    }
    arguments.unread.push_str(marker::trim(rest));
    arguments
}

/// A value in front of a call that ended it.
fn ends_of_calls_taken_off(value: &str) -> &str {
    let trimmed = marker::trim_end(value);
    trimmed.strip_suffix(CALL_END).map_or(value, marker::trim_end)
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
    fn texts_are_read_so() {
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
                    "I look. done",
                    &[("f", r#"{"integer": 1}"#), ("g", "{}")],
                ),
                (
                    "<tool_call>\n<function=h>\n<parameter=a>\n1\n\n</parameter>\n</function>\n</tool_call>",
                    "",
                    &[("h", r#"{"a": "1\n"}"#)],
                ),
                ("  <tool_call>\n<function=g>\n</function>\n</tool_call>", "", &[("g", "{}")]),
                (
                    "<function=f><parameter=string>a</parameter></function> more",
                    " more",
                    &[("f", r#"{"string": "a"}"#)],
                ),
                (
                    "<tool_call><function=f><parameter=string>\n\na\n<parameter=integer>x</parameter></function>",
                    "",
                    &[("f", r#"{"string": "\na", "integer": "x"}"#)],
                ),
                (
                    "so <tool_call>\n<function=f>\n<parameter=string>é😀 <b> > </parameter>\n<parameter=integer>7",
                    "so",
                    &[("f", r#"{"string": "é😀 <b> > ", "integer": 7"#)],
                ),
                ("so <tool_call>\n<func", "so <tool_call>\n<func", &[]),
                ("so <tool_call></tool_call> on", "so  on", &[]),
                ("so </tool_call>", "so </tool_call>", &[]),
                ("<tool_call>\n<function=f</function></tool_call>", "", &[("f", "{}")]),
                (
                    r#"<tool_call><function=>{"name": "f", "parameters": {"integer": "1"}}</function></tool_call>"#,
                    "",
                    &[("f", r#"{"integer": 1}"#)],
                ),
                (" \n", " \n", &[]),
                ("a <b and <tool", "a <b and <tool", &[]),
                (
                    "<tool_call><function=f><parameter=string>a</function><tool_call><function=g></function>",
                    "",
                    &[("f", r#"{"string": "a"}"#), ("g", "{}")],
                ),
                ("so <tool_call><function= ></function> on", "so  on", &[]),
                ("\n<tool_call> ", "\n", &[]),
            ],
        );
    }
}
