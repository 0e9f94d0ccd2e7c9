//! JSON schemas as `llguidance` takes them, with what vLLM's default backend reads into them.
//!
//! Where a schema names an object's properties and says nothing of others, there are no others: that is what a model
//! should be held to, and what xgrammar does. White space between two tokens of JSON is as in vLLM, but not without end:
//! a model that has lost its way would write blanks until `max_tokens`.
//! Refuses numbers that it would have to round.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value, json};

use super::{
    cost,
    error::StructuredError,
    references,
    schemas::{NAMED, each_place},
    spelled,
};

/// The most characters of white space between two tokens of JSON: a line break and 31 blanks, which is enough for seven
/// levels of a generous indentation.
pub const MOST_WHITESPACE: usize = 32;

/// How JSON may be written.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct JsonOptions {
    /// Whether there is no white space but one blank after `,` and `:`.
    pub compact: bool,
    /// Whether objects have no properties but the named ones.
    pub closed: bool,
    /// What may stand between tokens of JSON, a regular expression; by default up to [`MOST_WHITESPACE`] blanks, tabs and
    /// line breaks.
    pub whitespace: Option<String>,
    /// Whether fixed text that begins with a bracket begins JSON, as calls do: it is told from other JSON as JSON is, and white space
    /// may be let in behind the bracket.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub brackets_are_json: bool,
}

/// Keywords that combine schemas, so that properties may be named by several of them.
const COMBINING: [&str; 8] = ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "$ref"];
/// From here on, not every integer is a float.
const LARGEST_EXACT: f64 = 9_007_199_254_740_992.0;

/// The schema with `options` in it, as an `%json` block or a grammar takes it.
pub(super) fn prepared(schema: &Value, options: &JsonOptions) -> Result<Value, StructuredError> {
    let mut schema = match schema {
        Value::Bool(true) => Value::Object(Map::new()),
        Value::Bool(false) => return Err(StructuredError::grammar("Unsatisfiable schema: schema is false")),
        Value::Object(_) => schema.clone(),
        other => {
            let message = format!("a JSON schema must be an object, got {}", value_excerpt(other));
            return Err(StructuredError::new(message));
        }
    };
    references::decode(&mut schema);
    check(&schema)?;
    spelled::spell(&mut schema);
    let open = if options.closed { BTreeSet::new() } else { joined(&schema) };
    close(&mut schema, &open);
    let given = schema.get("x-guidance").and_then(Value::as_object).cloned().unwrap_or_default();
    let mut guidance = guidance(options);
    guidance.extend(given);
    if let Value::Object(schema) = &mut schema {
        schema.insert("x-guidance".to_owned(), Value::Object(guidance));
    }
    Ok(schema)
}

/// Refuses what cannot be exact, has no end, or takes too long.
pub(super) fn check(schema: &Value) -> Result<(), StructuredError> {
    check_numbers(schema, Place::Schema)?;
    references::check(schema)?;
    cost::check(schema)
}

/// The options in `llguidance`'s words.
fn guidance(options: &JsonOptions) -> Map<String, Value> {
    let mut guidance = Map::new();
    if options.compact {
        guidance.insert("whitespace_flexible".to_owned(), json!(false));
        guidance.insert("item_separator".to_owned(), json!(", "));
        guidance.insert("key_separator".to_owned(), json!(": "));
    } else {
        // xgrammar's characters: no carriage return.
        let bounded = || format!(r"[\x20\x0A\x09]{{1,{MOST_WHITESPACE}}}");
        let whitespace = options.whitespace.clone().unwrap_or_else(bounded);
        guidance.insert("whitespace_pattern".to_owned(), json!(whitespace));
    }
    guidance.insert("json_allow_general_unicode_escapes".to_owned(), json!(true));
    guidance
}

fn value_excerpt(value: &Value) -> String {
    value.to_string().chars().take(64).collect()
}

/// Whether the compiler, which has `f64` for all numbers, can take one as it is. Large ones that no integer holds were rounded
/// when the request was read.
fn is_exact(number: &Number) -> bool {
    if let Some(integer) = number.as_i128() {
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "that is what is asked")]
        return integer as f64 as i128 == integer;
    }
    number.as_f64().is_some_and(|number| number.abs() < LARGEST_EXACT || number.fract() != 0.0)
}

/// Where in a schema a value stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// It is a schema, or belongs to one.
    Schema,
    /// It is a map of names to schemas.
    Names,
    /// It is what a value may be.
    Value,
}

/// Refuses numbers that would be rounded, but for those that restrict nothing.
pub(super) fn check_numbers(value: &Value, place: Place) -> Result<(), StructuredError> {
    match value {
        Value::Number(number) if !is_exact(number) => {
            Err(StructuredError::new(format!("{number} in a JSON schema is too large to be exact")))
        }
        Value::Array(items) => items.iter().try_for_each(|item| check_numbers(item, place)),
        Value::Object(entries) => entries.iter().try_for_each(|(key, value)| match (place, key.as_str()) {
            (Place::Schema, "default" | "example" | "examples") => Ok(()),
            (Place::Value, _) | (Place::Schema, "const" | "enum") => check_numbers(value, Place::Value),
            (Place::Schema, key) if NAMED.contains(&key) => check_numbers(value, Place::Names),
            (Place::Schema | Place::Names, _) => check_numbers(value, Place::Schema),
        }),
        Value::Number(_) | Value::Null | Value::Bool(_) | Value::String(_) => Ok(()),
    }
}

/// The places of the schemas that describe an object together with others: closing one of these would leave nothing.
fn joined(schema: &Value) -> BTreeSet<String> {
    let mut joined = BTreeSet::new();
    each_place(schema, &mut String::new(), &mut |entries, place| {
        let several = entries.get("allOf").and_then(Value::as_array).is_some_and(|all| all.len() > 1);
        let mut combining = COMBINING.iter().filter_map(|keyword| entries.get(*keyword));
        // A boolean, for one, has no place for properties.
        let combines = combining.any(|value| value.is_array() || value.is_object() || value.is_string());
        if several || (names_properties(entries) && combines) {
            join(schema, place, &mut joined);
        }
    });
    joined
}

/// Adds the place of a schema, and of all that it combines or refers to.
fn join(schema: &Value, place: &str, joined: &mut BTreeSet<String>) {
    let mut places = vec![place.to_owned()];
    while let Some(place) = places.pop() {
        let Some(Value::Object(entries)) = schema.pointer(&place) else { continue };
        if joined.contains(&place) {
            continue;
        }
        for keyword in COMBINING {
            match entries.get(keyword) {
                Some(Value::Array(items)) => {
                    places.extend((0..items.len()).map(|item| format!("{place}/{keyword}/{item}")));
                }
                Some(Value::Object(_)) => places.push(format!("{place}/{keyword}")),
                // Its escapes were decoded; there is none of a `/`.
                Some(Value::String(reference)) => {
                    places.extend(reference.strip_prefix('#').map(|place| place.replace('~', "~0")));
                }
                _ => {}
            }
        }
        joined.insert(place);
    }
}

fn names_properties(entries: &Map<String, Value>) -> bool {
    ["properties", "patternProperties"].iter().any(|keyword| entries.contains_key(*keyword))
}

/// Forbids further properties where properties are named, but for the schemas at the places that stay open.
fn close(schema: &mut Value, open: &BTreeSet<String>) {
    let mut closed = Vec::new();
    each_place(schema, &mut String::new(), &mut |entries, place| {
        let says = entries.contains_key("additionalProperties") || entries.contains_key("unevaluatedProperties");
        if names_properties(entries) && !says && !open.contains(place) {
            closed.push(place.to_owned());
        }
    });
    for place in closed {
        if let Some(Value::Object(entries)) = schema.pointer_mut(&place) {
            entries.insert("additionalProperties".to_owned(), Value::Bool(false));
        }
    }
}
