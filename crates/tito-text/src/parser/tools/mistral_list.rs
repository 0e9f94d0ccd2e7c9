//! The calls that Mistral's older tokenizers write: a JSON list after a marker.

use super::{json_call, schema::Signatures};
use crate::{
    json::{Object, Value},
    parser::{Piece, ToolCall, marker},
};

/// What calls stand after.
pub(super) const MARKER: &str = "[TOOL_CALLS]";

/// The calls of what stands after the first marker, and what is no call there; `None` where there are none.
pub(super) fn calls(text: &str, tools: &Signatures) -> Option<Vec<Piece>> {
    // Markers with nothing between them count as one, and what follows a later marker is no list.
    let mut list = text;
    loop {
        list = list.trim_start_matches(marker::is_space);
        let Some(after) = list.strip_prefix(MARKER) else { break };
        list = after;
    }
    let (before, parsed, after) = match Value::parse_start_literally(list) {
        Ok((value, end)) => ("", value, &list[end..]),
        Err(_) => embedded(list)?,
    };
    let entries = match parsed {
        Value::Array(items) => items,
        entry => vec![entry],
    };
    let mut pieces = Vec::new();
    json_call::outside(before, &mut pieces);
    for entry in entries {
        call(entry, tools, &mut pieces);
    }
    json_call::outside(after, &mut pieces);
    pieces.iter().any(|piece| matches!(piece, Piece::Call(_))).then_some(pieces)
}

/// What `\[{.*}\]` finds before the next marker, and what stands around it.
fn embedded(text: &str) -> Option<(&str, Value, &str)> {
    let own = text.find(MARKER).unwrap_or(text.len());
    let start = text[..own].find("[{")?;
    let end = text[..own].rfind("}]")? + 2;
    // There must be two braces: where only one stands in the text, it is found twice.
    let list = text.get(start..end).filter(|list| list.len() >= 4)?;
    Some((&text[..start], Value::parse_literally(list).ok()?, &text[end..]))
}

/// Reads an entry of a list; what is no call is content.
fn call(entry: Value, tools: &Signatures, pieces: &mut Vec<Piece>) {
    let named = entry.get("name").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
    match entry {
        Value::Object(object) if named => named_call(object, tools, pieces),
        entry => json_call::outside(&entry.to_json_string(), pieces),
    }
}

fn named_call(mut call: Object, tools: &Signatures, pieces: &mut Vec<Piece>) {
    let Some(Value::String(name)) = call.shift_remove("name") else { return };
    let arguments = match call.shift_remove("arguments") {
        None | Some(Value::Null) => "{}".to_owned(),
        Some(Value::String(text)) => text,
        Some(value) => value.to_json_string(),
    };
    let arguments = tools.fit(&name, arguments);
    pieces.push(Piece::Call(ToolCall::with_short_id(name, arguments)));
    json_call::outside(&json_call::unread(call), pieces);
}
