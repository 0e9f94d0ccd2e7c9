//! Whether known ids say what the messages say that they stand for.
//!
//! An answer is first read as this server reads its own, so that what it gave is never doubted. Otherwise this is no proof:
//! templates leave out thoughts and calls, escape what tools answer, and a client leaves out what a stop string ended. So ids must
//! show what the messages say, and behind it nothing but marks, which begin what a client leaves out. A text that the template
//! itself does not show is not looked for.

use super::{
    Edits, PromptError,
    answers::{same_calls, scalars},
    comparison::{Comparison, Written, decode, dense, encoded, shown_texts},
    splice::spoken,
    surplus,
};
use crate::{TokenId, chat::Message, json::Value, tokenizer::Tokenizer};

/// The most tokens of a mark at the end of a prompt that are looked at.
const TOKENS_OF_MARK: usize = 8;

/// Compares known ids with the messages, as far as the prompt asks for it.
pub(super) fn find(comparison: &Comparison<'_>) -> Result<Edits, PromptError> {
    let Comparison { tokenizer, prompt, known, anchor, render, written, .. } = *comparison;
    let (before, sampled) = known.token_ids.split_at(known.token_ids.len() - known.sampled);
    let message = prompt.checks.message && !says_message(comparison, before, sampled)?;
    let mut edits = Edits { message, ..Edits::default() };
    if prompt.checks.history {
        let shown = decode(tokenizer, if before.is_empty() { sampled } else { before }, false)?;
        let others = prompt.messages[..anchor].iter().filter(|message| !message.role.is_assistant());
        let texts: Vec<&str> = others.flat_map(shown_texts).collect();
        edits.history = in_order(render, &texts) && !shows(tokenizer, &shown, &texts)?;
        if let Some(written) = written {
            let surplus = surplus::find(comparison, written, &shown)?;
            edits.history |= surplus.history;
            // Whoever edits the first messages may have moved the template's own words.
            edits.context = surplus.context && !edits.history;
        }
    }
    Ok(edits)
}

/// Whether the ids say what the message says that they end with. Where nobody says how many of them were sampled, those of
/// the message are somewhere among all of them.
fn says_message(comparison: &Comparison<'_>, before: &[TokenId], sampled: &[TokenId]) -> Result<bool, PromptError> {
    let Comparison { tokenizer, prompt, anchor, render, written, .. } = *comparison;
    let message = &prompt.messages[anchor];
    match written {
        // Nothing was sampled, so that the prompt is that of the messages.
        Some(Written { prompt_ids, .. }) if !message.role.is_assistant() => {
            let text = decode(tokenizer, prompt_ids, false)?;
            Ok(text == render || text == encoded(tokenizer, render)?)
        }
        _ => says(comparison, before, sampled, message),
    }
}

/// Whether sampled ids say what an assistant message says and calls: as this server reads answers, or else as a text that ends
/// with it, since a client may leave out more than readers do.
fn says(
    comparison: &Comparison<'_>,
    before: &[TokenId],
    sampled: &[TokenId],
    message: &Message,
) -> Result<bool, PromptError> {
    let may_be_left_out = |left: &str| comparison.may_be_stop_string(left, sampled);
    Ok(comparison.reads(sampled, message, |reading| reading.is_said_by(message, may_be_left_out))?
        || (shows_message(comparison, before, sampled, message)?
            && makes_calls(comparison, sampled, message)?
            && thinks_so(comparison, before, sampled, message)?))
}

/// Whether the text of sampled ids has what an assistant message says, and names what it calls, and ends with it. One that was
/// continued begins in the prompt.
fn shows_message(
    comparison: &Comparison<'_>,
    before: &[TokenId],
    sampled: &[TokenId],
    message: &Message,
) -> Result<bool, PromptError> {
    let Comparison { tokenizer, .. } = *comparison;
    let said: Vec<&str> = message.content.texts().map(spoken).filter(|text| !text.trim().is_empty()).collect();
    let called: Vec<&str> = message.tool_calls.iter().flatten().map(|call| call.name.as_str()).collect();
    // What ended with an end token did not end with a stop string. The token may have a text, which is told if it was asked for.
    let unended = comparison.without_stop(sampled);
    let stopped = unended.len() < sampled.len();
    let last = decode(tokenizer, &sampled[unended.len()..], false)?;
    if said.is_empty() && called.is_empty() && message.reasoning.is_none() {
        return Ok(comparison.may_follow(&decode(tokenizer, sampled, false)?, !stopped) || thinks(tokenizer, before)?);
    }
    for (ids, skip_special_tokens) in [(sampled, false), (sampled, true), (unended, true)] {
        let text = decode(tokenizer, ids, skip_special_tokens)?;
        // Without special tokens, a turn that follows would look like a stop string.
        let may_be_stop_string = !stopped && !skip_special_tokens;
        // A stop string may stand within the text of the token that would have ended the answer, where ends are ignored.
        let within_last = |rest: &str| rest.len() < last.len() && last.ends_with(rest);
        let may_follow = |rest: &str| {
            !called.is_empty() || comparison.may_follow(rest, may_be_stop_string) || (stopped && within_last(rest))
        };
        let says = ends_in_order(&text, &said, &may_follow) || goes_on(tokenizer, before, &text, &said, &may_follow)?;
        if in_order(&text, &called) && says {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether sampled ids make the calls of a message, and say no more beside them than it. Where nobody can read the calls, all that
/// they say has to be there.
fn makes_calls(comparison: &Comparison<'_>, sampled: &[TokenId], message: &Message) -> Result<bool, PromptError> {
    let said = message.tool_calls.as_deref().unwrap_or_default();
    let content = dense(&message.content.texts().collect::<String>());
    let mut are_read = false;
    let same = comparison.reads(sampled, message, |reading| {
        are_read |= !reading.calls.is_empty();
        // Clients may have taken thoughts out of the text.
        let read = || dense(&comparison.without_thoughts(&reading.content));
        !reading.calls.is_empty() && same_calls(&reading.calls, said) && read() == content
    })?;
    if are_read {
        return Ok(same);
    }
    let text = decode(comparison.tokenizer, sampled, false)?;
    let is_there = |scalar: String| text.contains(&scalar) || text.contains(json_escaped(&scalar).as_str());
    Ok(said.iter().flat_map(scalars).all(is_there))
}

/// A text as it stands within a string of JSON.
fn json_escaped(text: &str) -> String {
    let quoted = Value::from(text).to_json_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Whether ids have the thoughts of a message, where it tells them; clients lay out white space. Where nobody reads any, they have to
/// be there.
fn thinks_so(
    comparison: &Comparison<'_>,
    before: &[TokenId],
    sampled: &[TokenId],
    message: &Message,
) -> Result<bool, PromptError> {
    let tokenizer = comparison.tokenizer;
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
    let begun = &before[before.len().saturating_sub(thought.len())..];
    for skip_special_tokens in [false, true] {
        let begun = dense(&decode(tokenizer, begun, skip_special_tokens)?);
        let text = dense(&decode(tokenizer, sampled, skip_special_tokens)?);
        let begins_before = [begun.as_str(), &text].concat().find(&thought).is_some_and(|place| place < begun.len());
        if begins_before || (!are_read && text.contains(&thought)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a prompt ends with a mark, behind which thoughts may stand that a client leaves out; or nobody says where it ends.
fn thinks(tokenizer: &Tokenizer, prompt: &[TokenId]) -> Result<bool, PromptError> {
    let end = decode(tokenizer, &prompt[prompt.len().saturating_sub(TOKENS_OF_MARK)..], false)?;
    Ok(prompt.is_empty() || end.trim_end().ends_with(['>', ']']))
}

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
