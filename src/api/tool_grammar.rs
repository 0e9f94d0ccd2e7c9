//! Calls that a model has to make, or has to make well, as a demand on its output (vLLM
//! `tool_parsers/structural_tag_registry.py`, with `VLLM_ENFORCE_STRICT_TOOL_CALLING` as it is by default).
//!
//! `required` and a named function force calls in the model's own format; so does `auto` from where a call begins, if a
//! tool is `strict`. Arguments keep to the schema of a `strict` tool, and are any JSON else, as in vLLM. Formats that
//! readers expect as bare JSON are forced to be that.

use serde_json::{Map, Value, json};

use super::error::ApiError;
use crate::{
    chat::FunctionTool,
    parser::{ForcedCall, ToolFormat},
    structured::{Constraint, Format, JsonOptions, MOST_WHITESPACE, Tag},
    tokenizer::Tokenizer,
};

/// How often a model calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Calls {
    /// As it likes, between texts.
    Any,
    /// Once or more.
    Some,
    /// Once.
    One,
}

/// What the calls of an answer demand of it; `None` where they demand nothing.
pub(super) fn constraint(format: &ToolFormat, tokenizer: &Tokenizer) -> Result<Option<Constraint>, ApiError> {
    let any_is_strict = format.tools.iter().any(|tool| tool.strict == Some(true));
    let (calls, name) = match &format.forced {
        None if !any_is_strict || format.parser.forces_json() => return Ok(None),
        None => (Calls::Any, None),
        Some(ForcedCall::Required) => (Calls::Some, None),
        Some(ForcedCall::Named(name)) => (Calls::One, Some(name)),
    };
    let tools = format.tools.iter().filter(|tool| name.is_none_or(|name| tool.name == *name));
    let tools: Vec<Function<'_>> = tools.map(Function::new).collect::<Result<_, _>>()?;
    check_references(format.parser.name(), &tools, format.parser.forces_json() && name.is_none())?;
    if format.parser.forces_json() {
        return bare_json(&tools, calls).map(Some);
    }
    match native(format.parser.name(), &tools, calls, tokenizer) {
        Some(native) => Ok(Some(Constraint::Tags(native, spelling_of_json(format.parser.name())))),
        None if calls == Calls::Any => Ok(None),
        None => Err(ApiError::invalid(
            "tool_choice",
            format!(
                "a `tool_choice` that forces a call is not known for the tool call parser {:?}: pass \"auto\"",
                format.parser.name()
            ),
        )),
    }
}

/// Formats that write arguments one by one, each with its part of the schema.
const ONE_BY_ONE: [&str; 5] = ["glm45", "glm47", "minimax_m2", "qwen3_coder", "qwen3_xml"];

/// Refuses references that would lead elsewhere, where a schema becomes a part of another one or is taken apart: only its
/// definitions come along.
fn check_references(parser: &str, tools: &[Function<'_>], embedded: bool) -> Result<(), ApiError> {
    let taken = |tool: &Function<'_>| match &tool.parameters {
        Some(parameters) if embedded => leads_elsewhere(parameters),
        _ => ONE_BY_ONE.contains(&parser) && leads_elsewhere(&tool.arguments),
    };
    match tools.iter().find(|tool| taken(tool)) {
        None => Ok(()),
        Some(tool) => Err(ApiError::invalid(
            "tools",
            format!(
                "a `$ref` in the parameters of {:?} leads to something else than \"#/$defs/…\" or \"#/definitions/…\", \
                 which cannot be followed as calls are written with the parser {parser:?}: move what it leads to there",
                tool.name
            ),
        )),
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
struct Function<'a> {
    name: &'a str,
    /// What its arguments keep to; `true` is anything.
    arguments: Value,
    /// Its parameters as the request has them.
    parameters: Option<Value>,
}

impl<'a> Function<'a> {
    fn new(tool: &'a FunctionTool) -> Result<Self, ApiError> {
        let parse = |parameters: &crate::json::Value| {
            serde_json::from_str::<Value>(&parameters.to_json_string()).map_err(|error| {
                ApiError::invalid("tools", format!("the parameters of {:?} are not a JSON schema: {error}", tool.name))
            })
        };
        let parameters = tool.parameters.as_ref().filter(|parameters| !parameters.is_null()).map(parse).transpose()?;
        let strict = tool.strict == Some(true);
        let arguments = parameters.clone().filter(|_| strict).unwrap_or(Value::Bool(true));
        Ok(Self { name: &tool.name, arguments, parameters })
    }

    fn json(&self) -> Format {
        Format::json(self.arguments.clone())
    }
}

/// A format's calls; `None` if it is not known how it writes them.
fn native(parser: &str, tools: &[Function<'_>], calls: Calls, tokenizer: &Tokenizer) -> Option<Format> {
    let each = |make: &dyn Fn(&Function<'_>) -> Tag| tools.iter().map(make).collect::<Vec<_>>();
    Some(match parser {
        "hermes" | "qwen3_json" => {
            let tags = tools.iter().flat_map(|tool| {
                [("\n", "\n"), ("", "")].map(|(begin, end)| {
                    let begin = format!("<tool_call>{begin}{{\"name\": \"{}\", \"arguments\": ", tool.name);
                    Tag::new(begin, tool.json(), format!("}}{end}</tool_call>"))
                })
            });
            of_tags(tags.collect(), "", "<tool_call>", calls)
        }
        "llama3_json" | "llama4_json" => {
            let begin = |name: &str| format!("{{\"name\": \"{name}\", \"parameters\": ");
            let tags = each(&|tool| Tag::new(begin(tool.name), tool.json(), "}"));
            of_tags(tags, "; ", "{\"name\": ", calls)
        }
        "deepseek_v3" => {
            let begin = |name: &str| format!("<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n");
            let tags = each(&|tool| Tag::new(begin(tool.name), tool.json(), "\n```<｜tool▁call▁end｜>"));
            section("<｜tool▁calls▁begin｜>", tags, "\n", "<｜tool▁calls▁end｜>", calls)
        }
        "deepseek_v31" => {
            let begin = |name: &str| format!("<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>");
            let tags = each(&|tool| Tag::new(begin(tool.name), tool.json(), "<｜tool▁call▁end｜>"));
            section("<｜tool▁calls▁begin｜>", tags, "", "<｜tool▁calls▁end｜>", calls)
        }
        "kimi_k2" => {
            let tags = each(&|tool| {
                let numbered = Format::Sequence {
                    elements: vec![
                        Format::Regex { pattern: "[0-9]+".to_owned(), excludes: Vec::new() },
                        Format::text("<|tool_call_argument_begin|>"),
                        tool.json(),
                    ],
                };
                Tag::new(format!("<|tool_call_begin|>functions.{}:", tool.name), numbered, "<|tool_call_end|>")
            });
            section("<|tool_calls_section_begin|>", tags, "", "<|tool_calls_section_end|>", calls)
        }
        "qwen3_coder" | "qwen3_xml" => {
            let spelling = Spelling { key: "<parameter=", value: ">\n", end: "\n</parameter>\n" };
            let begin = |name: &str| format!("<tool_call>\n<function={name}>\n");
            let tags = each(&|tool| Tag::new(begin(tool.name), spelling.arguments(tool), "</function>\n</tool_call>"));
            of_tags(tags, "\n", "<tool_call>", calls)
        }
        "minimax_m2" => {
            let spelling = Spelling { key: "<parameter name=\"", value: "\">", end: "</parameter>\n" };
            let begin = |name: &str| format!("<invoke name=\"{name}\">\n");
            let tags = each(&|tool| Tag::new(begin(tool.name), spelling.arguments(tool), "</invoke>\n"));
            section("<minimax:tool_call>\n", tags, "", "</minimax:tool_call>", calls)
        }
        "glm45" => {
            let spelling = Spelling { key: "<arg_key>", value: "</arg_key>\n<arg_value>", end: "</arg_value>\n" };
            let begin = |name: &str| format!("<tool_call>{name}\n");
            let tags = each(&|tool| Tag::new(begin(tool.name), spelling.arguments(tool), "</tool_call>"));
            of_tags(tags, "\n", "<tool_call>", calls)
        }
        "glm47" => {
            let spelling = Spelling { key: "<arg_key>", value: "</arg_key><arg_value>", end: "</arg_value>" };
            let begin = |name: &str| format!("<tool_call>{name}");
            let tags = each(&|tool| Tag::new(begin(tool.name), spelling.arguments(tool), "</tool_call>"));
            of_tags(tags, "", "<tool_call>", calls)
        }
        "openai" => channels(tools, calls)?,
        "mistral" if tokenizer.id_of("[ARGS]").is_some() => {
            let tags = each(&|tool| Tag::new(format!("[TOOL_CALLS]{}[ARGS]", tool.name), tool.json(), ""));
            of_tags(tags, "", "[TOOL_CALLS]", calls)
        }
        "mistral" => {
            let begin = |name: &str| format!("{{\"name\": \"{name}\", \"arguments\": ");
            let tags = each(&|tool| Tag::new(begin(tool.name), tool.json(), "}"));
            section("[TOOL_CALLS][", tags, ", ", "]", calls)
        }
        _ => return None,
    })
}

/// The readers of these formats, as vLLM's, find arguments on one line only.
fn spelling_of_json(parser: &str) -> JsonOptions {
    let whitespace = parser.starts_with("deepseek").then(|| format!(" {{1,{MOST_WHITESPACE}}}"));
    JsonOptions { whitespace, ..JsonOptions::default() }
}

/// Calls one after the other, or anywhere in a text where `trigger` begins one.
fn of_tags(tags: Vec<Tag>, separator: &str, trigger: &str, calls: Calls) -> Format {
    if calls == Calls::Any {
        return anywhere(tags, trigger);
    }
    Format::TagsWithSeparator {
        tags,
        separator: separator.to_owned(),
        at_least_one: true,
        stop_after_first: calls == Calls::One,
    }
}

/// Calls between a beginning and an end that stand for all of them.
fn section(begin: &str, tags: Vec<Tag>, separator: &str, end: &str, calls: Calls) -> Format {
    let list = if calls == Calls::Any { Calls::Some } else { calls };
    let tag = Tag::new(begin, of_tags(tags, separator, begin, list), end);
    if calls == Calls::Any { anywhere(vec![tag], begin) } else { Format::Tag(tag) }
}

fn anywhere(tags: Vec<Tag>, trigger: &str) -> Format {
    Format::TriggeredTags {
        triggers: vec![trigger.to_owned()],
        tags,
        at_least_one: false,
        stop_after_first: false,
        excludes: Vec::new(),
    }
}

/// gpt-oss's: a call ends the answer, and thoughts may come before it.
fn channels(tools: &[Function<'_>], calls: Calls) -> Option<Format> {
    if calls == Calls::Any {
        return None;
    }
    let thought = Format::Tag(Tag::new(
        "<|channel|>analysis<|message|>",
        Format::AnyText { excludes: Vec::new() },
        "<|end|><|start|>assistant",
    ));
    let call = tools.iter().flat_map(|tool| {
        let name = tool.name;
        [
            format!("<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"),
            format!(" to=functions.{name}<|channel|>commentary <|constrain|>json<|message|>"),
        ]
        .map(|header| Format::Sequence { elements: vec![Format::text(header), tool.json()] })
    });
    let elements = vec![Format::Star { content: Box::new(thought) }, Format::Or { elements: call.collect() }];
    Some(Format::Sequence { elements })
}

/// How a format spells arguments one by one.
struct Spelling {
    /// Before a key.
    key: &'static str,
    /// Between a key and its value.
    value: &'static str,
    /// Behind a value.
    end: &'static str,
}

impl Spelling {
    /// The named parameters in their order, those that are not required or not; or any.
    fn arguments(&self, tool: &Function<'_>) -> Format {
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
            let argument = Format::Tag(self.named(name, &schema));
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
    fn named(&self, name: &str, schema: &Value) -> Tag {
        let texts = schema.get("enum").and_then(Value::as_array).filter(|values| values.iter().all(Value::is_string));
        let value = match (texts, schema.get("type").and_then(Value::as_str)) {
            (Some(texts), _) => {
                Format::Or { elements: texts.iter().filter_map(Value::as_str).map(Format::text).collect() }
            }
            (None, Some("string")) => Format::AnyText { excludes: Vec::new() },
            (None, _) => Format::json(schema.clone()),
        };
        Tag::new(format!("{}{name}{}", self.key, self.value), value, self.end)
    }
}

/// The arguments alone where the function is named, a list of `{"name", "parameters"}` else.
fn bare_json(tools: &[Function<'_>], calls: Calls) -> Result<Constraint, ApiError> {
    let parameters =
        |tool: &Function<'_>| tool.parameters.clone().unwrap_or_else(|| json!({"type": "object", "properties": {}}));
    if let (Calls::One, [tool]) = (calls, tools) {
        return Ok(Constraint::Json(parameters(tool), JsonOptions::default()));
    }
    let mut definitions = Map::new();
    let mut items = Vec::new();
    for tool in tools {
        let mut parameters = parameters(tool);
        let own = parameters.as_object_mut().and_then(|parameters| parameters.remove("$defs"));
        for (name, definition) in own.as_ref().and_then(Value::as_object).into_iter().flatten() {
            if definitions.insert(name.clone(), definition.clone()).is_some_and(|other| other != *definition) {
                let message = format!("Tool definition '{name}' has multiple schemas, which is not supported.");
                return Err(ApiError::invalid_request(message));
            }
        }
        items.push(json!({
            "type": "object",
            "properties": {"name": {"type": "string", "enum": [tool.name]}, "parameters": parameters},
            "required": ["name", "parameters"],
        }));
    }
    let schema = json!({"type": "array", "minItems": 1, "items": {"anyOf": items}, "$defs": definitions});
    Ok(Constraint::Json(schema, JsonOptions::default()))
}
