//! What a row of a draft model takes, beside a row of the model.
//!
//! It is measured: it depends on the instructions, on how weights are held, and on where they lie in memory. It decides how
//! long drafts are, and no bit.

use std::time::{Duration, Instant};

use super::DraftModel;
use crate::engine::native::{backend::Backend, model::Model};

/// How many rows are timed at the most. The fastest counts: others waited for something.
const MOST_ROWS: usize = 5;
/// No further row is timed after so long.
const LONGEST: Duration = Duration::from_millis(300);

impl<B: Backend> DraftModel<B> {
    /// Measures what a row takes, unless that was given. Both models have their caches, and no sequence uses them yet.
    pub(in crate::engine::native) fn measure(&mut self, model: &mut Model<B>) {
        if self.cost.is_finite() || self.room.blocks == 0 || self.model.lacking() > 0 {
            return;
        }
        let of_model = fastest_row(model);
        model.swap_threads(self.model.backend_mut());
        let of_draft = fastest_row(&mut self.model);
        model.swap_threads(self.model.backend_mut());
        self.cost = of_draft.as_secs_f64() / of_model.as_secs_f64().max(f64::MIN_POSITIVE);
    }

    /// What a row takes, as a share of what a row of the model takes; infinite where nothing can be drafted.
    pub(in crate::engine::native) fn cost(&self) -> f64 {
        self.cost
    }
}

/// What a step of a single row takes at the least.
fn fastest_row<B: Backend>(model: &mut Model<B>) -> Duration {
    // The first one finds memory that was never touched.
    model.compute_a_row();
    let began = Instant::now();
    let timed = |_| {
        let row = Instant::now();
        model.compute_a_row();
        row.elapsed()
    };
    let rows = (0..MOST_ROWS).take_while(|number| *number == 0 || began.elapsed() < LONGEST);
    rows.map(timed).min().unwrap_or_default()
}
