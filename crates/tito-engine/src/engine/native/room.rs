//! What the memory for the past of sequences is divided into.
//!
//! Blocks of keys and values take all of it, but for models whose layers have recurrent states. These get slots first, one
//! for each sequence that may run and as many for copies, though no more than half of the memory: without blocks a state
//! is of no use.

use super::{
    LoadError, NativeSettings,
    backend::{BLOCK_TOKENS, Backend},
    model::{Model, ModelShape, Room},
};

/// The part of the memory that is for states, where there are keys and values too.
const SHARE_OF_STATES: usize = 2;
/// The state of a sequence that runs, and a copy.
const LEAST_SLOTS: usize = 2;
/// Block numbers are 32 bits wide. Blocks that no seat can fill are of use to the prefix cache only.
const MOST_PLACES: usize = u32::MAX as usize / 2;

/// What a model keeps of the past, and of how many sequences.
#[derive(Debug, Clone, Copy)]
pub(super) struct MemoryNeeds {
    /// The memory of a block of all layers; 0 where none has keys and values.
    pub(super) block_bytes: usize,
    /// The memory of a slot of all layers; 0 where none has a recurrent state.
    pub(super) slot_bytes: usize,
    /// Sequences that run at a time.
    pub(super) max_num_seqs: usize,
    /// Tokens of the longest sequence.
    pub(super) max_model_len: usize,
}

/// What a draft model may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct DraftBounds {
    /// Blocks of keys and values.
    pub(super) blocks: usize,
    /// Tokens of a step.
    pub(super) step_tokens: usize,
    /// See [`ModelDrafts`](super::drafts::ModelDrafts).
    pub(super) cost: Option<f64>,
}

/// What there is to be room for.
pub(super) fn memory_needs<B: Backend>(settings: &NativeSettings, backend: &B, shape: &ModelShape) -> MemoryNeeds {
    let (block_bytes, slot_bytes) = (Model::block_bytes(backend, shape), Model::<B>::slot_bytes(shape));
    let NativeSettings { max_num_seqs, max_model_len, .. } = *settings;
    MemoryNeeds { block_bytes, slot_bytes, max_num_seqs, max_model_len }
}

impl MemoryNeeds {
    /// Divides so many bytes.
    pub(super) fn divide(self, bytes: u64) -> Result<Room, LoadError> {
        let Self { block_bytes, slot_bytes, .. } = self;
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        let slots = self.slots(size);
        let states = slots.saturating_mul(slot_bytes);
        let blocks = match size.checked_sub(states) {
            None => 0,
            Some(_) if block_bytes == 0 => self.blocks_of_all(),
            Some(left) => (left / block_bytes).min(MOST_PLACES),
        };
        if blocks == 0 {
            return Err(LoadError::CacheTooSmall { bytes, block_bytes, states_bytes: LEAST_SLOTS * slot_bytes });
        }
        Ok(Room { blocks, slots })
    }

    /// Divides so many bytes between the model and a draft model, of which a block takes `draft_block_bytes`. There is room
    /// for as many tokens of both, but a draft model keeps sequences that run alone, each up to `longest` tokens. The
    /// second number is that of its blocks.
    pub(super) fn divide_with_draft(
        self,
        bytes: u64,
        draft_block_bytes: usize,
        longest: usize,
    ) -> Result<(Room, usize), LoadError> {
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        let of_all = longest.div_ceil(BLOCK_TOKENS).saturating_mul(self.max_num_seqs);
        let together = self.block_bytes.saturating_add(draft_block_bytes).max(1);
        let blocks = (size / together).min(of_all).min(MOST_PLACES);
        let left = size.saturating_sub(blocks.saturating_mul(draft_block_bytes));
        Ok((self.divide(left as u64)?, blocks))
    }

    fn slots(self, size: usize) -> usize {
        if self.slot_bytes == 0 {
            return 0;
        }
        let most = self.max_num_seqs.saturating_mul(2).clamp(LEAST_SLOTS, MOST_PLACES);
        let share = if self.block_bytes == 0 { size } else { size / SHARE_OF_STATES };
        (share / self.slot_bytes).clamp(LEAST_SLOTS, most)
    }

    /// Blocks that take no memory are there for every sequence that may run.
    fn blocks_of_all(self) -> usize {
        let longest = self.max_model_len.div_ceil(BLOCK_TOKENS);
        longest.saturating_mul(self.max_num_seqs).clamp(1, MOST_PLACES)
    }
}

/// For how many sequences of the greatest length there is room at once, as vLLM counts them: each has whole blocks, and a slot
/// where layers have recurrent states.
#[expect(clippy::cast_precision_loss, reason = "no memory has 2^52 blocks")]
pub(super) fn max_concurrency(room: Room, max_model_len: usize) -> f64 {
    let blocks = room.blocks as f64 / max_model_len.div_ceil(BLOCK_TOKENS).max(1) as f64;
    if room.slots == 0 { blocks } else { blocks.min(room.slots as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_of_the_greatest_length_have_whole_blocks_and_a_slot() {
        let room = |blocks, slots| Room { blocks, slots };
        let length = 2 * BLOCK_TOKENS;
        assert!((max_concurrency(room(23, 0), length) - 11.5).abs() < f64::EPSILON);
        assert!((max_concurrency(room(23, 0), length - BLOCK_TOKENS + 1) - 11.5).abs() < f64::EPSILON, "whole blocks");
        assert!((max_concurrency(room(1, 0), length) - 0.5).abs() < f64::EPSILON);
        assert!((max_concurrency(room(23, 3), length) - 3.0).abs() < f64::EPSILON, "slots");
        assert!((max_concurrency(room(4, 8), length) - 2.0).abs() < f64::EPSILON);
    }

    fn memory_needs(block_bytes: usize, slot_bytes: usize) -> MemoryNeeds {
        MemoryNeeds { block_bytes, slot_bytes, max_num_seqs: 4, max_model_len: 100 }
    }

    fn divided(wanted: MemoryNeeds, bytes: u64) -> Option<(usize, usize)> {
        wanted.divide(bytes).ok().map(|room| (room.blocks, room.slots))
    }

    #[test]
    fn without_states_all_memory_is_for_blocks() {
        assert_eq!(divided(memory_needs(10, 0), 99), Some((9, 0)));
        assert_eq!(divided(memory_needs(10, 0), 9), None);
        assert_eq!(divided(memory_needs(1, 0), u64::MAX), Some((u32::MAX as usize / 2, 0)));
    }

    #[test]
    fn states_of_all_that_run_and_as_many_copies_come_first_but_take_half_at_most() {
        assert_eq!(divided(memory_needs(10, 100), 10_000), Some((920, 8)));
        assert_eq!(divided(memory_needs(10, 100), 1_000), Some((50, 5)));
        assert_eq!(divided(memory_needs(10, 100), 399), Some((19, 2)), "two in any case");
        assert_eq!(divided(memory_needs(10, 100), 210), Some((1, 2)));
    }

    #[test]
    fn a_model_with_states_only_has_blocks_for_every_sequence_that_may_run() {
        assert_eq!(divided(memory_needs(0, 100), 10_000), Some((16, 8)));
        assert_eq!(divided(memory_needs(0, 100), 399), Some((16, 3)));
        assert_eq!(divided(memory_needs(0, 100), 199), None);
        let endless = MemoryNeeds { max_model_len: usize::MAX, ..memory_needs(0, 100) };
        assert_eq!(divided(endless, 200), Some((u32::MAX as usize / 2, 2)));
    }

    #[test]
    fn a_draft_model_has_room_for_as_many_tokens_but_only_of_sequences_that_run() {
        let divided = |bytes, longest| {
            let (room, blocks) = memory_needs(10, 0).divide_with_draft(bytes, 5, longest).unwrap();
            (room.blocks, blocks)
        };
        assert_eq!(divided(150, 100), (10, 10));
        // Four sequences of four blocks each.
        assert_eq!(divided(1_000, 100), (92, 16));
        assert_eq!(divided(1_000, 1), (98, 4));
        assert_eq!(divided(14, 100), (1, 0), "the model comes first");
        assert!(memory_needs(10, 0).divide_with_draft(9, 5, 100).is_err());
    }

    #[test]
    fn a_refusal_says_what_would_be_enough() {
        let refused = |wanted: MemoryNeeds, bytes| wanted.divide(bytes).unwrap_err().to_string();
        assert_eq!(
            refused(memory_needs(10, 100), 209),
            "a KV cache of 209 bytes is too small; one block takes 10 bytes, two recurrent states take 200 bytes"
        );
        assert_eq!(refused(memory_needs(10, 0), 9), "a KV cache of 9 bytes is too small; one block takes 10 bytes");
    }
}
