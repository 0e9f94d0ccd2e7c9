//! The tools of a request: which of them the model is shown, and where.
//!
//! As Anthropic documents it, a tool with `defer_loading` is not in the head of the prompt: a `tool_reference` in the
//! result of a search shows it, at that place, so that all ids before it stay. It deviates deliberately from vLLM, which
//! shows all tools in the head. Clients such as Claude Code add a tool to `tools` only once a search has found it, and
//! there it would change the ids of the whole conversation. If the request names a search that a server would run, which
//! is not run here, nothing could refer to a tool: then all are in the head.

use std::collections::HashSet;

use super::references::referred;
use crate::{
    chat::FunctionTool,
    json::Value,
    request_fields::tools::{ToolFields, ToolUse},
    state::Api,
    wire::{
        answer::tool_notices::ToolNotices,
        error::ApiError,
        messages::types::{InputTool, InputToolChoice, MessagesRequest},
    },
};

/// The tools of a request in the form of a chat.
#[derive(Debug)]
pub(super) struct MessageTools {
    /// All but those that a server would run, in the order of the request.
    declared: Vec<FunctionTool>,
    /// The names that results refer to.
    referred: HashSet<String>,
    /// What of the tools is not done as the request asks.
    pub(super) notices: ToolNotices,
}

impl MessageTools {
    /// Takes the tools of a request.
    pub(super) fn take(request: &mut MessagesRequest) -> Result<Self, ApiError> {
        let (mut declared, mut notices) = (Vec::new(), ToolNotices::default());
        let mut is_searched_elsewhere = false;
        for tool in request.tools.take().into_iter().flatten() {
            match tool.served_elsewhere() {
                Some(name) => {
                    is_searched_elsewhere |= tool.is_search();
                    notices.ignore_tool(name);
                }
                None => declared.push(chat_tool(tool)),
            }
        }
        if is_searched_elsewhere {
            declared.iter_mut().filter(|tool| is_deferred(tool)).for_each(|tool| tool.defer_loading = None);
        }
        if !declared.is_empty() && declared.iter().all(is_deferred) {
            let message = "`tools` all have `defer_loading`: the model needs at least one without it, to find others";
            return Err(ApiError::invalid("tools", message));
        }
        let referred = referred(&request.messages);
        for tool in declared.iter().filter(|tool| is_deferred(tool) && !referred.contains(&tool.name)) {
            notices.defer_tool(&*tool.name);
        }
        Ok(Self { declared, referred, notices })
    }

    /// All tools that the model is or can be shown.
    pub(super) fn declared(&self) -> &[FunctionTool] {
        &self.declared
    }

    /// Returns the tools in the head of the prompt; `None` if there are none.
    pub(super) fn shown(&self) -> Option<Vec<FunctionTool>> {
        some(self.declared.iter().filter(|tool| !is_deferred(tool)))
    }

    /// Returns the tools that the model is shown anywhere in the prompt; `None` if there are none.
    pub(super) fn callable(&self) -> Option<Vec<FunctionTool>> {
        some(self.declared.iter().filter(|tool| self.is_callable(tool)))
    }

    fn is_callable(&self, tool: &FunctionTool) -> bool {
        !is_deferred(tool) || self.referred.contains(&tool.name)
    }

    /// Refuses a choice of what the model is not shown.
    pub(super) fn refuse_unshown_choice(&self, request: &MessagesRequest) -> Result<(), ApiError> {
        let Some(name) = request.tool_choice.as_ref().and_then(|choice| choice.name.as_ref()) else { return Ok(()) };
        let reason = if self.notices.ignored_tools.contains(name) {
            "a tool that this server cannot run: the model is not shown it"
        } else if self.notices.deferred_tools.contains(name) {
            "a tool with `defer_loading`: the model is not shown it before a `tool_reference` in a result names it"
        } else {
            return Ok(());
        };
        Err(ApiError::invalid("tool_choice.name", format!("`tool_choice.name` is {name:?}, {reason}")))
    }
}

fn is_deferred(tool: &FunctionTool) -> bool {
    tool.defer_loading == Some(true)
}

/// Copies tools; an empty list counts as no tools.
fn some<'a>(tools: impl Iterator<Item = &'a FunctionTool>) -> Option<Vec<FunctionTool>> {
    let tools: Vec<FunctionTool> = tools.cloned().collect();
    (!tools.is_empty()).then_some(tools)
}

fn chat_tool(tool: InputTool) -> FunctionTool {
    let mut schema = tool.input_schema.unwrap_or_default();
    if let Some(fields) = schema.as_object_mut() {
        fields.entry("type".to_owned()).or_insert_with(|| Value::from("object"));
    }
    FunctionTool {
        name: tool.name,
        description: tool.description,
        parameters: Some(schema),
        strict: tool.strict,
        defer_loading: tool.defer_loading,
        outer_defer_loading: None,
    }
}

/// Reads the choice that the model has about calling `tools`.
pub(super) fn tool_use(
    request: &MessagesRequest,
    tools: Option<&[FunctionTool]>,
    api: &Api,
) -> Result<ToolUse, ApiError> {
    let choice = request.tool_choice.as_ref();
    let wish = choice.map(chat_choice).transpose()?;
    // Clients send `auto` whether or not they have tools.
    let wish = wish.filter(|wish| tools.is_some() || !matches!(wish.as_str(), Some("auto" | "none")));
    let parallel = choice.and_then(|choice| choice.disable_parallel_tool_use).map(|disabled| !disabled);
    ToolFields { tools, tool_choice: wish.as_ref(), parallel_tool_calls: parallel }.resolve(api.turns.policies.tools)
}

/// Returns the choice of a tool in the form of a chat.
fn chat_choice(choice: &InputToolChoice) -> Result<Value, ApiError> {
    match (choice.kind.as_str(), choice.name.as_deref()) {
        (kind @ ("auto" | "any" | "none"), Some(name)) if !name.is_empty() => {
            let message = format!("`tool_choice.name` belongs to the type \"tool\", not to {kind:?}");
            Err(ApiError::invalid("tool_choice.name", message))
        }
        ("any", _) => Ok(Value::from("required")),
        ("tool", name) => {
            let function: Value = [("name", name.unwrap_or_default())].into_iter().collect();
            Ok([("type", Value::from("function")), ("function", function)].into_iter().collect())
        }
        (kind, _) => Ok(Value::from(kind)),
    }
}
