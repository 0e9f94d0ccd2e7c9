//! What becomes of quantised weights, and the memory that decides it.
//!
//! The native engine computes the same bits with quantised weights. mistral.rs rounds activations to 8 bits before it
//! multiplies them; a token's log-prob then depends on how its prompt was cut into steps (0.1 apart was seen), and long
//! prompts take seven times as long.

use std::path::Path;

use anyhow::Context;
use serde_json::{Map, Value};

use crate::{
    config::{GgufWeights, QuantizedWeights},
    engine::native,
    gguf::GgufFile,
};

/// Whether the weights of a GGUF file stay in their blocks.
pub(super) fn keep_blocks(file: &GgufFile, wanted: GgufWeights) -> bool {
    match wanted {
        GgufWeights::Native => true,
        GgufWeights::Widened => false,
        GgufWeights::Auto => too_large(file).is_some_and(|reason| are_kept_for(&reason)),
    }
}

/// Whether there are weights in a directory: those of a hub id may have to be fetched.
pub(super) fn are_in(directory: &Path) -> bool {
    let mut entries = directory.read_dir().into_iter().flatten().flatten();
    entries.any(|entry| is_weights(&entry.path()))
}

/// Whether a file has weights, by its name.
pub(super) fn is_weights(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "safetensors")
}

/// Whether the weights of a directory stay in their codes; `widened` is how many bytes they would take otherwise. Of weights
/// that are not here yet, config.json says whether they may.
pub(super) fn keep_codes(
    directory: &Path,
    config: &Map<String, Value>,
    widened: u64,
    wanted: QuantizedWeights,
) -> anyhow::Result<bool> {
    let has_codes = || {
        let has_codes =
            if are_in(directory) { native::has_codes(directory, config) } else { native::may_have_codes(config) };
        has_codes.with_context(|| format!("the weights of {} cannot be read", directory.display()))
    };
    match wanted {
        QuantizedWeights::Widened => Ok(false),
        QuantizedWeights::Kept => has_codes(),
        QuantizedWeights::Auto => match larger_than_free(widened) {
            Some(reason) if has_codes()? => Ok(are_kept_for(&reason)),
            _ => Ok(false),
        },
    }
}

/// Says in the log why quantised weights are kept, which they are then.
fn are_kept_for(reason: &str) -> bool {
    tracing::warn!("keeping the quantised weights: {reason}");
    true
}

/// Why widened weights, computed with in 32 bits, would not leave memory for anything else.
fn too_large(file: &GgufFile) -> Option<String> {
    larger_than_free(file.parameter_count() as u64 * 4)
}

/// Why weights of so many bytes would not leave memory for anything else.
fn larger_than_free(needed: u64) -> Option<String> {
    let available = crate::memory::available()?;
    if needed <= available / 4 * 3 {
        return None;
    }
    let gigabytes = |bytes: u64| bytes / 1_000_000_000;
    Some(format!("widened they need {} GB, and {} GB are free", gigabytes(needed), gigabytes(available)))
}
