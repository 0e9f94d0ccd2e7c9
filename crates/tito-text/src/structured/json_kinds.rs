//! What JSON of a schema may begin with, and whether it is a single token.

use std::collections::BTreeSet;

use serde_json::Value;

use super::lark::escaped;

/// How many references are followed.
const DEEPEST: usize = 16;
/// All texts of values that are a single token, but for numbers.
const STRING: &str = r#""([^"\\\n]|\\.)*""#;
const NUMBER: &str = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?";
const INTEGER: &str = r"-?[0-9]+";

/// What JSON of a schema may be, as far as its types and values tell; maybe more than it may.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Kinds {
    /// Expressions of the values that are a single token.
    pub(super) tokens: BTreeSet<String>,
    pub(super) array: bool,
    pub(super) object: bool,
}

impl Kinds {
    pub(super) fn of(schema: &Value) -> Self {
        of(schema, schema, DEEPEST)
    }

    pub(super) fn are_scalars(&self) -> bool {
        !self.array && !self.object
    }

    fn all() -> Self {
        ["null", "boolean", "number", "string", "array", "object"]
            .map(of_type)
            .into_iter()
            .fold(Self::default(), Self::or)
    }

    fn or(mut self, other: Self) -> Self {
        self.tokens.extend(other.tokens);
        Self { tokens: self.tokens, array: self.array | other.array, object: self.object | other.object }
    }
}

fn of(schema: &Value, root: &Value, depth: usize) -> Kinds {
    let Value::Object(entries) = schema else { return Kinds::all() };
    let each = |schemas: &[Value]| {
        schemas.iter().map(|schema| of(schema, root, depth.saturating_sub(1))).fold(Kinds::default(), Kinds::or)
    };
    if depth == 0 {
        return Kinds::all();
    }
    let given = |key: &str| entries.get(key);
    if let Some(value) = given("const") {
        return of_value(value);
    }
    if let Some(Value::Array(values)) = given("enum") {
        return values.iter().map(of_value).fold(Kinds::default(), Kinds::or);
    }
    match given("type") {
        Some(Value::String(kind)) => return of_type(kind),
        Some(Value::Array(kinds)) => {
            return kinds.iter().filter_map(Value::as_str).map(of_type).fold(Kinds::default(), Kinds::or);
        }
        _ => {}
    }
    if let Some(Value::Array(schemas)) = given("anyOf").or_else(|| given("oneOf")) {
        return each(schemas);
    }
    let target = given("$ref").and_then(Value::as_str).and_then(|path| root.pointer(path.strip_prefix('#')?));
    if let Some(target) = target {
        return of(target, root, depth - 1);
    }
    let of_all = given("allOf").and_then(Value::as_array).into_iter().flatten();
    // All of them hold, so that one that tells is enough.
    of_all.map(|schema| of(schema, root, depth - 1)).find(|kinds| *kinds != Kinds::all()).unwrap_or_else(Kinds::all)
}

fn of_type(kind: &str) -> Kinds {
    let token = |pattern: &str| Kinds { tokens: [pattern.to_owned()].into(), ..Kinds::default() };
    match kind {
        "null" => token("null"),
        "boolean" => token("true|false"),
        "integer" => token(INTEGER),
        "number" => token(NUMBER),
        "string" => token(STRING),
        "array" => Kinds { array: true, ..Kinds::default() },
        "object" => Kinds { object: true, ..Kinds::default() },
        _ => Kinds::all(),
    }
}

fn of_value(value: &Value) -> Kinds {
    match value {
        Value::Null => of_type("null"),
        Value::String(_) => of_type("string"),
        Value::Array(_) => of_type("array"),
        Value::Object(_) => of_type("object"),
        Value::Bool(_) | Value::Number(_) => Kinds { tokens: [escaped(&value.to_string())].into(), ..Kinds::default() },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn types_values_and_references_tell_what_json_may_be() {
        assert_eq!(Kinds::of(&json!({"enum": [1, true]})).tokens, ["1".to_owned(), "true".to_owned()].into());
        let object = Kinds { object: true, ..Kinds::default() };
        for schema in [
            json!({"type": "object"}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"type": "object"}, {"const": {}}]}}}),
            json!({"allOf": [{"minProperties": 1}, {"type": "object"}]}),
        ] {
            assert_eq!(Kinds::of(&schema), object, "{schema}");
        }
        for schema in [json!({}), json!(true), json!({"properties": {}}), json!({"anyOf": [{"type": "null"}, {}]})] {
            assert_eq!(Kinds::of(&schema), Kinds::all(), "{schema}");
        }
        assert!(Kinds::of(&json!({"type": ["string", "null"]})).are_scalars());
    }
}
