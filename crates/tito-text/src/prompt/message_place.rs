//! Where the render has the message that known ids end with, and where their prompt begins it.

use super::{
    PromptError,
    comparison::{Comparison, decode},
    splice::spoken,
};
use crate::TokenId;

impl Comparison<'_> {
    /// Where the render ends the message that the ids end with, without the end of its turn; `None` where what the prompt has behind
    /// the ids is not the end of the render.
    pub(super) fn end_of_message(&self) -> Result<Option<usize>, PromptError> {
        let Self { tokenizer, known, render, stops, .. } = *self;
        let Some(written) = self.written else { return Ok(None) };
        let Some(behind) = written.prompt_ids.strip_prefix(known.token_ids.as_slice()) else { return Ok(None) };
        let behind = decode(tokenizer, behind, false)?;
        let Some(head) = render.strip_suffix(behind.as_str()) else { return Ok(None) };
        // It is the message's own end only if it was sampled.
        let last = known.token_ids.last().filter(|_| known.sampled > 0);
        let close = written.seams.find(head).last();
        let is_own = close.filter(|seam| stops.contains(&seam.id) && last == Some(&seam.id));
        let ends_turn = is_own.filter(|seam| seam.end == head.trim_end().len());
        Ok(Some(ends_turn.map_or(head.len(), |seam| seam.start)))
    }

    /// What `prompt`, the ids before those that were sampled, says of the message with these texts already: all behind what the
    /// template writes before a message, as it does in the render. `None` where nothing shows it.
    pub(super) fn begun(&self, prompt: &[TokenId], said: &[&str]) -> Result<Option<String>, PromptError> {
        let Some(written) = self.written else { return Ok(None) };
        let Some(end) = self.end_of_message()? else { return Ok(None) };
        let calls = self.prompt.messages[self.anchor].makes_calls();
        let unthought: Vec<String> = said.iter().map(|text| self.without_thoughts(text)).collect();
        let unthought: Vec<&str> = unthought.iter().map(String::as_str).collect();
        let start = |said: &[&str]| start_of_texts(&self.render[..end], said, calls);
        // The template may leave thoughts out of what the message says.
        let Some(start) = start(said).or_else(|| start(&unthought)) else { return Ok(None) };
        let before = self.without_thoughts(&self.render[..start]);
        let Some(opening) = written.seams.find(&before).last() else { return Ok(None) };
        let prompt = decode(self.tokenizer, prompt, false)?;
        let begun = prompt.rsplit_once(before[opening.start..].trim_end()).map(|(_, begun)| begun);
        Ok(begun.filter(|begun| !begun.trim().is_empty()).map(str::to_owned))
    }
}

/// Where texts begin in another one that ends with the last of them, or with calls behind it.
fn start_of_texts(text: &str, texts: &[&str], calls: bool) -> Option<usize> {
    let (last, before) = texts.split_last()?;
    let last = last.trim();
    let start = if calls { text.rfind(last)? } else { spoken(text).strip_suffix(last)?.len() };
    before.iter().rev().try_fold(start, |start, said| text[..start].rfind(said.trim()))
}
