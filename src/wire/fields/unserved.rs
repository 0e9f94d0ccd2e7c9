//! Fields that tito does not have: they are refused where they ask for something.
//!
//! What asks for nothing differs between dialects, because their clients leave fields out in different ways. Each edge is
//! here, so that the differences are seen.

use serde_json::Value;

use crate::wire::error::ApiError;

/// Refuses the first of `fields` whose value asks for something.
pub(crate) fn refuse_unserved<'v, V: 'v>(
    fields: impl IntoIterator<Item = (&'static str, &'v Option<V>)>,
    asks: impl Fn(&V) -> bool,
) -> Result<(), ApiError> {
    match fields.into_iter().find(|(_, value)| value.as_ref().is_some_and(&asks)) {
        Some((name, _)) => Err(ApiError::unsupported(name)),
        None => Ok(()),
    }
}

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

/// All but these and 0: Tinker's fields may be ones that are not known here, whose default can be a number.
pub(crate) fn is_filled_or_counts(value: &Value) -> bool {
    is_filled(value) && value.as_f64() != Some(0.0)
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
        assert_eq!(asks(is_filled_or_counts), [false, false, false, false, false, false, true, true]);
    }

    #[test]
    fn the_first_field_that_asks_is_named() {
        let (nothing, something) = (Some(json!([])), Some(json!([1])));
        let refusal = |fields: [(&'static str, &Option<Value>); 3]| refuse_unserved(fields, has_items);
        assert_eq!(refusal([("a", &None), ("b", &nothing), ("c", &None)]), Ok(()));
        let error = refusal([("a", &nothing), ("b", &something), ("c", &something)]).unwrap_err();
        assert_eq!(error, ApiError::unsupported("b"));
    }
}
