//! SGLang's paths, as slime and miles ask for them.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
    routing::{MethodRouter, get},
};
use serde_json::{Value, json};

use super::{
    AdminError, Answered, Shared,
    body::{Fields, NoFields, RequiredFields, only, required_text, tags_of, text_of, truth_of, without},
    error, info, json as answer,
    labels::check_label,
    posted,
    query::Parameters,
    sglang_updates::{self, check_selector},
    sleeping, weights,
};
use crate::control::{Newcomers, PauseMode, SleepTag};

pub(super) fn routes() -> Vec<(&'static str, MethodRouter<Shared>)> {
    vec![
        ("/pause_generation", posted(pause)),
        ("/continue_generation", posted(resume)),
        ("/abort_request", posted(abort)),
        ("/update_weights_from_tensor", posted(weights::part_not_from_memory)),
        ("/update_weights_from_distributed", posted(weights::part_not_from_memory)),
        ("/update_weights_from_ipc", posted(weights::part_not_from_memory)),
        ("/init_weights_update_group", posted(weights::not_from_memory)),
        ("/destroy_weights_update_group", posted(sglang_updates::destroy_group)),
        ("/post_process_weights", posted(sglang_updates::post_process)),
        ("/get_weight_version", get(get_weight_version)),
        ("/open_session", get(open_session).post(open_session)),
        ("/close_session", get(close_session).post(close_session)),
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
    only(&fields, &["mode"])?;
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

/// `POST /continue_generation`. There is no torch whose cache `torch_empty_cache` could empty.
async fn resume(State(admin): State<Shared>, Fields(fields): Fields) -> Answered {
    only(&fields, &["torch_empty_cache"])?;
    truth_of(&fields, "torch_empty_cache", true)?;
    admin.call(|control| async move { control.resume().await }).await?;
    Ok(answer(json!({ "message": "Generation continued successfully.", "status": "ok" })))
}

/// `POST /abort_request`.
async fn abort(State(admin): State<Shared>, Fields(fields): Fields) -> Answered {
    only(&fields, &["rid", "abort_all", "abort_message", "finished_reason"])?;
    let why = "an aborted request ends with `finish_reason` \"abort\", and no other";
    without(&fields, &[("abort_message", why), ("finished_reason", why)])?;
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

async fn get_weight_version(State(admin): State<Shared>) -> Response {
    answer(json!({ "weight_version": &*admin.control.weights().label }))
}

/// `/flush_cache`: 400 while requests hold some of it.
async fn flush_cache(State(admin): State<Shared>, query: Parameters, _: NoFields) -> Answered {
    if !matches!(query.get("timeout").map(str::parse::<f64>), None | Some(Ok(0.0))) {
        let message = "`timeout` is not served: this call does not wait for requests; ask again until it answers 200";
        return Err(AdminError::field("query.timeout", message));
    }

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
    only(&fields, &["action", "allow_quant_error", "skip_tensor_list", "selector"])?;
    let all = "the checksums are those of all tensors";
    without(&fields, &[("skip_tensor_list", all)])?;
    check_selector(&admin, &fields, "the checksums are those of the model")?;
    let (checksums, _) = weights::checksums(&admin).await?;
    Ok(answer(json!({ "success": true, "message": "Success.", "ranks": [checksums] })))
}

/// `POST /release_memory_occupation`: the memory that `tags` name, and no other. Where none is named, weights stay, as in an
/// SGLang without a memory saver, which is what `/server_info` tells.
async fn release(State(admin): State<Shared>, Fields(fields): Fields) -> Answered {
    only(&fields, &["tags"])?;
    let parts = tags_of(&fields)?.unwrap_or_else(|| vec![SleepTag::KvCache]);
    admin.call(|control| async move { control.give_back(&parts).await }).await?;
    Ok(answer(Value::Null))
}

/// `POST /resume_memory_occupation`. Requests are served again once all that was released is resumed.
async fn restore(State(admin): State<Shared>, Fields(fields): Fields) -> Answered {
    only(&fields, &["tags"])?;
    let wanted = tags_of(&fields)?;
    sleeping::wake(&admin, wanted).await?;
    Ok(answer(Value::Null))
}

/// `/open_session`: a session that keeps what was said so far, to which requests add.
async fn open_session() -> AdminError {
    AdminError::not_here(
        "sessions that keep a conversation for the client are not served; send its ids as `input_ids` each time, of which \
         those that were computed before come from the prefix cache, and name it by `session_id`",
    )
}

/// `/close_session`: there is none that could be closed.
async fn close_session(RequiredFields(fields): RequiredFields) -> Answered {
    let id = required_text(&fields, "session_id")?;
    check_label("body.session_id", Some(&id))?;
    let message =
        format!("Invalid request: session id {id} does not exist; no session is open here, see /open_session");
    Err(AdminError::field("body.session_id", message))
}
