//! Why the thread computes nothing for now.

use std::sync::Arc;

use super::names::Names;
use crate::engine::{
    WeightVersion,
    native::{
        backend::Backend,
        model::{FurtherLayers, Head, Undo},
    },
};

/// Why the thread computes nothing for now, and with which weights it computes otherwise.
pub(super) struct Standing<B: Backend> {
    pub(super) held: bool,
    pub(super) without_cache: bool,
    pub(super) update: Option<Update<B>>,
    /// What came with earlier updates since the weights were lost, which did not bring all of them.
    pub(super) came: Came,
    pub(super) weights: Arc<WeightVersion>,
    pub(super) names: Names,
    /// Whether sequences may read what older weights wrote.
    pub(super) reuses: bool,
}

/// An update that was begun.
pub(super) struct Update<B: Backend> {
    /// `None` where nothing is kept.
    pub(super) undo: Option<Undo<B>>,
    /// Whether a weight may have been overwritten.
    pub(super) touched: bool,
    /// What came that is compared once it is finished.
    pub(super) came: Came,
}

/// What came with updates and is compared once all of the model is there.
#[derive(Default)]
pub(super) struct Came {
    /// Heads that are to be the embeddings.
    pub(super) heads: Vec<Head>,
    /// What came of layers after the last one.
    pub(super) further: FurtherLayers,
}

impl Came {
    /// Adds what came later: of the same head, the last one counts.
    pub(super) fn add(&mut self, later: Self) {
        self.heads.retain(|head| !later.heads.iter().any(|new| new.replaces(head)));
        self.heads.extend(later.heads);
        self.further.extend(later.further);
    }
}

impl<B: Backend> Standing<B> {
    pub(super) fn new(weights: Arc<WeightVersion>) -> Self {
        Self {
            held: false,
            without_cache: false,
            update: None,
            came: Came::default(),
            weights,
            names: Names::default(),
            reuses: false,
        }
    }
}
