//! The two thin matrices that an adapter has for one weight matrix.

use std::ops::Range;

use super::super::destinations::Destination;
use crate::{
    engine::native::{
        backend::Backend,
        weights::{Rows, Table, WeightsError},
    },
    weights::peft::PeftModule,
};

/// What an adapter adds to one weight matrix.
pub(in crate::engine::native::model) struct Addition<'a> {
    pub(in crate::engine::native::model) whole: Destination,
    pub(in crate::engine::native::model) outputs: usize,
    pub(in crate::engine::native::model) inputs: usize,
    /// The modules that the matrix stands for.
    pub(in crate::engine::native::model) modules: Vec<AddedModule<'a>>,
}

/// A module of an adapter in a weight matrix.
pub(in crate::engine::native::model) struct AddedModule<'a> {
    pub(in crate::engine::native::model) module: &'a PeftModule,
    /// Rows of the module, and the row of the matrix from which on they are.
    pub(in crate::engine::native::model) rows: Vec<(Range<usize>, usize)>,
}

impl Addition<'_> {
    /// The rank of all modules together.
    pub(super) fn rank(&self) -> usize {
        self.modules.iter().map(|added| added.module.rank()).sum()
    }
}

/// `factor * b * a`, in the precision of weight matrices.
///
/// Where a weight matrix stands for several modules, such as queries, keys and values, their matrices A are one above
/// the other, and each of their matrices B has the rows of its module, and the columns of its own A.
pub(super) struct Thin<B: Backend> {
    a: B::Matrix,
    b: B::Matrix,
    rank: usize,
    /// The factor of all modules, or 1 where they have several.
    pub(super) factor: f32,
    /// Columns between the two matrices, with their factor, where modules have several.
    factors: Vec<(Range<usize>, f32)>,
}

impl<B: Backend> Thin<B> {
    pub(super) fn make(backend: &mut B, addition: &Addition<'_>) -> Result<Self, WeightsError> {
        let rank = addition.rank();
        let mut a = Table { columns: addition.inputs, numbers: Vec::new() };
        let mut b = Table { columns: rank, numbers: vec![0.0; addition.outputs * rank] };
        let mut factors = Vec::new();
        for AddedModule { module, rows } in &addition.modules {
            let first = a.rows();
            module.a.dtype.widen(&module.a.bytes, &mut a.numbers);
            let columns = first..first + module.rank();
            let mut numbers = Vec::new();
            module.b.dtype.widen(&module.b.bytes, &mut numbers);
            for (from, to) in rows {
                for (row, from) in (*to..).zip(from.clone()) {
                    let target = &mut b.numbers[row * rank..][columns.clone()];
                    target.copy_from_slice(&numbers[from * columns.len()..][..columns.len()]);
                }
            }
            factors.push((columns, module.scale));
        }
        let same = factors.iter().all(|(_, factor)| factor.to_bits() == factors[0].1.to_bits());
        let (factor, factors) = if same { (factors[0].1, Vec::new()) } else { (1.0, factors) };
        Ok(Self { a: written(backend, &a)?, b: written(backend, &b)?, rank, factor, factors })
    }

    /// `b * a * row` for every row.
    pub(super) fn multiply(
        &self,
        backend: &mut B,
        input: &B::Operand,
        (narrow, rounded): (&mut B::States, &mut B::Operand),
        out: &mut B::States,
    ) {
        backend.linear(input, &self.a, None, narrow);
        for (columns, factor) in &self.factors {
            backend.scale(narrow, columns.clone(), *factor);
        }
        backend.round(narrow, 0..self.rank, rounded);
        backend.linear(rounded, &self.b, None, out);
    }
}

fn written<B: Backend>(backend: &mut B, table: &Table) -> Result<B::Matrix, WeightsError> {
    let mut matrix = backend.matrix(table.rows(), table.columns)?;
    backend.write_rows(&mut matrix, 0, table)?;
    Ok(matrix)
}
