//! What a schema refers to: whether it is there, and whether following it ever comes to an end.
//!
//! A reference that only leads back to itself describes no JSON at all, and one that demands another of its kind in
//! every object describes JSON that never ends. The compiler takes both, and a model could never finish.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{error::StructuredError, schemas::each_schema};

/// Schemas in one.
const MOST_SCHEMAS: usize = 50_000;
/// Keywords whose value is a schema.
const ONE: [&str; 7] =
    ["items", "additionalItems", "additionalProperties", "contains", "propertyNames", "unevaluatedItems", "not"];
/// Keywords whose value is a list of schemas.
const LISTS: [&str; 5] = ["allOf", "anyOf", "oneOf", "prefixItems", "items"];
/// Keywords whose value has schemas by name.
const NAMED: [&str; 3] = ["properties", "patternProperties", "dependentSchemas"];

/// Refuses references to what is not in the schema, and those that never come to an end.
pub(super) fn check(root: &Value) -> Result<(), StructuredError> {
    let schemas = Schemas::reachable(root)?;
    let ends = schemas.that_end();
    let endless = schemas.references.iter().find(|(_, target)| !ends[*target]);
    match endless {
        None => Ok(()),
        Some((reference, _)) => Err(StructuredError::grammar(format_args!(
            "`$ref` {reference:?} leads back to itself without an end, so that no finite JSON keeps to the schema"
        ))),
    }
}

/// Writes references without escapes, as the compiler reads them, where that leads to something in the schema. A name
/// with a `/` cannot be written so.
pub(super) fn decode(root: &mut Value) {
    let whole = root.clone();
    each_schema(root, &mut |entries| {
        let Some(Value::String(reference)) = entries.get_mut("$ref") else { return };
        if let Some(plain) = unescaped(reference).filter(|plain| target(&whole, plain).is_some()) {
            *reference = plain;
        }
    });
}

/// The reference without escapes, where it has any and can be written without.
fn unescaped(reference: &str) -> Option<String> {
    let path = reference.strip_prefix("#/").filter(|path| path.contains(['%', '~']))?;
    let plain = |segment| unescaped_segment(segment).filter(|segment| !segment.contains('/'));
    let segments: Option<Vec<String>> = path.split('/').map(plain).collect();
    Some(format!("#/{}", segments?.join("/")))
}

/// A name in the path of a reference (`#/$defs/NAME`) without its escapes, those of URLs and those of JSON pointers; `None`
/// where they are none.
pub fn unescaped_segment(segment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        if byte == b'%' {
            let digits = std::str::from_utf8(after.get(..2)?).ok().filter(|digits| !digits.starts_with('+'))?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(byte);
            rest = after;
        }
    }
    Some(String::from_utf8(bytes).ok()?.replace("~1", "/").replace("~0", "~"))
}

/// What a path without escapes leads to.
pub(super) fn target<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    reference.strip_prefix("#/")?.split('/').try_fold(root, |place, segment| match place {
        Value::Object(entries) => entries.get(segment),
        Value::Array(items) => items.get(segment.parse::<usize>().ok()?),
        _ => None,
    })
}

/// What must come to an end, so that a schema does.
enum Needs {
    /// All of these.
    All(Vec<Needs>),
    /// One of these.
    One(Vec<Needs>),
    /// A schema, by its number.
    Schema(usize),
}

/// The schemas that a root leads to.
struct Schemas<'a> {
    root: &'a Value,
    found: Vec<&'a Value>,
    /// The number of each schema, by its address: a schema that several references lead to counts once.
    numbers: HashMap<*const Value, usize>,
    /// References with the schemas that they lead to.
    references: Vec<(&'a str, usize)>,
}

impl<'a> Schemas<'a> {
    fn reachable(root: &'a Value) -> Result<Self, StructuredError> {
        let mut schemas = Self { root, found: Vec::new(), numbers: HashMap::new(), references: Vec::new() };
        schemas.number(root);
        let mut next = 0;
        while let Some(schema) = schemas.found.get(next).copied() {
            next += 1;
            if let Value::Object(entries) = schema {
                schemas.visit(entries)?;
            }
            if schemas.found.len() > MOST_SCHEMAS {
                let message = format!("a JSON schema of more than {MOST_SCHEMAS} schemas is not compiled");
                return Err(StructuredError::new(message));
            }
        }
        Ok(schemas)
    }

    fn number(&mut self, schema: &'a Value) -> usize {
        let next = self.found.len();
        let number = *self.numbers.entry(std::ptr::from_ref(schema)).or_insert(next);
        if number == next {
            self.found.push(schema);
        }
        number
    }

    fn visit(&mut self, entries: &'a Map<String, Value>) -> Result<(), StructuredError> {
        for keyword in ONE {
            entries.get(keyword).map(|schema| self.number(schema));
        }
        for schema in LISTS.iter().filter_map(|keyword| entries.get(*keyword)?.as_array()).flatten() {
            self.number(schema);
        }
        for schema in NAMED.iter().filter_map(|keyword| entries.get(*keyword)?.as_object()).flat_map(Map::values) {
            self.number(schema);
        }
        if let Some(reference) = entries.get("$ref").and_then(Value::as_str) {
            let target = resolve(self.root, reference)?;
            let target = self.number(target);
            self.references.push((reference, target));
        }
        Ok(())
    }

    /// Says of each schema whether some finite JSON may keep to it, as far as references are concerned. It is the least
    /// answer that agrees with itself.
    fn that_end(&self) -> Vec<bool> {
        let needs: Vec<Needs> = self.found.iter().map(|schema| self.needs(schema)).collect();
        let mut ends = vec![false; needs.len()];
        loop {
            let mut changed = false;
            // What a schema needs was mostly found after it.
            for number in (0..needs.len()).rev() {
                if !ends[number] && met(&needs[number], &ends) {
                    ends[number] = true;
                    changed = true;
                }
            }
            if !changed {
                return ends;
            }
        }
    }

    fn needs(&self, schema: &Value) -> Needs {
        let Value::Object(entries) = schema else { return Needs::All(Vec::new()) };
        let mut all = Vec::new();
        let reference = entries.get("$ref").and_then(Value::as_str);
        let target = reference.and_then(|reference| resolve(self.root, reference).ok());
        all.extend(target.and_then(|target| self.need(target)));
        all.extend(list(entries, "allOf").iter().filter_map(|schema| self.need(schema)));
        for keyword in ["anyOf", "oneOf"] {
            let choices: Vec<Needs> = list(entries, keyword).iter().filter_map(|schema| self.need(schema)).collect();
            // It is for the compiler to say that an empty list leaves no choice.
            if !choices.is_empty() {
                all.push(Needs::One(choices));
            }
        }
        match only_type(entries) {
            Some("object") => all.extend(required(entries).filter_map(|schema| self.need(schema))),
            Some("array") => all.extend(least_items(entries).filter_map(|schema| self.need(schema))),
            _ => {}
        }
        Needs::All(all)
    }

    fn need(&self, schema: &Value) -> Option<Needs> {
        self.numbers.get(&std::ptr::from_ref(schema)).copied().map(Needs::Schema)
    }
}

fn met(needs: &Needs, ends: &[bool]) -> bool {
    match needs {
        Needs::All(all) => all.iter().all(|needs| met(needs, ends)),
        Needs::One(choices) => choices.iter().any(|needs| met(needs, ends)),
        Needs::Schema(number) => ends[*number],
    }
}

fn list<'a>(entries: &'a Map<String, Value>, keyword: &str) -> &'a [Value] {
    entries.get(keyword).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The type of a schema that has just one.
fn only_type(entries: &Map<String, Value>) -> Option<&str> {
    match entries.get("type")? {
        Value::String(kind) => Some(kind),
        Value::Array(kinds) => kinds.first()?.as_str().filter(|_| kinds.len() == 1),
        _ => None,
    }
}

/// The schemas of properties that an object must have.
fn required(entries: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let properties = entries.get("properties").and_then(Value::as_object);
    let names = list(entries, "required").iter().filter_map(Value::as_str);
    names.filter_map(move |name| properties?.get(name))
}

/// The schemas of items that a list must have.
fn least_items(entries: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let least = entries.get("minItems").and_then(Value::as_u64).unwrap_or(0);
    let least = usize::try_from(least).unwrap_or(usize::MAX);
    let first = match entries.get("items") {
        Some(Value::Array(items)) => items.as_slice(),
        _ => list(entries, "prefixItems"),
    };
    let others = entries.get("items").filter(|items| !items.is_array() && least > first.len());
    first.iter().take(least).chain(others)
}

/// The schema that a reference leads to.
fn resolve<'a>(root: &'a Value, reference: &str) -> Result<&'a Value, StructuredError> {
    let refused = |why: &str| StructuredError::grammar(format_args!("`$ref` {reference:?} {why}"));
    let Some(path) = reference.strip_prefix('#') else {
        return Err(refused(
            "refers to another document; refer to a part of the schema itself, as in \"#/$defs/name\"",
        ));
    };
    let path = match path {
        "" | "/" => return Ok(root),
        _ => path.strip_prefix('/').ok_or_else(|| {
            refused("refers to an anchor; refer to a part of the schema by its path, as in \"#/$defs/name\"")
        })?,
    };
    match target(root, &format!("#/{path}")) {
        Some(target @ (Value::Object(_) | Value::Bool(_))) => Ok(target),
        Some(_) => Err(refused("leads to something that is not a schema")),
        None if path.contains(['~', '%']) => {
            Err(refused("has an escape (`~` or `%`) and leads to nothing; names with a `/` are not known"))
        }
        None => Err(refused("leads to nothing in the schema")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(schema: &Value) -> String {
        check(schema).unwrap_err().message
    }

    #[test]
    fn references_that_never_end_are_named() {
        let node = |required: &[&str]| {
            json!({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "required": required,
                "properties": {"next": {"$ref": "#/$defs/node"}}}}})
        };
        for (schema, named) in [
            (json!({"$ref": "#"}), "\"#\""),
            (json!({"allOf": [{"$ref": "#"}]}), "\"#\""),
            (json!({"anyOf": [{"$ref": "#"}, {"allOf": [{"$ref": "#"}, {"type": "null"}]}]}), "\"#\""),
            (json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}), "/a\""),
            (node(&["next"]), "\"#/$defs/node\""),
            (json!({"type": "array", "minItems": 1, "items": {"$ref": "#"}}), "\"#\""),
            (json!({"type": ["array"], "minItems": 2, "prefixItems": [{}, {"$ref": "#"}]}), "\"#\""),
            // The property could be left out, but a model that began it could never finish.
            (
                json!({"type": "object", "properties": {"a": node(&["next"])["$defs"]["node"],
                "b": {"$ref": "#/$defs/node"}}, "$defs": node(&["next"])["$defs"]}),
                "\"#/$defs/node\"",
            ),
        ] {
            let said = message(&schema);
            assert!(said.contains("leads back to itself without an end") && said.contains(named), "{schema}: {said}");
        }
        for schema in [
            node(&[]),
            json!({"anyOf": [{"$ref": "#"}, {"type": "null"}]}),
            json!({"type": "array", "items": {"$ref": "#"}}),
            json!({"type": "array", "minItems": 1, "prefixItems": [{}], "items": {"$ref": "#"}}),
            json!({"properties": {"a": {"$ref": "#"}}, "required": ["a"]}),
            json!({"type": "object", "properties": {"$ref": {"const": {"$ref": "#/nowhere"}}}}),
            json!({"type": "null", "$defs": {"unused": {"$ref": "#/$defs/unused"}}}),
        ] {
            assert_eq!(check(&schema), Ok(()), "{schema}");
        }
    }

    #[test]
    fn escapes_are_read_where_the_name_can_be_written_without_them() {
        for (reference, name, plain) in [
            ("#/$defs/List%5Bint%5D", "List[int]", "#/$defs/List[int]"),
            ("#/$defs/a~0b", "a~b", "#/$defs/a~b"),
            ("#/$defs/%C3%A9", "\u{e9}", "#/$defs/\u{e9}"),
            ("#/$defs/100%25", "100%", "#/$defs/100%"),
            // Where only the text as it stands leads to something, it stays.
            ("#/$defs/a%20b", "a%20b", "#/$defs/a%20b"),
            ("#/$defs/%zz", "%zz", "#/$defs/%zz"),
        ] {
            let mut schema = json!({"properties": {"x": {"$ref": reference}}, "$defs": {name: {"type": "null"}}});
            decode(&mut schema);
            assert_eq!(schema["properties"]["x"]["$ref"], plain);
            assert_eq!(check(&schema), Ok(()), "{reference}");
        }
        let mut schema = json!({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {}}});
        decode(&mut schema);
        assert!(message(&schema).contains("names with a `/`"));
    }

    #[test]
    fn references_to_what_is_not_there_say_so() {
        let of = |reference: &str| message(&json!({"$ref": reference, "$defs": {"a": {}, "list": [1]}}));
        assert!(of("#/$defs/b").contains("leads to nothing in the schema"));
        assert!(of("#/$defs/list/1").contains("leads to nothing in the schema"));
        assert!(of("#/$defs/list/0").contains("not a schema"));
        assert!(of("https://example.com/schema.json").contains("another document"));
        assert!(of("other.json#/$defs/a").contains("another document"));
        assert!(of("#a").contains("an anchor"));
        assert!(of("#/$defs/a~1b").contains("an escape"));
    }
}
