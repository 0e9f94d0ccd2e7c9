//! Products with matrices that stay in the blocks of a GGUF file.
//!
//! A dot product is candle's for the type: activations are rounded to 8 bits, block by block. Each output is one dot
//! product of one row of weights with one row of activations, so that it does not depend on other rows.

use std::{fmt, ops::Range};

use candle_core::quantized::{
    GgmlDType, GgmlType,
    k_quants::{
        BlockQ2K, BlockQ3K, BlockQ4_0, BlockQ4_1, BlockQ4K, BlockQ5_0, BlockQ5_1, BlockQ5K, BlockQ6K, BlockQ8_0,
        BlockQ8K,
    },
};
use half::bf16;

use super::{Operand, Pool, Processor, States, packed::Numbers, parts::Parts};
use crate::engine::native::weights::{Rows, WeightsError};

/// How many rows of weights stay close to the processor while all activations pass.
const OUTPUTS_AT_ONCE: usize = 64;

/// A weight matrix of `outputs` rows of `inputs` numbers, in parts of different types; rows that were never written
/// are zeros.
#[derive(Debug)]
pub(crate) struct Quantized {
    outputs: usize,
    inputs: usize,
    parts: Vec<QuantizedRows>,
}

#[derive(Debug)]
struct QuantizedRows {
    rows: Range<usize>,
    blocks: Box<dyn Blocks>,
}

impl Quantized {
    /// No parts yet.
    pub(crate) fn zeros(outputs: usize, inputs: usize) -> Self {
        Self { outputs, inputs, parts: Vec::new() }
    }

    /// The number of rows.
    pub(crate) fn outputs(&self) -> usize {
        self.outputs
    }

    /// Numbers of a row.
    pub(crate) fn inputs(&self) -> usize {
        self.inputs
    }

    /// Whether nothing was written.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Whether `rows` would stay in their blocks.
    pub(crate) fn keeps(rows: &dyn Rows) -> bool {
        rows.blocks().is_some_and(|blocks| match blocks.dtype() {
            // These are no blocks at all, or a type that is for activations only.
            GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16 | GgmlDType::Q8_1 => false,
            // candle wants an even number of blocks.
            dtype @ (GgmlDType::Q4_1 | GgmlDType::Q5_0 | GgmlDType::Q5_1) => {
                rows.columns().is_multiple_of(2 * dtype.block_size())
            }
            _ => true,
        })
    }

    /// Overwrites rows from `first` on with all of `rows`, in their own blocks if [`Quantized::keeps`] them, else in
    /// f32.
    ///
    /// # Panics
    /// If the rows have another length, go beyond the last one, or overwrite only some of what was written together.
    pub(crate) fn write_rows(&mut self, first: usize, rows: &dyn Rows) -> Result<(), WeightsError> {
        let range = first..first + rows.rows();
        assert_eq!(rows.columns(), self.inputs, "rows of as many numbers");
        assert!(range.end <= self.outputs, "{} rows", self.outputs);
        let blocks: Box<dyn Blocks> = if let Some(blocks) = rows.blocks().filter(|_| Self::keeps(rows)) {
            of_type(blocks.dtype(), &blocks.read(0..rows.rows())?, self.inputs)?
        } else {
            let mut numbers = Vec::new();
            numbers.try_reserve_exact(rows.rows() * self.inputs).map_err(|_| WeightsError::NoRoom)?;
            rows.read(0..rows.rows(), &mut numbers)?;
            Box::new(BlocksOf { blocks: numbers, per_row: self.inputs })
        };
        let overlaps = |part: &QuantizedRows| part.rows.start < range.end && range.start < part.rows.end;
        let overlapped = self.parts.iter().filter(|part| overlaps(part));
        assert!(overlapped.into_iter().all(|part| part.rows == range), "rows are overwritten as they were written");
        self.parts.retain(|part| part.rows != range);
        self.parts.push(QuantizedRows { rows: range, blocks });
        Ok(())
    }

    /// Reads one row, as an embedding does.
    ///
    /// # Panics
    /// If there is no such row, or `row` has another length than `inputs`.
    pub(crate) fn read_row(&self, index: usize, row: &mut [f32]) {
        assert!(index < self.outputs, "{} rows", self.outputs);
        assert_eq!(row.len(), self.inputs, "a whole row");
        match self.parts.iter().find(|part| part.rows.contains(&index)) {
            Some(part) => part.blocks.read_row(index - part.rows.start, row),
            None => row.fill(0.0),
        }
    }

    /// `out[r] (+)= matrix * input[r]` for every row of `input`.
    ///
    /// # Panics
    /// If shapes do not fit together.
    pub(crate) fn multiply(&self, processor: &mut Processor, input: &Operand, out: &mut States, accumulate: bool) {
        assert_eq!(input.columns, self.inputs, "the inner dimensions are equal");
        assert_eq!((out.rows, out.columns), (input.rows, self.outputs), "the result has the outer dimensions");
        if !accumulate {
            out.numbers.fill(0.0);
        }
        if input.rows == 0 {
            return;
        }
        for part in &self.parts {
            part.blocks.add_product(&mut processor.pool, input, &mut out.numbers[part.rows.start..], out.stride);
        }
        // When rounded to 8 bits, what is not finite becomes some number, and a row of nothing else becomes zeros.
        for row in (0..input.rows).filter(|row| !widened(input, *row).iter().all(|value| value.is_finite())) {
            out.row_mut(row).fill(f32::NAN);
        }
    }
}

/// Rows of one type.
trait Blocks: Send + Sync + fmt::Debug {
    /// Reads one row.
    fn read_row(&self, index: usize, row: &mut [f32]);

    /// Adds products to `out`, to whose rows there are `stride` numbers from one to the next.
    fn add_product(&self, pool: &mut Pool, input: &Operand, out: &mut [f32], stride: usize);
}

struct BlocksOf<T> {
    blocks: Vec<T>,
    per_row: usize,
}

impl<T: GgmlType> fmt::Debug for BlocksOf<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} blocks of {:?}", self.blocks.len(), T::DTYPE)
    }
}

/// The blocks of a file, each row a whole number of them.
fn of_type(dtype: GgmlDType, bytes: &[u8], columns: usize) -> Result<Box<dyn Blocks>, WeightsError> {
    /// # Safety
    /// Any bytes are a value of `T`.
    unsafe fn copied<T: GgmlType + 'static>(bytes: &[u8], columns: usize) -> Result<Box<dyn Blocks>, WeightsError> {
        let (count, rest) = (bytes.len() / size_of::<T>(), bytes.len() % size_of::<T>());
        assert_eq!(rest, 0, "whole blocks");
        let mut blocks = Vec::new();
        blocks.try_reserve_exact(count).map_err(|_| WeightsError::NoRoom)?;
        blocks.resize(count, T::zeros());
        // SAFETY: both are as long, do not overlap, and the caller vouches for the values.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), blocks.as_mut_ptr().cast::<u8>(), bytes.len()) };
        Ok(Box::new(BlocksOf { blocks, per_row: columns / T::BLCK_SIZE }))
    }
    // SAFETY: these are structures of integers and half floats, without padding.
    unsafe {
        match dtype {
            GgmlDType::Q4_0 => copied::<BlockQ4_0>(bytes, columns),
            GgmlDType::Q4_1 => copied::<BlockQ4_1>(bytes, columns),
            GgmlDType::Q5_0 => copied::<BlockQ5_0>(bytes, columns),
            GgmlDType::Q5_1 => copied::<BlockQ5_1>(bytes, columns),
            GgmlDType::Q8_0 => copied::<BlockQ8_0>(bytes, columns),
            GgmlDType::Q2K => copied::<BlockQ2K>(bytes, columns),
            GgmlDType::Q3K => copied::<BlockQ3K>(bytes, columns),
            GgmlDType::Q4K => copied::<BlockQ4K>(bytes, columns),
            GgmlDType::Q5K => copied::<BlockQ5K>(bytes, columns),
            GgmlDType::Q6K => copied::<BlockQ6K>(bytes, columns),
            GgmlDType::Q8K => copied::<BlockQ8K>(bytes, columns),
            GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16 | GgmlDType::Q8_1 => {
                panic!("{dtype:?} is not kept in blocks")
            }
        }
    }
}

impl<T: GgmlType> Blocks for BlocksOf<T> {
    fn read_row(&self, index: usize, row: &mut [f32]) {
        T::to_float(&self.blocks[index * self.per_row..][..self.per_row], row);
    }

    fn add_product(&self, pool: &mut Pool, input: &Operand, out: &mut [f32], stride: usize) {
        let (per_row, columns, rows) = (self.per_row, input.columns, input.rows);
        let mut activations = vec![T::VecDotType::zeros(); rows * per_row];
        let mut each: Vec<&mut [T::VecDotType]> = activations.chunks_exact_mut(per_row).collect();
        pool.for_each_mut(&mut each, &|row, to| T::VecDotType::from_float(&widened(input, row), to));
        let outputs = self.blocks.len() / per_row;
        let out = Parts::new(out);
        pool.for_each(outputs.div_ceil(OUTPUTS_AT_ONCE), &|share| {
            let begin = share * OUTPUTS_AT_ONCE;
            let count = OUTPUTS_AT_ONCE.min(outputs - begin);
            let weights = &self.blocks[begin * per_row..][..count * per_row];
            for (row, activations) in activations.chunks_exact(per_row).enumerate() {
                // SAFETY: shares are of different outputs.
                let to = unsafe { out.part(row * stride + begin, count) };
                for (to, weights) in to.iter_mut().zip(weights.chunks_exact(per_row)) {
                    *to += T::vec_dot(columns, weights, activations);
                }
            }
        });
    }
}

/// A row of activations in f32, exactly.
fn widened(input: &Operand, row: usize) -> Vec<f32> {
    let numbers = row * input.stride..row * input.stride + input.columns;
    match &input.numbers {
        Numbers::Bf16(bits) => bits[numbers].iter().map(|bits| bf16::from_bits(*bits).to_f32()).collect(),
        Numbers::F32(values) => values[numbers].to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{
        Device, Tensor,
        quantized::{QTensor, k_quants::QK_K},
    };

    use super::*;
    use crate::engine::native::{
        cpu::{KernelSet, Precision},
        weights::BlockRows,
    };

    const KEPT: [GgmlDType; 11] = [
        GgmlDType::Q4_0,
        GgmlDType::Q4_1,
        GgmlDType::Q5_0,
        GgmlDType::Q5_1,
        GgmlDType::Q8_0,
        GgmlDType::Q2K,
        GgmlDType::Q3K,
        GgmlDType::Q4K,
        GgmlDType::Q5K,
        GgmlDType::Q6K,
        GgmlDType::Q8K,
    ];

    /// Rows as a file would have them.
    struct Stored {
        blocks: QTensor,
        values: Vec<f32>,
        columns: usize,
    }

    impl Stored {
        fn new(dtype: GgmlDType, rows: usize, columns: usize, seed: usize) -> Self {
            let tensor = Tensor::from_vec(numbers(rows * columns, seed), (rows, columns), &Device::Cpu).unwrap();
            let blocks = QTensor::quantize(&tensor, dtype).unwrap();
            let values = blocks.dequantize(&Device::Cpu).unwrap().flatten_all().unwrap().to_vec1().unwrap();
            Self { blocks, values, columns }
        }
    }

    impl Rows for Stored {
        fn rows(&self) -> usize {
            self.values.len() / self.columns
        }

        fn columns(&self) -> usize {
            self.columns
        }

        fn read(&self, rows: Range<usize>, out: &mut Vec<f32>) -> Result<(), WeightsError> {
            out.extend_from_slice(&self.values[rows.start * self.columns..rows.end * self.columns]);
            Ok(())
        }

        fn blocks(&self) -> Option<&dyn BlockRows> {
            Some(self)
        }
    }

    impl BlockRows for Stored {
        fn dtype(&self) -> GgmlDType {
            self.blocks.dtype()
        }

        fn read(&self, rows: Range<usize>) -> Result<Vec<u8>, WeightsError> {
            let bytes = self.blocks.data().unwrap();
            let row = bytes.len() / Rows::rows(self);
            Ok(bytes[rows.start * row..rows.end * row].to_vec())
        }
    }

    /// Numbers between -1 and 1.
    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|i| f32::sin(f32::from(u16::try_from((i * 7919 + seed * 31) % 65_521).unwrap()))).collect()
    }

    fn operand(precision: Precision, values: &[f32], columns: usize) -> Operand {
        let mut operand = Operand::new(precision);
        operand.reshape(values.len() / columns, columns);
        for (row, values) in values.chunks_exact(columns).enumerate() {
            operand.write_row(row, values);
        }
        operand
    }

    fn product(matrix: &Quantized, input: &Operand, threads: usize) -> Vec<f32> {
        let mut out = States::default();
        out.reshape(input.rows, matrix.outputs);
        matrix.multiply(&mut processor(threads), input, &mut out, false);
        (0..input.rows).flat_map(|row| out.row(row)).copied().collect()
    }

    fn processor(threads: usize) -> Processor {
        Processor { set: KernelSet::PORTABLE, pool: Pool::new(threads).unwrap() }
    }

    #[test]
    fn a_product_is_off_by_no_more_than_the_rounding_of_activations() {
        let columns = 2 * QK_K;
        for dtype in KEPT {
            let stored = Stored::new(dtype, 70, columns, 0);
            let mut matrix = Quantized::zeros(70, columns);
            matrix.write_rows(0, &stored).unwrap();
            let activations = numbers(3 * columns, 5);
            let out = product(&matrix, &operand(Precision::F32, &activations, columns), 2);
            for (activations, out) in activations.chunks_exact(columns).zip(out.chunks_exact(70)) {
                for (weights, found) in stored.values.chunks_exact(columns).zip(out) {
                    let pairs = weights.iter().zip(activations);
                    let exact: f64 = pairs.map(|(weight, value)| f64::from(*weight) * f64::from(*value)).sum();
                    let total: f64 = weights.iter().map(|weight| f64::from(weight.abs())).sum();
                    // Half of a step of 127, of numbers up to 1, and what the scales lose in 16 bits.
                    let bound = total * (0.5 / 127.0 + 1.0 / 1024.0);
                    let error = (f64::from(*found) - exact).abs();
                    assert!(error <= bound, "{dtype:?}: {error} is over {bound}");
                }
            }
        }
    }

    #[test]
    fn a_row_gives_the_same_bits_whatever_other_rows_and_threads_there_are() {
        for precision in [Precision::Bf16, Precision::F32] {
            for dtype in KEPT {
                let mut matrix = Quantized::zeros(130, QK_K);
                matrix.write_rows(0, &Stored::new(dtype, 130, QK_K, 0)).unwrap();
                let activations = numbers(5 * QK_K, 5);
                let together = product(&matrix, &operand(precision, &activations, QK_K), 3);
                for (activations, together) in activations.chunks_exact(QK_K).zip(together.chunks_exact(130)) {
                    let alone = product(&matrix, &operand(precision, activations, QK_K), 1);
                    assert!(alone.iter().zip(together).all(|(a, b)| a.to_bits() == b.to_bits()), "{dtype:?}");
                }
            }
        }
    }

    #[test]
    fn rows_of_several_types_are_read_back_and_multiplied_side_by_side() {
        let stored = [(GgmlDType::Q4K, 0, 7), (GgmlDType::BF16, 7, 3), (GgmlDType::Q6K, 12, 20)];
        let stored = stored.map(|(dtype, first, rows)| (first, Stored::new(dtype, rows, QK_K, first)));
        let mut matrix = Quantized::zeros(40, QK_K);
        let input = operand(Precision::F32, &numbers(QK_K, 5), QK_K);
        for (first, rows) in &stored {
            matrix.write_rows(*first, rows).unwrap();
        }
        let out = product(&matrix, &input, 1);
        let mut row = vec![f32::NAN; QK_K];
        for (first, rows) in &stored {
            let mut alone = Quantized::zeros(Rows::rows(rows), QK_K);
            alone.write_rows(0, rows).unwrap();
            assert_eq!(product(&alone, &input, 1), out[*first..][..Rows::rows(rows)]);
            for (index, values) in rows.values.chunks_exact(QK_K).enumerate() {
                matrix.read_row(first + index, &mut row);
                assert_eq!(row, values);
            }
        }
        for unwritten in (10..12).chain(32..40) {
            matrix.read_row(unwritten, &mut row);
            assert!(row.iter().all(|value| *value == 0.0) && out[unwritten] == 0.0);
        }
    }

    #[test]
    fn rows_are_overwritten_and_products_added() {
        let mut matrix = Quantized::zeros(8, QK_K);
        let input = operand(Precision::F32, &numbers(QK_K, 5), QK_K);
        matrix.write_rows(4, &Stored::new(GgmlDType::Q8_0, 4, QK_K, 1)).unwrap();
        let before = product(&matrix, &input, 1);
        matrix.write_rows(4, &Stored::new(GgmlDType::Q8_0, 4, QK_K, 2)).unwrap();
        let after = product(&matrix, &input, 1);
        assert!(before[4..].iter().zip(&after[4..]).all(|(before, after)| (before - after).abs() > 1e-3));
        let mut sum = States::default();
        sum.reshape(1, 8);
        sum.row_mut(0).fill(1.0);
        matrix.multiply(&mut processor(1), &input, &mut sum, true);
        assert_eq!(*sum.row(0), after.iter().map(|product| 1.0 + product).collect::<Vec<f32>>());
    }

    #[test]
    fn activations_that_are_not_finite_give_no_numbers_and_spoil_no_other_row() {
        for dtype in KEPT {
            let mut matrix = Quantized::zeros(3, QK_K);
            matrix.write_rows(0, &Stored::new(dtype, 3, QK_K, 0)).unwrap();
            for broken in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut activations = numbers(3 * QK_K, 5);
                activations[QK_K + 7] = broken;
                activations[2 * QK_K..].fill(broken);
                let out = product(&matrix, &operand(Precision::F32, &activations, QK_K), 1);
                assert!(out[..3].iter().all(|number| number.is_finite()), "{dtype:?}");
                assert!(out[3..].iter().all(|number| number.is_nan()), "{dtype:?}: {out:?}");
            }
        }
    }

    #[test]
    fn what_candle_does_not_multiply_in_blocks_is_not_kept() {
        let keeps = |dtype, columns| Quantized::keeps(&Stored::new(dtype, 1, columns, 0));
        assert!(KEPT.into_iter().all(|dtype| keeps(dtype, QK_K)));
        assert!(!keeps(GgmlDType::BF16, QK_K));
        assert!(keeps(GgmlDType::Q4_0, 32) && !keeps(GgmlDType::Q4_1, 32) && keeps(GgmlDType::Q4_1, 64));
    }
}
