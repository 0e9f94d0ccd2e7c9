//! Whether sampled ids say what the assistant message says that they end with.
//!
//! An answer is first read as this server reads its own, so that what it gave is never doubted. Otherwise this is no proof:
//! templates leave out thoughts and calls, and a client leaves out what a stop string ended. So the ids must show what the
//! message says, and behind it nothing but marks, which begin what a client leaves out.

use super::{
    PromptError,
    answers::{same_calls, scalars},
    comparison::{Comparison, decode, dense, in_order},
    shown_text::ShownText,
    splice::spoken,
};
use crate::{TokenId, chat::Message, json::Value};

/// The most tokens of a mark at the end of a prompt that are looked at.
const TOKENS_OF_MARK: usize = 8;

/// Known ids, and the assistant message that they end with.
pub(super) struct SampledAnswer<'a> {
    pub(super) comparison: &'a Comparison<'a>,
    /// The ids of the prompt.
    pub(super) before: &'a [TokenId],
    /// The ids that were sampled after it.
    pub(super) sampled: &'a [TokenId],
    pub(super) message: &'a Message,
}

impl SampledAnswer<'_> {
    /// Whether the ids say what the message says and calls: as this server reads answers, or else as a text that ends with it, since
    /// a client may leave out more than readers do.
    pub(super) fn is_said(&self) -> Result<bool, PromptError> {
        let Self { comparison, sampled, message, .. } = *self;
        let may_be_left_out = |left: &str| comparison.may_be_stop_string(left, sampled);
        Ok(comparison.reads(sampled, message, |reading| reading.is_said_by(message, may_be_left_out))?
            || (self.shows_texts()? && self.makes_calls()? && self.has_thoughts()?))
    }

    /// Whether the text of the ids has what the message says, and names what it calls, and ends with it. A message that was continued
    /// begins in the prompt.
    fn shows_texts(&self) -> Result<bool, PromptError> {
        let Self { comparison, sampled, message, .. } = *self;
        let said = self.texts();
        let called: Vec<&str> = message.tool_calls.iter().flatten().map(|call| call.name.as_str()).collect();
        // What ended with an end token did not end with a stop string. The token may have a text, which is told if it was asked for.
        let unended = comparison.without_stop(sampled);
        let stopped = unended.len() < sampled.len();
        let last = self.decode(&sampled[unended.len()..], false)?;
        if said.is_empty() && called.is_empty() && message.reasoning.is_none() {
            let text = self.decode(sampled, false)?;
            return Ok(ShownText::new(comparison, &text).may_end_at(0, !stopped) || self.follows_mark()?);
        }
        for (ids, skip_special_tokens) in [(sampled, false), (sampled, true), (unended, true)] {
            let text = self.decode(ids, skip_special_tokens)?;
            // Without special tokens, a turn that follows would look like a stop string.
            let may_be_stop_string = !stopped && !skip_special_tokens;
            // A stop string may stand within the text of the token that would have ended the answer, where ends are ignored.
            let within_last = |rest: &str| rest.len() < last.len() && last.ends_with(rest);
            let may_end_at = |text: &ShownText<'_>, place: usize| {
                !called.is_empty()
                    || text.may_end_at(place, may_be_stop_string)
                    || (stopped && within_last(&text.text[place..]))
            };
            let ends = |text: &str| ends_in_order(&ShownText::new(comparison, text), &said, may_end_at);
            if !in_order(&text, &called) {
                continue;
            }
            if ends(&text) || self.with_its_begin(&text, &said)?.is_some_and(|text| ends(&text)) {
                return Ok(true);
            }
            // It may stand in the prompt as a whole, or all but the last of its texts.
            let Some(begun) = comparison.begun(self.before, &said)? else { continue };
            let whole = [begun.as_str(), &text].concat();
            let begins = said.first().is_some_and(|first| self.says_first(&whole, first));
            if begins && ends(&whole) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the ids make the calls of the message, and say no more beside them than it. Where nobody can read the calls, all that
    /// they say has to be there.
    fn makes_calls(&self) -> Result<bool, PromptError> {
        let Self { comparison, sampled, message, .. } = *self;
        let said = message.tool_calls.as_deref().unwrap_or_default();
        let content = dense(&message.content.texts().collect::<String>());
        let begun = if said.is_empty() { None } else { comparison.begun(self.before, &self.texts())? };
        let begun = begun.map(|begun| dense(&comparison.without_thoughts(&begun))).unwrap_or_default();
        let mut are_read = false;
        let same = comparison.reads(sampled, message, |reading| {
            are_read |= !reading.calls.is_empty();
            // Clients may have taken thoughts out of the text.
            let read = || dense(&comparison.without_thoughts(&reading.content));
            if self.may_hold_more() {
                let last = reading.calls.len().saturating_sub(said.len());
                return !said.is_empty() && same_calls(&reading.calls[last..], said) && read().ends_with(&content);
            }
            let read = read();
            let is_whole = read == content || content.strip_prefix(begun.as_str()) == Some(&read);
            !reading.calls.is_empty() && same_calls(&reading.calls, said) && is_whole
        })?;
        if are_read {
            return Ok(same);
        }
        let text = self.decode(sampled, false)?;
        let is_there = |scalar: String| text.contains(&scalar) || text.contains(json_escaped(&scalar).as_str());
        Ok(said.iter().flat_map(scalars).all(is_there))
    }

    /// Whether the ids have the thoughts of the message, where it tells them; clients lay out white space. Where nobody reads any,
    /// they have to be there.
    fn has_thoughts(&self) -> Result<bool, PromptError> {
        let Self { comparison, sampled, message, .. } = *self;
        let thought = dense(message.reasoning.as_deref().unwrap_or_default());
        if thought.is_empty() {
            return Ok(true);
        }
        let mut are_read = false;
        let same = comparison.reads(sampled, message, |reading| {
            let read = dense(&reading.reasoning);
            are_read |= !read.is_empty();
            read.strip_prefix(&thought).is_some_and(|left| comparison.may_be_stop_string(left, sampled))
        })?;
        if same {
            return Ok(true);
        }
        // Those that were continued begin in the prompt. A text has no more tokens than bytes.
        for skip_special_tokens in [false, true] {
            let begun = dense(&self.decode(self.end_of_prompt(thought.len()), skip_special_tokens)?);
            let text = dense(&self.decode(sampled, skip_special_tokens)?);
            let place = [begun.as_str(), &text].concat().find(&thought);
            let is_there = (!are_read || self.may_hold_more()) && text.contains(&thought);
            if is_there || place.is_some_and(|place| place < begun.len()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the prompt ends with a mark, behind which thoughts may stand that a client leaves out; or nobody says where it ends.
    fn follows_mark(&self) -> Result<bool, PromptError> {
        let end = self.decode(self.end_of_prompt(TOKENS_OF_MARK), false)?;
        Ok(self.may_hold_more() || end.trim_end().ends_with(['>', ']']))
    }

    /// What was sampled, behind so much of the end of the prompt that the only text of the message may begin there.
    fn with_its_begin(&self, sampled: &str, said: &[&str]) -> Result<Option<String>, PromptError> {
        let [said] = said else { return Ok(None) };
        let length = said.trim().len();
        // A text has no more tokens than bytes.
        let prompt = self.decode(self.end_of_prompt(length), false)?;
        // The part of the prompt is shorter than what the message says, so that this cannot be found in the prompt alone.
        let start = (prompt.len().saturating_sub(length) + 1..prompt.len()).find(|&at| prompt.is_char_boundary(at));
        Ok(Some([start.map_or("", |start| &prompt[start..]), sampled].concat()))
    }

    /// The texts of the message that say something.
    fn texts(&self) -> Vec<&str> {
        self.message.content.texts().map(spoken).filter(|text| !text.trim().is_empty()).collect()
    }

    /// Whether a text begins with the first text of the message, but for thoughts.
    fn says_first(&self, text: &str, first: &str) -> bool {
        let [text_alone, first_alone] = [text, first].map(|text| dense(&self.comparison.without_thoughts(text)));
        let says = |text: &str, first: &str| !first.is_empty() && text.starts_with(first);
        says(&text_alone, &first_alone) || says(&dense(text), &dense(first))
    }

    /// Whether the ids may be those of the messages before this one too: nobody says where the prompt ends.
    fn may_hold_more(&self) -> bool {
        self.before.is_empty()
    }

    /// The last ids of the prompt, at the most so many.
    fn end_of_prompt(&self, most: usize) -> &[TokenId] {
        &self.before[self.before.len().saturating_sub(most)..]
    }

    fn decode(&self, ids: &[TokenId], skip_special_tokens: bool) -> Result<String, PromptError> {
        decode(self.comparison.tokenizer, ids, skip_special_tokens)
    }
}

/// A text as it stands within a string of JSON.
fn json_escaped(text: &str) -> String {
    let quoted = Value::from(text).to_json_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Whether texts stand in order in another one, and the last of them where that may end.
fn ends_in_order(shown: &ShownText<'_>, texts: &[&str], may_end_at: impl Fn(&ShownText<'_>, usize) -> bool) -> bool {
    let Some((last, before)) = texts.split_last() else { return true };
    let mut start = 0;
    for text in before {
        let text = text.trim();
        let Some(place) = shown.text[start..].find(text) else { return false };
        start += place + text.len();
    }
    let last = last.trim();
    let mut places = shown.text[start..].rmatch_indices(last).map(|(place, _)| start + place + last.len());
    places.any(|place| may_end_at(shown, place))
}
