//! AReaL's paths.

use axum::{extract::State, response::Response, routing::MethodRouter};
use serde_json::json;

use super::{
    AdminError, Answered, Shared,
    body::{NoFields, RequiredFields, label_of, only, required_text, truth_of},
    error::failed,
    json as answer,
    lora::{Ends, load_to_its_end},
    posted,
    sglang_updates::check_load_format,
    weights,
};
use crate::{
    adapters::{AdapterSource, Load},
    control::{Newcomers, PauseMode},
};

pub(super) fn routes() -> Vec<(&'static str, MethodRouter<Shared>)> {
    vec![
        ("/areal_pause_generation", posted(pause)),
        ("/areal_continue_generation", posted(resume)),
        ("/areal_update_weights", posted(update_weights)),
        ("/areal_update_weights_lora", posted(update_adapter)),
        ("/areal_set_update_weight_meta", posted(weights::not_from_memory)),
        ("/areal_set_update_weight_meta_lora", posted(weights::not_from_memory)),
        ("/areal_update_weights_lora_xccl", posted(weights::not_from_memory)),
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
    let updated = weights::replace(&admin, path.into(), None, true).await;
    Ok(of_rank(updated.map(|updated| weights::still_needs(&updated))))
}

/// Ends what runs, and loads an adapter in the place of the one that has its name. As in `/v1/unload_lora_adapter`,
/// `lora_int_id` is without effect: an adapter of another name stays for as long as there is room.
async fn update_adapter(State(admin): State<Shared>, RequiredFields(fields): RequiredFields) -> Answered {
    only(&fields, &["lora_model_path", "lora_name", "lora_int_id", "base_model_name"])?;
    let load = Load {
        name: required_text(&fields, "lora_name")?,
        source: AdapterSource::Directory(required_text(&fields, "lora_model_path")?),
        replaces: true,
        base_model: label_of(&fields, "base_model_name")?,
        stays: false,
    };
    Ok(of_rank(load_to_its_end(&admin, load, Ends::All).await.map(|_| None)))
}

/// Answers as AReaL's workers do, of which there is one, and says what is still to be done.
fn of_rank(outcome: Result<Option<String>, AdminError>) -> Response {
    match outcome {
        Ok(None) => done("TP rank: 0 success\n"),
        Ok(Some(needs)) => done(&format!("TP rank: 0 success. {needs}\n")),
        Err(error) => {
            let message = format!("TP rank: 0 failed. reason: {}\n", error.message());
            failed(&error, json!({ "success": false, "message": message }))
        }
    }
}
