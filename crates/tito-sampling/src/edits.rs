//! Changes to logits that are taken back once a token is drawn.
//!
//! Masks, biases and penalties touch few tokens, so remembering what stood there is cheaper than copying a vocabulary.

use crate::TokenId;

/// What the edited logits were before.
#[derive(Debug, Default)]
pub(super) struct Edits {
    originals: Vec<(usize, f32)>,
}

impl Edits {
    /// Replaces a token's logit. A token without a logit cannot be sampled, so there is nothing to change for it.
    pub(super) fn edit(&mut self, logits: &mut [f32], id: TokenId, change: impl FnOnce(f32) -> f32) {
        let index = id as usize;
        if let Some(logit) = logits.get_mut(index) {
            self.originals.push((index, *logit));
            *logit = change(*logit);
        }
    }

    /// Makes a token impossible to sample.
    pub(super) fn forbid(&mut self, logits: &mut [f32], id: TokenId) {
        self.edit(logits, id, |_| f32::NEG_INFINITY);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.originals.is_empty()
    }

    /// Restores what was there, also where a token was edited twice.
    pub(super) fn undo(&mut self, logits: &mut [f32]) {
        for (index, original) in self.originals.drain(..).rev() {
            logits[index] = original;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undo_restores_a_token_edited_twice() {
        let mut logits = [1.0, 2.0];
        let mut edits = Edits::default();
        edits.edit(&mut logits, 1, |logit| logit + 1.0);
        edits.forbid(&mut logits, 1);
        assert_eq!(logits, [1.0, f32::NEG_INFINITY]);
        assert!(!edits.is_empty());
        edits.undo(&mut logits);
        assert_eq!(logits, [1.0, 2.0]);
        assert!(edits.is_empty());
    }

    #[test]
    fn a_token_without_a_logit_is_ignored() {
        let mut logits = [1.0];
        let mut edits = Edits::default();
        edits.forbid(&mut logits, 1);
        edits.forbid(&mut logits, TokenId::MAX);
        assert!(edits.is_empty());
    }
}
