//! `/v1/trajectories`: captured turns, what clients attach to them, and their export.

mod export;
mod query;
mod tokens;

use std::sync::Arc;

use axum::{
    Json,
    extract::{FromRef, FromRequestParts, Path, State, rejection::PathRejection},
    http::request::Parts,
};
use tokio::task;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::query::{ListQuery, StrictQuery};
use crate::{
    http::{caller::Caller, json_body::JsonBody},
    state::Api,
    tokenizer::Tokenizer,
    trajectory::{CaptureError, MOST_TAGS, Note, Noted, Owner, Trajectories},
    wire::{
        error::{ApiError, ErrorBody, ErrorKind},
        trajectories::types::{
            NotesShown, RewardRequest, TagsRequest, TrajectoryDeletion, TrajectoryList, TrajectoryTree,
        },
    },
};

pub(crate) fn router() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(list_trajectories))
        .routes(routes!(export::export_trajectories))
        .routes(routes!(get_trajectory, delete_trajectory))
        .routes(routes!(tokens::get_tokens))
        .routes(routes!(set_reward))
        .routes(routes!(change_tags))
}

/// The paths on which nothing is changed, without a model.
pub(super) fn read_only() -> OpenApiRouter<Captured> {
    OpenApiRouter::new()
        .routes(routes!(list_trajectories))
        .routes(routes!(export::export_trajectories))
        .routes(routes!(get_trajectory))
        .routes(routes!(tokens::get_tokens))
}

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
pub(super) struct OwnTrajectories {
    trajectories: Arc<Trajectories>,
    owner: Owner,
    tokenizer: Option<Arc<Tokenizer>>,
    vocab_size: usize,
    api: Option<Arc<Api>>,
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
            return Err(ApiError::new(ErrorKind::NotFound, None, message));
        };
        let Ok(caller) = Caller::from_request_parts(parts, state).await;
        Ok(Self { trajectories, owner: caller.client.owner(), tokenizer, vocab_size, api })
    }
}

impl OwnTrajectories {
    /// Works with the trajectories on a thread that may wait.
    async fn with<T: Send + 'static>(
        self,
        work: impl FnOnce(&Trajectories, &Owner) -> Result<T, CaptureError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let done = task::spawn_blocking(move || work(&self.trajectories, &self.owner)).await;
        Ok(done.map_err(ApiError::internal)??)
    }
}

/// The id in the path.
struct TrajectoryId(String);

impl<S: Send + Sync> FromRequestParts<S> for TrajectoryId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let malformed =
            |error: PathRejection| ApiError::malformed(Some("path.trajectory_id".into()), error.body_text());
        Path::<String>::from_request_parts(parts, state).await.map(|Path(id)| Self(id)).map_err(malformed)
    }
}

impl TrajectoryId {
    fn not_found(&self) -> ApiError {
        not_found("trajectory_id", "trajectory", &self.0)
    }
}

fn not_found(field: &'static str, what: &str, id: &str) -> ApiError {
    ApiError::new(ErrorKind::NotFound, Some(field.into()), format!("There is no {what} with the id '{id}'."))
}

/// Captured trajectories, in the order in which they began.
#[utoipa::path(
    get,
    path = "/v1/trajectories",
    tag = "trajectories",
    params(ListQuery),
    responses(
        (status = 200, body = TrajectoryList),
        (status = 400, body = ErrorBody),
        (status = 404, description = "Nothing is captured, or `after` is not here", body = ErrorBody),
    )
)]
async fn list_trajectories(
    own: OwnTrajectories,
    StrictQuery(query): StrictQuery<ListQuery>,
) -> Result<Json<TrajectoryList>, ApiError> {
    let (filter, limit) = query.resolve()?;
    let after = filter.after.clone();
    let listed = own.with(move |trajectories, owner| Ok(trajectories.list(owner, &filter, limit))).await?;
    let listed = listed.ok_or_else(|| not_found("after", "trajectory", &after.unwrap_or_default()))?;
    Ok(Json(TrajectoryList::new(listed.trajectories, listed.has_more)))
}

/// A trajectory: its turns, which make a tree by their parents.
#[utoipa::path(
    get,
    path = "/v1/trajectories/{trajectory_id}",
    tag = "trajectories",
    params(("trajectory_id" = String, Path)),
    responses(
        (status = 200, body = TrajectoryTree),
        (status = 404, description = "There is no such trajectory", body = ErrorBody),
    )
)]
async fn get_trajectory(own: OwnTrajectories, id: TrajectoryId) -> Result<Json<TrajectoryTree>, ApiError> {
    let wanted = id.0.clone();
    let found = own.with(move |trajectories, owner| trajectories.get(owner, &wanted)).await?;
    let (summary, turns) = found.ok_or_else(|| id.not_found())?;
    Ok(Json(TrajectoryTree::new(summary, turns)))
}

/// Forgets a trajectory.
#[utoipa::path(
    delete,
    path = "/v1/trajectories/{trajectory_id}",
    tag = "trajectories",
    params(("trajectory_id" = String, Path)),
    responses(
        (status = 200, body = TrajectoryDeletion),
        (status = 404, description = "There is no such trajectory", body = ErrorBody),
    )
)]
async fn delete_trajectory(own: OwnTrajectories, id: TrajectoryId) -> Result<Json<TrajectoryDeletion>, ApiError> {
    let wanted = id.0.clone();
    if !own.with(move |trajectories, owner| trajectories.delete(owner, &wanted)).await? {
        return Err(id.not_found());
    }
    Ok(Json(TrajectoryDeletion { id: id.0, object: "trajectory", deleted: true }))
}

/// Attaches a reward to a trajectory, or to one of its turns.
#[utoipa::path(
    post,
    path = "/v1/trajectories/{trajectory_id}/reward",
    tag = "trajectories",
    params(("trajectory_id" = String, Path)),
    request_body = RewardRequest,
    responses(
        (status = 200, description = "All that is attached now", body = NotesShown),
        (status = 404, description = "There is no such trajectory or turn", body = ErrorBody),
    )
)]
async fn set_reward(
    State(_): State<Arc<Api>>,
    own: OwnTrajectories,
    id: TrajectoryId,
    JsonBody(request): JsonBody<RewardRequest>,
) -> Result<Json<NotesShown>, ApiError> {
    let RewardRequest { reward: value, turn_id } = request;
    if value.is_some_and(|value| !value.is_finite()) {
        return Err(ApiError::invalid("reward", "`reward` is a finite number, or null"));
    }
    let note = Note::Reward { turn: turn_id.as_deref().map(Into::into), value };
    attach(own, id, note, turn_id).await
}

/// The longest tag, in bytes.
const LONGEST_TAG: usize = 256;

/// Adds tags to a trajectory, or removes some.
#[utoipa::path(
    post,
    path = "/v1/trajectories/{trajectory_id}/tags",
    tag = "trajectories",
    params(("trajectory_id" = String, Path)),
    request_body = TagsRequest,
    responses(
        (status = 200, description = "All that is attached now", body = NotesShown),
        (status = 404, description = "There is no such trajectory", body = ErrorBody),
    )
)]
async fn change_tags(
    State(_): State<Arc<Api>>,
    own: OwnTrajectories,
    id: TrajectoryId,
    JsonBody(request): JsonBody<TagsRequest>,
) -> Result<Json<NotesShown>, ApiError> {
    let TagsRequest { add, remove } = request;
    if add.iter().any(|tag| tag.is_empty() || tag.len() > LONGEST_TAG) {
        return Err(ApiError::invalid("add", format!("a tag of `add` has 1 to {LONGEST_TAG} bytes")));
    }
    if let Some(tag) = remove.iter().find(|tag| add.contains(tag)) {
        return Err(ApiError::invalid("remove", format!("`add` and `remove` both name the tag {tag:?}")));
    }
    attach(own, id, Note::Tags { add, remove }, None).await
}

async fn attach(
    own: OwnTrajectories,
    id: TrajectoryId,
    note: Note,
    turn: Option<String>,
) -> Result<Json<NotesShown>, ApiError> {
    let wanted = id.0.clone();
    match own.with(move |trajectories, owner| trajectories.note(owner, &wanted, note)).await? {
        Noted::Done(notes) => Ok(Json(notes.into())),
        Noted::NoTrajectory => Err(id.not_found()),
        Noted::NoTurn => Err(not_found("turn_id", "turn of this trajectory", &turn.unwrap_or_default())),
        Noted::TooManyTags => {
            Err(ApiError::invalid("add", format!("`add` would give the trajectory more than {MOST_TAGS} tags")))
        }
    }
}
