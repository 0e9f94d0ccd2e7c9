//! Tools that a model may call, and the calls that it made.

use serde::{Deserialize, Deserializer, de};

use crate::json::{Object, Value};

/// What is wrong with a tool or a tool call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidTool(String);

impl InvalidTool {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// A function that the model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionTool {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: Option<String>,
    /// The JSON schema of its arguments, numbers and key order as sent.
    pub parameters: Option<Value>,
    /// Whether arguments must follow the schema.
    pub strict: Option<bool>,
    /// Whether the definition is only loaded on demand.
    pub defer_loading: Option<bool>,
    /// What the field of the same name says that stands beside `function`.
    pub outer_defer_loading: Option<bool>,
}

/// A call that an assistant message made.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// What the answer refers to.
    pub id: String,
    /// The function's name.
    pub name: String,
    /// The arguments as the client wrote them: JSON text, or nothing.
    pub arguments: Option<String>,
    /// Further keys of `function`.
    pub function_extras: Object,
    /// Further keys of the call.
    pub extras: Object,
}

impl ToolCall {
    /// The arguments with sorted keys, and whole numbers without a point; none are an empty object. The text itself where it is no
    /// JSON.
    pub(crate) fn canonical_arguments(&self) -> Result<Value, &str> {
        canonical_arguments(self.arguments.as_deref().unwrap_or_default())
    }
}

/// The arguments of a call with sorted keys, and whole numbers without a point; none are an empty object. The text itself where it
/// is no JSON.
pub(crate) fn canonical_arguments(arguments: &str) -> Result<Value, &str> {
    let arguments = Some(arguments.trim()).filter(|text| !text.is_empty()).unwrap_or("{}");
    Value::parse(arguments).map(canonical).map_err(|_| arguments)
}

/// The value with sorted keys, and whole numbers without a point: JavaScript writes `1.0` as `1`.
fn canonical(value: Value) -> Value {
    /// Up to here every whole number is a float of its own.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Array(values) => Value::Array(values.into_iter().map(canonical).collect()),
        Value::Object(object) => {
            let mut fields: Vec<_> = object.into_iter().map(|(key, value)| (key, canonical(value))).collect();
            fields.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
            Value::Object(fields.into_iter().collect())
        }
        #[expect(clippy::cast_possible_truncation, reason = "a whole number below 2^53 is kept")]
        Value::Float(number) if number.fract() == 0.0 && number.abs() < EXACT => Value::from(number as i64),
        value => value,
    }
}

fn take_string(object: &mut Object, key: &str, place: &str) -> Result<String, InvalidTool> {
    match object.shift_remove(key) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(InvalidTool(format!("`{place}{key}` must be a string"))),
        None => Err(InvalidTool(format!("`{place}{key}` is missing"))),
    }
}

fn take_function(object: &mut Object) -> Result<Object, InvalidTool> {
    match take_string(object, "type", "")?.as_str() {
        "function" => {}
        other => return Err(InvalidTool(format!("`type` must be \"function\", got {other:?}"))),
    }
    match object.shift_remove("function") {
        Some(Value::Object(function)) => Ok(function),
        Some(_) => Err(InvalidTool("`function` must be an object".to_owned())),
        None => Err(InvalidTool("`function` is missing".to_owned())),
    }
}

fn take_bool(object: &mut Object, key: &str) -> Result<Option<bool>, InvalidTool> {
    match object.shift_remove(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(flag)),
        Some(_) => Err(InvalidTool(format!("`{key}` must be true or false"))),
    }
}

impl TryFrom<Value> for FunctionTool {
    type Error = InvalidTool;

    fn try_from(value: Value) -> Result<Self, InvalidTool> {
        let Value::Object(mut tool) = value else {
            return Err(InvalidTool("a tool is an object".to_owned()));
        };
        let mut function = take_function(&mut tool)?;
        let name = take_string(&mut function, "name", "function.")?;
        let description = match function.shift_remove("description") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text),
            Some(_) => return Err(InvalidTool("`function.description` must be a string".to_owned())),
        };
        let parameters = match function.shift_remove("parameters") {
            None | Some(Value::Null) => None,
            Some(schema @ Value::Object(_)) => Some(schema),
            Some(_) => return Err(InvalidTool("`function.parameters` must be an object".to_owned())),
        };
        Ok(Self {
            name,
            description,
            parameters,
            strict: take_bool(&mut function, "strict")?,
            defer_loading: take_bool(&mut function, "defer_loading")?,
            outer_defer_loading: take_bool(&mut tool, "defer_loading")?,
        })
    }
}

impl TryFrom<Value> for ToolCall {
    type Error = InvalidTool;

    fn try_from(value: Value) -> Result<Self, InvalidTool> {
        let Value::Object(mut call) = value else {
            return Err(InvalidTool("a tool call is an object".to_owned()));
        };
        let id = take_string(&mut call, "id", "")?;
        let mut function = take_function(&mut call)?;
        let name = take_string(&mut function, "name", "function.")?;
        let arguments = match function.shift_remove("arguments") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text),
            Some(_) => return Err(InvalidTool("`function.arguments` must be a string of JSON".to_owned())),
        };
        Ok(Self { id, name, arguments, function_extras: function, extras: call })
    }
}

impl<'de> Deserialize<'de> for FunctionTool {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(Value::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for ToolCall {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(Value::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(text: &str) -> Result<ToolCall, InvalidTool> {
        ToolCall::try_from(Value::parse(text).unwrap())
    }

    #[test]
    fn a_call_keeps_the_clients_spelling_of_its_arguments() {
        let call = call(r#"{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":  1e5}"}}"#).unwrap();
        assert_eq!(call.arguments.as_deref(), Some(r#"{"a":  1e5}"#));
    }

    #[test]
    fn a_call_without_an_id_or_with_object_arguments_is_refused() {
        for (text, word) in [
            (r#"{"type":"function","function":{"name":"f","arguments":"{}"}}"#, "id"),
            (r#"{"id":"c","function":{"name":"f","arguments":"{}"}}"#, "type"),
            (r#"{"id":"c","type":"function","function":{"name":"f","arguments":{}}}"#, "function.arguments"),
            (r#"{"id":"c","type":"custom","function":{"name":"f"}}"#, "function"),
        ] {
            assert!(call(text).unwrap_err().to_string().contains(word), "{text}");
        }
    }
}
