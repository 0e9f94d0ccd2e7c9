//! Answers as tests compare them: without what differs from run to run, or without values.

use serde_json::Value;

/// The body with what differs from run to run made constant.
pub(crate) fn redacted(mut value: Value) -> Value {
    match &mut value {
        Value::Array(items) => items.iter_mut().for_each(|item| *item = redacted(item.take())),
        Value::Object(fields) => {
            for (key, field) in fields.iter_mut() {
                *field = match (key.as_str(), field.take()) {
                    ("created", Value::Number(_)) => Value::from(0),
                    ("id", Value::String(id)) if id.starts_with("modelperm-") => Value::from("modelperm-"),
                    ("id", Value::String(id)) if id.starts_with("chatcmpl-tool-") => Value::from("chatcmpl-tool-"),
                    (_, value) => redacted(value),
                };
            }
        }
        _ => {}
    }
    value
}

/// Keys in order, without the values: `id choices[index delta{content}]`.
pub(crate) fn shape(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| match value {
                Value::Object(_) => format!("{key}{{{}}}", shape(value)),
                Value::Array(items) if items.iter().any(Value::is_object) => format!("{key}[{}]", shape(&items[0])),
                _ => key.clone(),
            };
            fields.iter().map(field).collect::<Vec<_>>().join(" ")
        }
        _ => String::new(),
    }
}
