//! Models on the processor itself.

mod kernels;

pub(crate) use kernels::{KernelSet, Pool, Precision};

use std::ops::Range;

use kernels::{
    Attention, AttentionQuery, KvLayout, KvStore, Operand, Packed, Quantized, add_scaled, attend, gated_silu,
    head_norm, multiply, rms_norm, rotate,
};

use super::{
    backend::{Angles, AttentionShape, BLOCK_TOKENS, Backend, Batch, CacheShape},
    weights::{Rows, WeightsError},
};
use crate::TokenId;

const _: () = assert!(BLOCK_TOKENS == kernels::BLOCK_TOKENS, "the cache's blocks are the kernels'");

/// Rows of states, padded to whole vectors.
#[derive(Debug, Default)]
pub(crate) struct States {
    numbers: Vec<f32>,
    rows: usize,
    columns: usize,
    stride: usize,
}

impl States {
    /// Makes room for as many rows; what they hold is left over from before.
    fn reshape(&mut self, rows: usize, columns: usize) {
        let stride = columns.next_multiple_of(16);
        self.numbers.resize(rows * stride, 0.0);
        (self.rows, self.columns, self.stride) = (rows, columns, stride);
    }

    fn row_mut(&mut self, row: usize) -> &mut [f32] {
        &mut self.numbers[row * self.stride..][..self.columns]
    }
}

/// A weight matrix.
#[derive(Debug)]
pub(crate) enum Matrix {
    /// In the backend's precision.
    Packed(Packed),
    /// In the blocks of a GGUF file.
    Quantized(Quantized),
}

impl Matrix {
    fn outputs(&self) -> usize {
        match self {
            Self::Packed(packed) => packed.outputs(),
            Self::Quantized(quantized) => quantized.outputs(),
        }
    }

    fn inputs(&self) -> usize {
        match self {
            Self::Packed(packed) => packed.inputs(),
            Self::Quantized(quantized) => quantized.inputs(),
        }
    }

    fn read_row(&self, index: usize, row: &mut [f32]) {
        match self {
            Self::Packed(packed) => packed.read_row(index, row),
            Self::Quantized(quantized) => quantized.read_row(index, row),
        }
    }
}

/// Threads, instructions and the precision of weights.
pub(crate) struct CpuBackend {
    set: KernelSet,
    pool: Pool,
    precision: Precision,
    keeps_blocks: bool,
    logits: States,
}

impl CpuBackend {
    /// A backend on `pool` that computes with `set`.
    pub(crate) fn new(set: KernelSet, pool: Pool, precision: Precision) -> Self {
        Self { set, pool, precision, keeps_blocks: false, logits: States::default() }
    }

    /// Leaves weights of GGUF files in their blocks: less memory, and activations rounded to 8 bits.
    pub(crate) fn keeping_blocks(self) -> Self {
        Self { keeps_blocks: true, ..self }
    }

    fn layout(&self, CacheShape { heads, head_dim }: CacheShape) -> KvLayout {
        KvLayout { heads, head_dim, precision: self.precision }
    }

    fn product(
        &mut self,
        input: &Operand,
        matrix: &Matrix,
        bias: Option<&Vec<f32>>,
        out: &mut States,
        accumulate: bool,
    ) {
        if let Some(bias) = bias {
            for row in 0..out.rows {
                let row = out.row_mut(row);
                if accumulate {
                    row.iter_mut().zip(bias).for_each(|(to, bias)| *to += bias);
                } else {
                    row.copy_from_slice(bias);
                }
            }
        }
        let accumulate = accumulate || bias.is_some();
        let (stride, out) = (out.stride, &mut out.numbers);
        match matrix {
            Matrix::Packed(packed) => multiply(self.set, &mut self.pool, input, packed, out, stride, accumulate),
            Matrix::Quantized(quantized) => {
                if !accumulate {
                    out.fill(0.0);
                }
                quantized.add_product(&mut self.pool, input, out, stride);
            }
        }
    }
}

impl Backend for CpuBackend {
    type Matrix = Matrix;
    type Vector = Vec<f32>;
    type States = States;
    type Operand = Operand;
    type Cache = KvStore;

    fn matrix(&self, outputs: usize, inputs: usize) -> Matrix {
        if self.keeps_blocks {
            return Matrix::Quantized(Quantized::zeros(outputs, inputs));
        }
        Matrix::Packed(Packed::zeros(self.precision, outputs, inputs))
    }

    fn write_rows(&mut self, matrix: &mut Matrix, first: usize, rows: &dyn Rows) -> Result<(), WeightsError> {
        // The first rows decide: those that come without blocks are faster in the backend's precision.
        if let Matrix::Quantized(quantized) = matrix
            && quantized.is_empty()
            && !Quantized::keeps(rows)
        {
            *matrix = Matrix::Packed(Packed::zeros(self.precision, quantized.outputs(), quantized.inputs()));
        }
        match matrix {
            Matrix::Packed(packed) => packed.write_rows(&mut self.pool, first, rows),
            Matrix::Quantized(quantized) => quantized.write_rows(first, rows),
        }
    }

    fn vector(&self, len: usize) -> Vec<f32> {
        vec![0.0; len]
    }

    fn write_vector(&mut self, vector: &mut Vec<f32>, first: usize, numbers: &[f32]) {
        vector[first..][..numbers.len()].copy_from_slice(numbers);
    }

    fn operand(&self) -> Operand {
        Operand::new(self.precision)
    }

    fn cache(&self, shape: CacheShape, blocks: usize) -> KvStore {
        KvStore::new(self.layout(shape), blocks)
    }

    fn block_bytes(&self, shape: CacheShape) -> usize {
        self.layout(shape).block_bytes()
    }

    fn copy_block(&mut self, cache: &mut KvStore, from: u32, to: u32) {
        cache.copy(from, to);
    }

    fn embed(&mut self, table: &Matrix, token_ids: &[TokenId], out: &mut States) {
        out.reshape(token_ids.len(), table.inputs());
        for (row, id) in token_ids.iter().enumerate() {
            table.read_row(*id as usize, out.row_mut(row));
        }
    }

    fn norm(&mut self, states: &States, weight: &Vec<f32>, epsilon: f32, out: &mut Operand) {
        rms_norm(self.set, &mut self.pool, &states.numbers, states.stride, weight, epsilon, out);
    }

    fn head_norm(&mut self, states: &mut States, heads: Range<usize>, weight: &Vec<f32>, epsilon: f32) {
        let (first, stride) = (heads.start * weight.len(), states.stride);
        head_norm(self.set, &mut self.pool, &mut states.numbers, stride, first, heads.len(), weight, epsilon);
    }

    fn linear(&mut self, input: &Operand, matrix: &Matrix, bias: Option<&Vec<f32>>, out: &mut States) {
        out.reshape(input.rows(), matrix.outputs());
        self.product(input, matrix, bias, out, false);
    }

    fn add_linear(&mut self, input: &Operand, matrix: &Matrix, bias: Option<&Vec<f32>>, out: &mut States) {
        self.product(input, matrix, bias, out, true);
    }

    fn rotate(&mut self, states: &mut States, heads: usize, head_dim: usize, angles: &Angles) {
        let stride = states.stride;
        let angles = (&angles.cosines[..], &angles.sines[..]);
        rotate(self.set, &mut self.pool, &mut states.numbers, stride, heads, head_dim, angles);
    }

    fn write_cache(&mut self, states: &States, first: usize, batch: &Batch, cache: &mut KvStore) {
        let width = (states.columns - first) / 2;
        for span in &batch.spans {
            for token in 0..span.tokens {
                let position = span.first_position + token;
                let (block, slot) = (span.blocks[position / BLOCK_TOKENS], position % BLOCK_TOKENS);
                if slot == 0 {
                    cache.clear(block);
                }
                let row = &states.numbers[(span.first_row + token) * states.stride + first..][..2 * width];
                let (keys, values) = row.split_at(width);
                cache.write(block, slot, keys, values);
            }
        }
    }

    fn attend(&mut self, states: &States, cache: &KvStore, shape: AttentionShape, batch: &Batch, out: &mut Operand) {
        let AttentionShape { heads, scale, window } = shape;
        let attention =
            Attention { states: &states.numbers, stride: states.stride, heads, store: cache, scale, window };
        let queries: Vec<AttentionQuery<'_>> = batch
            .spans
            .iter()
            .map(|span| AttentionQuery {
                first_row: span.first_row,
                tokens: span.tokens,
                first_position: span.first_position,
                blocks: &span.blocks,
            })
            .collect();
        attend(self.set, &mut self.pool, &attention, &queries, out);
    }

    fn gated_silu(&mut self, states: &States, width: usize, out: &mut Operand) {
        gated_silu(self.set, &mut self.pool, &states.numbers, states.stride, width, out);
    }

    fn gather(&mut self, input: &Operand, picks: &[usize], out: &mut Operand) {
        out.gather(input, picks);
    }

    fn add_scaled(&mut self, from: &States, picks: &[(usize, f32)], to: &mut States) {
        let stride = to.stride;
        add_scaled(self.set, &mut to.numbers, stride, &from.numbers, from.stride, picks);
    }

    fn read(&mut self, states: &States, columns: usize) -> Vec<f32> {
        states.numbers.chunks_exact(states.stride).flat_map(|row| &row[..columns]).copied().collect()
    }

    fn logits(
        &mut self,
        input: &Operand,
        rows: Range<usize>,
        matrix: &Matrix,
        with: &(dyn Fn(usize, &mut [f32]) + Sync),
    ) {
        let mut picked = self.operand();
        picked.gather(input, &rows.collect::<Vec<_>>());
        let mut logits = std::mem::take(&mut self.logits);
        logits.reshape(picked.rows(), matrix.outputs());
        self.product(&picked, matrix, None, &mut logits, false);
        let columns = logits.columns;
        let mut each: Vec<&mut [f32]> = logits.numbers.chunks_exact_mut(logits.stride).collect();
        self.pool.for_each_mut(&mut each, &|row, logits| with(row, &mut logits[..columns]));
        self.logits = logits;
    }
}

#[cfg(test)]
mod tests;
