//! What known ids are compared with, and what a comparison lets pass.

use super::{
    ChatPrompt, KnownPrefix, PromptError, answer_formats::AnswerFormats, messages::without_billing_header, seams::Seams,
};
use crate::{TokenId, chat::Message, tokenizer::Tokenizer};

/// So many bytes behind a text may be a stop string of the request that the text was sampled for, which nobody says.
pub(super) const LONGEST_STOP_STRING: usize = 32;

/// What known ids are compared with.
pub(super) struct Comparison<'a> {
    pub(super) tokenizer: &'a Tokenizer,
    pub(super) prompt: &'a ChatPrompt,
    pub(super) known: &'a KnownPrefix,
    /// The message that the known ids end with.
    pub(super) anchor: usize,
    /// Where the known ids begin its turn, if nobody says how many were sampled and the template shows it.
    pub(super) answer: Option<usize>,
    /// The whole conversation, as the template writes it, or its texts alone.
    pub(super) render: &'a str,
    /// Ids that end a generation.
    pub(super) stops: &'a [TokenId],
    /// How the model writes its answers.
    pub(super) formats: AnswerFormats,
    /// Where the render is the template's: its special tokens, and the whole prompt with the known ids.
    pub(super) written: Option<Written<'a>>,
}

/// How the template writes a conversation.
#[derive(Clone, Copy)]
pub(super) struct Written<'a> {
    pub(super) seams: &'a Seams,
    /// The prompt, which starts with the known ids.
    pub(super) prompt_ids: &'a [TokenId],
    /// Whether the template writes the date.
    pub(super) dated: bool,
}

/// Whether a character says nothing: white space, or a part of a character.
pub(super) fn is_blank(character: char) -> bool {
    character == '\u{FFFD}' || character.is_whitespace()
}

/// What encoding makes of a text: tokenizers compose characters.
pub(super) fn encoded(tokenizer: &Tokenizer, text: &str) -> Result<String, PromptError> {
    Ok(tokenizer.decode(&tokenizer.encode(text, false)?, false)?)
}

/// What a template is given of a message that is not an assistant's.
pub(super) fn shown_texts(message: &Message) -> impl Iterator<Item = &str> {
    let is_system = message.role.as_str() == "system";
    message.content.texts().filter_map(move |text| if is_system { without_billing_header(text) } else { Some(text) })
}

/// The text of ids that an answer had, as far as they have one: a model may be wider than its tokenizer.
pub(super) fn decode(tokenizer: &Tokenizer, ids: &[TokenId], skip_special_tokens: bool) -> Result<String, PromptError> {
    let ids: Vec<_> = ids.iter().copied().filter(|&id| tokenizer.contains(id)).collect();
    Ok(tokenizer.decode_as_streamed(&ids, skip_special_tokens)?)
}

/// A text without what says nothing.
pub(super) fn dense(text: &str) -> String {
    text.chars().filter(|character| !is_blank(*character)).collect()
}

/// Whether the texts stand in `haystack` one after the other; templates trim them.
pub(super) fn in_order(haystack: &str, texts: &[&str]) -> bool {
    let mut rest = haystack;
    texts.iter().all(|text| {
        let text = text.trim();
        let found = rest.find(text).map(|place| place + text.len());
        rest = found.map_or(rest, |end| &rest[end..]);
        found.is_some()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{decode, in_order};
    use crate::tokenizer::Tokenizer;

    #[test]
    fn ids_have_the_text_that_their_answer_had() {
        let definition = json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null,
            "added_tokens": [], "post_processor": null,
            "decoder": { "type": "Sequence", "decoders": [{ "type": "ByteFallback" }, { "type": "Fuse" }] },
            "model": { "type": "BPE", "vocab": { "<0x79>": 0, "<0xFF>": 1, "b": 2 }, "merges": [] },
        });
        let tokenizer = Tokenizer::from_bytes(definition.to_string().as_bytes()).unwrap();
        // The server streamed "y" before it sampled the broken byte; the id 9 is the model's alone.
        assert_eq!(decode(&tokenizer, &[0, 1, 9, 0, 2], false).unwrap(), "y\u{fffd}\u{fffd}b");
    }

    #[test]
    fn texts_stand_in_order_and_do_not_overlap() {
        assert!(in_order("a b a", &["a", " b ", "a"]));
        assert!(in_order("anything", &[]));
        for texts in [&["b", "b"][..], &["a", "a", "a"], &["b", "a", "b"]] {
            assert!(!in_order("a b a", texts), "{texts:?}");
        }
    }
}
