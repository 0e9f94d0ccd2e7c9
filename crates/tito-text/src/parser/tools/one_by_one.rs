//! Arguments that are written one by one, each between marks of its own: what forces them to keep to a tool's schema.

use serde_json::Value;

use super::forcing::Function;
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
}

impl<'s> Spelling<'s> {
    /// The same between every key and its value.
    pub(super) const fn new(key: &'s str, value: &'s str, end: &'s str) -> Self {
        Self { key, value, json: value, end }
    }

    /// The parameters by their names in their order, of which those that are not required may be missing; or any
    /// parameters, where none are named.
    pub(super) fn arguments(&self, tool: &Function<'_>) -> Format {
        let Some(properties) = tool.arguments.get("properties").and_then(Value::as_object) else {
            return Format::Star { content: Box::new(Format::Tag(self.any())) };
        };
        let required = tool.arguments.get("required").and_then(Value::as_array);
        let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|other| other == name));
        let definitions = ["$defs", "definitions"].map(|key| (key, tool.arguments.get(key)));
        let arguments = properties.iter().map(|(name, schema)| {
            let mut schema = schema.clone();
            if let Value::Object(schema) = &mut schema {
                for (key, definitions) in definitions {
                    definitions.map(|definitions| schema.entry(key).or_insert(definitions.clone()));
                }
            }
            let argument = Format::Tag(self.argument_tag(name, &schema));
            if is_required(name) { argument } else { Format::Optional { content: Box::new(argument) } }
        });
        Format::Sequence { elements: arguments.collect() }
    }

    fn any(&self) -> Tag {
        let key = Format::Regex { pattern: "[^<>\"\\n]+".to_owned(), excludes: Vec::new() };
        let elements = vec![key, Format::text(self.value), Format::AnyText { excludes: Vec::new() }];
        Tag::new(self.key, Format::Sequence { elements }, self.end)
    }

    /// Text is written as it is, and everything else as JSON.
    fn argument_tag(&self, name: &str, schema: &Value) -> Tag {
        let texts = schema.get("enum").and_then(Value::as_array).filter(|values| values.iter().all(Value::is_string));
        let (between, value) = match (texts, schema.get("type").and_then(Value::as_str)) {
            (Some(texts), _) => {
                let texts = texts.iter().filter_map(Value::as_str).map(Format::text);
                (self.value, Format::Or { elements: texts.collect() })
            }
            (None, Some("string")) => (self.value, Format::AnyText { excludes: Vec::new() }),
            (None, _) => (self.json, Format::json(schema.clone())),
        };
        Tag::new(format!("{}{name}{between}", self.key), value, self.end)
    }
}
