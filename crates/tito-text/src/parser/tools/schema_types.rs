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
}

impl<'s> Schemas<'s> {
    pub(super) fn of(schema: &'s Value, root: &'s Value) -> Self {
        let mut found = Self { root, plain: Vec::new(), types: Vec::new() };
        if !found.gather(schema) {
            found.types.push("string".to_owned());
        }
        found
    }

    /// What is said of a property; `None` where nothing is.
    pub(super) fn property(&self, name: &str) -> Option<Self> {
        let found = self.plain.iter().filter_map(|schema| schema.get("properties")?.get(name));
        self.all(found.collect())
    }

    /// What is said of the items of an array; `None` where nothing is.
    pub(super) fn items(&self) -> Option<Self> {
        self.all(self.plain.iter().filter_map(|schema| schema.get("items")).collect())
    }

    /// The types that the value may have.
    pub(super) fn types(&self) -> Types {
        Types(self.types.clone())
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
        let mut found = Self { root: self.root, plain: Vec::new(), types: Vec::new() };
        for schema in schemas {
            if !found.gather(schema) {
                found.types.push("string".to_owned());
            }
        }
        Some(found)
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
        for choice in ["anyOf", "oneOf"] {
            for schema in schema.get(choice).and_then(Value::as_array).unwrap_or_default() {
                if !self.gather(schema) {
                    self.types.push("string".to_owned());
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
