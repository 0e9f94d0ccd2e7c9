//! What of a request's tools was not done as it asks, as answers say it.

use serde::Serialize;
use utoipa::ToSchema;

/// What of a request's tools was not done as it asks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct ToolNotices {
    /// Tools that the model was not shown, because this server cannot run them, by type or name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub ignored_tools: Vec<String>,
    /// Tools that the model was not shown, because they have `defer_loading` and no result of a tool refers to them yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub deferred_tools: Vec<String>,
    /// Items of the conversation that the model was not shown, because it could not read them, by type.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub ignored_items: Vec<String>,
    /// What the input of tools was not held to: the tool, and its grammar or the keyword of its schema.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub unforced_tools: Vec<String>,
}

impl ToolNotices {
    /// Notes a tool that the model is not shown.
    pub fn ignore_tool(&mut self, tool: impl Into<String>) {
        note(&mut self.ignored_tools, tool.into());
    }

    /// Notes a tool that the model is not shown yet.
    pub fn defer_tool(&mut self, tool: impl Into<String>) {
        note(&mut self.deferred_tools, tool.into());
    }

    /// Notes an item that the model is not shown.
    pub fn ignore_item(&mut self, kind: impl Into<String>) {
        note(&mut self.ignored_items, kind.into());
    }

    /// Notes what the input of a tool is not held to.
    pub fn leave_unforced(&mut self, what: impl Into<String>) {
        note(&mut self.unforced_tools, what.into());
    }
}

fn note(noted: &mut Vec<String>, what: String) {
    if !noted.contains(&what) {
        noted.push(what);
    }
}
