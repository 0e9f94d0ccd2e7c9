//! A turn as it was captured, read out of its trajectory.

use std::sync::Arc;

use crate::{
    TokenId,
    trajectory::{
        CaptureError, GivenExperts, ImageUsed, PackedMasks, Sequence, SequenceKey, SequenceTurn, Trajectories,
        WeightSet,
    },
};

/// A turn, and what is known of the weights that sampled it.
pub(crate) struct CapturedTurn {
    /// The sequence that ends with the turn.
    sequence: Sequence,
    /// The turn.
    pub(super) turn: SequenceTurn,
    /// What its weights were, one for each part of it.
    pub(super) sets: Vec<Option<WeightSet>>,
    /// The experts that its request gave, where it gave any and they were kept.
    pub(super) given_experts: Option<GivenExperts>,
    /// The images of its prompt, with their files where they were kept.
    pub(super) images: Vec<ImageUsed>,
}

impl CapturedTurn {
    /// Reads the last turn of a sequence, whose ids are those of a vocabulary of `vocab_size`; blocking.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is not what was sampled.
    pub(crate) fn read(
        trajectories: &Trajectories,
        key: &SequenceKey,
        vocab_size: usize,
    ) -> Result<Self, CaptureError> {
        let mut sequence = trajectories.sequence(key, vocab_size)?;
        let turn = sequence.turns.pop().ok_or_else(|| CaptureError::Corrupted("a sequence has no turn".to_owned()))?;
        let generation = &turn.generation;
        let used = |number| trajectories.weights(&generation.process, number);
        let sets = generation.weights.iter().map(|weights| used(weights.number)).collect::<Result<_, _>>()?;
        let given_experts = trajectories.given_experts(&turn)?;
        let images = trajectories.with_files(&sequence.images)?;
        Ok(Self { sequence, turn, sets, given_experts, images })
    }

    /// Returns how many ids the turn sampled.
    pub(crate) fn len(&self) -> usize {
        self.turn.end - self.turn.start
    }

    /// Returns where the sampled ids begin in the sequence: how many ids the prompt has.
    pub(crate) fn start(&self) -> usize {
        self.turn.start
    }

    /// The ids of the prompt.
    pub(super) fn prompt(&self) -> Arc<[TokenId]> {
        self.sequence.token_ids[..self.turn.start].into()
    }

    /// The ids that the turn sampled.
    pub(super) fn sampled(&self) -> &[TokenId] {
        &self.sequence.token_ids[self.turn.start..self.turn.end]
    }

    /// The ids that the turn sampled, and their log-probs.
    pub(super) fn tokens(&self) -> Vec<(TokenId, f32)> {
        let logprobs = &self.sequence.logprobs[self.turn.start..self.turn.end];
        let logprobs = logprobs.iter().map(|logprob| logprob.unwrap_or(f32::NAN));
        self.sampled().iter().copied().zip(logprobs).collect()
    }

    /// The ids that each of them was drawn from, where that was captured.
    pub(super) fn masks(&self) -> PackedMasks {
        self.sequence.masks.of(self.turn.start, self.turn.end)
    }
}
