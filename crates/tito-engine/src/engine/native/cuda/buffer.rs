//! Memory for rows that is kept from step to step.
//!
//! Owns shapes. Refuses arithmetic.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use candle_core::{DType, Device, Result, Tensor, WithDType};

use super::host;

/// Counts what is allocated for weights, caches and steps. Launches that were recorded name memory by its address, so they hold
/// as long as nothing is allocated.
#[derive(Debug, Clone, Default)]
pub(super) struct Allocations(Arc<AtomicU64>);

impl Allocations {
    /// One more.
    pub(super) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How many there were.
    #[cfg(feature = "cuda")]
    pub(super) fn so_far(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The device that tensors are on, and their type.
#[derive(Debug, Clone, Copy)]
pub(super) struct TensorKind<'a> {
    pub(super) device: &'a Device,
    pub(super) dtype: DType,
    pub(super) allocations: &'a Allocations,
}

/// Rows of numbers; their memory only grows.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    memory: Option<Tensor>,
    rows: Option<Tensor>,
}

impl Buffer {
    /// Makes room for rows; what they hold is left over from before.
    pub(super) fn reshape(&mut self, kind: TensorKind<'_>, rows: usize, columns: usize) -> Result<&Tensor> {
        let wanted = rows * columns;
        self.make_room(kind, wanted, wanted)?;
        let memory = self.memory.as_ref().expect("there is room");
        Ok(self.rows.insert(memory.narrow(0, 0, wanted)?.reshape((rows, columns))?))
    }

    /// Has memory for `wanted` numbers, and for `room` where there was less.
    fn make_room(
        &mut self,
        TensorKind { device, dtype, allocations }: TensorKind<'_>,
        wanted: usize,
        room: usize,
    ) -> Result<()> {
        self.rows = None;
        let fits = |memory: &Tensor| memory.elem_count() >= wanted && memory.dtype() == dtype;
        if self.memory.as_ref().is_none_or(|memory| !fits(memory)) {
            // The memory from before is freed first, so that there is room for its successor.
            self.memory = None;
            allocations.count();
            self.memory = Some(Tensor::zeros(room, dtype, device)?);
        }
        Ok(())
    }

    /// Room for so many numbers, which grows by leaps: what is told of a step gets longer with each step.
    pub(super) fn room(&mut self, kind: TensorKind<'_>, count: usize) -> Result<Tensor> {
        self.make_room(kind, count, count.next_power_of_two())?;
        self.memory.as_ref().expect("there is room").narrow(0, 0, count)
    }

    /// Writes these numbers, row by row.
    pub(super) fn write<T: WithDType>(
        &mut self,
        kind: TensorKind<'_>,
        numbers: &[T],
        (rows, columns): (usize, usize),
    ) -> Result<Tensor> {
        let rows = self.room(kind, numbers.len())?.reshape((rows, columns))?;
        host::send(numbers, &rows)?;
        Ok(rows)
    }

    /// All of the memory, if there is any.
    #[cfg(feature = "cuda")]
    pub(super) fn memory(&self) -> Option<&Tensor> {
        self.memory.as_ref()
    }

    /// The rows.
    pub(super) fn tensor(&self) -> &Tensor {
        self.rows.as_ref().expect("rows are written before they are read")
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::test_device, *};

    #[test]
    fn memory_is_kept_while_it_is_large_enough() {
        let mut buffer = Buffer::default();
        let kind = TensorKind { device: &test_device(), dtype: DType::F32, allocations: &Allocations::default() };
        buffer
            .reshape(kind, 4, 8)
            .unwrap()
            .slice_set(&Tensor::ones((4, 8), DType::F32, &test_device()).unwrap(), 0, 0)
            .unwrap();
        assert_eq!(buffer.reshape(kind, 2, 3).unwrap().dims(), [2, 3]);
        assert_eq!(buffer.tensor().to_vec2::<f32>().unwrap(), [[1.0; 3]; 2], "the same memory");
        assert_eq!(buffer.reshape(kind, 5, 8).unwrap().to_vec2::<f32>().unwrap(), [[0.0; 8]; 5], "new memory");
    }

    #[test]
    fn what_is_written_takes_new_memory_in_leaps_only() {
        let (device, allocations, mut buffer) = (test_device(), Allocations::default(), Buffer::default());
        let kind = TensorKind { device: &device, dtype: DType::U32, allocations: &allocations };
        let made = || allocations.0.load(Ordering::Relaxed);
        for (count, expected) in [(5, 1), (8, 1), (3, 1), (9, 2), (16, 2)] {
            let numbers: Vec<u32> = (0..count).collect();
            let written = buffer.write(kind, &numbers, (1, numbers.len())).unwrap();
            assert_eq!((written.to_vec2::<u32>().unwrap(), made()), (vec![numbers], expected));
        }
    }
}
