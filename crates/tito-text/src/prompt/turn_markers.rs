//! What the template writes around the messages of assistants, and where that stands in known ids.
//!
//! Refuses to decide which message known ids end with.

use super::{
    PromptError,
    seams::Seam,
    splice_context::{Splice, fresh_word},
};
use crate::TokenId;

/// The message that known ids end with.
#[derive(Clone, Copy)]
pub(super) struct Anchor {
    /// Its index in the request.
    pub(super) message: usize,
    /// Where the ids begin its turn, if that had to be found.
    pub(super) answer: Option<usize>,
}

/// What the template writes before the message of an assistant.
pub(super) struct Piece<'t> {
    /// All of it from the close of the assistant before on.
    pub(super) messages: &'t str,
    /// The ids of it up to its last special token.
    pub(super) ids: Vec<TokenId>,
    /// What opens the turn behind that token.
    pub(super) opening: &'t str,
}

/// What the template writes around the messages of assistants.
pub(super) struct TurnMarkers {
    /// What the template writes before each assistant message, after the one before it. It may start with the end of a
    /// tool call.
    pub(super) before: Vec<String>,
    /// A text that each turn has exactly once.
    pub(super) marker: String,
    /// Whether the marker stands before a turn rather than after it.
    pub(super) opens: bool,
}

impl Splice<'_> {
    /// Splits a render at the assistant messages; `None` if that cannot be done.
    pub(super) fn turns(&self, assistants: usize) -> Result<Option<TurnMarkers>, PromptError> {
        if assistants != self.conversation.assistants() {
            return Ok(None);
        }
        let random = fresh_word();
        let word = |number: usize| format!("{random}x{number}x");
        let text = match self.conversation.text_with_assistants(word) {
            Err(PromptError::Template(error)) if !error.is_exceeded() => return Ok(None),
            text => text?,
        };
        let mut before = Vec::with_capacity(assistants);
        let mut rest = text.as_str();
        for number in 0..assistants {
            let word = word(number);
            let Some((head, tail)) = rest.split_once(&word) else { return Ok(None) };
            if head.contains(&random) {
                return Ok(None);
            }
            before.push(head.to_owned());
            // A template may show in several pieces what one message says.
            rest = tail.rsplit_once(&word).map_or(tail, |(_, tail)| tail);
        }
        if rest.contains(&random) {
            return Ok(None);
        }
        Ok(self.marker(&before)?.map(|(marker, opens)| TurnMarkers { before, marker, opens }))
    }

    /// The generation prompt, or its first line, where every assistant message has it; else the close.
    fn marker(&self, before: &[String]) -> Result<Option<(String, bool)>, PromptError> {
        let (text, start) = match self.conversation.generation_prompt() {
            Err(PromptError::Template(error)) if !error.is_exceeded() => (String::new(), 0),
            prompt => prompt?,
        };
        let spans = |seam: &Seam| seam.start <= start && start < seam.end;
        let start = self.seams.find(&text).find(spans).map_or(start, |seam| seam.start);
        let prompt = &text[start..];
        let starts_at_seam = self.seams.find(prompt).next().is_some_and(|seam| seam.start == 0);
        let lines = [prompt.trim_end(), prompt.lines().next().unwrap_or_default()];
        let opening = lines.into_iter().find(|line| before.iter().all(|text| text.contains(line)));
        if let Some(opening) = opening.filter(|_| starts_at_seam) {
            return Ok(Some((opening.to_owned(), true)));
        }
        let closes = before[1..].iter().map(|text| self.first_close(text).map(|seam| &text[seam.start..seam.end]));
        let closes: Option<Vec<&str>> = closes.collect();
        let close = closes.filter(|closes| closes.windows(2).all(|pair| pair[0] == pair[1]));
        Ok(close.and_then(|closes| Some(((*closes.first()?).to_owned(), false))))
    }

    /// The first stop token, or else the first seam.
    fn first_close(&self, text: &str) -> Option<Seam> {
        let is_stop = |seam: &Seam| self.stops.contains(&seam.id);
        self.seams.find(text).find(is_stop).or_else(|| self.seams.find(text).next())
    }

    /// What the template writes before turn `number`, after the one before it, from its close on.
    pub(super) fn piece<'t>(&self, number: usize, turns: &'t TurnMarkers) -> Result<Option<Piece<'t>>, PromptError> {
        let before = turns.before[number].as_str();
        // The end of a call was written by the model.
        let close = if number == 0 { Some(0) } else { self.first_close(before).map(|seam| seam.start) };
        let Some(messages) = close.and_then(|close| before.get(close..)) else { return Ok(None) };
        // The end belongs to the turn, which the model may have begun otherwise than the template writes it.
        let end = if turns.opens { messages.rfind(&turns.marker) } else { None };
        let seams = self.seams.find(messages).take_while(|seam| end.is_none_or(|end| seam.start <= end));
        let Some(last) = seams.last() else { return Ok(None) };
        let ids = self.tokenizer.encode(&messages[..last.end], false)?;
        let opened = end.map_or(messages.len(), |end| end + turns.marker.len());
        Ok(Some(Piece { messages, ids, opening: messages.get(last.end..opened).unwrap_or_default() }))
    }
}

/// The places where `piece` stands in `ids`.
pub(super) fn places(ids: &[TokenId], piece: &[TokenId]) -> impl Iterator<Item = usize> {
    let windows = ids.windows(piece.len().max(1)).enumerate();
    windows.filter_map(move |(place, window)| (window == piece).then_some(place))
}
