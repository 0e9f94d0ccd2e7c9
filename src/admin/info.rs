//! What a server says of itself to trainers.

use std::time::Duration;

use axum::{
    extract::State,
    response::Response,
    routing::{MethodRouter, get},
};
use futures::{
    StreamExt,
    future::{Either, select},
};
use serde_json::{Value, json};

use super::{Answered, Shared, error::health, json as answer, query::Parameters};
use crate::engine::{AdapterLimits, EngineError, EngineOutput, SamplingParams, SequenceRequest};

/// How long a token may take that shows that the engine is well.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often it is looked whether other requests have got tokens meanwhile.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

pub(super) fn routes() -> Vec<(&'static str, MethodRouter<Shared>)> {
    vec![("/liveness", get(liveness))]
}

/// `GET /liveness`, of prime-rl.
async fn liveness(State(admin): State<Shared>) -> Response {
    let well = admin.control.engine().health().is_ok();
    health(well, Some(json!({ "status": if well { "ok" } else { "engine_unresponsive" } })))
}

/// `GET /health_generate`: samples a token, unless nothing is to be sampled now. As in SGLang, one of another request is as
/// good: where all seats are taken, the token that is asked for waits for one.
pub(super) async fn health_generate(State(admin): State<Shared>) -> Response {
    health(generates(&admin).await, None)
}

async fn generates(admin: &Shared) -> bool {
    let engine = admin.control.engine();
    let shown = admin.control.status();
    if engine.health().is_err() || admin.control.lacking() > 0 {
        return false;
    }
    if shown.paused || shown.asleep || shown.updating {
        return true;
    }
    let params = SamplingParams { max_tokens: 1, ..SamplingParams::default() };
    let Ok(params) = params.validated(engine.info().vocab_size) else { return false };
    let others = std::pin::pin!(more_outputs(admin, admin.control.outputs()));
    let outputs = engine.generate(SequenceRequest::new([0], params));
    let mut token =
        Box::pin(outputs.filter(|output| std::future::ready(matches!(output, Ok(EngineOutput::Token(_)) | Err(_)))));
    match tokio::time::timeout(PATIENCE, select(token.next(), others)).await {
        Ok(Either::Left((Some(Ok(_)), _)) | Either::Right(_)) => true,
        // It is well, and has no room for one request more.
        Ok(Either::Left((Some(Err(EngineError::Overloaded)), _))) => engine.health().is_ok(),
        // Somebody may have paused it meanwhile.
        _ => engine.health().is_ok() && admin.control.stands_still(),
    }
}

/// Waits until the engine has given requests of clients more than it had `before`.
async fn more_outputs(admin: &Shared, before: u64) {
    while admin.control.outputs() == before {
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

/// The type of the weights as torch calls it.
fn torch_dtype(admin: &Shared) -> &'static str {
    let dtype = &admin.control.engine().info().dtype;
    if dtype.starts_with("bf16") {
        "torch.bfloat16"
    } else if dtype.starts_with("f32") {
        "torch.float32"
    } else {
        "torch.float16"
    }
}

/// The type of adapters, which is that of activations.
fn lora_dtype(admin: &Shared) -> &'static str {
    let is_wide = admin.control.engine().info().dtype.ends_with("f32 activations");
    if is_wide { "torch.float32" } else { torch_dtype(admin) }
}

fn config(admin: &Shared) -> Value {
    let info = admin.control.engine().info();
    json!({
        "model_config": {
            "model": admin.served.model,
            "served_model_name": admin.served.name,
            "dtype": torch_dtype(admin),
            "max_model_len": info.max_model_len,
        },
        "parallel_config": { "data_parallel_size": 1, "tensor_parallel_size": 1, "pipeline_parallel_size": 1, "world_size": 1 },
        "lora_config": lora_config(admin),
        // A trainer that sends weights by NCCL asks for it before it waits for a connection that never comes.
        "weight_transfer_config": null,
        "engine": info.engine,
        "device": info.device,
    })
}

/// The bounds of adapters; null where none are served.
fn lora_config(admin: &Shared) -> Value {
    let limits = admin.adapters.limits();
    limits.map_or(Value::Null, |AdapterLimits { max_loras, max_lora_rank }| {
        json!({
            "max_lora_rank": max_lora_rank,
            "max_loras": max_loras,
            "max_cpu_loras": admin.adapters.most(),
            "lora_dtype": lora_dtype(admin),
            "fully_sharded_loras": false,
        })
    })
}

/// `GET /server_info`: what TRL reads of vLLM's answer, and what slime reads of SGLang's.
pub(super) async fn server_info(State(admin): State<Shared>, query: Parameters) -> Answered {
    let config = match query.one_of("config_format", &["text", "json"], "text")? {
        "json" => config(&admin),
        _ => Value::String(config(&admin).to_string()),
    };
    let mut said = arguments(&admin);
    said["vllm_config"] = config;
    said["vllm_env"] = json!({});
    said["system_env"] = json!({});
    Ok(answer(said))
}

/// SGLang's arguments, as far as they mean something here.
fn arguments(admin: &Shared) -> Value {
    json!({
        "model_path": admin.served.model,
        "served_model_name": admin.served.name,
        "tp_size": 1,
        "pp_size": 1,
        "dp_size": 1,
        "ep_size": 1,
        "moe_dp_size": 1,
        "num_gpus": 1,
        "nnodes": 1,
        "node_rank": 0,
        "base_gpu_id": 0,
        "gpu_id_step": 1,
        "dtype": torch_dtype(admin).trim_start_matches("torch."),
        "enable_memory_saver": false,
        "disaggregation_mode": "null",
        "encoder_only": false,
        "weight_version": &*admin.control.weights().label,
        "version": env!("CARGO_PKG_VERSION"),
    })
}

pub(super) async fn get_server_info(State(admin): State<Shared>) -> Response {
    let mut said = arguments(&admin);
    if let Some(tokens) = admin.served.kv_block_size
        && let (Some(said), Value::Object(blocks)) = (said.as_object_mut(), of_blocks(&admin.served.name, tokens))
    {
        said.extend(blocks);
    }
    answer(said)
}

/// What routers read that follow events of the cache: `model_id` and `kv_block_size` of vllm-router's `worker_spec.rs`,
/// which takes `block_size` for the same field and refuses both. Replicas of one model serve it under one name.
pub fn of_blocks(name: &str, tokens: usize) -> Value {
    json!({ "model_id": name, "kv_block_size": tokens })
}

pub(super) async fn model_info(State(admin): State<Shared>) -> Response {
    answer(json!({
        "model_path": admin.served.model,
        "tokenizer_path": admin.served.model,
        "served_model_name": admin.served.name,
        "is_generation": true,
        "preferred_sampling_params": null,
        "weight_version": &*admin.control.weights().label,
    }))
}

/// `GET /v1/loads`, of SGLang: of its sections, there is `core`.
pub(super) async fn loads(State(admin): State<Shared>, query: Parameters) -> Answered {
    query.one_of("include", &["all", "core"], "all")?;
    let load = admin.control.engine().load();
    let (running, waiting) = (load.running + load.paused, load.waiting);
    let one = json!({ "dp_rank": 0, "num_running_reqs": running, "num_waiting_reqs": waiting, "num_total_reqs": running + waiting });
    let mut said = one.clone();
    said["loads"] = json!([one]);
    Ok(answer(said))
}
