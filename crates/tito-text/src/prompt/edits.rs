//! Whether known ids say what the messages say that they stand for.
//!
//! Not a proof: templates leave out thoughts and calls, escape what tools answer, and a client leaves out what a stop string
//! ended. So ids must show what the messages say, and behind it nothing but marks, which begin what a client leaves out. A
//! text that the template itself does not show is not looked for.

use super::{
    ChatPrompt, Edits, KnownPrefix, PromptError, messages::without_billing_header, seams::Seams, splice::spoken,
    surplus,
};
use crate::{
    TokenId,
    chat::{Content, ContentPart, Message},
    tokenizer::Tokenizer,
};

/// What known ids are compared with.
pub(super) struct Comparison<'a> {
    pub(super) tokenizer: &'a Tokenizer,
    pub(super) prompt: &'a ChatPrompt,
    pub(super) known: &'a KnownPrefix,
    /// The message that the known ids end with.
    pub(super) anchor: usize,
    /// The whole conversation, as the template writes it, or its texts alone.
    pub(super) render: &'a str,
    /// Ids that end a generation.
    pub(super) stops: &'a [TokenId],
    /// Where the render is the template's: its special tokens, and the whole prompt with the known ids.
    pub(super) written: Option<Written<'a>>,
}

/// How the template writes a conversation.
#[derive(Clone, Copy)]
pub(super) struct Written<'a> {
    pub(super) seams: &'a Seams,
    /// The prompt, which starts with the known ids.
    pub(super) prompt_ids: &'a [TokenId],
}

impl Comparison<'_> {
    /// Compares known ids with the messages, as far as the prompt asks for it.
    pub(super) fn edits(&self) -> Result<Edits, PromptError> {
        let Self { tokenizer, prompt, known, anchor, render, written, .. } = *self;
        let (before, sampled) = known.token_ids.split_at(known.token_ids.len() - known.sampled);
        let message = prompt.checks.message && !self.says_message(before, sampled)?;
        let history = prompt.checks.history && {
            let shown = decode(tokenizer, if before.is_empty() { sampled } else { before }, false)?;
            let others = prompt.messages[..anchor].iter().filter(|message| !message.role.is_assistant());
            let texts: Vec<&str> = others.flat_map(shown_texts).collect();
            (in_order(render, &texts) && !shows(tokenizer, &shown, &texts)?)
                || written.map_or(Ok(false), |written| surplus::in_history(self, written, &shown))?
        };
        Ok(Edits { message, history })
    }

    /// Whether the ids say what the message says that they end with. Where nobody says how many of them were sampled, those of
    /// the message are somewhere among all of them.
    fn says_message(&self, before: &[TokenId], sampled: &[TokenId]) -> Result<bool, PromptError> {
        let Self { tokenizer, prompt, anchor, render, written, .. } = *self;
        let message = &prompt.messages[anchor];
        match written {
            // Nothing was sampled, so that the prompt is that of the messages.
            Some(Written { prompt_ids, .. }) if !message.role.is_assistant() => {
                let text = decode(tokenizer, prompt_ids, false)?;
                Ok(text == render || text == encoded(tokenizer, render)?)
            }
            _ => self.says(before, sampled, message),
        }
    }

    /// Whether sampled ids contain what an assistant message says and calls, and end with it. One that was continued begins in
    /// the prompt.
    fn says(&self, before: &[TokenId], sampled: &[TokenId], message: &Message) -> Result<bool, PromptError> {
        let Self { tokenizer, .. } = *self;
        let said: Vec<&str> = texts(&message.content).map(spoken).filter(|text| !text.trim().is_empty()).collect();
        let called: Vec<&str> = message.tool_calls.iter().flatten().map(|call| call.name.as_str()).collect();
        // What ended with an end token did not end with a stop string.
        let stopped = sampled.last().is_some_and(|id| self.stops.contains(id));
        let may_follow = |rest: &str| !called.is_empty() || self.may_follow(rest, !stopped);
        if said.is_empty() && called.is_empty() && message.reasoning.is_none() {
            return Ok(may_follow(&decode(tokenizer, sampled, false)?) || self.thinks(before)?);
        }
        for skip_special_tokens in [false, true] {
            let text = decode(tokenizer, sampled, skip_special_tokens)?;
            let says =
                ends_in_order(&text, &said, &may_follow) || goes_on(tokenizer, before, &text, &said, &may_follow)?;
            if in_order(&text, &called) && says {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a prompt ends with a mark, behind which thoughts may stand that a client leaves out; or nobody says where it ends.
    fn thinks(&self, prompt: &[TokenId]) -> Result<bool, PromptError> {
        let end = decode(self.tokenizer, &prompt[prompt.len().saturating_sub(TOKENS_OF_MARK)..], false)?;
        Ok(prompt.is_empty() || end.trim_end().ends_with(['>', ']']))
    }

    /// Whether a client may have left out what stands behind a text: white space, half a character, the end of the turn, a stop
    /// string and what was sampled with it, or what a mark begins.
    pub(super) fn may_follow(&self, rest: &str, may_be_stop_string: bool) -> bool {
        let rest = rest.trim_start_matches(is_blank);
        let stops = self.prompt.stop_strings.iter().map(|stop| stop.trim_start());
        if rest.is_empty() || (may_be_stop_string && rest.len() <= LONGEST_STOP_STRING) {
            return true;
        }
        let end = |rest: &str| {
            let seam = self.written?.seams.find(rest).next()?;
            (seam.start == 0 && self.stops.contains(&seam.id)).then_some(seam.end)
        };
        if end(rest).is_some() {
            let mut rest = rest;
            while let Some(length) = end(rest) {
                rest = rest[length..].trim_start_matches(is_blank);
            }
            return rest.is_empty();
        }
        let tokens = self.tokenizer.added_tokens().iter().map(|token| token.content.as_str());
        rest.starts_with(['<', '[']) || stops.chain(tokens).any(|begin| !begin.is_empty() && rest.starts_with(begin))
    }
}

/// Whether a character says nothing: white space, or a part of a character.
pub(super) fn is_blank(character: char) -> bool {
    character == '\u{FFFD}' || character.is_whitespace()
}

/// So many bytes behind a text may be a stop string of the request that the text was sampled for, which nobody says.
pub(super) const LONGEST_STOP_STRING: usize = 32;
/// The most tokens of a mark at the end of a prompt that are looked at.
const TOKENS_OF_MARK: usize = 8;

/// Whether the end of a prompt and the start of what was sampled after it are what a message says.
fn goes_on(
    tokenizer: &Tokenizer,
    prompt: &[TokenId],
    sampled: &str,
    said: &[&str],
    may_follow: &impl Fn(&str) -> bool,
) -> Result<bool, PromptError> {
    let [said] = said else { return Ok(false) };
    let said = said.trim();
    // A text has no more tokens than bytes.
    let prompt = decode(tokenizer, &prompt[prompt.len().saturating_sub(said.len())..], false)?;
    // The part of the prompt is shorter than what the message says, so that this cannot be found in the prompt alone.
    let start = (prompt.len().saturating_sub(said.len()) + 1..prompt.len()).find(|&at| prompt.is_char_boundary(at));
    let begun = start.map_or("", |start| &prompt[start..]);
    Ok(ends_in_order(&format!("{begun}{sampled}"), &[said], may_follow))
}

/// Whether ids show the texts in order, or what encoding makes of them.
fn shows(tokenizer: &Tokenizer, shown: &str, texts: &[&str]) -> Result<bool, PromptError> {
    if in_order(shown, texts) {
        return Ok(true);
    }
    let encoded = texts.iter().map(|text| encoded(tokenizer, text)).collect::<Result<Vec<String>, PromptError>>()?;
    Ok(in_order(shown, &encoded.iter().map(String::as_str).collect::<Vec<_>>()))
}

/// What encoding makes of a text: tokenizers compose characters.
pub(super) fn encoded(tokenizer: &Tokenizer, text: &str) -> Result<String, PromptError> {
    Ok(tokenizer.decode(&tokenizer.encode(text, false)?, false)?)
}

/// What a template is given of a message that is not an assistant's.
pub(super) fn shown_texts(message: &Message) -> impl Iterator<Item = &str> {
    let is_system = message.role.as_str() == "system";
    texts(&message.content).filter_map(move |text| if is_system { without_billing_header(text) } else { Some(text) })
}

/// The text of ids, as far as they have one: a model may be wider than its tokenizer.
pub(super) fn decode(tokenizer: &Tokenizer, ids: &[TokenId], skip_special_tokens: bool) -> Result<String, PromptError> {
    let ids: Vec<_> = ids.iter().copied().filter(|&id| tokenizer.contains(id)).collect();
    Ok(tokenizer.decode(&ids, skip_special_tokens)?)
}

pub(super) fn texts(content: &Content) -> impl Iterator<Item = &str> {
    let (whole, parts) = match content {
        Content::Empty => (None, [].as_slice()),
        Content::Text(text) => (Some(text.as_str()), [].as_slice()),
        Content::Parts(parts) => (None, parts.as_slice()),
    };
    let parts = parts.iter().filter_map(|part| match part {
        ContentPart::Text(text) => Some(text.as_str()),
        ContentPart::Object { fields, .. } => fields.get("text")?.as_str(),
        ContentPart::Image(_) => None,
    });
    whole.into_iter().chain(parts)
}

/// Whether the texts stand in `haystack` one after the other; templates trim them.
fn in_order(haystack: &str, texts: &[&str]) -> bool {
    let mut rest = haystack;
    texts.iter().all(|text| {
        let text = text.trim();
        let found = rest.find(text).map(|place| place + text.len());
        rest = found.map_or(rest, |end| &rest[end..]);
        found.is_some()
    })
}

/// Whether the texts stand in order, and only what `may_follow` stands behind the last of them.
fn ends_in_order(haystack: &str, texts: &[&str], may_follow: &impl Fn(&str) -> bool) -> bool {
    let Some((last, before)) = texts.split_last() else { return true };
    let mut rest = haystack;
    for text in before {
        let text = text.trim();
        let Some(place) = rest.find(text) else { return false };
        rest = &rest[place + text.len()..];
    }
    let last = last.trim();
    rest.rmatch_indices(last).any(|(place, _)| may_follow(&rest[place + last.len()..]))
}

#[cfg(test)]
mod tests {
    use super::in_order;

    #[test]
    fn texts_stand_in_order_and_do_not_overlap() {
        assert!(in_order("a b a", &["a", " b ", "a"]));
        assert!(in_order("anything", &[]));
        for texts in [&["b", "b"][..], &["a", "a", "a"], &["b", "a", "b"]] {
            assert!(!in_order("a b a", texts), "{texts:?}");
        }
    }
}
