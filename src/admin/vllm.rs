//! vLLM's paths, but those of weights.

use std::path::Path;

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
    routing::{MethodRouter, get},
};
use serde_json::{Map, Value, json};

use super::{
    AdminError, Answered, Shared,
    body::{Fields, fields_or, tags_of, truth_of},
    info, json as answer, pausing, posted,
    query::Parameters,
    sleeping, weights,
};
use crate::control::{PauseMode, SleepLevel};

pub(super) fn routes() -> Vec<(&'static str, MethodRouter<Shared>)> {
    vec![
        ("/pause", posted(pausing::pause)),
        ("/resume", posted(pausing::resume)),
        ("/is_paused", get(pausing::is_paused)),
        ("/abort_requests", posted(pausing::abort_requests)),
        ("/sleep", posted(sleeping::sleep)),
        ("/wake_up", posted(sleeping::wake_up)),
        ("/is_sleeping", get(sleeping::is_sleeping)),
        ("/release_kv_cache_memory", posted(sleeping::release_kv_cache_memory)),
        ("/reset_prefix_cache", posted(reset_prefix_cache)),
        // There are no such caches here.
        ("/reset_mm_cache", posted(nothing)),
        ("/reset_encoder_cache", posted(nothing)),
        ("/collective_rpc", posted(collective_rpc)),
        ("/get_world_size", get(get_world_size)),
        ("/server_info", get(info::server_info)),
    ]
}

async fn nothing() -> Response {
    ().into_response()
}

/// `GET /get_world_size`: one process computes.
async fn get_world_size() -> Response {
    answer(json!({ "world_size": 1 }))
}

/// `POST /reset_prefix_cache`, with vLLM's query or with SkyRL's body.
async fn reset_prefix_cache(State(admin): State<Shared>, query: Parameters, Fields(fields): Fields) -> Answered {
    let running = query.truth("reset_running_requests", false)? || truth_of(&fields, "reset_running_requests", false)?;
    let success = admin.call(|control| async move { control.reset_prefix_cache(running).await }).await?;
    Ok(answer(json!({ "success": success })))
}

/// `POST /collective_rpc`: the methods that trainers call on vLLM's workers and that mean something here.
async fn collective_rpc(State(admin): State<Shared>, body: Body) -> Answered {
    let fields = fields_or(body, "JSON decode error: Expecting value: line 1 column 1 (char 0)").await?;
    let Some(method) = fields.get("method").and_then(Value::as_str) else {
        return Err(AdminError::bad("Missing 'method' in request body"));
    };
    let nothing = Map::new();
    let arguments = fields.get("kwargs").and_then(Value::as_object).unwrap_or(&nothing);
    match method {
        "reload_weights" => {
            let first = fields.get("args").and_then(|args| args.get(0)).and_then(Value::as_str);
            let path = arguments.get("weights_path").and_then(Value::as_str).or(first);
            let path = path
                .or_else(|| own_weights(&admin))
                .ok_or_else(|| AdminError::field("body.kwargs.weights_path", NO_PATH))?;
            weights::replace(&admin, path, None).await?;
        }
        "skyrl_sleep_for_weight_sync" => {
            let kv = truth_of(arguments, "offload_kv", true)?;
            let level = if kv { SleepLevel::KvCache } else { SleepLevel::Scheduling };
            admin.call(|control| async move { control.sleep(level, PauseMode::Keep).await }).await?;
        }
        "skyrl_wake_for_weight_sync" => {
            let tags = tags_of(arguments)?;
            sleeping::wake(&admin, tags).await?;
        }
        other => {
            let message = format!(
                "there are no workers with a method `{other}` here; `reload_weights`, `skyrl_sleep_for_weight_sync` and \
                 `skyrl_wake_for_weight_sync` are served"
            );
            return Err(AdminError::not_here(message));
        }
    }
    Ok(answer(json!({ "results": [Value::Null] })))
}

/// Returns where the model itself was loaded from, which vLLM reads again without a path.
fn own_weights(admin: &Shared) -> Option<&str> {
    let model = admin.served.model.as_str();
    Path::new(model).exists().then_some(model)
}

const NO_PATH: &str =
    "reload_weights needs `kwargs.weights_path`, a directory of safetensors: the model itself was loaded from none";
