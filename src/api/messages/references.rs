//! References to tools (`tool_reference`) in the results of a client's search for tools, and the definitions that the
//! model is shown in their place.

use std::collections::HashSet;

use crate::{
    chat::FunctionTool,
    json::{Object, Value},
    wire::messages::types::InputMessage,
};

/// Stands around tools that are defined one a line.
pub(super) const LIST: [&str; 2] = ["<functions>", "</functions>"];

/// Whether a block refers to a tool.
pub(super) fn is_reference(block: &Value) -> bool {
    block.get("type").and_then(Value::as_str) == Some("tool_reference")
}

/// Returns the name of the tool that a block refers to, in the field that Anthropic has for it, or the one that vLLM
/// takes for it too.
pub(super) fn tool_name(reference: &Value) -> Option<&str> {
    let names = ["tool_name", "name"].map(|key| reference.get(key).and_then(Value::as_str));
    names.into_iter().flatten().find(|name| !name.is_empty())
}

/// Returns the names of all tools that results refer to.
pub(super) fn referred(messages: &[InputMessage]) -> HashSet<String> {
    let blocks = messages.iter().filter_map(|message| message.content.as_array()).flatten();
    let items = blocks.filter_map(|block| block.get("content")?.as_array()).flatten();
    items.filter(|item| is_reference(item)).filter_map(tool_name).map(str::to_owned).collect()
}

/// Writes the definition of a tool as Claude Code tells the model that its search answers.
pub(super) fn definition(tool: &FunctionTool) -> String {
    let fields = [
        ("description", tool.description.as_deref().map(Value::from)),
        ("name", Some(Value::from(tool.name.as_str()))),
        ("parameters", tool.parameters.clone()),
    ];
    let fields = fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    format!("<function>{}</function>", Value::Object(fields.collect::<Object>()).to_json_string())
}
