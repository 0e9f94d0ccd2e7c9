//! A prompt in ids, and what was found out about it.

use std::{ops::Range, sync::Arc};

use super::error::UnprovableSplice;
use crate::TokenId;

/// How the ids of a prompt came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provenance {
    /// The client gave all of them.
    Given,
    /// Encoded from the render; no ids were known.
    Rendered,
    /// Known ids, then the tail of the render, proven.
    Spliced {
        /// The message that the known ids end with.
        anchor: usize,
        /// Known ids at the start of the prompt.
        reused: usize,
        /// The known ids end with a stop token that the template does not close messages with.
        foreign_stop: bool,
    },
    /// Known ids, then what follows as many end tokens of the render; not proven.
    SplicedByEosCount {
        /// Known ids at the start of the prompt.
        reused: usize,
    },
    /// Known ids could not be joined and were left out, as configured.
    Retokenized(UnprovableSplice),
}

/// A prompt in ids.
#[derive(Debug, Clone)]
pub struct RenderedPrompt {
    /// The ids, as the engine gets them.
    pub token_ids: Arc<[TokenId]>,
    /// How the ids came about.
    pub provenance: Provenance,
    /// The whole conversation as the template wrote it, where the ids are those of that text.
    pub text: Option<String>,
    /// How the whole conversation would have been encoded, if that was asked.
    pub drift: Option<Drift>,
    /// Where the known ids say something else than the messages, as far as that was asked.
    pub edits: Edits,
    /// The placeholders of each image of the messages, in their order.
    pub images: Vec<Range<usize>>,
}

/// What encoding a whole conversation gives, compared with its prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drift {
    /// The first position at which the two differ, or at which one of them has ended; `None` if the ids are the same.
    pub position: Option<usize>,
}

/// Where known ids say something else than the messages that they stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Edits {
    /// Whether they differ in the message that they end with.
    pub message: bool,
    /// Whether they differ in a message before that one.
    pub history: bool,
    /// Whether they differ before the first message: they begin with other tools, or with what other variables of the template make.
    pub context: bool,
}

impl RenderedPrompt {
    /// A prompt that needs no render, since the client gave all its ids.
    pub fn from_ids(token_ids: Vec<TokenId>) -> Self {
        Self::new(token_ids, Provenance::Given)
    }

    pub(super) fn new(token_ids: Vec<TokenId>, provenance: Provenance) -> Self {
        Self {
            token_ids: token_ids.into(),
            provenance,
            text: None,
            drift: None,
            edits: Edits::default(),
            images: Vec::new(),
        }
    }
}

impl Drift {
    /// What is different between the ids of a whole conversation and its prompt.
    pub(super) fn between(encoded: &[TokenId], prompt: &[TokenId]) -> Self {
        let same = encoded.iter().zip(prompt).take_while(|(encoded, id)| encoded == id).count();
        Self { position: (same < encoded.len().max(prompt.len())).then_some(same) }
    }
}
