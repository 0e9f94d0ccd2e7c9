//! What of a tool's schema can be forced.
//!
//! Schemas of tools come from the programs that have the tools, and say things that the compiler does not know. What it
//! does not know is left out, and named. What is left allows everything that the whole schema allows.

use serde_json::{Map, Value};

use super::{
    error::StructuredError,
    formats,
    json_schema::{Place, check, check_numbers},
    references,
    schemas::each_schema,
    spelled,
};

/// Keywords that the compiler does not know, and refuses.
const UNKNOWN: [&str; 14] = [
    "$dynamicRef",
    "$recursiveRef",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "maxContains",
    "minContains",
    "not",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Those of them that may name properties.
const NAMING: [&str; 8] = [
    "$dynamicRef",
    "$recursiveRef",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "then",
    "unevaluatedProperties",
];
/// A schema that the compiler can read.
#[derive(Debug, Clone, PartialEq)]
pub struct Forceable {
    /// The schema without what cannot be forced.
    pub schema: Value,
    /// What was left out, each keyword once.
    pub unforced: Vec<String>,
}

impl Forceable {
    /// Leaves out of a schema what cannot be forced.
    ///
    /// # Errors
    ///
    /// If what is left has no end, cannot be exact or takes too long.
    pub fn of(schema: &Value) -> Result<Self, StructuredError> {
        let mut schema = schema.clone();
        let mut unforced = Vec::new();
        references::decode(&mut schema);
        spelled::spell_keywords(&mut schema);
        each_schema(&mut schema, &mut |entries| relax(entries, &mut unforced));
        unforced.sort_unstable();
        unforced.dedup();
        check(&schema)?;
        Ok(Self { schema, unforced })
    }
}

fn relax(entries: &mut Map<String, Value>, unforced: &mut Vec<String>) {
    let mut leave_out = |entries: &mut Map<String, Value>, keyword: &str, says_something: bool| {
        let is_left_out = entries.shift_remove(keyword).is_some();
        if is_left_out && says_something {
            unforced.push(keyword.to_owned());
        }
        is_left_out
    };
    for keyword in UNKNOWN {
        if keyword == "unevaluatedProperties" && entries.get(keyword) == Some(&Value::Bool(false)) {
            leave_out(entries, keyword, true);
        } else if leave_out(entries, keyword, true) && NAMING.contains(&keyword) {
            // What it demanded may have properties that nothing else names.
            entries.entry("additionalProperties").or_insert(Value::Bool(true));
        }
    }
    for keyword in ["propertyNames", "uniqueItems"] {
        leave_out(entries, keyword, true);
    }
    let looks_around = |pattern: &str| ["(?=", "(?!", "(?<=", "(?<!"].iter().any(|group| pattern.contains(group));
    if entries.get("pattern").and_then(Value::as_str).is_some_and(looks_around) {
        leave_out(entries, "pattern", true);
    }
    for keyword in ["const", "enum", "exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"] {
        let rounds = entries.get(keyword).is_some_and(|value| check_numbers(value, Place::Value).is_err());
        if rounds {
            leave_out(entries, keyword, true);
        }
    }
    relax_format(entries, unforced);
    relax_one_of(entries, unforced);
}

/// Leaves out a format that the compiler does not know. Those of numbers say nothing of how a number is written.
fn relax_format(entries: &mut Map<String, Value>, unforced: &mut Vec<String>) {
    let Some(format) = entries.get("format").and_then(Value::as_str) else { return };
    if formats::is_known(format) {
        return;
    }
    let may_be_text = match entries.get("type") {
        Some(Value::String(kind)) => kind == "string",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "string"),
        _ => true,
    };
    if may_be_text {
        unforced.push(format!("format {format:?}"));
    }
    entries.shift_remove("format");
}

/// Takes `oneOf` for `anyOf`, which is the same where only one can hold at a time.
fn relax_one_of(entries: &mut Map<String, Value>, unforced: &mut Vec<String>) {
    if entries.contains_key("anyOf") {
        return;
    }
    let Some(Value::Array(choices)) = entries.get("oneOf") else { return };
    if !are_exclusive(choices) {
        unforced.push("oneOf".to_owned());
    }
    // In its place: the order of keywords is part of a grammar.
    let renamed = std::mem::take(entries).into_iter();
    *entries = renamed.map(|(key, value)| (if key == "oneOf" { "anyOf".to_owned() } else { key }, value)).collect();
}

/// Whether choices are of different types, or need a property that says which one it is.
fn are_exclusive(choices: &[Value]) -> bool {
    let kinds: Option<Vec<&str>> = choices.iter().map(|choice| choice.get("type")?.as_str()).collect();
    let as_number = |kind: &str| if kind == "integer" { "number".to_owned() } else { kind.to_owned() };
    if kinds.is_some_and(|kinds| all_differ(kinds.into_iter().map(as_number))) {
        return true;
    }
    let Some(names) = choices.first().and_then(|choice| choice.get("required")?.as_array()) else { return false };
    names.iter().filter_map(Value::as_str).any(|name| {
        let values: Option<Vec<String>> = choices.iter().map(|choice| only_value(choice, name)).collect();
        values.is_some_and(|values| all_differ(values.into_iter()))
    })
}

fn all_differ(values: impl Iterator<Item = String>) -> bool {
    let mut seen = std::collections::HashSet::new();
    values.into_iter().all(|value| seen.insert(value))
}

/// The text that a property must be, where it must be there.
fn only_value(choice: &Value, name: &str) -> Option<String> {
    let is_required = choice.get("required")?.as_array()?.iter().any(|required| required == name);
    let property = choice.get("properties")?.get(name)?;
    let only = property.get("const").or_else(|| match property.get("enum")?.as_array()?.as_slice() {
        [only] => Some(only),
        _ => None,
    });
    only?.as_str().filter(|_| is_required).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn unforced(schema: &Value) -> Vec<String> {
        Forceable::of(schema).unwrap().unforced
    }

    #[test]
    fn what_is_left_out_is_named_wherever_it_stands() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
            "properties": {
                "tags": { "type": "array", "uniqueItems": true, "items": { "type": "string", "format": "binary" } },
                "secret": { "type": "string", "format": "password" },
                "map": { "type": "object", "propertyNames": { "not": { "const": "a" } }, "additionalProperties": {} },
                "not": { "type": "string", "pattern": "^(?!x)" },
            },
            "required": ["tags"],
        });
        let named = ["format \"binary\"", "format \"password\"", "pattern", "propertyNames", "uniqueItems"];
        assert_eq!(unforced(&schema), named);
        let left = Forceable::of(&schema).unwrap().schema;
        assert_eq!(left["properties"]["tags"], json!({ "type": "array", "items": { "type": "string" } }));
        assert_eq!(left["properties"]["not"], json!({ "type": "string" }));
        assert_eq!(left["required"], json!(["tags"]));
    }

    #[test]
    fn what_says_nothing_is_left_out_without_a_word() {
        for schema in [
            json!({ "type": "object", "propertyNames": { "type": "string" }, "additionalProperties": {} }),
            json!({ "type": "array", "uniqueItems": false }),
            json!({ "type": "object", "propertyNames": { "enum": ["a"] }, "unevaluatedProperties": false }),
            json!({ "type": "integer", "format": "int32" }),
            json!({ "type": "string", "format": "date-time" }),
            json!({ "oneOf": [{ "type": "string" }, { "type": "null" }] }),
            json!({ "oneOf": [
                { "type": "object", "properties": { "kind": { "const": "a" } }, "required": ["kind"] },
                { "type": "object", "properties": { "kind": { "enum": ["b"] } }, "required": ["kind"] },
            ] }),
        ] {
            assert_eq!(unforced(&schema), Vec::<String>::new(), "{schema}");
        }
        assert_eq!(unforced(&json!({ "oneOf": [{ "type": "integer" }, { "type": "number" }] })), ["oneOf"]);
    }

    #[test]
    fn what_is_left_allows_the_properties_that_only_what_is_left_out_names() {
        let a = json!({ "type": "object", "properties": { "kind": { "enum": ["a", "b"] } } });
        for (keyword, value) in [
            ("then", json!({ "properties": { "x": { "type": "integer" } }, "required": ["x"] })),
            ("dependentSchemas", json!({ "kind": { "required": ["x"] } })),
            ("dependentRequired", json!({ "kind": ["x"] })),
        ] {
            let mut schema = a.clone();
            schema[keyword] = value;
            let left = Forceable::of(&schema).unwrap();
            assert_eq!(
                (&left.schema["additionalProperties"], &left.unforced[..]),
                (&json!(true), &[keyword.to_owned()][..])
            );
        }
        let mut closed = a;
        closed["additionalProperties"] = json!(false);
        closed["then"] = json!({ "required": ["x"] });
        assert_eq!(Forceable::of(&closed).unwrap().schema["additionalProperties"], json!(false));
    }

    #[test]
    fn numbers_that_would_be_rounded_are_left_out_and_named() {
        let schema =
            json!({ "type": "integer", "enum": [1_234_567_890_123_456_789_u64], "minimum": 0, "default": u64::MAX });
        let left = Forceable::of(&schema).unwrap();
        assert_eq!(
            (&left.schema, left.unforced),
            (&json!({ "type": "integer", "minimum": 0, "default": u64::MAX }), vec!["enum".to_owned()])
        );
    }

    #[test]
    fn values_are_not_schemas() {
        let schema = json!({ "enum": [{ "uniqueItems": true }], "default": { "not": 1 } });
        assert_eq!(Forceable::of(&schema).unwrap(), Forceable { schema: schema.clone(), unforced: Vec::new() });
        assert!(Forceable::of(&json!({ "$ref": "#" })).is_err());
    }
}
