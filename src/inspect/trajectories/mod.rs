//! `/v1/trajectories`: captured turns, what clients attach to them, and their export.

mod again;
mod export;
mod images;
mod own;
mod query;
mod tokens;

use std::sync::Arc;

use axum::{Json, extract::State};
use utoipa_axum::{router::OpenApiRouter, routes};

pub(crate) use self::own::Captured;
pub(super) use self::own::OwnTrajectories;
use self::{
    own::{TrajectoryId, not_found},
    query::{ListQuery, StrictQuery},
};
use crate::{
    http::json_body::JsonBody,
    state::Api,
    trajectory::{MOST_TAGS, Note, Noted},
    wire::{
        error::{ApiError, ErrorBody},
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
        .routes(routes!(images::get_image))
        .routes(routes!(again::replay_turn))
        .routes(routes!(again::rescore_turn))
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
        .routes(routes!(images::get_image))
}

/// Captured trajectories, in the order in which their first turns were captured, that is in which these ended.
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
    let (filter, limit) = query.resolve(|model| own.names_of(model))?;
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
