//! At most one call in an answer that calls as it likes: a mark that begins calls is forbidden once it was sampled, and
//! everything else is free.
//!
//! Marks are told by their ids. A mark that the model spells with other tokens is not noticed here; the reader of the
//! answer notices the call.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{ReasoningEnd, after_reasoning};
use crate::{
    TokenId,
    sampling::{ConstraintState, SampleError, SharedConstraint, TokenConstraint, TokenMask},
};

/// The marks of calls that an answer may have once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SingleCall {
    /// Tokens each of which begins a call, or a list of calls.
    pub marks: Vec<TokenId>,
    /// The tokens after which marks count; `None` where they count at once.
    pub reasoning_end: Option<ReasoningEnd>,
}

impl SingleCall {
    /// The constraint, for a vocabulary of `vocab_size` tokens.
    pub fn constraint(&self, vocab_size: usize) -> SharedConstraint {
        let once = SharedConstraint::new(Arc::new(Once { marks: self.marks.as_slice().into(), vocab_size }));
        match self.reasoning_end {
            Some(end) => after_reasoning(once, end, vocab_size),
            None => once,
        }
    }
}

#[derive(Debug)]
struct Once {
    marks: Arc<[TokenId]>,
    vocab_size: usize,
}

#[derive(Debug)]
struct OnceState {
    marks: Arc<[TokenId]>,
    vocab_size: usize,
    /// The marks that were sampled.
    spent: Vec<TokenId>,
}

impl TokenConstraint for Once {
    fn start(&self) -> Box<dyn ConstraintState> {
        let Self { marks, vocab_size } = self;
        Box::new(OnceState { marks: Arc::clone(marks), vocab_size: *vocab_size, spent: Vec::new() })
    }
}

impl ConstraintState for OnceState {
    fn is_free(&self) -> bool {
        self.spent.is_empty()
    }

    fn allow(&mut self, mask: &mut TokenMask) -> Result<bool, SampleError> {
        mask.fill(self.vocab_size);
        self.spent.iter().for_each(|&mark| mask.forbid(mark));
        // End tokens are among them.
        Ok(false)
    }

    fn accept(&mut self, id: TokenId) -> Result<(), SampleError> {
        if self.marks.contains(&id) && !self.spent.contains(&id) {
            self.spent.push(id);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of the first eight tokens may follow `ids`.
    fn allowed(single: &SingleCall, ids: &[TokenId]) -> Vec<TokenId> {
        let mut state = single.constraint(8).start();
        for &id in ids {
            state.accept(id).unwrap();
        }
        let mut mask = TokenMask::default();
        let _ = state.allow(&mut mask).unwrap();
        (0..8).filter(|&id| mask.allows(id)).collect()
    }

    #[test]
    fn a_mark_is_forbidden_once_it_was_sampled() {
        let single = SingleCall { marks: vec![3, 5], reasoning_end: None };
        assert_eq!(allowed(&single, &[1, 2]), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(allowed(&single, &[1, 3, 2]), [0, 1, 2, 4, 5, 6, 7]);
        assert_eq!(allowed(&single, &[3, 5]), [0, 1, 2, 4, 6, 7]);
        assert!(single.constraint(8).start().is_free());
    }

    #[test]
    fn marks_within_thoughts_do_not_count() {
        let single = SingleCall { marks: vec![3], reasoning_end: Some(ReasoningEnd { end: 7, call: None }) };
        assert_eq!(allowed(&single, &[3, 3]), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(allowed(&single, &[3, 7]), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(allowed(&single, &[3, 7, 3]), [0, 1, 2, 4, 5, 6, 7]);
        // A mark that ends thoughts is the first one behind them.
        let single = SingleCall { marks: vec![3], reasoning_end: Some(ReasoningEnd { end: 7, call: Some(3) }) };
        assert_eq!(allowed(&single, &[1, 3]), [0, 1, 2, 4, 5, 6, 7]);
    }
}
