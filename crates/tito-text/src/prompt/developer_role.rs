//! Messages of developers, for templates that do not know the role.

use crate::json::{Object, Value};

/// Turns developer messages into system messages for a template that does not know the role, then gathers all system
/// messages at the front, as vLLM does. Returns where each message went.
pub(super) fn fold_developer_role(messages: Vec<Object>, template_source: &str) -> (Vec<Object>, Vec<usize>) {
    let identity = (0..messages.len()).collect();
    let role_is = |message: &Object, role: &str| message.get("role").and_then(Value::as_str) == Some(role);
    let knows_role = template_source.contains("\"developer\"") || template_source.contains("'developer'");
    if knows_role || !messages.iter().any(|message| role_is(message, "developer")) {
        return (messages, identity);
    }
    let mut messages = messages;
    for message in &mut messages {
        if role_is(message, "developer") {
            message.insert("role".to_owned(), Value::from("system"));
            message.shift_remove("tools");
        }
    }
    let is_system: Vec<bool> = messages.iter().map(|message| role_is(message, "system")).collect();
    if !is_system.iter().skip(1).any(|&system| system) {
        return (messages, identity);
    }
    let texts = messages.iter().filter(|message| role_is(message, "system")).map(flat_text);
    let text: Vec<String> = texts.filter(|text| !text.is_empty()).collect();
    let mut folded = vec![Object::from_iter([
        ("role".to_owned(), Value::from("system")),
        ("content".to_owned(), Value::String(text.join("\n\n"))),
    ])];
    let mut places = Vec::with_capacity(messages.len());
    for (message, system) in messages.into_iter().zip(is_system) {
        if system {
            places.push(0);
        } else {
            places.push(folded.len());
            folded.push(message);
        }
    }
    (folded, places)
}

fn flat_text(message: &Object) -> String {
    match message.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let texts = parts.iter().filter_map(|part| part.as_object()?.get("text")?.as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}
