//! Forced calls as bare JSON, for formats that say so, and how they are read (vLLM `parser/abstract_parser.py`): the
//! arguments alone where the function is named, a list of `{"name", "parameters"}` else.
//!
//! What deviates on purpose: nothing is lost. Where the JSON is not that of calls, as in a text that was cut, the text is
//! content; vLLM's JSON answers have neither content nor calls then.

use serde_json::{Map, json};

use super::{
    call_format::CallReader,
    forcing::{Calls, Demand, ForcedCall, ForcingError, Function},
};
use crate::{
    json::Value,
    parser::{Piece, ToolCall, marker},
    structured::{Constraint, JsonOptions},
};

/// The JSON of the calls.
pub(super) fn constraint(demand: &Demand<'_>) -> Result<Constraint, ForcingError> {
    if let (Calls::One, [tool]) = (demand.calls, &demand.tools[..]) {
        return Ok(Constraint::Json(parameters(tool), JsonOptions::default()));
    }
    if demand.calls != Calls::One {
        demand.check_references(|tool| tool.parameters.as_ref())?;
    }
    let mut definitions = Map::new();
    let mut items = Vec::new();
    for tool in &demand.tools {
        let mut parameters = parameters(tool);
        let own = parameters.as_object_mut().and_then(|parameters| parameters.remove("$defs"));
        for (name, definition) in own.as_ref().and_then(serde_json::Value::as_object).into_iter().flatten() {
            if definitions.insert(name.clone(), definition.clone()).is_some_and(|other| other != *definition) {
                return Err(ForcingError::Definition(name.clone()));
            }
        }
        items.push(json!({
            "type": "object",
            "properties": {"name": {"type": "string", "enum": [tool.name]}, "parameters": parameters},
            "required": ["name", "parameters"],
        }));
    }
    let mut schema = json!({"type": "array", "minItems": 1, "items": {"anyOf": items}, "$defs": definitions});
    if demand.at_most_one {
        schema["maxItems"] = json!(1);
    }
    Ok(Constraint::Json(schema, JsonOptions::default()))
}

fn parameters(tool: &Function<'_>) -> serde_json::Value {
    tool.parameters.clone().unwrap_or_else(|| json!({"type": "object", "properties": {}}))
}

/// The reader of what `forced` made the model write.
pub(super) fn reader(forced: &ForcedCall) -> Box<dyn CallReader> {
    let name = match forced {
        ForcedCall::Required => None,
        ForcedCall::Named(name) => Some(name.clone()),
    };
    Box::new(Forced { name, text: String::new(), spoken: false })
}

/// Takes the whole text for a list of calls, or for the arguments of the one that has a name.
#[derive(Debug)]
struct Forced {
    name: Option<String>,
    text: String,
    /// Whether there is more than white space.
    spoken: bool,
}

impl CallReader for Forced {
    fn push(&mut self, text: &str, _out: &mut Vec<Piece>) {
        self.text.push_str(text);
        self.spoken |= !marker::is_blank(text);
    }

    fn finish(&mut self, out: &mut Vec<Piece>) {
        let text = std::mem::take(&mut self.text);
        if !self.spoken {
            return;
        }
        match self.name.take() {
            Some(name) => out.push(Piece::Call(ToolCall::new(name, text))),
            None => match required(&text) {
                Some(calls) => out.extend(calls.into_iter().map(Piece::Call)),
                None => out.push(Piece::Content(text)),
            },
        }
    }

    fn is_in_call(&self) -> bool {
        self.spoken
    }
}

/// The calls of `[{"name": …, "parameters": …}, …]`.
fn required(text: &str) -> Option<Vec<ToolCall>> {
    let value = Value::parse_literally(text).ok()?;
    value.as_array()?.iter().map(call).collect()
}

/// A call, with nothing beside its name and its arguments.
fn call(value: &Value) -> Option<ToolCall> {
    let name = value.get("name")?.as_str()?.to_owned();
    let known = |key: &String| matches!(key.as_str(), "name" | "parameters");
    if !value.as_object()?.keys().all(known) {
        return None;
    }
    let arguments = match value.get("parameters") {
        None => "null".to_owned(),
        Some(arguments @ (Value::Null | Value::Object(_))) => arguments.to_json_string(),
        Some(_) => return None,
    };
    Some(ToolCall::new(name, arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(forced: &ForcedCall, text: &str) -> (Vec<(String, String)>, String) {
        let (mut reader, mut pieces) = (reader(forced), Vec::new());
        reader.push(text, &mut pieces);
        reader.finish(&mut pieces);
        let (mut calls, mut content) = (Vec::new(), String::new());
        for piece in pieces {
            match piece {
                Piece::Call(call) => calls.push((call.name, call.arguments)),
                Piece::Content(text) => content.push_str(&text),
                Piece::Reasoning(text) => panic!("{text}"),
            }
        }
        (calls, content)
    }

    #[test]
    fn a_named_call_has_the_whole_text_for_arguments() {
        let named = ForcedCall::Named("f".to_owned());
        let call = |arguments: &str| (vec![("f".to_owned(), arguments.to_owned())], String::new());
        assert_eq!(read(&named, r#"{"a":1}"#), call(r#"{"a":1}"#));
        assert_eq!(read(&named, r#"{"a":"#), call(r#"{"a":"#));
        assert_eq!(read(&named, " \n"), (Vec::new(), String::new()));
    }

    #[test]
    fn required_calls_are_a_list_and_anything_else_is_content() {
        let (calls, content) =
            read(&ForcedCall::Required, r#"[{"name":"f","parameters":{"a":1}},{"name":"g","parameters":{}}]"#);
        let both = [("f", r#"{"a": 1}"#), ("g", "{}")].map(|(name, arguments)| (name.to_owned(), arguments.to_owned()));
        assert_eq!((calls, content.as_str()), (both.to_vec(), ""));
        for text in [r#"[{"name":"f","para"#, r#"{"name":"f","parameters":{}}"#, r#"[{"parameters":{}}]"#, "so"] {
            assert_eq!(read(&ForcedCall::Required, text), (Vec::new(), text.to_owned()), "{text}");
        }
    }
}
