//! Arguments fitted to a tool's JSON schema, as vLLM does it (`tool_parsers/utils.py`, `parser/engine/parser_engine.py`).
//!
//! Formats that write every value as text leave it to the schema what is a number. Refuses to judge: what does not fit
//! stays as it is.
//!
//! What deviates on purpose:
//! - Where the model has said the type of a value, as JSON does, that counts: only a type that the schema does not allow
//!   becomes another one. vLLM reads such a value as text, too, so that the text `02134` becomes the number 2134.
//! - `null` is never text, and Python's `None` is null where the schema allows that and no text.
//! - JSON with half of a surrogate pair, or nested deeper than our JSON parser goes, stays text: it could not be sent.
//! - A number that is JSON keeps its text: vLLM makes `3` of `3.0`, and `2.5` of `2.50`.

use super::{
    number, pythonic,
    schema_types::{Schemas, Types, type_of},
};
use crate::{
    chat::FunctionTool,
    json::{Integer, Value},
    parser::marker,
};

/// The names of a request's tools, and the schemas of their arguments.
#[derive(Debug)]
pub(super) struct Signatures(Vec<Signature>);

#[derive(Debug)]
struct Signature {
    name: String,
    schema: Value,
}

impl Signatures {
    pub(super) fn of(tools: &[FunctionTool]) -> Self {
        let signature = |tool: &FunctionTool| Signature {
            name: tool.name.clone(),
            schema: tool.parameters.clone().unwrap_or(Value::Null),
        };
        Self(tools.iter().map(signature).collect())
    }

    /// Whether a tool is called so. Where there are no tools, any may be.
    pub(super) fn allow(&self, name: &str) -> bool {
        self.0.is_empty() || self.know(name)
    }

    /// Whether a tool is called so.
    pub(super) fn know(&self, name: &str) -> bool {
        self.0.iter().any(|tool| tool.name == name)
    }

    /// Whether a tool names its arguments, and among them all of these.
    pub(super) fn name_all<'k>(&self, name: &str, mut keys: impl Iterator<Item = &'k String>) -> bool {
        let Some(Signature { schema, .. }) = self.0.iter().find(|tool| tool.name == name) else { return false };
        let properties = schema.get("properties").and_then(Value::as_object).filter(|named| !named.is_empty());
        properties.is_some_and(|named| keys.all(|key| named.contains_key(key)))
    }

    /// What the schema of a tool says of its arguments.
    pub(super) fn schemas(&self, name: &str) -> Option<Schemas<'_>> {
        self.0.iter().find(|tool| tool.name == name).map(|tool| Schemas::of(&tool.schema, &tool.schema))
    }

    /// Whether the schema of a tool says what one of its arguments is.
    pub(super) fn names(&self, name: &str, key: &str) -> bool {
        self.schemas(name).is_some_and(|schemas| schemas.property(key).is_some())
    }

    /// The text as an argument of a tool, where the model has said its type too: that counts where the schema has none, or
    /// several of which it is one.
    pub(super) fn value(&self, name: &str, key: &str, said: Option<&str>, text: &str) -> Value {
        match (self.schemas(name).and_then(|schemas| schemas.property(key)), said) {
            (Some(schemas), Some(said)) if schemas.types().allow(said) => read(text, &Types::only(said)),
            (Some(schemas), _) if !schemas.are_untyped() => read(text, &schemas.types()),
            (_, Some(said)) if said != "any" => read(text, &Types::only(said)),
            _ => Value::from(text),
        }
    }

    /// Arguments of which each has said its type: those of types that the schema does not allow become what it asks for.
    /// Where none changes, the text stays as it is.
    pub(super) fn fit(&self, name: &str, arguments: String) -> String {
        self.fitted(name, arguments, Strings::AreTexts)
    }

    /// Arguments that the model has written as texts, with values of the types that the schema asks for.
    pub(super) fn fit_untyped(&self, name: &str, arguments: String) -> String {
        self.fitted(name, arguments, Strings::AreUntyped)
    }

    fn fitted(&self, name: &str, arguments: String, strings: Strings) -> String {
        let Some(schemas) = self.schemas(name) else { return arguments };
        let Ok(mut value @ Value::Object(_)) = Value::parse_literally(&arguments) else { return arguments };
        if fit_value(&mut value, &schemas, strings) { value.to_json_string() } else { arguments }
    }
}

/// What the model has said by a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strings {
    /// That the value is text.
    AreTexts,
    /// Nothing: every value is written so.
    AreUntyped,
}

/// Fits every value that has a schema; says whether one changed.
fn fit_value(value: &mut Value, schemas: &Schemas<'_>, strings: Strings) -> bool {
    match value {
        Value::Object(object) => object.iter_mut().fold(false, |changed, (key, value)| {
            schemas.property(key).is_some_and(|schemas| fit_value(value, &schemas, strings)) | changed
        }),
        Value::Array(items) => fit_items(items, schemas, strings),
        Value::Null => false,
        Value::String(_) if strings == Strings::AreTexts && schemas.allow_type_of(value) => false,
        Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Literal(_) if schemas.allow_type_of(value) => false,
        Value::String(text) => {
            let fitted = read(text, &schemas.types());
            let changed = !matches!(&fitted, Value::String(fitted) if fitted == text);
            *value = fitted;
            changed
        }
        Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Literal(_) => {
            let fitted = read(&value.to_json_string(), &schemas.types());
            let changed = fitted != *value;
            *value = fitted;
            changed
        }
    }
}

fn fit_items(items: &mut [Value], schemas: &Schemas<'_>, strings: Strings) -> bool {
    let single = schemas.single_items();
    let others = schemas.item(single);
    items.iter_mut().enumerate().fold(false, |changed, (index, item)| {
        let own = if index < single { schemas.item(index) } else { None };
        let schemas = if index < single { own.as_ref() } else { others.as_ref() };
        schemas.is_some_and(|schemas| fit_value(item, schemas, strings)) | changed
    })
}

/// The text as a value of the first type that it can be, in vLLM's order.
fn read(text: &str, types: &Types) -> Value {
    let is_none = || !types.allow("string") && marker::trim(text) == "None";
    if types.allow("null") && (text.to_lowercase() == "null" || is_none()) {
        return Value::Null;
    }
    let integer = || types.allow("integer").then(|| integer(text)).flatten();
    let number = || types.allow("number").then(|| number(text)).flatten();
    let boolean = || types.allow("boolean").then(|| boolean(text)).flatten();
    let structure = || (types.allow("object") || types.allow("array")).then(|| structure(text, types)).flatten();
    let read = integer().or_else(number).or_else(boolean).or_else(structure);
    match read {
        Some(value) => value,
        None if types.allow("string") => Value::from(text),
        // vLLM's last resort for types that it does not know.
        None => json(text).unwrap_or_else(|| Value::from(text)),
    }
}

/// Whether a text of these types is read as itself.
pub(super) fn is_read_as_text(text: &str, types: &Types) -> bool {
    matches!(read(text, types), Value::String(read) if read == text)
}

/// The text as the value that it writes as JSON or in Python's words, where nothing says what type it has.
pub(super) fn untyped(text: &str) -> Value {
    let written = marker::trim(text);
    json(written).or_else(|| pythonic::literal(written).filter(is_finite)).unwrap_or_else(|| Value::from(text))
}

/// An integer, to the letter where JSON writes it so, and otherwise as Python reads it. `3.0` is one for JSON schema and for
/// no other type of a choice: it is left to [`json`], which comes last.
fn integer(text: &str) -> Option<Value> {
    let literal = json(marker::trim(text)).filter(|value| type_of(value) == "integer");
    literal.or_else(|| number::int(text).map(Value::Int))
}

/// A number that JSON has, to the letter where JSON writes it so. What only Python reads is an integer where it is whole:
/// a float has 53 bits for the digits.
fn number(text: &str) -> Option<Value> {
    let literal = json(marker::trim(text)).filter(|value| matches!(value, Value::Int(_) | Value::Literal(_)));
    if literal.is_some() {
        return literal;
    }
    let whole = text.trim_end_matches(marker::is_space);
    let whole = whole.split_once('.').filter(|(_, fraction)| fraction.bytes().all(|digit| digit == b'0'));
    if let Some(integer) = number::int(whole.map_or(text, |(whole, _)| whole)) {
        return Some(Value::Int(integer));
    }
    let value = number::float(text).filter(|value| value.is_finite())?;
    if value.fract() != 0.0 {
        return Some(Value::Float(value));
    }
    let digits = format!("{value:.0}");
    Integer::from_decimal(if digits == "-0" { "0" } else { &digits }).map(Value::Int)
}

/// An object or an array, as JSON or, where no text is allowed, in Python's words.
fn structure(text: &str, types: &Types) -> Option<Value> {
    let python = || {
        let value = pythonic::literal(marker::trim(text)).filter(is_finite)?;
        types.allow(type_of(&value)).then_some(value)
    };
    json(text).or_else(|| if types.allow("string") { None } else { python() })
}

fn boolean(text: &str) -> Option<Value> {
    match text.to_lowercase().trim_matches(marker::is_space) {
        "true" | "1" => Some(Value::Bool(true)),
        "false" | "0" => Some(Value::Bool(false)),
        _ => None,
    }
}

fn json(text: &str) -> Option<Value> {
    Value::parse_literally(text).ok().filter(is_finite)
}

pub(super) fn is_finite(value: &Value) -> bool {
    match value {
        Value::Float(float) => float.is_finite(),
        Value::Literal(text) => text.parse().is_ok_and(f64::is_finite),
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
            (r#"{"type": ["string", "null"]}"#, "None", r#""None""#),
            (r#"{"type": ["integer", "null"]}"#, "None", "null"),
            (r#"{"type": "null"}"#, "None", "null"),
            (r#"{"enum": [null, 1]}"#, " None\n", "null"),
            (r#"{"type": "integer"}"#, "None", r#""None""#),
            (r#"{"type": "integer"}"#, " 1_0\n", "10"),
            (r#"{"type": "integer"}"#, "1.0", "1.0"),
            (r#"{"type": "integer"}"#, "x", r#""x""#),
            (r#"{"type": ["string", "integer"]}"#, "7", "7"),
            (r#"{"type": ["string", "integer"]}"#, "1.0", r#""1.0""#),
            (r#"{"type": "integer"}"#, "-0", "-0"),
            (r#"{"type": "integer"}"#, "007", "7"),
            (r#"{"type": "number"}"#, " 1.0\n", "1.0"),
            (r#"{"type": "number"}"#, "-0.0", "-0.0"),
            (r#"{"type": "number"}"#, "1e22", "1e22"),
            (r#"{"type": "number"}"#, "+1e22", "10000000000000000000000"),
            (r#"{"type": "number"}"#, "2.50", "2.50"),
            (r#"{"type": "number"}"#, "0.1000000000000000055", "0.1000000000000000055"),
            (r#"{"type": "number"}"#, "nan", r#""nan""#),
            (r#"{"type": "number"}"#, "1e999", r#""1e999""#),
            (r#"{"type": "boolean"}"#, " TRUE ", "true"),
            (r#"{"type": "boolean"}"#, "0", "false"),
            (r#"{"type": "boolean"}"#, "yes", r#""yes""#),
            (r#"{"type": "object"}"#, r#"{"b": [1.0,2e1]}"#, r#"{"b": [1.0, 2e1]}"#),
            (r#"{"type": "object"}"#, "{'b': True, 'c': (None, 'x')}", r#"{"b": true, "c": [null, "x"]}"#),
            (r#"{"type": "object"}"#, "{'b': open}", r#""{'b': open}""#),
            (r#"{"type": "object"}"#, "['b']", r#""['b']""#),
            (r#"{"type": "array"}"#, "['b', None]", r#"["b", null]"#),
            (r#"{"type": ["string", "array"]}"#, "['b']", r#""['b']""#),
            (r#"{"type": "number"}"#, "9007199254740993", "9007199254740993"),
            (r#"{"type": "number"}"#, "9007199254740993.00", "9007199254740993.00"),
            (r#"{"type": ["number", "null"]}"#, "-12345678901234567890123", "-12345678901234567890123"),
            (r#"{"type": "number"}"#, "1.", "1"),
            (r#"{"type": "number"}"#, ".0", "0"),
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
            let parameters = format!(r#"{{"properties": {{"a": {schema}}}}}"#);
            let read = Signatures::of(&[tool("f", &parameters)]).fit_untyped("f", format!(r#"{{"a": {text}}}"#));
            assert_eq!(read, format!(r#"{{"a": {value}}}"#), "{schema}");
        }
    }

    #[test]
    fn values_are_fitted_too_and_inside_of_objects_and_arrays() {
        let nested = r#"{"type": "object", "properties": {"b": {"type": "array", "items": {"type": "integer"}}}}"#;
        for (schema, arguments, written) in [
            (r#"{"type": "string"}"#, r#"{"a":5,"x":1}"#, r#"{"a": "5", "x": 1}"#),
            (r#"{"type": "string"}"#, r#"{"a":null}"#, r#"{"a":null}"#),
            (r#"{"type": "string"}"#, r#"{"a":true}"#, r#"{"a": "true"}"#),
            (r#"{"type": "integer"}"#, r#"{"a":"007"}"#, r#"{"a": 7}"#),
            (r#"{"type": "number"}"#, r#"{"a":5.0}"#, r#"{"a":5.0}"#),
            (r#"{"type": "string"}"#, r#"{"a":5.0,"x":1E5}"#, r#"{"a": "5.0", "x": 1E5}"#),
            (r#"{"type": "number"}"#, r#"{"a":1e999}"#, r#"{"a":1e999}"#),
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
    fn a_value_of_a_type_that_is_allowed_stays_as_the_model_wrote_it() {
        let pair = r#"{"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}}"#;
        let listed = r#"{"type": "array", "items": [{"type": "string"}], "additionalItems": {"type": "integer"}}"#;
        for (schema, value) in [
            (r#"{"enum": ["02134", 7]}"#, r#""02134""#),
            (r#"{"enum": ["0", true]}"#, r#""0""#),
            (r#"{"enum": ["1", 2], "type": ["string", "integer"]}"#, r#""1""#),
            (r#"{"type": ["string", "integer"]}"#, r#"" 1_000""#),
            (r#"{"type": ["string", "integer"]}"#, "5"),
            (r#"{"type": ["string", "null"]}"#, r#""null""#),
            (r#"{"type": ["string", "boolean"]}"#, r#""1""#),
            (r#"{"anyOf": [{"type": "string"}, {"type": "object"}]}"#, r#""{\"a\": 1}""#),
            (r#"{"type": ["integer", "boolean"]}"#, "1"),
            (r#"{"type": "array", "items": {"enum": ["null", "x", null]}}"#, r#"["null","x",null]"#),
            (r#"{"type": "object", "properties": {"b": {"type": ["string", "null"]}}}"#, r#"{"b":"null"}"#),
            (r#"{"type": "integer"}"#, "3.0"),
            (r#"{"type": "number"}"#, "3"),
            // Nothing says what type they have.
            ("{}", "5"),
            ("{}", "null"),
            (r#"{"description": "x"}"#, "true"),
            (r#"{"not": {"type": "string"}}"#, "5"),
            (r#"{"minimum": 3}"#, "5"),
            (r##"{"$ref": "#/$defs/none"}"##, "5"),
            (r#"{"anyOf": [{"type": "string"}, {"minimum": 3}]}"#, "5"),
            (r#"{"type": "any"}"#, r#""5""#),
            (r#"{"type": "array", "items": {}}"#, "[1,true,null]"),
            (pair, r#"["5",6]"#),
            (listed, r#"["5",6]"#),
        ] {
            let arguments = format!(r#"{{"a":{value}}}"#);
            assert_eq!(fitted(schema, &arguments), arguments, "{schema}");
        }
        assert_eq!(fitted(pair, r#"{"a":[5,"6","7"]}"#), r#"{"a": ["5", 6, 7]}"#);
        assert_eq!(fitted(listed, r#"{"a":[5,"6","7"]}"#), r#"{"a": ["5", 6, 7]}"#);
    }

    #[test]
    fn properties_that_are_not_named_may_have_a_schema_too() {
        let further = r#"{"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": {"type": "integer"}}"#;
        let patterns =
            r#"{"type": "object", "patternProperties": {"^n": {"type": "integer"}}, "additionalProperties": false}"#;
        let open = r#"{"type": "object", "patternProperties": {"^n": {"type": "integer"}}}"#;
        for (schema, object, read) in [
            (further, r#"{"b": "1", "c": "2"}"#, r#"{"b": "1", "c": 2}"#),
            (patterns, r#"{"n": "1"}"#, r#"{"n": 1}"#),
            (open, r#"{"n": "1"}"#, r#"{"n": "1"}"#),
            (r#"{"type": "object", "additionalProperties": {}}"#, r#"{"n": "1"}"#, r#"{"n": "1"}"#),
            (r#"{"type": "object", "additionalProperties": true}"#, r#"{"n": "1"}"#, r#"{"n": "1"}"#),
        ] {
            assert_eq!(fitted(schema, &format!(r#"{{"a": {object}}}"#)), format!(r#"{{"a": {read}}}"#), "{schema}");
        }
        let root = Signatures::of(&[tool("f", further)]);
        assert_eq!(root.fit_untyped("f", r#"{"x": "1", "b": "2"}"#.to_owned()), r#"{"x": 1, "b": "2"}"#);
        assert!(root.names("f", "x") && !Signatures::of(&[tool("f", "{}")]).names("f", "x"));
        let patterns = Signatures::of(&[tool("f", patterns)]);
        assert_eq!(patterns.fit_untyped("f", r#"{"n": "1"}"#.to_owned()), r#"{"n": 1}"#);
    }

    #[test]
    fn what_the_model_says_of_a_type_counts_where_the_schema_says_nothing() {
        let signatures = Signatures::of(&[tool("f", r#"{"properties": {"a": {}, "b": {"type": "string"}}}"#)]);
        assert_eq!(signatures.value("f", "a", Some("integer"), "7"), Value::parse("7").unwrap());
        assert_eq!(signatures.value("f", "a", None, "7"), Value::from("7"));
        assert_eq!(signatures.value("f", "b", Some("integer"), "7"), Value::from("7"));
    }

    #[test]
    fn references_and_choices_are_followed_before_a_value_is_typed() {
        let definitions = r##""$defs": {
            "count": {"type": "integer"},
            "size": {"enum": [1, 2]},
            "box": {"type": "object", "properties": {"n": {"$ref": "#/$defs/count"}, "in": {"$ref": "#/$defs/box"}}},
            "loop": {"$ref": "#/$defs/loop"},
            "a/b~c d": {"type": "boolean"}
        }"##;
        for (schema, arguments, written) in [
            (r##"{"$ref": "#/$defs/count"}"##, r#""5""#, "5"),
            (r##"{"$ref": "#/$defs/size"}"##, r#""2""#, "2"),
            (r##"{"$ref": "#/$defs/a~1b~0c%20d"}"##, r#""true""#, "true"),
            (r##"{"anyOf": [{"$ref": "#/$defs/count"}, {"type": "null"}]}"##, r#""null""#, "null"),
            (r##"{"allOf": [{"$ref": "#/$defs/count"}, {"description": "how many"}]}"##, r#""5""#, "5"),
            (r##"{"anyOf": [{"type": "null"}, {"$ref": "#/$defs/box"}]}"##, r#"{"n": "5"}"#, r#"{"n": 5}"#),
            (r##"{"$ref": "#/$defs/box"}"##, r#"{"in": {"in": {"n": "5"}}}"#, r#"{"in": {"in": {"n": 5}}}"#),
            (r##"{"type": "array", "items": {"$ref": "#/$defs/box"}}"##, r#"[{"n": "5"}]"#, r#"[{"n": 5}]"#),
            (r##"{"$ref": "#/$defs/box"}"##, r#""{\"n\": \"5\"}""#, r#"{"n": "5"}"#),
            (r##"{"$ref": "#/$defs/loop"}"##, r#""5""#, r#""5""#),
            (r##"{"$ref": "#/$defs/none"}"##, r#""5""#, r#""5""#),
            (r#"{"const": 5}"#, r#""5""#, "5"),
        ] {
            let parameters = format!(r#"{{"type": "object", "properties": {{"a": {schema}}}, {definitions}}}"#);
            let signatures = Signatures::of(&[tool("f", &parameters)]);
            let fitted = signatures.fit("f", format!(r#"{{"a": {arguments}}}"#));
            assert_eq!(fitted, format!(r#"{{"a": {written}}}"#), "{schema}");
        }
        let parameters = format!(r##"{{"allOf": [{{"$ref": "#/$defs/box"}}], {definitions}}}"##);
        let signatures = Signatures::of(&[tool("f", &parameters)]);
        assert_eq!(signatures.fit("f", r#"{"n": "5"}"#.to_owned()), r#"{"n": 5}"#);
    }

    #[test]
    fn a_function_that_is_not_known_keeps_its_arguments() {
        let signatures = Signatures::of(&[tool("f", r#"{"properties": {"a": {"type": "integer"}}}"#)]);
        assert_eq!(signatures.fit("g", r#"{"a": "1"}"#.to_owned()), r#"{"a": "1"}"#);
        assert!(signatures.allow("f") && !signatures.allow("g"));
        assert!(Signatures::of(&[]).allow("g"));
    }
}
