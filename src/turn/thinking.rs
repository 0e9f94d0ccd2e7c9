//! The budget that a request sets for the thoughts of its answers.

use super::{Sampling, TurnError, Turns};
use crate::{
    TokenId,
    generation::MarkIds,
    parser::{PromptReasoning, ReasoningFormat},
    structured::{ThinkingBudget, Thoughts},
};

/// How thoughts are told where there is a budget for them.
struct BudgetedMarks {
    marks: MarkIds,
    end: TokenId,
    /// How thoughts are read out of the answer; `None` where nobody reads them.
    reader: Option<ReasoningFormat>,
}

impl Turns {
    /// Refuses a budget for thoughts that could not be kept.
    ///
    /// # Errors
    ///
    /// If it is not known how the model ends its thoughts, or if the request forbids the end.
    pub fn check_thinking_budget(&self, sampling: &Sampling) -> Result<(), TurnError> {
        self.budgeted_marks(sampling).map(|_| ())
    }

    /// Returns the budget for the thoughts of the answers to `prompt`; `None` if there is none, or if the template has
    /// told the model not to think. Thoughts that the prompt leaves open count, as in vLLM; those of earlier turns do
    /// not.
    pub(super) fn thinking_budget(
        &self,
        sampling: &Sampling,
        prompt: &[TokenId],
    ) -> Result<Option<ThinkingBudget>, TurnError> {
        let (Some(tokens), Some(BudgetedMarks { marks, end, reader })) =
            (sampling.thinking_budget, self.budgeted_marks(sampling)?)
        else {
            return Ok(None);
        };
        if reader.is_none() && sampling.has_form() {
            // The form begins at once: nobody told thoughts from it, so it has none.
            return Ok(None);
        }
        let left = marks.left_by(prompt, self.tokenizer());
        let begun = match (left, reader.map(|reader| reader.begins_with_reasoning(left))) {
            (PromptReasoning::Begun(tokens), _) => Thoughts::Open { tokens, marked: true },
            // The answer begins with thoughts, with or without the mark that begins them.
            (PromptReasoning::Unmarked, Some(true)) => Thoughts::Open { tokens: 0, marked: false },
            (PromptReasoning::Unmarked, Some(false)) if !reader.is_some_and(|reader| reader.may_begin_later(left)) => {
                return Ok(None);
            }
            (PromptReasoning::Unmarked, _) => Thoughts::NotBegun,
            (PromptReasoning::Ended, _) => Thoughts::Ended,
        };
        let MarkIds { start, call, reopens, .. } = marks;
        Ok(Some(ThinkingBudget { tokens, start, end, call, reopens, begun }))
    }

    /// Returns how thoughts are told: as the answer's reader does, or where nobody reads it, by the server's parser.
    fn budgeted_marks(&self, sampling: &Sampling) -> Result<Option<BudgetedMarks>, TurnError> {
        const NO_PARSER: &str = "no reasoning parser is: start the server with --reasoning-parser, or leave it out";
        const NO_MARKS: &str = "no mark ends the thoughts of this server's --reasoning-parser: leave it out";
        const NO_END: &str = "the vocabulary has no token that ends thoughts: leave it out";
        const FORBIDDEN: &str = "`allowed_token_ids` or `bad_words` forbid the token that ends thoughts: allow it";

        if sampling.thinking_budget.is_none() {
            return Ok(None);
        }
        let reader = sampling.reasoning();
        let refused = |reason| Err(TurnError::ThinkingBudget { reason });
        let Some(parser) = self.policies.tools.reasoning else { return refused(NO_PARSER) };
        let Some(marks) = reader.map_or_else(|| parser.marks(), ReasoningFormat::marks) else {
            return refused(NO_MARKS);
        };
        let marks = MarkIds::new(marks, self.tokenizer());
        let Some(end) = marks.end else { return refused(NO_END) };
        if sampling.forbids(end) {
            return refused(FORBIDDEN);
        }
        Ok(Some(BudgetedMarks { marks, end, reader }))
    }
}
