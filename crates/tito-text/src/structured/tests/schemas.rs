//! Which objects of a JSON schema are closed, and what keywords of lists and patterns mean.

use super::*;

#[test]
fn objects_that_several_schemas_describe_are_not_closed() {
    let model = Model::new();
    let both = schema(json!({"allOf": [
        {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"]},
        {"type": "object", "properties": {"b": {"type": "null"}}, "required": ["b"]}]}));
    model.check(&both, &["{\"a\":null,\"b\":null}"], &["{\"a\":null}", "{\"b\":null}"]);
    let definitions = schema(json!({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object",
        "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["next"]}}}));
    model.check(&definitions, &["{\"next\":{\"next\":null}}"], &["{\"next\":{}}", "{\"next\":null,\"a\":1}"]);
    let closed = Constraint::Json(
        json!({"type": "object", "properties": {"a": {"type": "null"}}}),
        JsonOptions { closed: true, compact: true, whitespace: None },
    );
    model.check(&closed, &["{}", "{\"a\": null}"], &["{\"b\": 1}", "{\"a\":null}", "{ }"]);
}

/// Names of properties, data and definitions that nothing uses are no schemas that describe the object; what other objects are
/// made of leaves this one alone.
#[test]
fn objects_that_one_schema_describes_are_closed_whatever_stands_beside_them() {
    let model = Model::new();
    let object = |more: Value| {
        let mut object = json!({"type": "object", "properties": {"k": {"type": "null"}}, "required": ["k"]});
        object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        schema(object)
    };
    let pair = json!([{"properties": {"z": {"type": "null"}}}, {"properties": {"y": {"type": "null"}}}]);
    for beside in [
        json!({"default": {"allOf": [1, 2]}}),
        json!({"examples": [{"properties": 1, "$ref": "x"}]}),
        json!({"$defs": {"unused": {"type": "object", "properties": {"z": {"type": "null"}}, "anyOf": pair}}}),
    ] {
        model.check(&object(beside), &["{\"k\":null}"], &["{\"k\":null,\"m\":1}", "{}"]);
    }
    let named = schema(json!({"type": "object", "required": ["$ref", "properties"],
        "properties": {"$ref": {"type": "null"}, "properties": {"type": "null"}}}));
    model.check(&named, &["{\"$ref\":null,\"properties\":null}"], &["{\"$ref\":null,\"properties\":null,\"c\":1}"]);
    let inner = schema(json!({"type": "object", "required": ["x"], "properties": {
        "x": {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"]},
        "y": {"allOf": [{"type": "object", "properties": {"a": {"type": "null"}}},
            {"type": "object", "properties": {"b/~": {"type": "null"}}}]}}}));
    let accepted = ["{\"x\":{\"a\":null}}", "{\"x\":{\"a\":null},\"y\":{\"a\":null,\"b/~\":null}}"];
    model.check(&inner, &accepted, &["{\"x\":{\"a\":null,\"b\":1}}", "{\"x\":{\"a\":null},\"z\":1}"]);
    let referred = schema(json!({"$defs": {"base~": {"type": "object", "properties": {"a": {"type": "null"}}}},
        "type": "object", "properties": {"b": {"type": "null"}}, "required": ["b"], "allOf": [{"$ref": "#/$defs/base~0"}]}));
    model.check(&referred, &["{\"b\":null,\"a\":null}", "{\"b\":null}"], &["{\"a\":null}"]);
}

#[test]
fn white_space_of_patterns_is_that_of_ascii() {
    let model = Model::new();
    let only = |pattern: &str| schema(json!({"type": "string", "pattern": pattern}));
    model.check(&only(r"^\s$"), &["\" \"", "\"\\t\""], &["\"\u{a0}\"", "\"\u{2028}\"", "\"\u{85}\"", "\"s\""]);
    model.check(&only(r"^[a\s]$"), &["\" \"", "\"a\""], &["\"\u{a0}\"", "\"b\""]);
    model.check(&only(r"^a/\s$"), &["\"a/ \""], &["\"a/\u{a0}\"", "\"a \""]);
    let named = schema(json!({"type": "object", "patternProperties": {r"^a/\s$": {"type": "null"}}}));
    model.check(&named, &["{\"a/ \":null}"], &["{\"a/\u{a0}\":null}"]);
    model.check(&only(r"^\S$"), &["\"a\"", "\"\u{a0}\""], &["\" \""]);
    model.check(&only(r"^\\s$"), &[r#""\\s""#], &["\" \""]);
}

/// The compiler alone would take `additionalItems` for a sign of an old draft, and all of `prefixItems` for nothing.
#[test]
fn items_after_the_first_ones_are_what_either_keyword_says() {
    let model = Model::new();
    let tuple = |more: Value| {
        let mut list = json!({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "null"}], "minItems": 2});
        list.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        schema(json!({"type": "object", "properties": {"a": list}, "required": ["a"]}))
    };
    let (two, other, three, four) =
        ("{\"a\":[1,null]}", "{\"a\":[null,1]}", "{\"a\":[1,null,true]}", "{\"a\":[1,null,2]}");
    for none in
        [json!({"additionalItems": false}), json!({"items": false}), json!({"items": false, "additionalItems": true})]
    {
        model.check(&tuple(none), &[two], &[other, three, four]);
    }
    for more in [json!({"additionalItems": {"type": "boolean"}}), json!({"items": {"type": "boolean"}})] {
        model.check(&tuple(more), &[two, three], &[other, four]);
    }
    let old = json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "minItems": 1,
        "items": [{"type": "integer"}], "additionalItems": false});
    model.check(&schema(old), &["[1]"], &["[1,1]", "[null]"]);
}
