//! Where in a JSON schema other schemas stand.

use serde_json::{Map, Value};

/// Maps of names to schemas.
pub(super) const NAMED: [&str; 6] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];
/// Schemas, or lists of schemas.
pub(super) const NESTED: [&str; 9] = [
    "items",
    "prefixItems",
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "oneOf",
    "contains",
    "propertyNames",
];

/// Visits a schema and all schemas in it.
pub(super) fn each_schema(schema: &mut Value, visit: &mut impl FnMut(&mut Map<String, Value>)) {
    match schema {
        Value::Array(schemas) => schemas.iter_mut().for_each(|schema| each_schema(schema, visit)),
        Value::Object(entries) => {
            visit(entries);
            for keyword in NAMED {
                if let Some(Value::Object(schemas)) = entries.get_mut(keyword) {
                    schemas.values_mut().for_each(|schema| each_schema(schema, visit));
                }
            }
            for keyword in NESTED {
                if let Some(nested) = entries.get_mut(keyword) {
                    each_schema(nested, visit);
                }
            }
        }
        _ => {}
    }
}

/// Visits a schema and all schemas in it, each with its place as a JSON pointer.
pub(super) fn each_place(schema: &Value, place: &mut String, visit: &mut impl FnMut(&Map<String, Value>, &str)) {
    match schema {
        Value::Array(schemas) => {
            for (item, schema) in schemas.iter().enumerate() {
                within(place, &item.to_string(), |place| each_place(schema, place, visit));
            }
        }
        Value::Object(entries) => {
            visit(entries, place);
            for keyword in NAMED {
                let Some(Value::Object(schemas)) = entries.get(keyword) else { continue };
                within(place, keyword, |place| {
                    for (name, schema) in schemas {
                        within(place, &escaped(name), |place| each_place(schema, place, visit));
                    }
                });
            }
            for keyword in NESTED {
                let Some(nested) = entries.get(keyword) else { continue };
                within(place, keyword, |place| each_place(nested, place, visit));
            }
        }
        _ => {}
    }
}

/// Calls `work` with the place of a part.
fn within(place: &mut String, part: &str, work: impl FnOnce(&mut String)) {
    let len = place.len();
    place.push('/');
    place.push_str(part);
    work(place);
    place.truncate(len);
}

/// A name as a part of a JSON pointer.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
