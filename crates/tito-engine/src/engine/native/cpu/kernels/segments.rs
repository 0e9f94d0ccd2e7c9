//! Attention in both directions within segments of rows: what the tower of images computes.
//!
//! Scores are products of queries and keys, and results are products of weights and values, both in the precision of the
//! operand that is written. Weights are made in f32, and sum to 1 before they are rounded.

use std::ops::Range;

use super::{
    KernelSet, LANES, Operand, Packed, Processor, States,
    elementwise::{for_each_row, sum},
    exp::exp_nonpositive,
    gemm::multiply,
    instructions::Vectorized,
    packed::NumberParts,
    precision::Precision,
    scratch::with_row,
};
use crate::engine::native::{
    backend::SegmentHeads,
    weights::{Rows, WeightsError},
};

/// Queries whose scores are in memory at a time.
const QUERIES: usize = 64;

/// Keys of a head as the rows of a matrix.
struct Keys<'a> {
    states: &'a States,
    rows: Range<usize>,
    columns: Range<usize>,
}

/// Values of a head as its columns.
struct Values<'a>(Keys<'a>);

impl Rows for Keys<'_> {
    fn rows(&self) -> usize {
        self.rows.len()
    }

    fn columns(&self) -> usize {
        self.columns.len()
    }

    fn read(&self, rows: Range<usize>, out: &mut Vec<f32>) -> Result<(), WeightsError> {
        for row in rows {
            out.extend_from_slice(&self.states.row(self.rows.start + row)[self.columns.clone()]);
        }
        Ok(())
    }
}

impl Rows for Values<'_> {
    fn rows(&self) -> usize {
        self.0.columns.len()
    }

    fn columns(&self) -> usize {
        self.0.rows.len()
    }

    fn read(&self, rows: Range<usize>, out: &mut Vec<f32>) -> Result<(), WeightsError> {
        for column in rows {
            out.extend(self.0.rows.clone().map(|row| self.0.states.row(row)[self.0.columns.start + column]));
        }
        Ok(())
    }
}

/// Scores as weights, which sum to 1. What is not a number stays so.
struct Weigh<'a> {
    row: &'a mut [f32],
    scale: f32,
}

impl Vectorized for Weigh<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { row, scale } = self;
        let mut lanes = [f32::NEG_INFINITY; LANES];
        let (groups, rest) = row.as_chunks::<LANES>();
        for group in groups {
            for (lane, score) in lanes.iter_mut().zip(group) {
                *lane = if *score > *lane { *score } else { *lane };
            }
        }
        for (lane, score) in lanes.iter_mut().zip(rest) {
            *lane = if *score > *lane { *score } else { *lane };
        }
        let most = lanes.into_iter().fold(f32::NEG_INFINITY, f32::max);
        for score in &mut *row {
            *score = exp_nonpositive((*score - most) * scale);
        }
        let total = sum(row);
        for weight in row {
            *weight /= total;
        }
    }
}

fn matrix(processor: &mut Processor, precision: Precision, rows: &dyn Rows) -> Packed {
    let mut packed = Packed::zeros(precision, rows.rows(), rows.columns());
    packed.write_rows(&mut processor.pool, 0, rows).expect("rows that are in memory can be read");
    packed
}

/// Has every row attend to all rows of its segment, also to later ones. A row holds the queries of all heads, then their
/// keys, then their values. Rows of no segment give zeros.
///
/// # Panics
/// If rows are of another width, or a segment ends after the last one.
pub(crate) fn attend_within(
    processor: &mut Processor,
    states: &States,
    shape: SegmentHeads,
    segments: &[Range<usize>],
    out: &mut Operand,
) {
    let SegmentHeads { heads, head_dim, scale } = shape;
    let (width, precision) = (heads * head_dim, out.precision());
    assert_eq!(states.columns, 3 * width, "queries, keys and values");
    let mut given = States::default();
    given.reshape(states.rows, width);
    given.numbers.fill(0.0);
    let [mut queries, mut weights] = [(); 2].map(|()| Operand::new(precision));
    let [mut scores, mut part] = [States::default(), States::default()];
    for segment in segments {
        for head in 0..heads {
            let columns = |kind: usize| kind * width + head * head_dim..kind * width + (head + 1) * head_dim;
            let of = |kind| Keys { states, rows: segment.clone(), columns: columns(kind) };
            let keys = matrix(processor, precision, &of(1));
            let values = matrix(processor, precision, &Values(of(2)));
            for first in segment.clone().step_by(QUERIES) {
                let rows = first..segment.end.min(first + QUERIES);
                write(
                    processor,
                    &|row| &states.row(rows.start + row)[columns(0)],
                    (rows.len(), head_dim),
                    &mut queries,
                );
                scores.reshape(rows.len(), segment.len());
                multiply(processor, &queries, &keys, &mut scores, false);
                weigh(processor, &scores, scale, &mut weights);
                part.reshape(rows.len(), head_dim);
                multiply(processor, &weights, &values, &mut part, false);
                for (index, row) in rows.enumerate() {
                    given.row_mut(row)[columns(0)].copy_from_slice(part.row(index));
                }
            }
        }
    }
    write(processor, &|row| given.row(row), (states.rows, width), out);
}

/// Writes rows into an operand.
fn write<'a>(
    Processor { set, pool }: &mut Processor,
    row: &(dyn Fn(usize) -> &'a [f32] + Sync),
    (rows, columns): (usize, usize),
    out: &mut Operand,
) {
    out.reshape(rows, columns);
    let (set, stride) = (*set, out.stride);
    let to = NumberParts::new(&mut out.numbers);
    // SAFETY: a row is worked on once.
    for_each_row(pool, rows, &|index| unsafe { to.write(set, index * stride, row(index)) });
}

/// Writes what scores weigh.
fn weigh(Processor { set, pool }: &mut Processor, scores: &States, scale: f32, out: &mut Operand) {
    out.reshape(scores.rows, scores.columns);
    let (set, stride): (KernelSet, usize) = (*set, out.stride);
    let to = NumberParts::new(&mut out.numbers);
    for_each_row(pool, scores.rows, &|index| {
        with_row(scores.columns, |row| {
            row.copy_from_slice(scores.row(index));
            set.vectorize(Weigh { row, scale });
            // SAFETY: a row is worked on once.
            unsafe { to.write(set, index * stride, row) };
        });
    });
}

#[cfg(test)]
mod tests {
    use super::{super::Pool, *};

    fn states(rows: usize, columns: usize) -> States {
        let mut states = States::default();
        states.reshape(rows, columns);
        for row in 0..rows {
            for (column, number) in states.row_mut(row).iter_mut().enumerate() {
                let hash = (row * 7_919 + column * 104_729 + row * column * 31) % 255;
                *number = (f32::from(u8::try_from(hash).unwrap()) - 127.0) / 64.0;
            }
        }
        states
    }

    /// The definition: softmax of scaled products, and the values by its weights.
    fn expected(states: &States, shape: SegmentHeads, segment: &Range<usize>, row: usize) -> Vec<f64> {
        let SegmentHeads { heads, head_dim, scale } = shape;
        let number = |row: usize, kind: usize, head: usize, index: usize| {
            f64::from(states.row(row)[(kind * heads + head) * head_dim + index])
        };
        let of_head = |head: usize| {
            let score = |key: usize| -> f64 {
                (0..head_dim).map(|index| number(row, 0, head, index) * number(key, 1, head, index)).sum::<f64>()
                    * f64::from(scale)
            };
            let weights: Vec<f64> = segment.clone().map(|key| score(key).exp()).collect();
            let total: f64 = weights.iter().sum();
            let value = move |index: usize| -> f64 {
                segment.clone().zip(&weights).map(|(key, weight)| number(key, 2, head, index) * weight / total).sum()
            };
            (0..head_dim).map(value).collect::<Vec<_>>()
        };
        (0..heads).flat_map(of_head).collect()
    }

    #[test]
    fn rows_attend_to_all_of_their_segment_and_to_nothing_else() {
        for set in KernelSet::tested() {
            for (precision, far) in [(Precision::F32, 2e-5), (Precision::Bf16, 3e-2)] {
                for (heads, head_dim) in [(2, 16), (3, 20), (1, 72)] {
                    let shape = SegmentHeads { heads, head_dim, scale: 0.1 };
                    let states = states(150, 3 * heads * head_dim);
                    let segments = [0..1, 1..37, 37..141];
                    let [mut alone, mut shared] = [(); 2].map(|()| Operand::new(precision));
                    for (threads, out) in [(1, &mut alone), (3, &mut shared)] {
                        let mut processor = Processor { set, pool: Pool::new(threads).unwrap() };
                        attend_within(&mut processor, &states, shape, &segments, out);
                    }
                    for segment in &segments {
                        for row in segment.clone() {
                            let found = alone.read_row(row);
                            let bits = |row: &[f32]| row.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
                            assert_eq!(bits(&found), bits(&shared.read_row(row)), "{set}: row {row}");
                            for (found, expected) in found.iter().zip(expected(&states, shape, segment, row)) {
                                let error = (f64::from(*found) - expected).abs();
                                assert!(error < far, "{set}, {precision:?}, {head_dim}: row {row} is off by {error:e}");
                            }
                        }
                    }
                    assert!((141..150).all(|row| alone.read_row(row).iter().all(|number| *number == 0.0)));
                }
            }
        }
    }

    #[test]
    fn what_is_not_a_number_is_not_hidden() {
        let mut states = states(20, 48);
        states.row_mut(7)[20] = f32::NAN;
        let mut out = Operand::new(Precision::F32);
        let mut processor = Processor { set: KernelSet::PORTABLE, pool: Pool::new(1).unwrap() };
        attend_within(
            &mut processor,
            &states,
            SegmentHeads { heads: 1, head_dim: 16, scale: 1.0 },
            &[0..12, 12..20],
            &mut out,
        );
        assert!((0..20).all(|row| out.read_row(row).iter().all(|number| number.is_nan() == (row < 12))));
    }
}
