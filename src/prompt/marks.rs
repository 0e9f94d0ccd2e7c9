//! Messages with words in the place of what the model wrote, so that a render shows where it stands.

use crate::json::{Object, Value};

/// A part of a message that the model wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The arguments of one of its calls: what stands between them and the close is the template's.
    Arguments(usize),
    /// Its content.
    Content,
}

/// The calls of a message.
pub(super) fn calls(message: &Object) -> &[Value] {
    message.get("tool_calls").and_then(Value::as_array).unwrap_or_default()
}

/// The last text of a message's content.
pub(super) fn last_text(message: &Object) -> &str {
    match message.get("content") {
        Some(Value::String(text)) => text,
        Some(Value::Array(parts)) => {
            let text = |part: &'_ Value| part.as_object()?.get("text")?.as_str().map(str::len);
            let last = parts.iter().rposition(|part| text(part).is_some());
            last.and_then(|last| parts[last].as_object()?.get("text")?.as_str()).unwrap_or_default()
        }
        _ => "",
    }
}

/// The message with `word` as `part`, and `other` as everything else that the model wrote in it. What is empty stays
/// so: templates ask.
pub(super) fn with_part(message: &Object, part: Part, word: &str, other: &str) -> Option<Object> {
    let mut message = with_all(message, other);
    match part {
        Part::Content => set_content(&mut message, word),
        Part::Arguments(call) => {
            let Value::Array(calls) = message.get_mut("tool_calls")? else { return None };
            set_arguments(calls.get_mut(call)?, word)?;
        }
    }
    Some(message)
}

/// The message with `word` as everything that the model wrote in it.
pub(super) fn with_all(message: &Object, word: &str) -> Object {
    let mut message = message.clone();
    if calls(&message).is_empty() || !last_text(&message).is_empty() {
        set_content(&mut message, word);
    }
    for key in ["reasoning", "reasoning_content"] {
        if let Some(Value::String(text)) = message.get_mut(key)
            && !text.is_empty()
        {
            word.clone_into(text);
        }
    }
    if let Some(Value::Array(calls)) = message.get_mut("tool_calls") {
        for call in calls {
            // A call without arguments shows nothing of them.
            let _ = set_arguments(call, word);
        }
    }
    message
}

/// Makes `text` the content, in the form that the content has.
pub(super) fn set_content(message: &mut Object, text: &str) {
    let content = match message.get("content") {
        Some(Value::Array(_)) => {
            let part = [("type".to_owned(), Value::from("text")), ("text".to_owned(), Value::from(text))];
            Value::Array(vec![Value::Object(Object::from_iter(part))])
        }
        _ => Value::from(text),
    };
    message.insert("content".to_owned(), content);
}

fn set_arguments(call: &mut Value, word: &str) -> Option<()> {
    let function = call.as_object_mut()?.get_mut("function")?;
    let arguments = function.as_object_mut()?.get_mut("arguments")?;
    let marked = Value::Object(Object::from_iter([("zz".to_owned(), Value::from(word))]));
    *arguments = match arguments {
        Value::String(_) => Value::String(marked.to_json_string()),
        _ => marked,
    };
    Some(())
}
