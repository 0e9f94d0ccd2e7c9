//! Pausing and aborting, in vLLM's words.

use axum::{extract::State, response::Response};
use serde_json::{Value, json};

use super::{
    AdminError, Answered, Shared,
    body::{NoFields, RequiredFields, only},
    json as answer,
    query::Parameters,
};
use crate::control::{Newcomers, PauseMode};

/// `POST /pause`.
pub(super) async fn pause(State(admin): State<Shared>, query: Parameters, _: NoFields) -> Answered {
    let mode = query.mode()?;
    let clear_cache = query.truth("clear_cache", true)?;
    admin
        .call(|control| async move {
            control.pause(mode, Newcomers::Refused).await?;
            // What is kept goes on with what it has, and who else comes finds the same cache.
            if clear_cache && mode != PauseMode::Keep && control.engine().control().is_some() {
                // Requests that were ended may still have their blocks: they need none any more.
                control.reset_prefix_cache(mode == PauseMode::Abort).await?;
            }
            Ok(())
        })
        .await?;
    Ok(answer(json!({ "status": "paused" })))
}

/// `POST /resume`.
pub(super) async fn resume(State(admin): State<Shared>, _: NoFields) -> Answered {
    admin.call(|control| async move { control.resume().await }).await?;
    Ok(answer(json!({ "status": "resumed" })))
}

/// `GET /is_paused`.
pub(super) async fn is_paused(State(admin): State<Shared>) -> Response {
    answer(json!({ "is_paused": admin.control.status().paused }))
}

/// `POST /abort_requests`. Unlike vLLM, the answer counts the sequences that were ended, not the ids that were asked for.
pub(super) async fn abort_requests(State(admin): State<Shared>, RequiredFields(fields): RequiredFields) -> Answered {
    only(&fields, &["request_ids"])?;
    let ids: Vec<String> = match fields.get("request_ids") {
        None | Some(Value::Null) => Vec::new(),
        Some(ids) => serde_json::from_value(ids.clone())
            .map_err(|_| AdminError::field("body.request_ids", "`request_ids` must be a list of strings"))?,
    };
    let aborted = admin.control.abort((!ids.is_empty()).then_some(&ids));
    Ok(answer(json!({ "status": "aborted", "aborted": aborted })))
}
