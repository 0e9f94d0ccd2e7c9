//! Rows that a thread needs for a moment, again and again: taken from the system once.

use std::cell::RefCell;

thread_local! {
    static ROW: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Calls `work` with a row of `len` numbers, which hold whatever was left in them.
///
/// # Panics
/// If `work` asks for a row too.
pub(super) fn with_row<T>(len: usize, work: impl FnOnce(&mut [f32]) -> T) -> T {
    ROW.with_borrow_mut(|row| {
        if row.len() < len {
            row.resize(len, 0.0);
        }
        work(&mut row[..len])
    })
}
