//! How the value of an argument is written that stands alone, and what of its schema does not hold then.
//!
//! Owns one judgement, which the reader of these values (`schema`) shares: where a schema allows text, what is written is text
//! without quotes. Text of which a schema says more than its values (`pattern`, `minLength`) is any text here; that is named.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    forcing::TextIs,
    schema::is_read_as_text,
    schema_types::{Schemas, Types},
    xml_text,
};
use crate::{parser::marker, structured::Format};

/// So deep references and choices are followed.
const DEEPEST: usize = 16;

/// What says something of a value besides its type and what it can be.
const RESTRICTIONS: [&str; 22] = [
    "additionalProperties",
    "const",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
    "patternProperties",
    "prefixItems",
    "properties",
    "propertyNames",
    "required",
];

/// How a value is written.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ArgumentValue {
    pub(super) is_text: bool,
    pub(super) format: Format,
    /// The keywords that do not hold.
    pub(super) unheld: BTreeSet<String>,
}

impl ArgumentValue {
    /// The value of an argument whose schema has its definitions with it. No text may hold one of `marks`.
    pub(super) fn of(schema: &Value, text: TextIs, marks: &[&str]) -> Self {
        match text {
            TextIs::Bare | TextIs::Trimmed | TextIs::Xml => Self::bare(schema, text, marks),
            TextIs::Marked => Self::marked(schema, marks),
        }
    }

    fn json(schema: &Value) -> Self {
        Self { is_text: false, format: Format::json(schema.clone()), unheld: BTreeSet::new() }
    }

    /// Text is written as it is where nothing else may be, and everything else as JSON.
    fn marked(schema: &Value, marks: &[&str]) -> Self {
        let texts = schema.get("enum").and_then(Value::as_array).filter(|values| values.iter().all(Value::is_string));
        let (format, unheld) = match (texts, schema.get("type").and_then(Value::as_str)) {
            (Some(texts), _) => {
                (either(texts.iter().filter_map(Value::as_str).map(Format::text).collect()), BTreeSet::new())
            }
            (None, Some("string")) => (any_text(marks), restrictions(schema).collect()),
            (None, _) => return Self::json(schema),
        };
        Self { is_text: true, format, unheld }
    }

    fn bare(schema: &Value, text: TextIs, marks: &[&str]) -> Self {
        let types = types_of(schema);
        if !types.allow("string") {
            return Self::json(schema);
        }
        let (elements, unheld) = (Vec::new(), BTreeSet::new());
        let mut found = Choices { root: schema, types, text, elements, any_text: false, unheld };
        found.gather(schema, 0);
        let Choices { elements, any_text: is_any, mut unheld, .. } = found;
        if is_any || elements.is_empty() {
            // What is not text is as good as text then.
            let others = elements.iter().filter_map(|element| match element {
                Format::JsonSchema { json_schema, .. } => Some(restrictions(json_schema)),
                _ => None,
            });
            unheld.extend(others.flatten());
            return Self { is_text: true, format: any_text(marks), unheld };
        }
        Self { is_text: true, format: either(elements), unheld }
    }
}

/// Text that holds none of `marks`: the reader would take one for the end of the value, and cut it there.
pub(super) fn any_text(marks: &[&str]) -> Format {
    Format::AnyText { excludes: marks.iter().map(|&mark| mark.to_owned()).collect() }
}

fn either(mut elements: Vec<Format>) -> Format {
    if elements.len() == 1 { elements.remove(0) } else { Format::Or { elements } }
}

/// The keywords of a schema that restrict its values.
fn restrictions(schema: &Value) -> impl Iterator<Item = String> + '_ {
    RESTRICTIONS.into_iter().filter(|keyword| schema.get(keyword).is_some()).map(str::to_owned)
}

/// What a value may be of which some is text.
struct Choices<'s> {
    root: &'s Value,
    /// Those that the reader takes it for.
    types: Types,
    /// How the reader takes a text.
    text: TextIs,
    elements: Vec<Format>,
    /// Whether it may be any text.
    any_text: bool,
    unheld: BTreeSet<String>,
}

impl Choices<'_> {
    /// Takes in what a schema allows, which is the root, or one that the root leads to.
    fn gather(&mut self, schema: &Value, depth: usize) {
        let list = |key| schema.get(key).and_then(Value::as_array).map(Vec::as_slice);
        let values = list("enum").or_else(|| schema.get("const").map(std::slice::from_ref));
        if let Some(path) = schema.get("$ref").and_then(Value::as_str) {
            let root = self.root;
            let referred = path.strip_prefix('#').and_then(|path| root.pointer(path)).filter(|_| depth < DEEPEST);
            match referred {
                Some(referred) => self.gather(referred, depth + 1),
                None => self.any_text = true,
            }
        } else if let Some(values) = values {
            for value in values {
                self.may_be(value);
            }
        } else if let Some(choices) = list("anyOf").or_else(|| list("oneOf")).filter(|_| depth < DEEPEST) {
            for choice in choices {
                self.gather(choice, depth + 1);
            }
        } else if let Some(parts) = list("allOf").filter(|_| depth < DEEPEST) {
            match parts {
                [only] => self.gather(only, depth + 1),
                _ => self.may_be_text_of(schema, ["allOf".to_owned()]),
            }
        } else if types_of(schema).allow("string") {
            self.may_be_text_of(schema, []);
        } else {
            self.elements.push(Format::json(with_definitions(schema, self.root)));
        }
    }

    /// Text that the reader would take for something else cannot be written.
    fn may_be(&mut self, value: &Value) {
        match value {
            Value::String(text) if self.is_kept(text) => self.elements.push(Format::text(text)),
            Value::String(_) => _ = self.unheld.insert("enum".to_owned()),
            value => self.elements.push(Format::json(json!({ "enum": [value] }))),
        }
    }

    fn is_kept(&self, text: &str) -> bool {
        let is_same = match self.text {
            TextIs::Trimmed => marker::trim(text) == text,
            TextIs::Xml => xml_text::plain(text) == text,
            TextIs::Bare | TextIs::Marked => true,
        };
        is_same && is_read_as_text(text, &self.types)
    }

    fn may_be_text_of(&mut self, schema: &Value, unheld: impl IntoIterator<Item = String>) {
        self.any_text = true;
        self.unheld.extend(restrictions(schema).chain(unheld));
    }
}

/// The types that the reader takes a value of a schema for.
fn types_of(schema: &Value) -> Types {
    let known = crate::json::Value::parse(&schema.to_string()).unwrap_or(crate::json::Value::Null);
    Schemas::of(&known, &known).types()
}

/// A part of a schema, with the definitions of the whole.
pub(super) fn with_definitions(part: &Value, whole: &Value) -> Value {
    let mut part = part.clone();
    if let Value::Object(entries) = &mut part {
        for key in ["$defs", "definitions"] {
            if let Some(definitions) = whole.get(key) {
                entries.entry(key).or_insert(definitions.clone());
            }
        }
    }
    part
}
