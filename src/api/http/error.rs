//! The error table: what clients see. It is the only place that knows status codes.
//!
//! The body is vLLM's: `{"error": {"message", "type", "param", "code"}}`, the code being the status.

use axum::{
    Json,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    sanitize::sanitized,
    wording::{Sentence, place, spelt},
};
use crate::{
    continuity::{ContinuityError, Reason},
    engine::EngineError,
    json::Path,
    parser::ForcingError,
    prompt::PromptError,
    sampling::SamplingError,
    store::StoreError,
    tokenizer::TokenizerError,
    turn::TurnError,
};

/// The kinds of errors, in terms of the table below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
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
    Unsupported,
    Overloaded,
    /// The client did not do its part in time.
    TimedOut,
    /// The body is longer than the server reads.
    TooLarge,
    Internal,
}

impl Kind {
    fn status(self) -> StatusCode {
        match self {
            Self::Invalid | Self::Malformed | Self::Unreadable | Self::Overflow | Self::InvalidResponse => {
                StatusCode::BAD_REQUEST
            }
            Self::UnknownModel | Self::UnknownResponse => StatusCode::NOT_FOUND,
            Self::Unsupported => StatusCode::NOT_IMPLEMENTED,
            Self::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            Self::TimedOut => StatusCode::REQUEST_TIMEOUT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Invalid | Self::Overflow => "BadRequestError",
            Self::Malformed | Self::Unreadable => "Bad Request",
            Self::UnknownModel => "NotFoundError",
            Self::InvalidResponse | Self::UnknownResponse => "invalid_request_error",
            Self::Unsupported => "NotImplementedError",
            Self::Overloaded => "Service Unavailable",
            Self::TimedOut => "Request Timeout",
            Self::TooLarge => "Request Entity Too Large",
            Self::Internal => "InternalServerError",
        }
    }
}

/// An error as a client sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    kind: Kind,
    message: Sentence,
    /// The path to the field at fault.
    field: Option<Path>,
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
}

impl ApiError {
    fn new(kind: Kind, field: Option<Path>, message: impl Into<Sentence>) -> Self {
        Self { kind, message: message.into(), field }
    }

    /// Makes the error of a request that asks, in one field, for something that cannot be done.
    pub fn invalid(field: impl Into<Path>, message: impl Into<Sentence>) -> Self {
        Self::new(Kind::Invalid, Some(field.into()), message)
    }

    /// Makes the same error in the form of vLLM's own validation errors, which end with the field and, if it is shown,
    /// the value.
    pub fn refused(field: impl Into<Path>, message: impl Into<Sentence>, value: Option<String>) -> Self {
        let field = field.into();
        let value = value.map_or_else(|| ")".to_owned(), |value| format!(", value={value})"));
        let message = message.into().words(" (parameter=").field(field.clone()).words(value);
        Self::invalid(field, message)
    }

    /// Makes the error of a request that asks for something that cannot be done, where no single field is at fault.
    pub fn invalid_request(message: impl Into<Sentence>) -> Self {
        Self::new(Kind::Invalid, None, message)
    }

    /// Makes the error of a body that is not a request; `place` is the path to what is wrong with it, starting with
    /// `body`.
    pub fn malformed(place: Option<Path>, message: impl Into<Sentence>) -> Self {
        Self::new(Kind::Malformed, place, message)
    }

    /// Makes the error of a body that is not UTF-8.
    pub fn unreadable() -> Self {
        Self::new(Kind::Unreadable, None, "There was an error parsing the body")
    }

    /// Makes the error of a prompt of `tokens` that leaves no room in a context of `max_model_len`. vLLM stops encoding
    /// a text that is too long, and says so; for a prompt that came as ids, it tells their number.
    pub fn prompt_too_long(tokens: usize, max_model_len: usize, encoded_here: bool) -> Self {
        if tokens == max_model_len {
            let message = "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)";
            return Self::new(Kind::Overflow, Some("max_tokens".into()), message);
        }
        let tokens = if encoded_here { max_model_len + 1 } else { tokens };
        let at_least = if tokens == max_model_len + 1 { "at least " } else { "" };
        let message = format!(
            "This model's maximum context length is {max_model_len} tokens. However, your prompt contains \
             {at_least}{tokens} input tokens, which exceeds this limit even without any output tokens. Please reduce \
             the length of the input prompt. (parameter=input_tokens, value={tokens})"
        );
        Self::new(Kind::Overflow, Some("input_tokens".into()), message)
    }

    /// Makes the error of a request with too many prompts.
    fn too_many_prompts(prompts: usize, most: usize) -> Self {
        let message = format!(
            "prompt list length {prompts} exceeds the maximum allowed count of {most}. To increase this limit, start the \
             server with a larger --max-request-prompts. (parameter=prompt)"
        );
        Self::invalid("prompt", message)
    }

    /// Makes the error of an answer in one piece with more log-probs than memory should hold.
    fn answer_too_large(log_probs: usize, most: usize, few: usize, of_output: bool) -> Self {
        let message = Sentence::from(format!(
            "the answer could have {log_probs} log-probs, more than the {most} that fit into one in JSON with over {few} \
             for a token; ask for less ("
        ));
        let (field, message) = if of_output {
            ("logprobs", message.words("n, ").field("max_tokens").words(", or logprobs"))
        } else {
            ("prompt_logprobs", message.words("prompt_logprobs"))
        };
        Self::invalid(field, message.words("), or for a stream"))
    }

    /// Makes the error of a prompt that cannot be cut as asked; the words stand before and after the field that asks
    /// for it.
    fn uncuttable(before: impl Into<Sentence>, after: &str) -> Self {
        const FIELD: &str = "truncate_prompt_tokens";
        Self::invalid(FIELD, before.into().field(FIELD).words(after))
    }

    /// Makes the error of a request for more tokens than the context has; `field` asks for them.
    pub fn too_many_tokens(field: &'static str, asked: i64, max_model_len: usize) -> Self {
        let message = Sentence::default().field(field).words(format!(
            "={asked} cannot be greater than max_model_len={max_model_len}. Please request fewer output tokens."
        ));
        Self::refused(field, message, Some(asked.to_string()))
    }

    /// Makes the error of a model that is not served here.
    pub fn model_not_found(model: &str, served: &[String]) -> Self {
        let message = format!("The model `{model}` does not exist. Valid aliases: {}.", served.join(", "));
        Self::new(Kind::UnknownModel, Some("model".into()), message)
    }

    /// Makes the error of a response that is not stored here.
    pub fn response_not_found(id: &str) -> Self {
        let message = format!("Response with id '{id}' not found.");
        Self::new(Kind::UnknownResponse, Some("response_id".into()), message)
    }

    /// Makes the error of a request to `/v1/responses` that asks, in one field, for something that cannot be done.
    pub fn invalid_response(field: &'static str, message: impl Into<Sentence>) -> Self {
        Self::new(Kind::InvalidResponse, Some(field.into()), message)
    }

    /// Makes the error of a text that is too long for its tokens to be few enough, in vLLM's words. vLLM counts
    /// characters; a count of bytes finds it out earlier.
    fn text_too_long(length: usize, unit: &str, most: usize, max_model_len: usize) -> Self {
        let message = format!(
            "This model's maximum context length is {max_model_len} tokens. However, your prompt contains {length} \
             {unit} (more than {most} {unit}, which is the upper bound for {max_model_len} input tokens). Please reduce \
             the length of the input prompt. (parameter=input_text, value={length})"
        );
        Self::new(Kind::Overflow, Some("input_text".into()), message)
    }

    /// Makes the error of a body that is longer than the `most` bytes of a flag.
    pub fn body_too_large(most: usize, flag: &str) -> Self {
        Self::new(Kind::TooLarge, None, format!("the body of the request is longer than the {most} bytes of {flag}"))
    }

    /// Makes the error of a body of which nothing came for `seconds`.
    pub fn body_too_slow(seconds: u64) -> Self {
        let message = format!("nothing came of the body of the request for {seconds} seconds; send it again");
        Self::new(Kind::TimedOut, None, message)
    }

    /// Makes the error of a fault of the server; `cause` is logged and not shown.
    pub fn internal(cause: impl std::fmt::Display) -> Self {
        tracing::error!(%cause, "request failed");
        Self::new(Kind::Internal, None, "Internal server error")
    }

    /// Makes the same error about fields that stand elsewhere in the client's request.
    #[must_use]
    pub(in crate::api) fn elsewhere(self, elsewhere: impl Fn(Path) -> Path) -> Self {
        let Self { kind, message, field } = self;
        Self { kind, message: message.elsewhere(&elsewhere), field: field.map(elsewhere) }
    }

    /// Whether the body does not have the shape of a request; it may then have the shape of another one.
    pub(in crate::api) fn is_about_shape(&self) -> bool {
        self.kind == Kind::Malformed
    }

    /// Returns the field at fault, as the kind of error spells it.
    fn param(&self) -> Option<String> {
        let field = self.field.as_ref()?;
        Some(match self.kind {
            Kind::Malformed => place(field),
            Kind::Overflow => field.to_string(),
            _ => spelt(field),
        })
    }

    /// Returns the body of the answer.
    pub fn body(&self) -> ErrorBody {
        ErrorBody {
            error: ErrorDetail {
                message: sanitized(&self.message.text()),
                kind: self.kind.name(),
                param: self.param(),
                code: self.kind.status().as_u16(),
            },
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        if self.kind == Kind::Unreadable {
            return detail(self.kind.status(), &self.message.text());
        }
        let mut response = (self.kind.status(), Json(self.body())).into_response();
        if self.kind == Kind::Overloaded {
            response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
        }
        response
    }
}

impl From<TurnError> for ApiError {
    fn from(error: TurnError) -> Self {
        match error {
            TurnError::Prompt(error) => error.into(),
            TurnError::Continuity(error) => error.into(),
            TurnError::Tokenizer(error) => error.into(),
            TurnError::Sampling(error) => error.into(),
            TurnError::Structured(error) => error.into(),
            TurnError::Engine(error) => error.into(),
            TurnError::EmptyPrompt => Self::invalid_request("The decoder prompt cannot be empty"),
            TurnError::PromptTooLong { tokens, max_model_len, encoded_here } => {
                Self::prompt_too_long(tokens, max_model_len, encoded_here)
            }
            TurnError::TooManyPrompts { prompts, most } => Self::too_many_prompts(prompts, most),
            TurnError::TooManySequences { .. } => Self::invalid("n", error.to_string()),
            TurnError::AnswerTooLarge { log_probs, most, few, of_output } => {
                Self::answer_too_large(log_probs, most, few, of_output)
            }
            TurnError::CutsKnownIds => {
                Self::uncuttable("`", "` would cut token ids that this prompt has to start with")
            }
            TurnError::CutsSpecialTokens { special_tokens } => Self::uncuttable(
                format!("the tokenizer puts {special_tokens} special tokens around the text, which `"),
                "` leaves no room for",
            ),
            TurnError::NoEnd | TurnError::NoEndOfReasoning => Self::invalid_request(error.to_string()),
            TurnError::BytesInFlight { .. } => Self::new(Kind::Overloaded, None, error.to_string()),
            TurnError::Internal(cause) => Self::internal(cause),
        }
    }
}

impl From<PromptError> for ApiError {
    fn from(error: PromptError) -> Self {
        match error {
            PromptError::Content { field, message } => Self::invalid(field, message),
            PromptError::Tokenizer(error) => error.into(),
            PromptError::NoTemplate
            | PromptError::Template(_)
            | PromptError::ContinueFinalMessage(_)
            | PromptError::Unprovable(_) => Self::invalid_request(error.to_string()),
        }
    }
}

impl From<ContinuityError> for ApiError {
    fn from(error: ContinuityError) -> Self {
        let message = match error.reason {
            Reason::Named(reason) => Sentence::from("`").field(error.field.clone()).words(format!("` {reason}")),
            Reason::Whole(message) => message.into(),
        };
        Self::invalid(error.field, message)
    }
}

impl From<SamplingError> for ApiError {
    fn from(error: SamplingError) -> Self {
        match error {
            SamplingError::Refused { param, message } => Self::new(Kind::Invalid, param.map(Path::from), message),
            SamplingError::NoTokens { asked } => {
                let message =
                    Sentence::default().field("max_tokens").words(format!(" must be at least 1, got {asked}."));
                Self::refused("max_tokens", message, Some(asked.to_string()))
            }
            SamplingError::FewerThanMinTokens { min_tokens, max_tokens } => Self::invalid_request(
                Sentence::from("min_tokens must be less than or equal to ")
                    .field("max_tokens")
                    .words(format!("={max_tokens}, got {min_tokens}.")),
            ),
        }
    }
}

impl From<ForcingError> for ApiError {
    fn from(error: ForcingError) -> Self {
        match error {
            ForcingError::Parameters { .. } | ForcingError::Reference { .. } => {
                Self::invalid("tools", error.to_string())
            }
            ForcingError::Definition(_) => Self::invalid_request(error.to_string()),
            ForcingError::Unknown(_) => Self::invalid("tool_choice", error.to_string()),
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

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Unsupported(message) => Self::new(Kind::Unsupported, None, message),
            EngineError::Unsampleable(_) => Self::invalid_request(error.to_string()),
            EngineError::Overloaded => {
                let message = "The engine is currently busy and cannot accept new requests. Please try again later or \
                               on a different instance.";
                Self::new(Kind::Overloaded, None, message)
            }
            EngineError::Unread => {
                let message = "the stream was not read for longer than --stream-stall-timeout, and was ended; read \
                               streams as they come, or ask for fewer log-probs";
                Self::new(Kind::TimedOut, None, message)
            }
            EngineError::Failed(cause) => Self::internal(cause),
        }
    }
}

impl From<StoreError> for ApiError {
    /// This is not a client's fault, but a client can do something about it: ask without `store`.
    fn from(error: StoreError) -> Self {
        tracing::error!(%error, "the response store failed");
        Self::new(Kind::Internal, None, error.to_string())
    }
}

/// Makes an error in the shape of those that FastAPI answers before vLLM is asked.
fn detail(status: StatusCode, text: &str) -> Response {
    (status, Json(serde_json::json!({ "detail": text }))).into_response()
}

/// Makes FastAPI's answer to an unknown path.
pub(in crate::api) fn not_found() -> Response {
    detail(StatusCode::NOT_FOUND, "Not Found")
}

/// Makes FastAPI's answer to an unknown method.
pub(in crate::api) async fn method_not_allowed() -> Response {
    detail(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed")
}

/// Returns the status of `/health`, which has no body: 200 or 503.
pub(in crate::api) fn health(alive: bool) -> StatusCode {
    if alive { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_overflow_speaks_of_it() {
        let field = Path::from("body").then("max_tokens");
        let body = ApiError::malformed(Some(field.clone()), Sentence::default().field(field)).body();
        assert_eq!(body.error.message, "body.max_completion_tokens");
        assert_eq!(body.error.param.as_deref(), Some("body.max_completion_tokens"));
        assert!(
            ApiError::prompt_too_long(9, 8, true).body().error.message.contains("maximum context length is 8 tokens")
        );
    }

    #[test]
    fn what_a_client_wrote_is_shown_as_it_is() {
        let body = ApiError::invalid_request("no tool is called \"max_tokens\" of a context length").body();
        assert_eq!(body.error.message, "no tool is called \"max_tokens\" of a context length");
    }

    #[test]
    fn what_the_store_cannot_do_is_said() {
        let body = ApiError::from(StoreError::DiskFull("no storage space".into())).body();
        let message = "the disk of the response store is full: no storage space";
        assert_eq!((body.error.code, body.error.message.as_str()), (500, message));
    }

    #[test]
    fn faults_are_not_shown_to_clients() {
        let body = ApiError::from(EngineError::Failed("device lost at 0x7f".into())).body();
        assert_eq!((body.error.code, body.error.message.as_str()), (500, "Internal server error"));
    }
}
