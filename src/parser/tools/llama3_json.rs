//! Llama 3.x: JSON objects with `name`, and `arguments` or `parameters` (vLLM `tool_parsers/llama_tool_parser.py`).
//!
//! What deviates on purpose:
//! - What stands before the first `{` or `<|python_tag|>` is content, in front of calls too, so that an answer in words is
//!   streamed. vLLM's JSON answers lose it; its streams find no calls after it.
//! - Arguments that our JSON parser refuses and Python reads are no call, as in `hermes`.

use super::{
    call_format::{CallFormat, CallReader},
    forcing::{Demand, Forcing, Grammar},
    until_end::UntilEnd,
};
use crate::{
    chat::FunctionTool,
    json::Value,
    parser::ToolCall,
    structured::{Format, Tag},
};

const PYTHON_TAG: &str = "<|python_tag|>";

/// What the tokenizer has to have.
const NEEDS: &[&str] = &[PYTHON_TAG];

pub(super) const LLAMA3_JSON: CallFormat = named("llama3_json");
pub(super) const LLAMA4_JSON: CallFormat = named("llama4_json");

const fn named(name: &'static str) -> CallFormat {
    CallFormat {
        keeps_special_tokens: false,
        marks: NEEDS,
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

/// The objects of a text; `None` where there is none, or one of them is no call.
fn calls(text: &str) -> Option<Vec<ToolCall>> {
    let mut calls = Vec::new();
    // As in vLLM, a brace right after an object is not looked at, but those in it are.
    let mut end = None;
    for (at, _) in text.match_indices('{') {
        if end.is_some_and(|end| at <= end) {
            continue;
        }
        let (value, length) = Value::parse_start(&text[at..]).ok()?;
        end = Some(at + length);
        calls.push(call(&value)?);
    }
    (!calls.is_empty()).then_some(calls)
}

fn call(value: &Value) -> Option<ToolCall> {
    let name = value.get("name")?.as_str()?.to_owned();
    let arguments = value.get("arguments").or_else(|| value.get("parameters"))?;
    Some(ToolCall::new(name, arguments.to_json_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Vec<(String, String)>> {
        Some(calls(text)?.into_iter().map(|call| (call.name, call.arguments)).collect())
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
        // vLLM's own slip: the brace right after an object is passed over.
        assert_eq!(read(r#"{"name": "f", "parameters": {}}{"name": "g", "parameters": []}"#), one("{}"));
        assert_eq!(read(r#"{"name": "f", "parameters": {}}{"name": "g", "parameters": {}}"#), None);
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
