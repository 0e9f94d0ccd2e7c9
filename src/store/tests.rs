//! What a store does, as plainly as it can be written down; the stores are compared with it.

use std::collections::HashMap;

use proptest::prelude::*;

use super::RecordState;

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

pub(super) fn an_action() -> impl Strategy<Value = Action> {
    let state = prop_oneof![Just(RecordState::InProgress), Just(RecordState::Done), Just(RecordState::Interrupted)];
    let length = prop_oneof![0..64_usize, 1500..2500_usize, 0..30_000_usize];
    let record = (length, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]);
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
    weight: fn(&str, u64) -> u64,
}

impl Model {
    pub(super) fn new(most: u64, weight: fn(&str, u64) -> u64) -> Self {
        Self { records: HashMap::new(), ages: Vec::new(), most, weight }
    }

    fn total(&self) -> u64 {
        self.records.iter().map(|(id, (_, record))| (self.weight)(id, record.len() as u64)).sum()
    }

    /// Keeps a record, and says whether it can be kept at all.
    pub(super) fn put(&mut self, id: &str, state: RecordState, record: &[u8]) -> bool {
        if (self.weight)(id, record.len() as u64) > self.most {
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
