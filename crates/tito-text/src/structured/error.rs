//! Why a structured output cannot be had.

/// A constraint that cannot be compiled; a fault of the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct StructuredError {
    /// A sentence for the client, vLLM's where it has one.
    pub message: String,
}

impl StructuredError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }

    /// What the compiler of grammars says, as vLLM passes it on.
    pub(super) fn grammar(error: impl std::fmt::Display) -> Self {
        // A caught panic comes with its backtrace, which is nobody's business but ours.
        let text = error.to_string();
        let text = text.split("\n<backtrace>").next().unwrap_or_default();
        Self::new(format!("Grammar error: {}", text.trim_end()))
    }
}
