//! What a JSON schema says of one value, its references and choices followed.
//!
//! A choice (`anyOf`, `oneOf`, `allOf`) is as good as all that it offers: what a value may be is asked here, not whether it
//! is valid.

use crate::{
    json::{Object, Value},
    structured::unescaped_segment,
};

/// So many schemas are looked at for one value; a schema that refers to itself has no end.
const MOST: usize = 256;

/// The schemas that a value may be of.
#[derive(Debug)]
pub(super) struct Schemas<'s> {
    /// What references are relative to.
    root: &'s Value,
    /// The schemas that choose no others.
    plain: Vec<&'s Object>,
    types: Vec<String>,
    /// Whether one of them names no type, so that the value may have any. As a text it is one of strings.
    any: bool,
}

impl<'s> Schemas<'s> {
    pub(super) fn of(schema: &'s Value, root: &'s Value) -> Self {
        let mut found = Self { root, plain: Vec::new(), types: Vec::new(), any: false };
        found.add(schema);
        found
    }

    /// What is said of a property; `None` where nothing is.
    pub(super) fn property(&self, name: &str) -> Option<Self> {
        let mut schemas = Vec::new();
        let any = self.plain.iter().fold(false, |any, schema| of_property(schema, name, &mut schemas) | any);
        let mut found = self.all(schemas)?;
        if any {
            found.may_be_any();
        }
        Some(found)
    }

    /// How many items of an array are described each by itself.
    pub(super) fn single_items(&self) -> usize {
        let lists = self.plain.iter().flat_map(|schema| [schema.get("prefixItems"), schema.get("items")]);
        lists.flatten().filter_map(Value::as_array).map(<[Value]>::len).max().unwrap_or(0)
    }

    /// What is said of an item of an array; `None` where nothing is.
    pub(super) fn item(&self, index: usize) -> Option<Self> {
        self.all(self.plain.iter().filter_map(|schema| of_item(schema, index)).collect())
    }

    /// The types that the value may have.
    pub(super) fn types(&self) -> Types {
        Types(self.types.clone())
    }

    /// Whether nothing says what type the value has.
    pub(super) fn are_untyped(&self) -> bool {
        self.any
    }

    /// Whether the value has a type that is allowed, or none that is known to be forbidden.
    pub(super) fn allow_type_of(&self, value: &Value) -> bool {
        let allows = |name: &str| self.types.iter().any(|known| known == name);
        self.any
            || self.types.iter().any(|name| !TYPES.contains(&name.as_str()))
            || match type_of(value) {
                "integer" => allows("integer") || allows("number"),
                // JSON Schema counts a number without a fraction as an integer.
                "number" => allows("number") || (allows("integer") && is_whole(value)),
                name => allows(name),
            }
    }

    /// Whether every schema says what the value is, and all say that it is text.
    pub(super) fn is_text(&self) -> bool {
        const SAYS: [&str; 7] = ["$ref", "allOf", "anyOf", "const", "enum", "oneOf", "type"];
        self.plain.iter().all(|schema| SAYS.iter().any(|word| schema.contains_key(*word)))
            && self.types.iter().all(|name| name == "string")
    }

    fn all(&self, schemas: Vec<&'s Value>) -> Option<Self> {
        let schemas: Vec<_> = schemas.into_iter().filter(|schema| schema.as_object().is_some()).collect();
        if schemas.is_empty() {
            return None;
        }
        let mut found = Self { root: self.root, plain: Vec::new(), types: Vec::new(), any: false };
        for schema in schemas {
            found.add(schema);
        }
        Some(found)
    }

    fn add(&mut self, schema: &'s Value) {
        if !self.gather(schema) {
            self.may_be_any();
        }
    }

    fn may_be_any(&mut self) {
        self.any = true;
        self.types.push("string".to_owned());
    }

    /// Takes a schema and those that it leads to; says whether one of them names a type. One that names none is of strings,
    /// but where it only adds to others.
    fn gather(&mut self, schema: &'s Value) -> bool {
        let Some(schema) = schema.as_object().filter(|_| self.plain.len() < MOST) else { return false };
        self.plain.push(schema);
        let before = self.types.len();
        match schema.get("type") {
            Some(Value::String(name)) => self.types.push(normal(name)),
            Some(Value::Array(names)) => self.types.extend(names.iter().filter_map(Value::as_str).map(normal)),
            _ => {}
        }
        let listed = schema.get("enum").and_then(Value::as_array).unwrap_or_default().iter().chain(schema.get("const"));
        self.types.extend(listed.map(|value| type_of(value).to_owned()));
        if let Some(referred) = schema.get("$ref").and_then(Value::as_str).and_then(|path| self.referred(path)) {
            self.gather(referred);
        }
        for schema in schema.get("allOf").and_then(Value::as_array).unwrap_or_default() {
            self.gather(schema);
        }
        // A choice without a type adds nothing to those that are named beside it.
        let named = self.types.len() > before;
        for choice in ["anyOf", "oneOf"] {
            for schema in schema.get(choice).and_then(Value::as_array).unwrap_or_default() {
                if !self.gather(schema) && !named {
                    self.may_be_any();
                }
            }
        }
        self.types.len() > before
    }

    /// What a reference like `#/$defs/NAME` leads to.
    fn referred(&self, path: &str) -> Option<&'s Value> {
        let mut value = self.root;
        for part in path.strip_prefix('#')?.split('/').skip(1) {
            let part = unescaped_segment(part).unwrap_or_else(|| part.to_owned());
            value = match value {
                Value::Array(items) => items.get(part.parse::<usize>().ok()?)?,
                value => value.get(&part)?,
            };
        }
        Some(value)
    }
}

/// Takes the schemas that a property of this name may be of, and says whether it may be anything besides. No pattern is
/// matched here: a name that only patterns could know may be of each of them.
fn of_property<'s>(schema: &'s Object, name: &str, found: &mut Vec<&'s Value>) -> bool {
    if let Some(named) = schema.get("properties").and_then(|named| named.get(name)) {
        found.push(named);
        return false;
    }
    let further = schema.get("additionalProperties");
    let said = further.filter(|further| further.as_object().is_some_and(|said| !said.is_empty()));
    found.extend(said);
    let patterns = schema.get("patternProperties").and_then(Value::as_object).filter(|patterns| !patterns.is_empty());
    let Some(patterns) = patterns else { return false };
    found.extend(patterns.values());
    said.is_none() && further != Some(&Value::Bool(false))
}

/// What a schema says of an item of an array, by its place or of all that have no place.
fn of_item(schema: &Object, index: usize) -> Option<&Value> {
    let items = schema.get("items");
    let (single, others) = match schema.get("prefixItems").and_then(Value::as_array) {
        Some(single) => (single, items),
        None => match items.and_then(Value::as_array) {
            Some(single) => (single, schema.get("additionalItems")),
            None => (&[][..], items),
        },
    };
    single.get(index).or(others)
}

/// JSON Schema's types.
const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

/// The types that a value may have.
#[derive(Debug, Default)]
pub(super) struct Types(Vec<String>);

impl Types {
    /// The one type of this name.
    pub(super) fn only(name: &str) -> Self {
        Self(vec![normal(name)])
    }

    pub(super) fn allow(&self, name: &str) -> bool {
        self.0.iter().any(|known| known == name)
    }
}

pub(super) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Int(_) => "integer",
        Value::Literal(text) if &**text == "-0" => "integer",
        Value::Float(_) | Value::Literal(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_whole(number: &Value) -> bool {
    match number {
        Value::Float(number) => number.fract() == 0.0,
        Value::Literal(text) => text.parse::<f64>().is_ok_and(|number| number.fract() == 0.0),
        _ => false,
    }
}

/// JSON schema's name of a type that goes by several.
fn normal(name: &str) -> String {
    let name = name.trim().to_lowercase();
    let known = match name.as_str() {
        "str" | "text" | "varchar" | "char" | "enum" => "string",
        "int" | "int32" | "int64" | "uint" | "uint32" | "uint64" | "long" | "short" | "unsigned" => "integer",
        "float" | "float32" | "float64" | "double" => "number",
        "bool" => "boolean",
        "dict" => "object",
        "arr" | "list" | "sequence" => "array",
        _ => return name,
    };
    known.to_owned()
}
