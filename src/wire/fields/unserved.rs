//! Fields that tito does not have: they are refused where they ask for something.

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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::asked_for::has_items;

    #[test]
    fn the_first_field_that_asks_is_named() {
        let (nothing, something) = (Some(json!([])), Some(json!([1])));
        let refusal = |fields: [(&'static str, &Option<Value>); 3]| refuse_unserved(fields, has_items);
        assert_eq!(refusal([("a", &None), ("b", &nothing), ("c", &None)]), Ok(()));
        let error = refusal([("a", &nothing), ("b", &something), ("c", &something)]).unwrap_err();
        assert_eq!(error, ApiError::unsupported("b"));
    }
}
