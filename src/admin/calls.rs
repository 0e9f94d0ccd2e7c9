//! The calls of the control plane: what they work with, and how they are done to their end.

use std::sync::Arc;

use axum::{
    Json,
    response::{IntoResponse, Response},
    routing::{MethodRouter, post},
};

use super::{error::AdminError, meters::Operation, served::Served};
use crate::{
    adapters::Adapters,
    control::{Control, ControlError},
};

/// Everything that the control plane works with.
pub struct Admin {
    /// Does what is asked.
    pub control: Arc<Control>,
    /// What is served.
    pub served: Served,
    /// The adapters that are served beside it.
    pub adapters: Arc<Adapters>,
}

impl Admin {
    /// Does a call to its end, even if its client goes away.
    pub(super) async fn call<T, F>(&self, call: impl FnOnce(Arc<Control>) -> F) -> Result<T, AdminError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ControlError>> + Send + 'static,
    {
        match tokio::spawn(call(Arc::clone(&self.control))).await {
            Ok(outcome) => Ok(outcome?),
            Err(error) => Err(AdminError::internal(format!("the call failed: {error}"))),
        }
    }

    /// Does the same, and times it.
    pub(super) async fn timed<T, F>(
        &self,
        operation: Operation,
        call: impl FnOnce(Arc<Control>) -> F,
    ) -> Result<T, AdminError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ControlError>> + Send + 'static,
    {
        self.call(|control| operation.timed(call(control))).await
    }

    /// Ends the update that was begun where a part of it is refused, with the old weights put back.
    pub(super) async fn or_end_update<T>(&self, outcome: Result<T, AdminError>) -> Result<T, AdminError> {
        if outcome.is_err() {
            self.call(|control| async move { control.cancel_part_update().await }).await?;
        }
        outcome
    }
}

/// What every handler gets.
pub(super) type Shared = Arc<Admin>;

/// What every handler returns.
pub(super) type Answered = Result<Response, AdminError>;

/// Returns an answer in JSON.
pub(super) fn json(value: serde_json::Value) -> Response {
    Json(value).into_response()
}

/// Returns a route of calls that are posted.
pub(super) fn posted<H, T>(handler: H) -> MethodRouter<Shared>
where
    H: axum::handler::Handler<T, Shared>,
    T: 'static,
{
    post(handler)
}
