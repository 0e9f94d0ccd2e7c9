//! `tools`, `tool_choice` and `parallel_tool_calls`: which calls are read out of an answer (vLLM
//! `chat_completion/protocol.py`, `renderers/online_renderer.py`).

use super::error::ApiError;
use crate::{chat::FunctionTool, generation::ToolCallOptions, json::Value, parser::ToolParser};

/// What the server, not the request, decides about tool calls.
#[derive(Debug, Clone, Copy, Default)]
pub struct ToolPolicy {
    /// The format that the model writes calls in (`--tool-call-parser`).
    pub parser: Option<ToolParser>,
    /// Whether requests may leave it to the model to call (`--enable-auto-tool-choice`).
    pub auto: bool,
}

/// The fields of a request.
pub(super) struct ToolFields<'a> {
    pub(super) tools: Option<&'a [FunctionTool]>,
    pub(super) tool_choice: Option<&'a Value>,
    pub(super) parallel_tool_calls: Option<bool>,
}

/// Whether the model calls.
enum Choice<'a> {
    Never,
    Freely,
    Required,
    Named(&'a str),
}

fn invalid<T>(message: impl Into<String>) -> Result<T, ApiError> {
    Err(ApiError::refused("tool_choice", message, None))
}

/// What the server was not started for; vLLM names no field.
fn unserved<T>(message: impl Into<String>) -> Result<T, ApiError> {
    Err(ApiError::invalid_request(message))
}

impl<'a> ToolFields<'a> {
    /// Checks the fields; `None` where the answer is text whatever it says.
    pub(super) fn resolve(&self, policy: ToolPolicy) -> Result<Option<ToolCallOptions>, ApiError> {
        let first_only = self.parallel_tool_calls == Some(false);
        match (self.choice()?, policy) {
            (Choice::Never, _) => Ok(None),
            (Choice::Freely, ToolPolicy { parser: Some(parser), auto: true }) => {
                Ok(Some(ToolCallOptions { parser, first_only }))
            }
            (Choice::Freely, _) => {
                unserved("\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set")
            }
            (Choice::Required, ToolPolicy { parser: None, .. }) => {
                unserved("tool_choice=\"required\" requires --tool-call-parser to be set")
            }
            (Choice::Named(name), ToolPolicy { parser: None, .. }) => {
                unserved(format!("tool_choice=function \"{name}\" requires --tool-call-parser to be set"))
            }
            (Choice::Required | Choice::Named(_), _) => invalid(
                "a `tool_choice` that forces a call needs structured output, which this server does not have: pass \
                 \"auto\" and see whether the model calls",
            ),
        }
    }

    fn choice(&self) -> Result<Choice<'a>, ApiError> {
        if self.tools.is_some_and(<[_]>::is_empty) {
            let message = "`tools` must not be an empty array. Either provide at least one tool or omit the field \
                           entirely.";
            return Err(ApiError::refused("tools", message, None));
        }
        let choice = self.tool_choice.filter(|choice| !choice.is_null());
        match (choice, self.tools) {
            (None, None) => Ok(Choice::Never),
            (Some(Value::String(choice)), _) if choice == "none" => Ok(Choice::Never),
            (Some(_), None) => invalid("When using `tool_choice`, `tools` must be set."),
            (None, Some(_)) => Ok(Choice::Freely),
            (Some(Value::String(choice)), _) if choice == "auto" => Ok(Choice::Freely),
            (Some(Value::String(choice)), _) if choice == "required" => Ok(Choice::Required),
            (Some(choice @ Value::Object(_)), Some(tools)) => named(choice, tools).map(Choice::Named),
            (Some(choice), _) => {
                let shown = choice.as_str().map_or_else(|| choice.to_json_string(), str::to_owned);
                invalid(format!(
                    "Invalid value for `tool_choice`: {shown}! Only named tools, \"none\", \"auto\" or \"required\" \
                     are supported."
                ))
            }
        }
    }
}

/// The tool that `choice` names.
fn named<'a>(choice: &'a Value, tools: &[FunctionTool]) -> Result<&'a str, ApiError> {
    const USAGE: &str = "Correct usage: `{\"type\": \"function\", \"function\": {\"name\": \"my_function\"}}`";

    let Some(function) = choice.get("function").filter(|function| function.as_object().is_some()) else {
        return invalid(format!("Invalid value for `function` in `tool_choice`! {USAGE}"));
    };
    match function.get("name").map(Value::as_str) {
        None => invalid(format!("Expected field `name` in `function` in `tool_choice`! {USAGE}")),
        Some(None | Some("")) => invalid(format!("Invalid `name` in `function` in `tool_choice`! {USAGE}")),
        Some(Some(name)) if tools.iter().any(|tool| tool.name == name) => Ok(name),
        Some(Some(_)) => invalid("The tool specified in `tool_choice` does not match any of the specified `tools`"),
    }
}
