//! Messages with words in the place of what the model wrote, so that a render shows where it stands.

use crate::json::{Object, Value};

/// A part of a message that the model wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessagePart {
    /// The arguments of one of its calls: what stands between them and the close is the template's.
    Arguments(usize),
    /// Its content.
    Content,
}

/// The calls of a message.
pub(super) fn calls(message: &Object) -> &[Value] {
    message.get("tool_calls").and_then(Value::as_array).unwrap_or_default()
}

/// The texts of a message's content, or one empty text where it has none.
pub(super) fn texts(message: &Object) -> Vec<&str> {
    match message.get("content") {
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(parts)) => {
            let texts: Vec<_> = parts.iter().filter_map(|part| part.as_object()?.get("text")?.as_str()).collect();
            if texts.is_empty() { vec![""] } else { texts }
        }
        _ => vec![""],
    }
}

/// The last text of a message's content.
pub(super) fn last_text(message: &Object) -> &str {
    texts(message).last().copied().unwrap_or_default()
}

/// Whether two messages make the same calls and one ends with what the other says, whoever speaks: templates leave out
/// thoughts in front of a text.
pub(super) fn ends_alike(one: &Object, other: &Object) -> bool {
    let same = |(one, other): (&Value, &Value)| one.get("function") == other.get("function");
    let [one_text, other_text] = [one, other].map(|message| last_text(message).trim());
    (one_text.ends_with(other_text) || other_text.ends_with(one_text))
        && calls(one).len() == calls(other).len()
        && calls(one).iter().zip(calls(other)).all(same)
}

/// Whether `found` holds for a text in a message, or for the name of a value in it.
pub(super) fn any_text_in(message: &Object, found: &dyn Fn(&str) -> bool) -> bool {
    fn any_text(value: &Value, found: &dyn Fn(&str) -> bool) -> bool {
        match value {
            Value::String(text) => found(text),
            Value::Array(values) => values.iter().any(|value| any_text(value, found)),
            Value::Object(fields) => any_text_in(fields, found),
            _ => false,
        }
    }
    message.iter().any(|(name, value)| found(name) || any_text(value, found))
}

/// The message with `word` as `part`, and `other` as everything else that the model wrote in it. What is empty stays
/// so: templates ask.
pub(super) fn with_part(message: &Object, part: MessagePart, word: &str, other: &str) -> Option<Object> {
    let mut message = with_all(message, other);
    match part {
        MessagePart::Content => {
            let content = content_like(message.get("content").unwrap_or(&Value::Null), word);
            message.insert("content".to_owned(), content);
        }
        MessagePart::Arguments(call) => {
            let Value::Array(calls) = message.get_mut("tool_calls")? else { return None };
            let call = calls.get_mut(call)?;
            call.get("function")?.get("arguments")?;
            *call = call_with(call, &saying(word));
        }
    }
    Some(message)
}

/// The message with `other` as everything that the model wrote in it, but no arguments in one of its calls.
pub(super) fn without_arguments(message: &Object, call: usize, other: &str) -> Option<Object> {
    let mut message = with_all(message, other);
    let Value::Array(calls) = message.get_mut("tool_calls")? else { return None };
    let call = calls.get_mut(call)?;
    *call = call_with(call, &Object::default());
    Some(message)
}

/// The message with `word` as everything that the model wrote in it. What it said is not copied, since it may be long.
pub(super) fn with_all(message: &Object, word: &str) -> Object {
    let silent = !calls(message).is_empty() && last_text(message).is_empty();
    let marked = |(key, value): (&String, &Value)| {
        let value = match (key.as_str(), value) {
            ("content", content) if !silent => content_like(content, word),
            ("reasoning" | "reasoning_content", Value::String(text)) if !text.is_empty() => Value::from(word),
            ("tool_calls", Value::Array(calls)) => {
                Value::Array(calls.iter().map(|call| call_with(call, &saying(word))).collect())
            }
            (_, other) => other.clone(),
        };
        (key.clone(), value)
    };
    message.iter().map(marked).collect()
}

/// `text` in the form that `content` has.
fn content_like(content: &Value, text: &str) -> Value {
    match content {
        Value::Array(_) => {
            let part = [("type".to_owned(), Value::from("text")), ("text".to_owned(), Value::from(text))];
            Value::Array(vec![Value::Object(Object::from_iter(part))])
        }
        _ => Value::from(text),
    }
}

/// Arguments that say `word`.
fn saying(word: &str) -> Object {
    Object::from_iter([("zz".to_owned(), Value::from(word))])
}

/// The call with these arguments, in the form that it has them: a text that is no object is one of another end, so that
/// what they say stands alone. A call without arguments shows nothing of them.
fn call_with(call: &Value, arguments: &Object) -> Value {
    let like = |own: &Value| match own {
        Value::String(text) if !(text.starts_with('{') && text.ends_with('}')) => {
            Value::String(arguments.values().filter_map(Value::as_str).collect())
        }
        Value::String(_) => Value::String(Value::Object(arguments.clone()).to_json_string()),
        _ => Value::Object(arguments.clone()),
    };
    with_field(call, "function", |function| with_field(function, "arguments", like))
}

/// The object with what `change` makes of the value under `key`, if it has one.
fn with_field(object: &Value, key: &str, change: impl Fn(&Value) -> Value) -> Value {
    let Value::Object(fields) = object else { return object.clone() };
    let field = |(name, value): (&String, &Value)| {
        let value = if name == key { change(value) } else { value.clone() };
        (name.clone(), value)
    };
    Value::Object(fields.iter().map(field).collect())
}
