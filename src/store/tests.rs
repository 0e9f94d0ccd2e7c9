//! What a store does, as plainly as it can be written down; the stores are compared with it.

use std::collections::HashMap;

use proptest::prelude::*;

use super::{
    RecordState,
    chunks::{ChunkKey, Tree},
};

/// Something to do to a store.
#[derive(Debug, Clone)]
pub(super) enum Action {
    Put(String, RecordState, Vec<u8>),
    Get(String),
    Delete(String),
}

pub(super) fn an_id() -> impl Strategy<Value = String> {
    prop_oneof![(0..8_u8).prop_map(|id| format!("resp_{id}")), Just(String::new()), Just("é\0".repeat(40))]
}

/// Bytes that look random, the same ones for the same seed.
pub(super) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

pub(super) fn an_action() -> impl Strategy<Value = Action> {
    let state = prop_oneof![Just(RecordState::InProgress), Just(RecordState::Done), Just(RecordState::Interrupted)];
    let length = prop_oneof![0..64_usize, 1500..2500_usize, 0..30_000_usize];
    // Records of pieces, of which there are few different ones, so that much is shared.
    let piece = (length, 0..4_u64).prop_map(|(length, seed)| noise(seed, length));
    let record = proptest::collection::vec(piece, 0..3).prop_map(|pieces| pieces.concat());
    prop_oneof![
        4 => (an_id(), state, record).prop_map(|(id, state, record)| Action::Put(id, state, record)),
        3 => an_id().prop_map(Action::Get),
        1 => an_id().prop_map(Action::Delete),
    ]
}

/// Records by their ids, and the ids by age.
#[derive(Debug, Clone)]
pub(super) struct Model {
    pub(super) records: HashMap<String, (RecordState, Vec<u8>)>,
    ages: Vec<String>,
    most: u64,
    /// What an entry takes with a key and a value of these lengths.
    weight: fn(usize, usize) -> u64,
}

impl Model {
    pub(super) fn new(most: u64, weight: fn(usize, usize) -> u64) -> Self {
        Self { records: HashMap::new(), ages: Vec::new(), most, weight }
    }

    /// What all records take: the root of each, and every chunk that one of them needs.
    pub(super) fn total(&self) -> u64 {
        self.weight_of(self.records.iter().map(|(id, (_, record))| (id.as_str(), record.as_slice())))
    }

    /// What these records would take without all others, and a new one beside them.
    pub(super) fn alone(&self, ids: &[String], (new, record): (&str, &[u8])) -> u64 {
        let own = self.records.iter().filter(|(id, _)| ids.contains(id) && *id != new);
        self.weight_of(own.map(|(id, (_, record))| (id.as_str(), record.as_slice())).chain([(new, record)]))
    }

    fn weight_of<'r>(&self, records: impl Iterator<Item = (&'r str, &'r [u8])>) -> u64 {
        let mut chunks = HashMap::new();
        let mut roots = 0;
        for (id, record) in records {
            let tree = Tree::of(record);
            roots += (self.weight)(id.len(), tree.root.bytes.len());
            chunks.extend(tree.chunks().map(|(key, chunk)| (*key, chunk.len())));
        }
        roots + chunks.values().map(|bytes| (self.weight)(size_of::<ChunkKey>(), *bytes)).sum::<u64>()
    }

    /// Keeps a record, and says whether it can be kept at all.
    pub(super) fn put(&mut self, id: &str, state: RecordState, record: &[u8]) -> bool {
        if self.weight_of([(id, record)].into_iter()) > self.most {
            return false;
        }
        self.delete(id);
        self.records.insert(id.to_owned(), (state, record.to_vec()));
        self.ages.push(id.to_owned());
        while self.total() > self.most {
            let oldest = self.ages.remove(0);
            self.records.remove(&oldest);
        }
        true
    }

    pub(super) fn get(&self, id: &str) -> Option<(RecordState, Vec<u8>)> {
        self.records.get(id).cloned()
    }

    /// Makes a record the newest.
    pub(super) fn touch(&mut self, id: &str) {
        if let Some(at) = self.ages.iter().position(|other| other == id) {
            let id = self.ages.remove(at);
            self.ages.push(id);
        }
    }

    pub(super) fn delete(&mut self, id: &str) -> bool {
        self.ages.retain(|other| other != id);
        self.records.remove(id).is_some()
    }

    /// What another process finds.
    pub(super) fn interrupt(&mut self) {
        for (state, _) in self.records.values_mut() {
            if *state == RecordState::InProgress {
                *state = RecordState::Interrupted;
            }
        }
    }
}
