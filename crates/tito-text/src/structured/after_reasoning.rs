//! A constraint that begins where reasoning ends: what a model thinks is free (vLLM: `should_fill_bitmask`).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    TokenId,
    sampling::{ConstraintState, Foresight, SampleError, SharedConstraint, TokenConstraint, TokenMask},
};

/// The tokens that end reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasoningEnd {
    /// What follows it is constrained.
    pub end: TokenId,
    /// Ends reasoning too, and is itself constrained.
    pub call: Option<TokenId>,
}

#[derive(Debug)]
struct AfterReasoning {
    inner: SharedConstraint,
    end: ReasoningEnd,
    vocab_size: usize,
}

#[derive(Debug)]
struct AfterReasoningState {
    inner: Box<dyn ConstraintState>,
    end: ReasoningEnd,
    vocab_size: usize,
    open: bool,
    /// Whether the output may begin with the token that also ends reasoning; asked once.
    calls: Option<bool>,
}

/// The constraint from the end of reasoning on; until then any of `vocab_size` tokens may come.
pub fn after_reasoning(inner: SharedConstraint, end: ReasoningEnd, vocab_size: usize) -> SharedConstraint {
    SharedConstraint::new(Arc::new(AfterReasoning { inner, end, vocab_size }))
}

impl TokenConstraint for AfterReasoning {
    fn start(&self) -> Box<dyn ConstraintState> {
        let Self { inner, end, vocab_size } = self;
        Box::new(AfterReasoningState {
            inner: inner.start(),
            end: *end,
            vocab_size: *vocab_size,
            open: true,
            calls: None,
        })
    }

    fn foresight(&self) -> Option<Box<dyn Foresight>> {
        Some(Box::new(AfterReasoningForesight { inner: self.inner.foresight()?, end: self.end, open: true }))
    }
}

#[derive(Debug)]
struct AfterReasoningForesight {
    inner: Box<dyn Foresight>,
    end: ReasoningEnd,
    open: bool,
}

impl AfterReasoningForesight {
    /// How many of these tokens are thoughts, the end of which is one of them.
    fn thoughts(&self, ids: &[TokenId]) -> usize {
        let ReasoningEnd { end, call } = self.end;
        let last = ids.iter().position(|id| *id == end || Some(*id) == call);
        last.map_or(ids.len(), |last| if ids[last] == end { last + 1 } else { last })
    }
}

impl Foresight for AfterReasoningForesight {
    fn follow(&mut self, id: TokenId) -> bool {
        let thought = self.open && self.end.call != Some(id);
        self.open = thought && id != self.end.end;
        thought || self.inner.follow(id)
    }

    fn forced(&mut self) -> Vec<TokenId> {
        if self.open { Vec::new() } else { self.inner.forced() }
    }

    fn accepts(&mut self, ids: &[TokenId]) -> usize {
        let thoughts = if self.open { self.thoughts(ids) } else { 0 };
        thoughts + self.inner.accepts(&ids[thoughts..])
    }

    fn allow(&mut self, mask: &mut TokenMask) -> Option<bool> {
        if self.open { None } else { self.inner.allow(mask) }
    }

    fn ahead(&self) -> Option<Box<dyn Foresight>> {
        Some(Box::new(Self { inner: self.inner.ahead()?, ..*self }))
    }
}

impl ConstraintState for AfterReasoningState {
    fn is_free(&self) -> bool {
        self.open && (self.end.call.is_none() || self.calls == Some(true))
    }

    fn allow(&mut self, mask: &mut TokenMask) -> Result<bool, SampleError> {
        if !self.open {
            return self.inner.allow(mask);
        }
        let Some(call) = self.end.call else {
            mask.fill(self.vocab_size);
            return Ok(false);
        };
        if self.calls.is_none() {
            let _ = self.inner.allow(mask)?;
            self.calls = Some(mask.allows(call));
        }
        mask.fill(self.vocab_size);
        if self.calls == Some(false) {
            mask.forbid(call);
        }
        // End tokens are among them.
        Ok(false)
    }

    fn accept(&mut self, id: TokenId) -> Result<(), SampleError> {
        if !self.open {
            return self.inner.accept(id);
        }
        self.open = id != self.end.end;
        if self.end.call == Some(id) {
            self.open = false;
            return self.inner.accept(id);
        }
        Ok(())
    }
}
