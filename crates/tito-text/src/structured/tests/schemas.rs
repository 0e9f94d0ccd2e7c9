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
        JsonOptions { closed: true, compact: true, ..JsonOptions::default() },
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

/// As pydantic writes `dict[Literal["a", "b.c"], int]`, `dict[Colour, int]` and `dict[Annotated[str, …], int]`.
#[test]
fn names_of_properties_are_those_that_their_schema_allows() {
    let model = Model::new();
    let map = |names: Value, more: Value| {
        let mut map = json!({"type": "object", "propertyNames": names, "additionalProperties": {"type": "integer"},
            "$defs": {"Colour": {"enum": ["red", "a/b"], "title": "Colour", "type": "string"}}});
        map.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        schema(map)
    };
    let none = json!({});
    let listed = map(json!({"enum": ["a", "b.c"]}), none.clone());
    model.check(
        &listed,
        &["{}", r#"{"a":1}"#, r#"{"b.c":1,"a":2}"#],
        &[r#"{"bxc":1}"#, r#"{"a":null}"#, r#"{"ab":1}"#],
    );
    let referred = map(json!({"$ref": "#/$defs/Colour"}), none.clone());
    model.check(&referred, &[r#"{"red":1,"a/b":2}"#], &[r#"{"blue":1}"#, r#"{"red":"1"}"#]);
    model.check(&map(json!({"const": "k"}), json!({"minProperties": 1})), &[r#"{"k":1}"#], &["{}", r#"{"l":1}"#]);
    model.check(&map(json!({"pattern": "b"}), none.clone()), &[r#"{"abc":1}"#], &[r#"{"ac":1}"#]);
    let short = json!({"minLength": 1, "maxLength": 2, "type": "string", "description": "short"});
    model.check(&map(short, none.clone()), &[r#"{"a":1}"#, r#"{"äb":1}"#], &[r#"{"abc":1}"#, r#"{"":1}"#]);
    model.check(&map(json!({"type": "string"}), none.clone()), &[r#"{"abc":1}"#], &[r#"{"abc":null}"#]);
    let nothing = map(json!({"pattern": "b"}), json!({"additionalProperties": false}));
    model.check(&nothing, &["{}"], &[r#"{"b":1}"#]);
    let needed = map(json!({"enum": ["a", "b"]}), json!({"required": ["a"]}));
    model.check(&needed, &[r#"{"a":1}"#], &["{}", r#"{"b":1}"#]);
    for refused in [json!({"not": {"const": "a"}}), json!({"format": "email"}), json!({"enum": ["a", 1]}), json!(false)]
    {
        assert!(model.error(&map(refused, none.clone())).contains("propertyNames"));
    }
    let beside = map(json!({"pattern": "b"}), json!({"properties": {"a": {"type": "null"}}}));
    assert!(model.error(&beside).contains("propertyNames"));
}

#[test]
fn what_nothing_else_describes_is_further() {
    let model = Model::new();
    let closed = json!({"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"], "unevaluatedProperties": false});
    model.check(&schema(closed.clone()), &[r#"{"a":null}"#], &[r#"{"a":null,"b":1}"#]);
    let mut open = closed.clone();
    open["unevaluatedProperties"] = json!(true);
    model.check(&schema(open), &[r#"{"a":null,"b":1}"#], &["{}"]);
    let tuple = json!({"type": "array", "prefixItems": [{"type": "null"}], "minItems": 1, "unevaluatedItems": {"type": "integer"}});
    model.check(&schema(tuple), &["[null]", "[null,1]"], &["[null,null]", "[1]"]);
    model.check(&schema(json!({"type": "array", "items": {"enum": [1]}, "uniqueItems": false})), &["[1,1]"], &["[2]"]);
    // Joined with others, it is about what those leave.
    let mut joined = closed;
    joined["anyOf"] = json!([{"properties": {"b": {"type": "null"}}}]);
    assert!(model.error(&schema(joined)).contains("unevaluatedProperties"));
}

#[test]
fn dates_are_days_of_the_calendar_and_times_have_sixty_seconds() {
    let model = Model::new();
    let of = |format: &str| schema(json!({"type": "string", "format": format}));
    let (dates, no_dates) = (
        ["2024-02-29", "2000-02-29", "2021-02-28", "1999-12-31"],
        ["2021-02-29", "1900-02-29", "2023-04-31", "2023-13-01"],
    );
    for date in dates {
        let [date, time] = [format!("\"{date}\""), format!("\"{date}T23:59:59.5Z\"")];
        model.check(&of("date"), &[&date], &[&time]);
        model.check(&of("date-time"), &[&time], &[&date]);
    }
    for date in no_dates {
        model.check(&of("date"), &[], &[&format!("\"{date}\"")]);
        model.check(&of("date-time"), &[], &[&format!("\"{date}T00:00:00Z\"")]);
    }
    model.check(
        &of("time"),
        &["\"23:59:59Z\"", "\"00:00:00.25+01:00\""],
        &["\"23:59:60Z\"", "\"22:59:60Z\"", "\"24:00:00Z\""],
    );
    let both = schema(json!({"type": "string", "format": "date", "pattern": "^20"}));
    model.check(&both, &["\"2024-02-29\""], &["\"1999-12-31\"", "\"2023-02-29\"", "\"20\""]);
}

#[test]
fn pointers_references_and_templates_are_texts_of_their_format() {
    let model = Model::new();
    for (format, accepted, refused) in [
        ("json-pointer", &["", "/", "/foo/b~0r/~1", "/a b"][..], &["foo", "/a~", "/~2", "#/a"][..]),
        ("relative-json-pointer", &["0", "12/a", "1#"], &["/a", "01/a", "-1", "0##"]),
        (
            "uri-reference",
            &["", "a/b", "/a?q#f", "//host:80/x", "http://u@h/%20", "#f", "urn:a:b"],
            &["a b", "\\\\x", "%zz", "http://a b"],
        ),
        ("uri-template", &["http://x/{a,b}/{+c*}", "{?q:3}", "plain"], &["{", "{a", "a}", "{a b}"]),
    ] {
        let format = schema(json!({"type": "string", "format": format}));
        for text in accepted {
            model.check(&format, &[&format!("\"{text}\"")], &[]);
        }
        for text in refused {
            model.check(&format, &[], &[&format!("\"{text}\"")]);
        }
    }
}
