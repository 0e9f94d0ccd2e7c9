//! SGLang's paths, as slime and miles ask for them.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
    routing::{MethodRouter, get},
};
use serde_json::{Map, Value, json};

use super::{
    AdminError, Answered, Shared,
    body::{Fields, RequiredFields, label_of, required_text, tags_of, text_of, truth_of},
    error::{self, failed},
    info, json as answer, posted, sleeping, weights,
};
use crate::control::{Newcomers, PauseMode, SleepTag};

pub(super) fn routes() -> Vec<(&'static str, MethodRouter<Shared>)> {
    vec![
        ("/pause_generation", posted(pause)),
        ("/continue_generation", posted(resume)),
        ("/abort_request", posted(abort)),
        ("/update_weights_from_disk", posted(update_from_disk)),
        ("/update_weights_from_tensor", posted(weights::not_from_memory)),
        ("/update_weights_from_distributed", posted(weights::not_from_memory)),
        ("/init_weights_update_group", posted(weights::not_from_memory)),
        ("/get_weight_version", get(get_weight_version)),
        ("/flush_cache", get(flush_cache).post(flush_cache)),
        ("/health_generate", get(info::health_generate)),
        ("/model_info", get(info::model_info)),
        ("/get_model_info", get(info::model_info)),
        ("/get_server_info", get(info::get_server_info)),
        ("/v1/loads", get(info::loads)),
        ("/weights_checker", posted(weights_checker)),
        ("/release_memory_occupation", posted(release)),
        ("/resume_memory_occupation", posted(restore)),
    ]
}

/// `POST /pause_generation`. Requests that come wait, in every mode. `retract` gives back what the others hold.
async fn pause(State(admin): State<Shared>, Fields(fields): Fields) -> Answered {
    let mode = text_of(&fields, "mode")?.unwrap_or_else(|| "abort".to_owned());
    let (mode, retract) = match mode.as_str() {
        "abort" => (PauseMode::Abort, false),
        "retract" => (PauseMode::Keep, true),
        "in_place" => (PauseMode::Keep, false),
        _ => return Err(AdminError::field("body.mode", "`mode` must be 'abort', 'retract' or 'in_place'")),
    };
    admin
        .call(|control| async move {
            control.pause(mode, Newcomers::Queued).await?;
            if retract { control.reset_prefix_cache(true).await.map(|_| ()) } else { Ok(()) }
        })
        .await?;
    Ok(answer(json!({ "message": "Generation paused successfully.", "status": "ok" })))
}

async fn resume(State(admin): State<Shared>) -> Answered {
    admin.call(|control| async move { control.resume().await }).await?;
    Ok(answer(json!({ "message": "Generation continued successfully.", "status": "ok" })))
}

/// `POST /abort_request`.
async fn abort(State(admin): State<Shared>, Fields(fields): Fields) -> Answered {
    let id = text_of(&fields, "rid")?.filter(|id| !id.is_empty());
    match (truth_of(&fields, "abort_all", false)?, id) {
        (true, _) => admin.control.abort(None),
        (false, Some(id)) => admin.control.abort(Some(&[id])),
        (false, None) => {
            let message = "nothing is named that could be aborted: send a request's id as `rid`, or `abort_all`: true";
            return Err(AdminError::field("body.rid", message));
        }
    };
    Ok(().into_response())
}

/// Refuses a way to read weights that is not taken here.
fn check_load_format(fields: &Map<String, Value>) -> Result<(), AdminError> {
    match text_of(fields, "load_format")?.as_deref() {
        None | Some("auto" | "safetensors") => Ok(()),
        Some(other) => {
            let message = format!(
                "the `load_format` `{other}` is not served: weights are read from safetensors, which `auto` and \
                 `safetensors` name"
            );
            Err(AdminError::field("body.load_format", message))
        }
    }
}

/// `POST /update_weights_from_disk`.
async fn update_from_disk(State(admin): State<Shared>, RequiredFields(fields): RequiredFields) -> Answered {
    let path = required_text(&fields, "model_path")?;
    check_load_format(&fields)?;
    let label = label_of(&fields, "weight_version")?;
    if truth_of(&fields, "abort_all_requests", false)? {
        admin.control.abort(None);
    }
    let said =
        |success: bool, message: String| json!({ "success": success, "message": message, "num_paused_requests": 0 });
    match weights::replace(&admin, &path, label.clone()).await {
        Ok(_) => {
            let version = label.map_or(String::new(), |label| format!(" Weight version updated to {label}."));
            Ok(answer(said(true, format!("Succeeded to update model weights.{version}"))))
        }
        Err(error) => {
            let text = format!("Failed to update weights: {}.\nRolling back to original weights.", error.message());
            Ok(failed(&error, said(false, text)))
        }
    }
}

async fn get_weight_version(State(admin): State<Shared>) -> Response {
    answer(json!({ "weight_version": &*admin.control.weights().label }))
}

/// `/flush_cache`: 400 while requests hold some of it.
async fn flush_cache(State(admin): State<Shared>) -> Answered {
    let flushed = admin.call(|control| async move { control.reset_prefix_cache(false).await }).await?;
    let text = "Cache flushed.\nPlease check backend logs for more details. (When there are running or waiting requests, \
                the operation will not be performed.)\n";
    Ok(error::text(flushed, text))
}

/// `POST /weights_checker`.
async fn weights_checker(State(admin): State<Shared>, RequiredFields(fields): RequiredFields) -> Answered {
    if required_text(&fields, "action")? != "checksum" {
        return Err(AdminError::not_here(
            "of /weights_checker only the action `checksum` is served; see /weight_checker",
        ));
    }
    let (checksums, _) = weights::checksums(&admin).await?;
    Ok(answer(json!({ "success": true, "message": "Success.", "ranks": [checksums] })))
}

/// `POST /release_memory_occupation`: the memory that `tags` name, and no other. Where none is named, weights stay, as in an
/// SGLang without a memory saver, which is what `/server_info` tells.
async fn release(State(admin): State<Shared>, Fields(fields): Fields) -> Answered {
    let parts = tags_of(&fields)?.unwrap_or_else(|| vec![SleepTag::KvCache]);
    admin.call(|control| async move { control.give_back(&parts).await }).await?;
    Ok(answer(Value::Null))
}

/// `POST /resume_memory_occupation`. Requests are served again once all that was released is resumed.
async fn restore(State(admin): State<Shared>, Fields(fields): Fields) -> Answered {
    let wanted = tags_of(&fields)?;
    sleeping::wake(&admin, wanted).await?;
    Ok(answer(Value::Null))
}
