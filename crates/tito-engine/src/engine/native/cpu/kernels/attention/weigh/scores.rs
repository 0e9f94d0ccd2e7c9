//! The scores of one row, and what becomes of them with any instructions.

use super::super::super::{LANES, exp::exp_nonpositive, gates::capped, instructions::Vectorized};

/// What a query remembers of the keys that it has seen.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Running {
    pub(in super::super) max: f32,
    pub(in super::super) total: f32,
}

impl Running {
    /// Before the first key: nothing, or the sink, whose weight relative to itself is 1.
    pub(in super::super) fn new(sink: Option<f32>) -> Self {
        sink.map_or(Self { max: f32::NEG_INFINITY, total: 0.0 }, |max| Self { max, total: 1.0 })
    }

    /// Takes the weights of a stride, which sum up to `total` relative to the greatest score so far, and takes back what
    /// earlier ones weigh too much relative to that, also in the `sums` of values.
    #[inline(always)]
    pub(super) fn take(&mut self, max: f32, total: f32, sums: &mut [f32]) {
        if max > self.max {
            // This is 0 for the first keys, as nothing was summed yet.
            let correction = exp_nonpositive(self.max - max);
            self.total *= correction;
            self.max = max;
            for sum in sums {
                *sum *= correction;
            }
        }
        self.total += total;
    }
}

/// The scores of one row for a stride of keys, which become weights relative to the greatest score so far.
pub(in super::super) struct Scores<'a> {
    /// A whole number of blocks of keys. What becomes of them is not said.
    pub(in super::super) numbers: &'a mut [f32],
    /// The keys that the row attends to, as indices of `numbers`.
    pub(in super::super) seen: (usize, usize),
    pub(in super::super) scale: f32,
    pub(in super::super) cap: Option<f32>,
    /// What the values of earlier strides sum up to; takes back what they weigh too much.
    pub(in super::super) sums: &'a mut [f32],
    pub(in super::super) running: &'a mut Running,
}

impl Scores<'_> {
    /// Caps the scores if they are to be, and says by what the others are still to be multiplied.
    #[inline(always)]
    pub(super) fn shape(&mut self) -> f32 {
        let Some(cap) = self.cap else { return self.scale };
        for score in &mut *self.numbers {
            *score = capped(*score * self.scale, cap);
        }
        1.0
    }
}

impl<'a> Vectorized for Scores<'a> {
    type Output = &'a mut [f32];

    #[inline(always)]
    fn run(mut self) -> &'a mut [f32] {
        let (first, end) = self.seen;
        if first >= end {
            self.numbers.fill(0.0);
            return self.numbers;
        }
        let scale = self.shape();
        let Self { numbers: scores, sums, running, .. } = self;
        scores[..first].fill(f32::NEG_INFINITY);
        scores[end..].fill(f32::NEG_INFINITY);
        let mut lanes = [f32::NEG_INFINITY; LANES];
        let (groups, _) = scores.as_chunks_mut::<LANES>();
        for group in &mut *groups {
            for (lane, score) in lanes.iter_mut().zip(group) {
                *score *= scale;
                *lane = if *score > *lane { *score } else { *lane };
            }
        }
        let max = lanes.iter().fold(running.max, |max, lane| if *lane > max { *lane } else { max });
        let mut totals = [0.0_f32; LANES];
        for group in groups {
            for (total, score) in totals.iter_mut().zip(group) {
                *score = exp_nonpositive(*score - max);
                *total += *score;
            }
        }
        running.take(max, totals.iter().sum(), sums);
        scores
    }
}
