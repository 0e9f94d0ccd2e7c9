//! What a form that a request demands says about the text of an answer.

/// What is known of the text of an answer before it is read, since the sampler holds it to something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AnswerForm {
    /// Whether everything behind the mark that ended the reasoning is content to the letter, marks included. It would not
    /// keep to its form without them.
    pub to_the_letter: bool,
    /// What the mark of a call is that stands in reasoning.
    pub call: CallInReasoning,
}

/// What the mark of a call is that stands in reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CallInReasoning {
    /// The end of the reasoning, if that has no other end.
    #[default]
    EndsUnended,
    /// The end of the reasoning: the sampler holds what follows to a call.
    Ends,
    /// A text of the reasoning: the sampler lets no call follow.
    Text,
}
