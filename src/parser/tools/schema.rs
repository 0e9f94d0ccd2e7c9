//! Arguments fitted to a tool's JSON schema, as vLLM does it (`tool_parsers/utils.py`, `parser/engine/parser_engine.py`).
//!
//! Formats that write every value as text leave it to the schema what is a number. Refuses to judge: what does not fit
//! stays as it is. Deviates from vLLM where its answer could not be sent: JSON with half of a surrogate pair, or nested
//! deeper than our JSON parser goes, stays text.

use super::number;
use crate::{
    chat::FunctionTool,
    json::{Integer, Object, Value},
};

/// The names of a request's tools, and the properties of their arguments.
#[derive(Debug)]
pub(super) struct Signatures(Vec<(String, Object)>);

impl Signatures {
    pub(super) fn of(tools: &[FunctionTool]) -> Self {
        let properties = |tool: &FunctionTool| {
            let properties = tool.parameters.as_ref().and_then(|schema| schema.get("properties"));
            properties.and_then(Value::as_object).cloned().unwrap_or_default()
        };
        Self(tools.iter().map(|tool| (tool.name.clone(), properties(tool))).collect())
    }

    /// Whether a tool is called so. Where there are no tools, any may be.
    pub(super) fn allow(&self, name: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|(known, _)| known == name)
    }

    /// The arguments with values of the types that the schema asks for. Where none changes, the text stays as it is.
    pub(super) fn fit(&self, name: &str, arguments: String) -> String {
        let tool = self.0.iter().find(|(known, _)| known == name);
        let Some((_, properties)) = tool.filter(|(_, properties)| !properties.is_empty()) else { return arguments };
        let Ok(Value::Object(mut object)) = Value::parse(&arguments) else { return arguments };
        if fit_object(&mut object, properties) { Value::from(object).to_json_string() } else { arguments }
    }
}

/// Fits every value that has a schema; says whether one changed.
fn fit_object(object: &mut Object, properties: &Object) -> bool {
    let mut changed = false;
    for (key, value) in object {
        if let Some(schema) = properties.get(key).and_then(Value::as_object) {
            changed |= fit_value(value, schema);
        }
    }
    changed
}

fn fit_value(value: &mut Value, schema: &Object) -> bool {
    match value {
        Value::Object(object) => {
            let properties = schema.get("properties").and_then(Value::as_object);
            properties.is_some_and(|properties| fit_object(object, properties))
        }
        Value::Array(items) => {
            let schema = schema.get("items").and_then(Value::as_object);
            let Some(schema) = schema else { return false };
            items.iter_mut().fold(false, |changed, item| fit_value(item, schema) | changed)
        }
        Value::String(text) => {
            let fitted = read(text, &Types::of(schema));
            let changed = !matches!(&fitted, Value::String(fitted) if fitted == text);
            *value = fitted;
            changed
        }
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
            let fitted = read(&value.to_json_string(), &Types::of(schema));
            let changed = fitted != *value;
            *value = fitted;
            changed
        }
    }
}

/// The types that a schema allows.
#[derive(Debug, Default)]
struct Types(Vec<String>);

impl Types {
    fn of(schema: &Object) -> Self {
        let mut types = Self::default();
        types.gather(schema);
        types
    }

    /// Adds the types of a schema; one that names none is of strings.
    fn gather(&mut self, schema: &Object) {
        let before = self.0.len();
        match schema.get("type") {
            Some(Value::String(name)) => self.0.push(normal(name)),
            Some(Value::Array(names)) => self.0.extend(names.iter().filter_map(Value::as_str).map(normal)),
            _ => {}
        }
        let values = schema.get("enum").and_then(Value::as_array).unwrap_or_default();
        self.0.extend(values.iter().map(|value| type_of(value).to_owned()));
        for choice in ["anyOf", "oneOf", "allOf"] {
            for schema in schema.get(choice).and_then(Value::as_array).unwrap_or_default() {
                match schema.as_object() {
                    Some(schema) => self.gather(schema),
                    None => self.0.push("string".to_owned()),
                }
            }
        }
        if self.0.len() == before {
            self.0.push("string".to_owned());
        }
    }

    fn allow(&self, name: &str) -> bool {
        self.0.iter().any(|known| known == name)
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Int(_) => "integer",
        Value::Float(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// JSON schema's name of a type that goes by several.
fn normal(name: &str) -> String {
    let name = name.trim().to_lowercase();
    let known = match name.as_str() {
        "str" | "text" | "varchar" | "char" | "enum" => "string",
        "int" | "int32" | "int64" | "uint" | "uint32" | "uint64" | "long" | "short" | "unsigned" => "integer",
        "float" | "float32" | "float64" | "double" => "number",
        "bool" => "boolean",
        "dict" => "object",
        "arr" | "list" | "sequence" => "array",
        _ => return name,
    };
    known.to_owned()
}

/// The text as a value of the first type that it can be, in vLLM's order.
fn read(text: &str, types: &Types) -> Value {
    if types.allow("null") && text.to_lowercase() == "null" {
        return Value::Null;
    }
    let integer = || types.allow("integer").then(|| number::int(text).map(Value::Int)).flatten();
    let number = || types.allow("number").then(|| number::float(text).and_then(whole_or_float)).flatten();
    let boolean = || types.allow("boolean").then(|| boolean(text)).flatten();
    let structure = || (types.allow("object") || types.allow("array")).then(|| json(text)).flatten();
    let read = integer().or_else(number).or_else(boolean).or_else(structure);
    match read {
        Some(value) => value,
        None if types.allow("string") => Value::from(text),
        // vLLM's last resort for types that it does not know.
        None => json(text).unwrap_or_else(|| Value::from(text)),
    }
}

/// A number that JSON has; an integer where it is whole.
fn whole_or_float(value: f64) -> Option<Value> {
    if !value.is_finite() {
        return None;
    }
    if value.fract() != 0.0 {
        return Some(Value::Float(value));
    }
    let digits = format!("{value:.0}");
    Integer::from_decimal(if digits == "-0" { "0" } else { &digits }).map(Value::Int)
}

fn boolean(text: &str) -> Option<Value> {
    match text.to_lowercase().trim_matches(crate::parser::marker::is_space) {
        "true" | "1" => Some(Value::Bool(true)),
        "false" | "0" => Some(Value::Bool(false)),
        _ => None,
    }
}

fn json(text: &str) -> Option<Value> {
    Value::parse(text).ok().filter(is_finite)
}

fn is_finite(value: &Value) -> bool {
    match value {
        Value::Float(float) => float.is_finite(),
        Value::Array(items) => items.iter().all(is_finite),
        Value::Object(object) => object.values().all(is_finite),
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::String(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::tools::tests::tool;

    fn fitted(schema: &str, arguments: &str) -> String {
        let parameters = format!(r#"{{"type": "object", "properties": {{"a": {schema}}}}}"#);
        Signatures::of(&[tool("f", &parameters)]).fit("f", arguments.to_owned())
    }

    #[test]
    fn text_becomes_the_first_type_of_the_schema_that_it_can_be() {
        for (schema, text, value) in [
            (r#"{"type": "string"}"#, "1", r#""1""#),
            (r#"{"type": "string"}"#, "null", r#""null""#),
            (r#"{"type": ["string", "null"]}"#, "NULL", "null"),
            (r#"{"type": ["string", "null"]}"#, "x", r#""x""#),
            (r#"{"type": "integer"}"#, " 1_0\n", "10"),
            (r#"{"type": "integer"}"#, "1.0", "1.0"),
            (r#"{"type": "integer"}"#, "x", r#""x""#),
            (r#"{"type": ["string", "integer"]}"#, "7", "7"),
            (r#"{"type": "number"}"#, "1.0", "1"),
            (r#"{"type": "number"}"#, "-0.0", "0"),
            (r#"{"type": "number"}"#, "1e22", "10000000000000000000000"),
            (r#"{"type": "number"}"#, "2.50", "2.5"),
            (r#"{"type": "number"}"#, "nan", r#""nan""#),
            (r#"{"type": "number"}"#, "1e999", r#""1e999""#),
            (r#"{"type": "boolean"}"#, " TRUE ", "true"),
            (r#"{"type": "boolean"}"#, "0", "false"),
            (r#"{"type": "boolean"}"#, "yes", r#""yes""#),
            (r#"{"type": "object"}"#, r#"{"b": [1.0,2e1]}"#, r#"{"b": [1.0, 20.0]}"#),
            (r#"{"type": "object"}"#, "{'b': 1}", r#""{'b': 1}""#),
            (r#"{"type": "array"}"#, "[1,NaN]", r#""[1,NaN]""#),
            (r#"{"type": "array"}"#, r#""é""#, r#""é""#),
            (r#"{"type": "file"}"#, "[1]", "[1]"),
            (r#"{"type": " Int32 "}"#, "5", "5"),
            ("{}", "5", r#""5""#),
            (r#"{"enum": [1, "x"]}"#, "1", "1"),
            (r#"{"enum": [null, 1.5]}"#, "null", "null"),
            (r#"{"anyOf": [{"type": "integer"}, {"type": "null"}]}"#, "3", "3"),
            (r##"{"anyOf": [{"$ref": "#/x"}, {"type": "boolean"}]}"##, "{}", r#""{}""#),
            (r#"{"oneOf": [{"allOf": [{"type": "array"}]}]}"#, "[1]", "[1]"),
        ] {
            let text = Value::from(text).to_json_string();
            assert_eq!(fitted(schema, &format!(r#"{{"a": {text}}}"#)), format!(r#"{{"a": {value}}}"#), "{schema}");
        }
    }

    #[test]
    fn values_are_fitted_too_and_inside_of_objects_and_arrays() {
        let nested = r#"{"type": "object", "properties": {"b": {"type": "array", "items": {"type": "integer"}}}}"#;
        for (schema, arguments, written) in [
            (r#"{"type": "string"}"#, r#"{"a":5,"x":1}"#, r#"{"a": "5", "x": 1}"#),
            (r#"{"type": "string"}"#, r#"{"a":null}"#, r#"{"a": "null"}"#),
            (r#"{"type": "number"}"#, r#"{"a":5.0}"#, r#"{"a": 5}"#),
            (r#"{"type": "boolean"}"#, r#"{"a":1}"#, r#"{"a": true}"#),
            (nested, r#"{"a":{"b":"1"}}"#, r#"{"a": {"b": 1}}"#),
            (nested, r#"{"a":{"b":["1",2,"x"],"c":"3"}}"#, r#"{"a": {"b": [1, 2, "x"], "c": "3"}}"#),
            // What fits is left as it was spelled.
            (r#"{"type": "string"}"#, r#"{"a":"5","x":1e5}"#, r#"{"a":"5","x":1e5}"#),
            (nested, r#"{"a":{"b":"x"}}"#, r#"{"a":{"b":"x"}}"#),
            (nested, r#"{"a":{"b":[1]}}"#, r#"{"a":{"b":[1]}}"#),
            (r#"{"type": "string"}"#, "[5]", "[5]"),
            (r#"{"type": "string"}"#, r#"{"a":5"#, r#"{"a":5"#),
        ] {
            assert_eq!(fitted(schema, arguments), written, "{schema}");
        }
    }

    #[test]
    fn a_function_that_is_not_known_keeps_its_arguments() {
        let signatures = Signatures::of(&[tool("f", r#"{"properties": {"a": {"type": "integer"}}}"#)]);
        assert_eq!(signatures.fit("g", r#"{"a": "1"}"#.to_owned()), r#"{"a": "1"}"#);
        assert!(signatures.allow("f") && !signatures.allow("g"));
        assert!(Signatures::of(&[]).allow("g"));
    }
}
