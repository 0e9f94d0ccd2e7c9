//! The native engine: whether it is the one, and what it is told.

use std::sync::Arc;

use anyhow::{Context, bail};
use serde_json::{Map, Value};

use super::{
    progress::Progress,
    weights::{Weights, available_memory},
};
use crate::{
    config::{Dtype as Asked, ServeArgs},
    engine::{
        Engine,
        native::{self, Dtype, KernelSet, NativeEngine, NativeSettings},
    },
    model::{ModelFiles, ModelSource},
};

/// The share of the free memory that keys and values may take unless told otherwise.
const KV_CACHE_SHARE: u64 = 4;
/// What they may take where the system does not say how much memory is free.
const KV_CACHE_BYTES: u64 = 4 << 30;

/// The content of config.json; that of a widened copy where there is one.
pub(super) fn config(files: &ModelFiles, weights: &Weights) -> anyhow::Result<Map<String, Value>> {
    match (&files.source, &weights.source) {
        (ModelSource::Gguf { .. }, ModelSource::Directory { path }) => {
            let path = path.join("config.json");
            let text = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            serde_json::from_slice(&text).with_context(|| format!("cannot read {}", path.display()))
        }
        _ => Ok(files.config.raw.clone()),
    }
}

/// Whether the native engine serves this; the reason if it does not.
pub(super) fn supports(args: &ServeArgs, weights: &Weights, config: &Map<String, Value>) -> Result<(), String> {
    if matches!(weights.source, ModelSource::Gguf { .. }) {
        return Err("it does not compute with quantised weights".to_owned());
    }
    if args.dtype == Asked::Float16 {
        return Err("it does not compute in float16".to_owned());
    }
    native::supports(config)
}

/// Loads the engine.
pub(super) async fn load(
    args: &ServeArgs,
    config: Map<String, Value>,
    weights: Weights,
    max_model_len: usize,
    progress: &Progress,
) -> anyhow::Result<Arc<dyn Engine>> {
    let ModelSource::Directory { path } = &weights.source else {
        bail!("the native engine reads quantised weights only when they are widened: --gguf-weights widened");
    };
    let settings = NativeSettings {
        directory: path.clone(),
        dtype: dtype(args.dtype, &config)?,
        config,
        max_model_len,
        seed: args.seed,
        max_num_seqs: args.max_num_seqs,
        max_num_batched_tokens: args.max_num_batched_tokens,
        max_waiting: args.max_waiting,
        kv_cache_bytes: args
            .kv_cache_memory
            .unwrap_or_else(|| available_memory().map_or(KV_CACHE_BYTES, |bytes| bytes / KV_CACHE_SHARE)),
        threads: args.threads,
        kernels: args.kernels.as_deref().map(kernels).transpose()?,
    };
    let step = progress.step("loading the model");
    let loaded = tokio::task::spawn_blocking(move || {
        let mut report = |_, _| ();
        let engine = NativeEngine::load(&settings, &mut report);
        drop(weights);
        engine
    });
    let engine = loaded.await.context("loading the model panicked")??;
    step.done();
    Ok(Arc::new(engine))
}

/// `auto` is the type of the weights; what bf16 cannot hold is widened to f32.
fn dtype(asked: Asked, config: &Map<String, Value>) -> anyhow::Result<Dtype> {
    let stored = ["dtype", "torch_dtype"].into_iter().find_map(|key| config.get(key).and_then(Value::as_str));
    match (asked, stored) {
        (Asked::Bfloat16, _) | (Asked::Auto, Some("bfloat16")) => Ok(Dtype::Bf16),
        (Asked::Float32 | Asked::Auto, _) => Ok(Dtype::F32),
        (Asked::Float16, _) => bail!("the native engine does not compute in float16; use bfloat16 or float32"),
    }
}

fn kernels(name: &str) -> anyhow::Result<KernelSet> {
    let found = KernelSet::ALL.into_iter().find(|set| set.name() == name);
    found.with_context(|| {
        let names: Vec<&str> = KernelSet::ALL.into_iter().map(KernelSet::name).collect();
        format!("--kernels {name} is none of {}", names.join(", "))
    })
}
