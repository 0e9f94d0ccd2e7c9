//! What is done row by row: norms, rotations, sums.

use std::ops::Range;

use super::{
    KernelSet, LANES, Operand, Pool, Processor, States, instructions::Vectorized, packed::NumberParts, parts::Parts,
    scratch::with_row,
};
use crate::engine::native::backend::{Angles, HeadRange, NormShape, Rotation};

/// Fewer rows than this are not worth a second thread.
const ROWS_TO_SHARE: usize = 8;

/// Calls `work` for every row, on several threads where that pays.
pub(super) fn for_each_row(pool: &mut Pool, rows: usize, work: &(dyn Fn(usize) + Sync)) {
    if rows < ROWS_TO_SHARE { (0..rows).for_each(work) } else { pool.for_each(rows, work) }
}

/// Sums what is made of values in 16 lanes, then over the lanes: one order, whatever the vectors.
#[inline(always)]
fn sum_of(values: &[f32], of: impl Fn(f32) -> f32) -> f32 {
    let (groups, rest) = values.as_chunks::<LANES>();
    let mut lanes = [0.0_f32; LANES];
    for group in groups {
        for (lane, value) in lanes.iter_mut().zip(group) {
            *lane += of(*value);
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        *lane += of(*value);
    }
    lanes.iter().sum()
}

/// The sum of the squares.
#[inline(always)]
pub(super) fn sum_of_squares(values: &[f32]) -> f32 {
    sum_of(values, |value| value * value)
}

/// The sum of the values themselves.
#[inline(always)]
pub(super) fn sum(values: &[f32]) -> f32 {
    sum_of(values, |value| value)
}

/// `row / sqrt(mean(row^2) + epsilon) * (offset + weight)`, of a row less its mean where it is to be centred.
struct Norm<'a> {
    row: &'a mut [f32],
    weight: &'a [f32],
    shape: NormShape,
}

impl Vectorized for Norm<'_> {
    type Output = ();

    #[inline(always)]
    #[expect(clippy::cast_precision_loss, reason = "rows are short")]
    fn run(self) {
        let NormShape { epsilon, offset, centred } = self.shape;
        let count = self.row.len() as f32;
        if centred {
            let mean = sum(self.row) / count;
            for value in &mut *self.row {
                *value -= mean;
            }
        }
        let mean = sum_of_squares(self.row) / count;
        let scale = 1.0 / (mean + epsilon).sqrt();
        for (value, weight) in self.row.iter_mut().zip(self.weight) {
            *value = *value * scale * (offset + weight);
        }
    }
}

/// Writes the norm of every row of `states` to `out`.
pub(crate) fn norm(
    Processor { set, pool }: &mut Processor,
    states: &States,
    weight: &[f32],
    norm: NormShape,
    out: &mut Operand,
) {
    assert_eq!(states.columns, weight.len(), "a weight for each number");
    out.reshape(states.rows, states.columns);
    let (set, stride) = (*set, out.stride);
    let to = NumberParts::new(&mut out.numbers);
    for_each_row(pool, states.rows, &|index| {
        with_row(states.columns, |row| {
            row.copy_from_slice(states.row(index));
            set.vectorize(Norm { row, weight, shape: norm });
            // SAFETY: a row is worked on once.
            unsafe { to.write(set, index * stride, row) };
        });
    });
}

/// Norms some heads of every row, in place.
pub(crate) fn head_norm(
    Processor { set, pool }: &mut Processor,
    states: &mut States,
    HeadRange { first, count, width }: HeadRange,
    weight: &[f32],
    norm: NormShape,
) {
    let stride = states.stride;
    assert!((first + count) * width <= states.columns, "the heads are in the row");
    assert!(weight.len() == width || weight.len() == count * width, "weights of one head, or of all of them");
    let parts = Parts::new(&mut states.numbers);
    for_each_row(pool, states.rows, &|index| {
        // SAFETY: a row is worked on once.
        let row = unsafe { parts.part(index * stride + first * width, count * width) };
        for (head, weight) in row.chunks_exact_mut(width).zip(weight.chunks_exact(width).cycle()) {
            set.vectorize(Norm { row: head, weight, shape: norm });
        }
    });
}

/// Rotates the pairs of each head, which begins with them.
struct Rotate<'a> {
    heads: &'a mut [f32],
    head_dim: usize,
    neighbours: bool,
    cosines: &'a [f32],
    sines: &'a [f32],
}

#[inline(always)]
fn rotated(x: f32, y: f32, cosine: f32, sine: f32) -> (f32, f32) {
    (x * cosine - y * sine, y * cosine + x * sine)
}

impl Vectorized for Rotate<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { heads, head_dim, neighbours, cosines, sines } = self;
        let half = cosines.len();
        for head in heads.chunks_exact_mut(head_dim) {
            if neighbours {
                let (pairs, _) = head[..2 * half].as_chunks_mut::<2>();
                for (([x, y], cosine), sine) in pairs.iter_mut().zip(cosines).zip(sines) {
                    (*x, *y) = rotated(*x, *y, *cosine, *sine);
                }
            } else {
                let (first, second) = head[..2 * half].split_at_mut(half);
                for (((x, y), cosine), sine) in first.iter_mut().zip(second).zip(cosines).zip(sines) {
                    (*x, *y) = rotated(*x, *y, *cosine, *sine);
                }
            }
        }
    }
}

/// Rotates heads of every row by its angles: each row has as many cosines and sines as a head has pairs.
pub(crate) fn rotate(
    Processor { set, pool }: &mut Processor,
    states: &mut States,
    Rotation { first, heads, head_dim, neighbours, .. }: Rotation,
    Angles { cosines, sines }: &Angles,
) {
    let stride = states.stride;
    let pairs = cosines.len() / states.rows.max(1);
    assert!((first + heads) * head_dim <= states.columns, "the heads are in the row");
    assert!(2 * pairs <= head_dim, "the pairs are in the head");
    assert_eq!((cosines.len(), sines.len()), (states.rows * pairs, states.rows * pairs), "an angle for each pair");
    let parts = Parts::new(&mut states.numbers);
    for_each_row(pool, states.rows, &|index| {
        // SAFETY: a row is worked on once.
        let heads = unsafe { parts.part(index * stride + first * head_dim, heads * head_dim) };
        let range = index * pairs..(index + 1) * pairs;
        let (cosines, sines) = (&cosines[range.clone()], &sines[range]);
        set.vectorize(Rotate { heads, head_dim, neighbours, cosines, sines });
    });
}

/// Writes some columns of every row to `out` as they are.
pub(crate) fn round(
    Processor { set, pool }: &mut Processor,
    states: &States,
    columns: Range<usize>,
    out: &mut Operand,
) {
    out.reshape(states.rows, columns.len());
    let (set, stride) = (*set, out.stride);
    let to = NumberParts::new(&mut out.numbers);
    for_each_row(pool, states.rows, &|index| {
        // SAFETY: a row is worked on once.
        unsafe { to.write(set, index * stride, &states.row(index)[columns.clone()]) };
    });
}

/// Multiplies some columns of every row by a factor.
pub(crate) fn scale(Processor { pool, .. }: &mut Processor, states: &mut States, columns: Range<usize>, factor: f32) {
    assert!(columns.end <= states.columns, "the columns are in the row");
    if factor.to_bits() == 1.0_f32.to_bits() {
        return;
    }
    let stride = states.stride;
    let parts = Parts::new(&mut states.numbers);
    for_each_row(pool, states.rows, &|index| {
        // SAFETY: a row is worked on once.
        for number in unsafe { parts.part(index * stride + columns.start, columns.len()) } {
            *number *= factor;
        }
    });
}

/// Adds every row of `from`, times `factor`, to that of `to`.
pub(crate) fn add(Processor { set, pool }: &mut Processor, from: &States, factor: f32, to: &mut States) {
    assert_eq!((from.rows, from.columns), (to.rows, to.columns), "a row for each");
    let (stride, columns, rows) = (to.stride, to.columns, to.rows);
    let parts = Parts::new(&mut to.numbers);
    for_each_row(pool, rows, &|index| {
        // SAFETY: a row is worked on once.
        let to = unsafe { parts.part(index * stride, columns) };
        set.vectorize(AddScaled { to, from: from.row(index), weight: factor });
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
