//! What makes two conversations the same, so that ids remembered for one may continue the other.
//!
//! Every message is part of the fingerprint of those that follow it, and so is whatever else decides a prompt. What
//! clients and their libraries change in an assistant message without changing what it says is left out: white space
//! and key order of a call's arguments, `null` for an empty text, one text part for a string, the number of a call,
//! reasoning that is not sent back; and the billing header of a system prompt. Anything else that differs is an edit,
//! and gives another fingerprint. So does another salt: conversations of two salts have nothing in common, whatever they
//! say.

use std::sync::LazyLock;

use crate::{
    TokenId,
    chat::{Content, ContentPart, FunctionTool, Image, Message, ToolCall},
    json::{Object, Value},
    prompt::{ChatPrompt, without_billing_header},
};

/// A hash that nobody can make two conversations collide in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint([u8; 32]);

/// What most requests have: neither a salt nor an adapter.
static NO_SALT: LazyLock<Fingerprint> = LazyLock::new(|| salted(None, None));

/// What most conversations have: no images.
static NO_IMAGES: LazyLock<Fingerprint> = LazyLock::new(|| Fingerprint::joined(b"images", &[]));

fn salted(salt: Option<&str>, adapter: Option<&str>) -> Fingerprint {
    let mut digest = Digest::new(b"salt");
    digest.some(salt, Digest::text);
    if let Some(adapter) = adapter {
        digest.text(adapter);
    }
    digest.finish()
}

impl Fingerprint {
    /// The fingerprint of ids that come in pieces.
    pub(super) fn of_ids<'a>(pieces: impl IntoIterator<Item = &'a [TokenId]>) -> Self {
        let mut digest = Digest::new(b"ids");
        pieces.into_iter().for_each(|piece| digest.ids(piece));
        digest.finish()
    }

    /// The fingerprint of a text; the same text has another one for another purpose.
    pub(super) fn of_text(purpose: &[u8], text: &str) -> Self {
        let mut digest = Digest::new(purpose);
        digest.text(text);
        digest.finish()
    }

    /// The fingerprint of a salt and the name of an adapter; a request without one is told apart from requests with any.
    pub(super) fn of_salt(salt: Option<&str>, adapter: Option<&str>) -> Self {
        if salt.is_none() && adapter.is_none() { *NO_SALT } else { salted(salt, adapter) }
    }

    /// The fingerprint of several pieces of bytes in their order.
    pub(super) fn of_parts<'a>(purpose: &[u8], parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut digest = Digest::new(purpose);
        parts.into_iter().for_each(|part| digest.bytes(part));
        digest.finish()
    }

    /// The code of pieces of bytes that only those can make who know the key.
    pub(super) fn keyed(key: Self, parts: &[&[u8]]) -> Self {
        let mut digest = Digest(blake3::Hasher::new_keyed(&key.0));
        for part in parts {
            digest.bytes(part);
        }
        digest.finish()
    }

    /// Its bytes.
    pub(super) fn bytes(self) -> [u8; 32] {
        self.0
    }

    /// The fingerprint of these bytes, if they are as many as one has.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The fingerprint of several fingerprints in their order.
    pub(super) fn joined(purpose: &[u8], parts: &[Self]) -> Self {
        let mut digest = Digest::new(purpose);
        for part in parts {
            digest.fingerprint(*part);
        }
        digest.finish()
    }
}

/// The hash of a text as it grows.
#[derive(Debug, Clone)]
pub(super) struct TextDigest(blake3::Hasher);

impl TextDigest {
    /// The hash of no text yet; the same text under another salt, or in another session, has another one.
    pub(super) fn new(salt: Fingerprint, session: Option<&str>) -> Self {
        let mut digest = Digest::new(b"prompt as text");
        digest.fingerprint(salt);
        digest.some(session, Digest::text);
        Self(digest.0)
    }

    /// The hash once these bytes are added to the text.
    pub(super) fn with(mut self, bytes: &[u8]) -> Self {
        self.0.update(bytes);
        self
    }

    pub(super) fn fingerprint(&self) -> Fingerprint {
        Fingerprint(*self.0.finalize().as_bytes())
    }
}

/// The fingerprints of one request's conversation.
#[derive(Debug, Clone)]
pub(super) struct Fingerprints {
    /// Tools, template variables and everything else that decides a prompt besides its messages.
    pub(super) context: Fingerprint,
    /// Of the messages, and of their images, by the number of messages: of none, of the first, of the first two, and so on.
    starts: Vec<(Fingerprint, Fingerprint)>,
}

impl Fingerprints {
    /// The fingerprints of a conversation under a salt: under another salt the same messages are another conversation.
    pub(super) fn of(prompt: &ChatPrompt, salt: Fingerprint) -> Self {
        let mut last = Fingerprint::joined(b"conversation", &[salt]);
        let mut images = *NO_IMAGES;
        let mut starts = vec![(last, images)];
        for message in &prompt.messages {
            last = followed_by(last, message);
            images = followed_by_images(images, message);
            starts.push((last, images));
        }
        Self { context: context(prompt), starts }
    }

    /// The fingerprint of the messages before message `index`; the index after the last message stands for all of them.
    pub(super) fn before(&self, index: usize) -> Fingerprint {
        self.starts[index].0
    }

    /// The fingerprint of the images in the messages before message `index`.
    pub(super) fn images_before(&self, index: usize) -> Fingerprint {
        self.starts[index].1
    }

    /// The fingerprint of the messages up to and including message `index`.
    pub(super) fn through(&self, index: usize) -> Fingerprint {
        self.starts[index + 1].0
    }
}

/// The fingerprint that a conversation has once `message` is added to it.
pub(super) fn followed_by(conversation: Fingerprint, message: &Message) -> Fingerprint {
    let mut digest = Digest::new(b"message");
    digest.fingerprint(conversation);
    digest.message(message);
    digest.finish()
}

/// The fingerprint that images have once those of `message` are added to them.
fn followed_by_images(images: Fingerprint, message: &Message) -> Fingerprint {
    let identities = message.content.images().map(|(_, image)| Fingerprint(image.identity));
    identities.fold(images, |images, identity| Fingerprint::joined(b"images", &[images, identity]))
}

fn context(prompt: &ChatPrompt) -> Fingerprint {
    let mut digest = Digest::new(b"context");
    digest.some(prompt.tools.as_deref(), |digest, tools| digest.each(tools, Digest::tool));
    digest.some(prompt.documents.as_deref(), |digest, documents| digest.each(documents, Digest::value));
    digest.some(prompt.template.as_deref(), |digest, template| digest.text(template.source()));
    digest.text(&Value::Object(prompt.template_kwargs.clone()).to_json_string());
    digest.some(prompt.reasoning_effort.as_deref(), Digest::text);
    digest.flag(prompt.add_special_tokens);
    digest.finish()
}

/// A hash of fields; lengths go in front, so that no two lists of fields are the same bytes.
struct Digest(blake3::Hasher);

impl Digest {
    fn new(purpose: &[u8]) -> Self {
        let mut digest = Self(blake3::Hasher::new());
        digest.bytes(purpose);
        digest
    }

    fn finish(&self) -> Fingerprint {
        Fingerprint(*self.0.finalize().as_bytes())
    }

    fn count(&mut self, count: usize) {
        self.0.update(&(count as u64).to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.update(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn flag(&mut self, flag: bool) {
        self.0.update(&[u8::from(flag)]);
    }

    fn fingerprint(&mut self, fingerprint: Fingerprint) {
        self.0.update(&fingerprint.0);
    }

    fn some<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.flag(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }

    fn each<T>(&mut self, values: &[T], write: impl Fn(&mut Self, &T)) {
        self.count(values.len());
        for value in values {
            write(self, value);
        }
    }

    /// Ids in pieces are the same as in one piece. Many at a time: the hash works on several kilobytes in parallel.
    fn ids(&mut self, ids: &[TokenId]) {
        const PIECE: usize = 1 << 14;
        let mut bytes = Vec::with_capacity(size_of_val(ids).min(PIECE * size_of::<TokenId>()));
        for piece in ids.chunks(PIECE) {
            bytes.clear();
            bytes.extend(piece.iter().flat_map(|id| id.to_le_bytes()));
            self.0.update(&bytes);
        }
    }

    /// Exactly as sent: its spelling is what the template shows.
    fn value(&mut self, value: &Value) {
        self.text(&value.to_json_string());
    }

    fn tool(&mut self, tool: &FunctionTool) {
        self.text(&tool.name);
        self.some(tool.description.as_deref(), Self::text);
        self.some(tool.parameters.as_ref(), Self::value);
        for flag in [tool.strict, tool.defer_loading, tool.outer_defer_loading] {
            self.some(flag, Self::flag);
        }
    }

    fn message(&mut self, message: &Message) {
        self.text(message.role.as_str());
        self.content(&message.content, message.role.as_str() == "system");
        self.some(message.name.as_deref(), Self::text);
        self.some(message.tool_call_id.as_deref(), Self::text);
        self.some(message.tools.as_ref(), Self::value);
        self.some(message.task.as_deref(), Self::text);
        self.each(message.tool_calls.as_deref().unwrap_or_default(), Self::call);
        // What an assistant thought is compared apart, since most clients do not send it back.
        if !message.role.is_assistant() {
            self.some(message.reasoning.as_deref(), Self::text);
        }
    }

    fn content(&mut self, content: &Content, is_system: bool) {
        let shown = |text| if is_system { without_billing_header(text) } else { Some(text) };
        match content {
            Content::Empty => self.count(0),
            Content::Text(text) => self.text_part(shown(text).unwrap_or_default()),
            Content::Parts(parts) => {
                let parts: Vec<HashedPart<'_>> = parts.iter().filter_map(|sent| part(sent, shown)).collect();
                match parts.as_slice() {
                    [HashedPart { kind: "", text, others }] if others.is_empty() => self.text_part(text),
                    parts => self.each(parts, Self::part),
                }
            }
        }
    }

    /// A content of one plain text; an empty one is none.
    fn text_part(&mut self, text: &str) {
        if text.is_empty() {
            self.count(0);
        } else {
            self.count(1);
            self.part(&HashedPart { kind: "", text, others: Object::default() });
        }
    }

    fn part(&mut self, part: &HashedPart<'_>) {
        self.text(part.kind);
        self.text(part.text);
        self.text(&Value::Object(part.others.clone()).to_json_string());
    }

    fn call(&mut self, call: &ToolCall) {
        self.text(&call.id);
        self.text(&call.name);
        // Models do write broken calls; they are compared as they are.
        let arguments = call.canonical_arguments().map(|value| value.to_json_string());
        self.flag(arguments.is_ok());
        self.text(arguments.as_deref().unwrap_or_else(|broken| broken));
        for extras in [&call.function_extras, &call.extras] {
            // Streams number calls, and some clients keep that.
            let said = extras.iter().filter(|(key, value)| !value.is_null() && *key != "index");
            let said = said.map(|(key, value)| (key.clone(), value.clone())).collect();
            self.text(&Value::Object(said).to_json_string());
        }
    }
}

/// A part of a content.
struct HashedPart<'a> {
    /// Empty for a plain text.
    kind: &'a str,
    text: &'a str,
    others: Object,
}

/// The kind of a part that is an image: no `type` that a client sends, since those are objects with other fields.
const IMAGE: &str = "an image, by what identifies it";

/// An image by what it shows and not by where it came from, with the keys that templates may read.
fn identified(image: &Image) -> Object {
    let identity = Value::from(blake3::Hash::from_bytes(image.identity).to_hex().as_str());
    let extras = image.extras.iter().filter(|(key, _)| *key != "cache_control");
    let extras = extras.map(|(key, value)| (key.clone(), value.clone())).collect();
    [("identity".to_owned(), identity), ("extras".to_owned(), Value::Object(extras))].into_iter().collect()
}

/// `None` for a part of which nothing is shown.
fn part<'a>(part: &'a ContentPart, shown: impl Fn(&'a str) -> Option<&'a str>) -> Option<HashedPart<'a>> {
    let part = match part {
        ContentPart::Text(text) => HashedPart { kind: "", text, others: Object::default() },
        ContentPart::Object { kind, fields } => {
            let is_text = ["text", "input_text", "output_text"].contains(&kind.as_str());
            let text = fields.get("text").and_then(Value::as_str).filter(|_| is_text);
            // Anthropic clients move the last one from turn to turn; no template reads it.
            let known = ["type", if text.is_some() { "text" } else { "type" }, "cache_control"];
            let others = fields.iter().filter(|(key, _)| !known.contains(&key.as_str()));
            let others = others.map(|(key, value)| (key.clone(), value.clone())).collect();
            HashedPart { kind: if text.is_some() { "" } else { kind }, text: text.unwrap_or_default(), others }
        }
        ContentPart::Image(image) => HashedPart { kind: IMAGE, text: "", others: identified(image) },
    };
    Some(HashedPart { text: shown(part.text)?, ..part })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fingerprint(message: &serde_json::Value) -> Fingerprint {
        let message: Message = serde_json::from_str(&message.to_string()).unwrap();
        followed_by(Digest::new(b"").finish(), &message)
    }

    fn fingerprint_of_content(content: &serde_json::Value) -> Fingerprint {
        fingerprint(&json!({"role": "assistant", "content": content}))
    }

    fn called(id: &str, name: &str, arguments: &serde_json::Value) -> Fingerprint {
        let call = json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
        fingerprint(&json!({"role": "assistant", "content": null, "tool_calls": [call]}))
    }

    #[test]
    fn what_libraries_change_in_a_message_does_not_change_it() {
        assert_eq!(
            fingerprint_of_content(&json!("a")),
            fingerprint_of_content(&json!([{"type": "text", "text": "a"}]))
        );
        assert_eq!(fingerprint_of_content(&json!("a")), fingerprint_of_content(&json!(["a"])));
        let marked = json!([{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]);
        assert_eq!(fingerprint_of_content(&json!("a")), fingerprint_of_content(&marked));
        for empty in [json!(""), json!([]), json!([""])] {
            assert_eq!(fingerprint_of_content(&json!(null)), fingerprint_of_content(&empty));
        }
        let extras = json!({"role": "assistant", "content": "a", "refusal": null, "annotations": [], "tool_calls": [],
            "reasoning": "hm", "prompt_token_ids": [1], "generation_token_ids": [2]});
        assert_eq!(fingerprint_of_content(&json!("a")), fingerprint(&extras));
        let arguments = called("c", "f", &json!("{\"b\": 1.0, \"a\": {\"y\": 1, \"x\": [2]}}"));
        assert_eq!(arguments, called("c", "f", &json!("{\"a\":{\"x\":[2.0],\"y\":1},\"b\":1}")));
        assert_eq!(called("c", "f", &json!(null)), called("c", "f", &json!(" {} ")));
        let call = json!({"index": 0, "id": "c", "type": "function", "extra": null, "function": {"name": "f"}});
        let decorated = fingerprint(&json!({"role": "assistant", "content": null, "tool_calls": [call]}));
        assert_eq!(decorated, called("c", "f", &json!("{}")));
    }

    #[test]
    fn whatever_else_differs_is_an_edit() {
        let call = || json!("{\"a\": 1}");
        let extra = |call: &str, function: &str| {
            let function = json!({"name": "f", "arguments": "{\"a\": 1}", "x": function});
            let call = json!({"id": "c", "type": "function", "x": call, "function": function});
            fingerprint(&json!({"role": "assistant", "content": null, "tool_calls": [call]}))
        };
        let messages = [
            extra("1", "2"),
            extra("2", "1"),
            fingerprint_of_content(&json!("a")),
            fingerprint_of_content(&json!("a ")),
            fingerprint_of_content(&json!("A")),
            fingerprint_of_content(&json!(["a", "b"])),
            fingerprint_of_content(&json!("a\nb")),
            fingerprint_of_content(&json!(["ab"])),
            fingerprint_of_content(&json!([{"type": "refusal", "refusal": "a"}])),
            fingerprint_of_content(&json!([{"type": "text", "text": "a", "other": 1}])),
            fingerprint(&json!({"role": "user", "content": "a"})),
            fingerprint(&json!({"role": "assistant", "content": "a", "name": "b"})),
            fingerprint(&json!({"role": "tool", "content": "a"})),
            fingerprint(&json!({"role": "tool", "content": "a", "tool_call_id": "c"})),
            called("c", "f", &call()),
            called("d", "f", &call()),
            called("c", "g", &call()),
            called("c", "f", &json!("{\"a\": 2}")),
            called("c", "f", &json!("{\"a\": \"1\"}")),
            called("c", "f", &json!("{\"a\": 1.5}")),
            called("c", "f", &json!("{\"a\": true}")),
            called("c", "f", &json!("{\"a\": 1")),
            called("c", "f", &json!("{}")),
        ];
        for (place, left) in messages.iter().enumerate() {
            for (other, right) in messages.iter().enumerate().skip(place + 1) {
                assert_ne!(left, right, "{place} and {other}");
            }
        }
    }

    #[test]
    fn ids_in_pieces_are_the_same_ids() {
        let ids: Vec<TokenId> = (0..3000).collect();
        let whole = Fingerprint::of_ids([ids.as_slice()]);
        assert_eq!(Fingerprint::of_ids([&ids[..1500], &ids[1500..]]), whole);
        assert_ne!(Fingerprint::of_ids([&ids[1..]]), whole);
    }
}
