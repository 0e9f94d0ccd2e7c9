//! Sleeping and waking, in vLLM's words.

use axum::{extract::State, response::Response};
use serde_json::json;

use super::{
    Answered, Shared,
    body::NoFields,
    json as answer,
    meters::Operation,
    query::{Parameters, tags},
};
use crate::control::{Awakened, PauseMode, SleepLevel, SleepTag};

/// `POST /sleep`.
pub(super) async fn sleep(State(admin): State<Shared>, query: Parameters, _: NoFields) -> Answered {
    let level = query.level()?;
    let mode = query.mode()?;
    let level =
        admin.timed(Operation::Sleep("sleep"), |control| async move { control.sleep(level, mode).await }).await?;
    let number = match level {
        SleepLevel::Scheduling => 0,
        SleepLevel::KvCache => 1,
        SleepLevel::Weights => 2,
    };
    Ok(answer(json!({ "status": "sleeping", "level": number })))
}

/// `POST /wake_up`.
pub(super) async fn wake_up(State(admin): State<Shared>, query: Parameters, _: NoFields) -> Answered {
    let named = query.all("tags");
    let wanted = if named.is_empty() { None } else { Some(tags("query.tags", &named)?) };
    let awakened = wake(&admin, wanted).await?;
    let status = if awakened.awake { "awake" } else { "sleeping" };
    let tags = (!named.is_empty()).then_some(named);
    let mut said = json!({ "status": status, "tags": tags });
    if awakened.lacking > 0 {
        said["message"] = json!(needs(awakened.lacking));
    }
    Ok(answer(said))
}

/// Says what has to be done before anything is sampled again.
pub(super) fn needs(tensors: usize) -> String {
    format!(
        "{tensors} tensors have no weights: requests are refused until /update_weights, or another call that replaces \
         weights, has brought all of them"
    )
}

pub(super) async fn wake(admin: &Shared, tags: Option<Vec<SleepTag>>) -> Result<Awakened, super::AdminError> {
    admin.timed(Operation::Sleep("wake_up"), |control| async move { control.wake_up(tags.as_deref()).await }).await
}

/// `GET /is_sleeping`, which is true of a server that is merely paused too, as in vLLM.
pub(super) async fn is_sleeping(State(admin): State<Shared>) -> Response {
    let shown = admin.control.status();
    answer(json!({ "is_sleeping": shown.asleep || shown.paused }))
}

/// `POST /release_kv_cache_memory`.
pub(super) async fn release_kv_cache_memory(State(admin): State<Shared>, _: NoFields) -> Answered {
    let shown = admin.control.status();
    // A pause that still waits for requests is not completed.
    if !(shown.paused && shown.held) {
        let text = "Call to release_kv_cache_memory method failed: release_kv_cache_memory() requires a completed \
                    pause first";
        return Err(super::AdminError::out_of_order(text));
    }
    admin
        .timed(Operation::Sleep("release_kv_cache_memory"), |control| async move {
            control.sleep(SleepLevel::KvCache, PauseMode::Keep).await
        })
        .await?;
    Ok(answer(json!({ "status": "kv_cache_released" })))
}
