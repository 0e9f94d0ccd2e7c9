//! What can go wrong with a chat template.

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
    /// The render would have taken more than a render may.
    #[error("the chat template was stopped: {0}")]
    Exceeded(Limit),
}

/// A bound of renders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Limit {
    /// Steps.
    #[error("it took more steps than one render may, so shorten the conversation or simplify the template")]
    Steps,
    /// Bytes.
    #[error(
        "its text and values took more memory than one render may, so shorten the conversation or simplify the template"
    )]
    Memory,
    /// Nested statements, expressions and macros.
    #[error("its macros, loops or expressions were nested too deeply in each other")]
    Depth,
    /// Nested lists and dicts.
    #[error("lists or dicts were nested too deeply in each other")]
    ValueDepth,
    /// Seconds.
    #[error("it took longer than one render may, so shorten the conversation or simplify the template")]
    Time,
    /// Nobody waits for it.
    #[error("nobody waits for it any more")]
    Wanted,
}

/// Why a render ends early.
#[derive(Debug)]
pub(super) struct Error(Box<Reason>);

#[derive(Debug)]
enum Reason {
    Failed(String),
    Raised(String),
    Exceeded(Limit),
}

impl Error {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self(Box::new(Reason::Failed(message.into())))
    }

    pub(super) fn raised(message: String) -> Self {
        Self(Box::new(Reason::Raised(message)))
    }

    pub(super) fn exceeded(limit: Limit) -> Self {
        Self(Box::new(Reason::Exceeded(limit)))
    }

    #[cfg(test)]
    pub(super) fn limit(&self) -> Option<Limit> {
        match *self.0 {
            Reason::Exceeded(limit) => Some(limit),
            _ => None,
        }
    }
}

// So much of a message, at most, goes to the client and into the log.
const MOST_OF_MESSAGE: usize = 8 << 10;

fn shortened(mut message: String, most: usize) -> String {
    if message.len() > most {
        let end = (0..=most).rev().find(|&end| message.is_char_boundary(end)).unwrap_or_default();
        message.truncate(end);
        message.push_str(" […]");
    }
    message
}

/// A part of the source as it is shown in a message.
pub(super) fn source_excerpt(text: &str) -> String {
    shortened(text.to_owned(), 60)
}

impl From<Error> for TemplateError {
    fn from(error: Error) -> Self {
        match *error.0 {
            Reason::Failed(message) => Self::Render(shortened(message, MOST_OF_MESSAGE)),
            Reason::Raised(message) => Self::Raised(shortened(message, MOST_OF_MESSAGE)),
            Reason::Exceeded(limit) => Self::Exceeded(limit),
        }
    }
}

impl TemplateError {
    /// Whether the template was stopped, so that nothing is known of what it would have written.
    pub fn is_exceeded(&self) -> bool {
        matches!(self, Self::Exceeded(_))
    }

    pub(super) fn syntax(message: impl Into<String>, source: &str, at: usize) -> Self {
        Self::Syntax {
            message: shortened(message.into(), MOST_OF_MESSAGE),
            line: source[..at].matches('\n').count() + 1,
        }
    }
}
