//! A template from a request or a file: whatever it says, it is read and rendered, or refused, and leaves nothing.

use std::time::Duration;

use tito::internals::{
    json::Value,
    prompt::template::{ChatTemplate, Patience},
};

/// Long enough for what ends by itself.
const TIME: Duration = Duration::from_millis(500);

const CONTEXT: &str = r#"{
    "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "a"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "text": "ab \n", "list": [3, 1, 2], "deep": [[[[[[[[1]]]]]]]], "number": 7, "float": 2.5, "nothing": null, "flag": true,
    "add_generation_prompt": true
}"#;

/// Returns whether the template was read and rendered.
pub(crate) fn check(data: &[u8]) -> bool {
    let Ok(source) = std::str::from_utf8(data) else { return false };
    let special = [("bos_token".to_owned(), "<s>".to_owned())].into_iter().collect();
    let Ok(template) = ChatTemplate::new(source, special) else { return false };
    let context = Value::parse(CONTEXT).expect("valid JSON");
    let variables = context.as_object().expect("an object");
    template.render(variables, time::OffsetDateTime::UNIX_EPOCH, &Patience::lasting(TIME)).is_ok()
}
