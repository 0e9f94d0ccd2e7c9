//! A compiled grammar, and a sequence that follows it.

use std::{fmt, sync::Arc};

use parking_lot::Mutex;

use super::{
    follower::{Fault, Follower},
    vocabulary::Vocabulary,
};
use crate::{
    TokenId,
    sampling::{ConstraintState, Foresight, SampleError, TokenConstraint, TokenMask},
};

/// A grammar, ready for any number of sequences.
pub(super) struct CompiledGrammar {
    vocabulary: Arc<Vocabulary>,
    /// The follower as it was compiled, which is never advanced, only copied.
    start: Mutex<Follower>,
}

/// Where a sequence stands in its grammar.
struct Following {
    vocabulary: Arc<Vocabulary>,
    follower: Follower,
}

impl CompiledGrammar {
    pub(super) fn new(vocabulary: Arc<Vocabulary>, start: Follower) -> Self {
        Self { vocabulary, start: Mutex::new(start) }
    }
}

impl fmt::Debug for CompiledGrammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompiledGrammar").finish_non_exhaustive()
    }
}

impl fmt::Debug for Following {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Following").finish_non_exhaustive()
    }
}

impl TokenConstraint for CompiledGrammar {
    fn start(&self) -> Box<dyn ConstraintState> {
        let follower = self.start.lock().copy(&self.vocabulary.watchdog);
        Box::new(Following { vocabulary: Arc::clone(&self.vocabulary), follower })
    }

    fn foresight(&self) -> Option<Box<dyn Foresight>> {
        Some(Box::new(Foreseeing(self.start.lock().copy(&self.vocabulary.watchdog))))
    }
}

/// A second follower of a sequence. Saying what must come takes that in, with limits that the first one would not meet.
struct Foreseeing(Follower);

impl fmt::Debug for Foreseeing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Foreseeing").finish_non_exhaustive()
    }
}

impl Foresight for Foreseeing {
    fn follow(&mut self, id: TokenId) -> bool {
        !self.0.finished() && self.0.consume(id).is_ok()
    }

    fn forced(&mut self) -> Vec<TokenId> {
        // After a fault, the next token is not followed.
        self.0.forced().unwrap_or_default()
    }
}

impl ConstraintState for Following {
    fn allow(&mut self, mask: &mut TokenMask) -> Result<bool, SampleError> {
        if self.follower.finished() {
            mask.clear();
            return Ok(true);
        }
        let mut allowed = self.follower.mask().map_err(|fault| error(&fault))?;
        let may_end = self.vocabulary.take_end(&mut allowed);
        mask.set(allowed.as_slice());
        Ok(may_end)
    }

    fn accept(&mut self, id: TokenId) -> Result<(), SampleError> {
        if self.follower.finished() {
            return Err(SampleError::Unfollowable("a token was sampled after the end of the grammar"));
        }
        self.follower.consume(id).map_err(|fault| error(&fault))
    }
}

fn error(fault: &Fault) -> SampleError {
    match fault {
        Fault::NothingFits => SampleError::NothingLeft,
        Fault::Failed(why) => {
            tracing::warn!(%why, "a grammar could not be followed");
            SampleError::Unfollowable(fault.reason())
        }
        _ => SampleError::Unfollowable(fault.reason()),
    }
}
