//! The weights that the native engine is to load: where they are, what becomes of them, and what they take.

use std::path::Path;

use anyhow::{Context, bail};
use serde_json::{Map, Value};

use super::{settings::EngineSettings, weights};
use crate::{
    config::{GgufWeights, QuantizedWeights},
    engine::native::{self, DraftModelSettings, Dtype, ModelParts, NativeSettings, WeightsSource},
    gguf::{GgufError, GgufFile},
    model::{ModelFiles, ModelSource},
};

/// The config.json of a model, and where its weights are.
pub(super) type Sourced = (Map<String, Value>, WeightsSource);

/// The config.json of a model, and where its weights are; the reason if the file is none that is read.
pub(super) fn source(files: &ModelFiles, gguf_weights: GgufWeights) -> anyhow::Result<Result<Sourced, String>> {
    let path = match &files.source {
        ModelSource::Directory { path } => {
            return Ok(Ok((files.config.raw.clone(), WeightsSource::Directory(path.clone()))));
        }
        ModelSource::Gguf { path } => path,
    };
    let file = GgufFile::open(path)?;
    let config = match file.model_config() {
        Ok(config) => config,
        Err(GgufError::Unsupported(reason)) => return Ok(Err(reason)),
        Err(error) => return Err(error).with_context(|| format!("{} cannot be used", path.display())),
    };
    let keep_blocks = weights::keep_blocks(&file, gguf_weights);
    Ok(Ok((config, WeightsSource::Gguf { path: path.clone(), keep_blocks })))
}

/// A directory whose quantised weights stay as they are, where that is wanted.
pub(super) fn as_wanted(
    asked: &EngineSettings,
    source: WeightsSource,
    (config, parts): (&Map<String, Value>, ModelParts),
    dtype: Dtype,
) -> anyhow::Result<WeightsSource> {
    let WeightsSource::Directory(path) = source else { return Ok(source) };
    let widened = widened_bytes((config, parts), dtype)?;
    let is_kept = weights::keep_codes(&path, config, widened, asked.quantized_weights)?;
    Ok(if is_kept { WeightsSource::Coded(path) } else { WeightsSource::Directory(path) })
}

/// Refuses `--quantized-weights kept` where neither the model nor what drafts has weights in codes.
pub(super) fn check_kept(asked: &EngineSettings, settings: &NativeSettings) -> anyhow::Result<()> {
    let of_draft = settings.draft_model.as_deref().map(|draft| &draft.source);
    let mut sources = [Some(&settings.source), of_draft].into_iter().flatten();
    let is_widened = sources.all(|source| matches!(source, WeightsSource::Directory(_)));
    if asked.quantized_weights == QuantizedWeights::Kept && is_widened {
        bail!(
            "--quantized-weights kept does not fit the model, which has no weights in FP8 or MXFP4 that can be kept (FP8 with \
             scales in f16 is always widened); leave it out"
        );
    }
    Ok(())
}

/// What the weights take once they are loaded; `None` for weights in codes that are not here yet.
pub(super) fn weight_bytes(settings: &NativeSettings) -> anyhow::Result<Option<u64>> {
    bytes_of(&settings.source, (&settings.config, settings.parts()), settings.dtype)
}

/// The same of a model that drafts.
pub(super) fn draft_bytes(draft: &DraftModelSettings) -> anyhow::Result<Option<u64>> {
    bytes_of(&draft.source, (&draft.config, ModelParts::All), draft.dtype)
}

fn bytes_of(
    source: &WeightsSource,
    described: (&Map<String, Value>, ModelParts),
    dtype: Dtype,
) -> anyhow::Result<Option<u64>> {
    match source {
        WeightsSource::Gguf { path, keep_blocks: true } => Ok(Some(native::kept_gguf_bytes(path, dtype)?)),
        WeightsSource::Coded(directory) if weights::are_in(directory) => coded_bytes(directory).map(Some),
        WeightsSource::Coded(_) => Ok(None),
        WeightsSource::Directory(_) | WeightsSource::Gguf { .. } => widened_bytes(described, dtype).map(Some),
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
fn widened_bytes((config, parts): (&Map<String, Value>, ModelParts), dtype: Dtype) -> anyhow::Result<u64> {
    let numbers = native::parameter_count(config, parts).map_err(anyhow::Error::msg)?;
    Ok(numbers.saturating_mul(each(dtype)))
}

/// The bytes of a number in the type of the engine's matrices.
fn each(dtype: Dtype) -> u64 {
    if dtype == Dtype::Bf16 { 2 } else { 4 }
}
