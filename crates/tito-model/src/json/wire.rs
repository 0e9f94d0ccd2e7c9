//! JSON values as fields of wire structs. A [`Reader`](super::Reader) has Python's numbers at hand. From `serde_json` they
//! are taken as raw text and read by our own parser, since serde's data model has neither integers beyond 128 bits nor
//! Python's floats; below `#[serde(flatten)]` or an untagged enum, whose buffers lose the text, reading fails instead of
//! rounding.

use std::fmt;

use serde::{
    de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor},
    ser::{Error as _, Serialize, Serializer},
};
use serde_json::value::RawValue;

use super::{Format, Integer, KeyedHash, Object, Value};

/// What a value asks its deserializer for.
pub(super) const VALUE: &str = "tito::json::Value";

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(VALUE, ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    /// Of a deserializer that does not know values.
    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Value::parse(raw.get()).map_err(D::Error::custom)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Int(Integer::from(i128::from(value))))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        Ok(Value::Int(Integer::from(value)))
    }

    /// The digits of an integer that does not fit.
    fn visit_bytes<E: serde::de::Error>(self, digits: &[u8]) -> Result<Value, E> {
        let integer = std::str::from_utf8(digits).ok().and_then(Integer::from_decimal);
        integer.map(Value::Int).ok_or_else(|| E::custom("not an integer"))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::with_capacity(list.size_hint().unwrap_or_default());
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = Object::with_capacity_and_hasher(map.size_hint().unwrap_or_default(), KeyedHash);
        while let Some((key, value)) = map.next_entry()? {
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.to_json_string_with(&Format::compact());
        RawValue::from_string(text).map_err(S::Error::custom)?.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::Value;

    #[derive(serde::Deserialize, serde::Serialize)]
    struct Tool {
        name: String,
        parameters: Option<Value>,
    }

    #[test]
    fn a_field_keeps_numbers_and_order_through_a_round_trip() {
        let text = r#"{"name":"f","parameters":{"z":1.0,"a":123456789012345678901234567890123456789012,"m":1e-05}}"#;
        let tool: Tool = serde_json::from_str(text).unwrap();
        assert_eq!(tool.name, "f");
        assert_eq!(serde_json::to_string(&tool).unwrap(), text);
        let tool: Tool = serde_json::from_slice(text.as_bytes()).unwrap();
        assert_eq!(serde_json::to_string(&tool).unwrap(), text);
    }

    #[test]
    fn maps_and_lists_of_values_are_read() {
        let map: HashMap<String, Vec<Value>> = serde_json::from_str(r#"{"a": [1, 2.0]}"#).unwrap();
        assert_eq!(map["a"], [Value::from(1), Value::from(2.0)]);
    }

    #[test]
    fn an_absent_or_null_option_is_none() {
        let tool: Tool = serde_json::from_str(r#"{"name": "f", "parameters": null}"#).unwrap();
        assert_eq!(tool.parameters, None);
    }

    #[test]
    fn a_lone_surrogate_is_refused_with_the_reason() {
        let error = serde_json::from_str::<Vec<Value>>(r#"[{"a": "\ud83d"}]"#).unwrap_err();
        assert!(error.to_string().contains("surrogate"), "{error}");
    }

    #[test]
    fn not_a_number_cannot_be_sent() {
        assert!(serde_json::to_string(&Value::Float(f64::NAN)).is_err());
    }
}
