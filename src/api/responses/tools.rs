//! Turns flat tools and choices of tools into the form of a chat.
//!
//! Groups of functions become functions (vLLM 0.33 `tool_parsers/utils.py`), and custom tools become functions of one
//! text. Tools that a server would run are not shown to the model, and the answer names them; so are grammars of custom
//! tools, which the input is not held to.

use super::{
    input::CUSTOM_INPUT,
    names::{CallNames, name_in_group},
};
use crate::{
    chat::FunctionTool,
    json::{Object, Path, Value},
    request_fields::tools::{ToolFields, ToolUse},
    turn::ToolPolicy,
    wire::{answer::tool_notices::ToolNotices, error::ApiError},
};

/// The tools of a request.
#[derive(Debug, Default)]
pub(super) struct Tools {
    /// The tools in the form of a chat; `None` if there are none.
    pub(super) functions: Option<Vec<FunctionTool>>,
    /// The names that the tools have in calls.
    pub(super) names: CallNames,
    /// The tools in the form in which the answer repeats them.
    pub(super) shown: Vec<Value>,
    /// What was not done as the request asks.
    pub(super) notices: ToolNotices,
}

const FUNCTION_KEYS: [&str; 9] = [
    "name",
    "parameters",
    "strict",
    "type",
    "allowed_callers",
    "async",
    "defer_loading",
    "description",
    "output_schema",
];
const CUSTOM_KEYS: [&str; 7] = ["name", "type", "allowed_callers", "async", "defer_loading", "description", "format"];
/// `OpenAI`'s types of tools that a server runs, or that only a model which was trained for them knows.
const UNSHOWN: [&str; 11] = [
    "apply_patch",
    "code_interpreter",
    "computer",
    "computer-preview",
    "file_search",
    "image_generation",
    "local_shell",
    "mcp",
    "programmatic_tool_calling",
    "shell",
    "tool_search",
];
/// The beginnings of such types that end with a date or `_preview`.
const UNSHOWN_STARTS: [&str; 2] = ["web_search", "computer_use"];

/// Whether the model is not shown tools of this type.
fn is_unshown(kind: &str) -> bool {
    UNSHOWN.contains(&kind) || UNSHOWN_STARTS.iter().any(|start| kind.starts_with(start))
}

/// A tool of a request, and where it stands.
struct Place<'a> {
    tool: &'a Value,
    path: Path,
    /// The group that it belongs to.
    group: Option<&'a str>,
}

impl<'a> Place<'a> {
    fn wrong(&self, what: &str) -> ApiError {
        ApiError::invalid(self.path.clone(), format!("`{}` {what}", self.path))
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        self.tool.get(key).and_then(Value::as_str)
    }

    fn kind(&self) -> Result<&'a str, ApiError> {
        self.text("type").ok_or_else(|| self.wrong("has no `type`"))
    }

    fn name(&self) -> Result<&'a str, ApiError> {
        self.text("name").filter(|name| !name.is_empty()).ok_or_else(|| self.wrong("has no `name`"))
    }

    /// Returns the name by which the model knows the tool.
    fn known_as(&self) -> Result<String, ApiError> {
        let name = self.name()?;
        Ok(self.group.map_or_else(|| name.to_owned(), |group| name_in_group(group, name)))
    }
}

impl Tools {
    pub(super) fn new(tools: &[Value]) -> Result<Self, ApiError> {
        let mut read = Self::default();
        for (index, tool) in tools.iter().enumerate() {
            let place = Place { tool, path: Path::from("tools").then(index), group: None };
            match place.kind()? {
                "namespace" => {
                    read.add_group(&place)?;
                    read.shown.push(tool.clone());
                }
                kind @ ("function" | "custom") => {
                    read.add(&place)?;
                    let keys: &[&str] = if kind == "custom" { &CUSTOM_KEYS } else { &FUNCTION_KEYS };
                    read.shown.push(with_keys(tool, keys));
                }
                kind if is_unshown(kind) => {
                    read.notices.ignore_tool(kind);
                    read.shown.push(tool.clone());
                }
                kind => return Err(place.wrong(&format!("is of type {kind:?}, which this server does not have"))),
            }
        }
        Ok(read)
    }

    fn add_group(&mut self, group: &Place<'_>) -> Result<(), ApiError> {
        let name = group.name()?;
        let Some(tools) = group.tool.get("tools").and_then(Value::as_array) else {
            return Err(group.wrong("needs `tools`, a list"));
        };
        for (index, tool) in tools.iter().enumerate() {
            let place = Place { tool, path: group.path.clone().then("tools").then(index), group: Some(name) };
            match place.kind()? {
                "function" | "custom" => self.add(&place)?,
                kind if is_unshown(kind) => self.notices.ignore_tool(name_in_group(name, kind)),
                kind => return Err(place.wrong(&format!("is of type {kind:?}, which this server does not have"))),
            }
        }
        Ok(())
    }

    /// Adds a function or a custom tool.
    fn add(&mut self, place: &Place<'_>) -> Result<(), ApiError> {
        let name = place.known_as()?;
        if self.functions.iter().flatten().any(|tool| tool.name == name) {
            return Err(place.wrong("has the name of another one"));
        }
        let (parameters, strict) = if place.kind()? == "custom" {
            self.names.add_custom(&name);
            if has_grammar(place.tool).map_err(|what| place.wrong(what))? {
                self.notices.leave_unforced(format!("{name}: grammar"));
            }
            (Some(custom_parameters()), Some(true))
        } else {
            let parameters = place.tool.get("parameters").filter(|parameters| !parameters.is_null());
            if parameters.is_some_and(|parameters| parameters.as_object().is_none()) {
                return Err(place.wrong("has `parameters` that are no object"));
            }
            (parameters.cloned(), place.tool.get("strict").and_then(Value::as_bool))
        };
        if let Some(group) = place.group {
            self.names.add_grouped(group, place.name()?);
        }
        let description = place.text("description").map(str::to_owned);
        let defer_loading = place.tool.get("defer_loading").and_then(Value::as_bool);
        let function = FunctionTool { name, description, parameters, strict, defer_loading, outer_defer_loading: None };
        self.functions.get_or_insert_default().push(function);
        Ok(())
    }

    /// Resolves how the tools are used. As in vLLM, the answer is text if the server does not parse calls and the
    /// request lets the model decide whether to call.
    pub(super) fn resolve(
        &self,
        choice: Option<&Value>,
        parallel_tool_calls: Option<bool>,
        policy: ToolPolicy,
    ) -> Result<ToolUse, ApiError> {
        let is_idle = |choice: &&Value| choice.is_null() || matches!(choice.as_str(), Some("auto" | "none"));
        if let Some(choice) = choice.filter(|choice| self.functions.is_none() && !is_idle(choice)) {
            refuse_unshown(choice)?;
            let why =
                if self.shown.is_empty() { "there are no `tools`" } else { "the model is shown none of the `tools`" };
            let message = format!("`tool_choice` is {}, and {why}", choice.to_json_string());
            return Err(ApiError::invalid("tool_choice", message));
        }
        let choice = choice.filter(|_| self.functions.is_some()).map(|choice| self.chat_choice(choice)).transpose()?;
        let reads = policy.auto && policy.parser.is_some();
        let left_to_model = choice.as_ref().is_none_or(|choice| choice.is_null() || choice.as_str() == Some("auto"));
        let none = Value::from("none");
        let tool_choice = if left_to_model && !reads { Some(&none) } else { choice.as_ref() };
        ToolFields { tools: self.functions.as_deref(), tool_choice, parallel_tool_calls }.resolve(policy)
    }

    /// Returns a choice in the form of a chat.
    fn chat_choice(&self, choice: &Value) -> Result<Value, ApiError> {
        let Some(kind) = choice.as_object().map(|_| choice.get("type").and_then(Value::as_str)) else {
            return Ok(choice.clone());
        };
        refuse_unshown(choice)?;
        if !matches!(kind, Some("function" | "custom")) {
            let message = format!("a `tool_choice` of type {:?} is not supported", kind.unwrap_or_default());
            return Err(ApiError::invalid("tool_choice", message));
        }
        // A choice that already has the form of a chat is accepted too.
        let inner = choice.get("function").and_then(|function| function.get("name"));
        let name = match choice.get("name").or(inner).cloned().unwrap_or_default() {
            Value::String(name) => Value::String(self.known_as(name, choice.get("namespace"))?),
            name => name,
        };
        let is_custom = name.as_str().is_some_and(|name| self.names.is_custom(name));
        if is_custom != (kind == Some("custom")) {
            let message = format!("`tool_choice` names no {} tool of the request", kind.unwrap_or_default());
            return Err(ApiError::invalid("tool_choice", message));
        }
        let function = Value::Object(Object::from_iter([("name".to_owned(), name)]));
        Ok(Value::Object(Object::from_iter([
            ("type".to_owned(), Value::from("function")),
            ("function".to_owned(), function),
        ])))
    }

    /// Returns the model's name for a tool that a choice names: as it is, or within the only group that has it.
    fn known_as(&self, name: String, group: Option<&Value>) -> Result<String, ApiError> {
        if let Some(group) = group.and_then(Value::as_str) {
            return Ok(name_in_group(group, &name));
        }
        if self.functions.iter().flatten().any(|tool| tool.name == name) {
            return Ok(name);
        }
        match self.names.called(&name)[..] {
            [] => Ok(name),
            [only] => Ok(only.to_owned()),
            ref several => {
                let message = format!(
                    "Tool choice '{name}' is ambiguous: it is defined in more than one namespace ({}). Select it by its \
                     full '<namespace>__<name>' name.",
                    several.join(", ")
                );
                Err(ApiError::invalid("tool_choice", message))
            }
        }
    }
}

/// Refuses a choice of a tool that the model is not shown.
fn refuse_unshown(choice: &Value) -> Result<(), ApiError> {
    let Some(kind) = choice.get("type").and_then(Value::as_str).filter(|kind| is_unshown(kind)) else { return Ok(()) };
    let message =
        format!("`tool_choice` names {kind:?}, a tool that this server cannot run: the model is not shown it");
    Err(ApiError::invalid("tool_choice", message))
}

/// Whether a custom tool has a grammar; an error if its `format` is none.
fn has_grammar(tool: &Value) -> Result<bool, &'static str> {
    let Some(format) = tool.get("format").filter(|format| !format.is_null()) else { return Ok(false) };
    match format.get("type").and_then(Value::as_str) {
        Some("text") => Ok(false),
        Some("grammar") => {
            let is_text = |key: &str| format.get(key).and_then(Value::as_str).is_some();
            let is_known = matches!(format.get("syntax").and_then(Value::as_str), Some("lark" | "regex"));
            if is_known && is_text("definition") {
                Ok(true)
            } else {
                Err("has a grammar without a `syntax` (\"lark\" or \"regex\") or a `definition`")
            }
        }
        _ => Err("has a `format` that is no object with the `type` \"text\" or \"grammar\""),
    }
}

/// The parameters that vLLM shows the model of a custom tool.
fn custom_parameters() -> Value {
    let schema = format!(
        r#"{{"type":"object","properties":{{"{CUSTOM_INPUT}":{{"type":"string","description":"The freeform text payload for this tool."}}}},"required":["{CUSTOM_INPUT}"],"additionalProperties":false}}"#
    );
    Value::parse(&schema).expect("it is JSON")
}

/// Returns an object with exactly these keys; their values are null if `object` does not have them.
pub(super) fn with_keys(object: &Value, keys: &[&str]) -> Value {
    let value = |key: &&str| ((*key).to_owned(), object.get(key).cloned().unwrap_or_default());
    Value::Object(keys.iter().map(value).collect())
}

/// Returns the input with which a custom tool is called; `None` where the model called it with anything else than a text, or
/// the call was cut off.
pub(super) fn custom_input(arguments: &str) -> Option<String> {
    match Value::parse(arguments).ok()? {
        Value::Object(fields) if fields.len() == 1 => fields.get(CUSTOM_INPUT)?.as_str().map(str::to_owned),
        _ => None,
    }
}
