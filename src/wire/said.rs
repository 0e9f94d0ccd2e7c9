//! What a client says in a body, to the letter: its messages or items, its system prompt and its tools.

use std::{borrow::Cow, sync::Arc};

use serde_json::value::RawValue;

use crate::{
    json::{Node, NodeKind},
    trajectory::Said,
};

/// Where a dialect says things.
#[derive(Debug)]
pub(crate) struct SaidFields {
    /// The endpoint.
    pub dialect: &'static str,
    /// The field of messages or items; a text in it counts as one item.
    pub items: &'static str,
    /// The field of the system prompt, where that is no message.
    pub system: Option<&'static str>,
}

/// Fields of items with as many numbers as the conversation has tokens. They are left out: ids and log-probs are captured as
/// such, and each item would repeat those of all before it.
const NUMBERS: [&str; 4] = ["prompt_token_ids", "generation_token_ids", "generation_log_probs", "routed_experts"];

impl SaidFields {
    /// Reads what a body says.
    pub(crate) fn read(&self, root: &Node<'_>) -> Said {
        let given = |field: &str| root.get(field).filter(|value| !value.is_null());
        self.read_conversation(root, given(self.items))
    }

    /// Reads what a body says whose field of items is a list of conversations: what each of them says.
    pub(crate) fn read_batch(&self, root: &Node<'_>) -> Vec<Said> {
        let Some(Node { kind: NodeKind::List(conversations), .. }) = root.get(self.items) else { return Vec::new() };
        conversations.nodes().map(|conversation| self.read_conversation(root, Some(&conversation))).collect()
    }

    /// What a body says beside `items`, and these.
    fn read_conversation(&self, root: &Node<'_>, items: Option<&Node<'_>>) -> Said {
        let given = |field: &str| root.get(field).filter(|value| !value.is_null());
        let items = match items {
            None => Vec::new(),
            Some(Node { kind: NodeKind::List(items), .. }) => items.nodes().map(|item| text_of_item(&item)).collect(),
            Some(one) => vec![raw(one.text)],
        };
        Said {
            dialect: self.dialect.into(),
            items,
            before: 0,
            system: self.system.and_then(given).map(|system| raw(system.text)),
            tools: given("tools").map(|tools| raw(tools.text)),
        }
    }
}

/// An item as it was written, without its lists of numbers.
fn text_of_item(item: &Node<'_>) -> Arc<RawValue> {
    let NodeKind::Object(entries) = &item.kind else { return raw(item.text) };
    if !entries.keys().any(|key| NUMBERS.contains(&key.as_str())) {
        return raw(item.text);
    }
    let kept = entries.iter().filter(|(key, _)| !NUMBERS.contains(&key.as_str()));
    let fields: Vec<String> = kept.map(|(key, value)| format!("{}: {}", quoted(key), value.text)).collect();
    raw(&format!("{{{}}}", fields.join(", ")))
}

fn quoted(text: &str) -> Cow<'static, str> {
    // A text can always be written.
    serde_json::to_string(text).map_or(Cow::Borrowed("\"\""), Cow::Owned)
}

/// The text as JSON. What only Python takes for JSON is kept as the text that it is.
fn raw(text: &str) -> Arc<RawValue> {
    let written = RawValue::from_string(text.to_owned()).or_else(|_| RawValue::from_string(quoted(text).into_owned()));
    written.unwrap_or_else(|_| RawValue::NULL.to_owned()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Document;

    fn read(text: &str) -> Said {
        let fields = SaidFields { dialect: "responses", items: "input", system: Some("instructions") };
        fields.read(&Document::parse(text).unwrap().root)
    }

    fn items(said: &Said) -> Vec<&str> {
        said.items.iter().map(|item| item.get()).collect()
    }

    #[test]
    fn items_are_kept_to_the_letter_without_their_numbers() {
        let said = read(
            r#"{"input": [ {"role":  "user", "content": "é\u00e9", "z": 1.50},
                {"generation_token_ids": [1, 2], "role": "assistant", "prompt_token_ids": [], "content": null} ],
                "instructions": "Be  kind", "tools": [ ]}"#,
        );
        let user = r#"{"role":  "user", "content": "é\u00e9", "z": 1.50}"#;
        assert_eq!(items(&said), [user, r#"{"role": "assistant", "content": null}"#]);
        assert_eq!((said.system.unwrap().get(), said.tools.unwrap().get()), (r#""Be  kind""#, "[ ]"));
    }

    #[test]
    fn each_conversation_of_a_batch_says_its_own() {
        let text = r#"{"input": [["a"], [{"role": "user", "prompt_token_ids": [1]}, "b"]], "instructions": "kind"}"#;
        let fields = SaidFields { dialect: "responses", items: "input", system: Some("instructions") };
        let [first, second] = &fields.read_batch(&Document::parse(text).unwrap().root)[..] else { panic!("two") };
        assert_eq!((items(first), items(second)), (vec![r#""a""#], vec![r#"{"role": "user"}"#, r#""b""#]));
        assert_eq!(first.system.as_ref().unwrap().get(), second.system.as_ref().unwrap().get());
    }

    #[test]
    fn a_text_is_an_item_and_what_is_not_there_is_not_said() {
        let said = read(r#"{"input": "Hi", "instructions": null}"#);
        assert_eq!((items(&said), said.system.is_none(), said.tools.is_none()), (vec!["\"Hi\""], true, true));
        assert!(read("{}").items.is_empty());
    }

    #[test]
    fn what_only_python_reads_is_kept_as_a_text() {
        assert_eq!(items(&read(r#"{"input": [{"a": NaN}]}"#)), [r#""{\"a\": NaN}""#]);
    }
}
