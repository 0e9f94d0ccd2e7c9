//! Prompts and their answers as texts, of which only fingerprints are kept.

use std::sync::Arc;

use moka::sync::Cache;

use super::fingerprint::Fingerprint;

/// The most texts that are kept of those whose last whole block is the same.
pub(super) const MOST: usize = 64;

/// What was answered to texts, by the fingerprint of whole blocks: texts that go on for less than a block after them.
pub(super) type Texts = Cache<Fingerprint, Arc<[Answered]>>;

/// A prompt and its answer, as one text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answered {
    /// Its bytes.
    pub(super) length: usize,
    /// Their hash.
    pub(super) text: Fingerprint,
    /// The ids of both.
    pub(super) ids: AnsweredIds,
}

/// The ids of a prompt and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnsweredIds {
    One {
        count: usize,
        ids: Fingerprint,
    },
    /// The same text was answered with different ids.
    Several,
}

impl Answered {
    /// The texts with this one, which is the last of them; the first is forgotten if there are too many.
    pub(super) fn added_to(mut self, known: &[Self]) -> Vec<Self> {
        let is_same = |known: &Self| known.text == self.text && known.length == self.length;
        let (same, mut texts): (Vec<Self>, Vec<Self>) = known.iter().copied().partition(|known| is_same(known));
        if same.iter().any(|known| known.ids != self.ids) {
            self.ids = AnsweredIds::Several;
        }
        texts.push(self);
        texts.split_off(texts.len().saturating_sub(MOST))
    }
}
