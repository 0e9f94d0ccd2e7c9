//! Which message known ids end with, where the client did not say: `required_prefix_token_ids` come without an index.
//!
//! Texts cannot tell: "ok" and "continue" are said again and again. So turns are counted, by the token that starts or
//! ends one in the template, and the messages before the last turn are then looked for in the ids, as ids. Refuses
//! where both do not agree: a wrong anchor would lose or repeat whole turns. Where answers have the start of a turn in them,
//! `anchor_pieces` compares the whole conversation instead.

use super::{
    PromptError, UnprovableSplice,
    marks::last_text,
    splice::spoken,
    splice_context::Splice,
    turn_markers::{Anchor, TurnMarkers, places},
};
use crate::TokenId;

/// What assistants said on both sides of the messages before a turn.
struct SurroundingTokens<'k> {
    before: &'k [TokenId],
    after: &'k [TokenId],
}

impl Splice<'_> {
    /// Finds the one of `assistants` (the request's assistant messages, of which there are two or more) that the known
    /// ids end with. Thoughts stand between `marks`.
    pub(super) fn find_anchor(&self, assistants: &[usize], marks: [&str; 2]) -> Result<Anchor, PromptError> {
        let not_found = PromptError::Unprovable(UnprovableSplice::AnchorNotFound);
        let Some(turns) = self.turns(assistants.len())? else { return Err(not_found) };
        let marker = self.tokenizer.encode(&turns.marker, false)?;
        if let Some(anchor) = self.find_by_count(assistants, &turns, &marker)? {
            return Ok(anchor);
        }
        // Answers may have the start of a turn in them, so that there are more of those than turns.
        self.find_by_pieces(assistants, &turns, &marker, marks)?.ok_or(not_found)
    }

    /// Where the known ids begin the answer of the only one of `assistants`, if the template shows it.
    pub(super) fn find_answer(&self, assistants: &[usize], marks: [&str; 2]) -> Result<Option<usize>, PromptError> {
        match self.find_anchor(assistants, marks) {
            Ok(anchor) => Ok(anchor.answer),
            Err(PromptError::Unprovable(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Finds it by the number of turns that the ids show.
    fn find_by_count(
        &self,
        assistants: &[usize],
        turns: &TurnMarkers,
        marker: &[TokenId],
    ) -> Result<Option<Anchor>, PromptError> {
        // The close of the anchor itself does not count as that of a turn before it.
        let closed = !turns.opens && self.known.ends_with(marker);
        let known = &self.known[..self.known.len() - if closed { marker.len() } else { 0 }];
        let count = places(known, marker).count();
        if count == 0 && turns.opens && !self.known.iter().any(|&id| self.seams.contains(id)) {
            // The ids show no conversation at all, so nothing speaks against what the client says.
            return Ok(assistants.last().map(|&message| Anchor { message, answer: None }));
        }
        let mut counts = turns.before.iter().scan(0, |counted, before| {
            *counted += before.matches(&turns.marker).count();
            Some(*counted)
        });
        let Some(number) = counts.position(|counted| counted == count) else { return Ok(None) };
        let Some(said) = self.split(number, turns, known, marker)? else { return Ok(None) };
        let previous =
            number.checked_sub(1).map(|previous| self.speaks(said.before, assistants[previous])).transpose()?;
        let found = previous.unwrap_or(true) && self.speaks(said.after, assistants[number])?;
        let answer = known.len() - said.after.len();
        Ok(found.then_some(Anchor { message: assistants[number], answer: Some(answer) }))
    }

    /// What assistants said before and after the messages that precede turn `number`, if those stand in the known ids
    /// with no turn after them but this one.
    fn split<'k>(
        &self,
        number: usize,
        turns: &TurnMarkers,
        known: &'k [TokenId],
        marker: &[TokenId],
    ) -> Result<Option<SurroundingTokens<'k>>, PromptError> {
        let Some(piece) = self.piece(number, turns)? else { return Ok(None) };
        let Some(place) = places(known, &piece.ids).last() else { return Ok(None) };
        let (before, rest) = known.split_at(place);
        if places(rest, marker).count() != piece.messages.matches(&turns.marker).count() {
            return Ok(None);
        }
        let start = places(before, marker).last().unwrap_or(0);
        // The close counts as said, since a server may have sampled it.
        Ok(Some(SurroundingTokens { before: &known[start..=place], after: &rest[piece.ids.len()..] }))
    }

    /// Whether the ids say what the message says; a client may have taken thoughts and calls out of it.
    fn speaks(&self, ids: &[TokenId], message: usize) -> Result<bool, PromptError> {
        let content = spoken(last_text(self.conversation.message(message))).trim_start();
        for skip_special_tokens in [false, true] {
            if self.decode(ids, skip_special_tokens)?.contains(content) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
