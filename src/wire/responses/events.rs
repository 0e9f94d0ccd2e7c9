//! The events of a response's stream, in the order of their sequence numbers.

use serde::Serialize;
use utoipa::ToSchema;

use super::types::{ContentPart, Logprob, OutputItem, ResponseObject};
use crate::wire::error::ErrorDetail;

/// One event.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(tag = "type")]
pub(crate) enum StreamEvent {
    #[serde(rename = "response.created")]
    Created { response: Box<ResponseObject> },
    #[serde(rename = "response.in_progress")]
    InProgress { response: Box<ResponseObject> },
    #[serde(rename = "response.output_item.added")]
    ItemAdded { item: Box<OutputItem>, output_index: usize },
    #[serde(rename = "response.content_part.added")]
    PartAdded { item_id: String, output_index: usize, content_index: usize, part: ContentPart },
    #[serde(rename = "response.reasoning_text.delta")]
    ReasoningDelta { item_id: String, output_index: usize, content_index: usize, delta: String },
    #[serde(rename = "response.reasoning_text.done")]
    ReasoningDone { item_id: String, output_index: usize, content_index: usize, text: String },
    #[serde(rename = "response.output_text.delta")]
    TextDelta { item_id: String, output_index: usize, content_index: usize, delta: String, logprobs: Vec<Logprob> },
    #[serde(rename = "response.output_text.done")]
    TextDone { item_id: String, output_index: usize, content_index: usize, text: String, logprobs: Vec<Logprob> },
    #[serde(rename = "response.content_part.done")]
    PartDone { item_id: String, output_index: usize, content_index: usize, part: ContentPart },
    #[serde(rename = "response.function_call_arguments.delta")]
    ArgumentsDelta { item_id: String, output_index: usize, delta: String },
    #[serde(rename = "response.function_call_arguments.done")]
    ArgumentsDone { item_id: String, output_index: usize, name: String, arguments: String },
    #[serde(rename = "response.custom_tool_call_input.delta")]
    CustomInputDelta { item_id: String, output_index: usize, delta: String },
    #[serde(rename = "response.custom_tool_call_input.done")]
    CustomInputDone { item_id: String, output_index: usize, input: String },
    #[serde(rename = "response.output_item.done")]
    ItemDone { item: Box<OutputItem>, output_index: usize },
    #[serde(rename = "response.completed")]
    Completed { response: Box<ResponseObject> },
    /// The end of a response whose tokens ran out.
    #[serde(rename = "response.incomplete")]
    Incomplete { response: Box<ResponseObject> },
    /// Something went wrong; `OpenAI`'s fields, and beside them the body that a JSON answer would be, which their client
    /// library looks for.
    #[serde(rename = "error")]
    Error { code: String, message: String, param: Option<String>, error: ErrorDetail },
}

impl StreamEvent {
    /// Returns the name of the event, which the stream sends before its data.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Created { .. } => "response.created",
            Self::InProgress { .. } => "response.in_progress",
            Self::ItemAdded { .. } => "response.output_item.added",
            Self::PartAdded { .. } => "response.content_part.added",
            Self::ReasoningDelta { .. } => "response.reasoning_text.delta",
            Self::ReasoningDone { .. } => "response.reasoning_text.done",
            Self::TextDelta { .. } => "response.output_text.delta",
            Self::TextDone { .. } => "response.output_text.done",
            Self::PartDone { .. } => "response.content_part.done",
            Self::ArgumentsDelta { .. } => "response.function_call_arguments.delta",
            Self::ArgumentsDone { .. } => "response.function_call_arguments.done",
            Self::CustomInputDelta { .. } => "response.custom_tool_call_input.delta",
            Self::CustomInputDone { .. } => "response.custom_tool_call_input.done",
            Self::ItemDone { .. } => "response.output_item.done",
            Self::Completed { .. } => "response.completed",
            Self::Incomplete { .. } => "response.incomplete",
            Self::Error { .. } => "error",
        }
    }
}

/// An event in its place.
#[derive(Serialize, ToSchema)]
pub(crate) struct Numbered {
    #[serde(flatten)]
    pub event: StreamEvent,
    pub sequence_number: usize,
}
