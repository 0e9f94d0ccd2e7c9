//! What goes from the host to a device, and back.

use candle_core::{Device, Result, Tensor, WithDType};

/// All numbers of a part of a tensor, row by row.
///
/// candle brings the whole memory behind a part, however small the part is: all rows of the largest step so far, or a whole
/// matrix. So the part goes by itself.
pub(super) fn numbers_of<T: WithDType>(part: &Tensor) -> Result<Vec<T>> {
    #[cfg(feature = "cuda")]
    if part.device().is_cuda() {
        return super::kernels::landed(part);
    }
    part.force_contiguous()?.flatten_all()?.to_vec1()
}

/// All numbers of a row.
pub(super) fn row_of(rows: &Tensor, row: usize) -> Result<Vec<f32>> {
    numbers_of(&rows.narrow(0, row, 1)?)
}

/// Overwrites all numbers of a tensor, row by row.
pub(super) fn send<T: WithDType>(numbers: &[T], to: &Tensor) -> Result<()> {
    #[cfg(feature = "cuda")]
    if to.device().is_cuda() {
        return super::kernels::send(numbers, to);
    }
    to.slice_set(&Tensor::from_slice(numbers, to.shape(), to.device())?, 0, 0)
}

/// Rows of as many numbers as those of a tensor have, on its device.
pub(super) fn sent(numbers: &[f32], like: &Tensor) -> Result<Tensor> {
    let columns = like.dim(1)?;
    Tensor::from_slice(numbers, (numbers.len() / columns, columns), like.device())
}

/// Numbers of rows, on the device.
pub(super) fn picked(rows: impl Iterator<Item = usize>, device: &Device) -> Result<Tensor> {
    let rows: Vec<u32> = rows.map(|row| u32::try_from(row).expect("a batch has fewer rows")).collect();
    Tensor::new(rows, device)
}

#[cfg(test)]
mod tests {
    use candle_core::DType;

    use super::{super::tests::test_device, *};

    #[test]
    fn a_part_comes_alone_and_row_by_row() {
        let all = Tensor::arange(0_u32, 24, &test_device()).unwrap().reshape((4, 6)).unwrap();
        let part = all.narrow(0, 1, 2).unwrap().narrow(1, 2, 3).unwrap();
        assert_eq!(numbers_of::<u32>(&part).unwrap(), [8, 9, 10, 14, 15, 16]);
        let rows = all.narrow(0, 3, 1).unwrap().to_dtype(DType::F32).unwrap();
        assert_eq!(numbers_of::<f32>(&rows).unwrap(), [18.0, 19.0, 20.0, 21.0, 22.0, 23.0]);
    }
}
