//! The numbers that a trainer gives to weights, by which deltas lead from one to the next.

use super::Control;
use crate::engine::Written;

impl Control {
    /// The number of the weights after an update that calls its own `new`, where so many tensors lacked before it. The rest
    /// of weights that were lost is of the same number as what came before, or nobody knows the number. What one call
    /// `brought` as a whole leaves nothing of that.
    pub(super) fn trained_after(
        &self,
        new: Option<u64>,
        before: Option<u64>,
        lacking: usize,
        brought: Option<Written>,
    ) -> Option<u64> {
        let tensors = self.engine.control().map_or(0, |engine| engine.tensors().len());
        let is_rest = (1..tensors).contains(&lacking) && brought.is_none_or(|written| written.tensors < tensors);
        new.filter(|_| !is_rest || new == before)
    }
}

/// The number that a trainer gives to weights: that of the directory, or what the caller calls them. The engine's own count
/// says nothing of what was trained.
pub(super) fn trained(of_source: Option<u64>, given: Option<&str>) -> Option<u64> {
    of_source.or_else(|| given?.parse().ok())
}
