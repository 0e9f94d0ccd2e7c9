//! All that the outputs of a request must keep to, as it can be written down and compiled again.

use serde::{Deserialize, Serialize};

use super::{
    Cancellation, Constraint, Grammars, ReasoningEnd, SingleCall, StructuredError, ThinkingBudget, after_reasoning,
};
use crate::sampling::SharedConstraint;

/// What an output must keep to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// What it must be.
    pub constraint: Option<Constraint>,
    /// The tokens after which that begins; `None` where it begins at once.
    pub reasoning_end: Option<ReasoningEnd>,
    /// How long its thoughts may be.
    pub budget: Option<ThinkingBudget>,
    /// The marks of calls that it has once, where it has to be nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub single_call: Option<SingleCall>,
}

impl Demand {
    /// Compiles it for a vocabulary of `vocab_size` tokens; `None` where nothing is demanded. It may take seconds.
    ///
    /// # Errors
    ///
    /// If the constraint cannot be compiled.
    pub fn compile(&self, grammars: &Grammars, vocab_size: usize) -> Result<Option<SharedConstraint>, StructuredError> {
        let compile = |constraint| grammars.compile(constraint, &Cancellation::default());
        let compiled = self.constraint.as_ref().map(compile).transpose()?;
        Ok(self.around(compiled, vocab_size))
    }

    /// Puts the rest of what is demanded around its compiled constraint: that it begins after thoughts, and how long those may
    /// be.
    pub fn around(&self, compiled: Option<SharedConstraint>, vocab_size: usize) -> Option<SharedConstraint> {
        let compiled = compiled.map(|compiled| match self.reasoning_end {
            Some(end) => after_reasoning(compiled, end, vocab_size),
            None => compiled,
        });
        let compiled = compiled.or_else(|| Some(self.single_call.as_ref()?.constraint(vocab_size)));
        match self.budget {
            Some(budget) => Some(budget.with(compiled)),
            None => compiled,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::structured::{Format, JsonOptions, Thoughts};

    #[test]
    fn what_is_written_down_is_read_again() {
        let options = JsonOptions { compact: true, whitespace: Some("[ ]?".to_owned()), ..JsonOptions::default() };
        let tags = json!({
            "type": "triggered_tags", "triggers": ["<a"], "at_least_one": true,
            "tags": [{ "begin": "<a>", "content": { "type": "json_schema", "json_schema": { "b": 1, "a": 0.1 } }, "end": ["</a>", "\n"] }],
        });
        let constraints = [
            Constraint::JsonObject(options.clone()),
            Constraint::Json(json!({ "type": "object", "properties": { "b": {}, "a": {} } }), options.clone()),
            Constraint::Regex("a+".to_owned()),
            Constraint::Choice(vec!["yes".to_owned(), "no".to_owned()]),
            Constraint::Grammar("root ::= \"a\"".to_owned()),
            Constraint::Tags(serde_json::from_value::<Format>(tags).unwrap(), options),
        ];
        let budget = ThinkingBudget {
            tokens: 3,
            start: Some(1),
            end: 2,
            call: None,
            reopens: true,
            begun: Thoughts::Open { tokens: 1, marked: false },
        };
        for constraint in constraints {
            let demand = Demand {
                constraint: Some(constraint),
                reasoning_end: Some(ReasoningEnd { end: 2, call: Some(3) }),
                budget: Some(budget),
                single_call: Some(SingleCall { marks: vec![7], reasoning_end: None }),
            };
            let written = serde_json::to_string(&demand).unwrap();
            let read: Demand = serde_json::from_str(&written).unwrap();
            assert_eq!(read, demand);
            // The order of properties is part of a grammar.
            assert_eq!(serde_json::to_string(&read).unwrap(), written);
        }
    }
}
