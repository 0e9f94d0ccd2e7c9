//! Matrices as the kernels read them: weights in blocks of 16 columns, activations in rows.

use std::ops::Range;

use half::bf16;

use super::{KernelSet, LANES, Pool, instructions::Vectorized, pages::Stored, parts::Parts, precision::Precision};
use crate::engine::native::backend::NoRoom;

/// Numbers of either precision.
#[derive(Debug, Clone)]
pub(crate) enum Numbers {
    /// The bits of bfloat16.
    Bf16(Vec<u16>),
    /// float32.
    F32(Vec<f32>),
}

impl Numbers {
    pub(super) fn zeros(precision: Precision, len: usize) -> Self {
        match precision {
            Precision::Bf16 => Self::Bf16(vec![0; len]),
            Precision::F32 => Self::F32(vec![0.0; len]),
        }
    }

    /// Makes them `len` zeros of this precision.
    pub(super) fn refill(&mut self, precision: Precision, len: usize) {
        self.make_room(precision, 0);
        self.resize(0);
        self.resize(len);
    }

    /// Makes them at least `len` numbers of this precision; those that are there stay.
    pub(super) fn make_room(&mut self, precision: Precision, len: usize) {
        match (&mut *self, precision) {
            (Self::Bf16(numbers), Precision::Bf16) => numbers.resize(numbers.len().max(len), 0),
            (Self::F32(numbers), Precision::F32) => numbers.resize(numbers.len().max(len), 0.0),
            _ => *self = Self::zeros(precision, len),
        }
    }

    pub(super) fn resize(&mut self, len: usize) {
        match self {
            Self::Bf16(numbers) => numbers.resize(len, 0),
            Self::F32(numbers) => numbers.resize(len, 0.0),
        }
    }
}

/// Numbers, of which several threads write different parts.
pub(super) enum NumberParts<'a> {
    Bf16(Parts<'a, u16>),
    F32(Parts<'a, f32>),
}

impl<'a> NumberParts<'a> {
    pub(super) fn new(numbers: &'a mut Numbers) -> Self {
        match numbers {
            Numbers::Bf16(numbers) => Self::Bf16(Parts::new(numbers)),
            Numbers::F32(numbers) => Self::F32(Parts::new(numbers)),
        }
    }

    /// Writes `values` from a place on, rounded to the numbers' precision.
    ///
    /// # Safety
    /// No two threads write the same place.
    pub(super) unsafe fn write(&self, set: KernelSet, start: usize, values: &[f32]) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Bf16(parts) => set.vectorize(RoundToBf16 { from: values, to: parts.part(start, values.len()) }),
                Self::F32(parts) => parts.part(start, values.len()).copy_from_slice(values),
            }
        }
    }
}

impl Numbers {
    /// Writes `values` from a place on, rounded to the numbers' precision.
    pub(super) fn write(&mut self, set: KernelSet, start: usize, values: &[f32]) {
        // SAFETY: nobody else has them.
        unsafe { NumberParts::new(self).write(set, start, values) };
    }
}

/// The left side of a product: `rows` of `columns` numbers, each row padded with zeros to `stride`.
#[derive(Debug, Clone)]
pub(crate) struct Operand {
    pub(super) numbers: Numbers,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) stride: usize,
}

impl Operand {
    /// No rows yet.
    pub(crate) fn new(precision: Precision) -> Self {
        Self { numbers: Numbers::zeros(precision, 0), rows: 0, columns: 0, stride: 0 }
    }

    /// Makes room for `rows` of `columns` numbers, all of which have to be written; the padding is zero.
    pub(crate) fn reshape(&mut self, rows: usize, columns: usize) {
        let stride = self.precision().row_stride(columns);
        if stride != self.stride || columns != self.columns {
            // What was a row's number may be padding now.
            self.numbers.resize(0);
        }
        self.numbers.resize(rows * stride);
        (self.rows, self.columns, self.stride) = (rows, columns, stride);
    }

    /// The precision of its numbers.
    pub(crate) fn precision(&self) -> Precision {
        match self.numbers {
            Numbers::Bf16(_) => Precision::Bf16,
            Numbers::F32(_) => Precision::F32,
        }
    }

    /// The number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Copies the rows of `source` that `picks` lists, in its order.
    pub(crate) fn gather(&mut self, source: &Self, picks: &[usize]) {
        self.reshape(picks.len(), source.columns);
        let stride = self.stride;
        match (&mut self.numbers, &source.numbers) {
            (Numbers::Bf16(to), Numbers::Bf16(from)) => copy_rows(to, from, stride, picks),
            (Numbers::F32(to), Numbers::F32(from)) => copy_rows(to, from, stride, picks),
            _ => panic!("both operands have the backend's precision"),
        }
    }

    /// Copies some columns of every row of `source`.
    pub(crate) fn pick(&mut self, source: &Self, columns: Range<usize>) {
        assert!(columns.end <= source.columns, "the columns are there");
        self.reshape(source.rows, columns.len());
        let (stride, width) = (self.stride, source.stride);
        match (&mut self.numbers, &source.numbers) {
            (Numbers::Bf16(to), Numbers::Bf16(from)) => copy_columns(to, stride, from, width, &columns),
            (Numbers::F32(to), Numbers::F32(from)) => copy_columns(to, stride, from, width, &columns),
            _ => panic!("both operands have the backend's precision"),
        }
    }
}

fn copy_columns<T: Copy>(to: &mut [T], stride: usize, from: &[T], width: usize, columns: &Range<usize>) {
    for (to, from) in to.chunks_exact_mut(stride).zip(from.chunks_exact(width)) {
        to[..columns.len()].copy_from_slice(&from[columns.clone()]);
    }
}

fn copy_rows<T: Copy>(to: &mut [T], from: &[T], stride: usize, picks: &[usize]) {
    for (row, &pick) in to.chunks_exact_mut(stride).zip(picks) {
        row.copy_from_slice(&from[pick * stride..][..stride]);
    }
}

/// The right side of a product: a weight matrix of `outputs` rows of `inputs` numbers, transposed and packed.
///
/// Blocks of 16 outputs; within a block, inputs in order: 16 numbers for each input (f32), or 16 pairs for each two
/// (bf16, which is the order that tiles and dot products of pairs read). Padding is zero.
#[derive(Debug)]
pub(crate) struct Packed {
    pub(super) numbers: Stored,
    pub(super) outputs: usize,
    pub(super) inputs: usize,
    /// `inputs`, padded to the precision's step.
    pub(super) depth: usize,
}

impl Packed {
    /// A matrix of zeros that is so small that there is room for it.
    pub(crate) fn zeros(precision: Precision, outputs: usize, inputs: usize) -> Self {
        Self::try_zeros(precision, outputs, inputs).expect("room for a weight")
    }

    /// A matrix of zeros to be filled by `write_rows`, if the system has addresses for it.
    pub(crate) fn try_zeros(precision: Precision, outputs: usize, inputs: usize) -> Result<Self, NoRoom> {
        let depth = inputs.checked_next_multiple_of(precision.step()).ok_or(NoRoom)?;
        let rows = outputs.checked_next_multiple_of(LANES).ok_or(NoRoom)?;
        let numbers = Stored::zeros(precision, rows.checked_mul(depth).ok_or(NoRoom)?)?;
        Ok(Self { numbers, outputs, inputs, depth })
    }

    /// The bytes of its numbers.
    pub(crate) fn bytes(&self) -> u64 {
        match &self.numbers {
            Stored::Bf16(numbers) => 2 * numbers.len() as u64,
            Stored::F32(numbers) => 4 * numbers.len() as u64,
        }
    }

    /// Another matrix of the same numbers.
    pub(crate) fn copy(&self, pool: &mut Pool) -> Result<Self, NoRoom> {
        let precision = match self.numbers {
            Stored::Bf16(_) => Precision::Bf16,
            Stored::F32(_) => Precision::F32,
        };
        let mut copy = Self::try_zeros(precision, self.outputs, self.inputs)?;
        match (&mut copy.numbers, &self.numbers) {
            (Stored::Bf16(to), Stored::Bf16(from)) => copy_in_parts(pool, to, from),
            (Stored::F32(to), Stored::F32(from)) => copy_in_parts(pool, to, from),
            _ => unreachable!("both have the same precision"),
        }
        Ok(copy)
    }

    /// The number of rows of the unpacked matrix.
    pub(crate) fn outputs(&self) -> usize {
        self.outputs
    }

    /// The number of columns of the unpacked matrix.
    pub(crate) fn inputs(&self) -> usize {
        self.inputs
    }

    pub(super) fn block_len(&self) -> usize {
        LANES * self.depth
    }

    /// Reads one row of the unpacked matrix, as an embedding does.
    ///
    /// # Panics
    /// If there is no such row, or `row` has another length than `inputs`.
    pub(crate) fn read_row(&self, index: usize, row: &mut [f32]) {
        assert!(index < self.outputs, "{} rows", self.outputs);
        assert_eq!(row.len(), self.inputs, "a whole row");
        let (start, lane) = (index / LANES * self.block_len(), index % LANES);
        match &self.numbers {
            Stored::Bf16(numbers) => {
                let block = &numbers[start..][..self.block_len()];
                for (input, value) in row.iter_mut().enumerate() {
                    *value = bf16::from_bits(block[input / 2 * 2 * LANES + 2 * lane + input % 2]).to_f32();
                }
            }
            Stored::F32(numbers) => {
                let block = &numbers[start..][..self.block_len()];
                for (value, lanes) in row.iter_mut().zip(block.chunks_exact(LANES)) {
                    *value = lanes[lane];
                }
            }
        }
    }
}

/// Copies numbers on all threads.
fn copy_in_parts<T: Copy + Send + Sync>(pool: &mut Pool, to: &mut [T], from: &[T]) {
    const PART: usize = 1 << 20;
    let mut parts: Vec<(&mut [T], &[T])> = to.chunks_mut(PART).zip(from.chunks(PART)).collect();
    pool.for_each_mut(&mut parts, &|_, (to, from)| to.copy_from_slice(from));
}

/// Rounds to bf16, to the nearest even; what is not finite stays so.
struct RoundToBf16<'a> {
    from: &'a [f32],
    to: &'a mut [u16],
}

impl Vectorized for RoundToBf16<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (to, from) in self.to.iter_mut().zip(self.from) {
            *to = rounded(*from);
        }
    }
}

/// The bits of the nearest bf16, the even one of two; branch-free, so that it is vectorised.
#[inline(always)]
pub(super) fn rounded(value: f32) -> u16 {
    let bits = value.to_bits();
    let nearest = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    // A NaN could round to infinity.
    let quiet = (bits >> 16) | 0x40;
    #[expect(clippy::cast_possible_truncation, reason = "the upper half was shifted down")]
    let half = if value.is_nan() { quiet } else { nearest } as u16;
    half
}

impl Operand {
    /// Writes one row, rounded to the operand's precision.
    pub(super) fn write_row(&mut self, row: usize, values: &[f32]) {
        self.numbers.write(KernelSet::PORTABLE, row * self.stride, values);
    }

    /// Reads one row.
    pub(super) fn read_row(&self, row: usize) -> Vec<f32> {
        let numbers = row * self.stride..row * self.stride + self.columns;
        match &self.numbers {
            Numbers::F32(all) => all[numbers].to_vec(),
            Numbers::Bf16(all) => all[numbers].iter().map(|bits| bf16::from_bits(*bits).to_f32()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_agrees_with_the_half_crate() {
        for bits in (0..=u32::MAX).step_by(9_973) {
            let value = f32::from_bits(bits);
            assert_eq!(rounded(value), bf16::from_f32(value).to_bits(), "{bits:x}");
        }
    }

    #[test]
    fn an_operand_that_changes_its_shape_has_zeros_for_padding() {
        let mut operand = Operand::new(Precision::Bf16);
        operand.reshape(2, 64);
        let Numbers::Bf16(numbers) = &mut operand.numbers else { unreachable!() };
        numbers.fill(1);
        operand.reshape(2, 33);
        let Numbers::Bf16(numbers) = &operand.numbers else { unreachable!() };
        assert!(numbers.iter().all(|bits| *bits == 0));
    }
}
