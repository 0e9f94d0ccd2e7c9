//! Matrices that stay in the codes of a quantised checkpoint, and are widened inside of their products.
//!
//! The product has the same bits as with the widened matrix, with every kernel set. It only saves memory.

mod block;
#[cfg(test)]
mod tests;
mod unpack;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::{
    ops::Range,
    sync::atomic::{AtomicBool, Ordering},
};

use half::bf16;
use parking_lot::Mutex;

use self::block::{Blocks, STEP_BYTES, block_bytes, block_scales, is_tame, step, write_codes};
use super::{
    KernelSet, LANES, Operand, Packed, Pool, Precision, Processor, States,
    few::FewRows,
    pages::{Pages, Stored},
    panels::{self, OfRows, Widen},
    parts::Parts,
};
use crate::engine::native::{
    backend::NoRoom,
    weights::{Code, CodedRows, Codes, Rows, WeightsError},
};

/// A weight matrix of `outputs` rows of `inputs` numbers, in codes. Rows that were never written are zeros.
#[derive(Debug)]
pub(crate) struct Coded {
    code: Code,
    outputs: usize,
    inputs: usize,
    /// `inputs`, padded to what bf16 is multiplied by.
    depth: usize,
    /// What the widened matrix has: its numbers are rounded to it, also for activations of another one.
    precision: Precision,
    /// Inputs that share a scale.
    group: usize,
    is_rounded: bool,
    /// Whether all that was written is tame, see [`is_tame`].
    is_tame: bool,
    /// Blocks of 16 outputs, see [`Blocks`].
    codes: Pages<u8>,
    /// For each block and group a scale for each output; those of [`Code::E2m1`] are powers of two, which bf16 holds.
    scales: Stored,
}

/// How large the parts of a matrix are.
struct Sizes {
    depth: usize,
    group: usize,
    /// Bytes of codes.
    codes: usize,
    precision: Precision,
    /// Scales of that precision.
    scales: usize,
}

impl Sizes {
    /// Those of a matrix for rows of this kind; none where they are too large.
    fn of(outputs: usize, rows: &dyn CodedRows) -> Option<Self> {
        let (code, inputs) = (rows.code(), rows.columns());
        let depth = inputs.checked_next_multiple_of(Precision::Bf16.step())?;
        let group = rows.group().min(depth);
        let blocks = outputs.div_ceil(LANES);
        let codes = blocks.checked_mul(depth / step(code)).and_then(|steps| steps.checked_mul(STEP_BYTES))?;
        let scales = blocks.checked_mul(depth.div_ceil(group) * LANES)?;
        let precision = match code {
            Code::E4m3 => Precision::F32,
            Code::E2m1 => Precision::Bf16,
        };
        Some(Self { depth, group, codes, precision, scales })
    }
}

impl Coded {
    /// The codes of rows that can stay in them: those whose groups are whole steps of a block, or the whole row.
    pub(crate) fn keeps(rows: &dyn Rows) -> Option<&dyn CodedRows> {
        rows.coded().filter(|coded| {
            let (group, columns) = (coded.group(), coded.columns());
            group >= columns || group.is_multiple_of(step(coded.code()))
        })
    }

    /// A matrix of zeros for rows of this kind, whose numbers are those of a widened matrix of this precision.
    pub(crate) fn try_zeros(precision: Precision, outputs: usize, rows: &dyn CodedRows) -> Result<Self, NoRoom> {
        let Sizes { depth, group, codes, precision: of_scales, scales } = Sizes::of(outputs, rows).ok_or(NoRoom)?;
        Ok(Self {
            code: rows.code(),
            outputs,
            inputs: rows.columns(),
            depth,
            precision,
            group,
            is_rounded: rows.is_rounded(),
            is_tame: true,
            codes: Pages::zeros(codes)?,
            scales: Stored::zeros(of_scales, scales)?,
        })
    }

    /// The bytes of its codes and scales.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        (self.codes.len() + size_of_val(self.scales.units())) as u64
    }

    /// The bytes that a matrix of these rows has, if they can stay in their codes.
    pub(crate) fn bytes_of(rows: &dyn Rows) -> Option<u64> {
        let rows = Self::keeps(rows)?;
        let Sizes { codes, precision, scales, .. } = Sizes::of(rows.rows(), rows)?;
        let each = if precision == Precision::Bf16 { size_of::<u16>() } else { size_of::<f32>() };
        Some(codes as u64 + scales as u64 * each as u64)
    }

    /// The number of rows.
    pub(crate) fn outputs(&self) -> usize {
        self.outputs
    }

    /// Numbers of a row.
    pub(crate) fn inputs(&self) -> usize {
        self.inputs
    }

    /// Whether these rows are of the kind that the matrix has.
    pub(crate) fn takes(&self, rows: &dyn Rows) -> bool {
        Self::keeps(rows).is_some_and(|rows| {
            let kind = (rows.code(), rows.columns(), rows.group().min(self.depth), rows.is_rounded());
            kind == (self.code, self.inputs, self.group, self.is_rounded)
        })
    }

    /// The bytes of the codes of a block.
    fn block_bytes(&self) -> usize {
        block_bytes(self.code, self.depth)
    }

    /// The scales of a block.
    fn block_scales(&self) -> usize {
        block_scales(self.depth, self.group)
    }

    /// Overwrites rows from `first` on with all of `rows`.
    ///
    /// # Panics
    /// If the matrix does not [take](Self::takes) them, or they go beyond the last one.
    pub(crate) fn write_rows(&mut self, pool: &mut Pool, first: usize, rows: &dyn Rows) -> Result<(), WeightsError> {
        assert!(self.takes(rows), "rows of the matrix's kind");
        let Some(rows) = rows.coded() else { return Ok(()) };
        assert!(first + rows.rows() <= self.outputs, "{} rows", self.outputs);
        let all = first..first + rows.rows();
        let blocks = all.start / LANES..all.end.div_ceil(LANES);
        let (block_bytes, block_scales, per_row) =
            (self.block_bytes(), self.block_scales(), self.inputs.div_ceil(self.group));
        let (code, inputs) = (self.code, self.inputs);
        let (bytes, mut numbers) = (Parts::new(&mut self.codes), vec![0.0; blocks.len() * block_scales]);
        let (failure, all_tame) = (Mutex::new(None), AtomicBool::new(true));
        let scales = Parts::new(&mut numbers);
        pool.for_each(blocks.len(), &|index| {
            let block = blocks.start + index;
            let own = (block * LANES).max(all.start)..((block + 1) * LANES).min(all.end);
            let Codes { codes, scales: read } = match rows.read(own.start - all.start..own.end - all.start) {
                Ok(read) => read,
                Err(error) => return *failure.lock() = Some(error),
            };
            if !is_tame(code, &codes, &read) {
                all_tame.store(false, Ordering::Relaxed);
            }
            // SAFETY: a block is worked on once.
            let (bytes, scales) = unsafe {
                (bytes.part(block * block_bytes, block_bytes), scales.part(index * block_scales, block_scales))
            };
            let of_rows = codes.chunks_exact(inputs).zip(read.chunks_exact(per_row));
            for (lane, (codes, read)) in own.map(|row| row % LANES).zip(of_rows) {
                write_codes(code, bytes, lane, codes);
                for (scales, scale) in scales.chunks_exact_mut(LANES).zip(read) {
                    scales[lane] = *scale;
                }
            }
        });
        self.is_tame &= all_tame.into_inner();
        self.put_scales(&all, &numbers);
        failure.into_inner().map_or(Ok(()), Err)
    }

    /// Keeps the scales of rows: of their blocks, those of their lanes.
    fn put_scales(&mut self, rows: &Range<usize>, numbers: &[f32]) {
        let (block_scales, first) = (self.block_scales(), rows.start / LANES);
        for row in rows.clone() {
            let (block, lane) = (row / LANES, row % LANES);
            for place in (lane..block_scales).step_by(LANES) {
                let scale = numbers[(block - first) * block_scales + place];
                match &mut self.scales {
                    Stored::F32(scales) => scales[block * block_scales + place] = scale,
                    Stored::Bf16(scales) => {
                        scales[block * block_scales + place] = bf16::from_f32(scale).to_bits();
                    }
                }
            }
        }
    }

    fn blocks(&self, range: Range<usize>) -> Blocks<'_> {
        let (bytes, scales) = (self.block_bytes(), self.block_scales());
        Blocks {
            code: self.code,
            codes: &self.codes[range.start * bytes..range.end * bytes],
            scales: self.scales.slice(range.start * scales..range.end * scales),
            depth: self.depth,
            group: self.group,
            is_rounded: self.is_rounded,
            is_tame: self.is_tame,
        }
    }

    /// Reads one row, as it is in the widened matrix.
    ///
    /// # Panics
    /// If there is no such row, or `row` has another length than `inputs`.
    pub(crate) fn read_row(&self, index: usize, row: &mut [f32]) {
        assert!(index < self.outputs, "{} rows", self.outputs);
        assert_eq!(row.len(), self.inputs, "a whole row");
        let block = self.blocks(index / LANES..index / LANES + 1);
        for (input, number) in row.iter_mut().enumerate() {
            let exact = block.number(index % LANES, input);
            *number = match self.precision {
                Precision::Bf16 => bf16::from_f32(exact).to_f32(),
                Precision::F32 => exact,
            };
        }
    }

    /// The matrix of the same numbers without codes.
    pub(crate) fn widened(&self, pool: &mut Pool) -> Result<Packed, WeightsError> {
        panels::packed(pool, self.precision, self.shape(), |index, row| self.read_row(index, row))
    }

    /// `out[r] (+)= matrix * input[r]` for every row of `input`.
    ///
    /// # Panics
    /// If shapes do not fit together.
    pub(crate) fn multiply(&self, processor: &mut Processor, input: &Operand, out: &mut States, accumulate: bool) {
        panels::multiply(processor, input, self, out, accumulate);
    }
}

impl Widen for Coded {
    fn shape(&self) -> [usize; 2] {
        [self.outputs, self.inputs]
    }

    fn precision(&self, _activations: Precision) -> Precision {
        self.precision
    }

    fn widen(&self, set: KernelSet, block: usize, panel: &mut Stored, part: Range<usize>) {
        unpack::widen(set, self.blocks(block..block + 1), panel, part);
    }

    #[cfg(target_arch = "x86_64")]
    unsafe fn multiply_few(&self, set: KernelSet, range: Range<usize>, rows: &OfRows<'_>, c: *mut f32) -> usize {
        if !self.is_tame || !x86::has(set) {
            return 0;
        }
        let blocks = self.blocks(range.clone());
        let done = FewRows::with(set, rows, self.depth, c, |rows| {
            // SAFETY: the caller has room for the products.
            unsafe { x86::times_few(set, &blocks, rows) };
        });
        if done { range.len() } else { 0 }
    }
}
