//! The splice: known ids, then the tail of the honest render, with a proof or a refusal.
//!
//! "Anchored tail": the message that the known ids end with (the anchor) is rendered with a random word in its place;
//! what follows the word is the template's own close of that message and everything after it. Only that tail is
//! encoded. It starts at an added token, where no merge can cross the seam, and the honest render must end with the
//! very same bytes, so no later message can be lost or changed. Pure: rendering and encoding are handed in.

use aho_corasick::{AhoCorasick, MatchKind};

use super::{PromptError, UnprovableSplice, conversation::Conversation};
use crate::{
    TokenId,
    json::{Object, Value},
    tokenizer::{AddedToken, Tokenizer},
};

/// The added tokens of a tokenizer at which a tail may start.
pub(super) struct Seams {
    automaton: AhoCorasick,
    ids: Vec<TokenId>,
}

/// Known ids joined with the tail of the render.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Joined {
    /// Starts with all known ids.
    pub(super) token_ids: Vec<TokenId>,
    /// Tokens of the tail that the known ids already ended with.
    pub(super) overlap: usize,
    /// The known ids end with a stop token that is not the one that the template closes the message with.
    pub(super) foreign_stop: bool,
}

impl Seams {
    /// Takes the special tokens of the vocabulary and every stop token that is an added token.
    pub(super) fn new(added: &[AddedToken], stops: &[TokenId]) -> Self {
        let seams = added.iter().filter(|token| !token.content.is_empty());
        let seams: Vec<_> = seams.filter(|token| token.special || stops.contains(&token.id)).collect();
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(seams.iter().map(|token| token.content.as_str()))
            .expect("a few thousand short patterns fit an automaton");
        Self { automaton, ids: seams.iter().map(|token| token.id).collect() }
    }

    /// The tokens in `text`, each with the byte where it starts.
    fn find<'t>(&'t self, text: &'t str) -> impl Iterator<Item = (usize, TokenId)> + 't {
        self.automaton.find_iter(text).map(|found| (found.start(), self.ids[found.pattern().as_usize()]))
    }
}

/// What of the anchor is replaced by the word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variant {
    /// The arguments of one of its calls: the text after them, up to the stop token, is the model's own.
    Arguments(usize),
    /// Its content; nothing but white space may stand between content and close.
    Content,
}

/// Everything that a splice is made of.
pub(super) struct Splice<'a> {
    pub(super) conversation: &'a Conversation<'a>,
    pub(super) tokenizer: &'a Tokenizer,
    pub(super) seams: &'a Seams,
    /// Ids that end a generation.
    pub(super) stops: &'a [TokenId],
    /// The honest render.
    pub(super) render: &'a str,
    /// The message of the request that the known ids end with.
    pub(super) anchor: usize,
    /// Prompt and generation up to and including the anchor.
    pub(super) known: &'a [TokenId],
}

impl Splice<'_> {
    /// Joins the known ids with the tail of the render, trying each way to find it.
    pub(super) fn join(&self) -> Result<Joined, PromptError> {
        if self.conversation.continues(self.anchor) {
            return self.join_open();
        }
        let mut reason = UnprovableSplice::AnchorNotRendered;
        let mut foreign = None;
        for variant in self.variants() {
            match self.tail(variant)? {
                Ok(tail) => {
                    let joined = self.join_tail(tail)?;
                    if !joined.foreign_stop {
                        return Ok(joined);
                    }
                    foreign = foreign.or(Some(joined));
                }
                Err(refused) => reason = refused,
            }
        }
        foreign.ok_or(PromptError::Unprovable(reason))
    }

    /// The anchor is the message to be continued: the prompt ends with the known ids.
    fn join_open(&self) -> Result<Joined, PromptError> {
        if self.known.last().is_some_and(|id| self.stops.contains(id)) {
            return Err(PromptError::Unprovable(UnprovableSplice::ContinuesClosedMessage));
        }
        Ok(Joined { token_ids: self.known.to_vec(), overlap: 0, foreign_stop: false })
    }

    fn variants(&self) -> Vec<Variant> {
        let calls = self.conversation.message(self.anchor).get("tool_calls").and_then(Value::as_array);
        let calls = calls.map_or(0, <[Value]>::len);
        (0..calls).rev().map(Variant::Arguments).chain([Variant::Content]).collect()
    }

    /// The tail of the honest render that starts with the anchor's close, or why this variant does not show it.
    fn tail(&self, variant: Variant) -> Result<Result<&str, UnprovableSplice>, PromptError> {
        let words = [self.word(), self.word()];
        let [first, second] = words.each_ref().map(|word| self.text_after(variant, word));
        let (first, second) = match (first, second) {
            (Ok(first), Ok(second)) => (first, second),
            // A template may refuse the word where it takes the message itself; another variant may still prove it.
            (Err(PromptError::Template(_)), _) | (_, Err(PromptError::Template(_))) => {
                return Ok(Err(UnprovableSplice::AnchorNotRendered));
            }
            (Err(error), _) | (_, Err(error)) => return Err(error),
        };
        let Some(after) = first.filter(|first| second.as_ref() == Some(first)) else {
            return Ok(Err(UnprovableSplice::AnchorNotRendered));
        };
        let Some(start) = self.close(variant, &after) else {
            return Ok(Err(UnprovableSplice::NoClose));
        };
        let tail = &after[start..];
        if !self.render.ends_with(tail) {
            return Ok(Err(UnprovableSplice::TailDiffers));
        }
        Ok(Ok(&self.render[self.render.len() - tail.len()..]))
    }

    /// A word that does not occur in the conversation.
    fn word(&self) -> String {
        loop {
            let word = format!("tito{}", uuid::Uuid::new_v4().simple());
            if !self.render.contains(&word) {
                return word;
            }
        }
    }

    /// What follows the word where it stands exactly once.
    fn text_after(&self, variant: Variant, word: &str) -> Result<Option<String>, PromptError> {
        let Some(message) = self.marked(variant, word) else { return Ok(None) };
        let text = self.conversation.text_with(self.anchor, &message)?;
        let mut pieces = text.split(word);
        let after = pieces.nth(1);
        Ok(if pieces.next().is_none() { after.map(str::to_owned) } else { None })
    }

    fn marked(&self, variant: Variant, word: &str) -> Option<Object> {
        let mut message = self.conversation.message(self.anchor).clone();
        match variant {
            Variant::Content => {
                message.insert("content".to_owned(), self.conversation.content(word));
                message.shift_remove("reasoning");
                message.shift_remove("reasoning_content");
            }
            Variant::Arguments(call) => {
                let Value::Array(calls) = message.get_mut("tool_calls")? else { return None };
                let function = calls.get_mut(call)?.as_object_mut()?.get_mut("function")?;
                let arguments = function.as_object_mut()?.get_mut("arguments")?;
                let marked = Value::Object(Object::from_iter([("zz".to_owned(), Value::from(word))]));
                *arguments = match arguments {
                    Value::String(_) => Value::String(marked.to_json_string()),
                    _ => marked,
                };
            }
        }
        Some(message)
    }

    /// The byte of `after` at which the close starts.
    fn close(&self, variant: Variant, after: &str) -> Option<usize> {
        let mut found = self.seams.find(after);
        match variant {
            Variant::Content => {
                let start = found.next().map_or(after.len(), |(start, _)| start);
                after[..start].trim().is_empty().then_some(start)
            }
            Variant::Arguments(_) => {
                let found: Vec<_> = found.collect();
                let stop = found.iter().find(|(_, id)| self.stops.contains(id));
                Some(stop.or(found.first())?.0)
            }
        }
    }

    fn join_tail(&self, tail: &str) -> Result<Joined, PromptError> {
        let suffix = self.tokenizer.encode(tail, false)?;
        let starts_at_seam = match (self.seams.find(tail).next(), suffix.first()) {
            (Some((0, id)), Some(first)) => id == *first,
            (None, None) => true,
            _ => false,
        };
        if !starts_at_seam {
            return Err(PromptError::Unprovable(UnprovableSplice::TokenizerMovesSeam));
        }
        Ok(join(self.known, &suffix, self.close_len(&suffix), self.stops))
    }

    /// How many of the tail's first tokens close the message: the known ids may end with some of them already.
    fn close_len(&self, suffix: &[TokenId]) -> usize {
        suffix.iter().take_while(|id| self.seams.ids.contains(id)).count()
    }
}

/// Puts `suffix` behind `known`, without the part of the close that `known` ends with.
fn join(known: &[TokenId], suffix: &[TokenId], close_len: usize, stops: &[TokenId]) -> Joined {
    let overlap = (1..=close_len.min(known.len())).rev().find(|&length| known.ends_with(&suffix[..length]));
    let overlap = overlap.unwrap_or(0);
    let foreign_stop = overlap == 0 && known.last().is_some_and(|id| stops.contains(id));
    Joined { token_ids: [known, &suffix[overlap..]].concat(), overlap, foreign_stop }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_turn_is_not_closed_twice() {
        let joined = join(&[5, 6, 2], &[2, 198, 1], 1, &[2]);
        assert_eq!(joined, Joined { token_ids: vec![5, 6, 2, 198, 1], overlap: 1, foreign_stop: false });
    }

    #[test]
    fn a_truncated_turn_gets_the_templates_close() {
        let joined = join(&[5, 6], &[2, 198, 1], 1, &[2]);
        assert_eq!(joined, Joined { token_ids: vec![5, 6, 2, 198, 1], overlap: 0, foreign_stop: false });
    }

    #[test]
    fn a_close_of_two_tokens_is_completed() {
        let suffix = [8, 9, 1];
        assert_eq!(join(&[5], &suffix, 2, &[9]).token_ids, [5, 8, 9, 1]);
        assert_eq!(join(&[5, 8], &suffix, 2, &[9]).token_ids, [5, 8, 9, 1]);
        assert_eq!(join(&[5, 8, 9], &suffix, 2, &[9]).token_ids, [5, 8, 9, 1]);
    }

    #[test]
    fn another_stop_token_is_kept_and_reported() {
        let joined = join(&[5, 7], &[2, 198], 1, &[2, 7]);
        assert_eq!(joined, Joined { token_ids: vec![5, 7, 2, 198], overlap: 0, foreign_stop: true });
    }
}
