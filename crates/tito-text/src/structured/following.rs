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
        let follower = self.start.lock().copy(&self.vocabulary.watchdog);
        Some(Box::new(Foreseeing(Following { vocabulary: Arc::clone(&self.vocabulary), follower })))
    }
}

/// A second follower of a sequence. Saying what must come takes that in, with limits that the first one would not meet.
struct Foreseeing(Following);

impl fmt::Debug for Foreseeing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Foreseeing").finish_non_exhaustive()
    }
}

impl Foresight for Foreseeing {
    fn follow(&mut self, id: TokenId) -> bool {
        let Self(Following { follower, .. }) = self;
        !follower.finished() && follower.consume(id).is_ok()
    }

    fn forced(&mut self) -> Vec<TokenId> {
        // After a fault, the next token is not followed.
        self.0.follower.forced().unwrap_or_default()
    }

    fn accepts(&mut self, ids: &[TokenId]) -> usize {
        self.0.follower.accepts(ids).unwrap_or_default()
    }

    fn allow(&mut self, mask: &mut TokenMask) -> Option<bool> {
        let left = self.0.left(mask);
        if left.is_err() {
            // Nothing may come that is known.
            mask.clear();
        }
        Some(left.unwrap_or_default())
    }

    fn ahead(&self) -> Option<Box<dyn Foresight>> {
        let Following { vocabulary, follower } = &self.0;
        Some(Box::new(Self(Following { vocabulary: Arc::clone(vocabulary), follower: follower.ahead() })))
    }
}

impl Following {
    /// Writes the tokens that may come next, and says whether the output may also end here.
    fn left(&mut self, mask: &mut TokenMask) -> Result<bool, Fault> {
        if self.follower.finished() {
            mask.clear();
            return Ok(true);
        }
        let mut allowed = self.follower.mask()?;
        let may_end = self.vocabulary.take_end(&mut allowed);
        mask.set(allowed.as_slice());
        Ok(may_end)
    }
}

impl ConstraintState for Following {
    fn allow(&mut self, mask: &mut TokenMask) -> Result<bool, SampleError> {
        self.left(mask).map_err(|fault| error(&fault))
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
