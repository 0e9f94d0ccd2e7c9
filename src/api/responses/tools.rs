//! Turns flat tools and choices of tools into the form of a chat.

use super::input::CUSTOM_INPUT;
use crate::{
    api::fields::tools::{ToolFields, ToolUse},
    chat::FunctionTool,
    json::{Object, Path, Value},
    turn::ToolPolicy,
    wire::error::ApiError,
};

/// The tools of a request.
#[derive(Debug, Default)]
pub(super) struct Tools {
    /// The tools in the form of a chat; `None` if there are none.
    pub(super) functions: Option<Vec<FunctionTool>>,
    /// The names of the tools whose input is a text.
    pub(super) custom: Vec<String>,
    /// The tools in the form in which the answer repeats them.
    pub(super) shown: Vec<Value>,
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

impl Tools {
    pub(super) fn new(tools: &[Value]) -> Result<Self, ApiError> {
        let mut read = Self::default();
        for (index, tool) in tools.iter().enumerate() {
            let wrong =
                |what: &str| ApiError::invalid(Path::from("tools").then(index), format!("`tools[{index}]` {what}"));
            let text = |key: &str| tool.get(key).and_then(Value::as_str).map(str::to_owned);
            let kind = text("type").ok_or_else(|| wrong("has no `type`"))?;
            let name = text("name").unwrap_or_default();
            let keys: &[&str] = match kind.as_str() {
                "function" => &FUNCTION_KEYS,
                "custom" => &CUSTOM_KEYS,
                _ => return Err(wrong(&format!("is of type {kind:?}, which this server does not have"))),
            };
            if name.is_empty() {
                return Err(wrong("has no `name`"));
            }
            if read.functions.iter().flatten().any(|tool| tool.name == name) {
                return Err(wrong("has the name of another one"));
            }
            let (parameters, strict) = if kind == "custom" {
                check_format(tool).map_err(wrong)?;
                read.custom.push(name.clone());
                (Some(custom_parameters()), Some(true))
            } else {
                let parameters = tool.get("parameters").filter(|parameters| !parameters.is_null());
                if parameters.is_some_and(|parameters| parameters.as_object().is_none()) {
                    return Err(wrong("has `parameters` that are no object"));
                }
                (parameters.cloned(), tool.get("strict").and_then(Value::as_bool))
            };
            let description = text("description");
            let defer_loading = tool.get("defer_loading").and_then(Value::as_bool);
            let function =
                FunctionTool { name, description, parameters, strict, defer_loading, outer_defer_loading: None };
            read.functions.get_or_insert_default().push(function);
            read.shown.push(with_keys(tool, keys));
        }
        Ok(read)
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
            let message = format!("`tool_choice` is {}, and there are no `tools`", choice.to_json_string());
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
        if !matches!(kind, Some("function" | "custom")) {
            let message = format!("a `tool_choice` of type {:?} is not supported", kind.unwrap_or_default());
            return Err(ApiError::invalid("tool_choice", message));
        }
        // A choice that already has the form of a chat is accepted too.
        let inner = choice.get("function").and_then(|function| function.get("name"));
        let name = choice.get("name").or(inner).cloned().unwrap_or_default();
        let is_custom = name.as_str().is_some_and(|name| self.custom.iter().any(|custom| custom == name));
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
}

/// Refuses a custom tool of which more than a text is said, and a `format` that is none.
fn check_format(tool: &Value) -> Result<(), &'static str> {
    let Some(format) = tool.get("format").filter(|format| !format.is_null()) else { return Ok(()) };
    match format.get("type").and_then(Value::as_str) {
        Some("text") => Ok(()),
        Some(_) => Err("has a grammar, which custom tools cannot have on this server"),
        None => Err("has a `format` that is no object with a `type`"),
    }
}

fn custom_parameters() -> Value {
    let schema = format!(
        r#"{{"type":"object","properties":{{"{CUSTOM_INPUT}":{{"type":"string"}}}},"required":["{CUSTOM_INPUT}"],"additionalProperties":false}}"#
    );
    Value::parse(&schema).expect("it is JSON")
}

/// Returns an object with exactly these keys; their values are null if `object` does not have them.
pub(super) fn with_keys(object: &Value, keys: &[&str]) -> Value {
    let value = |key: &&str| ((*key).to_owned(), object.get(key).cloned().unwrap_or_default());
    Value::Object(keys.iter().map(value).collect())
}

/// Returns the input with which a custom tool is called.
pub(super) fn custom_input(arguments: &str) -> String {
    let input = Value::parse(arguments).ok().and_then(|value| value.get(CUSTOM_INPUT)?.as_str().map(str::to_owned));
    input.unwrap_or_else(|| arguments.to_owned())
}
