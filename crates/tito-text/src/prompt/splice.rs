//! The splice: known ids, then the tail of the honest render, with a proof or a refusal.
//!
//! "Anchored tail": the message that the known ids end with (the anchor) is rendered with a random word in its place;
//! what follows the word is the template's own close of that message and everything after it. Only that tail is
//! encoded. It starts at an added token, where no merge can cross the seam, and the honest render must end with the
//! very same bytes, so no later message can be lost or changed. Pure: rendering and encoding are handed in.
//!
//! That takes two more renders of everything, so the proof is first tried on a short conversation (`short`), and on the
//! whole one where that proves nothing. How a tail is found and proven is in `tail`.

use super::{
    PromptError, UnprovableSplice,
    marks::{MessagePart, calls, last_text},
    short::Short,
    splice_context::Splice,
};
use crate::TokenId;

/// Known ids joined with the tail of the render.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Joined {
    /// The ids of the prompt, which start with all known ids.
    pub(super) token_ids: Vec<TokenId>,
    /// How many tokens of the tail the known ids already ended with.
    pub(super) overlap: usize,
    /// Whether the known ids end with a stop token that the template does not close messages with.
    pub(super) foreign_stop: bool,
}

/// What was found out from the parts of the anchor.
struct Tried {
    joined: Option<Joined>,
    /// Why one of the parts shows no close, where none of them was enough.
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
        if let Some(joined) = self.try_short(anchor)? {
            #[cfg(any(test, fuzzing))]
            assert_eq!(self.try_whole(anchor)?.joined.as_ref(), Some(&joined), "only the short conversation proves it");
            return Ok(joined);
        }
        let tried = self.try_whole(anchor)?;
        tried.joined.ok_or(PromptError::Unprovable(tried.refused.unwrap_or(UnprovableSplice::AnchorNotRendered)))
    }

    /// Joins by the short conversation, if the whole one could not say anything else.
    fn try_short(&self, anchor: usize) -> Result<Option<Joined>, PromptError> {
        let Some(short) = Short::new(self, anchor) else { return Ok(None) };
        let tried = self.try_parts(anchor, |part| short.tail_length(anchor, part))?;
        Ok(tried.joined.filter(|_| tried.refused.is_none()))
    }

    /// Joins by the whole conversation.
    fn try_whole(&self, anchor: usize) -> Result<Tried, PromptError> {
        self.try_parts(anchor, |part| Ok(self.tail(anchor, part)?.length))
    }

    /// Joins after the first part whose close the known ids do not contradict, or else after the first that has one.
    fn try_parts(
        &self,
        anchor: usize,
        tail_length: impl Fn(MessagePart) -> Result<usize, PromptError>,
    ) -> Result<Tried, PromptError> {
        let message = self.conversation.message(anchor);
        let parts = (0..calls(message).len()).rev().map(MessagePart::Arguments).chain([MessagePart::Content]);
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

    /// Joins where the anchor is the message to be continued: the prompt ends with the known ids, if they say what it
    /// says.
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

    fn close_len(&self, suffix: &[TokenId]) -> usize {
        close_len(suffix, self.stops, |id| self.seams.contains(id))
    }
}

/// How many of the tail's first tokens may close the message, since the known ids may end with some of them already. The
/// start of the next message may follow at once. Some templates write words between the tokens of a close, whose end is the
/// first stop token (Kimi K3: `<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>`).
fn close_len(suffix: &[TokenId], stops: &[TokenId], is_seam: impl Fn(TokenId) -> bool) -> usize {
    let is_stop = |id: &TokenId| stops.contains(id);
    let seams = suffix.iter().take_while(|&&id| is_seam(id)).count();
    let last = suffix[..seams].iter().rposition(is_stop).or_else(|| suffix.iter().position(is_stop));
    last.map_or(seams, |last| last + 1)
}

/// The text without half a character at its end, which says nothing, and without white space there, which is often
/// trimmed.
pub(super) fn spoken(text: &str) -> &str {
    text.trim_end_matches(|last: char| last == '\u{FFFD}' || last.is_whitespace())
}

/// Puts `suffix` after what is known, without the part of the close that was sampled.
pub(super) fn join(
    prompt: &[TokenId],
    sampled: &[TokenId],
    suffix: &[TokenId],
    close_len: usize,
    stops: &[TokenId],
) -> Joined {
    let overlap = (1..=close_len).rev().find(|&length| sampled.ends_with(&suffix[..length])).unwrap_or(0);
    let foreign_stop = overlap == 0 && sampled.last().is_some_and(|id| stops.contains(id));
    Joined { token_ids: [prompt, sampled, &suffix[overlap..]].concat(), overlap, foreign_stop }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ids and the overlap of a join after the prompt `[4]`, with the stop tokens `[2, 7]`.
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
    fn a_close_with_words_in_it_is_completed() {
        // 8 and 9 are seams, 2 is the stop token, 50 to 60 are words.
        let suffix = [8, 50, 9, 8, 51, 9, 2, 8, 60];
        let close = close_len(&suffix, &[2, 7], |id| [2, 7, 8, 9].contains(&id));
        assert_eq!(close, 7);
        for overlap in 0..=close {
            let sampled = [&[5], &suffix[..overlap]].concat();
            assert_eq!(joined(&sampled, &suffix, close), ([&[4, 5], &suffix[..]].concat(), overlap));
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
