//! Rows that go into packed matrices, and come out of them.
//!
//! Rows in the precision of a matrix are packed as they are stored, others are widened and rounded.

use std::ops::Range;

use parking_lot::Mutex;

use super::{
    LANES, Pool,
    packed::{Packed, rounded},
    pages::Stored,
    parts::Parts,
    units::{Unit, pack, unpack},
};
use crate::engine::{
    WeightDtype,
    native::weights::{Rows, StoredRows, WeightsError},
};

/// Bytes of rows that one thread packs at a time: they stay in its cache.
const PART_BYTES: usize = 128 << 10;
/// Numbers that one thread exchanges at a time.
const PART_PLACES: usize = 16 << 10;

impl Packed {
    fn block_units(&self) -> usize {
        self.block_len() * self.dtype().size() / size_of::<Unit>()
    }

    fn row_bytes(&self) -> usize {
        self.inputs * self.dtype().size()
    }

    fn dtype(&self) -> WeightDtype {
        match self.numbers {
            Stored::Bf16(_) => WeightDtype::Bf16,
            Stored::F32(_) => WeightDtype::F32,
        }
    }

    /// Overwrites rows of the unpacked matrix, from `first` on, with all of `rows`; rounds to the nearest even.
    ///
    /// # Panics
    /// If the rows have another length, or go beyond the last one.
    pub(crate) fn write_rows(&mut self, pool: &mut Pool, first: usize, rows: &dyn Rows) -> Result<(), WeightsError> {
        assert_eq!(rows.columns(), self.inputs, "rows of as many numbers");
        assert!(first + rows.rows() <= self.outputs, "{} rows", self.outputs);
        match rows.stored() {
            Some(stored) if stored.dtype() == self.dtype() => {
                self.write_stored(pool, first..first + rows.rows(), stored)
            }
            _ => self.write_widened(pool, first, rows),
        }
    }

    /// Overwrites rows with those that have the precision of the matrix already.
    fn write_stored(
        &mut self,
        pool: &mut Pool,
        rows: Range<usize>,
        stored: &dyn StoredRows,
    ) -> Result<(), WeightsError> {
        let (row_bytes, block_units) = (self.row_bytes(), self.block_units());
        let blocks = rows.start / LANES..rows.end.div_ceil(LANES);
        let step = (PART_BYTES / (LANES * row_bytes).max(1)).max(1);
        let (failure, buffers) = (Mutex::new(None), Mutex::new(Vec::new()));
        let units = Parts::new(self.numbers.units_mut());
        pool.for_each(blocks.len().div_ceil(step), &|index| {
            let first = blocks.start + index * step;
            let blocks = first..blocks.end.min(first + step);
            let part = (blocks.start * LANES).max(rows.start)..(blocks.end * LANES).min(rows.end);
            let mut buffer = buffers.lock().pop().unwrap_or_default();
            match stored.bytes(part.start - rows.start..part.end - rows.start, &mut buffer) {
                Err(error) => *failure.lock() = Some(error),
                Ok(bytes) => blocks.for_each(|block| {
                    let own = (block * LANES).max(part.start)..((block + 1) * LANES).min(part.end);
                    let bytes = &bytes[(own.start - part.start) * row_bytes..(own.end - part.start) * row_bytes];
                    // SAFETY: a block is worked on once.
                    let packed = unsafe { units.part(block * block_units, block_units) };
                    pack(packed, own.start % LANES, row_bytes, bytes);
                }),
            }
            buffers.lock().push(buffer);
        });
        failure.into_inner().map_or(Ok(()), Err)
    }

    /// Overwrites rows with those that come in another precision, rounded.
    fn write_widened(&mut self, pool: &mut Pool, first: usize, rows: &dyn Rows) -> Result<(), WeightsError> {
        let (inputs, block_len, count) = (self.inputs, self.block_len(), rows.rows());
        let blocks = first / LANES..(first + count).div_ceil(LANES);
        let failure = Mutex::new(None);
        let numbers = NumbersOf::new(&mut self.numbers);
        pool.for_each(blocks.len(), &|index| {
            let block = blocks.start + index;
            let range = (block * LANES).max(first)..((block + 1) * LANES).min(first + count);
            let mut values = Vec::with_capacity(range.len() * inputs);
            if let Err(error) = rows.read(range.start - first..range.end - first, &mut values) {
                *failure.lock() = Some(error);
                return;
            }
            let lanes = range.map(|row| row % LANES);
            // SAFETY: a block is worked on once.
            unsafe { numbers.pack(block * block_len, block_len, lanes.zip(values.chunks_exact(inputs))) };
        });
        failure.into_inner().map_or(Ok(()), Err)
    }

    /// Reads rows of the unpacked matrix, as safetensors files store them.
    ///
    /// # Panics
    /// If there are no such rows, or `out` has another length than they.
    pub(crate) fn read_rows(&self, pool: &mut Pool, rows: Range<usize>, out: &mut [u8]) {
        let (row_bytes, block_units) = (self.row_bytes(), self.block_units());
        assert!(rows.end <= self.outputs, "{} rows", self.outputs);
        assert_eq!(out.len(), rows.len() * row_bytes, "whole rows");
        let (mut parts, mut rest, mut row) = (Vec::new(), out, rows.start);
        while row < rows.end {
            let end = ((row / LANES + 1) * LANES).min(rows.end);
            let (part, more) = rest.split_at_mut((end - row) * row_bytes);
            parts.push((row, part));
            (rest, row) = (more, end);
        }
        let units = self.numbers.units();
        pool.for_each_mut(&mut parts, &|_, (row, out)| {
            let block = &units[*row / LANES * block_units..][..block_units];
            unpack(block, *row % LANES, row_bytes, out);
        });
    }

    /// Exchanges numbers of the unpacked matrix with those that are given: the places are counted row by row, from the
    /// beginning of row `first` on. Whoever calls it again with the same arguments has everything as it was.
    ///
    /// # Panics
    /// If the places do not ascend, or there are no such.
    pub(crate) fn exchange(&mut self, pool: &mut Pool, first: usize, places: &[u32], numbers: &mut [u8]) {
        let (size, inputs, block_units) = (self.dtype().size(), self.inputs, self.block_units());
        assert!(places.is_sorted_by(|one, next| one < next), "places ascend");
        let count = (self.outputs - first) * inputs;
        assert!(places.last().is_none_or(|last| (*last as usize) < count), "{count} numbers");
        let of_a_unit = size_of::<Unit>() / size;
        let mut parts: Vec<(&[u32], &mut [u8])> =
            places.chunks(PART_PLACES).zip(numbers.chunks_mut(PART_PLACES * size)).collect();
        let bytes = Parts::new(self.numbers.units_mut().as_flattened_mut());
        pool.for_each_mut(&mut parts, &|_, (places, numbers)| {
            for (place, number) in places.iter().zip(numbers.chunks_exact_mut(size)) {
                let (row, column) = (first + *place as usize / inputs, *place as usize % inputs);
                let unit = row / LANES * block_units + column / of_a_unit * LANES + row % LANES;
                // SAFETY: as the places ascend, no number is worked on twice.
                let held = unsafe { bytes.part(unit * size_of::<Unit>() + column % of_a_unit * size, size) };
                held.swap_with_slice(number);
            }
        });
    }
}

/// Packed numbers, of which several threads write different blocks.
enum NumbersOf<'a> {
    Bf16(Parts<'a, u16>),
    F32(Parts<'a, f32>),
}

impl<'a> NumbersOf<'a> {
    fn new(numbers: &'a mut Stored) -> Self {
        match numbers {
            Stored::Bf16(numbers) => Self::Bf16(Parts::new(numbers)),
            Stored::F32(numbers) => Self::F32(Parts::new(numbers)),
        }
    }

    /// # Safety
    /// No two threads write the same block.
    unsafe fn pack<'r>(&self, start: usize, len: usize, rows: impl Iterator<Item = (usize, &'r [f32])>) {
        match self {
            Self::Bf16(parts) => {
                // SAFETY: the caller writes no block on two threads.
                let packed = unsafe { parts.part(start, len) };
                for (lane, values) in rows {
                    for (lanes, pair) in packed.chunks_exact_mut(2 * LANES).zip(values.chunks(2)) {
                        for (half, value) in pair.iter().enumerate() {
                            lanes[2 * lane + half] = rounded(*value);
                        }
                    }
                }
            }
            Self::F32(parts) => {
                // SAFETY: as above.
                let packed = unsafe { parts.part(start, len) };
                for (lane, values) in rows {
                    for (lanes, value) in packed.chunks_exact_mut(LANES).zip(values) {
                        lanes[lane] = *value;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "what is written is read back as it was")]
mod tests {
    use super::*;
    use crate::engine::{WeightTensor, native::cpu::Precision};

    #[test]
    fn rows_that_were_written_are_read_back() {
        let mut pool = Pool::new(2).unwrap();
        for precision in [Precision::Bf16, Precision::F32] {
            for (outputs, inputs) in [(1, 1), (16, 32), (35, 7), (50, 33)] {
                let mut packed = Packed::zeros(precision, outputs, inputs);
                let value = |row: usize, column: usize| f32::from(u8::try_from((row * 7 + column) % 256).unwrap());
                for (first, count) in [(0, outputs / 2), (outputs / 2, outputs - outputs / 2)] {
                    let bytes = (first..first + count)
                        .flat_map(|row| (0..inputs).flat_map(move |column| value(row, column).to_le_bytes()))
                        .collect();
                    let (name, shape) = ("rows".to_owned(), vec![count, inputs]);
                    let rows = WeightTensor { name, shape, dtype: WeightDtype::F32, bytes };
                    packed.write_rows(&mut pool, first, &&rows).unwrap();
                }
                let mut row = vec![0.0; inputs];
                for index in 0..outputs {
                    packed.read_row(index, &mut row);
                    assert!(row.iter().enumerate().all(|(column, read)| *read == value(index, column)));
                }
            }
        }
    }

    /// Rows that hide how they are stored.
    struct Widened<'a>(&'a WeightTensor);

    impl Rows for Widened<'_> {
        fn rows(&self) -> usize {
            (&self.0).rows()
        }

        fn columns(&self) -> usize {
            (&self.0).columns()
        }

        fn read(&self, rows: Range<usize>, out: &mut Vec<f32>) -> Result<(), WeightsError> {
            (&self.0).read(rows, out)
        }
    }

    /// Rows of numbers that are all different.
    fn tensor(dtype: WeightDtype, rows: usize, columns: usize, begin: usize) -> WeightTensor {
        let numbers = (begin..begin + rows * columns).map(|number| u16::try_from(number % 32_000).unwrap());
        let bytes = match dtype {
            WeightDtype::F32 => numbers.flat_map(|number| f32::from(number).to_le_bytes()).collect(),
            _ => numbers.flat_map(|number| (number + 128).to_le_bytes()).collect(),
        };
        WeightTensor { name: "rows".to_owned(), dtype, shape: vec![rows, columns], bytes }
    }

    fn read(packed: &Packed, pool: &mut Pool) -> Vec<u8> {
        let mut bytes = vec![0; packed.outputs() * packed.row_bytes()];
        packed.read_rows(pool, 0..packed.outputs(), &mut bytes);
        bytes
    }

    #[test]
    fn rows_as_they_are_stored_are_packed_like_rows_that_were_widened() {
        let mut pool = Pool::new(2).unwrap();
        for (precision, dtype) in [(Precision::Bf16, WeightDtype::Bf16), (Precision::F32, WeightDtype::F32)] {
            for (outputs, inputs) in [(1, 1), (16, 32), (35, 7), (50, 33), (3_000, 70), (200, 640)] {
                for (first, count) in [(0, outputs), (outputs / 3, outputs / 2), (outputs - 1, 1), (outputs, 0)] {
                    let rows = tensor(dtype, count, inputs, 7);
                    let [mut direct, mut widened] = [(); 2].map(|()| Packed::zeros(precision, outputs, inputs));
                    direct.write_rows(&mut pool, first, &&rows).unwrap();
                    widened.write_rows(&mut pool, first, &Widened(&rows)).unwrap();
                    assert!(direct.numbers.units() == widened.numbers.units(), "{outputs} {inputs} {first} {count}");
                    let row = direct.row_bytes();
                    let mut expected = vec![0; outputs * row];
                    expected[first * row..(first + count) * row].copy_from_slice(&rows.bytes);
                    assert!(read(&direct, &mut pool) == expected);
                    let mut part = vec![0; count * row];
                    direct.read_rows(&mut pool, first..first + count, &mut part);
                    assert_eq!(part, rows.bytes);
                }
            }
        }
    }

    #[test]
    fn numbers_that_are_exchanged_are_those_of_the_rows_and_come_back() {
        let mut pool = Pool::new(2).unwrap();
        for (precision, dtype) in [(Precision::Bf16, WeightDtype::Bf16), (Precision::F32, WeightDtype::F32)] {
            for (outputs, inputs, first, step) in [(35, 7, 3, 1), (50, 33, 0, 5), (300, 700, 17, 3), (1, 1, 0, 1)] {
                let mut packed = Packed::zeros(precision, outputs, inputs);
                let rows = tensor(dtype, outputs, inputs, 1);
                packed.write_rows(&mut pool, 0, &&rows).unwrap();
                let count = (outputs - first) * inputs;
                let places: Vec<u32> = (0..count).step_by(step).map(|place| u32::try_from(place).unwrap()).collect();
                let given = tensor(dtype, 1, places.len(), 20_000).bytes.to_vec();
                let mut numbers = given.clone();
                packed.exchange(&mut pool, first, &places, &mut numbers);
                let mut expected = rows.bytes.to_vec();
                for (place, number) in places.iter().zip(given.chunks_exact(dtype.size())) {
                    let at = (first * inputs + *place as usize) * dtype.size();
                    expected[at..at + number.len()].copy_from_slice(number);
                }
                assert!(read(&packed, &mut pool) == expected);
                packed.exchange(&mut pool, first, &places, &mut numbers);
                assert_eq!(numbers, given);
                assert!(read(&packed, &mut pool) == rows.bytes);
            }
        }
    }
}
