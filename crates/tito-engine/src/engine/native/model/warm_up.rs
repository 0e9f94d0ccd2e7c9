//! A few tokens that nobody asked for, so that the first request does not wait for what a device does once.
//!
//! A GPU's driver translates kernels when they are first launched, and libraries load theirs by the shape of a product. On
//! an H200 the first request took over five seconds longer for it.

use super::memory::Model;
use crate::{
    engine::native::{
        backend::{AfterBlocks, BLOCK_TOKENS, Backend, Batch, Consumer, Span},
        recurrence::SlotId,
    },
    sampling::{DeviceDraw, DevicePick, Drawn, RowEdits, Summary},
};

/// Rows of the steps that are computed: one sequence that goes on, a few, and pieces of prompts.
const STEPS: [usize; 3] = [1, 8, 2 * BLOCK_TOKENS];
/// In how many ways rows are read.
const WAYS: usize = 4;

/// Reads the first row as a whole, has the next two drawn from, one of them edited, and reads the fourth in parts, and so on: the
/// ways in which rows go to samplers.
struct Reader;

impl Consumer for Reader {
    fn take_row(&self, _row: usize, _logits: &mut [f32]) {}

    fn draw(&self, row: usize) -> Option<DeviceDraw> {
        let draw = DeviceDraw::unedited(DevicePick::Share { temperature: 0.7, uniform: 0.5 });
        match row % WAYS {
            1 => Some(draw),
            2 => Some(DeviceDraw { edits: RowEdits { forbidden: vec![0], ..RowEdits::default() }, ..draw }),
            _ => None,
        }
    }

    fn take_drawn(&self, _row: usize, _drawn: Drawn) -> bool {
        true
    }

    fn temperature(&self, row: usize) -> Option<f64> {
        (row % WAYS == 3).then_some(1.0)
    }

    fn summary(&self, _row: usize, _summary: Summary<'_>) -> Option<Vec<u32>> {
        Some(vec![0])
    }

    fn blocks(&self, _row: usize, logits: &[f32]) -> AfterBlocks {
        AfterBlocks::AtLeast(logits[0])
    }

    fn at_least(&self, _row: usize, _count: u32) {}
}

impl<B: Backend> Model<B> {
    /// Computes one row, as [`warm_up`](Self::warm_up) does. There is at least one block.
    pub(crate) fn compute_a_row(&mut self) {
        self.forward(&next_tokens(1), &Reader);
    }

    /// Computes steps of several shapes in the first blocks of the cache, and in the first slots of recurrent states. What
    /// they leave there is written over: no sequence has a block yet, and a state counts as zero at the first position.
    pub(crate) fn warm_up(&mut self) {
        let blocks = self.room().blocks.min(2);
        for rows in STEPS {
            let rows = rows.min(blocks * BLOCK_TOKENS);
            if rows == 0 {
                return;
            }
            self.forward(&prompt(rows, blocks), &Reader);
            // Sequences of a model with recurrent states each have a slot of their own.
            let sequences = if self.room().slots == 0 { rows } else { rows.min(self.room().slots) };
            self.forward(&next_tokens(sequences), &Reader);
        }
    }
}

fn span((first_row, tokens): (usize, usize), blocks: usize, slot: SlotId) -> Span {
    let blocks = (0..).take(blocks).collect();
    Span { first_row, tokens, first_position: 0, blocks, slot, adapter: None, snapshots: Vec::new() }
}

/// One sequence of so many tokens.
fn prompt(tokens: usize, blocks: usize) -> Batch {
    let logit_rows = if tokens == 1 { vec![0] } else { vec![0, tokens - 1] };
    Batch { token_ids: vec![0; tokens], spans: vec![span((0, tokens), blocks, 0)], logit_rows, images: Vec::new() }
}

/// So many sequences of one token. That all of them write the same place of a block is of no matter.
fn next_tokens(sequences: usize) -> Batch {
    let spans = (0..).zip(0..sequences).map(|(slot, row)| span((row, 1), 1, slot)).collect();
    Batch { token_ids: vec![0; sequences], spans, logit_rows: (0..sequences).collect(), images: Vec::new() }
}
