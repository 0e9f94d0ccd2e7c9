//! Errors of the control plane, in vLLM's shape.

use axum::{
    Json,
    http::{HeaderValue, StatusCode},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use crate::{
    adapters::AdapterError,
    control::ControlError,
    engine::{EngineError, UpdateError},
    retry::{self, Cause, Retry},
};

/// An error as a client sees it.
#[derive(Debug)]
pub(super) struct AdminError {
    status: StatusCode,
    kind: &'static str,
    param: Option<String>,
    message: String,
    /// Whether the call does not fit those before it, for which vLLM has a status of the server's faults.
    is_out_of_order: bool,
    /// Why it was not done, as far as it decides whether it may be called again.
    cause: Cause,
}

impl AdminError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        let (message, cause) = (message.into(), Cause::Request);
        Self { status, kind, param: None, message, is_out_of_order: false, cause }
    }

    /// A call that fits this replica's state later.
    fn out_of_turn(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { cause: Cause::OutOfTurn, ..Self::new(status, kind, message) }
    }

    /// Refuses what was sent.
    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "Bad Request", message)
    }

    /// Refuses what was sent, in the words that vLLM has for adapters.
    pub(super) fn user_input(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "InvalidUserInput", message)
    }

    /// Refuses a field, by its path.
    pub(super) fn field(path: &str, message: impl Into<String>) -> Self {
        Self::bad(message).at(path)
    }

    /// Refuses what this server does not do, and says what to do instead.
    pub(super) fn not_here(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, "NotImplementedError", message)
    }

    /// Reports a fault of the server.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        let failed = Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError", message);
        Self { cause: Cause::HalfDone, ..failed }
    }

    /// The same of a call that changed nothing: it does not fit those before it, for which vLLM has this status.
    pub(super) fn out_of_order(message: impl Into<String>) -> Self {
        Self { is_out_of_order: true, cause: Cause::OutOfTurn, ..Self::internal(message) }
    }

    /// Names the field that it is about, by its path.
    pub(super) fn at(self, path: &str) -> Self {
        Self { param: Some(path.to_owned()), ..self }
    }

    /// Returns the sentence.
    pub(super) fn message(&self) -> &str {
        &self.message
    }
}

impl From<ControlError> for AdminError {
    fn from(error: ControlError) -> Self {
        let message = error.to_string();
        match error {
            ControlError::Unsupported { .. } => Self::not_here(message),
            ControlError::State(_) | ControlError::Update(UpdateError::Unsettled) => {
                Self::out_of_turn(StatusCode::CONFLICT, "ConflictError", message)
            }
            ControlError::EndsUpdate(_) => {
                Self { cause: Cause::HalfDone, ..Self::new(StatusCode::BAD_REQUEST, "BadRequestError", message) }
            }
            // A client that sends the same again gets the same answer: prime-rl repeats what is answered with 5xx.
            ControlError::Update(UpdateError::Refused(_) | UpdateError::NoRoomForUndo { .. }) => {
                Self::new(StatusCode::BAD_REQUEST, "BadRequestError", message)
            }
            ControlError::Update(UpdateError::NotNow(_)) => {
                Self::out_of_turn(StatusCode::BAD_REQUEST, "BadRequestError", message)
            }
            // As vLLM's workers report it.
            ControlError::Update(UpdateError::OutOfOrder(_)) => {
                Self::out_of_order(format!("Call to collective_rpc method failed: {message}"))
            }
            ControlError::Engine(EngineError::WithoutWeights { .. }) => {
                Self::out_of_turn(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailableError", message)
            }
            ControlError::Update(UpdateError::Lost { .. } | UpdateError::Engine(_)) | ControlError::Engine(_) => {
                Self::internal(message)
            }
        }
    }
}

impl From<AdapterError> for AdminError {
    fn from(error: AdapterError) -> Self {
        let message = error.to_string();
        match error {
            AdapterError::Off => Self::not_here(message),
            AdapterError::NotFound { .. } | AdapterError::Unknown(_) => {
                Self::new(StatusCode::NOT_FOUND, "NotFoundError", message)
            }
            AdapterError::Incomplete | AdapterError::Name(_) | AdapterError::IsBase(_) | AdapterError::Taken(_) => {
                Self::user_input(message)
            }
            AdapterError::WithoutWeights(_) => {
                Self::out_of_turn(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailableError", message)
            }
            AdapterError::TooMany(_) | AdapterError::Unsettled(_) => {
                Self::out_of_turn(StatusCode::CONFLICT, "ConflictError", message)
            }
            AdapterError::NotNow(_) => Self::out_of_turn(StatusCode::BAD_REQUEST, "BadRequestError", message),
            // A client that sends the same again gets the same answer.
            AdapterError::Outside
            | AdapterError::Unusable(_)
            | AdapterError::Rank { .. }
            | AdapterError::Model(_)
            | AdapterError::OtherBase(_) => Self::new(StatusCode::BAD_REQUEST, "BadRequestError", message),
        }
    }
}

impl IntoResponse for AdminError {
    fn into_response(self) -> Response {
        let Self { status, kind, param, message, cause, .. } = self;
        let error = json!({ "message": message, "type": kind, "param": param, "code": status.as_u16() });
        with_retry((status, Json(json!({ "error": error }))).into_response(), cause.retry())
    }
}

/// Answers with a shape of SGLang's or AReaL's that says itself what failed: 400, or what a fault of the server has.
pub(super) fn failed(error: &AdminError, said: Value) -> Response {
    let is_fault = error.status.is_server_error() && !error.is_out_of_order;
    let status = if is_fault { error.status } else { StatusCode::BAD_REQUEST };
    with_retry((status, Json(said)).into_response(), error.cause.retry())
}

/// The answer, which says in a header whether the same call may be made again.
fn with_retry(mut response: Response, retry: Retry) -> Response {
    if let Ok(value) = HeaderValue::from_str(&retry.to_string()) {
        response.headers_mut().insert(retry::HEADER, value);
    }
    response
}

/// Answers with text, and 200 or, where something was not to be done now, 400.
pub(super) fn text(done: bool, text: &'static str) -> Response {
    if done {
        return text.into_response();
    }
    with_retry((StatusCode::BAD_REQUEST, text).into_response(), Cause::OutOfTurn.retry())
}

/// Answers whether the engine is well, with 200 or 503.
pub(super) fn health(well: bool, said: Option<Value>) -> Response {
    let status = if well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    match said {
        Some(said) => (status, Json(said)).into_response(),
        None => status.into_response(),
    }
}

/// Answers a call of the control plane where it is not open. The status is that of a server without these paths, which
/// clients know how to take.
pub(super) fn closed() -> Response {
    let message = "this is a call of the control plane, which is not open here: start the server with --admin-port for a \
                   port of its own, or with --admin-on-main-port and a key (--admin-api-key or --api-key)";
    AdminError::new(StatusCode::NOT_FOUND, "NotFoundError", message).into_response()
}

/// Why a control plane without a key does not answer a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It names a host by which a page could ask.
    Host,
    /// A page of another origin sent it.
    Page,
    /// Its body is of a media type that any page may send.
    MediaType,
}

/// Answers a request that a page of another origin may have sent to a control plane without a key.
pub fn refused(refusal: Refusal) -> Response {
    let (status, kind, message) = match refusal {
        Refusal::Host => (
            StatusCode::FORBIDDEN,
            "PermissionDeniedError",
            "this control plane has no key, so it is asked by an address or as localhost, and by no other name: name this \
             host with --admin-allowed-hosts, or set a key with --admin-api-key",
        ),
        Refusal::Page => (
            StatusCode::FORBIDDEN,
            "PermissionDeniedError",
            "this control plane has no key, so no web page of another origin may ask it: set a key with --admin-api-key",
        ),
        Refusal::MediaType => (
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaTypeError",
            "this control plane has no key, so bodies say what they are: send the header Content-Type: application/json, or \
             application/octet-stream for weights",
        ),
    };
    AdminError::new(status, kind, message).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// prime-rl repeats what is answered with 5xx, and a trainer that knows the header repeats what may work later.
    #[test]
    fn weights_that_cannot_be_read_now_may_be_named_again() {
        for (error, expected) in [
            (UpdateError::Refused("no".to_owned()), "never; done=nothing"),
            (UpdateError::NotNow("no".to_owned()), "here; done=nothing"),
        ] {
            let response = AdminError::from(ControlError::Update(error)).into_response();
            assert_eq!(
                (response.status(), response.headers()["x-retry"].to_str().unwrap()),
                (StatusCode::BAD_REQUEST, expected)
            );
        }
    }

    /// An adapter with saved weights of the base is compared with those that are served.
    #[test]
    fn an_adapter_that_cannot_be_compared_now_may_be_loaded_later() {
        let missing = EngineError::WithoutWeights { missing: 1 };
        for (error, expected) in
            [(AdapterError::Unsettled("no".to_owned()), 409), (AdapterError::WithoutWeights(missing.to_string()), 503)]
        {
            let response = AdminError::from(error).into_response();
            let retry = response.headers()["x-retry"].to_str().unwrap();
            assert_eq!((response.status().as_u16(), retry), (expected, "here; done=nothing"));
        }
    }
}
