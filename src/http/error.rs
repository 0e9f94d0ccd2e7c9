//! The error table: what clients see. It is the only place that knows status codes.
//!
//! The body is vLLM's: `{"error": {"message", "type", "param", "code"}}`, the code being the status.

use axum::{
    Json,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};

use crate::{
    adapters::AdapterError,
    continuity::{ContinuityError, Reason},
    engine::EngineError,
    json::Path,
    media::{MediaError, MediaFault},
    parser::ForcingError,
    prompt::PromptError,
    retry::{self, Cause, Retry},
    store::StoreError,
    trajectory::CaptureError,
    turn::TurnError,
    wire::{
        error::{ApiError, ErrorBody, ErrorDetail, ErrorKind, sanitize::sanitized, wording::Sentence},
        routed_experts::FIELD,
    },
};

impl ErrorKind {
    fn status(self) -> StatusCode {
        match self {
            Self::Invalid | Self::Malformed | Self::Unreadable | Self::Overflow | Self::InvalidResponse => {
                StatusCode::BAD_REQUEST
            }
            Self::UnknownModel | Self::UnknownResponse | Self::NotFound => StatusCode::NOT_FOUND,
            Self::Conflict => StatusCode::CONFLICT,
            Self::Unsupported => StatusCode::NOT_IMPLEMENTED,
            Self::Overloaded | Self::Paused => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooMany => StatusCode::TOO_MANY_REQUESTS,
            Self::Gone => StatusCode::GONE,
            Self::TimedOut => StatusCode::REQUEST_TIMEOUT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Unprocessable => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Invalid | Self::Overflow => "BadRequestError",
            Self::Malformed | Self::Unreadable => "Bad Request",
            Self::UnknownModel | Self::NotFound => "NotFoundError",
            Self::InvalidResponse | Self::UnknownResponse => "invalid_request_error",
            Self::Conflict => "ConflictError",
            Self::Unsupported => "NotImplementedError",
            Self::Overloaded => "Service Unavailable",
            Self::Paused => "ServiceUnavailableError",
            Self::TooMany => "Too Many Requests",
            Self::Gone => "Gone",
            Self::TimedOut => "Request Timeout",
            Self::TooLarge => "Request Entity Too Large",
            Self::Unprocessable => "UnprocessableEntityError",
            Self::Internal => "InternalServerError",
        }
    }
}

impl ApiError {
    /// Makes the error of a prompt of `tokens` that leaves no room in a context of `max_model_len`. vLLM stops encoding
    /// a text that is too long, and says so; for a prompt that came as ids, it tells their number.
    pub fn prompt_too_long(tokens: usize, max_model_len: usize, encoded_here: bool) -> Self {
        if tokens == max_model_len {
            let message = "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)";
            return Self::new(ErrorKind::Overflow, Some("max_tokens".into()), message);
        }
        let tokens = if encoded_here { max_model_len + 1 } else { tokens };
        let at_least = if tokens == max_model_len + 1 { "at least " } else { "" };
        let message = format!(
            "This model's maximum context length is {max_model_len} tokens. However, your prompt contains \
             {at_least}{tokens} input tokens, which exceeds this limit even without any output tokens. Please reduce \
             the length of the input prompt. (parameter=input_tokens, value={tokens})"
        );
        Self::new(ErrorKind::Overflow, Some("input_tokens".into()), message)
    }

    /// Makes the error of a turn of a dialect that is not vLLM's. A prompt that leaves no room is told of by the field that
    /// has it: vLLM's words for it name a limit that such a request may not have.
    pub(crate) fn of_prompt_in(field: &'static str, error: TurnError) -> Self {
        match error {
            TurnError::PromptTooLong { tokens, max_model_len, encoded_here } => {
                let more = if encoded_here && tokens > max_model_len { "over " } else { "" };
                let tokens = if more.is_empty() { tokens } else { max_model_len };
                let message = format!(
                    "the prompt has {more}{tokens} tokens, and the context length of the model is {max_model_len}, so that \
                     no token can follow"
                );
                Self::new(ErrorKind::Overflow, Some(field.into()), message)
            }
            error => Self::from(error)
                .elsewhere(|named| if named.to_string() == "input_text" { field.into() } else { named }),
        }
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
            ("logprobs", message.words("n, ").field("max_tokens").words(", or ").field("logprobs"))
        } else {
            ("prompt_logprobs", message.words("prompt_logprobs"))
        };
        Self::invalid(field, message.words("), or for a stream"))
    }

    /// Makes the error of a request with more sequences than the server has room for when it serves no other.
    fn never_room(sequences: usize, most: usize) -> Self {
        let message = Sentence::from(format!("the request asks for {sequences} sequences, its prompts times "))
            .field("n")
            .words(format!(
                ", and the server has room for {most}: those of --max-num-seqs run, and those of --max-waiting wait; \
                 ask for fewer, or start the server with a larger --max-waiting"
            ));
        Self::invalid("n", message)
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

    /// Makes the error of an image that cannot be had, with vLLM's statuses; `field` names it.
    fn no_image(field: Path, error: &MediaError) -> Self {
        let (kind, message) = match error.fault() {
            MediaFault::Request => (ErrorKind::Invalid, format!("the image cannot be read: {error}")),
            MediaFault::Unsupported => (ErrorKind::Unsupported, error.to_string()),
            MediaFault::Source => (ErrorKind::Unprocessable, error.to_string()),
            MediaFault::Host => (ErrorKind::Internal, error.to_string()),
            MediaFault::Busy => (ErrorKind::Overloaded, error.to_string()),
        };
        Self::new(kind, Some(field), message)
    }

    /// Makes the error of a model that is not served here.
    pub fn model_not_found(model: &str, served: &[String]) -> Self {
        let message = format!("The model `{model}` does not exist. Valid aliases: {}.", served.join(", "));
        Self::new(ErrorKind::UnknownModel, Some("model".into()), message)
    }

    /// Makes the error of an adapter that was found by its name and not loaded. Only what another request may end is worth
    /// asking again for.
    pub fn adapter_not_loaded(name: &str, error: &AdapterError) -> Self {
        let message = format!("LoRA adapter '{name}' was found but could not be loaded. The reason: {error}");
        Self::new(kind_of(error), None, message)
    }

    /// Makes the error of an adapter that is loaded, and that the weights of the base do not fit.
    pub fn adapter_not_fitting(name: &str, error: &AdapterError) -> Self {
        let message = format!("LoRA adapter '{name}' is loaded but cannot be used. The reason: {error}");
        Self::new(kind_of(error), Some("model".into()), message)
    }

    /// Makes the error of a body that is longer than the `most` bytes of a flag.
    pub fn body_too_large(most: usize, flag: &str) -> Self {
        Self::new(
            ErrorKind::TooLarge,
            None,
            format!("the body of the request is longer than the {most} bytes of {flag}"),
        )
    }

    /// Makes the error of a method of more than `most` bytes.
    pub fn method_too_long(most: usize) -> Self {
        Self::new(ErrorKind::Malformed, None, format!("the method of the request is longer than {most} bytes"))
    }

    /// Makes the error of a body of which nothing came for `seconds`.
    pub fn body_too_slow(seconds: u64) -> Self {
        let message = format!("nothing came of the body of the request for {seconds} seconds; send it again");
        Self::new(ErrorKind::TimedOut, None, message)
    }

    /// Returns the body of the answer.
    pub fn body(&self) -> ErrorBody {
        ErrorBody {
            error: ErrorDetail {
                message: sanitized(&self.message()),
                kind: self.kind().name(),
                param: self.param(),
                code: self.kind().status().as_u16(),
                retry: None,
                done: None,
            },
        }
    }

    /// Returns the body of an event inside a stream, which also says what the header of an answer says.
    pub fn event(&self) -> ErrorBody {
        let mut body = self.body();
        body.error.retry = Some(self.retry().to.name());
        body.error.done = Some(self.retry().done.name());
        body
    }
}

/// The type of the error that an answer is, for whoever notes what requests get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ErrorName(pub(crate) &'static str);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = if self.kind() == ErrorKind::Unreadable {
            detail(self.kind().status(), &self.message())
        } else {
            (self.kind().status(), Json(self.body())).into_response()
        };
        say_retry(&mut response, self.retry());
        response.extensions_mut().insert(ErrorName(self.kind().name()));
        if matches!(self.kind(), ErrorKind::Overloaded | ErrorKind::TooMany) {
            response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
        }
        response
    }
}

/// Says in a header whether the request of this answer may be sent again.
fn say_retry(response: &mut Response, retry: Retry) {
    if let Ok(value) = header::HeaderValue::from_str(&retry.to_string()) {
        response.headers_mut().insert(retry::HEADER, value);
    }
}

/// Says it in an answer that is an error and does not say it yet: those of routing, of keys and of probes. Their status
/// decides.
pub(crate) fn say_retry_by_status(mut response: Response) -> Response {
    let cause = Cause::of_status(response.status().as_u16());
    if let Some(cause) = cause.filter(|_| !response.headers().contains_key(retry::HEADER)) {
        say_retry(&mut response, cause.retry());
    }
    response
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
            TurnError::Image { field, error } => Self::no_image(field, &error),
            TurnError::NoImage { ref field } | TurnError::RefusedImages { ref field, .. } => {
                Self::invalid(field.clone(), error.to_string())
            }
            TurnError::ImagesHeld(error) => Self::new(ErrorKind::Overloaded, None, error.to_string()),
            TurnError::TooManyImages { .. } => Self::invalid("messages", error.to_string()),
            TurnError::CutsImages => Self::uncuttable("`", "` would cut a prompt with images"),
            TurnError::UnknownToken(_) => Self::invalid_request(error.to_string()),
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
            TurnError::NoEnd | TurnError::NoEndOfReasoning | TurnError::SeesNoImages | TurnError::LacksImages => {
                Self::invalid_request(error.to_string())
            }
            TurnError::ThinkingBudget { .. } => Self::invalid("thinking_token_budget", error.to_string()),
            TurnError::RoutesStart { start, .. } => {
                Self::refused("routed_experts_prompt_start", error.to_string(), Some(start.to_string()))
            }
            TurnError::NoExperts { .. } | TurnError::Routes(_) => Self::refused(FIELD, error.to_string(), None),
            TurnError::BytesInFlight { .. } => Self::new(ErrorKind::Overloaded, None, error.to_string()),
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
            | PromptError::ImagesNotShown { .. }
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

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        match error {
            // Another sequence of the same request may have begun.
            EngineError::Unsupported(message) => Self::new(ErrorKind::Unsupported, None, message).once_begun(),
            EngineError::Unsampleable(_) => Self::invalid_request(error.to_string()).once_begun(),
            EngineError::Overloaded => {
                let message = "The engine is currently busy and cannot accept new requests. Please try again later or \
                               on a different instance.";
                Self::new(ErrorKind::Overloaded, None, message)
            }
            EngineError::TooManySequences { sequences, most } => Self::never_room(sequences, most),
            EngineError::Paused | EngineError::WithoutWeights { .. } | EngineError::ShutDown => {
                Self::new(ErrorKind::Paused, None, error.to_string())
            }
            EngineError::Unread => {
                let message = "the stream was not read for longer than --stream-stall-timeout, and was ended; read \
                               streams as they come, or ask for fewer log-probs";
                Self::new(ErrorKind::TimedOut, None, message).caused_by(Cause::Unread)
            }
            EngineError::Uncaptured(_) => Self::new(ErrorKind::Internal, None, error.to_string()),
            // The fault of weights that a trainer sent, who has to know.
            EngineError::NonFiniteLogits => {
                tracing::error!(%error, "request failed");
                Self::new(ErrorKind::Internal, None, error.to_string())
            }
            EngineError::Failed(cause) => Self::internal(cause),
        }
    }
}

impl From<StoreError> for ApiError {
    /// This is not a client's fault, but a client can do something about it: ask without `store`.
    fn from(error: StoreError) -> Self {
        tracing::error!(%error, "the response store failed");
        Self::new(ErrorKind::Internal, None, error.to_string())
    }
}

impl From<CaptureError> for ApiError {
    /// As with the store of responses, the client is told what the store cannot do.
    fn from(error: CaptureError) -> Self {
        tracing::error!(%error, "the trajectory store failed");
        Self::new(ErrorKind::Internal, None, error.to_string())
    }
}

/// Makes an error in the shape of those that FastAPI answers before vLLM is asked.
fn detail(status: StatusCode, text: &str) -> Response {
    (status, Json(serde_json::json!({ "detail": text }))).into_response()
}

/// Makes FastAPI's answer to an unknown path.
pub(crate) fn not_found() -> Response {
    detail(StatusCode::NOT_FOUND, "Not Found")
}

/// Makes FastAPI's answer to an unknown method.
pub(crate) async fn method_not_allowed() -> Response {
    detail(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed")
}

/// Returns the status of `/health`, which has no body: 200 or 503.
pub(crate) fn health(alive: bool) -> StatusCode {
    if alive { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

/// The kind of a request's error whose adapter cannot be had.
fn kind_of(error: &AdapterError) -> ErrorKind {
    match error {
        AdapterError::TooMany(_) | AdapterError::NotNow(_) => ErrorKind::Conflict,
        AdapterError::Unsettled(_) | AdapterError::WithoutWeights(_) => ErrorKind::Paused,
        _ => ErrorKind::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Path;

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

    /// The reason is that of a load: whatever call comes first, the answer is the same.
    #[test]
    fn an_adapter_that_the_base_does_not_fit_is_refused_in_the_words_of_a_load() {
        for (error, code) in [
            (AdapterError::OtherBase("lm_head.weight".to_owned()), 400),
            (AdapterError::Unsettled("no".to_owned()), 503),
        ] {
            let body = ApiError::adapter_not_fitting("a", &error).body();
            assert_eq!((body.error.code, body.error.param.as_deref()), (code, Some("model")));
            let reason = format!("LoRA adapter 'a' is loaded but cannot be used. The reason: {error}");
            assert_eq!(body.error.message, reason);
        }
    }

    #[test]
    fn weights_that_no_token_can_be_sampled_with_are_named() {
        let body = ApiError::from(EngineError::NonFiniteLogits).body();
        assert_eq!(body.error.code, 500);
        assert!(body.error.message.contains("its weights are not finite"), "{}", body.error.message);
    }
}
