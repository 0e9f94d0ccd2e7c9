//! What goes over the wire: the public shapes of requests and answers, and the rules that bodies must keep.
//!
//! Each endpoint has a folder of the same name as in `api`, which serves it. `types` are its shapes, and `rules` are what
//! vLLM declares of its fields. This module knows no HTTP: it has no status, no handler and no route, and nothing here
//! says what becomes of a request.

pub(crate) mod answer;
pub(crate) mod body;
pub(crate) mod chat_completions;
pub(crate) mod completions;
#[cfg(test)]
mod declared_fields;
pub(crate) mod error;
pub(crate) mod fields;
pub(crate) mod messages;
pub(crate) mod responses;
pub(crate) mod routed_experts;
pub(crate) mod said;
pub(crate) mod sglang;
pub(crate) mod tinker;
pub(crate) mod token_io;
pub(crate) mod tokenize;
pub(crate) mod trajectories;

#[cfg(any(test, feature = "internals"))]
use crate::chat::{FunctionTool, Message};
pub(crate) use crate::pydantic::truth;

/// Reads the body of a chat as its endpoint does, for its messages and tools; `None` if it does not keep the rules.
#[cfg(any(test, feature = "internals"))]
pub fn read_chat(body: &[u8]) -> Option<(Vec<Message>, Option<Vec<FunctionTool>>)> {
    let request: chat_completions::types::ChatCompletionRequest = body::parse(body).ok()?;
    Some((request.messages, request.tools))
}
