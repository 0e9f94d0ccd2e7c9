//! What is computed in a step.

use std::sync::Arc;

use super::sequence::{Sequence, SequenceId};
use crate::{
    TokenId,
    engine::{
        Adapter,
        native::{
            backend::BLOCK_TOKENS, drafts::Asked, images::SequenceImages, kv_cache::BlockId, model::AdapterSlot,
            recurrence::SlotId,
        },
    },
};

/// A sequence's share of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Work {
    /// The sequence that it is work for.
    pub(crate) id: SequenceId,
    /// The position of the first token to compute.
    pub(crate) first: usize,
    /// The tokens to compute.
    pub(crate) token_ids: Vec<TokenId>,
    /// The sequence's blocks, enough for these tokens.
    pub(crate) blocks: Vec<BlockId>,
    /// The slot of the sequence's recurrent state; 0 in a model without such states.
    pub(crate) slot: SlotId,
    /// The slot of the sequence's adapter; `None` for the base.
    pub(crate) adapter: Option<AdapterSlot>,
    /// Where copies of the state are to go once so many tokens of the sequence are computed, ascending.
    pub(crate) snapshots: Vec<(usize, SlotId)>,
    /// For each token of the prompt to score: the row of its predecessor among `token_ids`, and its id.
    pub(crate) scores: Vec<(usize, TokenId)>,
    /// Whether the last token's logits give the next token.
    pub(crate) samples: bool,
    /// The images of the sequence, where it has some.
    pub(crate) images: Option<Arc<SequenceImages>>,
    /// How many of the last tokens are drafts: the logits of the one before them and of each of them are wanted.
    pub(crate) drafts: usize,
}

impl Work {
    /// The draft.
    pub(crate) fn draft(&self) -> &[TokenId] {
        &self.token_ids[self.token_ids.len() - self.drafts..]
    }

    /// Replaces the draft by one that is not longer.
    pub(crate) fn redraft(&mut self, draft: &[TokenId]) {
        debug_assert!(draft.len() <= self.drafts, "the step has no room for more");
        self.token_ids.truncate(self.token_ids.len() - self.drafts);
        self.token_ids.extend(draft);
        self.drafts = draft.len();
        self.blocks.truncate((self.first + self.token_ids.len()).div_ceil(BLOCK_TOKENS));
    }
}

/// A sequence for which a draft of another model is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DraftWish {
    /// The sequence.
    pub(crate) id: SequenceId,
    /// The most tokens of the draft, at least 1.
    pub(crate) most: usize,
}

/// What is computed in a step.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Blocks to copy before anything is computed, `(from, to)`, in this order.
    pub(crate) copies: Vec<(BlockId, BlockId)>,
    /// Recurrent states to copy before anything is computed, `(from, to)`, in this order.
    pub(crate) restores: Vec<(SlotId, SlotId)>,
    /// Adapters to put into slots before anything is computed.
    pub(crate) adapters: Vec<(AdapterSlot, Arc<Adapter>)>,
    /// The work of each sequence that takes part, at most one item for each.
    pub(crate) work: Vec<Work>,
    /// Sequences that run for the first time, with the tokens of their prompts that were cached.
    pub(crate) admitted: Vec<(SequenceId, usize)>,
    /// Sequences that had to give their blocks and slots back.
    pub(crate) preempted: usize,
    /// Sequences that gave back blocks which they only kept for later.
    pub(crate) reclaimed: usize,
    /// Sequences for which drafts of another model are wanted, all of which have work. The step has room for the drafts.
    pub(crate) wishes: Vec<DraftWish>,
    /// From which sources it could have drafts and whether it has them, in a step in which all sequences may have some.
    pub(crate) asked: Vec<Asked>,
}

impl Plan {
    pub(super) fn has(&self, id: SequenceId) -> bool {
        self.work.iter().any(|work| work.id == id)
    }
}

/// The next `tokens` tokens of a sequence.
pub(super) fn work(sequence: &Sequence, tokens: usize) -> Work {
    let first = sequence.computed;
    let end = first + tokens;
    let token_ids = sequence.token_ids[first..end].to_vec();
    let scores = if sequence.scores_from.is_some() {
        let rows = first.max(sequence.scored)..end.min(sequence.prompt_len - 1);
        rows.map(|position| (position - first, sequence.token_ids[position + 1])).collect()
    } else {
        Vec::new()
    };
    let blocks = sequence.blocks[..end.div_ceil(BLOCK_TOKENS)].to_vec();
    Work {
        id: sequence.id,
        first,
        token_ids,
        blocks,
        slot: sequence.slot.unwrap_or(0),
        adapter: sequence.adapter_slot,
        snapshots: Vec::new(),
        images: sequence.images.clone(),
        scores,
        samples: end == sequence.token_ids.len(),
        drafts: 0,
    }
}
