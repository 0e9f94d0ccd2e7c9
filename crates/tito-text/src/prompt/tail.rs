//! The tail of the honest render that starts with the close of the anchor, and the proof of it: a render with a random word
//! in the anchor's place shows where the close begins, and one with another word in later messages where it ends.

use super::{
    PromptError, UnprovableSplice,
    conversation::common_prefix,
    marks::{MessagePart, calls, with_part},
    seams::Seam,
    splice_context::{RenderedAnchor, Splice, fresh_word},
};

/// The end of a render that starts with the anchor's close.
pub(super) struct Tail {
    /// Its length in bytes.
    pub(super) length: usize,
    /// What stands before the word that took the place of a part of the anchor, in the render that showed it.
    pub(super) before: String,
}

impl Splice<'_> {
    /// The tail of the honest render that starts with the anchor's close, or why this part does not show it.
    pub(super) fn tail(&self, anchor: usize, part: MessagePart) -> Result<Tail, PromptError> {
        let unprovable = |reason| Err(PromptError::Unprovable(reason));
        let word = fresh_word();
        let shown = self.render_around(anchor, part, &word, None)?;
        let own = if self.conversation.is_last(anchor) {
            shown.after.len()
        } else {
            let later = fresh_word();
            let marked = self.render_around(anchor, part, &word, Some(&later))?;
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
            MessagePart::Content => self.ends_with_content(anchor, head, &shown.before),
            MessagePart::Arguments(call) => head.ends_with(self.trailer(anchor, call, &shown, start)),
        };
        if !is_close {
            return unprovable(UnprovableSplice::TailDiffers);
        }
        Ok(Tail { length: tail.len(), before: shown.before })
    }

    /// The render around the word, where it stands exactly once. `later` is what the messages after the anchor say
    /// instead of their own.
    fn render_around(
        &self,
        anchor: usize,
        part: MessagePart,
        word: &str,
        later: Option<&str>,
    ) -> Result<RenderedAnchor, PromptError> {
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
                Ok(RenderedAnchor { before: before.to_owned(), after: after.to_owned(), other })
            }
            _ => Err(not_rendered),
        }
    }

    /// The byte after the word at which the close starts; it lies within the first `own` bytes, after which later
    /// messages speak.
    fn close(&self, anchor: usize, part: MessagePart, shown: &RenderedAnchor, own: usize) -> Option<usize> {
        let after = shown.after.as_str();
        let seams: Vec<Seam> = self.seams.find(after).take_while(|seam| seam.end <= own).collect();
        let message = self.conversation.message(anchor);
        let is_stop = |seam: &&Seam| self.stops.contains(&seam.id);
        match part {
            MessagePart::Content => {
                let Some(first) = seams.first() else {
                    // Nothing closes the last message of some templates.
                    return (own == after.len() && after.trim().is_empty()).then_some(own);
                };
                // Where calls are shown, a token that ends no generation may be the start of one.
                let closes = is_stop(&first) || !self.shows_calls(anchor, after);
                (closes && after[..first.start].trim().is_empty()).then_some(first.start)
            }
            MessagePart::Arguments(_) if calls(message).iter().any(|call| self.spells_seam(call)) => None,
            MessagePart::Arguments(_) => {
                let ended = self.known.last().and_then(|id| seams.iter().find(|seam| seam.id == *id));
                let close = ended.filter(is_stop).or(seams.iter().find(is_stop)).or(ended).or(seams.first());
                close.map(|seam| seam.start)
            }
        }
    }
}
