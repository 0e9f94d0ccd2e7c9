//! The native engine: whether it is the one, and what it is told.

use std::{path::Path, sync::Arc};

use anyhow::{Context, anyhow};
use serde_json::{Map, Value};

use super::{
    device::Device, images, kernels, kv_events, load_plan::LoadPlan, memory, progress::Progress,
    settings::EngineSettings, step_gate, weights,
};
use crate::{
    config::Dtype as AskedDtype,
    engine::{
        Engine,
        native::{self, Dtype, NativeEngine, NativeSettings, WeightsSource},
    },
    files,
    gguf::{GgufError, GgufFile},
    model::ModelSource,
};

/// What is said where the command line asks for a type in which this engine has no arithmetic.
const FLOAT16: &str = "--dtype float16: the native engine has no arithmetic in float16, and computes in float32, which holds \
    every number of float16 and takes twice the memory; --dtype bfloat16 takes half of it";

/// What the native engine is to load.
pub(super) struct Found {
    config: Map<String, Value>,
    source: WeightsSource,
    image_patches: Option<usize>,
}

/// Looks whether the native engine serves this; the reason if it does not.
pub(super) fn find(load_plan: LoadPlan<'_>) -> anyhow::Result<Result<Found, String>> {
    let LoadPlan { settings: asked, images, files, .. } = load_plan;
    let (config, source) = match &files.source {
        ModelSource::Directory { path } => (files.config.raw.clone(), WeightsSource::Directory(path.clone())),
        ModelSource::Gguf { path } => {
            let file = GgufFile::open(path)?;
            let config = match file.model_config() {
                Ok(config) => config,
                Err(GgufError::Unsupported(reason)) => return Ok(Err(reason)),
                Err(error) => return Err(error).with_context(|| format!("{} cannot be used", path.display())),
            };
            let keep_blocks = weights::keep_blocks(&file, asked.gguf_weights);
            (config, WeightsSource::Gguf { path: path.clone(), keep_blocks })
        }
    };
    let image_patches = images::most_patches(files, images)?;
    Ok(native::supports(&config).map(|()| Found { config, source, image_patches }))
}

/// What the engine is told; fails with one sentence if the machine cannot hold the weights.
pub(super) async fn settings(
    asked: &EngineSettings,
    device: Device,
    Found { config, source, image_patches }: Found,
    max_model_len: usize,
) -> anyhow::Result<NativeSettings> {
    let asked_kernels = asked.kernels.as_deref().map(kernels::parse_name).transpose()?;
    let unusable_kernels = match device {
        Device::Cpu => kernels::unusable(asked_kernels).await?,
        Device::Cuda(_) => Vec::new(),
    };
    if asked.dtype == AskedDtype::Float16 {
        tracing::warn!("{FLOAT16}");
    }
    let dtype = asked.native_dtype(&config);
    let settings = NativeSettings {
        source: as_wanted(asked, source, &config, dtype)?,
        dtype,
        f32_activations: asked.f32_activations(),
        config,
        max_model_len,
        max_num_seqs: asked.max_num_seqs,
        max_num_batched_tokens: asked.step_tokens(device),
        max_waiting: asked.max_waiting,
        return_routed_experts: asked.return_routed_experts,
        drafting: asked.drafting,
        adapters: asked.adapters,
        image_patches,
        cache_events: asked.kv_events.as_ref().map(|config| config.max_queue_size),
        device: asked.native_device(device),
        kv_cache_bytes: asked.kv_cache_bytes(),
        threads: asked.threads,
        kernels: asked_kernels,
        unusable_kernels,
    };
    if device == Device::Cpu
        && let Some(bytes) = weight_bytes(&settings)?
    {
        memory::check(bytes, asked.kv_cache_memory)?;
    }
    Ok(settings)
}

/// Loads the engine.
pub(super) async fn load(
    asked: &EngineSettings,
    device: Device,
    found: Found,
    max_model_len: usize,
    progress: &Progress,
) -> anyhow::Result<Arc<dyn Engine>> {
    let settings = settings(asked, device, found, max_model_len).await?;
    let publisher = kv_events::bind(asked.kv_events.as_ref()).await?;
    if let Device::Cuda(number) = device {
        progress.say(&format!(
            "on cuda:{number}: the native engine was checked on an H100 and an H200 only; run scripts/gpu-check on this machine before you trust it"
        ));
    }
    let step = Arc::new(progress.step("loading the model"));
    let counted = Arc::clone(&step);
    let load = move || NativeEngine::load(&settings, &mut |done, all| counted.bytes(done, all));
    let loaded = tokio::task::spawn_blocking(|| files::without_panics(load)).await;
    let engine = loaded.context("the thread that loads the model is gone")?;
    let engine = engine.map_err(|reason| anyhow!("the model cannot be loaded: {reason}"))??;
    if let Some(step) = Arc::into_inner(step) {
        step.done();
    }
    if let Some((publisher, events)) = publisher.zip(engine.cache_events()) {
        publisher.start(events);
    }
    if let Some(path) = &asked.step_gate {
        step_gate::listen(path, engine.step_gate())?;
    }
    Ok(Arc::new(engine))
}

/// A directory whose quantised weights stay as they are, where that is wanted.
fn as_wanted(
    asked: &EngineSettings,
    source: WeightsSource,
    config: &Map<String, Value>,
    dtype: Dtype,
) -> anyhow::Result<WeightsSource> {
    let WeightsSource::Directory(path) = source else { return Ok(source) };
    let widened = widened_bytes(config, dtype)?;
    let is_kept = weights::keep_codes(&path, config, widened, asked.quantized_weights)?;
    Ok(if is_kept { WeightsSource::Coded(path) } else { WeightsSource::Directory(path) })
}

/// What the weights take once they are loaded; `None` for weights in codes that are not here yet.
pub(super) fn weight_bytes(settings: &NativeSettings) -> anyhow::Result<Option<u64>> {
    match &settings.source {
        WeightsSource::Gguf { path, keep_blocks: true } => Ok(Some(native::kept_gguf_bytes(path, settings.dtype)?)),
        WeightsSource::Coded(directory) if weights::are_in(directory) => coded_bytes(directory).map(Some),
        WeightsSource::Coded(_) => Ok(None),
        WeightsSource::Directory(_) | WeightsSource::Gguf { .. } => {
            widened_bytes(&settings.config, settings.dtype).map(Some)
        }
    }
}

/// What the files of weights of a directory take.
fn coded_bytes(directory: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in directory.read_dir().with_context(|| format!("cannot read {}", directory.display()))? {
        let path = entry?.path();
        if weights::is_weights(&path) {
            bytes += path.metadata().with_context(|| format!("cannot read {}", path.display()))?.len();
        }
    }
    Ok(bytes)
}

/// What weights take in the type of the engine's matrices.
fn widened_bytes(config: &Map<String, Value>, dtype: Dtype) -> anyhow::Result<u64> {
    let numbers = native::parameter_count(config).map_err(anyhow::Error::msg)?;
    Ok(numbers.saturating_mul(each(dtype)))
}

/// The bytes of a number in the type of the engine's matrices.
fn each(dtype: Dtype) -> u64 {
    if dtype == Dtype::Bf16 { 2 } else { 4 }
}
