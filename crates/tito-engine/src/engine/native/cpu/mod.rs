//! Models on the processor itself.

mod kernels;
mod matrix;

#[cfg(target_os = "linux")]
pub(crate) use kernels::try_under_signals;
pub use kernels::{KernelName, KernelSet, Mismatch};
pub(crate) use kernels::{
    Pool, Precision, Processor, RecurrentStore, States, Taps, compare_with_portable, convolve, recur,
};

use std::{convert::Infallible, ops::Range};

use kernels::{
    Attention, Blocked, BothWays, CacheWrites, Coded, KvLayout, KvStore, Operand, Packed, add, add_scaled, attend,
    attend_within, gate, gated_norm, head_norm, multiply_columns, norm, open, rotate, round, scale, shape_logits,
};

pub(crate) use matrix::Matrix;

use super::{
    backend::{
        Angles, AttentionShape, BLOCK_TOKENS, Backend, Batch, CacheShape, Consumer, Gate, HeadRange, Learnt,
        LogitShape, NoRoom, NormShape, Rotation, SegmentHeads, Span,
    },
    recurrence::{ConvolutionShape, GatedNormShape, RecurrenceShape, RecurrentShape, SlotId},
    weights::{Rows, WeightsError},
};
use crate::{TokenId, engine::WeightDtype};

const _: () = assert!(BLOCK_TOKENS == kernels::BLOCK_TOKENS, "the cache's blocks are the kernels'");

/// What the layers of a step share: its sequences, where their new keys and values go, the angles of its rows, and which sequences are finite so far.
pub(crate) struct StepShared {
    spans: Vec<Span>,
    /// For each sequence the images of which each token attends to all.
    both_ways: BothWays,
    writes: CacheWrites,
    angles: Vec<Angles>,
    finite: Vec<bool>,
}

/// Why there is no copy of such a matrix.
const QUANTIZED: &str = "weights that stay quantised are never replaced";

/// Threads, instructions and the precisions.
pub(crate) struct CpuBackend {
    processor: Processor,
    /// Of weights.
    precision: Precision,
    /// Of what they are multiplied with, and of keys and values.
    activations: Precision,
    /// Whether quantised weights stay as they are.
    keeps_quantized: bool,
}

impl CpuBackend {
    /// A backend whose matrices and caches have this precision.
    pub(crate) fn new(processor: Processor, precision: Precision) -> Self {
        Self { processor, precision, activations: precision, keeps_quantized: false }
    }

    /// Rounds no activations, keys and values to bf16: everything but the weights is as of [`Precision::F32`], to the bit.
    pub(crate) fn with_f32_activations(self) -> Self {
        Self { activations: Precision::F32, ..self }
    }

    /// Leaves weights in the codes of quantised checkpoints and the blocks of GGUF files: less memory, and the same bits.
    pub(crate) fn keeping_quantized(self) -> Self {
        Self { keeps_quantized: true, ..self }
    }

    /// Another one that computes in the same way, with weights in this precision, and has a single thread.
    pub(crate) fn beside(&self, precision: Precision, keeps_quantized: bool) -> std::io::Result<Self> {
        let processor = Processor { set: self.processor.set, pool: Pool::new(1)? };
        Ok(Self { keeps_quantized, ..Self::new(processor, precision) })
    }

    fn packed(&self, outputs: usize, inputs: usize) -> Result<Matrix, NoRoom> {
        Packed::try_zeros(self.precision, outputs, inputs).map(Matrix::Packed)
    }

    fn layout(&self, CacheShape { heads, head_dim }: CacheShape) -> KvLayout {
        KvLayout { heads, head_dim, precision: self.activations }
    }
}

/// Adds a bias to every row, or begins every row with it.
fn put_bias(bias: &[f32], out: &mut States, accumulate: bool) {
    for row in 0..out.rows() {
        for (number, bias) in out.row_mut(row).iter_mut().zip(bias) {
            *number = if accumulate { *number + bias } else { *bias };
        }
    }
}

impl Backend for CpuBackend {
    type Matrix = Matrix;
    type Vector = Vec<f32>;
    type Saved = Packed;
    type States = States;
    type Operand = Operand;
    type Cache = KvStore;
    type Recurrent = RecurrentStore;
    type StepShared = StepShared;
    type Chosen = Infallible;
    type Underway = Infallible;

    fn matrix(&self, outputs: usize, inputs: usize) -> Result<Matrix, NoRoom> {
        if self.keeps_quantized {
            return Ok(Matrix::Blocked(Blocked::zeros(outputs, inputs)));
        }
        self.packed(outputs, inputs)
    }

    fn swap_threads(&mut self, other: &mut Self) {
        std::mem::swap(&mut self.processor.pool, &mut other.processor.pool);
    }

    fn adapter_matrix(&self, outputs: usize, inputs: usize) -> Result<Matrix, NoRoom> {
        match self.activations {
            // Adapters are mostly saved in f32, and small.
            Precision::F32 => Packed::try_zeros(Precision::F32, outputs, inputs).map(Matrix::Packed),
            Precision::Bf16 => self.matrix(outputs, inputs),
        }
    }

    fn write_rows(&mut self, matrix: &mut Matrix, first: usize, rows: &dyn Rows) -> Result<(), WeightsError> {
        // The first rows decide: those that come as plain numbers are faster in the backend's precision.
        if let Matrix::Blocked(blocked) = matrix
            && !blocked.takes(first, rows)
        {
            *matrix = match Coded::keeps(rows) {
                Some(coded) if blocked.is_empty() => {
                    Matrix::Coded(Coded::try_zeros(self.precision, blocked.outputs(), coded)?)
                }
                _ => Matrix::Packed(blocked.widened(&mut self.processor.pool, self.precision)?),
            };
        }
        // Where others are of another kind, all are widened.
        if let Matrix::Coded(coded) = matrix
            && !coded.takes(rows)
        {
            *matrix = Matrix::Packed(coded.widened(&mut self.processor.pool)?);
        }
        match matrix {
            Matrix::Packed(packed) => packed.write_rows(&mut self.processor.pool, first, rows),
            Matrix::Coded(coded) => coded.write_rows(&mut self.processor.pool, first, rows),
            Matrix::Blocked(blocked) => blocked.write_rows(&mut self.processor.pool, first, rows),
        }
    }

    fn vector(&self, len: usize) -> Result<Vec<f32>, NoRoom> {
        let mut vector = Vec::new();
        vector.try_reserve_exact(len).map_err(|_| NoRoom)?;
        vector.resize(len, 0.0);
        Ok(vector)
    }

    fn write_vector(&mut self, vector: &mut Vec<f32>, first: usize, numbers: &[f32]) -> Result<(), NoRoom> {
        vector[first..][..numbers.len()].copy_from_slice(numbers);
        Ok(())
    }

    fn dtype(&self) -> WeightDtype {
        match self.precision {
            Precision::Bf16 => WeightDtype::Bf16,
            Precision::F32 => WeightDtype::F32,
        }
    }

    fn matrix_bytes(&self, matrix: &Matrix) -> u64 {
        match matrix {
            Matrix::Packed(packed) => packed.bytes(),
            Matrix::Coded(_) | Matrix::Blocked(_) => 0,
        }
    }

    fn save(&mut self, matrix: &Matrix) -> Result<Packed, NoRoom> {
        match matrix {
            Matrix::Packed(packed) => packed.copy(&mut self.processor.pool),
            Matrix::Coded(_) | Matrix::Blocked(_) => unreachable!("{QUANTIZED}"),
        }
    }

    fn set_aside(&mut self, matrix: &mut Matrix) -> Result<Packed, NoRoom> {
        let empty = Packed::try_zeros(self.precision, matrix.outputs(), matrix.inputs())?;
        match matrix {
            Matrix::Packed(packed) => Ok(std::mem::replace(packed, empty)),
            Matrix::Coded(_) | Matrix::Blocked(_) => unreachable!("{QUANTIZED}"),
        }
    }

    fn put_back(&mut self, matrix: &mut Matrix, saved: Packed) -> Result<(), NoRoom> {
        *matrix = Matrix::Packed(saved);
        Ok(())
    }

    fn read_rows(&mut self, matrix: &Matrix, rows: Range<usize>, out: &mut [u8]) -> Result<(), NoRoom> {
        if let Matrix::Packed(packed) = matrix {
            packed.read_rows(&mut self.processor.pool, rows, out);
            return Ok(());
        }
        let (inputs, dtype) = (matrix.inputs(), self.dtype());
        let mut parts: Vec<(usize, &mut [u8])> =
            rows.zip(out.chunks_exact_mut((inputs * dtype.size()).max(1))).collect();
        self.processor.pool.for_each_mut(&mut parts, &|_, (row, out)| {
            let mut numbers = vec![0.0; inputs];
            matrix.read_row(*row, &mut numbers);
            dtype.narrow(&numbers, out);
        });
        Ok(())
    }

    fn exchanges(&self) -> bool {
        true
    }

    fn exchange(&mut self, matrix: &mut Matrix, first: usize, places: &[u32], numbers: &mut [u8]) -> bool {
        let Matrix::Packed(packed) = matrix else { return false };
        packed.exchange(&mut self.processor.pool, first, places, numbers);
        true
    }

    fn read_vector(&self, vector: &Vec<f32>) -> Vec<f32> {
        vector.clone()
    }

    fn vector_bytes(&self, vector: &Vec<f32>) -> u64 {
        size_of_val(&vector[..]) as u64
    }

    fn operand(&self) -> Operand {
        Operand::new(self.activations)
    }

    fn cache(&self, shape: CacheShape, blocks: usize) -> Result<KvStore, NoRoom> {
        KvStore::new(self.layout(shape), blocks)
    }

    fn block_bytes(&self, shape: CacheShape) -> usize {
        self.layout(shape).block_bytes()
    }

    fn copy_block(&mut self, cache: &mut KvStore, from: u32, to: u32) {
        cache.copy(from, to);
    }

    fn recurrent(&self, shape: RecurrentShape, slots: usize) -> Result<RecurrentStore, NoRoom> {
        RecurrentStore::new(shape, slots)
    }

    fn copy_slot(&mut self, recurrent: &mut RecurrentStore, from: SlotId, to: SlotId) {
        recurrent.copy(from, to);
    }

    fn embed(&mut self, table: &Matrix, token_ids: &[TokenId], factor: f32, out: &mut States) {
        out.reshape(token_ids.len(), table.inputs());
        for (row, id) in token_ids.iter().enumerate() {
            table.read_row(*id as usize, out.row_mut(row));
        }
        let columns = 0..out.columns();
        scale(&mut self.processor, out, columns, factor);
    }

    fn norm(&mut self, states: &States, weight: &Vec<f32>, shape: NormShape, out: &mut Operand) {
        norm(&mut self.processor, states, weight, shape, out);
    }

    fn head_norm(&mut self, states: &mut States, heads: HeadRange, weight: &Vec<f32>, norm: NormShape) {
        head_norm(&mut self.processor, states, heads, weight, norm);
    }

    fn round(&mut self, states: &States, columns: Range<usize>, out: &mut Operand) {
        round(&mut self.processor, states, columns, out);
    }

    fn place(&mut self, from: &States, columns: Range<usize>, to: &mut States, first: usize) {
        for row in 0..from.rows() {
            to.row_mut(row)[first..first + columns.len()].copy_from_slice(&from.row(row)[columns.clone()]);
        }
    }

    fn pick(&mut self, input: &Operand, columns: Range<usize>, out: &mut Operand) {
        out.pick(input, columns);
    }

    fn zeros(&mut self, like: &States, columns: usize, out: &mut States) {
        out.reshape(like.rows(), columns);
        out.rows_mut().into_iter().for_each(|row| row.fill(0.0));
    }

    fn scale(&mut self, states: &mut States, columns: Range<usize>, factor: f32) {
        scale(&mut self.processor, states, columns, factor);
    }

    fn add(&mut self, from: &States, factor: f32, to: &mut States) {
        add(&mut self.processor, from, factor, to);
    }

    fn linear(&mut self, input: &Operand, matrix: &Matrix, bias: Option<&Vec<f32>>, out: &mut States) {
        out.reshape(input.rows(), matrix.outputs());
        if let Some(bias) = bias {
            put_bias(bias, out, false);
        }
        matrix.multiply(&mut self.processor, input, out, bias.is_some());
    }

    fn add_linear(&mut self, input: &Operand, matrix: &Matrix, bias: Option<&Vec<f32>>, out: &mut States) {
        if let Some(bias) = bias {
            put_bias(bias, out, true);
        }
        matrix.multiply(&mut self.processor, input, out, true);
    }

    fn begin_step(&mut self, batch: &Batch, angles: Vec<Angles>) -> StepShared {
        let finite = vec![true; batch.spans.len()];
        let both_ways = BothWays::of(batch);
        StepShared { spans: batch.spans.clone(), both_ways, writes: CacheWrites::of(&batch.spans), angles, finite }
    }

    fn rotate(&mut self, states: &mut States, rotation: Rotation, shared: &StepShared) {
        rotate(&mut self.processor, states, rotation, &shared.angles[rotation.angles]);
    }

    fn write_cache(&mut self, states: &States, first: usize, cache: &mut KvStore, shared: &mut StepShared) {
        shared.writes.write(&mut self.processor, states, first, cache, &mut shared.finite);
    }

    fn attend(
        &mut self,
        states: &States,
        cache: &KvStore,
        shape: AttentionShape,
        sinks: Option<&Vec<f32>>,
        shared: &StepShared,
        out: &mut Operand,
    ) {
        let sinks = sinks.map(|sinks| &sinks[..]);
        let attention = Attention { states, store: cache, shape, sinks, both_ways: &shared.both_ways };
        attend(&mut self.processor, &attention, &shared.spans, out);
    }

    fn convolve(
        &mut self,
        states: &mut States,
        weight: &Vec<f32>,
        bias: Option<&Vec<f32>>,
        shape: ConvolutionShape,
        recurrent: &mut RecurrentStore,
        StepShared { spans, finite, .. }: &mut StepShared,
    ) {
        let taps = Taps { weight, bias: bias.map(|bias| &bias[..]) };
        convolve(&mut self.processor, states, taps, shape, recurrent, (spans, finite));
    }

    fn recur(
        &mut self,
        states: &States,
        learnt: Learnt<'_, Vec<f32>>,
        shape: &RecurrenceShape,
        recurrent: &mut RecurrentStore,
        StepShared { spans, finite, .. }: &mut StepShared,
        out: &mut States,
    ) {
        recur(&mut self.processor, states, &learnt, shape, recurrent, (spans, finite), out);
    }

    fn gated_norm(
        &mut self,
        states: &States,
        gates: &States,
        weight: Option<&Vec<f32>>,
        shape: GatedNormShape,
        out: &mut Operand,
    ) {
        gated_norm(&mut self.processor, states, gates, weight.map(|weight| &weight[..]), shape, out);
    }

    fn open(&mut self, gates: &States, out: &mut Operand) {
        open(&mut self.processor, gates, out);
    }

    fn multiply_columns(&mut self, states: &mut States, by: Range<usize>, first: usize) {
        multiply_columns(&mut self.processor, states, by, first);
    }

    fn finite(&mut self, shared: StepShared) -> Vec<bool> {
        shared.finite
    }

    fn gate(&mut self, states: &States, kind: Gate, width: usize, out: &mut Operand) {
        gate(&mut self.processor, states, kind, width, out);
    }

    fn gather(&mut self, input: &Operand, picks: &[usize], out: &mut Operand) {
        out.gather(input, picks);
    }

    fn add_scaled(&mut self, from: &States, picks: &[(usize, f32)], to: &mut States) {
        add_scaled(self.processor.set, from, picks, to);
    }

    fn put(&mut self, numbers: &[f32], columns: usize, out: &mut States) {
        out.reshape(numbers.len() / columns, columns);
        self.put_rows(numbers, 0, out);
    }

    fn put_rows(&mut self, numbers: &[f32], first: usize, to: &mut States) {
        for (row, numbers) in (first..).zip(numbers.chunks_exact(to.columns())) {
            to.row_mut(row).copy_from_slice(numbers);
        }
    }

    fn add_rows(&mut self, numbers: &[f32], first: usize, to: &mut States) {
        for (row, numbers) in (first..).zip(numbers.chunks_exact(to.columns())) {
            to.row_mut(row).iter_mut().zip(numbers).for_each(|(to, number)| *to += number);
        }
    }

    fn add_vector(&mut self, vector: &Vec<f32>, to: &mut States) {
        put_bias(vector, to, true);
    }

    fn multiply_vector(&mut self, vector: &Vec<f32>, to: &mut States) {
        for row in 0..to.rows() {
            to.row_mut(row).iter_mut().zip(vector).for_each(|(number, factor)| *number *= factor);
        }
    }

    fn join(&mut self, from: &States, count: usize, to: &mut States) {
        let columns = from.columns();
        to.reshape(from.rows() / count, count * columns);
        for row in 0..to.rows() * count {
            to.row_mut(row / count)[row % count * columns..][..columns].copy_from_slice(from.row(row));
        }
    }

    fn interleave(&mut self, from: &States, count: usize, to: &mut States) {
        to.reshape(from.rows() / count, count * from.columns());
        for row in 0..to.rows() * count {
            let places = to.row_mut(row / count)[row % count..].iter_mut().step_by(count);
            places.zip(from.row(row)).for_each(|(place, number)| *place = *number);
        }
    }

    fn attend_within(&mut self, states: &States, shape: SegmentHeads, segments: &[Range<usize>], out: &mut Operand) {
        attend_within(&mut self.processor, states, shape, segments, out);
    }

    fn read(&mut self, states: &States, columns: usize) -> Vec<f32> {
        (0..states.rows()).flat_map(|row| &states.row(row)[..columns]).copied().collect()
    }

    fn hand_on(&mut self, logits: &mut States, first: usize, shape: LogitShape, consumer: &dyn Consumer) {
        let set = self.processor.set;
        self.processor.pool.for_each_mut(&mut logits.rows_mut(), &|row, logits| {
            shape_logits(set, logits, shape);
            consumer.take_row(first + row, logits);
        });
    }
}

#[cfg(test)]
mod tests;
