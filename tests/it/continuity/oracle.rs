//! What a splice has to be, found without it.

use serde_json::{Value, json};
use tito::{TokenId, prompt::PromptError};

use super::{families::Family, ids};

/// Ends the body of every tracked message; no template writes it.
pub(crate) const MARK: &str = "Zq7";
/// Ends the arguments of the calls of every tracked message, of which templates may show the first only.
pub(crate) const CALL_MARK: &str = "Zq8";

pub(crate) fn known(request: &Value) -> (usize, Vec<TokenId>) {
    let messages = request["messages"].as_array().unwrap();
    let anchor = messages.iter().rposition(|message| message.get("prompt_token_ids").is_some()).unwrap();
    let message = &messages[anchor];
    (anchor, [ids(&message["prompt_token_ids"]), ids(&message["generation_token_ids"])].concat())
}

/// What must follow the known ids, found without the splice: the honest ids after the anchor's mark, from the close on.
pub(crate) fn expected(family: &Family, request: &Value) -> Result<Vec<TokenId>, PromptError> {
    Ok(find(family, request)?.unwrap_or_else(|| panic!("{}: the oracle fits no honest prompt: {request}", family.name)))
}

/// The same; `None` where the honest prompt does not end as the conversation with a mark in it does, or what was asked
/// after the anchor stands elsewhere.
pub(crate) fn find(family: &Family, request: &Value) -> Result<Option<Vec<TokenId>>, PromptError> {
    let (anchor, known) = known(request);
    let last = anchor + 1 == request["messages"].as_array().unwrap().len();
    if last && request["continue_final_message"] == true {
        return Ok(Some(known));
    }
    let honest = family.model.honest(request)?;
    let text = family.model.text(&honest);
    let calls = request["messages"][anchor].get("tool_calls").is_some();
    let shown = text.rfind(CALL_MARK).filter(|_| calls).map(|place| text[place + CALL_MARK.len()..].to_owned());
    let called = shown.is_some();
    let Some(after) = shown.map_or_else(|| after_mark(family, request, anchor), |shown| Ok(Some(shown)))? else {
        return Ok(None);
    };
    let close = match (called, last, &request["add_generation_prompt"]) {
        // Some templates close whatever is last alike.
        (true, true, Value::Bool(false)) if !after.contains(family.call_close) => family.last_close,
        (true, _, _) => family.call_close,
        (false, true, Value::Bool(false)) => family.last_close,
        (false, true, _) if !after.contains(family.close) => family.last_close,
        _ => family.close,
    };
    // Where the template closes with nothing, the next message's start does.
    let start = if close.is_empty() { Some(first_special(family, &after)) } else { after.find(close) };
    let Some(tail) = start.map(|start| &after[start..]) else { return Ok(None) };
    let later = &request["messages"].as_array().unwrap()[anchor + 1..];
    let mut asked =
        later.iter().filter(|message| ["user", "system", "developer"].contains(&message["role"].as_str().unwrap()));
    let elsewhere = |said: &str| text.contains(said) && !tail.contains(said);
    if asked.any(|message| elsewhere(message["content"].as_str().unwrap().trim())) {
        return Ok(None);
    }
    let Some(tail) = suffix(family, &honest, tail) else { return Ok(None) };
    let closers = if close.is_empty() { tail.len().min(1) } else { family.model.ids(close).len() };
    let sampled = ids(&request["messages"][anchor]["generation_token_ids"]);
    let overlap = (0..=closers).rev().find(|&length| sampled.ends_with(&tail[..length])).unwrap();
    Ok(Some([known.as_slice(), &tail[overlap..]].concat()))
}

/// What the template shows after a content that is the mark: the same, whatever the content is.
fn after_mark(family: &Family, request: &Value, anchor: usize) -> Result<Option<String>, PromptError> {
    let mut marked = request.clone();
    marked["messages"][anchor]["content"] = json!(MARK);
    let text = family.model.text(&family.model.honest(&marked)?);
    Ok(text.rfind(MARK).map(|place| text[place + MARK.len()..].to_owned()))
}

/// Where the first special token stands, or the end.
fn first_special(family: &Family, text: &str) -> usize {
    let special = family.model.tokenizer.added_tokens().iter().filter(|token| token.special);
    special.filter_map(|token| text.find(&token.content)).min().unwrap_or(text.len())
}

/// The last of the ids that say `text`, starting where its first id stands.
fn suffix<'i>(family: &Family, ids: &'i [TokenId], text: &str) -> Option<&'i [TokenId]> {
    let Some(first) = family.model.ids(text).first().copied() else { return Some(&[]) };
    let starts = (0..ids.len()).rev().filter(|&start| ids[start] == first);
    starts.map(|start| &ids[start..]).find(|suffix| family.model.text(suffix) == text)
}
