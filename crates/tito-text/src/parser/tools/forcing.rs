//! What forces calls: a demand on the output, in the words of `structured` (vLLM `tool_parsers/structural_tag_registry.py`,
//! with `VLLM_ENFORCE_STRICT_TOOL_CALLING` as it is by default).
//!
//! `required` and a named function force calls in the model's own format; so does `auto` from where a call begins, if a
//! tool is `strict` or the server holds all calls. Arguments keep to the schema of a `strict` tool, and are any JSON else; requests take the tools of
//! forced calls for strict ones. How a format writes its calls stands in the format's own file, beside its reader.

use std::fmt;

use serde_json::Value;

use crate::{
    chat::FunctionTool,
    structured::{Constraint, Format, JsonOptions, Tag},
};

/// A call that the model has to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForcedCall {
    /// One or more of any function.
    Required,
    /// One of the function that has this name.
    Named(String),
}

/// Why calls cannot be demanded; a fault of the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForcingError {
    /// A tool's parameters are not JSON that a schema could be.
    #[error("the parameters of {tool:?} are not a JSON schema: {reason}")]
    Parameters {
        /// The tool.
        tool: String,
        /// What is wrong with them.
        reason: String,
    },
    /// A schema refers to what does not come along where only a part of it is used.
    #[error(
        "a `$ref` in the parameters of {tool:?} leads to something else than \"#/$defs/…\" or \"#/definitions/…\", which \
         cannot be followed as calls are written with the parser {parser:?}: move what it leads to there"
    )]
    Reference {
        /// The tool.
        tool: String,
        /// The format's name.
        parser: &'static str,
    },
    /// Two tools define the same name in different ways.
    #[error("Tool definition '{0}' has multiple schemas, which is not supported.")]
    Definition(String),
    /// The format's grammar is not known.
    #[error("a `tool_choice` that forces a call is not known for the tool call parser {0:?}: pass \"auto\"")]
    Unknown(&'static str),
}

/// What a call is written in that a model is forced to make.
#[cfg(any(test, feature = "internals"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForcedBy {
    /// What the model writes by itself, too.
    OwnFormat,
    /// JSON without marks, as in vLLM where a format has no grammar.
    BareJson,
    /// No call can be forced.
    Nothing,
}

/// How the calls of a format are forced.
#[derive(Debug, Clone, Copy)]
pub(super) enum Forcing {
    /// As the format writes them.
    Native(Grammar),
    /// As bare JSON instead, a list of `{"name", "parameters"}` where one is required and the arguments alone where it is
    /// named: vLLM's way for formats without a `structural_tag_model`.
    BareJson,
    /// Not at all; the format's own file says why.
    Unknown,
}

/// Whether a format says which values are text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextIs {
    /// It does not: text without quotes stands where JSON does.
    Bare,
    /// It does not, and the white space around text is none of it.
    Trimmed,
    /// It does not, and text is that of XML, in which `&lt;` is a `<`.
    Xml,
    /// It marks what is text, and what is JSON.
    Marked,
}

/// How a format writes calls.
#[derive(Clone, Copy)]
pub(super) struct Grammar {
    /// The calls of a demand.
    pub(super) calls: fn(&Demand<'_>) -> Format,
    /// What may stand between tokens of the arguments' JSON, a regular expression, where readers take less than JSON does.
    pub(super) whitespace: Option<fn() -> String>,
    /// Arguments are written one by one, each with its part of the schema, and text so.
    pub(super) one_by_one: Option<TextIs>,
    /// Calls that the model begins by itself are held to their schemas too.
    pub(super) holds_any: bool,
}

impl fmt::Debug for Grammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grammar").finish_non_exhaustive()
    }
}

impl Grammar {
    pub(super) const fn new(calls: fn(&Demand<'_>) -> Format) -> Self {
        Self { calls, whitespace: None, one_by_one: None, holds_any: true }
    }

    /// What the calls demand of the output; `None` where they demand nothing.
    pub(super) fn constraint(&self, demand: &Demand<'_>) -> Result<Option<Constraint>, ForcingError> {
        if self.one_by_one.is_some() {
            demand.check_references(|tool| Some(&tool.arguments))?;
        }
        if demand.calls == Calls::Any && !self.holds_any {
            return Ok(None);
        }
        let options = JsonOptions { whitespace: self.whitespace.map(|make| make()), ..JsonOptions::default() };
        Ok(Some(Constraint::Tags((self.calls)(demand), options)))
    }
}

/// How often a model calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Calls {
    /// As it likes, between texts.
    Any,
    /// Once or more.
    Some,
    /// Once.
    One,
}

/// What a request wants of the calls of an answer.
pub(super) struct Demand<'a> {
    /// The format's name.
    pub(super) parser: &'static str,
    pub(super) calls: Calls,
    /// Whether there is no second call, however the model calls (vLLM `limit_to_single_tool_call`).
    pub(super) at_most_one: bool,
    /// The tools that may be called.
    pub(super) tools: Vec<Function<'a>>,
    /// Whether the model's vocabulary has a token with this text.
    pub(super) has_token: &'a dyn Fn(&str) -> bool,
    /// What the checkpoint's marks end in, before their last character.
    pub(super) suffix: &'static str,
}

impl<'a> Demand<'a> {
    /// What `forced` wants of calls of `tools`; without it, calls that the model begins by itself.
    pub(super) fn new(
        parser: &'static str,
        tools: &'a [FunctionTool],
        forced: Option<&ForcedCall>,
        has_token: &'a dyn Fn(&str) -> bool,
    ) -> Result<Self, ForcingError> {
        let (calls, name) = match forced {
            None => (Calls::Any, None),
            Some(ForcedCall::Required) => (Calls::Some, None),
            Some(ForcedCall::Named(name)) => (Calls::One, Some(name)),
        };
        let tools = tools.iter().filter(|tool| name.is_none_or(|name| tool.name == *name));
        let tools = tools.map(Function::new).collect::<Result<_, _>>()?;
        Ok(Self { parser, calls, at_most_one: false, tools, has_token, suffix: "" })
    }

    /// A tag for the calls of each tool.
    pub(super) fn each(&self, tag: impl Fn(&Function<'a>) -> Tag) -> Vec<Tag> {
        self.tools.iter().map(tag).collect()
    }

    /// Calls one after the other, or anywhere in a text where `trigger` begins one.
    pub(super) fn list(&self, tags: Vec<Tag>, separator: &str, trigger: &str) -> Format {
        if self.calls == Calls::Any { self.anywhere(tags, trigger) } else { self.listed(tags, separator) }
    }

    /// Calls between a beginning and an end that stand for all of them.
    pub(super) fn section(&self, begin: &str, tags: Vec<Tag>, separator: &str, end: &str) -> Format {
        let tag = Tag::new(begin, self.listed(tags, separator), end);
        if self.calls == Calls::Any { self.anywhere(vec![tag], begin) } else { Format::Tag(tag) }
    }

    fn listed(&self, tags: Vec<Tag>, separator: &str) -> Format {
        Format::TagsWithSeparator {
            tags,
            separator: separator.to_owned(),
            at_least_one: true,
            stop_after_first: self.at_most_one || self.calls == Calls::One,
        }
    }

    /// Calls in a text, which ends after the only one.
    fn anywhere(&self, tags: Vec<Tag>, trigger: &str) -> Format {
        Format::TriggeredTags {
            triggers: vec![trigger.to_owned()],
            tags,
            at_least_one: false,
            stop_after_first: self.at_most_one,
            excludes: Vec::new(),
        }
    }

    /// Refuses references that would lead elsewhere, where a schema becomes a part of another one or is taken apart: only
    /// its definitions come along.
    pub(super) fn check_references<'t>(
        &'t self,
        schema: impl Fn(&'t Function<'a>) -> Option<&'t Value>,
    ) -> Result<(), ForcingError> {
        match self.tools.iter().find(|tool| schema(tool).is_some_and(leads_elsewhere)) {
            None => Ok(()),
            Some(tool) => Err(ForcingError::Reference { tool: tool.name.to_owned(), parser: self.parser }),
        }
    }
}

fn leads_elsewhere(schema: &Value) -> bool {
    match schema {
        Value::Array(items) => items.iter().any(leads_elsewhere),
        Value::Object(entries) => {
            let reference = entries.get("$ref").and_then(Value::as_str);
            let kept = |path: &str| ["#/$defs/", "#/definitions/"].iter().any(|start| path.starts_with(start));
            reference.is_some_and(|path| !kept(path)) || entries.values().any(leads_elsewhere)
        }
        _ => false,
    }
}

/// A tool as its calls are written.
pub(super) struct Function<'a> {
    pub(super) name: &'a str,
    /// What its arguments keep to; `true` is anything.
    pub(super) arguments: Value,
    /// Its parameters as the request has them.
    pub(super) parameters: Option<Value>,
}

impl<'a> Function<'a> {
    fn new(tool: &'a FunctionTool) -> Result<Self, ForcingError> {
        let parse = |parameters: &crate::json::Value| {
            serde_json::from_str::<Value>(&parameters.to_json_string())
                .map_err(|error| ForcingError::Parameters { tool: tool.name.clone(), reason: error.to_string() })
        };
        let parameters = tool.parameters.as_ref().filter(|parameters| !parameters.is_null()).map(parse).transpose()?;
        let strict = tool.strict == Some(true);
        let arguments = parameters.clone().filter(|_| strict).unwrap_or(Value::Bool(true));
        Ok(Self { name: &tool.name, arguments, parameters })
    }

    /// Its arguments as one JSON value.
    pub(super) fn json(&self) -> Format {
        Format::json(self.arguments.clone())
    }
}
