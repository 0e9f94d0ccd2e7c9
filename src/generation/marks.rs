//! Where a prompt leaves the thoughts of an answer, and how many tokens it thought: told by the ids of their marks.

use crate::{
    TokenId,
    parser::{PromptReasoning, ReasoningFormat, ReasoningMarks},
    tokenizer::Tokenizer,
};

/// The tokens that end the reasoning that a prompt leaves open; a vocabulary may lack them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenReasoning {
    /// What follows it is the answer.
    pub end: Option<TokenId>,
    /// A mark that ends reasoning too, and that belongs to the answer.
    pub call: Option<TokenId>,
}

/// The reasoning that `prompt` leaves open; `None` where the answer begins at once, or in channels.
pub fn open_reasoning(
    format: Option<ReasoningFormat>,
    tokenizer: &Tokenizer,
    prompt: &[TokenId],
) -> Option<OpenReasoning> {
    let format = format?;
    let marks = MarkIds::new(format.marks()?, tokenizer);
    let open = format.begins_with_reasoning(marks.left_by(prompt, tokenizer));
    open.then_some(OpenReasoning { end: marks.end, call: marks.call })
}

/// The ids of the marks of reasoning, of which a vocabulary may lack some.
#[derive(Debug, Clone, Copy)]
pub struct MarkIds {
    /// Begins reasoning.
    pub start: Option<TokenId>,
    /// Ends it.
    pub end: Option<TokenId>,
    /// Ends it too, and belongs to the answer.
    pub call: Option<TokenId>,
    /// Whether it may begin again.
    pub reopens: bool,
}

impl MarkIds {
    /// Looks the marks up.
    pub fn new(marks: ReasoningMarks, tokenizer: &Tokenizer) -> Self {
        let id = |mark: &str| tokenizer.id_of(mark);
        Self { start: id(marks.start), end: id(marks.end), call: marks.call.and_then(id), reopens: marks.reopens }
    }

    pub(super) fn ends(&self, id: TokenId) -> bool {
        Some(id) == self.end || Some(id) == self.call
    }

    /// Where `prompt` leaves the reasoning of the turn that is to be generated.
    ///
    /// Looks back to the last special token, after which that turn begins: what earlier turns thought says nothing.
    pub fn left_by(&self, prompt: &[TokenId], tokenizer: &Tokenizer) -> PromptReasoning {
        let mut last = prompt.iter().rev().copied().enumerate();
        let told = last.find(|&(_, id)| self.ends(id) || Some(id) == self.start || tokenizer.is_special(id));
        match told {
            Some((_, id)) if self.ends(id) => PromptReasoning::Ended,
            Some((since, id)) if Some(id) == self.start => PromptReasoning::Begun(since),
            _ => PromptReasoning::Unmarked,
        }
    }
}
