//! A compiled grammar, and a sequence that follows it.

use std::{fmt, sync::Arc};

use llguidance::{Matcher, api::StopReason};
use parking_lot::Mutex;

use super::vocabulary::Vocabulary;
use crate::{
    TokenId,
    sampling::{ConstraintState, SampleError, TokenConstraint, TokenMask},
};

/// A grammar, ready for any number of sequences.
pub(super) struct CompiledGrammar {
    vocabulary: Arc<Vocabulary>,
    /// As it was compiled: never advanced, only copied.
    start: Mutex<Matcher>,
}

/// Where a sequence stands in its grammar.
struct Following {
    vocabulary: Arc<Vocabulary>,
    matcher: Matcher,
}

impl CompiledGrammar {
    pub(super) fn new(vocabulary: Arc<Vocabulary>, start: Matcher) -> Self {
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
        // With its lexer: what other sequences have made it learn neither changes nor exhausts this one's.
        let matcher = self.start.lock().deep_clone();
        Box::new(Following { vocabulary: Arc::clone(&self.vocabulary), matcher })
    }
}

impl ConstraintState for Following {
    fn allow(&mut self, mask: &mut TokenMask) -> Result<bool, SampleError> {
        if self.finished() {
            mask.clear();
            return Ok(true);
        }
        let mut allowed = match self.matcher.compute_mask() {
            Ok(allowed) => allowed,
            // The grammar goes on, but with bytes that no token has.
            Err(_) if self.matcher.stop_reason() == StopReason::NoExtensionBias => {
                return Err(SampleError::NothingLeft);
            }
            Err(error) => return Err(self.fault(&error)),
        };
        let may_end = self.vocabulary.take_end(&mut allowed);
        mask.set(allowed.as_slice());
        Ok(may_end)
    }

    fn accept(&mut self, id: TokenId) -> Result<(), SampleError> {
        if self.finished() {
            return Err(SampleError::Unfollowable("a token was sampled after the end of the grammar"));
        }
        self.matcher.consume_token(id).map_err(|error| self.fault(&error))
    }
}

impl Following {
    /// Whether nothing can follow but the end.
    fn finished(&self) -> bool {
        matches!(self.matcher.stop_reason(), StopReason::NoExtension | StopReason::EndOfSentence)
    }

    fn fault(&self, error: &dyn fmt::Display) -> SampleError {
        let reason = self.matcher.stop_reason();
        tracing::warn!(%error, ?reason, "a grammar could not be followed");
        SampleError::Unfollowable(match reason {
            StopReason::LexerTooComplex => "its grammar needs too many states",
            StopReason::ParserTooComplex => "its grammar is too ambiguous",
            _ => "its grammar failed, see the server's log",
        })
    }
}
