//! What becomes of rows of logits that a device computed.

use crate::sampling::{DeviceDraw, Drawn, Summary};

/// What a row is taken by after some blocks of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum AfterBlocks {
    /// Nothing is missing.
    Nothing,
    /// The number of logits that are at least this one.
    AtLeast(f32),
    /// All logits after all.
    Whole,
}

/// What becomes of rows of logits, each by its number. Called on any thread, in any order.
///
/// A row is drawn from where it is, taken as a whole, or in parts: a summary, then some blocks of it, then, where these do not
/// tell, the number of logits that are at least as great as one of them.
pub(crate) trait Consumer: Sync {
    /// Takes all logits of a row. They may be overwritten.
    fn take_row(&self, row: usize, logits: &mut [f32]);
    /// How a device draws the token of a row, if it can.
    fn draw(&self, _row: usize) -> Option<DeviceDraw> {
        None
    }
    /// Takes what a device drew of a row; `false` to take the row as a whole after all.
    fn take_drawn(&self, _row: usize, _drawn: Drawn) -> bool {
        unreachable!("only for a row that a device draws")
    }
    /// The temperature of the summary of a row that may be taken in parts.
    fn temperature(&self, _row: usize) -> Option<f64> {
        None
    }
    /// Looks at the summary of a row, and answers with the blocks to read, or with `None` to take the row as a whole
    /// after all.
    fn summary(&self, _row: usize, _summary: Summary<'_>) -> Option<Vec<u32>> {
        None
    }
    /// Takes the logits of these blocks, and answers with what else of the row it takes.
    fn blocks(&self, _row: usize, _logits: &[f32]) -> AfterBlocks {
        unreachable!("only for a row that is taken in parts")
    }
    /// Takes the number of logits that are at least that logit.
    fn at_least(&self, _row: usize, _count: u32) {
        unreachable!("only for a row that is taken in parts")
    }
}

/// A function takes whole rows.
impl<F: Fn(usize, &mut [f32]) + Sync> Consumer for F {
    fn take_row(&self, row: usize, logits: &mut [f32]) {
        self(row, logits);
    }
}

/// Tokens that a device draws of some rows of logits of a step, one of each. None edits its row, and none is given.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowDraws<'a> {
    pub(crate) draws: &'a [DeviceDraw],
    /// The number of the first row.
    pub(crate) first: usize,
    /// How many rows of logits the step has.
    pub(crate) rows: usize,
}
