//! Gemma 4: `<|tool_call>call:NAME{KEY:<|"|>VALUE<|"|>,…}<tool_call|>` (vLLM `parser/gemma4.py`, called `gemma4`).
//!
//! Text stands in quotes; what does not is JSON, or one of Python's words for it. Other text without quotes is text. A value of
//! a type that the tool's schema does not allow becomes what it asks for.

use super::{
    call_format::{CallFormat, CallReader},
    forcing::Forcing,
    machine::{self, Act, Arguments, Draft, Grammar, Reading, ToolCallState, Typed},
    schema::{Signatures, is_finite},
};
use crate::{
    chat::FunctionTool,
    json::{MAX_DEPTH, Object, Value},
    parser::marker,
};

const CALL: &str = "<|tool_call>";
const CALL_END: &str = "<tool_call|>";
const PREFIX: &str = "call:";
const COLON: &str = ":";
const BRACE: &str = "{";
const PARENTHESIS: &str = "(";
const QUOTE: &str = "<|\"|>";
const MARKS: &[&str] = &[CALL, CALL_END, QUOTE, "<|channel>", "<channel|>"];

/// Nothing forces its calls: keys stand without quotes and text between `<|"|>`, and only JSON can be held to a schema.
pub(super) const GEMMA4: CallFormat =
    CallFormat { begins_call: &[CALL], ..CallFormat::engine("gemma4", reader, Forcing::Unknown, MARKS) };

fn reader(tools: &[FunctionTool]) -> Box<dyn CallReader> {
    machine::reader(Gemma4, tools)
}

#[derive(Debug)]
struct Gemma4;

impl Grammar for Gemma4 {
    const MARKERS: &'static [&'static str] = &[CALL, CALL_END, PREFIX, COLON, BRACE, PARENTHESIS, QUOTE];
    const QUOTES_VALUES: bool = true;

    fn step(&self, state: ToolCallState, marker: &str) -> Option<(ToolCallState, Act)> {
        Some(match (state, marker) {
            (ToolCallState::Content, CALL) => (ToolCallState::Preamble, Act::Open),
            (ToolCallState::Content, CALL_END) => (ToolCallState::Content, Act::Drop),
            (
                ToolCallState::Preamble | ToolCallState::Name | ToolCallState::Arguments | ToolCallState::Value,
                CALL_END,
            ) => (ToolCallState::Content, Act::Close),
            // Within quotes it is text.
            (ToolCallState::Preamble | ToolCallState::Name | ToolCallState::Arguments, CALL) => {
                (ToolCallState::Preamble, Act::Next)
            }
            (ToolCallState::Preamble, PREFIX | COLON) => (ToolCallState::Name, Act::Drop),
            (ToolCallState::Name, BRACE | PARENTHESIS) => (ToolCallState::Arguments, Act::Drop),
            (ToolCallState::Arguments, QUOTE) => (ToolCallState::Value, Act::Keep),
            (ToolCallState::Value, QUOTE) => (ToolCallState::Arguments, Act::Keep),
            _ => return None,
        })
    }

    fn read(&self, draft: Draft, tools: &Signatures) -> Reading {
        let reading = machine::read_call(&draft, tools, |_| true, arguments);
        // Punctuation that is missing may hide a part of the arguments.
        if reading.unread.is_empty() { reading } else { Reading::default() }
    }
}

/// The values of what stands after the first brace.
fn arguments(body: &str) -> Arguments {
    let body = marker::trim(body);
    let closes = |text: &&str| text.matches('(').count() < text.matches(')').count();
    let inner = body.strip_suffix('}').or_else(|| Some(body).filter(closes)?.strip_suffix(')'));
    // The last brace may be one of an object among the arguments.
    let whole = nested(body, '{', '}').1.is_some() || (inner.is_some() && body.ends_with(')'));
    let texts = object(inner.unwrap_or(body), 0, text);
    let unread = if letters_of(&texts) == letters(body) { String::new() } else { body.to_owned() };
    let values = object(inner.unwrap_or(body), 0, bare_value);
    Arguments { values, unread, open: !whole, whole, typed: Typed::Said, ..Arguments::default() }
}

/// What is written without quotes, to the letter.
fn text(bare: &str) -> Value {
    Value::from(bare)
}

/// What is written without quotes, in JSON's words or in those of Python, which the template has for some values.
fn bare_value(bare: &str) -> Value {
    match bare {
        "None" => Value::Null,
        "True" => Value::Bool(true),
        "False" => Value::Bool(false),
        _ => {
            let json = Value::parse_literally(bare).ok().filter(|value| !matches!(value, Value::String(_)));
            json.filter(is_finite).unwrap_or_else(|| Value::from(bare))
        }
    }
}

/// What a text has beside punctuation and white space, in its order.
fn letters(text: &str) -> String {
    text.replace(QUOTE, "").chars().filter(|c| !c.is_ascii_punctuation() && !marker::is_space(*c)).collect()
}

/// What keys and values have beside punctuation and white space, in their order.
fn letters_of(values: &Object) -> String {
    fn add(value: &Value, text: &mut String) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| add(item, text)),
            Value::Object(object) => object.iter().for_each(|(key, value)| {
                text.push_str(key);
                add(value, text);
            }),
            value => text.push_str(value.as_str().unwrap_or_default()),
        }
    }
    let mut text = String::new();
    for (key, value) in values {
        text.push_str(key);
        add(value, &mut text);
    }
    letters(&text)
}

/// Reads a value without quotes.
type ReadBare = fn(&str) -> Value;

/// The pairs of an object.
fn object(text: &str, depth: usize, bare: ReadBare) -> Object {
    let mut object = Object::default();
    let mut rest = after_separators(text);
    while let Some((key, after)) = rest.split_once(':') {
        let key = unquoted(marker::trim(key)).to_owned();
        let after = after.trim_start_matches([' ', '\n', '\t']);
        if after.is_empty() {
            object.insert(key, Value::from(""));
            break;
        }
        let Some((value, next)) = value(after, &[',', '}', ']'], depth, bare) else { break };
        object.insert(key, value);
        rest = after_separators(next);
    }
    object
}

fn array(text: &str, depth: usize, bare: ReadBare) -> Vec<Value> {
    let mut items = Vec::new();
    let mut rest = after_separators(text);
    while !rest.is_empty() {
        let Some((item, next)) = value(rest, &[',', ']'], depth, bare) else { break };
        items.push(item);
        rest = after_separators(next);
    }
    items
}

/// The next value, and what follows it; `None` where there is no value.
fn value<'t>(text: &'t str, ends: &[char], depth: usize, read_bare: ReadBare) -> Option<(Value, &'t str)> {
    if let Some(string) = text.strip_prefix(QUOTE) {
        return Some(match string.split_once(QUOTE) {
            Some((string, rest)) => (Value::from(string), rest),
            None => (Value::from(&string[..string.len() - begun_quote(string)]), ""),
        });
    }
    for (open, close) in [('{', '}'), ('[', ']')] {
        let Some(inside) = text.strip_prefix(open) else { continue };
        let (inside, rest) = nested(inside, open, close);
        let value = match open {
            _ if depth >= MAX_DEPTH => return None,
            '{' => Value::from(object(inside, depth + 1, read_bare)),
            _ => Value::Array(array(inside, depth + 1, read_bare)),
        };
        return Some((value, rest.unwrap_or("")));
    }
    let bare = &text[..text.find(ends).unwrap_or(text.len())];
    // A quote in the middle says that this is no value: a key with a colon, or text with quotes of its own.
    if bare.is_empty() || bare.contains(QUOTE) {
        return None;
    }
    Some((read_bare(marker::trim(bare)), &text[bare.len()..]))
}

/// What is inside of brackets, with quotes left alone, and what follows the brackets if they are closed.
fn nested(text: &str, open: char, close: char) -> (&str, Option<&str>) {
    let mut depth = 1;
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        if let Some(string) = text[at..].strip_prefix(QUOTE) {
            at = text.len() - string.split_once(QUOTE).map_or(0, |(_, rest)| rest.len());
            continue;
        }
        depth += usize::from(c == open);
        depth -= usize::from(c == close);
        if depth == 0 {
            return (&text[..at], Some(&text[at + 1..]));
        }
        at += c.len_utf8();
    }
    (text, None)
}

fn after_separators(text: &str) -> &str {
    text.trim_start_matches([' ', ',', '\n', '\t'])
}

fn unquoted(key: &str) -> &str {
    if key == QUOTE {
        return "";
    }
    let inner = key.strip_prefix(QUOTE).and_then(|key| key.strip_suffix(QUOTE));
    inner.unwrap_or(key)
}

/// Bytes at the end of a string that may be the start of its closing quote.
fn begun_quote(string: &str) -> usize {
    marker::begun(string, &[QUOTE])
}

#[cfg(test)]
mod tests {
    use crate::parser::tools::tests::check;

    #[test]
    fn texts_are_read_so() {
        check(
            "gemma4",
            &[
                (
                    r#"I look. <|tool_call>call:f{integer:7,number:2.5,boolean:true,string:<|"|>é, {x}<|"|>,nullable:null}<tool_call|><|tool_call>call:g{}<tool_call|> done"#,
                    "I look. done",
                    &[
                        (
                            "f",
                            r#"{"integer": 7, "number": 2.5, "boolean": true, "string": "é, {x}", "nullable": null}"#,
                        ),
                        ("g", "{}"),
                    ],
                ),
                (
                    r#"<|tool_call>call:f{object:{b:[<|"|>x<|"|>,1,{c:2}],<|"|>d<|"|>:{}},array:[[1],[]],other:1}<tool_call|>"#,
                    "",
                    &[("f", r#"{"object": {"b": ["x", 1, {"c": 2}], "d": {}}, "array": [[1], []], "other": 1}"#)],
                ),
                ("<|tool_call>:g{}<tool_call|>", "", &[("g", "{}")]),
                ("<|tool_call>call:f(integer:7)<tool_call|>", "", &[("f", r#"{"integer": 7}"#)]),
                (r#"<|tool_call>call:f{string:<|"|>cut"#, "", &[("f", r#"{"string": "cut"#)]),
                ("<|tool_call>call:f{object:{a:1,b:2", "", &[("f", r#"{"object": {"a": 1, "b": 2"#)]),
                ("so <|tool_call>call:", "so ", &[]),
                ("so <tool_call|> x", "so  x", &[]),
                ("a: {b} (call: c)", "a: {b} (call: c)", &[]),
                (
                    r#"<|tool_call>call:f{a:b:<|"|>x<|"|>}<tool_call|>"#,
                    r#"<|tool_call>call:f{a:b:<|"|>x<|"|>}<tool_call|>"#,
                    &[],
                ),
                ("<|tool_call>call:h{a:1}<tool_call|>", "", &[("h", r#"{"a": 1}"#)]),
                (
                    r#"<|tool_call>call:f{object:{a:None,b:[True,False,null,-2.50],c:{d:x y}},string:1,other:<|"|>02134<|"|>}<tool_call|>"#,
                    "",
                    &[(
                        "f",
                        r#"{"object": {"a": null, "b": [true, false, null, -2.50], "c": {"d": "x y"}}, "string": "1", "other": "02134"}"#,
                    )],
                ),
                (
                    r#"<|tool_call>call:f{array:[<|"|>1<|"|>,"x"],integer:<|"|>5<|"|>}<tool_call|>"#,
                    "",
                    &[("f", r#"{"array": ["1", "\"x\""], "integer": 5}"#)],
                ),
            ],
        );
    }
}
