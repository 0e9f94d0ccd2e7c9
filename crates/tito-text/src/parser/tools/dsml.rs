//! DeepSeek V3.2, V4 and V4.1: `<｜DSML｜invoke name="NAME">` with a
//! `<｜DSML｜parameter name="KEY" string="true">VALUE</｜DSML｜parameter>` for each argument, all between
//! `<｜DSML｜function_calls>` and its end (vLLM `parser/deepseek_v32.py`, `deepseek_v4.py` and `deepseek_v41.py`, called
//! like that). V4 has `tool_calls` around the calls, and V4.1 has `calls`, and a space in each mark.
//!
//! A value is text where it says so, and JSON otherwise; what is no JSON is text too. (vLLM takes any word after `string=`
//! for `false`; here a parameter with another word than these two is none.) The tool's schema may want another
//! type. Arguments that are all under one key, `arguments` or `input`, which the tool does not know, are taken out of it.

use std::{fmt, marker::PhantomData};

use super::{
    call_format::{CallFormat, CallReader},
    forcing::{Demand, Forcing, Grammar as Written, TextIs},
    machine::{self, Act, Arguments, Draft, Grammar, Reading, ToolCallState, Typed},
    one_by_one::Spelling,
    parameters,
    schema::Signatures,
};
use crate::{
    chat::FunctionTool,
    json::Value,
    parser::{ToolCall, marker},
    structured::{Format, Tag},
};

const NAME_END: &str = "\">";
/// What may be special tokens besides the marks of each model. The first is what their marks are made of.
const TOKENS: [&str; 3] = ["｜DSML｜", "<think>", "</think>"];
/// Keys that may stand around all arguments.
const WRAPPERS: [&str; 2] = ["arguments", "input"];

pub(super) const V32: CallFormat = call_format::<V32Marks>("deepseek_v32");
pub(super) const V4: CallFormat = call_format::<V4Marks>("deepseek_v4");
pub(super) const V41: CallFormat = call_format::<V41Marks>("deepseek_v41");

/// How a model spells its marks.
trait Dialect: Send + fmt::Debug + 'static {
    /// What may begin a list of calls; the first one is what it should be.
    const CALLS: &'static [&'static str];
    const CALLS_END: &'static str;
    /// Before a name, and before what ends it.
    const INVOKE: &'static str = "<｜DSML｜invoke name=\"";
    const INVOKE_END: &'static str = "</｜DSML｜invoke>";
    const PARAMETER: &'static str = "<｜DSML｜parameter";
    const PARAMETER_END: &'static str = "</｜DSML｜parameter>";
    /// What the reader acts on within a value.
    const MARKS_IN_VALUES: &'static [&'static str] =
        &[Self::CALLS_END, Self::INVOKE_END, Self::PARAMETER, Self::PARAMETER_END];
    const SPELLING: Spelling<'static> = Spelling {
        key: "<｜DSML｜parameter name=\"",
        value: "\" string=\"true\">",
        json: "\" string=\"false\">",
        end: "</｜DSML｜parameter>\n",
        marks: Self::MARKS_IN_VALUES,
        text: TextIs::Marked,
    };
    /// All of these, and what ends a name.
    const MARKERS: &'static [&'static str] = &[
        Self::CALLS[0],
        Self::CALLS_END,
        Self::INVOKE,
        Self::INVOKE_END,
        NAME_END,
        Self::PARAMETER,
        Self::PARAMETER_END,
    ];
    /// All that may be special tokens.
    const MARKS: &'static [&'static str] = &[Self::CALLS[0], Self::CALLS_END, TOKENS[0], TOKENS[1], TOKENS[2]];
}

#[derive(Debug)]
struct V32Marks;

impl Dialect for V32Marks {
    const CALLS: &'static [&'static str] = &["<｜DSML｜function_calls>"];
    const CALLS_END: &'static str = "</｜DSML｜function_calls>";
}

#[derive(Debug)]
struct V4Marks;

impl Dialect for V4Marks {
    const CALLS: &'static [&'static str] = &["<｜DSML｜tool_calls>", "<｜DSML｜toolcalls>", "<｜DSML｜tool>"];
    const CALLS_END: &'static str = "</｜DSML｜tool_calls>";
    const MARKERS: &'static [&'static str] = &[
        Self::CALLS[0],
        Self::CALLS[1],
        Self::CALLS[2],
        Self::CALLS_END,
        Self::INVOKE,
        Self::INVOKE_END,
        NAME_END,
        Self::PARAMETER,
        Self::PARAMETER_END,
    ];
}

#[derive(Debug)]
struct V41Marks;

impl Dialect for V41Marks {
    const CALLS: &'static [&'static str] = &["<｜DSML｜ calls>"];
    const CALLS_END: &'static str = "</｜DSML｜ calls>";
    const INVOKE: &'static str = "<｜DSML｜ invoke name=\"";
    const INVOKE_END: &'static str = "</｜DSML｜ invoke>";
    const PARAMETER: &'static str = "<｜DSML｜ parameter";
    const PARAMETER_END: &'static str = "</｜DSML｜ parameter>";
    const SPELLING: Spelling<'static> = Spelling {
        key: "<｜DSML｜ parameter name=\"",
        value: "\" string=\"true\">",
        json: "\" string=\"false\">",
        end: "</｜DSML｜ parameter>\n",
        marks: Self::MARKS_IN_VALUES,
        text: TextIs::Marked,
    };
}

const fn call_format<D: Dialect>(name: &'static str) -> CallFormat {
    let written = Written { one_by_one: Some(TextIs::Marked), ..Written::new(grammar::<D>) };
    CallFormat {
        trims: false,
        begins_call: D::CALLS,
        ..CallFormat::engine(name, reader::<D>, Forcing::Native(written), D::MARKS)
    }
}

/// A line for each mark.
fn grammar<D: Dialect>(demand: &Demand<'_>) -> Format {
    let begin = |name: &str| format!("{}{name}{NAME_END}\n", D::INVOKE);
    let end = format!("{}\n", D::INVOKE_END);
    let tags = demand.each(|tool| Tag::new(begin(tool.name), D::SPELLING.arguments(tool), &*end));
    demand.section(&format!("{}\n", D::CALLS[0]), tags, "", D::CALLS_END)
}

fn reader<D: Dialect>(tools: &[FunctionTool]) -> Box<dyn CallReader> {
    machine::reader(Dsml::<D>(PhantomData), tools)
}

#[derive(Debug)]
struct Dsml<D>(PhantomData<D>);

impl<D: Dialect> Grammar for Dsml<D> {
    const MARKERS: &'static [&'static str] = D::MARKERS;
    const ARGUMENTS_BEGIN: Option<char> = Some('<');

    fn step(&self, state: ToolCallState, marker: &str) -> Option<(ToolCallState, Act)> {
        let outside = matches!(state, ToolCallState::Content | ToolCallState::Preamble | ToolCallState::Between);
        let inside = matches!(state, ToolCallState::Name | ToolCallState::Arguments | ToolCallState::Value);
        Some(match state {
            _ if outside && D::CALLS.contains(&marker) => (ToolCallState::Preamble, Act::Drop),
            _ if outside && marker == D::CALLS_END => (ToolCallState::Content, Act::Drop),
            _ if outside && marker == D::INVOKE => (ToolCallState::Name, Act::Open),
            ToolCallState::Name if marker == NAME_END => (ToolCallState::Arguments, Act::Drop),
            _ if inside && marker == D::INVOKE_END => (ToolCallState::Between, Act::Close),
            _ if inside && marker == D::CALLS_END => (ToolCallState::Content, Act::Close),
            // Within a value it is text.
            ToolCallState::Name | ToolCallState::Arguments if marker == D::INVOKE => (ToolCallState::Name, Act::Next),
            ToolCallState::Arguments | ToolCallState::Value if marker == D::PARAMETER => {
                (ToolCallState::Value, Act::Keep)
            }
            ToolCallState::Value if marker == D::PARAMETER_END => (ToolCallState::Arguments, Act::Keep),
            _ => return None,
        })
    }

    fn read(&self, draft: Draft, tools: &Signatures) -> Reading {
        let reading = machine::read_call(&draft, tools, |name| !name.contains('<'), arguments::<D>);
        Reading { call: reading.call.map(|call| unwrapped(call, tools)), ..reading }
    }
}

/// The values of the parameters. Where the end is missing, the next parameter ends a value, or the end of the call.
fn arguments<D: Dialect>(body: &str) -> Arguments {
    let mut arguments = Arguments { typed: Typed::Said, ..Arguments::default() };
    let mut rest = body;
    while let Some(start) = next_parameter::<D>(rest) {
        arguments.unread.push_str(marker::trim(&rest[..start]));
        let written = &rest[start..];
        let Some(Parameter { key, is_text, value }) = parameter::<D>(written) else {
            // What has no name is text, but at the end of the text it may have got one.
            let Some(next) = next_parameter::<D>(&written[1..]) else {
                match begun_key::<D>(written) {
                    Some(key) => arguments.begun = Some((key.to_owned(), written.to_owned())),
                    None => arguments.unread.push_str(written),
                }
                return arguments;
            };
            arguments.unread.push_str(&written[..=next]);
            rest = &written[1 + next..];
            continue;
        };
        let has = |other: &str| other == key || arguments.values.contains_key(other);
        let opens = |rest| opening::<D>(rest).is_some();
        let end = parameters::value_end(value, |rest| rest.strip_prefix(D::PARAMETER_END), opens, in_value::<D>, has);
        let (end, next) = end.unwrap_or_else(|| {
            arguments.open = true;
            (value.len(), "")
        });
        let text = &value[..end];
        let json = if is_text { None } else { Value::parse_literally(text).ok() };
        arguments.insert(key, json.unwrap_or_else(|| text.into()), &written[..written.len() - next.len()]);
        rest = next;
    }
    arguments.unread.push_str(marker::trim(rest));
    arguments
}

struct Parameter<'t> {
    key: &'t str,
    /// Whether the value is said to be text.
    is_text: bool,
    /// The text from the value on.
    value: &'t str,
}

/// `<｜DSML｜parameter name="KEY" string="true">`, of which `string` may be missing.
fn parameter<D: Dialect>(text: &str) -> Option<Parameter<'_>> {
    let (key, rest) = opening::<D>(text)?.split_once('"').filter(|(key, _)| !key.is_empty())?;
    let (is_text, rest) = match spaced(rest, "string=\"") {
        Some(rest) => {
            let (value, rest) = rest.split_once('"')?;
            (matches!(value, "true" | "false").then_some(value == "true")?, rest)
        }
        None => (false, rest),
    };
    Some(Parameter { key, is_text, value: rest.trim_start().strip_prefix('>')? })
}

/// The key of a parameter that ends before its value.
fn begun_key<D: Dialect>(text: &str) -> Option<&str> {
    let named = opening::<D>(text)?;
    let (key, rest) = named.split_once('"').unwrap_or((named, ""));
    let rest = marker::trim(rest);
    ["string=\"true\"", "string=\"false\""].iter().any(|word| word.starts_with(rest)).then_some(key)
}

/// The text after `<｜DSML｜parameter name="`.
fn opening<D: Dialect>(text: &str) -> Option<&str> {
    spaced(text.strip_prefix(D::PARAMETER)?, "name=\"")
}

/// The text after white space and a word.
fn spaced<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    let rest = text.trim_start();
    rest.strip_prefix(word).filter(|_| rest.len() < text.len())
}

fn next_parameter<D: Dialect>(text: &str) -> Option<usize> {
    let mut starts = text.match_indices(D::PARAMETER);
    starts.find_map(|(at, _)| opening::<D>(&text[at..]).map(|_| at))
}

/// The key of a parameter at the start of `text`, which may be cut off.
fn in_value<D: Dialect>(text: &str) -> Option<&str> {
    let after = opening::<D>(text)?;
    let head = &text[..text.len() - after.len() + after.find('<').unwrap_or(after.len())];
    let key = parameter::<D>(head).map(|parameter| parameter.key);
    key.or((head.len() == text.len()).then_some(after))
}

/// The call without a key that stands around its arguments.
fn unwrapped(call: ToolCall, tools: &Signatures) -> ToolCall {
    let inner = Value::parse_literally(&call.arguments).ok().and_then(|arguments| {
        let (key, inner) =
            arguments.as_object()?.first().filter(|_| arguments.as_object().is_some_and(|all| all.len() == 1))?;
        let wraps = WRAPPERS.contains(&key.as_str()) && !tools.name_all(&call.name, [key].into_iter());
        let inner = inner
            .as_str()
            .map_or_else(|| Some(inner.clone()), |text| Value::parse_literally(text).ok())
            .filter(|_| wraps)?;
        tools.name_all(&call.name, inner.as_object()?.keys()).then(|| inner.to_json_string())
    });
    match inner {
        Some(arguments) => ToolCall { arguments: tools.fit(&call.name, arguments), ..call },
        None => call,
    }
}

#[cfg(test)]
mod tests {
    use crate::parser::tools::tests::check;

    #[test]
    fn texts_are_read_so() {
        for (name, calls, space) in
            [("deepseek_v32", "function_calls", ""), ("deepseek_v4", "tool_calls", ""), ("deepseek_v41", "calls", " ")]
        {
            let text = |text: &str| {
                let text =
                    text.replace("<:", &format!("<｜DSML｜{space}")).replace("</:", &format!("</｜DSML｜{space}"));
                text.replace("CALLS", calls)
            };
            let typed = text(
                "<:CALLS>\n<:invoke name=\"f\">\n<:parameter name=\"integer\" string=\"false\">7</:parameter>\n<:parameter name=\"number\" string=\"false\">2.5</:parameter>\n<:parameter name=\"object\" string=\"false\">{\"b\": [1.0, null]}</:parameter>\n<:parameter name=\"string\" string=\"true\">\n1 </:parameter>\n<:parameter name=\"other\" string=\"true\">1</:parameter>\n<:parameter name=\"more\">1</:parameter>\n<:parameter name=\"most\">so</:parameter>\n</:invoke>\n</:CALLS>",
            );
            let two = text(
                "I look.\n\n<:CALLS>\n<:invoke name=\"f\">\n<:parameter name=\"integer\" string=\"false\">1</:parameter>\n</:invoke>\n<:invoke name=\"g\">\n</:invoke>\n</:CALLS> done",
            );
            let next = text(
                "<:CALLS><:invoke name=\"f\"><:parameter name=\"string\" string=\"true\">a<:parameter name=\"integer\">1</:parameter><:invoke name=\"g\"></:CALLS>",
            );
            let cut = text("so <:CALLS>\n<:invoke name=\"f\">\n<:parameter name=\"string\" string=\"true\">é 1");
            let in_name = text("so <:CALLS>\n<:invoke name=\"f");
            let bare = text("<:invoke name=\"h\"><:parameter name=\"\">1</:parameter></:invoke> x");
            let nameless = text("<:parameter name=\"\">1</:parameter>");
            let mention = text("so <:CALLS> x");
            let said = text(
                "<:invoke name=\"f\"><:parameter name=\"integer\" string=\"true\">5</:parameter><:parameter name=\"string\" string=\"false\">5</:parameter><:parameter name=\"array\" string=\"false\">[\"1\", null]</:parameter></:invoke>",
            );
            let wrapped = text(
                "<:invoke name=\"f\"><:parameter name=\"arguments\" string=\"false\">{\"integer\": \"1\"}</:parameter></:invoke>",
            );
            let other = text(
                "<:invoke name=\"f\"><:parameter name=\"arguments\" string=\"false\">{\"x\": 1}</:parameter></:invoke>",
            );
            check(
                name,
                &[
                    (
                        &typed,
                        "",
                        &[(
                            "f",
                            r#"{"integer": 7, "number": 2.5, "object": {"b": [1.0, null]}, "string": "\n1 ", "other": "1", "more": 1, "most": "so"}"#,
                        )],
                    ),
                    (&two, "I look.\n\n done", &[("f", r#"{"integer": 1}"#), ("g", "{}")]),
                    (&next, "", &[("f", r#"{"string": "a", "integer": 1}"#), ("g", "{}")]),
                    (&cut, "so ", &[("f", r#"{"string": "é 1"#)]),
                    (&in_name, &in_name, &[]),
                    (&bare, &format!("{nameless} x"), &[("h", "{}")]),
                    (&mention, &mention, &[]),
                    (&said, "", &[("f", r#"{"integer": 5, "string": "5", "array": ["1", null]}"#)]),
                    (&wrapped, "", &[("f", r#"{"integer": 1}"#)]),
                    (&other, "", &[("f", r#"{"arguments": {"x": 1}}"#)]),
                ],
            );
        }
    }
}
