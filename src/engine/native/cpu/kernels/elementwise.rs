//! What is done number by number: norms, rotations, gates.

use std::ops::Range;

use super::{
    KernelSet, LANES, Operand, Pool, Processor, States, exp::silu, instructions::Vectorized, packed::NumberParts,
    parts::Parts,
};
use crate::engine::native::backend::Angles;

/// Fewer rows than this are not worth a second thread.
const ROWS_TO_SHARE: usize = 8;

/// Calls `work` for every row, on several threads where that pays.
fn for_each_row(pool: &mut Pool, rows: usize, work: &(dyn Fn(usize) + Sync)) {
    if rows < ROWS_TO_SHARE { (0..rows).for_each(work) } else { pool.for_each(rows, work) }
}

/// Sums in 16 lanes, then over the lanes: one order, whatever the vectors.
#[inline(always)]
fn sum_of_squares(values: &[f32]) -> f32 {
    let (groups, rest) = values.as_chunks::<LANES>();
    let mut lanes = [0.0_f32; LANES];
    for group in groups {
        for (lane, value) in lanes.iter_mut().zip(group) {
            *lane += value * value;
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        *lane += value * value;
    }
    lanes.iter().sum()
}

/// `row / sqrt(mean(row^2) + epsilon) * weight`.
struct RmsNorm<'a> {
    row: &'a mut [f32],
    weight: &'a [f32],
    epsilon: f32,
}

impl Vectorized for RmsNorm<'_> {
    type Output = ();

    #[inline(always)]
    #[expect(clippy::cast_precision_loss, reason = "rows are short")]
    fn run(self) {
        let mean = sum_of_squares(self.row) / self.row.len() as f32;
        let scale = 1.0 / (mean + self.epsilon).sqrt();
        for (value, weight) in self.row.iter_mut().zip(self.weight) {
            *value = *value * scale * weight;
        }
    }
}

/// Writes the norm of every row of `states` to `out`.
pub(crate) fn rms_norm(
    Processor { set, pool }: &mut Processor,
    states: &States,
    weight: &[f32],
    epsilon: f32,
    out: &mut Operand,
) {
    assert_eq!(states.columns, weight.len(), "a weight for each number");
    out.reshape(states.rows, states.columns);
    let (set, stride) = (*set, out.stride);
    let to = NumberParts::new(&mut out.numbers);
    for_each_row(pool, states.rows, &|index| {
        let mut row = states.row(index).to_vec();
        set.vectorize(RmsNorm { row: &mut row, weight, epsilon });
        // SAFETY: a row is worked on once.
        unsafe { to.write(set, index * stride, &row) };
    });
}

/// Norms some heads of every row, in place.
pub(crate) fn head_norm(
    Processor { set, pool }: &mut Processor,
    states: &mut States,
    heads: Range<usize>,
    weight: &[f32],
    epsilon: f32,
) {
    let (head_dim, stride) = (weight.len(), states.stride);
    assert!(heads.end * head_dim <= states.columns, "the heads are in the row");
    let parts = Parts::new(&mut states.numbers);
    for_each_row(pool, states.rows, &|index| {
        // SAFETY: a row is worked on once.
        let row = unsafe { parts.part(index * stride + heads.start * head_dim, heads.len() * head_dim) };
        for head in row.chunks_exact_mut(head_dim) {
            set.vectorize(RmsNorm { row: head, weight, epsilon });
        }
    });
}

/// Rotates the first half of a head against its second half.
struct Rotate<'a> {
    heads: &'a mut [f32],
    cosines: &'a [f32],
    sines: &'a [f32],
}

impl Vectorized for Rotate<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let half = self.cosines.len();
        for head in self.heads.chunks_exact_mut(2 * half) {
            let (first, second) = head.split_at_mut(half);
            for (((x, y), cosine), sine) in first.iter_mut().zip(second).zip(self.cosines).zip(self.sines) {
                (*x, *y) = (*x * cosine - *y * sine, *y * cosine + *x * sine);
            }
        }
    }
}

/// Rotates the first `heads` heads of every row by its angles: row `i` has the `head_dim / 2` cosines and sines from
/// `i * head_dim / 2` on.
pub(crate) fn rotate(
    Processor { set, pool }: &mut Processor,
    states: &mut States,
    heads: usize,
    head_dim: usize,
    Angles { cosines, sines }: &Angles,
) {
    let (half, stride) = (head_dim / 2, states.stride);
    assert!(heads * head_dim <= states.columns, "the heads are in the row");
    assert_eq!((cosines.len(), sines.len()), (states.rows * half, states.rows * half), "an angle for each pair");
    let parts = Parts::new(&mut states.numbers);
    for_each_row(pool, states.rows, &|index| {
        // SAFETY: a row is worked on once.
        let heads = unsafe { parts.part(index * stride, heads * head_dim) };
        let range = index * half..(index + 1) * half;
        set.vectorize(Rotate { heads, cosines: &cosines[range.clone()], sines: &sines[range] });
    });
}

/// `silu(gate) * up`, into `gate`.
struct GatedSilu<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    out: &'a mut [f32],
}

impl Vectorized for GatedSilu<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for ((out, gate), up) in self.out.iter_mut().zip(self.gate).zip(self.up) {
            *out = silu(*gate) * up;
        }
    }
}

/// Writes `silu(gate) * up` of every row to `out`; a row holds `width` gates, then as many ups.
pub(crate) fn gated_silu(Processor { set, pool }: &mut Processor, states: &States, width: usize, out: &mut Operand) {
    out.reshape(states.rows, width);
    let (set, stride) = (*set, out.stride);
    let to = NumberParts::new(&mut out.numbers);
    for_each_row(pool, states.rows, &|index| {
        let (gate, up) = states.row(index)[..2 * width].split_at(width);
        let mut row = vec![0.0; width];
        set.vectorize(GatedSilu { gate, up, out: &mut row });
        // SAFETY: a row is worked on once.
        unsafe { to.write(set, index * stride, &row) };
    });
}

/// `to += weight * from`.
struct AddScaled<'a> {
    to: &'a mut [f32],
    from: &'a [f32],
    weight: f32,
}

impl Vectorized for AddScaled<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (to, from) in self.to.iter_mut().zip(self.from) {
            *to += self.weight * from;
        }
    }
}

/// Adds row `i` of `from`, times its weight, to row `picks[i].0` of `to`.
pub(crate) fn add_scaled(set: KernelSet, from: &States, picks: &[(usize, f32)], to: &mut States) {
    assert_eq!((from.rows, from.columns), (picks.len(), to.columns), "a place for each row");
    for (row, (pick, weight)) in picks.iter().enumerate() {
        set.vectorize(AddScaled { to: to.row_mut(*pick), from: from.row(row), weight: *weight });
    }
}
