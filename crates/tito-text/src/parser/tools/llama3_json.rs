//! Llama 3.x: JSON objects with `name`, and `arguments` or `parameters` (vLLM `tool_parsers/llama_tool_parser.py`).
//!
//! What deviates on purpose:
//! - What stands before the first `{` or `<|python_tag|>` is content, in front of calls too, so that an answer in words is
//!   streamed. vLLM's JSON answers lose it; its streams find no calls after it.
//! - Calls may follow one another without anything between them. vLLM loses the second one then.
//! - Arguments that our JSON parser refuses and Python reads are no call, as in `hermes`.

use super::{
    call_format::{CallFormat, CallReader},
    forcing::{Demand, Forcing, Grammar},
    json_call,
    until_end::UntilEnd,
};
use crate::{
    chat::FunctionTool,
    json::Value,
    parser::{Piece, ToolCall, marker},
    structured::{Format, Tag},
};

const PYTHON_TAG: &str = "<|python_tag|>";

/// What the tokenizer has to have.
const NEEDS: &[&str] = &[PYTHON_TAG];

pub(super) const LLAMA3_JSON: CallFormat = call_format("llama3_json");
pub(super) const LLAMA4_JSON: CallFormat = call_format("llama4_json");

const fn call_format(name: &'static str) -> CallFormat {
    CallFormat {
        keeps_special_tokens: false,
        marks: NEEDS,
        begins_call: NEEDS,
        needs: NEEDS,
        ..CallFormat::new(name, reader, Forcing::Native(Grammar::new(grammar)))
    }
}

/// Objects with `parameters`, and semicolons between them.
fn grammar(demand: &Demand<'_>) -> Format {
    let begin = |name: &str| format!("{{\"name\": \"{name}\", \"parameters\": ");
    let tags = demand.each(|tool| Tag::new(begin(tool.name), tool.json(), "}"));
    demand.list(tags, "; ", "{\"name\": ")
}

fn reader(_tools: &[FunctionTool]) -> Box<dyn CallReader> {
    Box::new(UntilEnd::new(&[PYTHON_TAG, "{"], calls))
}

/// The calls of a text, with what stands between them; `None` where there is none, or one object is no call.
fn calls(text: &str) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    let mut called = false;
    while let Some(at) = rest.find('{') {
        outside(&rest[..at], &mut pieces);
        let (value, length) = Value::parse_start_literally(&rest[at..]).ok()?;
        call(value, &mut pieces)?;
        called = true;
        rest = &rest[at + length..];
    }
    outside(rest, &mut pieces);
    called.then_some(pieces)
}

/// What stands beside calls: semicolons, as the mark in front, only keep them apart.
fn outside(text: &str, pieces: &mut Vec<Piece>) {
    let text = text.strip_prefix(PYTHON_TAG).unwrap_or(text);
    if marker::trim(text) != ";" {
        json_call::outside(text, pieces);
    }
}

fn call(value: Value, pieces: &mut Vec<Piece>) -> Option<()> {
    let Value::Object(mut call) = value else { return None };
    let Some(Value::String(name)) = call.shift_remove("name") else { return None };
    let key = if call.contains_key("arguments") { "arguments" } else { "parameters" };
    let arguments = call.shift_remove(key)?.to_json_string();
    pieces.push(Piece::Call(ToolCall::new(name, arguments)));
    json_call::outside(&json_call::unread(call), pieces);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Vec<(String, String)>> {
        let calls = calls(text)?.into_iter().filter_map(|piece| match piece {
            Piece::Call(call) => Some((call.name, call.arguments)),
            _ => None,
        });
        Some(calls.collect())
    }

    #[test]
    fn objects_are_calls_whatever_stands_between_them() {
        let one = |arguments: &str| Some(vec![("f".to_owned(), arguments.to_owned())]);
        assert_eq!(read(r#"{"name": "f", "parameters": {"a":1}}"#), one(r#"{"a": 1}"#));
        assert_eq!(read(r#"<|python_tag|>{"name": "f", "arguments": {}} so."#), one("{}"));
        assert_eq!(read(r#"{"name": "f", "arguments": null, "parameters": {}}"#), one("null"));
        assert_eq!(read(r#"{"name": "f", "parameters": {"a": {"b": "é}"}}}"#), one(r#"{"a": {"b": "é}"}}"#));
        let two = [("f", "{}"), ("g", "[]")].map(|(name, arguments)| (name.to_owned(), arguments.to_owned()));
        assert_eq!(
            read(r#"{"name": "f", "parameters": {}}; {"name": "g", "parameters": []}"#),
            Some(two.clone().to_vec())
        );
        // vLLM passes over the brace right after an object, and loses the call.
        assert_eq!(read(r#"{"name": "f", "parameters": {}}{"name": "g", "parameters": []}"#), Some(two.to_vec()));
    }

    #[test]
    fn one_object_that_is_no_call_spoils_all() {
        for text in [
            "<|python_tag|>print(1)",
            "{",
            "{x}",
            "{}",
            r#"{"name": "f"}"#,
            r#"{"parameters": {}}"#,
            r#"{"name": 1, "parameters": {}}"#,
            r#"{"name": "f", "parameters": {}"#,
            r#"{"name": "f", "parameters": {}} and {x}"#,
            r"{'name': 'f', 'parameters': {}}",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
