//! From scores to weights: the softmax of one row, stride by stride.

#[cfg(target_arch = "x86_64")]
mod bf16;
mod scores;

pub(super) use scores::{Running, Scores};

use super::super::{KernelName, KernelSet, packed::Numbers};

/// Writes a weight for each score from `place` on.
pub(super) fn weigh(set: KernelSet, scores: Scores<'_>, weights: &mut Numbers, place: usize) {
    match (set.name(), weights) {
        #[cfg(target_arch = "x86_64")]
        (KernelName::Amx | KernelName::Avx512Bf16, Numbers::Bf16(weights)) => {
            let weights = &mut weights[place..][..scores.numbers.len()];
            // SAFETY: that there is a set of this name shows that the processor has its instructions.
            unsafe { bf16::weigh(scores, weights) };
        }
        (_, weights) => {
            let weighed = set.vectorize(scores);
            weights.write(set, place, weighed);
        }
    }
}

#[cfg(test)]
mod tests;
