//! Why the thread computes nothing for now.

use std::sync::Arc;

use super::names::Names;
use crate::engine::{
    WeightVersion,
    native::{
        backend::Backend,
        model::{Head, Undo},
    },
};

/// Why the thread computes nothing for now, and with which weights it computes otherwise.
pub(super) struct Standing<B: Backend> {
    pub(super) held: bool,
    pub(super) without_cache: bool,
    pub(super) update: Option<Update<B>>,
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
    /// Heads that came, and are to be the embeddings once it is finished.
    pub(super) heads: Vec<Head>,
}

impl<B: Backend> Standing<B> {
    pub(super) fn new(weights: Arc<WeightVersion>) -> Self {
        Self { held: false, without_cache: false, update: None, weights, names: Names::default(), reuses: false }
    }
}
