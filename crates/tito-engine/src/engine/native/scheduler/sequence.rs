//! One sequence: its tokens, and how much of it is computed.

use std::{ops::Range, sync::Arc};

use crate::{
    TokenId,
    engine::{
        Adapter, AdapterId,
        native::{
            backend::BLOCK_TOKENS,
            drafts::{Confidence, DraftContext, RecordedText},
            images::SequenceImages,
            kv_cache::{BlockHash, BlockId},
            model::AdapterSlot,
            recurrence::SlotId,
        },
        seat_queue::Claimant,
    },
};

/// Names a sequence; later ones have greater numbers.
pub(crate) type SequenceId = u64;

/// What a sequence is made of.
#[derive(Debug, Clone)]
pub(crate) struct NewSequence {
    /// See [`SequenceId`].
    pub(crate) id: SequenceId,
    /// Whose turn it takes.
    pub(crate) claimant: Claimant,
    /// At least one.
    pub(crate) prompt_token_ids: Vec<TokenId>,
    /// Tokens to sample at most.
    pub(crate) max_tokens: usize,
    /// Sequences share blocks only with those of the same salt.
    pub(crate) salt: Option<Arc<str>>,
    /// The adapter that it goes through; `None` for the base. Sequences share blocks only with those of the same one.
    pub(crate) adapter: Option<Arc<Adapter>>,
    /// The images of its prompt, where it has some.
    pub(crate) images: Option<Arc<SequenceImages>>,
    /// The position from which on logits of the prompt are wanted, so that what is cached after it is of no use.
    pub(crate) scores_from: Option<usize>,
}

/// A sequence in the scheduler.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) id: SequenceId,
    pub(super) claimant: Claimant,
    /// The step that it was last a part of.
    pub(super) step: u64,
    /// Prompt and output.
    pub(super) token_ids: Vec<TokenId>,
    pub(super) prompt_len: usize,
    /// Tokens that it has at the most, prompt and output.
    pub(super) longest: usize,
    /// What is expected of its drafts.
    pub(super) confidence: Confidence,
    /// What its structured output probably has to go on with.
    pub(super) forced: Vec<TokenId>,
    /// What is expected of drafts that are forced.
    pub(super) forced_confidence: Confidence,
    /// Its text, where those of all sequences are recorded for drafts.
    pub(super) text: Option<RecordedText>,
    pub(super) salt: Option<Arc<str>>,
    pub(super) adapter: Option<Arc<Adapter>>,
    pub(super) images: Option<Arc<SequenceImages>>,
    /// Where its adapter was when it began to run last.
    pub(super) adapter_slot: Option<AdapterSlot>,
    pub(super) scores_from: Option<usize>,
    /// Tokens whose keys and values are in the blocks.
    pub(super) computed: usize,
    pub(super) blocks: Vec<BlockId>,
    /// The slot of its recurrent state, as long as it has blocks; `None` in a model without such states.
    pub(super) slot: Option<SlotId>,
    /// How many tokens other sequences share with it whose state nobody had when it began to run, in whole blocks.
    pub(super) branch: usize,
    /// The copy of its state that it left last while it decoded.
    pub(super) left: Option<BlockHash>,
    /// Whether some of what is in the blocks was computed with other weights than the rest. Such blocks are for nobody
    /// else.
    pub(super) reuses_older_keys: bool,
    /// Before the first block, then after each whole block of tokens; as far as it was needed.
    pub(super) hashes: Vec<BlockHash>,
    /// The same with the hashes that others are told; none where nobody is.
    pub(super) told_hashes: Vec<BlockHash>,
    /// The position of the prompt whose logits are to be handed out next, where any are.
    pub(super) scored: usize,
    /// Set when it was first admitted: tokens of the prompt that were found in the cache.
    pub(super) cached_tokens: Option<usize>,
    pub(super) preemptions: u32,
}

impl Sequence {
    pub(super) fn new(new: NewSequence) -> Self {
        Self {
            id: new.id,
            claimant: new.claimant,
            step: 0,
            prompt_len: new.prompt_token_ids.len(),
            longest: new.prompt_token_ids.len().saturating_add(new.max_tokens),
            confidence: Confidence::default(),
            forced: Vec::new(),
            forced_confidence: Confidence::in_estimates(),
            text: None,
            token_ids: new.prompt_token_ids,
            salt: new.salt,
            adapter: new.adapter,
            images: new.images,
            adapter_slot: None,
            scores_from: new.scores_from,
            computed: 0,
            blocks: Vec::new(),
            slot: None,
            branch: 0,
            left: None,
            reuses_older_keys: false,
            hashes: Vec::new(),
            told_hashes: Vec::new(),
            scored: new.scores_from.unwrap_or(0),
            cached_tokens: None,
            preemptions: 0,
        }
    }

    /// Tokens that are not computed yet, at least 1.
    pub(super) fn remaining(&self) -> usize {
        self.token_ids.len() - self.computed
    }

    /// Whether log-probs of its prompt are wanted and not all handed out.
    pub(super) fn is_scoring(&self) -> bool {
        self.scores_from.is_some() && self.scored < self.prompt_len - 1
    }

    /// Whether log-probs of its prompt are wanted and none of them was seen yet: they are shown with its first token.
    pub(super) fn owes_scores(&self) -> bool {
        self.scores_from.is_some() && self.token_ids.len() == self.prompt_len
    }

    /// How many tokens may be found computed: the last one is computed in any case, because its logits are wanted, and
    /// so are those whose logits are to be handed out.
    pub(super) fn reusable(&self) -> usize {
        let last = self.token_ids.len() - 1;
        if self.is_scoring() { self.scored.min(last) } else { last }
    }

    /// How many tokens may be computed next of the `wanted` ones, where a step has room for `most`: an image that is seen both
    /// ways is not cut. May be 0, where the next image is longer than that.
    pub(super) fn piece(&self, wanted: usize, most: usize) -> usize {
        self.piece_after(self.computed, wanted, most)
    }

    /// The same after so many tokens.
    pub(super) fn piece_after(&self, computed: usize, wanted: usize, most: usize) -> usize {
        match self.cut_at(computed + wanted) {
            None => wanted,
            Some(image) if image.start > computed => image.start - computed,
            Some(image) => Some(image.end - computed).filter(|rest| *rest <= most).unwrap_or(0),
        }
    }

    /// The tokens of the image that would be cut before the token at this index, and must not be.
    pub(super) fn cut_at(&self, index: usize) -> Option<Range<usize>> {
        self.images.as_ref().and_then(|images| images.cut_at(index))
    }

    /// How many tokens of the sequence are computed next at the least: the image that it has come to, where that is seen both
    /// ways.
    pub(super) fn least_piece(&self) -> usize {
        self.cut_at(self.computed + 1).map_or(1, |image| image.end - self.computed)
    }

    /// Whether more than the newest token is to be computed.
    pub(super) fn is_prefilling(&self) -> bool {
        self.remaining() > 1
    }

    /// What drafts are made from.
    pub(super) fn draft_context(&mut self) -> DraftContext<'_> {
        DraftContext { text: &mut self.text, salt: self.salt.as_deref(), token_ids: &self.token_ids }
    }

    /// Hashes all whole blocks of tokens; the first hash is that of no block.
    pub(super) fn hash(&mut self, weight_version: u64) {
        if self.hashes.is_empty() {
            let adapter = self.adapter.as_ref().map(|adapter| adapter.id());
            self.hashes.push(BlockHash::root(weight_version, adapter.map(AdapterId::number), self.salt.as_deref()));
        }
        while self.hashes.len() * BLOCK_TOKENS <= self.token_ids.len() {
            let block = self.hashes.len() - 1;
            self.hashes.push(self.hash_after(block, block * BLOCK_TOKENS..(block + 1) * BLOCK_TOKENS));
        }
    }

    /// The hash of the tokens after the last whole block; `None` where there are none.
    pub(super) fn tail_hash(&self) -> Option<BlockHash> {
        let whole = self.token_ids.len() / BLOCK_TOKENS;
        let tail = whole * BLOCK_TOKENS..self.token_ids.len();
        (!tail.is_empty()).then(|| self.hash_after(whole, tail))
    }

    /// The hash of these tokens after so many whole blocks.
    fn hash_after(&self, whole: usize, tokens: Range<usize>) -> BlockHash {
        self.hash_from(self.hashes[whole], tokens)
    }

    /// The hash of these tokens after what has another hash.
    pub(super) fn hash_from(&self, before: BlockHash, tokens: Range<usize>) -> BlockHash {
        let hash = before.then(&self.token_ids[tokens.clone()]);
        match &self.images {
            Some(images) => hash.showing(images.within(tokens)),
            None => hash,
        }
    }

    /// Whether another sequence has the same token here, and the same part of an image if it stands for one.
    pub(super) fn agrees(&self, other: &Self, index: usize) -> bool {
        let mark = |sequence: &Self| sequence.images.as_ref().and_then(|images| images.mark(index));
        self.token_ids.get(index) == other.token_ids.get(index) && mark(self) == mark(other)
    }
}
