//! What becomes of the output of a recurrence, and gates of whole rows.

use std::ops::Range;

use super::super::{
    Operand, Processor, States,
    elementwise::{for_each_row, sum_of_squares},
    exp::{sigmoid, silu},
    instructions::Vectorized,
    packed::NumberParts,
    parts::Parts,
};
use crate::engine::native::recurrence::GatedNormShape;

/// A row, its gates, and the weights of its numbers, which begin again where they end.
struct Gated<'a> {
    row: &'a mut [f32],
    gates: &'a [f32],
    weight: Option<&'a [f32]>,
    shape: GatedNormShape,
}

impl Gated<'_> {
    #[inline(always)]
    fn gate(&mut self) {
        for (number, gate) in self.row.iter_mut().zip(self.gates) {
            *number *= if self.shape.silu { silu(*gate) } else { sigmoid(*gate) };
        }
    }
}

impl Vectorized for Gated<'_> {
    type Output = ();

    #[inline(always)]
    #[expect(clippy::cast_precision_loss, reason = "rows are short")]
    fn run(mut self) {
        let GatedNormShape { group, epsilon, gate_first, .. } = self.shape;
        if gate_first {
            self.gate();
        }
        if let Some(weight) = self.weight {
            for (index, numbers) in self.row.chunks_exact_mut(group).enumerate() {
                let scale = 1.0 / (sum_of_squares(numbers) / group as f32 + epsilon).sqrt();
                let first = index * group % weight.len();
                for (number, weight) in numbers.iter_mut().zip(&weight[first..first + group]) {
                    *number = *number * scale * weight;
                }
            }
        }
        if !gate_first {
            self.gate();
        }
    }
}

/// Normalises groups of every row, times its gates. Without weights there is no norm, only gates.
#[expect(clippy::too_many_arguments, reason = "an operation names all that it reads and writes")]
pub(crate) fn gated_norm(
    Processor { set, pool }: &mut Processor,
    states: &States,
    gates: &States,
    weight: Option<&[f32]>,
    shape: GatedNormShape,
    out: &mut Operand,
) {
    let columns = states.columns;
    assert!(shape.gates + columns <= gates.columns && states.rows == gates.rows, "a gate for each number");
    assert!(columns.is_multiple_of(shape.group), "whole groups");
    assert!(
        weight.is_none_or(|weight| weight.len().is_multiple_of(shape.group) && columns.is_multiple_of(weight.len()))
    );
    out.reshape(states.rows, columns);
    let (set, stride) = (*set, out.stride);
    let to = NumberParts::new(&mut out.numbers);
    for_each_row(pool, states.rows, &|index| {
        let mut row = states.row(index).to_vec();
        let gates = &gates.row(index)[shape.gates..][..columns];
        set.vectorize(Gated { row: &mut row, gates, weight, shape });
        // SAFETY: a row is worked on once.
        unsafe { to.write(set, index * stride, &row) };
    });
}

/// Multiplies every number by the sigmoid of its gate.
pub(crate) fn open(Processor { set, pool }: &mut Processor, gates: &States, out: &mut Operand) {
    let (rows, columns) = (out.rows(), gates.columns);
    assert_eq!(rows, gates.rows, "gates for each row");
    let mut numbers: Vec<Vec<f32>> = (0..rows).map(|row| out.read_row(row)).collect();
    let shape = GatedNormShape { group: 1, epsilon: 0.0, gate_first: true, silu: false, gates: 0 };
    let (set, stride) = (*set, out.stride);
    let to = NumberParts::new(&mut out.numbers);
    pool.for_each_mut(&mut numbers, &|index, row| {
        assert_eq!(row.len(), columns, "a gate for each number");
        set.vectorize(Gated { row, gates: gates.row(index), weight: None, shape });
        // SAFETY: a row is worked on once.
        unsafe { to.write(set, index * stride, row) };
    });
}

/// Multiplies columns of every row, from `first` on, by others.
pub(crate) fn multiply_columns(
    Processor { pool, .. }: &mut Processor,
    states: &mut States,
    by: Range<usize>,
    first: usize,
) {
    let width = by.len();
    assert!(by.end <= first || first + width <= by.start, "columns are not multiplied by themselves");
    assert!(by.end.max(first + width) <= states.columns, "the columns are in the row");
    let (stride, rows, columns) = (states.stride, states.rows, states.columns);
    let parts = Parts::new(&mut states.numbers);
    for_each_row(pool, rows, &|index| {
        // SAFETY: a row is worked on once.
        let row = unsafe { parts.part(index * stride, columns) };
        for column in 0..width {
            row[first + column] *= row[by.start + column];
        }
    });
}
