//! What stands in for the model: blocks and slots that remember what was computed into them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::super::*;
use crate::engine::native::{kv_cache::BlockId, recurrence::SlotId};

/// What a place holds.
#[derive(Debug, Clone)]
struct Content {
    /// Every token from the start of its sequence to its own.
    tokens: Vec<TokenId>,
    weight_version: u64,
    writer: CacheUse,
}

/// What kind of sequence reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CacheUse {
    /// Whether it may read what older weights wrote.
    pub(super) reuses: bool,
    pub(super) salted: bool,
}

/// Refuses to compute on places that hold anything but the sequence's own tokens.
pub(super) struct Memory {
    /// For each token of a block.
    keys: HashMap<(BlockId, usize), Content>,
    states: HashMap<SlotId, Content>,
    pub(super) weight_version: u64,
}

impl Memory {
    pub(super) fn new() -> Self {
        Self { keys: HashMap::new(), states: HashMap::new(), weight_version: 0 }
    }

    /// Computes a plan over `tokens`, of a scheduler with or without states. `kind` says what
    /// kind of sequence each is.
    pub(super) fn run(
        &mut self,
        plan: &Plan,
        sequences: &BTreeMap<SequenceId, Vec<TokenId>>,
        has_states: bool,
        kind: impl Fn(SequenceId) -> CacheUse,
    ) {
        self.copy(plan);
        self.write_keys(plan, sequences, &kind);
        for work in &plan.work {
            let tokens = &sequences[&work.id];
            for position in 0..work.first + work.token_ids.len() {
                let place = (work.blocks[position / BLOCK_TOKENS], position % BLOCK_TOKENS);
                self.check(&self.keys[&place], &tokens[..=position], work, kind(work.id));
            }
        }
        if has_states {
            self.advance(plan, sequences, &kind);
        } else {
            assert!(plan.restores.is_empty() && plan.work.iter().all(|work| work.snapshots.is_empty()));
        }
    }

    fn copy(&mut self, plan: &Plan) {
        for (from, to) in &plan.copies {
            for token in 0..BLOCK_TOKENS {
                match self.keys.get(&(*from, token)).cloned() {
                    Some(content) => self.keys.insert((*to, token), content),
                    None => self.keys.remove(&(*to, token)),
                };
            }
        }
        for (from, to) in &plan.restores {
            let state = self.states[from].clone();
            self.states.insert(*to, state);
        }
    }

    /// All keys and values of a step are written before any is read.
    fn write_keys(
        &mut self,
        plan: &Plan,
        sequences: &BTreeMap<SequenceId, Vec<TokenId>>,
        kind: &impl Fn(SequenceId) -> CacheUse,
    ) {
        for work in &plan.work {
            let tokens = &sequences[&work.id];
            assert_eq!(work.token_ids, tokens[work.first..][..work.token_ids.len()]);
            for position in work.first..work.first + work.token_ids.len() {
                let place = (work.blocks[position / BLOCK_TOKENS], position % BLOCK_TOKENS);
                let content = self.content(&tokens[..=position], kind(work.id));
                self.keys.insert(place, content);
            }
        }
    }

    /// Has every state absorb its new tokens, and leaves copies of it on the way.
    fn advance(
        &mut self,
        plan: &Plan,
        sequences: &BTreeMap<SequenceId, Vec<TokenId>>,
        kind: &impl Fn(SequenceId) -> CacheUse,
    ) {
        let mut slots = BTreeSet::new();
        for work in &plan.work {
            let tokens = &sequences[&work.id];
            // A sequence begins with a zero state, whatever its slot holds.
            if work.first > 0 {
                self.check(&self.states[&work.slot], &tokens[..work.first], work, kind(work.id));
            }
            let end = work.first + work.token_ids.len();
            assert!(work.snapshots.is_sorted_by(|one, next| one.0 < next.0), "{work:?}");
            assert!(work.snapshots.iter().all(|(tokens, _)| (work.first + 1..=end).contains(tokens)), "{work:?}");
            for (absorbed, slot) in work.snapshots.iter().copied().chain([(end, work.slot)]) {
                assert!(slots.insert(slot), "{slot} is written twice in {plan:?}");
                let content = self.content(&tokens[..absorbed], kind(work.id));
                self.states.insert(slot, content);
            }
        }
    }

    fn content(&self, tokens: &[TokenId], writer: CacheUse) -> Content {
        Content { tokens: tokens.to_vec(), weight_version: self.weight_version, writer }
    }

    fn check(&self, content: &Content, wanted: &[TokenId], work: &Work, reader: CacheUse) {
        let Content { tokens, weight_version, writer } = content;
        assert_eq!((&tokens[..], writer.salted), (wanted, reader.salted), "{work:?}");
        let is_own = *weight_version == self.weight_version && !writer.reuses;
        assert!(is_own || reader.reuses, "{work:?} reads what version {weight_version} wrote");
    }
}
