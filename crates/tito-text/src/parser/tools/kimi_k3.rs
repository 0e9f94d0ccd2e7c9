//! Kimi K3: `<|open|>call tool="NAME" index="1"<|sep|>` with
//! `<|open|>argument key="KEY" type="string"<|sep|>VALUE<|close|>argument<|sep|>` for each argument, and
//! `<|close|>call<|sep|>`; all calls between `<|open|>tools<|sep|>` and its end (vLLM `tool_parsers/kimi_k3_tool_parser.py`,
//! called `kimi_k3`).
//!
//! A value is text where its type is `string`, and JSON otherwise; what is no JSON is text too. The marks of the channel
//! of the answer, `response`, and of the end of the message are only marks.
//!
//! What deviates on purpose: a call without an end is one, and ends where the next one begins.

use super::{
    call_format::{CallFormat, CallReader},
    forcing::Forcing,
    machine::{self, Act, Arguments, Draft, Grammar, Reading, ToolCallState},
    parameters,
    schema::Signatures,
};
use crate::{chat::FunctionTool, json::Value, parser::marker};

const CALLS: &str = "<|open|>tools<|sep|>";
const CALLS_END: &str = "<|close|>tools<|sep|>";
const CALL: &str = "<|open|>call ";
const CALL_END: &str = "<|close|>call<|sep|>";
const ARGUMENT: &str = "<|open|>argument ";
const ARGUMENT_END: &str = "<|close|>argument<|sep|>";
/// What ends the attributes of a call or an argument.
const SEPARATOR: &str = "<|sep|>";
const RESPONSE: &str = "<|open|>response<|sep|>";
const RESPONSE_END: &str = "<|close|>response<|sep|>";
const MESSAGE_END: &str = "<|close|>message<|sep|>";
/// The types that values may have.
const TYPES: [&str; 6] = ["string", "number", "boolean", "null", "object", "array"];

/// Nothing forces its calls: the channel of the answer has to be closed before them, and whether it is open is up to the
/// prompt.
pub(super) const KIMI_K3: CallFormat = CallFormat {
    begins_call: &[CALLS],
    marks: &["<|open|>", "<|close|>", SEPARATOR],
    ..CallFormat::new("kimi_k3", reader, Forcing::Unknown)
};

fn reader(tools: &[FunctionTool]) -> Box<dyn CallReader> {
    machine::reader(KimiK3, tools)
}

#[derive(Debug)]
struct KimiK3;

impl Grammar for KimiK3 {
    const MARKERS: &'static [&'static str] =
        &[CALLS, CALLS_END, CALL, CALL_END, ARGUMENT, ARGUMENT_END, SEPARATOR, RESPONSE, RESPONSE_END, MESSAGE_END];
    const ARGUMENTS_BEGIN: Option<char> = Some('<');

    fn step(&self, state: ToolCallState, marker: &str) -> Option<(ToolCallState, Act)> {
        Some(match (state, marker) {
            (ToolCallState::Content | ToolCallState::Preamble | ToolCallState::Between, CALLS) => {
                (ToolCallState::Preamble, Act::Drop)
            }
            (ToolCallState::Preamble | ToolCallState::Between, CALLS_END)
            | (ToolCallState::Content, RESPONSE | RESPONSE_END | MESSAGE_END) => (ToolCallState::Content, Act::Drop),
            (ToolCallState::Preamble | ToolCallState::Between, CALL) => (ToolCallState::Name, Act::Open),
            (ToolCallState::Name, SEPARATOR) => (ToolCallState::Arguments, Act::Drop),
            (ToolCallState::Name | ToolCallState::Arguments | ToolCallState::Value, CALL) => {
                (ToolCallState::Name, Act::Next)
            }
            (ToolCallState::Name | ToolCallState::Arguments | ToolCallState::Value, CALL_END) => {
                (ToolCallState::Between, Act::Close)
            }
            (ToolCallState::Name | ToolCallState::Arguments | ToolCallState::Value, CALLS_END) => {
                (ToolCallState::Content, Act::Close)
            }
            (ToolCallState::Arguments | ToolCallState::Value, ARGUMENT) => (ToolCallState::Value, Act::Keep),
            (ToolCallState::Value, ARGUMENT_END) => (ToolCallState::Arguments, Act::Keep),
            _ => return None,
        })
    }

    /// The types of the values are written with them, so that the tool's schema has no say.
    fn read(&self, draft: Draft, _tools: &Signatures) -> Reading {
        let Some(Attributes { name, rest, .. }) = attributes(&draft.name, "tool").filter(|call| !call.name.is_empty())
        else {
            return Reading::default();
        };
        let reading = machine::read_call(&Draft { name, ..draft }, &Signatures::of(&[]), |_| true, arguments);
        Reading { unread: rest + &reading.unread, ..reading }
    }
}

fn arguments(body: &str) -> Arguments {
    let mut arguments = Arguments::default();
    let mut rest = body;
    while let Some((before, after)) = rest.split_once(ARGUMENT) {
        arguments.unread.push_str(marker::trim(before));
        let written = &rest[before.len()..];
        let own = in_value(written);
        let has = |key: &str| own == Some(key) || arguments.values.contains_key(&decoded(key));
        let opens = |text: &str| text.starts_with(ARGUMENT);
        let end = parameters::value_end(after, |text| text.strip_prefix(ARGUMENT_END), opens, in_value, has);
        let (end, next) = end.unwrap_or_else(|| {
            arguments.open = true;
            (after.len() - marker::begun(after, &[ARGUMENT_END]), "")
        });
        rest = next;
        let written = &written[..written.len() - next.len()];
        let Some((header, value)) = after[..end].split_once(SEPARATOR) else {
            match begun_key(after).filter(|_| next.is_empty()) {
                Some(key) => arguments.begun = Some((key, written.to_owned())),
                None => arguments.unread.push_str(written),
            }
            continue;
        };
        let Some(Attributes { name, is_text, rest: more }) = attributes(header, "key") else {
            arguments.unread.push_str(written);
            continue;
        };
        arguments.unread.push_str(&more);
        let json = if is_text { None } else { Value::parse_literally(value).ok() };
        arguments.insert(&name, json.unwrap_or_else(|| value.into()), written);
    }
    arguments.unread.push_str(marker::trim(rest));
    arguments
}

/// What stands in the mark of a call or an argument.
struct Attributes {
    name: String,
    /// Whether the value is text.
    is_text: bool,
    /// Attributes that are not known.
    rest: String,
}

/// `KEY="VALUE" …`, of which the one called `named` has to be there, and nothing else may.
fn attributes(text: &str, named: &str) -> Option<Attributes> {
    let mut found = Attributes { name: String::new(), is_text: true, rest: String::new() };
    let mut has_name = false;
    let mut text = marker::trim(text);
    while !text.is_empty() {
        let (key, after) = text.split_once("=\"")?;
        let (value, next) = after.split_once('"')?;
        match key {
            _ if key == named && !has_name => {
                has_name = true;
                found.name = decoded(value);
            }
            "type" if TYPES.contains(&value) => found.is_text = value == "string",
            "index" if value.bytes().all(|byte| byte.is_ascii_digit()) => {}
            _ => found.rest.push_str(&text[..text.len() - next.len()]),
        }
        text = next.trim_start_matches(marker::is_space);
    }
    has_name.then_some(found)
}

/// The key of an argument that ends before its value.
fn begun_key(text: &str) -> Option<String> {
    let named = text.trim_start().strip_prefix("key=\"")?;
    let (key, rest) = named.split_once('"').unwrap_or((named, ""));
    let rest = rest.trim_start();
    let begins = |name: &str| format!("type=\"{name}\"{SEPARATOR}").starts_with(rest);
    TYPES.iter().any(|name| begins(name)).then(|| decoded(key))
}

/// The key of an argument at the start of `text`, as it is written; it may be cut off.
fn in_value(text: &str) -> Option<&str> {
    let after = text.strip_prefix(ARGUMENT)?;
    let (head, rest) = after.split_at(after.find('<').unwrap_or(after.len()));
    let ends = rest.starts_with(SEPARATOR) || SEPARATOR.starts_with(rest);
    let key = head.trim_start().strip_prefix("key=\"").filter(|_| ends);
    key.map(|key| key.split('"').next().unwrap_or(key)).or(rest.is_empty().then_some(head))
}

/// The text of an attribute.
fn decoded(value: &str) -> String {
    value.replace("&quot;", "\"").replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use crate::parser::tools::tests::check;

    #[test]
    fn texts_are_read_so() {
        check(
            "kimi_k3",
            &[
                (
                    "<|open|>response<|sep|>I look.<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|><|open|>argument key=\"integer\" type=\"number\"<|sep|>7<|close|>argument<|sep|><|open|>argument key=\"a &amp;quot; &quot;\" type=\"string\"<|sep|> 1\n<|close|>argument<|sep|><|open|>argument key=\"o\" type=\"object\"<|sep|>{\"b\":[1.0,null]}<|close|>argument<|sep|><|close|>call<|sep|><|open|>call tool=\"g\" index=\"2\"<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>",
                    "I look.",
                    &[("f", r#"{"integer": 7, "a &quot; \"": " 1\n", "o": {"b": [1.0, null]}}"#), ("g", "{}")],
                ),
                ("I look.<|close|>response<|sep|>", "I look.", &[]),
                (
                    "<|open|>tools<|sep|><|open|>call tool=\"f\"<|sep|><|open|>argument key=\"string\" type=\"string\"<|sep|>a<|open|>argument key=\"integer\" type=\"number\"<|sep|>x<|close|>argument<|sep|><|open|>call tool=\"g\" index=\"2\"<|sep|><|close|>tools<|sep|> so",
                    " so",
                    &[("f", r#"{"string": "a", "integer": "x"}"#), ("g", "{}")],
                ),
                (
                    "<|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|><|open|>argument key=\"string\" type=\"string\"<|sep|>é<|close|>argu",
                    "",
                    &[("f", r#"{"string": "é"#)],
                ),
                (
                    "<|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|><|open|>argument key=\"string\" ty",
                    "",
                    &[("f", r#"{"string"#)],
                ),
                ("so <|open|>tools<|sep|><|open|>call tool=\"f", "so <|open|>tools<|sep|><|open|>call tool=\"f", &[]),
                (
                    "<|open|>tools<|sep|><|open|>call index=\"1\"<|sep|><|close|>call<|sep|>",
                    "<|open|>tools<|sep|><|open|>call index=\"1\"<|sep|><|close|>call<|sep|>",
                    &[],
                ),
                ("so <|open|>tools<|sep|> x", "so <|open|>tools<|sep|> x", &[]),
                ("<|open|>call tool=\"f\"<|sep|>", "<|open|>call tool=\"f\"<|sep|>", &[]),
            ],
        );
    }
}
