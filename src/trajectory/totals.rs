//! What lists say of a trajectory, kept up to date as turns are entered, so that no list looks at every turn.

use std::sync::Arc;

use super::record::TurnRecord;

/// What sampled a turn: the model, and the name of the adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) model: Arc<str>,
    pub(super) adapter: Option<Arc<str>>,
}

impl Policy {
    /// What requests ask for it by: an adapter by its own name.
    pub(super) fn name(&self) -> &Arc<str> {
        self.adapter.as_ref().unwrap_or(&self.model)
    }

    /// Whether requests ask for it by one of these names.
    pub(super) fn is_of(&self, names: &[String]) -> bool {
        names.iter().any(|name| **name == **self.name())
    }
}

/// The turns of a trajectory, added up.
#[derive(Debug, Default)]
pub(super) struct Totals {
    /// Turns that no other one continues.
    pub(super) leaves: usize,
    /// Those of them that did not end by themselves.
    pub(super) cut_leaves: usize,
    /// Turns that continue no other one.
    pub(super) roots: usize,
    /// Ids that were sampled.
    pub(super) sampled: usize,
    /// When the first turn began, in seconds since 1970; infinite before there is one.
    pub(super) created: f64,
    /// When the last turn ended.
    pub(super) updated: f64,
    /// Whether the place of a turn is uncertain.
    pub(super) ambiguous: bool,
    /// What sampled, in the order of turns.
    pub(super) policies: Vec<Policy>,
    /// What the weights are called that sampled, in the order of turns.
    pub(super) versions: Vec<Arc<str>>,
    /// What the weights of the base are called under adapters that sampled.
    pub(super) base_versions: Vec<Arc<str>>,
}

impl Totals {
    pub(super) fn new() -> Self {
        Self { created: f64::INFINITY, ..Self::default() }
    }

    /// Adds a turn, which is a leaf.
    pub(super) fn add(&mut self, TurnRecord { place, generation }: &TurnRecord) {
        self.leaves += 1;
        self.cut_leaves += usize::from(!generation.finish.is_complete());
        self.roots += usize::from(place.parent.is_none());
        self.sampled += generation.sampled.len();
        self.created = self.created.min(generation.created);
        self.updated = self.updated.max(generation.ended);
        self.ambiguous |= place.ambiguous;
        for weights in &generation.weights {
            if !self.versions.contains(&weights.version) {
                self.versions.push(Arc::clone(&weights.version));
            }
            if let Some(base) = weights.base_version.as_ref().filter(|base| !self.base_versions.contains(base)) {
                self.base_versions.push(Arc::clone(base));
            }
        }
        let model = Arc::clone(&generation.model);
        let policy = Policy { model, adapter: generation.adapter.as_ref().map(|adapter| Arc::clone(&adapter.name)) };
        if !self.policies.contains(&policy) {
            self.policies.push(policy);
        }
    }

    /// Says that a leaf is one no longer.
    pub(super) fn continued(&mut self, was_complete: bool) {
        self.leaves -= 1;
        self.cut_leaves -= usize::from(!was_complete);
    }
}
