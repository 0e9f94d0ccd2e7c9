//! The wire shape of `POST /v1/chat/completions/render` and its like: what they take besides the body that they render.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::json;

/// Fields that only a render reads, or that it reads in another form.
#[derive(Debug, Deserialize)]
pub(crate) struct RenderFields {
    pub return_token_offsets: Option<bool>,
    pub priority: Option<i64>,
    pub use_beam_search: Option<Value>,
    pub tool_choice: Option<Value>,
    /// For whoever reads the answer.
    pub tools: Option<Vec<json::Value>>,
    pub include_reasoning: Option<bool>,
    pub response_format: Option<Value>,
    pub structured_outputs: Option<Map<String, Value>>,
    pub parallel_tool_calls: Option<bool>,
    pub mm_payload: Option<MmPayload>,
    /// The experts of the prompt's first tokens, for whoever generates.
    pub routed_experts: Option<Value>,
    /// An older name: `false` is `mm_payload` "none", where that is not set.
    pub return_mm_kwargs: Option<bool>,
}

/// What a render says of images besides where they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MmPayload {
    /// Their tensors.
    Tensors,
    /// Nothing.
    None,
}

impl RenderFields {
    /// What is said of images, as vLLM 0.33 decides it.
    pub(crate) fn mm_payload(&self) -> MmPayload {
        match (self.mm_payload, self.return_mm_kwargs) {
            (Some(payload), _) => payload,
            (None, Some(false)) => MmPayload::None,
            (None, _) => MmPayload::Tensors,
        }
    }
}
