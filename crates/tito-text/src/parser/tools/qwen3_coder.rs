//! Qwen 3 Coder: `<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>` (vLLM
//! `parser/qwen3.py`, called `qwen3_coder` and `qwen3_xml`), and the models that write likewise:
//!
//! - Step 3.5 and 5 (`step3p5`, `step5`); the latter keeps the white space before calls.
//! - `MiMo` (`mimo`), whose values have no newlines around them.
//! - Seed OSS (`seed_oss`), whose values have none either, with `<seed:tool_call>` around each call.
//!
//! One newline is taken off either end of a value but in the last two, and the tool's schema says what type it has.

use std::fmt;

use super::{
    call_format::{CallFormat, CallReader},
    forcing::{Demand, Forcing, Grammar as Written, TextIs},
    machine::{self, Act, Arguments, Draft, Grammar, Reading, ToolCallState},
    one_by_one::Spelling,
    parameters,
    schema::Signatures,
};
use crate::{
    chat::FunctionTool,
    parser::marker,
    structured::{Format, Tag},
};

const FUNCTION: &str = "<function=";
const FUNCTION_END: &str = "</function>";
const NAME_END: &str = ">";
const PARAMETER: &str = "<parameter=";
const PARAMETER_END: &str = "</parameter>";

pub(super) const QWEN3_CODER: CallFormat = call_format::<Qwen>("qwen3_coder");
pub(super) const QWEN3_XML: CallFormat = call_format::<Qwen>("qwen3_xml");
pub(super) const STEP3P5: CallFormat = call_format::<Qwen>("step3p5");
pub(super) const STEP5: CallFormat = CallFormat { trims: false, ..call_format::<Qwen>("step5") };
pub(super) const SEED_OSS: CallFormat = call_format::<Seed>("seed_oss");
pub(super) const MIMO: CallFormat = call_format::<Mimo>("mimo");

/// What models write around calls and values.
trait Dialect: Send + fmt::Debug + 'static {
    const CALL: &'static str = "<tool_call>";
    const CALL_END: &'static str = "</tool_call>";
    /// What begins a call even in the middle of a value, whose end is missing then.
    const NEXT: [&'static str; 2] = ["<tool_call>\n<function=", "<tool_call><function="];
    /// All that may be special tokens. Of these, those of thoughts are text everywhere; they hold a `>` which ends no
    /// name.
    const MARKS: &'static [&'static str] = &[
        "<tool_call>",
        "</tool_call>",
        FUNCTION,
        FUNCTION_END,
        NAME_END,
        PARAMETER,
        PARAMETER_END,
        "<think>",
        "</think>",
        "<tool_call>\n<function=",
        "<tool_call><function=",
    ];
    /// The newline on either side of a value.
    const NEWLINE: &'static str = "\n";
    /// What the reader acts on within a value.
    const MARKS_IN_VALUES: &'static [&'static str] =
        &[FUNCTION_END, PARAMETER, PARAMETER_END, Self::NEXT[0], Self::NEXT[1]];
    const SPELLING: Spelling<'static> = Spelling::new(PARAMETER, ">\n", "\n</parameter>\n", Self::MARKS_IN_VALUES);
}

#[derive(Debug)]
struct Qwen;

impl Dialect for Qwen {}

#[derive(Debug)]
struct Seed;

impl Dialect for Seed {
    const CALL: &'static str = "<seed:tool_call>";
    const CALL_END: &'static str = "</seed:tool_call>";
    const NEXT: [&'static str; 2] = ["<seed:tool_call>\n<function=", "<seed:tool_call><function="];
    const MARKS: &'static [&'static str] = &[
        "<seed:tool_call>",
        "</seed:tool_call>",
        FUNCTION,
        FUNCTION_END,
        NAME_END,
        PARAMETER,
        PARAMETER_END,
        "<seed:think>",
        "</seed:think>",
        "<seed:tool_call>\n<function=",
        "<seed:tool_call><function=",
    ];
    const NEWLINE: &'static str = "";
    const SPELLING: Spelling<'static> = Spelling::new(PARAMETER, ">", "</parameter>\n", Self::MARKS_IN_VALUES);
}

#[derive(Debug)]
struct Mimo;

impl Dialect for Mimo {
    const NEWLINE: &'static str = "";
    const SPELLING: Spelling<'static> = Spelling::new(PARAMETER, ">", "</parameter>\n", Self::MARKS_IN_VALUES);
}

const fn call_format<D: Dialect>(name: &'static str) -> CallFormat {
    let written = Written { one_by_one: Some(TextIs::Bare), ..Written::new(grammar::<D>) };
    CallFormat { begins_call: &[D::CALL], ..CallFormat::engine(name, reader::<D>, Forcing::Native(written), D::MARKS) }
}

fn grammar<D: Dialect>(demand: &Demand<'_>) -> Format {
    let begin = |name: &str| format!("{}\n{FUNCTION}{name}>\n", D::CALL);
    let end = format!("{FUNCTION_END}\n{}", D::CALL_END);
    let tags = demand.each(|tool| Tag::new(begin(tool.name), D::SPELLING.arguments(tool), &*end));
    demand.list(tags, "\n", D::CALL)
}

fn reader<D: Dialect>(tools: &[FunctionTool]) -> Box<dyn CallReader> {
    machine::reader(Qwen3Coder::<D>(std::marker::PhantomData), tools)
}

#[derive(Debug)]
struct Qwen3Coder<D>(std::marker::PhantomData<D>);

impl<D: Dialect> Grammar for Qwen3Coder<D> {
    const MARKERS: &'static [&'static str] = D::MARKS;
    const ARGUMENTS_BEGIN: Option<char> = Some('<');

    fn step(&self, state: ToolCallState, marker: &str) -> Option<(ToolCallState, Act)> {
        let (call, call_end) = (marker == D::CALL, marker == D::CALL_END);
        Some(match (state, marker) {
            (ToolCallState::Content | ToolCallState::Between, _) if call => (ToolCallState::Preamble, Act::Open),
            (ToolCallState::Content | ToolCallState::Between, FUNCTION) => (ToolCallState::Name, Act::Open),
            (ToolCallState::Content | ToolCallState::Between, _) if D::NEXT.contains(&marker) => {
                (ToolCallState::Name, Act::Open)
            }
            (_, _) if D::NEXT.contains(&marker) => (ToolCallState::Name, Act::Next),
            (ToolCallState::Preamble, FUNCTION) => (ToolCallState::Name, Act::Drop),
            (ToolCallState::Name, NAME_END) => (ToolCallState::Arguments, Act::Drop),
            (ToolCallState::Name | ToolCallState::Arguments | ToolCallState::Value, FUNCTION_END) => {
                (ToolCallState::Between, Act::Close)
            }
            // Outside of a value nothing else is text.
            (ToolCallState::Preamble | ToolCallState::Name | ToolCallState::Arguments, _) if call => {
                (ToolCallState::Preamble, Act::Next)
            }
            (ToolCallState::Name | ToolCallState::Arguments, FUNCTION) => (ToolCallState::Name, Act::Next),
            (ToolCallState::Preamble | ToolCallState::Name | ToolCallState::Arguments, _) if call_end => {
                (ToolCallState::Content, Act::Close)
            }
            (ToolCallState::Arguments | ToolCallState::Value, PARAMETER) => (ToolCallState::Value, Act::Keep),
            (ToolCallState::Value, PARAMETER_END) => (ToolCallState::Arguments, Act::Keep),
            (ToolCallState::Between, _) if call_end => (ToolCallState::Content, Act::Drop),
            _ => return None,
        })
    }

    fn read(&self, draft: Draft, tools: &Signatures) -> Reading {
        machine::read_call(&draft, tools, is_name, arguments::<D>)
    }
}

/// Whether a function may be called so: in markup whose marks are missing, anything may stand in a name's place.
fn is_name(name: &str) -> bool {
    !name.contains(|c: char| c == '<' || c.is_whitespace())
}

/// The values of `<parameter=KEY>VALUE</parameter>`. Where the end is missing, the next parameter ends a value, or the end
/// of the call.
fn arguments<D: Dialect>(body: &str) -> Arguments {
    let mut arguments = Arguments::default();
    let mut rest = body;
    while let Some((start, after)) = parameters::first(rest, opening) {
        arguments.unread.push_str(marker::trim(&rest[..start]));
        let Some((key, value)) = after.trim_start().split_once('>') else {
            arguments.begun = Some((after.to_owned(), rest[start..].to_owned()));
            return arguments;
        };
        let has = |other: &str| other == key || arguments.values.contains_key(other);
        let (end, next) = parameters::value_end(value, value_end, |text| opening(text).is_some(), begun_key, has)
            .unwrap_or_else(|| {
                arguments.open = true;
                (end_of_call_taken_off::<D>(value).len(), "")
            });
        arguments.insert(key, without_newlines::<D>(&value[..end]), &rest[start..rest.len() - next.len()]);
        rest = next;
    }
    arguments.unread.push_str(marker::trim(rest));
    arguments
}

/// A value in front of a call that ended it.
fn end_of_call_taken_off<D: Dialect>(value: &str) -> &str {
    let trimmed = marker::trim_end(value);
    trimmed.strip_suffix(D::CALL_END).map_or(value, marker::trim_end)
}

/// The text after `<parameter=`.
fn opening(text: &str) -> Option<&str> {
    parameters::tag(text, &["parameter", "="])
}

/// The text after `</parameter>`.
fn value_end(text: &str) -> Option<&str> {
    parameters::tag(text, &["/", "parameter", ">"])
}

/// The key of a parameter at the start of `text`, which may be cut off.
fn begun_key(text: &str) -> Option<&str> {
    let after = opening(text)?.trim_start();
    let head = after.split('<').next().unwrap_or(after);
    let key = head.split_once('>').map(|(key, _)| key);
    key.or((head.len() == after.len()).then_some(head))
}

fn without_newlines<D: Dialect>(value: &str) -> &str {
    let value = value.strip_prefix(D::NEWLINE).unwrap_or(value);
    value.strip_suffix(D::NEWLINE).unwrap_or(value)
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
                        r#"{"integer": 7, "number": 2.0, "boolean": true, "object": {"b": [1.0, null]}, "array": [1], "string": "1", "nullable": null, "other": "1"}"#,
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

    #[test]
    fn other_models_write_likewise() {
        let call = "<tool_call>\n<function=f>\n<parameter=string>\nW\n</parameter>\n<parameter=integer>\n7\n</parameter>\n</function>\n</tool_call>";
        let seed = call.replace("tool_call", "seed:tool_call").replace("=string>\nW\n<", "=string>W\n<");
        let cut = "<seed:tool_call><function=f><parameter=string>a<seed:tool_call><function=g>\n</seed:tool_call> on";
        let read: &[_] = &[("f", r#"{"string": "W", "integer": 7}"#)];
        check("step3p5", &[(&format!("so\n{call}"), "so", read)]);
        check("step5", &[(&format!("so\n{call}"), "so\n", read)]);
        check(
            "seed_oss",
            &[
                (&format!("so\n{seed} on"), "so on", &[("f", r#"{"string": "W\n", "integer": 7}"#)]),
                (cut, " on", &[("f", r#"{"string": "a"}"#), ("g", "{}")]),
            ],
        );
        check("mimo", &[(call, "", &[("f", r#"{"string": "\nW\n", "integer": 7}"#)])]);
    }
}
