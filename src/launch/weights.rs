//! What becomes of the weights of a GGUF file, and the memory that decides it.
//!
//! What computes with quantised weights rounds activations to 8 bits before it multiplies them; in mistral.rs a
//! token's log-prob then depends on how its prompt was cut into steps (0.1 apart was seen), and long prompts take seven
//! times as long.

use crate::{config::GgufWeights, gguf::GgufFile};

/// Whether the weights of a GGUF file stay in their blocks.
pub(super) fn keep_blocks(file: &GgufFile, wanted: GgufWeights) -> bool {
    match wanted {
        GgufWeights::Native => true,
        GgufWeights::Widened => false,
        GgufWeights::Auto => {
            let reason = too_large(file);
            if let Some(reason) = &reason {
                tracing::warn!("keeping the quantised weights: {reason}");
            }
            reason.is_some()
        }
    }
}

/// Why widened weights, computed with in 32 bits, would not leave memory for anything else.
fn too_large(file: &GgufFile) -> Option<String> {
    let needed = file.parameter_count() as u64 * 4;
    let available = crate::memory::available()?;
    if needed <= available / 4 * 3 {
        return None;
    }
    let gigabytes = |bytes: u64| bytes / 1_000_000_000;
    Some(format!("widened they need {} GB, and {} GB are free", gigabytes(needed), gigabytes(available)))
}
