//! The two thin matrices that an adapter has for one weight matrix.

use std::{collections::BTreeMap, ops::Range};

use super::super::destinations::Destination;
use crate::{
    TokenId,
    engine::native::{
        backend::Backend,
        weights::{Rows, Table, WeightsError},
    },
    weights::{WeightTensor, peft::PeftModule, transposed},
};

/// What an adapter adds to one weight matrix.
pub(in crate::engine::native::model) struct Addition<'a> {
    pub(in crate::engine::native::model) whole: Destination,
    pub(in crate::engine::native::model) form: Form,
    pub(in crate::engine::native::model) outputs: usize,
    pub(in crate::engine::native::model) inputs: usize,
    /// The modules that the matrix stands for.
    pub(in crate::engine::native::model) modules: Vec<AddedModule<'a>>,
}

/// How the model holds a matrix that an adapter changes by `factor * b * a`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::engine::native::model) enum Form {
    /// Outputs by inputs, as linear modules have it.
    Linear,
    /// Inputs by outputs; there is one module.
    Transposed,
    /// A row for each token, as embeddings have it; there is one module.
    Table,
}

/// Rows of a module, and the row of the matrix from which on they are.
pub(in crate::engine::native::model) type Places = Vec<(Range<usize>, usize)>;

/// A module of an adapter in a weight matrix.
pub(in crate::engine::native::model) struct AddedModule<'a> {
    pub(in crate::engine::native::model) module: &'a PeftModule,
    pub(in crate::engine::native::model) rows: Places,
}

impl Addition<'_> {
    /// The rank of all modules together.
    fn rank(&self) -> usize {
        self.modules.iter().map(|added| added.module.rank()).sum()
    }
}

/// Two thin matrices, by their numbers, which are applied one after the other.
///
/// Where a weight matrix stands for several modules, such as queries, keys and values, their matrices A are one above
/// the other, and each of their matrices B has the rows of its module, and the columns of its own A.
pub(super) struct Thin {
    first: usize,
    second: usize,
    rank: usize,
    /// The factor of all modules, or 1 where they have several.
    pub(super) factor: f32,
    /// Columns between the two matrices, with their factor, where modules have several.
    factors: Vec<(Range<usize>, f32)>,
}

/// The thin matrices of one adapter.
pub(super) struct ThinMatrices<B: Backend>(Vec<B::Matrix>);

/// Puts the thin matrices of an adapter on the device.
pub(super) struct Putting<'a, B: Backend> {
    backend: &'a mut B,
    matrices: Vec<B::Matrix>,
    /// Matrices A that several weight matrices need: each head of compressed keys and values is one.
    known: BTreeMap<(&'a str, Form), usize>,
    /// The matrix B that was read last: heads that share one come one after the other.
    latest: Option<(&'a str, Table)>,
}

impl<'a, B: Backend> Putting<'a, B> {
    pub(super) fn new(backend: &'a mut B) -> Self {
        Self { backend, matrices: Vec::new(), known: BTreeMap::new(), latest: None }
    }

    /// All that were put.
    pub(super) fn done(self) -> ThinMatrices<B> {
        ThinMatrices(self.matrices)
    }

    pub(super) fn put(&mut self, addition: &Addition<'a>) -> Result<Thin, WeightsError> {
        if let (Form::Linear, [_, _, ..]) = (addition.form, &addition.modules[..]) {
            return self.put_together(addition);
        }
        let [AddedModule { module, rows }] = &addition.modules[..] else {
            unreachable!("only linear modules share a matrix")
        };
        let (rank, form) = (module.rank(), addition.form);
        let a = self.matrix_a(module, form)?;
        let (name, whole) = self
            .latest
            .take()
            .filter(|(name, _)| *name == module.name)
            .unwrap_or_else(|| (&*module.name, table(&module.b)));
        let b = match form {
            Form::Linear => self.write(&rows_of(&whole, rows, addition.outputs)),
            Form::Transposed => self.write(&turned(&rows_of(&whole, rows, addition.inputs))),
            Form::Table => self.write(&whole),
        }?;
        self.latest = Some((name, whole));
        let (first, second) = if form == Form::Transposed { (b, a) } else { (a, b) };
        Ok(Thin { first, second, rank, factor: module.scale, factors: Vec::new() })
    }

    /// A module's matrix A as this form needs it, which is put once.
    fn matrix_a(&mut self, module: &'a PeftModule, form: Form) -> Result<usize, WeightsError> {
        if let Some(known) = self.known.get(&(&*module.name, form)) {
            return Ok(*known);
        }
        let a = table(&module.a);
        let a = self.write(&if form == Form::Linear { a } else { turned(&a) })?;
        self.known.insert((&*module.name, form), a);
        Ok(a)
    }

    /// Puts the matrices of several linear modules that share a weight matrix.
    fn put_together(&mut self, addition: &Addition<'a>) -> Result<Thin, WeightsError> {
        let rank = addition.rank();
        let mut a = Table { columns: addition.inputs, numbers: Vec::new() };
        let mut b = Table { columns: rank, numbers: vec![0.0; addition.outputs * rank] };
        let mut factors = Vec::new();
        for AddedModule { module, rows } in &addition.modules {
            let first = a.rows();
            module.a.dtype.widen(&module.a.bytes, &mut a.numbers);
            copy_rows(&table(&module.b), rows, (&mut b, first));
            factors.push((first..first + module.rank(), module.scale));
        }
        let same = factors.iter().all(|(_, factor)| factor.to_bits() == factors[0].1.to_bits());
        let (factor, factors) = if same { (factors[0].1, Vec::new()) } else { (1.0, factors) };
        Ok(Thin { first: self.write(&a)?, second: self.write(&b)?, rank, factor, factors })
    }

    fn write(&mut self, table: &Table) -> Result<usize, WeightsError> {
        let mut matrix = self.backend.adapter_matrix(table.rows(), table.columns)?;
        self.backend.write_rows(&mut matrix, 0, table)?;
        self.matrices.push(matrix);
        Ok(self.matrices.len() - 1)
    }
}

/// Copies rows of a module's matrix B to their places, from a column on.
fn copy_rows(from: &Table, rows: &[(Range<usize>, usize)], (to, column): (&mut Table, usize)) {
    for (source, target) in rows {
        for (target, source) in (*target..).zip(source.clone()) {
            let target = &mut to.numbers[target * to.columns + column..][..from.columns];
            target.copy_from_slice(&from.numbers[source * from.columns..][..from.columns]);
        }
    }
}

/// Some rows of a module's matrix B at their places among so many rows, of which the others are zeros.
fn rows_of(from: &Table, rows: &[(Range<usize>, usize)], count: usize) -> Table {
    let mut to = Table { columns: from.columns, numbers: vec![0.0; count * from.columns] };
    copy_rows(from, rows, (&mut to, 0));
    to
}

fn table(tensor: &WeightTensor) -> Table {
    let mut numbers = Vec::new();
    tensor.dtype.widen(&tensor.bytes, &mut numbers);
    Table { columns: tensor.shape[1], numbers }
}

fn turned(table: &Table) -> Table {
    Table { columns: table.rows(), numbers: transposed(&table.numbers, table.columns) }
}

impl<B: Backend> ThinMatrices<B> {
    /// Both matrices times every row.
    pub(super) fn multiply(
        &self,
        backend: &mut B,
        thin: &Thin,
        input: &B::Operand,
        (narrow, rounded, out): (&mut B::States, &mut B::Operand, &mut B::States),
    ) {
        backend.linear(input, &self.0[thin.first], None, narrow);
        for (columns, factor) in &thin.factors {
            backend.scale(narrow, columns.clone(), *factor);
        }
        self.widen(backend, thin, (narrow, rounded, out));
    }

    /// The second matrix times the row of the first one for each of these tokens.
    pub(super) fn embed(
        &self,
        backend: &mut B,
        thin: &Thin,
        token_ids: &[TokenId],
        (narrow, rounded, out): (&mut B::States, &mut B::Operand, &mut B::States),
    ) {
        backend.embed(&self.0[thin.first], token_ids, 1.0, narrow);
        self.widen(backend, thin, (narrow, rounded, out));
    }

    fn widen(
        &self,
        backend: &mut B,
        thin: &Thin,
        (narrow, rounded, out): (&B::States, &mut B::Operand, &mut B::States),
    ) {
        backend.round(narrow, 0..thin.rank, rounded);
        backend.linear(rounded, &self.0[thin.second], None, out);
    }
}
