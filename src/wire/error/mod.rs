//! What a client is told if a request cannot be served: a kind of error, a sentence, and the field at fault.
//!
//! `api` decides which status a kind has.

pub(crate) mod sanitize;
pub(crate) mod validation;
pub(crate) mod wording;

use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    json::Path,
    retry::{Cause, Done, Retry},
    sampling::SamplingError,
    structured::StructuredError,
    tokenizer::TokenizerError,
};
use wording::{Sentence, place, spelt};

/// The kinds of errors; `api` has the table of what a client sees of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(test, derive(strum::VariantArray))]
pub enum ErrorKind {
    /// The request asks for something that cannot be done as asked.
    Invalid,
    /// The request does not have the shape of a request.
    Malformed,
    /// The body is no text at all; FastAPI answers this one itself.
    Unreadable,
    /// The prompt does not fit the model.
    Overflow,
    UnknownModel,
    /// A request to `/v1/responses` asks for something that cannot be done.
    InvalidResponse,
    UnknownResponse,
    /// Something else that is asked for is not here.
    NotFound,
    /// It could be done once another request has ended.
    Conflict,
    Unsupported,
    Overloaded,
    /// So many of these can be kept, and no more now.
    TooMany,
    /// It was here, or may have been, and is no more.
    Gone,
    /// Whoever trains the model has paused the server.
    Paused,
    /// The client did not do its part in time.
    TimedOut,
    /// The body is longer than the server reads.
    TooLarge,
    /// What the request names elsewhere cannot be had.
    Unprocessable,
    Internal,
}

/// An error as a client sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    kind: ErrorKind,
    message: Sentence,
    /// The path to the field at fault.
    field: Option<Path>,
    /// Whether the request may be sent again.
    retry: Retry,
}

/// The body of every error.
#[derive(Debug, Serialize, ToSchema)]
pub struct ErrorBody {
    /// What went wrong.
    pub error: ErrorDetail,
}

/// What went wrong.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ErrorDetail {
    /// A sentence for people.
    pub message: String,
    /// The kind of error, in vLLM's words.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The request field at fault.
    pub param: Option<String>,
    /// The HTTP status.
    pub code: u16,
    /// In an event inside a stream, which has no header `X-Retry`: where the same request may be sent, `never`, `here`,
    /// `elsewhere` or `anywhere`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<&'static str>,
    /// Beside `retry`: `nothing`, or `maybe` if something may have been sampled, stored or changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done: Option<&'static str>,
}

impl ErrorKind {
    /// Returns the cause of an error, which decides whether the request may be sent again.
    fn cause(self) -> Cause {
        match self {
            Self::Invalid
            | Self::Malformed
            | Self::Unreadable
            | Self::Overflow
            | Self::InvalidResponse
            | Self::Unsupported
            | Self::TooLarge => Cause::Request,
            // Responses, sessions and adapters are kept by one replica.
            Self::UnknownModel | Self::UnknownResponse | Self::NotFound | Self::Gone => Cause::NotHere,
            Self::Conflict | Self::Overloaded | Self::TooMany => Cause::Busy,
            Self::Paused => Cause::Closed,
            Self::TimedOut | Self::Unprocessable => Cause::Outside,
            Self::Internal => Cause::Fault,
        }
    }
}

impl ApiError {
    /// Makes an error of a kind; `field` is the field at fault.
    pub fn new(kind: ErrorKind, field: Option<Path>, message: impl Into<Sentence>) -> Self {
        Self { kind, message: message.into(), field, retry: kind.cause().retry() }
    }

    /// Makes the error of a request that asks, in one field, for something that cannot be done.
    pub fn invalid(field: impl Into<Path>, message: impl Into<Sentence>) -> Self {
        Self::new(ErrorKind::Invalid, Some(field.into()), message)
    }

    /// Makes the error of a field that tito does not have, and that a request sets.
    pub fn unsupported(field: &'static str) -> Self {
        Self::invalid(field, format!("`{field}` is not supported by this server"))
    }

    /// Makes the error of [`ApiError::invalid`] in the form of vLLM's own validation errors, which end with the field and, if it is shown,
    /// the value.
    pub fn refused(field: impl Into<Path>, message: impl Into<Sentence>, value: Option<String>) -> Self {
        let field = field.into();
        let value = value.map_or_else(|| ")".to_owned(), |value| format!(", value={value})"));
        let message = message.into().words(" (parameter=").field(field.clone()).words(value);
        Self::invalid(field, message)
    }

    /// Makes the error of a request that asks for something that cannot be done, where no single field is at fault.
    pub fn invalid_request(message: impl Into<Sentence>) -> Self {
        Self::new(ErrorKind::Invalid, None, message)
    }

    /// Makes the error of a body that is not a request; `place` is the path to what is wrong with it, starting with
    /// `body`.
    pub fn malformed(place: Option<Path>, message: impl Into<Sentence>) -> Self {
        Self::new(ErrorKind::Malformed, place, message)
    }

    /// Makes the error of a body that is not UTF-8.
    pub fn unreadable() -> Self {
        Self::new(ErrorKind::Unreadable, None, "There was an error parsing the body")
    }

    /// Makes the error of a body that is not UTF-8 because it is compressed.
    pub fn encoded(encoding: &str) -> Self {
        let message = format!(
            "There was an error parsing the body: its Content-Encoding is {encoding}, and bodies are not decoded; send \
             it without one"
        );
        Self::new(ErrorKind::Unreadable, None, message)
    }

    /// Makes the error of a response that is not stored here.
    pub fn response_not_found(id: &str) -> Self {
        let message = format!("Response with id '{id}' not found.");
        Self::new(ErrorKind::UnknownResponse, Some("response_id".into()), message)
    }

    /// Makes the error of a request to `/v1/responses` that asks, in one field, for something that cannot be done.
    pub fn invalid_response(field: &'static str, message: impl Into<Sentence>) -> Self {
        Self::new(ErrorKind::InvalidResponse, Some(field.into()), message)
    }

    /// Makes the error of a text that is too long for its tokens to be few enough, in vLLM's words. vLLM counts
    /// characters; a count of bytes finds it out earlier.
    fn text_too_long(length: usize, unit: &str, most: usize, max_model_len: usize) -> Self {
        let message = format!(
            "This model's maximum context length is {max_model_len} tokens. However, your prompt contains {length} \
             {unit} (more than {most} {unit}, which is the upper bound for {max_model_len} input tokens). Please reduce \
             the length of the input prompt. (parameter="
        );
        let message = Sentence::from(message).field("input_text").words(format!(", value={length})"));
        Self::new(ErrorKind::Overflow, Some("input_text".into()), message)
    }

    /// Makes the error of a fault of the server; `cause` is logged and not shown.
    pub fn internal(cause: impl std::fmt::Display) -> Self {
        tracing::error!(%cause, "request failed");
        Self::new(ErrorKind::Internal, None, "Internal server error")
    }

    /// Makes the same error about fields that stand elsewhere in the client's request.
    #[must_use]
    pub fn elsewhere(self, elsewhere: impl Fn(Path) -> Path) -> Self {
        let Self { kind, message, field, retry } = self;
        Self { kind, message: message.elsewhere(&elsewhere), field: field.map(elsewhere), retry }
    }

    /// Names the field of an error that names none, if its first word is one of `fields`: vLLM's sentences about numbers begin so.
    #[must_use]
    pub(crate) fn named_by_its_words(mut self, fields: &[&'static str]) -> Self {
        let message = self.message();
        let named = fields.iter().find(|field| message.split(' ').next() == Some(**field));
        self.field = self.field.take().or_else(|| named.map(|field| Path::from(*field)));
        self
    }

    /// Makes the same error with another cause than its kind has.
    #[must_use]
    pub(crate) fn caused_by(self, cause: Cause) -> Self {
        Self { retry: cause.retry(), ..self }
    }

    /// Makes the same error of a request for which something may have been sampled.
    #[must_use]
    pub(crate) fn once_begun(mut self) -> Self {
        self.retry.done = Done::Maybe;
        self
    }

    /// Returns whether the request may be sent again, and where.
    pub(crate) fn retry(&self) -> Retry {
        self.retry
    }

    /// Whether the body does not have the shape of a request; it may then have the shape of another one.
    pub fn is_about_shape(&self) -> bool {
        self.kind == ErrorKind::Malformed
    }

    /// Returns the field at fault, as the kind of error spells it.
    pub fn param(&self) -> Option<String> {
        let field = self.field.as_ref()?;
        Some(match self.kind {
            ErrorKind::Malformed => place(field),
            ErrorKind::Overflow => field.to_string(),
            _ => spelt(field),
        })
    }

    /// Returns the kind of error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the sentence for people.
    pub fn message(&self) -> String {
        self.message.text()
    }
}

impl From<SamplingError> for ApiError {
    fn from(error: SamplingError) -> Self {
        match error {
            SamplingError::Refused { param, message } => Self::new(ErrorKind::Invalid, param.map(Path::from), message),
            SamplingError::NoTokens { asked } => {
                let message =
                    Sentence::default().field("max_tokens").words(format!(" must be at least 1, got {asked}."));
                Self::refused("max_tokens", message, Some(asked.to_string()))
            }
            SamplingError::FewerThanMinTokens { min_tokens, max_tokens } => Self::invalid_request(
                Sentence::default()
                    .field("min_tokens")
                    .words(" must be less than or equal to ")
                    .field("max_tokens")
                    .words(format!("={max_tokens}, got {min_tokens}.")),
            ),
        }
    }
}

impl From<TokenizerError> for ApiError {
    fn from(error: TokenizerError) -> Self {
        match error {
            TokenizerError::OutOfVocabulary(_) | TokenizerError::Uncuttable { .. } => {
                Self::invalid_request(error.to_string())
            }
            TokenizerError::TooLong { characters, most_bytes, most_tokens, .. } if characters > most_bytes => {
                Self::text_too_long(characters, "characters", most_bytes, most_tokens)
            }
            TokenizerError::TooLong { bytes, most_bytes, most_tokens, .. } => {
                Self::text_too_long(bytes, "bytes", most_bytes, most_tokens)
            }
            _ => Self::internal(error),
        }
    }
}

impl From<StructuredError> for ApiError {
    /// As in vLLM, the message says which constraint is wrong, and no field is named.
    fn from(error: StructuredError) -> Self {
        Self::invalid_request(error.message)
    }
}
