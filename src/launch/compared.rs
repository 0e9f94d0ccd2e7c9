//! Whether mistral.rs may serve a model, decided before any of its weights is read.
//!
//! Owns what is said where it may not. Refuses to know which models were compared: that is `engine::compared`.

use anyhow::bail;
use serde_json::{Map, Value};

use super::{device::Device, load_plan::LoadPlan, native, weights};
use crate::{
    engine::{self, compared},
    gguf::{GgufError, GgufFile},
    model::{ModelFiles, ModelSource},
};

const FLAG: &str = "--engine mistralrs --unproven-models";
/// The methods of quantised checkpoints that mistral.rs knows, and those of them that it loads on a GPU only.
const KNOWN: [&str; 6] = ["afq", "awq", "bitsandbytes", "fp8", "gptq", "mxfp4"];
const ON_GPU: [&str; 2] = ["awq", "gptq"];
/// What is said of files whose weights stay quantised, because that was asked for, they cannot be widened, or memory is
/// short.
const ROUNDED: &str = "mistral.rs rounds activations to 8 bits in front of the quantised weights of a GGUF file";

/// Why mistral.rs has not been shown to compute this right; `None` if it has.
///
/// Fails with one sentence unless it has, or `--unproven-models` lets it try.
pub(super) fn unproven(load_plan: LoadPlan<'_>, native_reason: Option<&str>) -> anyhow::Result<Option<String>> {
    let Some(reason) = doubt(load_plan)? else { return Ok(None) };
    if load_plan.settings.unproven_models && reason.is_worth_a_try {
        tracing::warn!("{}; its answers may be wrong without a word", reason.text);
        return Ok(Some(reason.text));
    }
    let text = reason.text;
    let before = native_reason.map_or_else(String::new, |reason| format!("{reason}, and "));
    let instead = match native_reason {
        None if native::find(load_plan)?.is_ok() => "--engine native serves it".to_owned(),
        _ if !reason.is_worth_a_try || !is_loaded(load_plan) => "docs/models.md lists what is served".to_owned(),
        _ => format!("docs/models.md lists what is served, and {FLAG} serves this all the same"),
    };
    bail!("{before}{text}; {instead}");
}

/// Whether mistral.rs can load weights as they are quantised.
fn is_loaded(LoadPlan { files, device, .. }: LoadPlan<'_>) -> bool {
    let ModelSource::Directory { path } = &files.source else { return true };
    let on_gpu = matches!(device, Device::Cuda(_));
    let is_loaded = |method: String| KNOWN.contains(&&*method) && (on_gpu || !ON_GPU.contains(&&*method));
    engine::native::quant_method(path, &files.config.raw).is_none_or(is_loaded)
}

/// A reason to refuse.
struct Doubt {
    text: String,
    /// Whether mistral.rs could compute it, for all that is known.
    is_worth_a_try: bool,
}

fn doubt(load_plan: LoadPlan<'_>) -> anyhow::Result<Option<Doubt>> {
    let about = |text: String| Some(Doubt { text, is_worth_a_try: true });
    if let Device::Cuda(_) = load_plan.device {
        return Ok(about(
            "mistral.rs has been compared with transformers on the CPU only, see --device cpu".to_owned(),
        ));
    }
    let config = match config(load_plan)? {
        Ok(config) => config,
        Err(reason) => return Ok(about(reason)),
    };
    let judged = compared::check(&config, load_plan.max_model_len);
    Ok(judged.err().map(|error| Doubt { text: error.to_string(), is_worth_a_try: error.is_worth_a_try() }))
}

/// The config.json that mistral.rs is given, or why there is none.
fn config(load_plan: LoadPlan<'_>) -> anyhow::Result<Result<Map<String, Value>, String>> {
    let ModelFiles { source, config, .. } = load_plan.files;
    let path = match source {
        ModelSource::Directory { .. } => return Ok(Ok(config.raw.clone())),
        ModelSource::Gguf { path } => path,
    };
    let file = GgufFile::open(path)?;
    if weights::keep_blocks(&file, load_plan.settings.gguf_weights) {
        return Ok(Err(ROUNDED.to_owned()));
    }
    match file.model_config() {
        Ok(config) => Ok(Ok(config)),
        Err(GgufError::Unsupported(_)) => Ok(Err(ROUNDED.to_owned())),
        Err(error) => Err(error.into()),
    }
}
