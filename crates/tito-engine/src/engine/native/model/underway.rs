//! Steps that are begun before the tokens of the step before are on the host.
//!
//! Owns which models take such steps. Refuses to know which sequences go on.

use super::{LOGIT_ROWS, Model, RowIds};
use crate::{
    engine::native::backend::{Backend, Batch, RowDraws},
    sampling::{DeviceDraw, Drawn},
};

impl<B: Backend> Model<B> {
    /// Whether steps can be begun whose tokens the host does not wait for: the host has no part in any layer, and reads the ids of
    /// tokens for nothing.
    pub(crate) fn goes_ahead(&self) -> bool {
        let reads_ids = self.parameters.as_ref().is_none_or(|parameters| parameters.inputs.is_some());
        self.backend.goes_ahead() && self.follows_from_shape && !reads_ids
    }

    /// Begins a step over a batch without images, adapters and routes, and draws a token of each row of `batch.logit_rows`. No
    /// draw edits its row.
    ///
    /// With `after`, the batch's rows are the tokens that the step begun last draws, by their rows of its logits; `batch.token_ids`
    /// say nothing then.
    pub(crate) fn begin(&mut self, batch: &Batch, after: Option<&[usize]>, draws: &[DeviceDraw]) -> B::Underway {
        let ids = after.map_or(RowIds::Given(&batch.token_ids), RowIds::Drawn);
        let mut shared = self.layers(batch, ids, None);
        self.backend.bring_finite(&mut shared);
        let rows = batch.logit_rows.len();
        self.head(batch, |backend, logits, first, shape| {
            let draws = &draws[first..rows.min(first + LOGIT_ROWS)];
            backend.begin_draws(logits, shape, RowDraws { draws, first, rows }, &mut shared);
        });
        self.backend.leave_underway(shared)
    }

    /// Waits for the step that was begun first: what was drawn of each row of logits; and for each span whether all its new keys and
    /// values are finite.
    pub(crate) fn land(&mut self, underway: B::Underway) -> (Vec<Drawn>, Vec<bool>) {
        self.backend.land(underway)
    }
}
