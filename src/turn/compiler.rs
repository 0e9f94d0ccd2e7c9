//! Compiles constraints on answers, away from the threads that serve connections, and only a few at once.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Sampling, TurnError};
use crate::{
    TokenId,
    generation::{OpenReasoning, open_reasoning},
    sampling::SharedConstraint,
    structured::{Cancellation, Constraint, Demand, Grammars, JsonOptions, ReasoningEnd, after_reasoning},
    tokenizer::Tokenizer,
};

/// So many short constraints are compiled at once; most of them take milliseconds.
const SHORT_COMPILATIONS: usize = 4;
/// So many long constraints are compiled at once; each may keep a core busy for seconds, and short ones do not wait for
/// them.
const LONG_COMPILATIONS: usize = 1;
/// A constraint of more bytes than this counts as a long one.
const SHORT_BYTES: usize = 1 << 14;

/// Compiles the constraints that requests ask for.
#[derive(Debug)]
pub struct StructuredOutputCompiler {
    tokenizer: Arc<Tokenizer>,
    grammars: Arc<Grammars>,
    /// What the server demands of JSON, whatever a request says.
    json: JsonOptions,
    short: Arc<Semaphore>,
    long: Arc<Semaphore>,
}

/// Cancels a compilation when the request that waits for it is dropped.
struct CancelOnDrop(Arc<Cancellation>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl StructuredOutputCompiler {
    /// Makes a compiler; `end` are the model's end-of-sequence tokens.
    pub fn new(tokenizer: Arc<Tokenizer>, end: impl IntoIterator<Item = TokenId>) -> Self {
        Self {
            grammars: Arc::new(Grammars::new(Arc::clone(&tokenizer), end)),
            tokenizer,
            json: JsonOptions::default(),
            short: Arc::new(Semaphore::new(SHORT_COMPILATIONS)),
            long: Arc::new(Semaphore::new(LONG_COMPILATIONS)),
        }
    }

    /// Makes all JSON follow the `compact` and `closed` options of `json`.
    #[must_use]
    pub fn with_json(self, json: JsonOptions) -> Self {
        Self { json, ..self }
    }

    /// Compiles the constraint of `sampling`, away from the threads that serve connections. Reasoning that may come
    /// first is not constrained, as in vLLM.
    pub async fn constrain(
        &self,
        sampling: &mut Sampling,
        prompt: &[TokenId],
        vocab_size: usize,
    ) -> Result<(), TurnError> {
        let compiled = self.compile(sampling).await?;
        if compiled.is_none() && !sampling.calls_once() {
            return Ok(());
        }
        let reasoning_end = match open_reasoning(sampling.reasoning(), &self.tokenizer, prompt) {
            None => Ok(None),
            Some(OpenReasoning { end: Some(end), call }) => Ok(Some(ReasoningEnd { end, call })),
            Some(OpenReasoning { end: None, .. }) => Err(TurnError::NoEndOfReasoning),
        };
        let Some((constraint, compiled)) = compiled else {
            // Calls after thoughts without an end are told by the reader only.
            if let Ok(reasoning_end) = reasoning_end {
                sampling.count_calls_after(reasoning_end);
            }
            return Ok(());
        };
        let reasoning_end = reasoning_end?;
        let compiled = match reasoning_end {
            Some(end) => after_reasoning(compiled, end, vocab_size),
            None => compiled,
        };
        sampling.set_compiled(compiled, constraint, reasoning_end);
        Ok(())
    }

    async fn compile(&self, sampling: &mut Sampling) -> Result<Option<(Arc<Constraint>, SharedConstraint)>, TurnError> {
        let Some(constraint) = sampling.take_constraint() else { return Ok(None) };
        if !sampling.can_end() {
            return Err(TurnError::NoEnd);
        }
        let constraint = Arc::new(constraint.within(&self.json));
        let compiled = self.compiled(Arc::clone(&constraint)).await?;
        Ok(Some((constraint, compiled)))
    }

    /// Compiles again what an output had to keep to, as a capture has it, for a vocabulary of `vocab_size` tokens; `None` where
    /// it had to keep to nothing. It takes turns with the constraints of requests.
    ///
    /// # Errors
    ///
    /// If the constraint cannot be compiled any more.
    pub(crate) async fn compile_again(
        &self,
        mut demand: Demand,
        vocab_size: usize,
    ) -> Result<Option<SharedConstraint>, TurnError> {
        let compiled = match demand.constraint.take() {
            Some(constraint) => Some(self.compiled(Arc::new(constraint)).await?),
            None => None,
        };
        Ok(demand.around(compiled, vocab_size))
    }

    /// Compiles a constraint when its turn comes; dropping the future gives up the turn, or ends the compilation.
    async fn compiled(&self, constraint: Arc<Constraint>) -> Result<SharedConstraint, TurnError> {
        let turn = self.turn(&constraint).await?;
        let cancellation = Arc::new(Cancellation::default());
        let _cancelled = CancelOnDrop(Arc::clone(&cancellation));
        let grammars = Arc::clone(&self.grammars);
        // The turn ends when the work does, even if nobody waits for it any more.
        let compiled = tokio::task::spawn_blocking(move || {
            let _turn: OwnedSemaphorePermit = turn;
            grammars.compile(&constraint, &cancellation)
        });
        Ok(compiled.await.map_err(TurnError::internal)??)
    }

    /// Waits until the constraint may be compiled; a request that goes away while it waits has not begun to compile.
    async fn turn(&self, constraint: &Constraint) -> Result<OwnedSemaphorePermit, TurnError> {
        let turns = if constraint.is_longer_than(SHORT_BYTES) { &self.long } else { &self.short };
        Arc::clone(turns).acquire_owned().await.map_err(TurnError::internal)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn compiler() -> StructuredOutputCompiler {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tiny-model/tokenizer.json");
        StructuredOutputCompiler::new(Arc::new(Tokenizer::from_file(path).unwrap()), [2])
    }

    #[tokio::test]
    async fn short_constraints_do_not_wait_for_long_ones() {
        let compiler = compiler();
        let busy = compiler.turn(&Constraint::Regex("a".repeat(SHORT_BYTES + 1))).await.unwrap();
        let long = Constraint::Regex("b".repeat(SHORT_BYTES + 1));
        assert!(compiler.turn(&long).now_or_never().is_none(), "one at a time");
        assert!(compiler.turn(&Constraint::Regex("a".to_owned())).now_or_never().is_some());
        drop(busy);
        assert!(compiler.turn(&long).now_or_never().is_some());
    }

    #[tokio::test]
    async fn what_is_dropped_while_it_waits_is_never_compiled() {
        let compiler = compiler();
        let constraint = Arc::new(Constraint::Regex("c".repeat(SHORT_BYTES + 1)));
        let busy = compiler.turn(&constraint).await.unwrap();
        assert!(compiler.compiled(Arc::clone(&constraint)).now_or_never().is_none());
        drop(busy);
        // Nothing holds the turn, because the dropped compilation had not begun.
        assert!(compiler.turn(&constraint).now_or_never().is_some());
        assert!(compiler.compiled(constraint).await.is_ok());
    }
}
