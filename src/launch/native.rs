//! The native engine: whether it is the one, and what it is told.

use std::sync::Arc;

use anyhow::Context;
use serde_json::{Map, Value};

use super::{
    device::Device,
    progress::Progress,
    weights::{self, available_memory},
};
use crate::{
    config::{Dtype as Asked, ServeArgs},
    engine::{
        Engine,
        native::{self, Dtype, KernelSet, NativeEngine, NativeSettings, WeightsSource},
    },
    gguf::{GgufError, GgufFile},
    model::{ModelFiles, ModelSource},
};

/// The share of the free memory that keys and values may take unless told otherwise.
const KV_CACHE_SHARE: u64 = 4;
/// What they may take where the system does not say how much memory is free.
const KV_CACHE_BYTES: u64 = 4 << 30;

/// Tokens of a step unless told otherwise: those that keep a processor busy, and those that keep a GPU busy.
const STEP_TOKENS: usize = 512;
const GPU_STEP_TOKENS: usize = 8192;

/// What the native engine is to load.
pub(super) struct Found {
    config: Map<String, Value>,
    source: WeightsSource,
}

/// Looks whether the native engine serves this; the reason if it does not.
pub(super) fn find(args: &ServeArgs, files: &ModelFiles) -> anyhow::Result<Result<Found, String>> {
    let (config, source) = match &files.source {
        ModelSource::Directory { path } => (files.config.raw.clone(), WeightsSource::Directory(path.clone())),
        ModelSource::Gguf { path } => {
            let file = GgufFile::open(path)?;
            let config = match file.model_config() {
                Ok(config) => config,
                Err(GgufError::Unsupported(reason)) => return Ok(Err(reason)),
                Err(error) => return Err(error.into()),
            };
            let keep_blocks = weights::keep_blocks(&file, args.gguf_weights);
            (config, WeightsSource::Gguf { path: path.clone(), keep_blocks })
        }
    };
    if args.dtype == Asked::Float16 {
        return Ok(Err("it does not compute in float16; use bfloat16 or float32".to_owned()));
    }
    Ok(native::supports(&config).map(|()| Found { config, source }))
}

/// Loads the engine.
pub(super) async fn load(
    args: &ServeArgs,
    device: Device,
    Found { config, source }: Found,
    max_model_len: usize,
    progress: &Progress,
) -> anyhow::Result<Arc<dyn Engine>> {
    let default_tokens = if device == Device::Cpu { STEP_TOKENS } else { GPU_STEP_TOKENS };
    let settings = NativeSettings {
        source,
        dtype: dtype(args.dtype, &config),
        config,
        max_model_len,
        seed: args.seed,
        max_num_seqs: args.max_num_seqs,
        max_num_batched_tokens: args.max_num_batched_tokens.unwrap_or(default_tokens),
        max_waiting: args.max_waiting,
        device: of_engine(device, args),
        kv_cache_bytes: args
            .kv_cache_memory
            .unwrap_or_else(|| available_memory().map_or(KV_CACHE_BYTES, |bytes| bytes / KV_CACHE_SHARE)),
        threads: args.threads,
        kernels: args.kernels.as_deref().map(kernels).transpose()?,
    };
    if let Device::Cuda(number) = device {
        progress.say(&format!(
            "on cuda:{number} the native engine is new: run scripts/gpu-check on this machine before you trust it"
        ));
    }
    let step = Arc::new(progress.step("loading the model"));
    let counted = Arc::clone(&step);
    let loaded =
        tokio::task::spawn_blocking(move || NativeEngine::load(&settings, &mut |done, all| counted.count(done, all)));
    let engine = loaded.await.context("loading the model panicked")??;
    if let Some(step) = Arc::into_inner(step) {
        step.done();
    }
    Ok(Arc::new(engine))
}

fn of_engine(device: Device, args: &ServeArgs) -> native::Device {
    match device {
        Device::Cpu => native::Device::Cpu,
        Device::Cuda(number) => native::Device::Cuda {
            number,
            deterministic: args.deterministic,
            memory_share: args.kv_cache_memory.is_none().then_some(args.gpu_memory_utilization),
        },
    }
}

/// `auto` is the type of the weights; what bf16 cannot hold is widened to f32.
fn dtype(asked: Asked, config: &Map<String, Value>) -> Dtype {
    let stored = ["dtype", "torch_dtype"].into_iter().find_map(|key| config.get(key).and_then(Value::as_str));
    match (asked, stored) {
        (Asked::Bfloat16, _) | (Asked::Auto, Some("bfloat16")) => Dtype::Bf16,
        _ => Dtype::F32,
    }
}

fn kernels(name: &str) -> anyhow::Result<KernelSet> {
    let found = KernelSet::ALL.into_iter().find(|set| set.name() == name);
    found.with_context(|| {
        let names: Vec<&str> = KernelSet::ALL.into_iter().map(KernelSet::name).collect();
        format!("--kernels {name} is none of {}", names.join(", "))
    })
}
