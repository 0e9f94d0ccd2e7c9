//! Structural tags: what an output is made of, text free or fixed, JSON, and what stands around it (xgrammar's
//! `structural_tag`, as vLLM takes it in requests and as tool calls are written).
//!
//! Refuses fields and formats that it does not know, by name.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{error::StructuredError, measure, take};

/// A part of an output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Format {
    /// This text.
    ConstString {
        /// The text.
        value: String,
    },
    /// JSON that a schema describes.
    JsonSchema {
        /// The schema, or `true`.
        json_schema: Value,
        /// How it is written; only `json` is known.
        #[serde(default)]
        style: Option<String>,
    },
    /// Text that a regular expression matches.
    Regex {
        /// The expression.
        pattern: String,
        /// Texts that it may not contain; none are known.
        #[serde(default)]
        excludes: Vec<String>,
    },
    /// Any text in which none of these stand.
    AnyText {
        /// Texts that it may not contain.
        #[serde(default)]
        excludes: Vec<String>,
    },
    /// Formats that follow each other.
    Sequence {
        /// The parts.
        elements: Vec<Format>,
    },
    /// One of several formats.
    Or {
        /// The choices.
        elements: Vec<Format>,
    },
    /// Once or not at all.
    Optional {
        /// The part.
        content: Box<Format>,
    },
    /// Any number of times.
    Star {
        /// The part.
        content: Box<Format>,
    },
    /// Once or more.
    Plus {
        /// The part.
        content: Box<Format>,
    },
    /// Something between a beginning and an end.
    Tag(Tag),
    /// Any text, in which a trigger begins a tag.
    TriggeredTags {
        /// What begins tags.
        triggers: Vec<String>,
        /// The tags; each begins with a trigger.
        tags: Vec<Tag>,
        /// The output begins with a tag.
        #[serde(default)]
        at_least_one: bool,
        /// Nothing follows the first tag.
        #[serde(default)]
        stop_after_first: bool,
        /// Texts that the text may not contain.
        #[serde(default)]
        excludes: Vec<String>,
    },
    /// Tags, and nothing but a separator between them.
    TagsWithSeparator {
        /// The tags.
        tags: Vec<Tag>,
        /// What stands between them.
        separator: String,
        /// Whether there must be a tag.
        #[serde(default)]
        at_least_one: bool,
        /// Whether there may be one tag only.
        #[serde(default)]
        stop_after_first: bool,
    },
}

/// Something between a beginning and an end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tag {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    /// What it begins with.
    pub begin: String,
    /// What is in it.
    pub content: Box<Format>,
    /// What it ends with: one of these.
    pub end: Ends,
}

/// One end or several to choose from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Ends {
    /// One.
    One(String),
    /// Several.
    Several(Vec<String>),
}

impl Ends {
    pub(super) fn all(&self) -> &[String] {
        match self {
            Self::One(end) => std::slice::from_ref(end),
            Self::Several(ends) => ends,
        }
    }
}

impl Tag {
    /// A tag with one end.
    pub fn new(begin: impl Into<String>, content: Format, end: impl Into<String>) -> Self {
        Self { kind: None, begin: begin.into(), content: Box::new(content), end: Ends::One(end.into()) }
    }

    fn measure(&self, left: &mut Option<usize>) {
        take(self.begin.len(), left);
        self.end.all().iter().for_each(|end| take(end.len(), left));
        self.content.measure(left);
    }
}

impl Format {
    /// This text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::ConstString { value: text.into() }
    }

    /// JSON that a schema describes.
    pub fn json(schema: Value) -> Self {
        Self::JsonSchema { json_schema: schema, style: None }
    }

    /// Takes its bytes of what is left.
    pub(super) fn measure(&self, left: &mut Option<usize>) {
        let texts =
            |texts: &[String], left: &mut Option<usize>| texts.iter().for_each(|text| take(text.len() + 1, left));
        match self {
            Self::ConstString { value } => take(value.len(), left),
            Self::JsonSchema { json_schema, .. } => measure(json_schema, left),
            Self::Regex { pattern, .. } => take(pattern.len(), left),
            Self::AnyText { excludes } => texts(excludes, left),
            Self::Sequence { elements } | Self::Or { elements } => {
                for element in elements {
                    element.measure(left);
                }
            }
            Self::Optional { content } | Self::Star { content } | Self::Plus { content } => content.measure(left),
            Self::Tag(tag) => tag.measure(left),
            Self::TriggeredTags { triggers, tags, excludes, .. } => {
                texts(triggers, left);
                texts(excludes, left);
                for tag in tags {
                    tag.measure(left);
                }
            }
            Self::TagsWithSeparator { tags, .. } => tags.iter().for_each(|tag| tag.measure(left)),
        }
    }

    /// Reads the `structural_tag` of a request: the present form with `format`, or the earlier one with `structures`
    /// and `triggers`.
    pub fn from_request(tag: &Value) -> Result<Self, StructuredError> {
        let invalid = |error: &dyn std::fmt::Display| {
            StructuredError::new(format!("Failed to transform structural tag into a grammar: {error}"))
        };
        let Some(fields) = tag.as_object() else { return Err(invalid(&"it is not an object")) };
        if let Some(format) = fields.get("format") {
            if fields.contains_key("structures") {
                return Err(invalid(&"`format` and `structures` are two forms of the same"));
            }
            return serde_json::from_value(format.clone()).map_err(|error| invalid(&error));
        }
        let earlier: EarlierTag = serde_json::from_value(tag.clone()).map_err(|error| invalid(&error))?;
        let tags = earlier.structures.into_iter();
        let tags = tags.map(|tag| Tag::new(tag.begin, Self::json(tag.schema), tag.end)).collect();
        Ok(Self::TriggeredTags {
            triggers: earlier.triggers,
            tags,
            at_least_one: false,
            stop_after_first: false,
            excludes: Vec::new(),
        })
    }
}

/// The earlier form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EarlierTag {
    #[serde(rename = "type")]
    _kind: Option<String>,
    structures: Vec<EarlierStructure>,
    triggers: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EarlierStructure {
    begin: String,
    #[serde(default = "anything")]
    schema: Value,
    end: String,
}

fn anything() -> Value {
    Value::Bool(true)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_forms_are_read() {
        let earlier = json!({"type": "structural_tag", "triggers": ["<f"],
            "structures": [{"begin": "<f=a>", "schema": {}, "end": "</f>"}]});
        let present = json!({"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<f"],
            "tags": [{"begin": "<f=a>", "content": {"type": "json_schema", "json_schema": {}}, "end": "</f>"}]}});
        assert_eq!(Format::from_request(&earlier), Format::from_request(&present));
        let tag = json!({"format": {"type": "tag", "begin": "a", "content": {"type": "any_text"}, "end": ["b", "c"]}});
        assert!(matches!(Format::from_request(&tag), Ok(Format::Tag(tag)) if tag.end.all().len() == 2));
    }

    #[test]
    fn what_is_not_known_is_named() {
        let refused = |tag: Value| Format::from_request(&tag).unwrap_err().message;
        assert!(refused(json!({"format": {"type": "dance"}})).contains("dance"));
        assert!(refused(json!({"format": {"type": "any_text", "mood": 1}})).contains("mood"));
        assert!(refused(json!({"structures": []})).contains("triggers"));
        let earlier = |more: Value| {
            let mut tag = json!({"structures": [{"begin": "e", "schema": {}, "end": "c"}], "triggers": ["e"]});
            tag.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            tag
        };
        assert!(Format::from_request(&earlier(json!({"type": "structural_tag"}))).is_ok());
        assert!(refused(earlier(json!({"at_least_one": true}))).contains("at_least_one"));
        assert!(refused(earlier(json!({"format": {"type": "any_text"}}))).contains("two forms"));
        let more = json!([{"begin": "e", "schema": {}, "end": "c", "extra": 1}]);
        assert!(refused(json!({"structures": more, "triggers": ["e"]})).contains("extra"));
        assert!(refused(json!([])).contains("not an object"));
    }
}
