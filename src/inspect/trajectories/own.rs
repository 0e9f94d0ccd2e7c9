//! Whose trajectories a call is about, and which.

use std::sync::Arc;

use axum::{
    extract::{FromRef, FromRequestParts},
    http::request::Parts,
};
use tokio::task;

use crate::{
    http::{caller::Caller, path::PathParameters},
    retry::Cause,
    state::Api,
    tokenizer::Tokenizer,
    trajectory::{CaptureError, Owner, Trajectories},
    wire::error::{ApiError, ErrorKind},
};

/// What there is to see, on a server that generates and on one that only shows.
#[derive(Clone)]
pub struct Captured {
    /// The trajectories, on a server that captures them.
    pub trajectories: Option<Arc<Trajectories>>,
    /// What tells the texts of ids.
    pub tokenizer: Option<Arc<Tokenizer>>,
    /// How many ids the model knows; `usize::MAX` where that is not known.
    pub vocab_size: usize,
    /// What generates; `None` where nothing can be changed or generated.
    pub api: Option<Arc<Api>>,
}

impl FromRef<Arc<Api>> for Captured {
    fn from_ref(api: &Arc<Api>) -> Self {
        Self {
            trajectories: api.turns.capture.as_ref().map(|capture| Arc::clone(&capture.trajectories)),
            tokenizer: Some(Arc::clone(api.turns.tokenizer())),
            vocab_size: api.turns.vocab_size(),
            api: Some(Arc::clone(api)),
        }
    }
}

/// The trajectories of the caller, on a server that captures them.
pub(in super::super) struct OwnTrajectories {
    pub(super) trajectories: Arc<Trajectories>,
    pub(super) owner: Owner,
    pub(super) tokenizer: Option<Arc<Tokenizer>>,
    pub(super) vocab_size: usize,
    pub(super) api: Option<Arc<Api>>,
}

impl<S: Send + Sync> FromRequestParts<S> for OwnTrajectories
where
    Captured: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Captured { trajectories, tokenizer, vocab_size, api } = Captured::from_ref(state);
        let Some(trajectories) = trajectories else {
            let message =
                "This server captures no trajectories. Start it with --capture memory, or with --capture FILE.";
            return Err(ApiError::new(ErrorKind::NotFound, None, message).caused_by(Cause::Request));
        };
        let Ok(caller) = Caller::from_request_parts(parts, state).await;
        Ok(Self { trajectories, owner: caller.client.owner(), tokenizer, vocab_size, api })
    }
}

impl OwnTrajectories {
    /// Returns all names of the model that one of them names: turns are captured under one name of those that requests use.
    pub(super) fn names_of(&self, model: String) -> Vec<String> {
        let served = self.api.as_ref().map(|api| api.models.names()).unwrap_or_default();
        if served.contains(&model) { served.to_vec() } else { vec![model] }
    }

    /// Works with the trajectories on a thread that may wait.
    pub(super) async fn with<T: Send + 'static>(
        self,
        work: impl FnOnce(&Trajectories, &Owner) -> Result<T, CaptureError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let done = task::spawn_blocking(move || work(&self.trajectories, &self.owner)).await;
        Ok(done.map_err(ApiError::internal)??)
    }
}

/// The id in the path.
pub(super) struct TrajectoryId(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for TrajectoryId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        PathParameters::from_request_parts(parts, state).await.map(|PathParameters(id)| Self(id))
    }
}

impl TrajectoryId {
    /// That there is none.
    pub(super) fn not_found(&self) -> ApiError {
        not_found("trajectory_id", "trajectory", &self.0)
    }
}

/// That there is nothing with an id.
pub(super) fn not_found(field: &'static str, what: &str, id: &str) -> ApiError {
    ApiError::new(ErrorKind::NotFound, Some(field.into()), format!("There is no {what} with the id '{id}'."))
}
