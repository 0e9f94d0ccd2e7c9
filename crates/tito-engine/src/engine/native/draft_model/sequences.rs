//! What a draft model has computed of each sequence, and in which blocks.
//!
//! Owns numbers of blocks and counts of tokens. Refuses tensors.

use std::collections::HashMap;

use crate::{
    TokenId,
    engine::native::{
        backend::BLOCK_TOKENS,
        kv_cache::{BlockId, Places},
        scheduler::SequenceId,
    },
};

/// What is computed of a sequence.
#[derive(Debug, Default)]
struct Followed {
    /// Tokens of its text whose keys and values are in the blocks.
    computed: usize,
    /// Guesses whose keys and values come after them.
    guesses: Vec<TokenId>,
    blocks: Vec<BlockId>,
    /// Whether nothing can be guessed of it.
    lost: bool,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Sequences {
    blocks: Places,
    followed: HashMap<SequenceId, Followed>,
}

impl Sequences {
    /// Room in so many blocks.
    pub(super) fn new(blocks: usize) -> Self {
        Self { blocks: Places::new(blocks), followed: HashMap::new() }
    }

    /// Lets go of sequences that are not to be kept.
    pub(super) fn retain(&mut self, keeps: impl Fn(SequenceId) -> bool) {
        let Self { blocks, followed } = self;
        followed.retain(|id, sequence| {
            let is_kept = keeps(*id);
            if !is_kept {
                sequence.blocks.drain(..).for_each(|block| blocks.release(block));
            }
            is_kept
        });
    }

    /// Forgets what is computed of all sequences.
    pub(super) fn clear(&mut self) {
        self.retain(|_| false);
    }

    /// How many tokens of a sequence are computed, but for the last one, whose logits are wanted; `None` if nothing can be
    /// guessed of it. Guesses count as far as they came true.
    pub(super) fn computed(&mut self, id: SequenceId, token_ids: &[TokenId]) -> Option<usize> {
        let sequence = self.followed.entry(id).or_default();
        if sequence.lost {
            return None;
        }
        let text = token_ids.get(sequence.computed..).unwrap_or_default();
        let agreeing = sequence.guesses.drain(..).zip(text).take_while(|(guess, token)| guess == *token).count();
        sequence.computed = (sequence.computed + agreeing).min(token_ids.len().saturating_sub(1));
        Some(sequence.computed)
    }

    /// Takes blocks for so many tokens of a sequence; `false` if there are not enough.
    pub(super) fn reserve(&mut self, id: SequenceId, tokens: usize) -> bool {
        let sequence = self.followed.entry(id).or_default();
        while sequence.blocks.len() * BLOCK_TOKENS < tokens {
            let Some(block) = self.blocks.take_free() else { return false };
            sequence.blocks.push(block);
        }
        true
    }

    /// The blocks of so many tokens, which were [reserved](Self::reserve).
    pub(super) fn blocks(&self, id: SequenceId, tokens: usize) -> Vec<BlockId> {
        let blocks = self.followed.get(&id).map_or(&[][..], |sequence| &sequence.blocks);
        blocks[..tokens.div_ceil(BLOCK_TOKENS)].to_vec()
    }

    /// Takes note that a sequence is computed up to so many tokens of its text.
    pub(super) fn advance(&mut self, id: SequenceId, computed: usize) {
        if let Some(sequence) = self.followed.get_mut(&id) {
            sequence.computed = computed;
        }
    }

    /// Takes note that a guess is computed after the text and the guesses so far.
    pub(super) fn guess(&mut self, id: SequenceId, token: TokenId) {
        if let Some(sequence) = self.followed.get_mut(&id) {
            sequence.guesses.push(token);
        }
    }

    /// Guesses nothing of a sequence any more.
    pub(super) fn lose(&mut self, id: SequenceId) {
        if let Some(sequence) = self.followed.get_mut(&id) {
            sequence.blocks.drain(..).for_each(|block| self.blocks.release(block));
            *sequence = Followed { lost: true, ..Followed::default() };
        }
    }

    /// The number of blocks that sequences hold.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.blocks.held()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_count_as_far_as_they_came_true_and_the_last_token_never_does() {
        let mut sequences = Sequences::new(4);
        let mut text = vec![1, 2, 3];
        assert_eq!(sequences.computed(7, &text), Some(0));
        assert!(sequences.reserve(7, 6));
        sequences.advance(7, 3);
        for token in [4, 5, 6] {
            sequences.guess(7, token);
        }
        text.extend([4, 5, 9]);
        assert_eq!(sequences.computed(7, &text), Some(5), "6 was sampled as 9");
        sequences.advance(7, 6);
        for token in [10, 11] {
            sequences.guess(7, token);
        }
        text.extend([10, 11]);
        assert_eq!(sequences.computed(7, &text), Some(7), "the logits of the last token are wanted again");
        assert_eq!(sequences.computed(7, &text), Some(7));
        sequences.guess(7, 12);
        text.push(13);
        assert_eq!(sequences.computed(7, &text), Some(7), "a guess after what is computed twice is none of the text");
    }

    #[test]
    fn blocks_are_those_of_sequences_that_are_kept_and_not_lost() {
        let mut sequences = Sequences::new(3);
        assert!(sequences.reserve(1, BLOCK_TOKENS + 1) && sequences.reserve(2, 1));
        assert_eq!((sequences.blocks(1, BLOCK_TOKENS).len(), sequences.blocks(1, BLOCK_TOKENS + 1).len()), (1, 2));
        assert!(!sequences.reserve(2, BLOCK_TOKENS + 1), "there are no more");
        sequences.lose(1);
        assert_eq!((sequences.held(), sequences.computed(1, &[1, 2])), (1, None));
        assert!(sequences.reserve(2, BLOCK_TOKENS + 1));
        sequences.retain(|id| id == 1);
        assert_eq!((sequences.held(), sequences.computed(1, &[1, 2])), (0, None), "it stays lost");
        sequences.clear();
        assert_eq!(sequences.computed(1, &[1, 2]), Some(0));
    }
}
