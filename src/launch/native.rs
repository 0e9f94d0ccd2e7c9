//! The native engine: whether it is the one, and what it is told.

use std::sync::Arc;

use anyhow::{Context, anyhow};
use serde_json::{Map, Value};

use super::{
    device::Device,
    draft_model::{self, FoundDraft},
    images, kernels, kv_events,
    load_plan::LoadPlan,
    memory, native_weights,
    progress::Progress,
    settings::EngineSettings,
    step_gate,
};
use crate::{
    config::Dtype as AskedDtype,
    engine::{
        Engine,
        native::{self, ModelParts, NativeEngine, NativeSettings, WeightsSource},
    },
    files,
};

/// What is said where the command line asks for a type in which this engine has no arithmetic.
const FLOAT16: &str = "--dtype float16: the native engine has no arithmetic in float16, and computes in float32, which holds \
    every number of float16 and takes twice the memory; --dtype bfloat16 takes half of it";

/// What the native engine is to load.
pub(super) struct Found {
    config: Map<String, Value>,
    source: WeightsSource,
    image_patches: Option<usize>,
    draft: Option<FoundDraft>,
}

/// Looks whether the native engine serves this; the reason if it does not.
pub(super) fn find(load_plan: LoadPlan<'_>) -> anyhow::Result<Result<Found, String>> {
    let LoadPlan { settings: asked, images, files, .. } = load_plan;
    let (config, source) = match native_weights::source(files, asked.gguf_weights)? {
        Ok(found) => found,
        Err(reason) => return Ok(Err(reason)),
    };
    let image_patches = images::most_patches(files, images)?;
    let parts = ModelParts::reading(image_patches);
    if let Err(reason) = native::supports(&config, parts) {
        let text_is_served = parts == ModelParts::All && native::supports(&config, ModelParts::Text).is_ok();
        let hint = if text_is_served { "; with --language-model-only, its text is served" } else { "" };
        return Ok(Err(format!("{reason}{hint}")));
    }
    let draft = draft_model::find(load_plan)?;
    Ok(Ok(Found { config, source, image_patches, draft }))
}

impl Found {
    /// Whether images are among what is computed.
    pub(super) fn reads_images(&self) -> bool {
        self.image_patches.is_some_and(|patches| patches > 0)
    }
}

/// What the engine is told; fails with one sentence if the machine cannot hold the weights.
pub(super) async fn settings(
    asked: &EngineSettings,
    device: Device,
    Found { config, source, image_patches, draft }: Found,
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
    asked.check_part_dtypes(dtype)?;
    let settings = NativeSettings {
        source: native_weights::as_wanted(asked, source, (&config, ModelParts::reading(image_patches)), dtype)?,
        dtype,
        f32_activations: asked.f32_activations(),
        config,
        max_model_len,
        max_num_seqs: asked.max_num_seqs,
        max_num_batched_tokens: asked.step_tokens(device),
        max_waiting: asked.max_waiting,
        return_routed_experts: asked.return_routed_experts,
        drafting: asked.drafting,
        draft_model: None,
        adapters: asked.adapters,
        image_patches,
        cache_events: asked.kv_events.as_ref().map(|config| config.max_queue_size),
        device: asked.native_device(device),
        kv_cache_bytes: asked.kv_cache_bytes(),
        threads: asked.threads,
        kernels: asked_kernels,
        unusable_kernels,
    };
    let settings = match draft {
        Some(draft) => draft_model::added(draft, asked, settings)?,
        None => settings,
    };
    native_weights::check_kept(asked, &settings)?;
    if device == Device::Cpu
        && let Some(bytes) = native_weights::weight_bytes(&settings)?
    {
        let of_draft = settings.draft_model.as_deref().map(native_weights::draft_bytes).transpose()?.flatten();
        memory::check(bytes.saturating_add(of_draft.unwrap_or(0)), asked.kv_cache_memory)?;
    }
    Ok(settings)
}

/// What is said where the cache cannot hold a sequence that fills the context.
pub(super) fn shorter_than_context(longest: usize, max_model_len: usize) -> Option<String> {
    // The last token is sampled, not computed.
    (longest + 1 < max_model_len).then(|| {
        format!(
            "keys and values have room for sequences of {longest} tokens, and the context is {max_model_len}: requests that \
             may become longer are refused, as those that set no limit may; pass a larger --kv-cache-memory, or --max-model-len \
             {longest}"
        )
    })
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
    if let Some(line) = draft_model::said(&settings)? {
        progress.say(&line);
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
    if let Some(line) = shorter_than_context(engine.longest_sequence(), max_model_len) {
        progress.say(&line);
    }
    if let Some(cost) = engine.draft_cost() {
        progress.say(&draft_model::cost_text(cost));
    }
    if let Some((publisher, events)) = publisher.zip(engine.cache_events()) {
        publisher.start(events);
    }
    if let Some(path) = &asked.step_gate {
        step_gate::listen(path, engine.step_gate())?;
    }
    Ok(Arc::new(engine))
}
