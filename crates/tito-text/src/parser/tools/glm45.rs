//! GLM 4.5 to 4.7: `<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>` (vLLM
//! `parser/glm47_moe.py`, called `glm45` and `glm47`), and the models that write likewise:
//!
//! - Ling 3 (`ling3`), which writes like 4.7.
//! - Laguna of Poolside (`poolside_v1`), which calls functions by any name, and writes JSON or Python's words where the
//!   schema does not name a key.
//!
//! Of GLM and Ling, only functions of the request are called. The tool's schema says what type a value has.

use super::{
    call_format::{CallFormat, CallReader},
    forcing::{Demand, Forcing, Grammar as Written, TextIs},
    machine::Callee,
    one_by_one::Spelling,
    pairs::{self, Marks, Pairs},
    schema::{self, Signatures},
};
use crate::{
    chat::FunctionTool,
    json::Value,
    structured::{Format, Tag},
};

const CALL: &str = "<tool_call>";
const CALL_END: &str = "</tool_call>";
const KEY: &str = "<arg_key>";
const KEY_END: &str = "</arg_key>";
const VALUE: &str = "<arg_value>";
const VALUE_END: &str = "</arg_value>";
/// What the reader acts on within a value.
const MARKS_IN_VALUES: [&str; 3] = [KEY, VALUE_END, CALL_END];

/// All that may be special tokens.
const TOKENS: &[&str] = &[CALL, CALL_END, KEY, KEY_END, VALUE, VALUE_END, "<think>", "</think>"];

pub(super) const GLM45: CallFormat = call_format("glm45", on_lines);
pub(super) const GLM47: CallFormat = call_format("glm47", on_one_line);
pub(super) const LING3: CallFormat = call_format("ling3", on_one_line);
pub(super) const POOLSIDE_V1: CallFormat =
    CallFormat { begins_call: &[CALL], marks: TOKENS, ..CallFormat::new("poolside_v1", poolside, written(on_lines)) };

const fn call_format(name: &'static str, grammar: fn(&Demand<'_>) -> Format) -> CallFormat {
    CallFormat { begins_call: &[CALL], ..CallFormat::engine(name, reader, written(grammar), TOKENS) }
}

const fn written(grammar: fn(&Demand<'_>) -> Format) -> Forcing {
    Forcing::Native(Written { one_by_one: Some(TextIs::Bare), ..Written::new(grammar) })
}

/// What GLM 4.5 and 4.6 write: name, keys and values on lines of their own.
fn on_lines(demand: &Demand<'_>) -> Format {
    let spelling = Spelling::new(KEY, "</arg_key>\n<arg_value>", "</arg_value>\n", &MARKS_IN_VALUES);
    let tags = demand.each(|tool| Tag::new(format!("{CALL}{}\n", tool.name), spelling.arguments(tool), CALL_END));
    demand.list(tags, "\n", CALL)
}

/// What GLM 4.7 writes.
fn on_one_line(demand: &Demand<'_>) -> Format {
    let spelling = Spelling::new(KEY, "</arg_key><arg_value>", VALUE_END, &MARKS_IN_VALUES);
    let tags = demand.each(|tool| Tag::new(format!("{CALL}{}", tool.name), spelling.arguments(tool), CALL_END));
    demand.list(tags, "", CALL)
}

fn reader(tools: &[FunctionTool]) -> Box<dyn CallReader> {
    pairs::reader::<Glm45>(tools)
}

fn poolside(tools: &[FunctionTool]) -> Box<dyn CallReader> {
    pairs::reader::<Poolside>(tools)
}

#[derive(Debug)]
struct Glm45;

impl Pairs for Glm45 {
    const MARKS: Marks = Marks {
        section: None,
        call: [CALL, CALL_END],
        separator: None,
        key: [KEY, KEY_END],
        kind: None,
        value: [VALUE, VALUE_END],
    };
    const TOKENS: &'static [&'static str] = TOKENS;
}

#[derive(Debug)]
struct Poolside;

impl Pairs for Poolside {
    const MARKS: Marks = Glm45::MARKS;
    const TOKENS: &'static [&'static str] = TOKENS;
    const DROPS_SPACE: bool = true;

    fn allows(name: &str, _tools: &Signatures) -> bool {
        pairs::is_name(name)
    }

    fn value(callee: &Callee<'_>, key: &str, _kind: Option<&str>, text: &str) -> Value {
        let said = callee.tools.names(callee.name, key);
        if said { Value::from(text) } else { schema::untyped(text) }
    }
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
                        r#"{"integer": 7, "number": 2.0, "boolean": true, "object": {"b": [1.0, null]}, "array": [1], "string": "1", "nullable": null, "other": "1"}"#,
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

    #[test]
    fn laguna_writes_likewise() {
        let pair = |key: &str, value: &str| format!("<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n");
        let known = pair("integer", "7") + &pair("string", " 7\n") + &pair("nullable", "null");
        let unknown = pair("a", "7") + &pair("b", "{'c': True}") + &pair("d", "seven");
        check(
            "poolside_v1",
            &[
                (
                    &format!("so\n<tool_call>f\n{known}</tool_call>"),
                    "so\n",
                    &[("f", "{\"integer\": 7, \"string\": \" 7\\n\", \"nullable\": null}")],
                ),
                (
                    &format!("<tool_call>h\n{unknown}</tool_call> on"),
                    " on",
                    &[("h", r#"{"a": 7, "b": {"c": true}, "d": "seven"}"#)],
                ),
                ("<tool_call>a name</tool_call>", "<tool_call>a name</tool_call>", &[]),
                ("<tool_call>h<arg_key>a</arg_key><arg_value>[7, 8", "", &[("h", r#"{"a": "[7, 8"#)]),
            ],
        );
    }
}
