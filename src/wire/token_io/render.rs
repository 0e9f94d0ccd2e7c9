//! The wire shape of `POST /v1/chat/completions/render` and its like: what they take besides the body that they render.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    json,
    wire::body::{self, Body, Rules},
};

/// Fields that only a render reads, or that it reads as they were sent.
#[derive(Debug, Deserialize)]
pub(crate) struct RenderFields {
    pub return_token_offsets: Option<bool>,
    pub priority: Option<i64>,
    pub use_beam_search: Option<Value>,
    pub tool_choice: Option<Value>,
    /// As it was sent, for whoever reads the answer.
    pub tools: Option<Vec<json::Value>>,
    pub include_reasoning: Option<bool>,
    pub response_format: Option<Value>,
    pub structured_outputs: Option<Map<String, Value>>,
    pub parallel_tool_calls: Option<bool>,
}

impl Body for RenderFields {
    const RULES: &'static Rules = &body::ANY;
}
