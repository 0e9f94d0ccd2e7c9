//! How large a constraint is.

use serde_json::Value;

/// Takes so many bytes of what is left; `None` once there are too many.
pub(super) fn take(bytes: usize, left: &mut Option<usize>) {
    *left = left.and_then(|left| left.checked_sub(bytes));
}

/// Takes the bytes of a JSON value.
pub(super) fn measure(value: &Value, left: &mut Option<usize>) {
    take(1, left);
    match value {
        _ if left.is_none() => {}
        Value::String(text) => take(text.len(), left),
        Value::Array(items) => items.iter().for_each(|item| measure(item, left)),
        Value::Object(entries) => entries.iter().for_each(|(name, value)| {
            take(name.len(), left);
            measure(value, left);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
