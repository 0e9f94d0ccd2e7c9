//! The events of a response's stream, in the order of their sequence numbers. There is no `[DONE]`.

use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use serde::Serialize;
use std::convert::Infallible;
use utoipa::ToSchema;

use super::types::{ContentPart, Logprob, OutputItem, ResponseObject};
use crate::api::http::{
    error::{ApiError, ErrorDetail},
    sse,
};

/// One event.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(tag = "type")]
pub(super) enum StreamEvent {
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
    /// Something went wrong; `OpenAI`'s fields, and beside them the body that a JSON answer would be, which their client
    /// library looks for.
    #[serde(rename = "error")]
    Error { code: String, message: String, param: Option<String>, error: ErrorDetail },
}

impl StreamEvent {
    /// Makes the event of an error, which is the same as in a JSON answer, except that the status line has been sent
    /// already.
    fn error(error: &ApiError) -> Self {
        let error = error.body().error;
        Self::Error { code: error.kind.to_owned(), message: error.message.clone(), param: error.param.clone(), error }
    }

    fn name(&self) -> &'static str {
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
            Self::Error { .. } => "error",
        }
    }
}

/// An event in its place.
#[derive(Serialize, ToSchema)]
pub(super) struct Numbered {
    #[serde(flatten)]
    event: StreamEvent,
    sequence_number: usize,
}

/// Writes the frames of a stream.
#[derive(Default)]
pub(super) struct Frames {
    next: usize,
}

impl Frames {
    /// Writes the frame of the next step.
    pub(super) fn frame(&mut self, step: Result<StreamEvent, ApiError>) -> Bytes {
        let event = step.unwrap_or_else(|error| StreamEvent::error(&error));
        let name = event.name();
        let numbered = Numbered { event, sequence_number: self.next };
        self.next += 1;
        let data = serde_json::to_string(&numbered).unwrap_or_default();
        Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
    }
}

/// Answers with the events; the first error is the last of them.
pub(super) fn respond(steps: impl Stream<Item = Result<StreamEvent, ApiError>> + Send + 'static) -> Response {
    let mut frames = Frames::default();
    let frames = steps.map(move |step| Ok::<_, Infallible>(frames.frame(step)));
    sse::response(Body::from_stream(frames))
}
