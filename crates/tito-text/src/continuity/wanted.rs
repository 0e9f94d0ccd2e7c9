//! What a store is asked for a conversation, and what of its answers goes into the memory.

use std::sync::Arc;

use super::{
    Gap,
    fingerprint::Fingerprint,
    lookup::Lookup,
    memory::Recall,
    recall::under,
    shared::{Namespace, SEVERAL, SharedKey, StoreFault},
};
use crate::prompt::ChatPrompt;

/// The most keys that are asked for a conversation; the turns before are long ago.
const MOST_KEYS: usize = 64;

/// A conversation, as the store is asked for it.
#[derive(Debug)]
pub struct Wanted {
    pub(super) lookup: Lookup,
    namespace: Namespace,
    vocab_size: usize,
    /// The keys of the memory and of the store, the latest turn first.
    keys: Vec<(Fingerprint, SharedKey)>,
    /// The turn whose record is wanted, and the fingerprint of its ids.
    chosen: Option<(Fingerprint, Fingerprint)>,
    /// What went wrong.
    pub(super) gap: Option<Gap>,
}

impl Wanted {
    /// The turns of a conversation.
    pub(super) fn new(lookup: Lookup, namespace: Namespace, vocab_size: usize, prompt: &ChatPrompt) -> Self {
        let keys = lookup.keys(prompt).take(MOST_KEYS).map(|key| (key, namespace.answer_key(key))).collect();
        Self { lookup, namespace, vocab_size, keys, chosen: None, gap: None }
    }

    fn record_key(&self, ids: Fingerprint) -> SharedKey {
        self.namespace.record_key(under(self.lookup.salt, ids))
    }

    /// The keys of the turns, the latest first.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = SharedKey> {
        self.keys.iter().map(|(_, key)| *key)
    }

    /// Takes what is kept under these keys, and returns the key of the record that is wanted besides, if one is.
    pub fn learn(&mut self, answers: &[Option<Vec<u8>>]) -> Option<SharedKey> {
        let memory = Arc::clone(&self.lookup.memory);
        for ((key, _), answer) in self.keys.iter().zip(answers) {
            let Some(answer) = answer else { continue };
            if answer == SEVERAL {
                memory.note_several(*key);
                continue;
            }
            let Some(ids) = Fingerprint::from_bytes(answer) else {
                self.gap = Some(Gap::StoreRefused);
                continue;
            };
            memory.note(*key, ids);
            match memory.recall(*key) {
                Recall::Known(_) if self.chosen.is_none() => return None,
                Recall::Forgotten if self.chosen.is_none() => self.chosen = Some((*key, ids)),
                _ => {}
            }
        }
        self.chosen.map(|(_, ids)| self.record_key(ids))
    }

    /// Takes the record that [`Self::learn`] asked for; `None` if there is none.
    pub fn take(&mut self, record: Option<&[u8]>) {
        let (Some((key, ids)), Some(record)) = (self.chosen, record) else { return };
        let turn = self.namespace.read(self.record_key(ids), record, self.vocab_size);
        match turn.filter(|turn| turn.ids == ids) {
            Some(turn) => self.lookup.memory.adopt(key, Arc::new(turn)),
            None => self.gap = Some(Gap::StoreRefused),
        }
    }

    /// Whether something was refused.
    pub fn refused(&self) -> bool {
        self.gap == Some(Gap::StoreRefused)
    }

    /// The store was not asked to the end.
    pub fn missed(&mut self, fault: StoreFault) {
        self.gap = Some(match fault {
            StoreFault::Unavailable => Gap::StoreUnavailable,
            StoreFault::TimedOut => Gap::StoreTimeout,
        });
    }
}
