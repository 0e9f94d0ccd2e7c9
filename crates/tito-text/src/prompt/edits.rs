//! Whether known ids say what the messages say that they stand for.
//!
//! Not a proof: templates leave out thoughts and calls, escape what tools answer, and a client may send less than was
//! sampled. So only what the ids must show is looked for, and a text that the template itself does not show is not.

use super::{ChatPrompt, Edits, KnownPrefix, PromptError, messages::without_billing_header, splice::spoken};
use crate::{
    TokenId,
    chat::{Content, ContentPart, Message},
    tokenizer::Tokenizer,
};

/// Compares known ids, which end with message `anchor`, with the messages, as far as `prompt` asks for it; `render` is
/// the whole conversation.
pub(super) fn find(
    tokenizer: &Tokenizer,
    prompt: &ChatPrompt,
    known: &KnownPrefix,
    anchor: usize,
    render: &str,
) -> Result<Edits, PromptError> {
    let (before, sampled) = known.token_ids.split_at(known.token_ids.len() - known.sampled);
    // Where nobody says how many ids were sampled, those of the message are somewhere among all of them.
    let message = prompt.checks.message && !says(tokenizer, before, sampled, &prompt.messages[anchor])?;
    let history = prompt.checks.history && {
        let shown = if before.is_empty() { sampled } else { before };
        let others = prompt.messages[..anchor].iter().filter(|message| !message.role.is_assistant());
        let texts: Vec<&str> = others.flat_map(shown_texts).collect();
        in_order(render, &texts) && !shows(tokenizer, shown, &texts)?
    };
    Ok(Edits { message, history })
}

/// Whether sampled ids contain what an assistant message says and calls. One that was continued begins in the prompt.
fn says(
    tokenizer: &Tokenizer,
    prompt: &[TokenId],
    sampled: &[TokenId],
    message: &Message,
) -> Result<bool, PromptError> {
    let said: Vec<&str> = texts(&message.content).map(spoken).collect();
    let called: Vec<&str> = message.tool_calls.iter().flatten().map(|call| call.name.as_str()).collect();
    for skip_special_tokens in [false, true] {
        let text = decode(tokenizer, sampled, skip_special_tokens)?;
        if in_order(&text, &called) && (in_order(&text, &said) || goes_on(tokenizer, prompt, &text, &said)?) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the end of a prompt and the start of what was sampled after it are what a message says.
fn goes_on(tokenizer: &Tokenizer, prompt: &[TokenId], sampled: &str, said: &[&str]) -> Result<bool, PromptError> {
    let [said] = said else { return Ok(false) };
    let said = said.trim();
    // A text has no more tokens than bytes.
    let prompt = decode(tokenizer, &prompt[prompt.len().saturating_sub(said.len())..], false)?;
    // The part of the prompt is shorter than what the message says, so that this cannot be found in the prompt alone.
    let start = (prompt.len().saturating_sub(said.len()) + 1..prompt.len()).find(|&at| prompt.is_char_boundary(at));
    let begun = start.map_or("", |start| &prompt[start..]);
    Ok(format!("{begun}{sampled}").contains(said))
}

/// Whether ids show the texts in order, or what encoding makes of them: tokenizers compose characters.
fn shows(tokenizer: &Tokenizer, ids: &[TokenId], texts: &[&str]) -> Result<bool, PromptError> {
    let shown = decode(tokenizer, ids, false)?;
    if in_order(&shown, texts) {
        return Ok(true);
    }
    let encoded = texts.iter().map(|text| Ok(tokenizer.decode(&tokenizer.encode(text, false)?, false)?));
    let encoded = encoded.collect::<Result<Vec<String>, PromptError>>()?;
    Ok(in_order(&shown, &encoded.iter().map(String::as_str).collect::<Vec<_>>()))
}

/// What a template is given of a message that is not an assistant's.
fn shown_texts(message: &Message) -> impl Iterator<Item = &str> {
    let is_system = message.role.as_str() == "system";
    texts(&message.content).filter_map(move |text| if is_system { without_billing_header(text) } else { Some(text) })
}

/// The text of ids, as far as they have one: a model may be wider than its tokenizer.
fn decode(tokenizer: &Tokenizer, ids: &[TokenId], skip_special_tokens: bool) -> Result<String, PromptError> {
    let ids: Vec<_> = ids.iter().copied().filter(|&id| tokenizer.contains(id)).collect();
    Ok(tokenizer.decode(&ids, skip_special_tokens)?)
}

fn texts(content: &Content) -> impl Iterator<Item = &str> {
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
