//! AReaL's paths.

use axum::{extract::State, response::Response, routing::MethodRouter};
use serde_json::json;

use super::{
    Answered, Shared,
    body::{NoFields, RequiredFields, only, required_text, truth_of},
    error::failed,
    json as answer, posted,
    sglang_updates::check_load_format,
    weights,
};
use crate::control::{Newcomers, PauseMode};

pub(super) fn routes() -> Vec<(&'static str, MethodRouter<Shared>)> {
    vec![
        ("/areal_pause_generation", posted(pause)),
        ("/areal_continue_generation", posted(resume)),
        ("/areal_update_weights", posted(update_weights)),
        ("/areal_set_update_weight_meta", posted(weights::not_from_memory)),
        ("/areal_update_weights_xccl", posted(weights::part_not_from_memory)),
        ("/areal_init_weights_update_group", posted(weights::not_from_memory)),
    ]
}

fn done(message: &str) -> Response {
    answer(json!({ "success": true, "message": message }))
}

/// Ends what runs; what comes waits, because AReaL's client takes no refusal.
async fn pause(State(admin): State<Shared>, _: NoFields) -> Answered {
    admin.call(|control| async move { control.pause(PauseMode::Abort, Newcomers::Queued).await }).await?;
    Ok(done("Generation paused and all requests aborted"))
}

async fn resume(State(admin): State<Shared>, _: NoFields) -> Answered {
    admin.call(|control| async move { control.resume().await }).await?;
    Ok(done("Generation continued"))
}

/// Ends what runs, as AReaL's call does whatever `abort_all_requests` says, and replaces weights; a pause stays a pause.
async fn update_weights(State(admin): State<Shared>, RequiredFields(fields): RequiredFields) -> Answered {
    only(&fields, &["model_path", "load_format", "abort_all_requests"])?;
    check_load_format(&fields)?;
    truth_of(&fields, "abort_all_requests", true)?;
    let path = required_text(&fields, "model_path")?;
    admin.control.abort(None);
    match weights::replace(&admin, &path, None).await {
        Ok(_) => Ok(done("TP rank: 0 success\n")),
        Err(error) => {
            let message = format!("TP rank: 0 failed. reason: {}\n", error.message());
            Ok(failed(&error, json!({ "success": false, "message": message })))
        }
    }
}
