//! Arguments that are written one by one, each between marks of its own: what forces them to keep to a tool's schema.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    argument_value::{ArgumentValue, any_text, with_definitions},
    forcing::{Function, TextIs},
};
use crate::structured::{Format, Tag};

/// How a format spells arguments.
pub(super) struct Spelling<'s> {
    /// Before a key.
    pub(super) key: &'s str,
    /// Between a key and a value that is text.
    pub(super) value: &'s str,
    /// Between a key and a value that is JSON.
    pub(super) json: &'s str,
    /// After a value.
    pub(super) end: &'s str,
    /// What the reader takes for the end of a value, or of more: no value may hold it.
    pub(super) marks: &'s [&'s str],
    /// How text is told from other values.
    pub(super) text: TextIs,
}

impl<'s> Spelling<'s> {
    /// The same between every key and its value.
    pub(super) const fn new(key: &'s str, value: &'s str, end: &'s str, marks: &'s [&'s str]) -> Self {
        Self { key, value, json: value, end, marks, text: TextIs::Bare }
    }

    /// The same, with text that is told from other values, and read, in another way.
    pub(super) const fn of_text(self, text: TextIs) -> Self {
        Self { text, ..self }
    }

    /// The parameters by their names in their order, of which those that are not required may be missing; or any
    /// parameters, where none are named.
    pub(super) fn arguments(&self, tool: &Function<'_>) -> Format {
        let Some(properties) = tool.arguments.get("properties").and_then(Value::as_object) else {
            return Format::Star { content: Box::new(Format::Tag(self.any())) };
        };
        let required = tool.arguments.get("required").and_then(Value::as_array);
        let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|other| other == name));
        let arguments = properties.iter().map(|(name, schema)| {
            let argument = Format::Tag(self.argument_tag(name, &with_definitions(schema, &tool.arguments)));
            if is_required(name) { argument } else { Format::Optional { content: Box::new(argument) } }
        });
        Format::Sequence { elements: arguments.collect() }
    }

    fn any(&self) -> Tag {
        let key = Format::Regex { pattern: "[^<>\"\\n]+".to_owned(), excludes: Vec::new() };
        let elements = vec![key, Format::text(self.value), any_text(self.marks)];
        Tag::new(self.key, Format::Sequence { elements }, self.end)
    }

    fn argument_tag(&self, name: &str, schema: &Value) -> Tag {
        let ArgumentValue { is_text, format, .. } = ArgumentValue::of(schema, self.text, self.marks);
        let between = if is_text { self.value } else { self.json };
        Tag::new(format!("{}{name}{between}", self.key), format, self.end)
    }
}

/// What restricts arguments beside what each of them is.
const OF_ALL: [&str; 8] =
    ["$ref", "allOf", "anyOf", "maxProperties", "minProperties", "oneOf", "patternProperties", "propertyNames"];

/// The keywords of a tool's schema that do not hold where its arguments are written one by one.
pub(super) fn unheld(tool: &Function<'_>, text: TextIs) -> BTreeSet<String> {
    let arguments = &tool.arguments;
    let mut unheld: BTreeSet<String> =
        OF_ALL.into_iter().filter(|keyword| arguments.get(keyword).is_some()).map(str::to_owned).collect();
    let properties = arguments.get("properties").and_then(Value::as_object);
    let is_named = |name: &Value| {
        properties.is_some_and(|properties| name.as_str().is_some_and(|name| properties.contains_key(name)))
    };
    let required = arguments.get("required").and_then(Value::as_array).into_iter().flatten();
    unheld.extend(required.filter(|name| !is_named(name)).map(|_| "required".to_owned()));
    for schema in properties.into_iter().flat_map(serde_json::Map::values) {
        unheld.extend(ArgumentValue::of(&with_definitions(schema, arguments), text, &[]).unheld);
    }
    unheld
}
