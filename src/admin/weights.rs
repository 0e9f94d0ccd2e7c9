//! Weights that come in, in vLLM's words and prime-rl's.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use axum::{
    body::Body,
    extract::{FromRequest, Request, State},
    http::header::CONTENT_TYPE,
    response::Response,
    routing::{MethodRouter, get},
};
use serde_json::{Map, Value, json};

use super::{
    AdminError, Answered, Shared,
    body::{
        Fields, NoFields, RequiredFields, check_checkpoint_format, missing, only, only_at, required_text, truth_of,
        weight_name_of, without,
    },
    error::failed,
    json as answer,
    labels::{check_label, check_weight_name},
    meters::Operation,
    posted,
    query::Parameters,
    sleeping::needs,
};
use crate::{
    control::{Control, Relabelled, Update, Updated},
    weights::checksum::Checksum,
};

/// What to use where a trainer wants to send its weights from memory to memory.
const NOT_FROM_MEMORY: &str = "weights come over no NCCL, IPC or RDMA here; write them as safetensors to a directory that the server can read, \
     such as a tmpfs, and POST /update_weights with {\"weight_dir\": \"...\"}, or send a safetensors file as the body \
     of POST /update_weights with the media type application/octet-stream; for LoRA, start the server with \
     --enable-lora and POST /v1/load_lora_adapter";

/// What is said of a draft model where there is none.
pub(super) const NO_DRAFT_MODEL: &str = "there is no draft model here";
/// What to use for the weights of a draft model.
pub(super) const DRAFT_IN_ONE_CALL: &str = "the weights of the draft model are replaced in one call, between two steps: POST \
     /update_weights_from_disk with {\"selector\": \"draft\", \"model_path\": \"...\"}";

pub(super) fn routes() -> Vec<(&'static str, MethodRouter<Shared>)> {
    vec![
        ("/init_weight_transfer_engine", posted(init)),
        ("/shutdown_weight_transfer_engine", posted(shut_down)),
        ("/start_weight_update", posted(start)),
        ("/start_draft_weight_update", posted(start_draft)),
        ("/update_weights", posted(update)),
        ("/finish_weight_update", posted(finish)),
        ("/fetch_weights", posted(fetch)),
        ("/pull_weights", posted(pull)),
        ("/update_weight_version", posted(relabel)),
        ("/weight_info", get(weight_info)),
        ("/weight_checker", posted(weight_checker)),
    ]
}

/// Answers a part of an update by which weights would come from memory to memory. It ends the update: an end of it would
/// name weights that are not all there.
pub(super) async fn part_not_from_memory(State(admin): State<Shared>) -> Answered {
    admin.or_end_update(Err(AdminError::not_here(NOT_FROM_MEMORY))).await
}

/// Answers a call that would have weights come from memory to memory.
pub(super) async fn not_from_memory() -> AdminError {
    AdminError::not_here(NOT_FROM_MEMORY)
}

/// Replaces weights by those of a directory or file; `aborts` ends the requests that run.
pub(super) async fn replace(
    admin: &Shared,
    path: PathBuf,
    label: Option<String>,
    aborts: bool,
) -> Result<Updated, AdminError> {
    let update = Update { path, label: label.map(Into::into), aborts };
    admin.timed(Operation::Update("update_weights"), |control| async move { control.update(update).await }).await
}

/// The key under which a directory is named in an update in phases.
const PATHS: [&str; 4] = ["weight_dir", "weights_path", "model_path", "path"];
/// What a part of an update has that names deltas, as SkyRL does: `uri` is that of the same deltas in an object store.
const DELTAS: [&str; 4] = ["target_version", "sync_dir", "uri", "version"];

/// Returns the directory that a part of an update names; `None` where its weights would come from memory to memory.
fn path_in(part: &Map<String, Value>) -> Result<Option<PathBuf>, AdminError> {
    let mut named =
        PATHS.iter().filter_map(|name| part.get(*name).filter(|path| !path.is_null()).map(|path| (name, path)));
    let Some((name, path)) = named.next() else { return Ok(None) };
    only_at("body.update_info", "part of an update", part, &PATHS)?;
    if let Some((second, _)) = named.next() {
        let message =
            format!("`{second}` names weights beside `{name}`: a part of an update has one directory or file");
        return Err(AdminError::field(&format!("body.update_info.{second}"), message));
    }
    match path {
        Value::String(path) => Ok(Some(PathBuf::from(path))),
        _ => Err(AdminError::field(&format!("body.update_info.{name}"), format!("`{name}` must be a string"))),
    }
}

/// What SkyRL sets its deltas up by. All of it is without effect: they are applied to the weights in memory.
const OF_DELTAS: [&str; 5] = [
    "base_model_path",
    "local_checkpoint_dir",
    "cloud_download_workers",
    "checkpoint_load_format",
    "multi_thread_safetensors_max_workers",
];

/// `POST /init_weight_transfer_engine`: there is nothing to set up for weights that are read from files. Everything else that
/// could be set up is a way from memory to memory.
async fn init(RequiredFields(fields): RequiredFields) -> Answered {
    let Some(Value::Object(info)) = fields.get("init_info") else { return Err(missing(&fields, "init_info")) };
    only(&fields, &["init_info"])?;
    if let Some(name) = info.keys().find(|name| !OF_DELTAS.contains(&name.as_str())) {
        check_label("body.init_info", Some(name))?;
        return Err(AdminError::not_here(NOT_FROM_MEMORY).at(&format!("body.init_info.{name}")));
    }
    Ok(answer(json!({ "message": "Weight transfer initialized" })))
}

async fn shut_down(State(admin): State<Shared>, _: NoFields) -> Answered {
    if admin.control.status().updating {
        return Err(AdminError::out_of_order("Cannot release a trainer connection during a weight update"));
    }
    Ok(answer(json!({ "message": "Weight transfer shut down" })))
}

/// `POST /start_weight_update`. TRL's client says that its tensors are named as in a checkpoint.
async fn start(State(admin): State<Shared>, Fields(fields): Fields) -> Answered {
    only(&fields, &["is_checkpoint_format"])?;
    check_checkpoint_format("body", &fields)?;
    admin
        .timed(Operation::Update("start_weight_update"), |control| async move { control.start_update().await })
        .await?;
    Ok(answer(json!({ "message": "Weight update started" })))
}

/// `POST /start_draft_weight_update`: weights of a model that drafts come in one call.
async fn start_draft(State(admin): State<Shared>) -> AdminError {
    AdminError::not_here(if admin.control.has_draft_model() { DRAFT_IN_ONE_CALL } else { NO_DRAFT_MODEL })
}

/// `POST /update_weights`: prime-rl's body is an update of its own, vLLM's a part of one that was started; a file of
/// safetensors is either.
async fn update(State(admin): State<Shared>, query: Parameters, request: Request) -> Answered {
    let media_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if media_type.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/octet-stream") {
        let label = query.get("weight_version").map(str::to_owned);
        admin.or_end_update(check_weight_name("query.weight_version", label.as_deref())).await?;
        return update_from_body(admin, request.into_body(), label).await;
    }
    let only_in_body = query.none_of(&["weight_version"]);
    // What cannot be read may be a part.
    let read = RequiredFields::from_request(request, &()).await;
    let RequiredFields(fields) = admin.or_end_update(read).await?;
    if fields.contains_key("update_info") {
        let parts = admin.or_end_update(only_in_body.and_then(|()| parts(&fields))).await?;
        return update_part(admin, parts).await;
    }
    // It may be a part whose field is misspelt.
    let (path, label) = admin.or_end_update(only_in_body.and_then(|()| own_update(&fields))).await?;
    let updated = replace(&admin, path.into(), label, false).await?;
    Ok(answer(update_answer(&updated)))
}

/// The directory and the version of an update of its own.
fn own_update(fields: &Map<String, Value>) -> Result<(&str, Option<String>), AdminError> {
    match fields.get("weight_dir") {
        Some(Value::String(path)) => {
            only(fields, &["weight_dir", "weight_version"])?;
            Ok((path, weight_name_of(fields, "weight_version")?))
        }
        // The trainer wants to send them over NCCL. prime-rl repeats whatever is answered with a status over 499.
        Some(Value::Null) => Err(AdminError::field("body.weight_dir", NOT_FROM_MEMORY)),
        Some(_) => Err(AdminError::field("body.weight_dir", "`weight_dir` must be a string")),
        None => Err(missing(fields, "update_info")),
    }
}

async fn update_from_body(admin: Shared, body: Body, label: Option<String>) -> Answered {
    let pieces = body.into_data_stream();
    let updated = admin
        .timed(Operation::Update("update_weights"), |control| async move {
            control.update_from_stream(pieces, label.map(Into::into)).await
        })
        .await?;
    Ok(answer(updated.map_or_else(|| json!({ "message": "Weights updated" }), |updated| update_answer(&updated))))
}

/// The directory and version of deltas, in SkyRL's words.
fn published(fields: &Map<String, Value>) -> Result<Option<(PathBuf, u64)>, AdminError> {
    let Some(version) = fields.get("target_version").filter(|version| !version.is_null()) else { return Ok(None) };
    let number = version.as_u64().or_else(|| version.as_str()?.parse().ok());
    let number = number.ok_or_else(|| AdminError::field("body.target_version", "`target_version` must be a number"))?;
    if fields.get("version").is_some_and(|other| !other.is_null() && other != version) {
        return Err(AdminError::field("body.version", "`version` is another one than `target_version`"));
    }
    let Some(directory) = fields.get("sync_dir").and_then(Value::as_str) else {
        return Err(AdminError::field(
            "body.sync_dir",
            "deltas are read from `sync_dir`, a directory; no `uri` is fetched",
        ));
    };
    Ok(Some((PathBuf::from(directory), number)))
}

/// `POST /fetch_weights`, of SkyRL: looks whether all deltas that lead to a version are there and whole.
async fn fetch(State(admin): State<Shared>, RequiredFields(fields): RequiredFields) -> Answered {
    only(&fields, &DELTAS)?;
    let Some((directory, version)) = published(&fields)? else {
        return Err(AdminError::field("body.target_version", "'target_version' is required"));
    };
    admin.call(|control| async move { control.check_version(directory, version).await }).await?;
    let one = json!({ "status": "ok", "target_version": version, "stats": {} });
    Ok(answer(json!({ "status": "ok", "result": [one] })))
}

/// `POST /pull_weights`, of slime: the same; what it calls its local checkpoint is not written.
async fn pull(State(admin): State<Shared>, RequiredFields(fields): RequiredFields) -> Answered {
    only(&fields, &["local_checkpoint_dir", "source_dir", "target_version"])?;
    let local = PathBuf::from(required_text(&fields, "local_checkpoint_dir")?);
    let source = PathBuf::from(required_text(&fields, "source_dir")?);
    let version = required_text(&fields, "target_version")?;
    let version =
        version.parse().map_err(|_| AdminError::field("body.target_version", "`target_version` must be a number"))?;
    match admin.call(|control| async move { control.pull(local, source, version).await }).await {
        Ok(()) => Ok(answer(json!({ "success": true, "message": "Success." }))),
        Err(error) => Ok(failed(&error, json!({ "success": false, "message": error.message() }))),
    }
}

fn update_answer(updated: &Updated) -> Value {
    let mut said = json!({
        "status": "ok",
        "weight_version": &*updated.version.label,
        "tensors": updated.written.tensors,
        "tensors_of_model": updated.tensors,
        "seconds": updated.took.as_secs_f64(),
    });
    if let Some(needs) = still_needs(updated) {
        said["message"] = json!(needs);
    }
    said
}

/// Says what is still to be sent, where weights were lost and an update did not bring the last of them.
pub(super) fn still_needs(updated: &Updated) -> Option<String> {
    (updated.lacking > 0).then(|| needs(updated.lacking))
}

/// What is said of an update, and what is still to be sent after it.
pub(super) fn and_needs(said: &str, updated: &Updated) -> String {
    still_needs(updated).map_or_else(|| said.to_owned(), |needs| format!("{}. {needs}", said.trim_end_matches('.')))
}

/// The weights of a part of an update.
enum Part {
    /// The deltas in a directory that lead to a version.
    Version(PathBuf, u64),
    /// Files and directories.
    Paths(Vec<PathBuf>),
}

fn parts(fields: &Map<String, Value>) -> Result<Part, AdminError> {
    only(fields, &["update_info", "weight_version"])?;
    without(fields, &[("weight_version", "name the weights of an update in parts by that of /finish_weight_update")])?;
    let parts: Vec<&Map<String, Value>> = match &fields["update_info"] {
        Value::Object(part) => vec![part],
        Value::Array(parts) if !parts.is_empty() && parts.iter().all(Value::is_object) => {
            parts.iter().filter_map(Value::as_object).collect()
        }
        _ => {
            return Err(AdminError::field("body.update_info", "`update_info` must be an object, or a list of objects"));
        }
    };
    if let [part] = &parts[..]
        && let Some((directory, version)) = published(part)?
    {
        only_at("body.update_info", "part of an update", part, &DELTAS)?;
        return Ok(Part::Version(directory, version));
    }
    let paths: Option<Vec<PathBuf>> = parts.into_iter().map(path_in).collect::<Result<_, _>>()?;
    paths.map(Part::Paths).ok_or_else(|| AdminError::not_here(NOT_FROM_MEMORY))
}

async fn update_part(admin: Shared, part: Part) -> Answered {
    let write = |control: Arc<Control>| async move {
        match part {
            Part::Version(directory, version) => control.write_version(directory, version).await,
            Part::Paths(paths) => control.write_paths(paths).await,
        }
    };
    admin.timed(Operation::Update("update_weights"), write).await?;
    Ok(answer(json!({ "message": "Weights updated" })))
}

/// `POST /finish_weight_update`.
async fn finish(State(admin): State<Shared>, Fields(fields): Fields) -> Answered {
    only(&fields, &["weight_version"])?;
    let label = weight_name_of(&fields, "weight_version")?;
    let updated = admin
        .timed(Operation::Update("finish_weight_update"), |control| async move {
            control.finish_update(label.map(Into::into)).await
        })
        .await?;
    Ok(answer(json!({ "message": and_needs("Weight update finished", &updated) })))
}

/// What a client of SGLang's has to know that is not told what becomes of its requests.
const GO_ON: &str = ". Requests that run go on, as in vLLM; SGLang's call ends them, as this one does with \
                     `abort_all_requests`: true";

/// `POST /update_weight_version`, of vLLM, where requests go on, and of SGLang, which ends them unless it is told not to.
async fn relabel(State(admin): State<Shared>, RequiredFields(fields): RequiredFields) -> Answered {
    only(&fields, &["new_version", "abort_all_requests"])?;
    let version = weight_name_of(&fields, "new_version")?.ok_or_else(|| missing(&fields, "new_version"))?;
    let is_told = fields.get("abort_all_requests").is_some_and(|aborts| !aborts.is_null());
    let aborts = truth_of(&fields, "abort_all_requests", false)?;
    let load = admin.control.engine().load();
    let go_on = if !is_told && load.running + load.waiting + load.paused > 0 { GO_ON } else { "" };
    let label = version.clone();
    let relabelled = admin.call(|control| async move { control.relabel(label.into(), aborts).await }).await?;
    let message = match relabelled {
        Relabelled::Now => format!("Weight version updated to {version}{go_on}"),
        Relabelled::OnceUpdated => {
            format!("Weight version {version} is that of the weights that the update brings{go_on}")
        }
    };
    Ok(answer(json!({ "success": true, "message": message, "new_version": version })))
}

async fn weight_info(State(admin): State<Shared>) -> Response {
    let weights = admin.control.weights();
    answer(json!({ "weight_version": &*weights.label, "updates": weights.number }))
}

/// The checksums of all tensors, by name, and that of the model.
pub(super) async fn checksums(admin: &Shared) -> Result<(BTreeMap<String, String>, String), AdminError> {
    let checksums = admin.call(|control| async move { control.checksums().await }).await?;
    let model = Checksum::of_model(&checksums).to_string();
    Ok((checksums.into_iter().map(|(name, checksum)| (name, checksum.to_string())).collect(), model))
}

/// `POST /weight_checker`: checksums of all tensors, or how they differ from those that a trainer has; or has all of them
/// lost, so that a comparison shows what was sent since.
async fn weight_checker(State(admin): State<Shared>, RequiredFields(fields): RequiredFields) -> Answered {
    only(&fields, &["action", "baseline"])?;
    let action = required_text(&fields, "action")?;
    match action.as_str() {
        "checksum" => {
            let (tensors, model) = checksums(&admin).await?;
            Ok(answer(json!({ "checksums": tensors, "model": model })))
        }
        "reset" => {
            admin.call(|control| async move { control.reset_weights().await }).await?;
            Ok(answer(json!({ "status": "reset" })))
        }
        "compare" => {
            let Some(Value::Object(baseline)) = fields.get("baseline") else {
                return Err(AdminError::bad("action='compare' requires a 'baseline' object"));
            };
            check_baseline(baseline)?;
            let (checksums, _) = checksums(&admin).await?;
            let differs = |name: &&String| {
                baseline.get(*name).and_then(Value::as_str) != checksums.get(*name).map(String::as_str)
            };
            let names: BTreeSet<&String> = baseline.keys().chain(checksums.keys()).collect();
            let mismatches: Vec<&String> = names.into_iter().filter(differs).collect();
            Ok(answer(json!({ "match": mismatches.is_empty(), "mismatches": mismatches })))
        }
        _ => Err(AdminError::field("body.action", "`action` must be 'checksum', 'reset' or 'compare'")),
    }
}

/// Refuses checksums that are no texts: they would count as those of tensors that are not there.
fn check_baseline(baseline: &Map<String, Value>) -> Result<(), AdminError> {
    let Some((name, _)) = baseline.iter().find(|(_, checksum)| !checksum.is_string()) else { return Ok(()) };
    check_label("body.baseline", Some(name))?;
    let message = format!("the checksum of `{name}` in `baseline` must be a string, as the action `checksum` gives it");
    Err(AdminError::field("body.baseline", message))
}
