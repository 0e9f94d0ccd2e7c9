//! mistral.rs: what it is told, and a widened copy of a GGUF file for it.

use std::sync::Arc;

use anyhow::Context;
use tempfile::TempDir;
use tito_mistralrs::{Dtype, LoadSpec, MistralRsEngine, WeightsSource};

use super::{device::Device, load_plan::LoadPlan, progress::Progress, weights::keep_blocks};
use crate::{
    config::{Dtype as Asked, GgufWeights},
    engine::Engine,
    gguf::{
        GgufError, GgufFile,
        convert::{self, ConvertError},
    },
    model::{ModelFiles, ModelSource},
    tokenizer::Tokenizer,
};

/// Weights to load; a widened copy goes away with this.
struct Weights {
    source: WeightsSource,
    _copy: Option<TempDir>,
}

/// Loads the engine; `unproven` is why nothing is known about what it computes, where that is so.
pub(super) async fn load(
    load_plan: LoadPlan<'_>,
    unproven: Option<String>,
    progress: &Progress,
) -> anyhow::Result<Arc<dyn Engine>> {
    let LoadPlan { settings, device, files, tokenizer, max_model_len, .. } = load_plan;
    let step = progress.step("preparing the weights");
    let weights = prepare(&files.source, settings.gguf_weights)?;
    step.done();
    let spec = LoadSpec {
        source: weights.source.clone(),
        gpu: match device {
            Device::Cpu => None,
            Device::Cuda(number) => Some(number),
        },
        dtype: match settings.dtype {
            Asked::Auto => Dtype::Auto,
            Asked::Float16 => Dtype::F16,
            Asked::Bfloat16 => Dtype::Bf16,
            Asked::Float32 => Dtype::F32,
        },
        max_model_len,
        max_waiting: settings.max_waiting,
        vocab_size: logits_width(files, tokenizer),
        unproven,
    };
    let step = progress.step("loading the model into mistral.rs");
    let engine = MistralRsEngine::load(spec).await?;
    step.done();
    Ok(Arc::new(engine))
}

/// Widens the weights of a GGUF file if that is wanted and possible.
fn prepare(source: &ModelSource, wanted: GgufWeights) -> anyhow::Result<Weights> {
    let path = match source {
        ModelSource::Directory { path } => return Ok(as_is(WeightsSource::Directory(path.clone()))),
        ModelSource::Gguf { path } => path,
    };
    let native = || Ok(as_is(WeightsSource::Gguf(path.clone())));
    let file = GgufFile::open(path)?;
    if keep_blocks(&file, wanted) {
        return native();
    }
    match wanted {
        GgufWeights::Native => native(),
        GgufWeights::Widened => Ok(widen(&file)?),
        GgufWeights::Auto => match widen(&file) {
            Ok(weights) => Ok(weights),
            Err(ConvertError::Gguf(GgufError::Unsupported(reason))) => {
                tracing::warn!("keeping the quantised weights, which cannot be widened: {reason}");
                native()
            }
            Err(error) => Err(error).context("cannot widen the weights; --gguf-weights native keeps them"),
        },
    }
}

fn as_is(source: WeightsSource) -> Weights {
    Weights { source, _copy: None }
}

fn widen(file: &GgufFile) -> Result<Weights, ConvertError> {
    let write = |source| ConvertError::Write { path: std::env::temp_dir(), source };
    let copy = tempfile::Builder::new().prefix("tito-").tempdir().map_err(write)?;
    let directory = copy.path().join("model");
    convert::to_hugging_face(file, &directory, &mut |_, _| ())?;
    Ok(Weights { source: WeightsSource::Directory(directory), _copy: Some(copy) })
}

/// The vocabulary's width as the model has it, which may be wider than the tokenizer's.
fn logits_width(files: &ModelFiles, tokenizer: &Tokenizer) -> usize {
    files.config.vocab_size.unwrap_or(0).max(tokenizer.vocab_size())
}
