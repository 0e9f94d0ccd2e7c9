//! The rules by which vLLM 0.32 declares tools and the choice of one, and its checks of them before those of types.

use serde::Serialize;
use utoipa::ToSchema;

use super::untyped::{Checked, iterable, non_null};
use crate::{
    json::{self, Items, Node, NodeKind, Path},
    pydantic::{
        Schema::{self, List, Literal, Nullable, Object, Str, Union},
        Shape::Model,
        branch, optional, required,
        scalars::{NULLABLE_BOOL, NULLABLE_DICT, NULLABLE_STR},
    },
    wire::error::ApiError,
};

/// The schema of a chat's tools.
pub(crate) const TOOLS: Schema = Nullable(&List(&Object(
    Model,
    &[
        optional("type", Literal(&["function"])),
        required(
            "function",
            Object(
                Model,
                &[
                    required("name", Str),
                    optional("description", NULLABLE_STR),
                    optional("parameters", NULLABLE_DICT),
                    optional("strict", NULLABLE_BOOL),
                    optional("defer_loading", NULLABLE_BOOL),
                ],
            ),
        ),
        optional("defer_loading", NULLABLE_BOOL),
    ],
)));

/// The schema of the choice of a tool.
pub(crate) const TOOL_CHOICE: Schema = Nullable(&Union(&[
    branch(Literal(&["none"])),
    branch(Literal(&["auto"])),
    branch(Literal(&["required"])),
    branch(Object(
        Model,
        &[required("function", Object(Model, &[required("name", Str)])), optional("type", Literal(&["function"]))],
    )),
]));

/// A word or an object: what the OpenAPI document says of the choice of a tool.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "the rules above read it")]
pub(crate) enum WordOrObject {
    /// A word.
    Word(String),
    /// An object that names a tool.
    #[schema(value_type = Object)]
    Object(json::Object),
}

/// A hint at how a tool is chosen.
pub(crate) const USAGE: &str = "Correct usage: `{\"type\": \"function\", \"function\": {\"name\": \"my_function\"}}`";

fn refuse<T>(field: impl Into<Path>, message: impl Into<String>) -> Result<T, ApiError> {
    Err(ApiError::refused(field, message.into(), None))
}

/// Refuses an empty list of tools.
pub(crate) fn no_tool<T>() -> Result<T, ApiError> {
    refuse("tools", "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely.")
}

/// Refuses a choice of a tool where there are no tools.
pub(crate) fn no_tools<T>() -> Result<T, ApiError> {
    refuse("tool_choice", "When using `tool_choice`, `tools` must be set.")
}

/// Refuses a choice of an unknown kind.
pub(crate) fn unknown_choice<T>(shown: &str) -> Result<T, ApiError> {
    refuse(
        "tool_choice",
        format!(
            "Invalid value for `tool_choice`: {shown}! Only named tools, \"none\", \"auto\" or \"required\" are \
             supported."
        ),
    )
}

/// Refuses a choice of a tool that is not among the tools.
pub(crate) fn no_such_tool<T>() -> Result<T, ApiError> {
    refuse("tool_choice", "The tool specified in `tool_choice` does not match any of the specified `tools`")
}

/// Checks the choice of a tool against the tools.
pub(crate) fn tool_usage(body: &Node<'_>) -> Checked {
    let tools = non_null(body, "tools");
    if tools.is_some_and(|tools| matches!(&tools.kind, NodeKind::List(items) if items.is_empty())) {
        return no_tool();
    }
    let Some(choice) = non_null(body, "tool_choice") else { return Ok(()) };
    if choice.as_str() == Some("none") {
        return Ok(());
    }
    let Some(tools) = tools else {
        return no_tools();
    };
    match &choice.kind {
        NodeKind::String(text) if matches!(text.as_ref(), "auto" | "required") => Ok(()),
        NodeKind::Object(_) => named_tool(choice, tools),
        _ => unknown_choice(&choice.python_str()),
    }
}

fn named_tool(choice: &Node<'_>, tools: &Node<'_>) -> Checked {
    let function = choice.get("function");
    let Some(function) = function.filter(|function| matches!(function.kind, NodeKind::Object(_))) else {
        let shown = function.map_or_else(|| "None".to_owned(), Node::python_str);
        let message = format!("Invalid value for `function`: `{shown}` in `tool_choice`! {USAGE}");
        return refuse("tool_choice.function", message);
    };
    let Some(name) = function.get("name") else {
        let message = format!("Expected field `name` in `function` in `tool_choice`! {USAGE}");
        return refuse("tool_choice.function.name", message);
    };
    let Some(wanted) = name.as_str().filter(|name| !name.is_empty()) else {
        let shown = name.python_str();
        let message = format!("Invalid `name` in `function`: `{shown}` in `tool_choice`! {USAGE}");
        return refuse("tool_choice.function.name", message);
    };
    iterable(tools)?;
    let tools = match &tools.kind {
        NodeKind::List(Items::Nodes(tools)) => tools.as_slice(),
        NodeKind::List(Items::Ids(..)) => return Err(not_subscriptable("'int' object is not subscriptable")),
        _ if tools.is_truthy() => return Err(not_subscriptable("string indices must be integers, not 'str'")),
        _ => &[],
    };
    for tool in tools {
        // vLLM itself fails at a tool without a function or a name; here the schema words the error.
        let Some(function) = subscript(tool, "function")? else { return Ok(()) };
        let Some(name) = subscript(function, "name")? else { return Ok(()) };
        if name.as_str() == Some(wanted) {
            return Ok(());
        }
    }
    no_such_tool()
}

fn not_subscriptable(message: &str) -> ApiError {
    ApiError::invalid_request(message)
}

/// Returns Python's `value[key]`; `None` if an object lacks the key.
fn subscript<'n, 'a>(value: &'n Node<'a>, key: &str) -> Result<Option<&'n Node<'a>>, ApiError> {
    match &value.kind {
        NodeKind::Object(entries) => Ok(entries.get(key)),
        NodeKind::List(_) => Err(not_subscriptable("list indices must be integers or slices, not str")),
        NodeKind::String(_) => Err(not_subscriptable("string indices must be integers, not 'str'")),
        _ => Err(not_subscriptable(&format!("'{}' object is not subscriptable", value.type_name()))),
    }
}
