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
