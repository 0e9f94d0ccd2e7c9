//! Weights that are read on all threads, some at a time.

use std::ops::Range;

use crate::engine::native::{cpu::Pool, weights::WeightsError};

/// How many numbers one thread reads at a time.
const READ_NUMBERS: usize = 4 << 20;

/// How many rows of so many numbers one thread reads at a time.
pub(super) fn rows_at_once(columns: usize) -> usize {
    (READ_NUMBERS / columns.max(1)).max(1)
}

/// Reads rows on all threads, some at a time, and calls `put` with what was read of some of them, one after the other.
pub(super) fn in_parts<T: Send>(
    pool: &mut Pool,
    [rows, columns]: [usize; 2],
    read: &(dyn Fn(Range<usize>) -> Result<T, WeightsError> + Sync),
    mut put: impl FnMut(Range<usize>, T) -> Result<(), WeightsError>,
) -> Result<(), WeightsError> {
    let part = rows_at_once(columns);
    let parts: Vec<Range<usize>> = (0..rows).step_by(part).map(|start| start..rows.min(start + part)).collect();
    for parts in parts.chunks(pool.threads()) {
        let mut all: Vec<_> = parts.iter().map(|part| (part.clone(), None)).collect();
        pool.for_each_mut(&mut all, &|_, (part, outcome)| *outcome = Some(read(part.clone())));
        for (part, outcome) in all {
            if let Some(outcome) = outcome {
                put(part, outcome?)?;
            }
        }
    }
    Ok(())
}
