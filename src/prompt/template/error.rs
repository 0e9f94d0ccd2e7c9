//! What can go wrong with a chat template.

use std::error::Error as _;

/// A chat template that cannot be read, or that refused or failed to render a conversation.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The template is not valid, or uses what no chat template may.
    #[error("template line {line}: {message}")]
    Syntax {
        /// What is wrong.
        message: String,
        /// The line, from 1.
        line: usize,
    },
    /// The template called `raise_exception`: the conversation is not one it can render.
    #[error("{0}")]
    Raised(String),
    /// The template failed on this conversation.
    #[error("{0}")]
    Render(String),
}

/// Carries the message of `raise_exception` through minijinja.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Raised(pub(super) String);

impl TemplateError {
    pub(super) fn syntax(message: impl Into<String>, source: &str, at: usize) -> Self {
        Self::Syntax { message: message.into(), line: source[..at].matches('\n').count() + 1 }
    }

    pub(super) fn from_compiling(error: &minijinja::Error) -> Self {
        Self::Syntax { message: message(error), line: error.line().unwrap_or(1) }
    }

    /// Keeps the innermost message of an error's chain, which is the one that names the reason.
    pub(super) fn from_rendering(error: &minijinja::Error) -> Self {
        let mut innermost = error;
        let mut source = error.source();
        while let Some(cause) = source {
            if let Some(Raised(message)) = cause.downcast_ref() {
                return Self::Raised(message.clone());
            }
            if let Some(error) = cause.downcast_ref() {
                innermost = error;
            }
            source = cause.source();
        }
        Self::Render(message(innermost))
    }
}

fn message(error: &minijinja::Error) -> String {
    error.detail().map_or_else(|| error.kind().to_string(), ToOwned::to_owned)
}
