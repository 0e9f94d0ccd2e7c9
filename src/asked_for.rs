//! Which values of a field ask for something. A field that tito does not have is refused where its value does.
//!
//! What asks for nothing differs between dialects, because their clients leave fields out in different ways. Each edge is
//! here, so that the differences are seen. This module knows values. It knows no fields, and no HTTP.

use serde_json::Value;

/// All but `null`: for a field where an empty list is a wish too.
pub(crate) fn is_given(value: &Value) -> bool {
    !value.is_null()
}

/// All but `null` and `false`: for vLLM's switches.
pub(crate) fn is_on(value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Bool(false))
}

/// All but `null` and an empty list: for lists, where anything else is a wish that is not understood.
pub(crate) fn has_items(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        _ => true,
    }
}

/// All but `null`, `false`, an empty list and an empty object: SGLang's clients send each of them for nothing.
pub(crate) fn is_filled(value: &Value) -> bool {
    match value {
        Value::Object(fields) => !fields.is_empty(),
        value => is_on(value) && has_items(value),
    }
}

/// What Python takes for true, which is all but these, 0 and an empty text. Tinker's fields may be ones that are not known
/// here, and those of the control plane are of many servers: a default can be any of them.
pub(crate) fn is_truthy(value: &Value) -> bool {
    is_filled(value) && value.as_f64() != Some(0.0) && value.as_str() != Some("")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_edge_lets_pass_what_its_clients_send_for_nothing() {
        let values = [json!(null), json!(false), json!([]), json!({}), json!(0), json!(0.0), json!(""), json!([0])];
        let asks = |edge: fn(&Value) -> bool| values.each_ref().map(edge);
        assert_eq!(asks(is_given), [false, true, true, true, true, true, true, true]);
        assert_eq!(asks(is_on), [false, false, true, true, true, true, true, true]);
        assert_eq!(asks(has_items), [false, true, false, true, true, true, true, true]);
        assert_eq!(asks(is_filled), [false, false, false, false, true, true, true, true]);
        assert_eq!(asks(is_truthy), [false, false, false, false, false, false, false, true]);
        for value in [json!(true), json!("a"), json!(0.5), json!(-1), json!({ "a": null })] {
            assert!(is_truthy(&value), "{value}");
        }
    }
}
