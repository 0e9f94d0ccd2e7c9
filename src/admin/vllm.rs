//! vLLM's paths, but those of weights.

use std::path::PathBuf;

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
    routing::{MethodRouter, get},
};
use serde_json::{Map, Value, json};

use super::{
    AdminError, Answered, Shared,
    body::{Fields, NoFields, check_checkpoint_format, fields_or, only, only_at, tags_of, truth_of, without},
    info, json as answer,
    meters::Operation,
    pausing, posted,
    query::Parameters,
    sleeping, weights,
};
use crate::control::{PauseMode, SleepLevel, Updated};

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

async fn nothing(_: NoFields) -> Response {
    ().into_response()
}

/// `GET /get_world_size`: one process computes, with replicas and without.
async fn get_world_size(query: Parameters) -> Answered {
    query.truth("include_dp", true)?;
    Ok(answer(json!({ "world_size": 1 })))
}

/// `POST /reset_prefix_cache`, with vLLM's query or with SkyRL's body. There is no cache outside of the engine, which is a
/// success in vLLM too.
async fn reset_prefix_cache(State(admin): State<Shared>, query: Parameters, Fields(fields): Fields) -> Answered {
    only(&fields, &["reset_running_requests"])?;
    query.truth("reset_external", false)?;
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
    let (listed, named) = arguments(&fields)?;
    match method {
        "reload_weights" => {
            let updated = reload(&admin, path_of_weights(&listed, &named)?).await?;
            if let Some(needs) = weights::still_needs(&updated) {
                return Ok(answer(json!({ "results": [Value::Null], "message": needs })));
            }
        }
        "skyrl_sleep_for_weight_sync" => {
            let arguments = only_named(&listed, &named, &["offload_kv"])?;
            let kv = truth_of(arguments, "offload_kv", true)?;
            let level = if kv { SleepLevel::KvCache } else { SleepLevel::Scheduling };
            admin.call(|control| async move { control.sleep(level, PauseMode::Keep).await }).await?;
        }
        "skyrl_wake_for_weight_sync" => {
            let arguments = only_named(&listed, &named, &["tags"])?;
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

/// Replaces weights by those at a path or, as in vLLM, without one by those that the server was started with.
async fn reload(admin: &Shared, path: Option<PathBuf>) -> Result<Updated, AdminError> {
    if let Some(path) = path {
        return weights::replace(admin, path, None, false).await;
    }
    let loaded = admin.served.weights.clone();
    let loaded = loaded.ok_or_else(|| AdminError::field("body.kwargs.weights_path", NO_PATH))?;
    admin.timed(Operation::Update("update_weights"), |control| async move { control.reload(&loaded).await }).await
}

/// Returns the arguments of a method: those of a list, and those with names.
fn arguments(fields: &Map<String, Value>) -> Result<(Vec<Value>, Map<String, Value>), AdminError> {
    only(fields, &["method", "args", "kwargs", "timeout"])?;
    without(fields, &[("timeout", "a method is run to its end, and the answer says how it ended")])?;
    let listed = match fields.get("args") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(listed)) => listed.clone(),
        Some(_) => return Err(AdminError::field("body.args", "`args` must be a list")),
    };
    let named = match fields.get("kwargs") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(named)) => named.clone(),
        Some(_) => return Err(AdminError::field("body.kwargs", "`kwargs` must be an object")),
    };
    Ok((listed, named))
}

/// Returns the arguments of a method that has these, by their names.
fn only_named<'a>(
    listed: &[Value],
    named: &'a Map<String, Value>,
    known: &[&str],
) -> Result<&'a Map<String, Value>, AdminError> {
    only_at("body.kwargs", "method", named, known)?;
    if listed.is_empty() {
        return Ok(named);
    }
    let message = format!("this method takes no list of arguments: send {} within `kwargs`", known.join(", "));
    Err(AdminError::field("body.args", message))
}

/// Returns the directory that `reload_weights` names, in `kwargs` or alone in `args`; `None` for the model's own.
fn path_of_weights(listed: &[Value], named: &Map<String, Value>) -> Result<Option<PathBuf>, AdminError> {
    only_at("body.kwargs", "method", named, &["weights_path", "is_checkpoint_format"])?;
    check_checkpoint_format("body.kwargs", named)?;
    let (place, path) = match (named.get("weights_path").filter(|path| !path.is_null()), listed) {
        (None, []) => return Ok(None),
        (Some(path), []) => ("body.kwargs.weights_path", path),
        (None, [path]) => ("body.args", path),
        _ => {
            let message =
                "`args` names nothing beside the directory of the weights, and `kwargs.weights_path` names it alone";
            return Err(AdminError::field("body.args", message));
        }
    };
    match path {
        Value::String(path) => Ok(Some(PathBuf::from(path))),
        _ => Err(AdminError::field(place, "the directory of the weights must be a string")),
    }
}

const NO_PATH: &str =
    "reload_weights needs `kwargs.weights_path`, a directory of safetensors: the model itself was loaded from none";
