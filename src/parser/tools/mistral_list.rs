//! The calls that Mistral's older tokenizers write: a JSON list after a marker.

use crate::{
    json::Value,
    parser::{ToolCall, marker},
};

/// What calls stand after.
pub(super) const MARKER: &str = "[TOOL_CALLS]";

/// The calls of what stands after the first marker; `None` where there are none.
pub(super) fn calls(text: &str) -> Option<Vec<ToolCall>> {
    // Markers with nothing between them count as one, and what follows a later marker is no list.
    let list = text.split(MARKER).map(marker::trim).find(|part| !part.is_empty())?;
    let parsed = Value::parse_start(list).map(|(value, _)| value).ok().or_else(|| embedded(list))?;
    let calls: Vec<_> = match &parsed {
        Value::Array(items) => items.iter().filter_map(call).collect(),
        object => call(object).into_iter().collect(),
    };
    (!calls.is_empty()).then_some(calls)
}

/// What `\[{.*}\]` finds.
fn embedded(text: &str) -> Option<Value> {
    let start = text.find("[{")?;
    let end = text.rfind("}]")? + 2;
    // There must be two braces: where only one stands in the text, it is found twice.
    Value::parse(text.get(start..end).filter(|list| list.len() >= 4)?).ok()
}

fn call(entry: &Value) -> Option<ToolCall> {
    let object = entry.as_object()?;
    let (name, arguments) = (object.get("name"), object.get("arguments"));
    if name.is_none() && arguments.is_none() {
        return None;
    }
    let arguments = match arguments {
        None | Some(Value::Null) => "{}".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_json_string(),
    };
    Some(ToolCall::with_short_id(name.and_then(Value::as_str).unwrap_or_default().to_owned(), arguments))
}
