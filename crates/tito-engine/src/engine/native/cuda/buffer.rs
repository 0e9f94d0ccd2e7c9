//! Memory for rows that is kept from step to step.
//!
//! Owns shapes. Refuses arithmetic.

use candle_core::{DType, Device, Result, Tensor};

/// The device that tensors are on, and their type.
#[derive(Debug, Clone, Copy)]
pub(super) struct TensorKind<'a> {
    pub(super) device: &'a Device,
    pub(super) dtype: DType,
}

/// Rows of numbers; their memory only grows.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    memory: Option<Tensor>,
    rows: Option<Tensor>,
}

impl Buffer {
    /// Makes room for rows; what they hold is left over from before.
    pub(super) fn reshape(
        &mut self,
        TensorKind { device, dtype }: TensorKind<'_>,
        rows: usize,
        columns: usize,
    ) -> Result<&Tensor> {
        let wanted = rows * columns;
        let fits = |memory: &Tensor| memory.elem_count() >= wanted && memory.dtype() == dtype;
        let kept = self.memory.take().filter(fits);
        self.rows = None;
        let memory = self.memory.insert(match kept {
            Some(memory) => memory,
            // The memory from before is freed first, so that there is room for its successor.
            None => Tensor::zeros(wanted, dtype, device)?,
        });
        Ok(self.rows.insert(memory.narrow(0, 0, wanted)?.reshape((rows, columns))?))
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
        let kind = TensorKind { device: &test_device(), dtype: DType::F32 };
        buffer
            .reshape(kind, 4, 8)
            .unwrap()
            .slice_set(&Tensor::ones((4, 8), DType::F32, &test_device()).unwrap(), 0, 0)
            .unwrap();
        assert_eq!(buffer.reshape(kind, 2, 3).unwrap().dims(), [2, 3]);
        assert_eq!(buffer.tensor().to_vec2::<f32>().unwrap(), [[1.0; 3]; 2], "the same memory");
        assert_eq!(buffer.reshape(kind, 5, 8).unwrap().to_vec2::<f32>().unwrap(), [[0.0; 8]; 5], "new memory");
    }
}
