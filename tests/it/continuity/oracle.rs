//! What a splice has to be, found without it.

use serde_json::{Value, json};
use tito::{TokenId, prompt::PromptError};

use super::{families::Family, ids};

/// Ends the body of every tracked message; no template writes it.
pub(crate) const MARK: &str = "Zq7";
/// Ends the arguments of every tracked message's last call.
pub(crate) const CALL_MARK: &str = "Zq8";

pub(crate) fn known(request: &Value) -> (usize, Vec<TokenId>) {
    let messages = request["messages"].as_array().unwrap();
    let anchor = messages.iter().rposition(|message| message.get("prompt_token_ids").is_some()).unwrap();
    let message = &messages[anchor];
    (anchor, [ids(&message["prompt_token_ids"]), ids(&message["generation_token_ids"])].concat())
}

/// What must follow the known ids, found without the splice: the honest ids behind the anchor's mark, from the close on.
pub(crate) fn expected(family: &Family, request: &Value) -> Result<Vec<TokenId>, PromptError> {
    let (anchor, known) = known(request);
    let model = &family.model;
    let last = anchor + 1 == request["messages"].as_array().unwrap().len();
    if last && request["continue_final_message"] == true {
        return Ok(known);
    }
    let honest = model.honest(request)?;
    let behind_mark = |ids: &[TokenId], mark: &str| {
        let mark = model.ids(mark);
        let place = ids.windows(mark.len()).rposition(|window| window == mark)?;
        Some(ids[place + mark.len()..].to_vec())
    };
    let calls = request["messages"][anchor].get("tool_calls").is_some();
    let shown = if calls { behind_mark(&honest, CALL_MARK) } else { None };
    // A content without the mark gets it; what follows must be the same.
    let shows_calls = shown.is_some();
    let behind = if let Some(shown) = shown {
        shown
    } else {
        let mut marked = request.clone();
        marked["messages"][anchor]["content"] = json!(MARK);
        behind_mark(&model.honest(&marked)?, MARK).unwrap_or_else(|| panic!("{}: {request}", family.name))
    };
    let close = match (shows_calls, last, &request["add_generation_prompt"]) {
        (true, _, _) => family.call_close,
        (false, true, Value::Bool(false)) => family.last_close,
        _ => family.close,
    };
    // Where the template closes with nothing, the next message's start does.
    let close = model.ids(close);
    let start = if close.is_empty() {
        behind.iter().position(|id| model.tokenizer.is_special(*id)).unwrap_or(behind.len())
    } else {
        behind.windows(close.len()).position(|window| window == close).expect("the anchor is closed")
    };
    let tail = &behind[start..];
    assert!(honest.ends_with(tail), "{}: the oracle fits no honest prompt", family.name);
    let closers = if close.is_empty() { tail.len().min(1) } else { close.len() };
    let sampled = ids(&request["messages"][anchor]["generation_token_ids"]);
    let overlap = (0..=closers).rev().find(|&length| sampled.ends_with(&tail[..length])).unwrap();
    Ok([known.as_slice(), &tail[overlap..]].concat())
}
