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

/// Whether no thoughts follow `prompt`: it ended them, or the request wants none. Where the model may begin them by itself,
/// or they are a channel, that is not known yet.
pub fn reasoning_ended(format: ReasoningFormat, tokenizer: &Tokenizer, prompt: &[TokenId]) -> bool {
    let Some(marks) = format.marks() else { return false };
    match MarkIds::new(marks, tokenizer).left_by(prompt, tokenizer) {
        PromptReasoning::Ended => true,
        left => !format.begins_with_reasoning(left) && !format.may_begin_later(left),
    }
}

/// The end of a prompt, behind which text is read as behind all of it: `last` tokens, and before them the one that says
/// where the prompt leaves its reasoning, if that stands farther back.
pub fn end_of_prompt(
    format: Option<ReasoningFormat>,
    tokenizer: &Tokenizer,
    prompt: &[TokenId],
    last: usize,
) -> Vec<TokenId> {
    let (before, end) = prompt.split_at(prompt.len().saturating_sub(last));
    let marks = format.and_then(ReasoningFormat::marks).map(|marks| MarkIds::new(marks, tokenizer));
    let telling = marks.filter(|marks| marks.last_telling(end, tokenizer).is_none());
    let telling = telling.and_then(|marks| marks.last_telling(before, tokenizer));
    telling.into_iter().map(|index| before[index]).chain(end.iter().copied()).collect()
}

/// As many tokens of a prompt's end as hold a mark that is not one token, and the white space behind it.
const TOKENS_OF_MARK: usize = 32;

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
    /// Whether only the token that ends it counts, not a text that spells it.
    pub(super) by_id: bool,
    /// Whether a call ends it even if another end follows.
    pub(super) call_ends: bool,
    /// The marks themselves, where the vocabulary has neither the start nor the end as one token.
    texts: Option<ReasoningMarks>,
}

impl MarkIds {
    /// Looks the marks up.
    pub fn new(marks: ReasoningMarks, tokenizer: &Tokenizer) -> Self {
        let id = |mark: &str| tokenizer.id_of(mark);
        let (start, end) = (id(marks.start), id(marks.end));
        let texts = (start.is_none() && end.is_none()).then_some(marks);
        Self {
            start,
            end,
            call: marks.call.and_then(id),
            reopens: marks.reopens,
            call_ends: marks.call_ends,
            by_id: marks.by_id && end.is_some(),
            texts,
        }
    }

    /// Whether reasoning that is open ends with `id`, whatever follows.
    pub(super) fn closes_with(&self, id: TokenId) -> bool {
        Some(id) == self.end || (self.call_ends && Some(id) == self.call)
    }

    pub(super) fn ends(&self, id: TokenId) -> bool {
        Some(id) == self.end || Some(id) == self.call
    }

    /// Where `prompt` leaves the reasoning of the turn that is to be generated.
    ///
    /// Looks back to the last special token, after which that turn begins: what earlier turns thought says nothing. Marks
    /// that are several tokens count where the prompt ends with them.
    pub fn left_by(&self, prompt: &[TokenId], tokenizer: &Tokenizer) -> PromptReasoning {
        if let Some(texts) = self.texts {
            let known = prompt.rsplit(|&id| !tokenizer.contains(id)).next().unwrap_or_default();
            let tail = &known[known.len().saturating_sub(TOKENS_OF_MARK)..];
            return tokenizer.decode(tail, false).map_or(PromptReasoning::Unmarked, |text| left_by_text(texts, &text));
        }
        match self.last_telling(prompt, tokenizer) {
            Some(index) if self.ends(prompt[index]) => PromptReasoning::Ended,
            Some(index) if Some(prompt[index]) == self.start => PromptReasoning::Begun(prompt.len() - 1 - index),
            _ => PromptReasoning::Unmarked,
        }
    }

    /// The index of the last token that says where a prompt leaves the reasoning, where these marks are tokens: a mark, or a
    /// special token.
    fn last_telling(&self, prompt: &[TokenId], tokenizer: &Tokenizer) -> Option<usize> {
        let tells = |id: TokenId| self.ends(id) || Some(id) == self.start || tokenizer.is_special(id);
        if self.texts.is_some() { None } else { prompt.iter().rposition(|&id| tells(id)) }
    }
}

/// Where a text leaves the reasoning of which it may have the last mark at its end.
fn left_by_text(marks: ReasoningMarks, text: &str) -> PromptReasoning {
    let text = text.trim_end();
    if text.ends_with(marks.end) {
        PromptReasoning::Ended
    } else if text.ends_with(marks.start) {
        PromptReasoning::Begun(0)
    } else {
        PromptReasoning::Unmarked
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::parser::ReasoningParser;

    /// A tokenizer of single characters, in which marks are several tokens.
    fn of_characters() -> Tokenizer {
        let characters = (' '..='~').chain(['\n']);
        let vocab: serde_json::Map<_, _> =
            characters.zip(0..).map(|(character, id)| (character.to_string(), json!(id))).collect();
        let definition = json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null,
            "added_tokens": [], "post_processor": null, "decoder": { "type": "Fuse" },
            "model": { "type": "BPE", "vocab": vocab, "merges": [] },
        });
        Tokenizer::from_bytes(definition.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn marks_that_are_several_tokens_are_found_at_the_end_of_a_prompt() {
        let tokenizer = of_characters();
        for (name, text, left) in [
            ("olmo3", "hi <think>", PromptReasoning::Begun(0)),
            ("olmo3", "hi <think>\n", PromptReasoning::Begun(0)),
            ("olmo3", "<think>\n\n</think>\n\n", PromptReasoning::Ended),
            ("olmo3", "what is <think>?", PromptReasoning::Unmarked),
            ("olmo3", "", PromptReasoning::Unmarked),
            ("kimi_k3", "<|open|>think<|sep|>", PromptReasoning::Begun(0)),
            ("kimi_k3", "<|close|>think<|sep|>", PromptReasoning::Ended),
            ("granite", "so", PromptReasoning::Unmarked),
        ] {
            let ids: Vec<_> = text.chars().map(|c| tokenizer.id_of(&c.to_string()).unwrap()).collect();
            let marks = MarkIds::new(ReasoningParser::named(name).unwrap().marks().unwrap(), &tokenizer);
            assert_eq!(marks.left_by(&ids, &tokenizer), left, "{name}: {text:?}");
        }
    }
}
