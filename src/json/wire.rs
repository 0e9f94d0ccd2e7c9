//! JSON values as fields of wire structs. They are taken as raw text and read by our own parser, since serde's data
//! model has neither integers beyond 128 bits nor Python's floats. Only `serde_json` can do that, and not below
//! `#[serde(flatten)]` or an untagged enum, whose buffers lose the text: there reading fails instead of rounding.

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Error as _, Serialize, Serializer};
use serde_json::value::RawValue;

use super::{Format, Value};

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::parse(raw.get()).map_err(D::Error::custom)
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
