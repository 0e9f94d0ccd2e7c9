//! The splice: known ids, then the tail of the honest render, with a proof or a refusal.
//!
//! "Anchored tail": the message that the known ids end with (the anchor) is rendered with a random word in its place;
//! what follows the word is the template's own close of that message and everything after it. Only that tail is
//! encoded. It starts at an added token, where no merge can cross the seam, and the honest render must end with the
//! very same bytes, so no later message can be lost or changed. Pure: rendering and encoding are handed in.
//!
//! That takes two more renders of everything, so the proof is first tried on a short conversation (`short`), and on the
//! whole one where that proves nothing.

use super::{
    PromptError, UnprovableSplice,
    conversation::{Conversation, common_prefix},
    marks::{Part, calls, last_text, with_part},
    seams::{Seam, Seams},
    short::Short,
};
use crate::{TokenId, tokenizer::Tokenizer};

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

/// Everything that a splice is made of.
#[derive(Clone, Copy)]
pub(super) struct Splice<'a> {
    pub(super) conversation: &'a Conversation<'a>,
    pub(super) tokenizer: &'a Tokenizer,
    pub(super) seams: &'a Seams,
    /// Ids that end a generation.
    pub(super) stops: &'a [TokenId],
    /// The honest render.
    pub(super) render: &'a str,
    /// Prompt and generation up to and including the anchor.
    pub(super) known: &'a [TokenId],
    /// How many of them were sampled for the anchor, at the most.
    pub(super) sampled: usize,
}

/// A render with a word in the place of a part of the anchor.
pub(super) struct Shown {
    pub(super) before: String,
    pub(super) after: String,
    /// What everything else says that the model wrote in the anchor.
    pub(super) other: String,
}

/// The end of a render that starts with the anchor's close.
pub(super) struct Tail {
    /// Its length in bytes.
    pub(super) length: usize,
    /// What stands before the word that took the place of a part of the anchor, in the render that showed it.
    pub(super) before: String,
}

/// What became of the parts of the anchor.
struct Tried {
    joined: Option<Joined>,
    /// Why one of them shows no close, where none was enough.
    refused: Option<UnprovableSplice>,
}

impl Splice<'_> {
    /// Joins the known ids, which end with message `anchor` of the request, with the tail of the render.
    pub(super) fn join(&self, anchor: usize) -> Result<Joined, PromptError> {
        if self.conversation.reorders(anchor) {
            return Err(PromptError::Unprovable(UnprovableSplice::MessagesMoved));
        }
        if self.conversation.continues(anchor) {
            return self.join_open(anchor);
        }
        let short = self.try_short(anchor)?;
        if !cfg!(debug_assertions)
            && let Some(joined) = short
        {
            return Ok(joined);
        }
        let tried = self.try_parts(anchor, |part| Ok(self.tail(anchor, part)?.length))?;
        if short.is_some() {
            assert_eq!(short, tried.joined, "the short conversation proves what the whole one does not");
        }
        tried.joined.ok_or(PromptError::Unprovable(tried.refused.unwrap_or(UnprovableSplice::AnchorNotRendered)))
    }

    /// Joins by the short conversation, if the whole one could say nothing else.
    fn try_short(&self, anchor: usize) -> Result<Option<Joined>, PromptError> {
        let Some(short) = Short::new(self, anchor) else { return Ok(None) };
        let tried = self.try_parts(anchor, |part| short.tail_length(anchor, part))?;
        Ok(tried.joined.filter(|_| tried.refused.is_none()))
    }

    /// Joins behind the first part whose close the known ids do not contradict, or else behind the first that has one.
    fn try_parts(
        &self,
        anchor: usize,
        tail_length: impl Fn(Part) -> Result<usize, PromptError>,
    ) -> Result<Tried, PromptError> {
        let message = self.conversation.message(anchor);
        let parts = (0..calls(message).len()).rev().map(Part::Arguments).chain([Part::Content]);
        let mut tried = Tried { joined: None, refused: None };
        for part in parts {
            let tail = tail_length(part).map(|length| &self.render[self.render.len() - length..]);
            match tail.and_then(|tail| self.join_tail(tail)) {
                Ok(joined) if joined.foreign_stop => tried.joined = tried.joined.or(Some(joined)),
                Ok(joined) => return Ok(Tried { joined: Some(joined), refused: None }),
                Err(PromptError::Unprovable(reason)) => tried.refused = Some(reason),
                Err(error) => return Err(error),
            }
        }
        Ok(tried)
    }

    /// The anchor is the message to be continued: the prompt ends with the known ids, if they say what it says.
    fn join_open(&self, anchor: usize) -> Result<Joined, PromptError> {
        let last = self.known.last().filter(|_| self.sampled > 0);
        let stopped = last.is_some_and(|id| self.stops.contains(id));
        let content = spoken(last_text(self.conversation.message(anchor)));
        let says = |skip_special_tokens| {
            let known = self.decode(self.known, skip_special_tokens)?;
            Ok::<_, PromptError>(spoken(&known).ends_with(content))
        };
        if !stopped && says(false)? {
            return Ok(Joined { token_ids: self.known.to_vec(), overlap: 0, foreign_stop: false });
        }
        if stopped || last.is_some_and(|&id| self.seams.contains(id)) {
            return Err(PromptError::Unprovable(UnprovableSplice::ContinuesClosedMessage));
        }
        if says(true)? {
            return Ok(Joined { token_ids: self.known.to_vec(), overlap: 0, foreign_stop: false });
        }
        Err(PromptError::Unprovable(UnprovableSplice::ContinuesOtherText))
    }

    /// The text of ids, as far as they have one: a model may be wider than its tokenizer.
    pub(super) fn decode(&self, ids: &[TokenId], skip_special_tokens: bool) -> Result<String, PromptError> {
        let ids: Vec<_> = ids.iter().copied().filter(|&id| self.tokenizer.contains(id)).collect();
        Ok(self.tokenizer.decode(&ids, skip_special_tokens)?)
    }

    /// The tail of the honest render that starts with the anchor's close, or why this part does not show it.
    pub(super) fn tail(&self, anchor: usize, part: Part) -> Result<Tail, PromptError> {
        let unprovable = |reason| Err(PromptError::Unprovable(reason));
        let word = fresh_word();
        let shown = self.shown(anchor, part, &word, None)?;
        let own = if self.conversation.is_last(anchor) {
            shown.after.len()
        } else {
            let later = fresh_word();
            let marked = self.shown(anchor, part, &word, Some(&later))?;
            if marked.before.contains(&later) {
                return unprovable(UnprovableSplice::MessagesMoved);
            }
            let own = marked.after.split(&later).next().unwrap_or_default();
            common_prefix(&shown.after, own)
        };
        let Some(start) = self.close(anchor, part, &shown, own) else {
            return unprovable(UnprovableSplice::NoClose);
        };
        let tail = &shown.after[start..];
        let Some(head) = self.render.strip_suffix(tail) else {
            return unprovable(UnprovableSplice::TailDiffers);
        };
        let is_close = match part {
            Part::Content => self.ends_with_content(anchor, head, &shown.before),
            Part::Arguments(call) => head.ends_with(self.trailer(anchor, call, &shown, start)),
        };
        if !is_close {
            return unprovable(UnprovableSplice::TailDiffers);
        }
        Ok(Tail { length: tail.len(), before: shown.before })
    }

    /// The render around the word, where it stands exactly once. `later` is what the messages behind the anchor say
    /// instead of their own.
    fn shown(&self, anchor: usize, part: Part, word: &str, later: Option<&str>) -> Result<Shown, PromptError> {
        let not_rendered = PromptError::Unprovable(UnprovableSplice::AnchorNotRendered);
        let other = fresh_word();
        let Some(message) = with_part(self.conversation.message(anchor), part, word, &other) else {
            return Err(not_rendered);
        };
        // A template may refuse the word where it takes the message itself; another part may still prove it.
        let text = match self.conversation.text_with(anchor, message, later) {
            Err(PromptError::Template(error)) if !error.is_exceeded() => return Err(not_rendered),
            text => text?,
        };
        match text.split_once(word) {
            Some((before, after)) if !after.contains(word) => {
                Ok(Shown { before: before.to_owned(), after: after.to_owned(), other })
            }
            _ => Err(not_rendered),
        }
    }

    /// The byte behind the word at which the close starts; it lies within the first `own` bytes, behind which later
    /// messages speak.
    fn close(&self, anchor: usize, part: Part, shown: &Shown, own: usize) -> Option<usize> {
        let after = shown.after.as_str();
        let seams: Vec<Seam> = self.seams.find(after).take_while(|seam| seam.end <= own).collect();
        let message = self.conversation.message(anchor);
        let is_stop = |seam: &&Seam| self.stops.contains(&seam.id);
        match part {
            Part::Content => {
                let Some(first) = seams.first() else {
                    // Nothing closes the last message of some templates.
                    return (own == after.len() && after.trim().is_empty()).then_some(own);
                };
                // Where calls are shown, a token that ends no generation may be the start of one.
                let closes = is_stop(&first) || !self.shows_calls(anchor, after);
                (closes && after[..first.start].trim().is_empty()).then_some(first.start)
            }
            Part::Arguments(_) if calls(message).iter().any(|call| self.spells_seam(call)) => None,
            Part::Arguments(_) => {
                let ended = self.known.last().and_then(|id| seams.iter().find(|seam| seam.id == *id));
                let close = ended.filter(is_stop).or(seams.iter().find(is_stop)).or(ended).or(seams.first());
                close.map(|seam| seam.start)
            }
        }
    }

    fn join_tail(&self, tail: &str) -> Result<Joined, PromptError> {
        let suffix = self.tokenizer.encode(tail, false)?;
        let starts_at_seam = match (self.seams.find(tail).next(), suffix.first()) {
            (Some(seam), Some(first)) => seam.start == 0 && seam.id == *first,
            (None, None) => true,
            _ => false,
        };
        if !starts_at_seam {
            return Err(PromptError::Unprovable(UnprovableSplice::TokenizerMovesSeam));
        }
        let (prompt, sampled) = self.known.split_at(self.known.len() - self.sampled);
        Ok(join(prompt, sampled, &suffix, self.close_len(&suffix), self.stops))
    }

    /// How many of the tail's first tokens close the message: the known ids may end with some of them already. The
    /// start of the next message may follow at once.
    fn close_len(&self, suffix: &[TokenId]) -> usize {
        let seams = suffix.iter().take_while(|&&id| self.seams.contains(id)).count();
        suffix[..seams].iter().rposition(|id| self.stops.contains(id)).map_or(seams, |last| last + 1)
    }
}

/// A word that no message says: its 122 random bits are drawn for one request.
pub(super) fn fresh_word() -> String {
    format!("tito{}", uuid::Uuid::new_v4().simple())
}

/// The text without half a character at the end, which is not spoken, and white space, which is often trimmed.
pub(super) fn spoken(text: &str) -> &str {
    text.trim_end_matches(|last: char| last == '\u{FFFD}' || last.is_whitespace())
}

/// Puts `suffix` behind what is known, without the part of the close that was sampled.
fn join(prompt: &[TokenId], sampled: &[TokenId], suffix: &[TokenId], close_len: usize, stops: &[TokenId]) -> Joined {
    let overlap = (1..=close_len).rev().find(|&length| sampled.ends_with(&suffix[..length])).unwrap_or(0);
    let foreign_stop = overlap == 0 && sampled.last().is_some_and(|id| stops.contains(id));
    Joined { token_ids: [prompt, sampled, &suffix[overlap..]].concat(), overlap, foreign_stop }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ids and the overlap of a join behind the prompt `[4]`, with the stop tokens `[2, 7]`.
    fn joined(sampled: &[TokenId], suffix: &[TokenId], close_len: usize) -> (Vec<TokenId>, usize) {
        let joined = join(&[4], sampled, suffix, close_len, &[2, 7]);
        assert_eq!(joined.foreign_stop, joined.overlap == 0 && matches!(sampled.last(), Some(2 | 7)));
        (joined.token_ids, joined.overlap)
    }

    #[test]
    fn a_closed_turn_is_not_closed_twice() {
        assert_eq!(joined(&[5, 6, 2], &[2, 198, 1], 1), (vec![4, 5, 6, 2, 198, 1], 1));
    }

    #[test]
    fn a_truncated_turn_gets_the_templates_close() {
        assert_eq!(joined(&[5, 6], &[2, 198, 1], 1), (vec![4, 5, 6, 2, 198, 1], 0));
    }

    #[test]
    fn a_close_of_two_tokens_is_completed() {
        for (sampled, overlap) in [(&[5][..], 0), (&[5, 8], 1), (&[5, 8, 9], 2)] {
            assert_eq!(joined(sampled, &[8, 9, 1], 2), (vec![4, 5, 8, 9, 1], overlap));
        }
    }

    #[test]
    fn another_stop_token_is_kept_and_reported() {
        assert_eq!(joined(&[5, 7], &[2, 198], 1), (vec![4, 5, 7, 2, 198], 0));
    }

    #[test]
    fn a_prompt_that_ends_like_a_close_does_not_close_an_empty_turn() {
        assert_eq!(joined(&[], &[4, 198], 1), (vec![4, 4, 198], 0));
    }
}
