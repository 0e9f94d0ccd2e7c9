//! What a splice is made of, and the anchor in a render of it.

use super::{PromptError, comparison::decode, conversation::Conversation, seams::Seams};
use crate::{TokenId, tokenizer::Tokenizer};

/// Everything that a splice is made of.
#[derive(Clone, Copy)]
pub(super) struct Splice<'a> {
    pub(super) conversation: &'a Conversation<'a>,
    pub(super) tokenizer: &'a Tokenizer,
    pub(super) seams: &'a Seams,
    /// Ids that end a generation.
    pub(super) stops: &'a [TokenId],
    /// The honest render.
    pub(super) render: &'a str,
    /// Prompt and generation up to and including the anchor.
    pub(super) known: &'a [TokenId],
    /// How many of them were sampled for the anchor, at the most.
    pub(super) sampled: usize,
}

impl Splice<'_> {
    /// The text of ids, as far as they have one: a model may be wider than its tokenizer.
    pub(super) fn decode(&self, ids: &[TokenId], skip_special_tokens: bool) -> Result<String, PromptError> {
        decode(self.tokenizer, ids, skip_special_tokens)
    }
}

/// A render with a word in the place of a part of the anchor.
pub(super) struct RenderedAnchor {
    pub(super) before: String,
    pub(super) after: String,
    /// What everything else says that the model wrote in the anchor.
    pub(super) other: String,
}

/// A word that no message says: its 122 random bits are drawn for one request.
pub(super) fn fresh_word() -> String {
    format!("tito{}", uuid::Uuid::new_v4().simple())
}
