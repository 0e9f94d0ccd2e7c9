//! The input of a call: an object in Anthropic's dialect, and a text in a chat.

use serde_json::value::RawValue;

use crate::json::{Format, Object, Value};

/// The field that holds a text which is no JSON object, as Anthropic's documentation has clients send it back.
const INVALID: &str = "INVALID_JSON";

/// How deeply an input may be nested: it comes back within a body, of which 128 levels are read.
const MOST_LEVELS: usize = 100;

/// Returns the input that arguments are. Models do write broken calls: their text is kept, as the only field of an
/// object.
pub(super) fn input_of(arguments: &str) -> Value {
    if arguments.trim().is_empty() {
        return Value::Object(Object::default());
    }
    match Value::parse(arguments) {
        // Python's JSON has values that JSON does not have.
        Ok(input @ Value::Object(_)) if fits(&input, MOST_LEVELS) && is_json(&input) && !is_wrapped(&input) => input,
        _ => [(INVALID, arguments)].into_iter().collect(),
    }
}

/// Returns the input as text. Arguments that are JSON keep the model's spelling; broken ones become the object that
/// holds them.
pub(crate) fn input_text(arguments: &str) -> String {
    let input = input_of(arguments);
    if is_wrapped(&input) { input.to_json_string_with(&Format::compact()) } else { arguments.to_owned() }
}

/// Returns the arguments that an input was made from.
pub(crate) fn arguments_of(input: Option<&Value>) -> String {
    match input {
        Some(input @ Value::Object(fields)) => match fields.get(INVALID).and_then(Value::as_str) {
            Some(arguments) if is_wrapped(input) => arguments.to_owned(),
            _ => input.to_json_string(),
        },
        _ => "{}".to_owned(),
    }
}

fn is_wrapped(input: &Value) -> bool {
    input
        .as_object()
        .is_some_and(|fields| fields.len() == 1 && fields.get(INVALID).is_some_and(|v| v.as_str().is_some()))
}

/// Whether a value has at most so many levels.
fn fits(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(|item| fits(item, levels - 1)),
        Value::Object(fields) => levels > 0 && fields.values().all(|item| fits(item, levels - 1)),
        _ => true,
    }
}

fn is_json(value: &Value) -> bool {
    RawValue::from_string(value.to_json_string_with(&Format::compact())).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_come_back_as_they_were_or_mean_the_same() {
        let deep = |levels: usize| format!("{{\"a\": {}{}}}", "[".repeat(levels), "]".repeat(levels));
        let (shallow, deep) = (deep(MOST_LEVELS - 1), deep(MOST_LEVELS));
        assert!(!is_wrapped(&input_of(&shallow)) && is_wrapped(&input_of(&deep)));
        for (arguments, back) in [
            (shallow.as_str(), shallow.as_str()),
            (deep.as_str(), deep.as_str()),
            (r#"{"a": 1.0, "b": [2]}"#, r#"{"a": 1.0, "b": [2]}"#),
            (r#"{"a":1}"#, r#"{"a": 1}"#),
            ("", "{}"),
            ("{\"a\": ", "{\"a\": "),
            ("[1]", "[1]"),
            ("{\"a\": NaN}", "{\"a\": NaN}"),
            (r#"{"INVALID_JSON": "x"}"#, r#"{"INVALID_JSON": "x"}"#),
        ] {
            let input = input_of(arguments);
            assert_eq!(arguments_of(Some(&input)), back, "{arguments}");
            let text = input_text(arguments);
            if !text.is_empty() {
                assert_eq!(Value::parse(&text), Ok(input), "{arguments}");
            }
        }
        assert_eq!(arguments_of(None), "{}");
    }
}
