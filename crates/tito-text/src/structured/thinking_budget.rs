//! A budget of tokens for thoughts: once it is used up, the mark that ends them is the only token left (vLLM:
//! `v1/worker/gpu/sample/thinking_budget.py`).
//!
//! Thoughts are told by the ids of their marks, as in vLLM. What deviates on purpose:
//! - A start within thoughts does not give them the whole budget again: a model could write one after the other.
//! - Thoughts that a call ends have ended; vLLM goes on to count, and writes the end of the thoughts into the call.
//! - A start after the end begins thoughts again, with the whole budget, only where the parser reads it so. Elsewhere it
//!   is a text of the answer, which has no budget.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    TokenId,
    sampling::{ConstraintState, Foresight, SampleError, SharedConstraint, TokenConstraint, TokenMask},
};

/// A budget for the thoughts of an answer, and the marks by which they are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThinkingBudget {
    /// At most so many tokens of thoughts, without their marks.
    pub tokens: usize,
    /// Begins thoughts.
    pub start: Option<TokenId>,
    /// Ends thoughts, and is what the budget forces.
    pub end: TokenId,
    /// Ends thoughts too.
    pub call: Option<TokenId>,
    /// Whether thoughts may begin again.
    pub reopens: bool,
    /// Where the prompt leaves the thoughts.
    pub begun: Thoughts,
}

/// How far the thoughts of an answer are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thoughts {
    /// They begin with the mark that begins them.
    NotBegun,
    /// They have begun.
    Open {
        /// The tokens of them so far.
        tokens: usize,
        /// Whether the mark that begins them was written; some models leave it out.
        marked: bool,
    },
    /// They have ended.
    Ended,
}

impl ThinkingBudget {
    /// Has the output keep to the budget, and to `inner` where there is such a constraint.
    pub fn with(self, inner: Option<SharedConstraint>) -> SharedConstraint {
        SharedConstraint::new(Arc::new(Budgeted { inner, budget: self }))
    }
}

#[derive(Debug)]
struct Budgeted {
    inner: Option<SharedConstraint>,
    budget: ThinkingBudget,
}

impl TokenConstraint for Budgeted {
    fn start(&self) -> Box<dyn ConstraintState> {
        let inner = self.inner.as_ref().map(SharedConstraint::start);
        Box::new(ThinkingBudgetState { inner, budget: self.budget, thoughts: self.budget.begun })
    }

    /// Of what stands beside the budget: the budget forces a single token.
    fn foresight(&self) -> Option<Box<dyn Foresight>> {
        self.inner.as_ref().and_then(SharedConstraint::foresight)
    }
}

#[derive(Debug)]
struct ThinkingBudgetState {
    inner: Option<Box<dyn ConstraintState>>,
    budget: ThinkingBudget,
    thoughts: Thoughts,
}

impl ThinkingBudgetState {
    /// Whether the thoughts have to end here.
    fn is_used_up(&self) -> bool {
        matches!(self.thoughts, Thoughts::Open { tokens, .. } if tokens >= self.budget.tokens)
    }
}

impl ConstraintState for ThinkingBudgetState {
    fn is_free(&self) -> bool {
        !self.is_used_up() && self.inner.as_ref().is_none_or(|inner| inner.is_free())
    }

    fn allow(&mut self, mask: &mut TokenMask) -> Result<bool, SampleError> {
        if !self.is_used_up()
            && let Some(inner) = &mut self.inner
        {
            return inner.allow(mask);
        }
        mask.clear();
        mask.allow(self.budget.end);
        if let (Thoughts::Open { tokens: 0, marked: false }, Some(start)) = (self.thoughts, self.budget.start) {
            mask.allow(start);
        }
        Ok(false)
    }

    fn accept(&mut self, id: TokenId) -> Result<(), SampleError> {
        if let Some(inner) = &mut self.inner {
            inner.accept(id)?;
        }
        let ThinkingBudget { start, end, call, reopens, .. } = self.budget;
        let starts = Some(id) == start;
        self.thoughts = match self.thoughts {
            Thoughts::Open { .. } if id == end || Some(id) == call => Thoughts::Ended,
            Thoughts::Open { tokens, .. } if starts => Thoughts::Open { tokens, marked: true },
            Thoughts::Open { tokens, marked } => Thoughts::Open { tokens: tokens + 1, marked },
            Thoughts::NotBegun if starts => Thoughts::Open { tokens: 0, marked: true },
            Thoughts::Ended if starts && reopens => Thoughts::Open { tokens: 0, marked: true },
            thoughts => thoughts,
        };
        Ok(())
    }
}
