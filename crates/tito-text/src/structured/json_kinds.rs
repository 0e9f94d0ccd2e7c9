//! What JSON of a schema may begin with, and whether it is a single token.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use super::lark::escaped;

/// How many references are followed.
const DEEPEST: usize = 16;
/// From so many expressions on, they are those of all values that are a single token.
const MOST_TOKENS: usize = 256;
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
        Reader { root: schema, targets: HashMap::new() }.of(schema, DEEPEST)
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
        if self.tokens.len() > MOST_TOKENS {
            self.tokens =
                ["null", "boolean", "number", "string"].map(of_type).into_iter().flat_map(|all| all.tokens).collect();
        }
        Self { tokens: self.tokens, array: self.array | other.array, object: self.object | other.object }
    }
}

/// Reads a schema; each target of references once, however many lead to it.
struct Reader<'s> {
    root: &'s Value,
    /// `None` while a target is read: it leads to itself.
    targets: HashMap<&'s str, Option<Kinds>>,
}

impl<'s> Reader<'s> {
    fn of(&mut self, schema: &'s Value, depth: usize) -> Kinds {
        let Value::Object(entries) = schema else { return Kinds::all() };
        let Some(deeper) = depth.checked_sub(1) else { return Kinds::all() };
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
            return schemas.iter().map(|schema| self.of(schema, deeper)).fold(Kinds::default(), Kinds::or);
        }
        if let Some(kinds) = given("$ref").and_then(Value::as_str).and_then(|path| self.of_target(path, deeper)) {
            return kinds;
        }
        let of_all = given("allOf").and_then(Value::as_array).into_iter().flatten();
        // All of them hold, so that one that tells is enough.
        let mut kinds = of_all.map(|schema| self.of(schema, deeper));
        kinds.find(|kinds| *kinds != Kinds::all()).unwrap_or_else(Kinds::all)
    }

    /// What a reference leads to; `None` where that is not in the schema.
    fn of_target(&mut self, path: &'s str, depth: usize) -> Option<Kinds> {
        let target = self.root.pointer(path.strip_prefix('#')?)?;
        if let Some(known) = self.targets.get(path) {
            return Some(known.clone().unwrap_or_else(Kinds::all));
        }
        self.targets.insert(path, None);
        let kinds = self.of(target, depth);
        self.targets.insert(path, Some(kinds.clone()));
        Some(kinds)
    }
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
        let many: Vec<u32> = (0..1000).collect();
        assert!(Kinds::of(&json!({ "enum": many })).are_scalars());
    }

    /// It would be read 30 to the power of 6 times.
    #[test]
    fn each_target_of_references_is_read_once() {
        let mut schema = json!({"$ref": "#/$defs/a0", "$defs": {"a6": {"type": "object"}}});
        for number in 0..6 {
            let next = json!({"$ref": format!("#/$defs/a{}", number + 1)});
            schema["$defs"][format!("a{number}")] = json!({"anyOf": vec![next; 30]});
        }
        assert_eq!(Kinds::of(&schema), Kinds { object: true, ..Kinds::default() });
        let circle = json!({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": vec![json!({"$ref": "#/$defs/a"}); 30]}}});
        assert_eq!(Kinds::of(&circle), Kinds::all());
    }
}
