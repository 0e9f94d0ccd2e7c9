//! What the control plane is asked, each path at least once.

use std::{
    fmt::{Display, Formatter, Result as Formatted},
    fs,
    path::Path,
};

use axum::http::Method;
use serde_json::json;
use tempfile::TempDir;
use tito::engine::native::NativeSettings;

use crate::it::{
    adapters::adapter,
    control::{MODEL, norm_file},
    control_deltas::publish,
};

/// What stands for a file of safetensors in a body.
const FILE: &str = "FILE";
/// The query of the file with the numbers of which the delta on disk says how they changed.
const VERSION_0: &str = "?weight_version=0";
/// The one number of a norm in it, and in everything that comes after it.
const BASE: f32 = 1.0;
const TRAINED: f32 = 0.5;
/// What stands for an adapter in a body.
const ADAPTER: &str = "ADAPTER";

/// One call: a path, with a query or a body.
#[derive(Clone)]
pub(super) struct Ask {
    pub(super) method: Method,
    pub(super) path: &'static str,
    query: &'static str,
    body: &'static str,
}

impl Display for Ask {
    fn fmt(&self, f: &mut Formatter<'_>) -> Formatted {
        f.write_str(&self.call())?;
        if self.body.is_empty() { Ok(()) } else { write!(f, " {}", self.body) }
    }
}

impl Ask {
    /// Without its body.
    pub(super) fn call(&self) -> String {
        format!("{} {}{}", self.method, self.path, self.query)
    }

    /// `POST`s what is written as a query and a body, with a space between them.
    fn post(path: &'static str, asked: &'static str) -> Self {
        let (query, body) = match asked.strip_prefix('?').and(asked.split_once(' ')) {
            Some(both) => both,
            None if asked.starts_with('?') => (asked, ""),
            None => ("", asked),
        };
        Self { method: Method::POST, path, query, body }
    }

    pub(super) fn uri(&self) -> String {
        format!("{}{}", self.path, self.query)
    }

    /// The media type and the bytes, with what lies on `disk`.
    pub(super) fn body(&self, disk: &Path, settings: &NativeSettings) -> (&'static str, Vec<u8>) {
        let bytes = "application/octet-stream";
        match self.body {
            FILE => (bytes, norm_file("model.norm.weight", if self.query == VERSION_0 { BASE } else { TRAINED })),
            ADAPTER => (bytes, adapter(settings)),
            text => ("application/json", text.replace("DIR", disk.to_str().unwrap()).into_bytes()),
        }
    }
}

/// A call, on what kind of server, and what is asked before what came of it can be seen.
pub(super) struct Row {
    pub(super) asked: Ask,
    pub(super) first: Vec<Ask>,
    pub(super) then: Vec<Ask>,
    /// Whether no request runs.
    pub(super) is_idle: bool,
    /// Whether it answers only once the request that runs has ended by itself.
    pub(super) waits: bool,
    /// Whether it only looks.
    pub(super) is_look: bool,
}

fn row(path: &'static str, asked: &'static str) -> Row {
    let (first, then) = (Vec::new(), Vec::new());
    Row { asked: Ask::post(path, asked), first, then, is_idle: false, waits: false, is_look: false }
}

/// A `GET` that only looks.
fn look(path: &'static str) -> Row {
    let row = row(path, "");
    Row { asked: Ask { method: Method::GET, ..row.asked }, is_look: true, is_idle: true, ..row }
}

impl Row {
    fn after(mut self, path: &'static str, asked: &'static str) -> Self {
        self.first.push(Ask::post(path, asked));
        // What stands still takes up no request.
        self.is_idle = true;
        self
    }

    fn then(mut self, path: &'static str, asked: &'static str) -> Self {
        self.then.push(Ask::post(path, asked));
        self
    }

    fn idle(self) -> Self {
        Self { is_idle: true, ..self }
    }

    fn waits(self) -> Self {
        Self { waits: true, ..self }
    }

    fn looks(self) -> Self {
        Self { is_look: true, ..self }
    }
}

/// Paths that answer with success where there is nothing to do, and why that is true.
pub(super) const IDLE: [(&str, &str); 5] = [
    ("/reset_mm_cache", "there is no such cache"),
    ("/reset_encoder_cache", "there is no such cache"),
    ("/init_weight_transfer_engine", "weights that come from files need no connection"),
    ("/shutdown_weight_transfer_engine", "there is no connection"),
    ("/post_process_weights", "each update makes its weights ready by itself"),
];

/// The directories that bodies name: a checkpoint, a delta of what the server was started with, and an adapter.
pub(super) fn disk(settings: &NativeSettings) -> TempDir {
    let disk = tempfile::tempdir().unwrap();
    let folder = |name: &str| {
        let path = disk.path().join(name);
        fs::create_dir_all(&path).unwrap();
        path
    };
    fs::write(folder("step_7").join("model.safetensors"), norm_file("model.norm.weight", TRAINED)).unwrap();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join(MODEL);
    fs::copy(model.join("model.safetensors"), folder("local").join("model.safetensors")).unwrap();
    publish(&disk, 1, (BASE, Some(TRAINED)));
    let said = json!({ "peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["q_proj"] });
    fs::write(folder("adapter").join("adapter_config.json"), said.to_string()).unwrap();
    fs::write(folder("adapter").join("adapter_model.safetensors"), adapter(settings)).unwrap();
    disk
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = of_pauses();
    rows.extend(of_sleep());
    rows.extend(of_weights());
    rows.extend(of_adapters());
    rows.extend(of_looks());
    rows.extend(refused());
    rows
}

fn of_pauses() -> Vec<Row> {
    vec![
        row("/pause", ""),
        row("/pause", "?mode=wait").waits(),
        row("/pause", "?mode=keep"),
        row("/pause", "?clear_cache=false"),
        row("/resume", "").after("/pause", "?mode=keep"),
        row("/abort_requests", "{}"),
        row("/abort_requests", r#"{"request_ids": ["named"]}"#),
        row("/abort_request", r#"{"rid": "named"}"#),
        row("/abort_request", r#"{"abort_all": true}"#),
        row("/abort_request", "{}"),
        row("/reset_prefix_cache", "").idle(),
        row("/reset_prefix_cache", "?reset_running_requests=true"),
        row("/flush_cache", "").idle(),
        row("/reset_mm_cache", ""),
        row("/reset_encoder_cache", ""),
        row("/pause_generation", r#"{"mode": "abort"}"#),
        row("/pause_generation", r#"{"mode": "in_place"}"#),
        row("/pause_generation", r#"{"mode": "retract"}"#),
        row("/continue_generation", "").after("/pause_generation", ""),
        row("/areal_pause_generation", ""),
        row("/areal_continue_generation", "").after("/areal_pause_generation", ""),
    ]
}

fn of_sleep() -> Vec<Row> {
    vec![
        row("/sleep", "?level=0"),
        row("/sleep", "?level=1"),
        row("/sleep", "?level=1&mode=keep"),
        row("/sleep", "?level=2"),
        row("/wake_up", "").after("/sleep", "?level=1"),
        row("/wake_up", "?tags=kv_cache").after("/sleep", "?level=1"),
        row("/release_kv_cache_memory", "").after("/pause", "?mode=keep"),
        row("/release_kv_cache_memory", ""),
        row("/release_memory_occupation", ""),
        row("/release_memory_occupation", r#"{"tags": ["kv_cache"]}"#),
        row("/release_memory_occupation", r#"{"tags": ["weights"]}"#),
        row("/release_memory_occupation", r#"{"tags": ["cuda_graph"]}"#),
        row("/release_memory_occupation", r#"{"tags": ["all"]}"#),
        row("/resume_memory_occupation", "").after("/release_memory_occupation", ""),
        row("/resume_memory_occupation", r#"{"tags": ["weights"]}"#)
            .after("/release_memory_occupation", r#"{"tags": ["weights"]}"#),
        row("/resume_memory_occupation", r#"{"tags": ["kv_cache"]}"#)
            .after("/release_memory_occupation", r#"{"tags": ["kv_cache"]}"#),
        row("/resume_memory_occupation", r#"{"tags": ["all"]}"#).after("/release_memory_occupation", ""),
        row("/collective_rpc", r#"{"method": "skyrl_sleep_for_weight_sync"}"#),
        row("/collective_rpc", r#"{"method": "skyrl_wake_for_weight_sync"}"#).after("/sleep", "?level=1"),
        row("/collective_rpc", r#"{"method": "skyrl_wake_for_weight_sync", "kwargs": {"tags": "weights"}}"#)
            .after("/sleep", "?level=1"),
        row("/collective_rpc", r#"{"method": "get_weights_checksum"}"#),
    ]
}

fn of_weights() -> Vec<Row> {
    vec![
        row("/start_weight_update", ""),
        row("/finish_weight_update", r#"{"weight_version": "7"}"#)
            .after("/start_weight_update", "")
            .after("/update_weights", r#"{"update_info": {"weight_dir": "DIR/step_7"}}"#),
        row("/update_weights", r#"{"weight_dir": "DIR/step_7", "weight_version": "7"}"#),
        row("/update_weights", "?weight_version=7 FILE"),
        row("/update_weights", r#"{"weight_dir": "DIR/weight_v000001"}"#)
            .after("/update_weights", "?weight_version=0 FILE"),
        row("/update_weights", r#"{"update_info": {"names": ["a"], "dtype_names": ["bfloat16"]}}"#),
        row("/update_weights_from_disk", r#"{"model_path": "DIR/step_7", "weight_version": "7"}"#),
        row("/update_weights_from_disk", r#"{"model_path": "DIR/step_7", "load_format": "dummy"}"#),
        row("/begin_weight_update", r#"{"selector": "all"}"#),
        row("/begin_weight_update", r#"{"selector": "draft"}"#),
        row("/begin_weight_update", "").after("/begin_weight_update", ""),
        row("/update_weights_from_disk", r#"{"model_path": "DIR/step_7", "weight_version": "7"}"#)
            .after("/begin_weight_update", "")
            .then("/end_weight_update", ""),
        row("/end_weight_update", "")
            .after("/begin_weight_update", "")
            .after("/update_weights_from_disk", r#"{"model_path": "DIR/step_7", "weight_version": "7"}"#),
        row("/end_weight_update", ""),
        row("/update_weights_from_tensor", "{}").after("/begin_weight_update", ""),
        row("/update_weights_from_disk", r#"?weight_version=7 {"model_path": "DIR/step_7"}"#)
            .after("/begin_weight_update", ""),
        row("/update_weights_from_disk", r#"{"model_path": "DIR/step_7", "keep_pause": true}"#),
        row("/get_weights_by_name", r#"{"name": "model.norm.weight", "truncate_size": 3}"#).looks(),
        row("/get_weights_by_name", r#"{"name": "a"}"#),
        row("/areal_update_weights", r#"{"model_path": "DIR/step_7"}"#),
        row("/collective_rpc", r#"{"method": "reload_weights", "kwargs": {"weights_path": "DIR/step_7"}}"#),
        row("/fetch_weights", r#"{"sync_dir": "DIR", "target_version": 1}"#).looks(),
        row("/fetch_weights", r#"{"sync_dir": "DIR", "target_version": 9}"#),
        row("/pull_weights", r#"{"source_dir": "DIR", "target_version": "1", "local_checkpoint_dir": "DIR/own"}"#)
            .after("/update_weights", "?weight_version=0 FILE")
            .then("/update_weights_from_disk", r#"{"model_path": "DIR/own", "weight_version": "1"}"#),
        row("/update_weight_version", r#"{"new_version": "8"}"#),
        row("/update_weight_version", r#"{"new_version": "8", "abort_all_requests": true}"#),
        row("/weight_checker", r#"{"action": "checksum"}"#).looks(),
        row("/weight_checker", r#"{"action": "compare", "baseline": {"a": "b"}}"#).looks(),
        row("/weight_checker", r#"{"action": "reset"}"#),
        row("/weights_checker", r#"{"action": "checksum"}"#).looks(),
        row("/weights_checker", r#"{"action": "reset_tensors"}"#),
    ]
}

fn of_adapters() -> Vec<Row> {
    const LOADED: (&str, &str) = ("/v1/load_lora_adapter", r#"{"lora_name": "a", "lora_path": "DIR/adapter"}"#);
    let unload = |path| row(path, r#"{"lora_name": "a"}"#).after(LOADED.0, LOADED.1);
    vec![
        row(LOADED.0, LOADED.1),
        row("/v1/load_lora_adapter", "?lora_name=a ADAPTER"),
        row("/load_lora_adapter", LOADED.1),
        row("/skyrl/v1/load_lora_adapter", LOADED.1),
        row("/areal_update_weights_lora", r#"{"lora_name": "a", "lora_model_path": "DIR/adapter"}"#),
        row("/load_lora_adapter_from_tensors", r#"{"lora_name":"a","config_dict":{}}"#),
        row("/v1/load_lora_adapter", LOADED.1).after(LOADED.0, LOADED.1),
        unload("/v1/unload_lora_adapter"),
        unload("/unload_lora_adapter"),
        row("/unload_lora_adapter", r#"{"lora_name": "a"}"#),
    ]
}

fn of_looks() -> Vec<Row> {
    let mut rows: Vec<Row> = [
        "/is_paused",
        "/is_sleeping",
        "/get_world_size",
        "/server_info",
        "/weight_info",
        "/get_weight_version",
        "/health_generate",
        "/model_info",
        "/get_model_info",
        "/get_server_info",
        "/v1/loads",
        "/liveness",
    ]
    .into_iter()
    .map(look)
    .collect();
    rows.push(look("/is_paused").after("/pause", ""));
    rows.push(look("/is_sleeping").after("/sleep", "?level=1"));
    rows.push(look("/weight_info").after("/update_weights", r#"{"weight_dir": "DIR/step_7", "weight_version": "7"}"#));
    rows
}

fn refused() -> Vec<Row> {
    let mut rows: Vec<Row> = [
        "/start_draft_weight_update",
        "/update_weights_from_tensor",
        "/update_weights_from_distributed",
        "/update_weights_from_ipc",
        "/init_weights_update_group",
        "/destroy_weights_update_group",
        "/open_session",
        "/areal_set_update_weight_meta",
        "/areal_set_update_weight_meta_lora",
        "/areal_update_weights_xccl",
        "/areal_update_weights_lora_xccl",
        "/areal_init_weights_update_group",
    ]
    .into_iter()
    .map(|path| row(path, "{}"))
    .collect();
    rows.extend([
        row("/init_weight_transfer_engine", r#"{"init_info": {}}"#),
        row("/init_weight_transfer_engine", r#"{"init_info": {"master_address": "a", "master_port": 1}}"#),
        row("/init_weight_transfer_engine", r#"{"init_info": {"packed": true}}"#),
        row("/shutdown_weight_transfer_engine", ""),
        row("/post_process_weights", r#"{"post_process_quantization": true}"#),
        row("/post_process_weights", r#"{"post_load_weights": true}"#),
        row("/close_session", r#"{"session_id": "a"}"#),
    ]);
    rows
}
