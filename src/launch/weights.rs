//! Where the engine reads weights from: the model's files, or a widened copy of a GGUF file.
//!
//! mistral.rs rounds activations to 8 bits before it multiplies them with quantised weights, so a token's log-prob
//! depends on how its prompt was cut into steps (0.1 apart was seen), and long prompts take seven times as long.

use std::path::Path;

use anyhow::Context;
use tempfile::TempDir;

use crate::{
    config::GgufWeights,
    engine::mistralrs::WeightsSource,
    gguf::{
        GgufError, GgufFile,
        convert::{self, ConvertError},
    },
    model::ModelSource,
};

/// Weights to load; a widened copy goes away with this.
pub(super) struct Weights {
    pub(super) source: WeightsSource,
    _copy: Option<TempDir>,
}

/// Widens the weights of a GGUF file if that is wanted and possible.
pub(super) fn prepare(source: &ModelSource, wanted: GgufWeights) -> anyhow::Result<Weights> {
    let path = match source {
        ModelSource::Directory { path } => return Ok(as_is(WeightsSource::Directory(path.clone()))),
        ModelSource::Gguf { path } => path,
    };
    let native = || Ok(as_is(WeightsSource::Gguf(path.clone())));
    match wanted {
        GgufWeights::Native => native(),
        GgufWeights::Widened => Ok(widen(path)?),
        GgufWeights::Auto => {
            if let Some(reason) = too_large(path)? {
                tracing::warn!("keeping the quantised weights: {reason}");
                return native();
            }
            match widen(path) {
                Ok(weights) => Ok(weights),
                Err(ConvertError::Gguf(GgufError::Unsupported(reason))) => {
                    tracing::warn!("keeping the quantised weights, which cannot be widened: {reason}");
                    native()
                }
                Err(error) => Err(error).context("cannot widen the weights; --gguf-weights native keeps them"),
            }
        }
    }
}

fn as_is(source: WeightsSource) -> Weights {
    Weights { source, _copy: None }
}

fn widen(path: &Path) -> Result<Weights, ConvertError> {
    let write = |source| ConvertError::Write { path: std::env::temp_dir(), source };
    let copy = tempfile::Builder::new().prefix("tito-").tempdir().map_err(write)?;
    let directory = copy.path().join("model");
    convert::to_hugging_face(path, &directory, &mut |_, _| ())?;
    Ok(Weights { source: WeightsSource::Directory(directory), _copy: Some(copy) })
}

/// Why widened weights, computed with in 32 bits, would not leave memory for anything else.
fn too_large(path: &Path) -> anyhow::Result<Option<String>> {
    let needed = GgufFile::open(path)?.parameter_count() as u64 * 4;
    let Some(available) = available_memory() else { return Ok(None) };
    if needed <= available / 4 * 3 {
        return Ok(None);
    }
    let gigabytes = |bytes: u64| bytes / 1_000_000_000;
    Ok(Some(format!("widened they need {} GB, and {} GB are free", gigabytes(needed), gigabytes(available))))
}

/// Bytes that the system could still give, where it says so.
fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
