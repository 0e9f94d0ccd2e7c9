//! Matrix products, with sums and results in f32.
//!
//! On CUDA cuBLAS computes them: it takes bf16, sums in f32 and stores f32, so that nothing is rounded between a product
//! and the residual stream. Elsewhere numbers are widened before they are multiplied, which is the same arithmetic in
//! another order.

use candle_core::{DType, Device, Result, Tensor};

use super::host;

/// `matrix * row` for every row of `input`, written to `out` or added to it.
///
/// `input` is `[rows, inputs]`, `matrix` is `[outputs, inputs]`, `out` is `[rows, outputs]` in f32.
pub(super) fn multiply(input: &Tensor, matrix: &Tensor, out: &Tensor, accumulate: bool) -> Result<()> {
    #[cfg(feature = "cuda")]
    if input.device().is_cuda() {
        return super::kernels::multiply(input, matrix, out, accumulate);
    }
    let product = widened(input)?.matmul(&widened(matrix)?.t()?)?;
    let product = if accumulate { (out + product)? } else { product };
    out.slice_set(&product, 0, 0)
}

/// The same product in tiles of `tile` rows, the last filled up with zeros: every row has the bits that it has alone.
///
/// Libraries choose their order of summation by the shape of a product. Here there is one shape.
pub(super) fn multiply_in_tiles(input: &Tensor, matrix: &Tensor, tile: usize) -> Result<Tensor> {
    let (rows, outputs) = (input.dim(0)?, matrix.dim(0)?);
    let padded = rows.next_multiple_of(tile);
    let input = padded_rows(input, padded)?;
    let out = Tensor::zeros((padded, outputs), DType::F32, input.device())?;
    for first in (0..padded).step_by(tile) {
        multiply(&input.narrow(0, first, tile)?, matrix, &out.narrow(0, first, tile)?, false)?;
    }
    out.narrow(0, 0, rows)
}

/// Whether a row has the same bits at every place of a tile. [`multiply_in_tiles`] needs it: a library may split the sums of
/// some tiles of its own and not of others, by what is left over for the last units of a device.
///
/// Takes a row of made-up numbers, as one of a prompt may be zero throughout.
pub(super) fn has_equal_places(matrix: &Tensor, tile: usize) -> Result<bool> {
    let (outputs, inputs) = matrix.dims2()?;
    let row: Vec<f32> = (0..inputs).map(made_up).collect();
    let rows = Tensor::from_vec(row.repeat(tile), (tile, inputs), &Device::Cpu)?.to_dtype(matrix.dtype())?;
    let out = Tensor::zeros((tile, outputs), DType::F32, matrix.device())?;
    multiply(&rows.to_device(matrix.device())?, matrix, &out, false)?;
    Ok(have_equal_bits(&host::numbers_of(&out)?, outputs))
}

/// A number between -0.5 and 0.5.
#[expect(clippy::cast_precision_loss, reason = "a small number")]
fn made_up(index: usize) -> f32 {
    ((index * 7919) % 1009) as f32 / 1009.0 - 0.5
}

fn have_equal_bits(rows: &[f32], columns: usize) -> bool {
    let (first, others) = rows.split_at(columns);
    others.chunks(columns).all(|row| row.iter().zip(first).all(|(a, b)| a.to_bits() == b.to_bits()))
}

/// `left * rightᵀ` of each batch in f32: `[batches, rows, inputs]` and `[batches, outputs, inputs]`.
pub(super) fn batched_transposed(left: &Tensor, right: &Tensor) -> Result<Tensor> {
    batched(left, &right.transpose(1, 2)?)
}

/// `left * right` of each batch in f32: `[batches, rows, inputs]` and `[batches, inputs, outputs]`.
pub(super) fn batched(left: &Tensor, right: &Tensor) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if left.device().is_cuda() {
        return super::kernels::batched(left, right);
    }
    widened(left)?.contiguous()?.matmul(&widened(right)?.contiguous()?)
}

/// The input with `rows` rows, of which those that it does not have are zero.
pub(super) fn padded_rows(input: &Tensor, rows: usize) -> Result<Tensor> {
    match rows - input.dim(0)? {
        0 => input.contiguous(),
        missing => input.pad_with_zeros(0, 0, missing)?.contiguous(),
    }
}

fn widened(tensor: &Tensor) -> Result<Tensor> {
    tensor.to_dtype(DType::F32)
}

#[cfg(test)]
mod tests {
    use super::{super::tests::test_device, *};

    fn random(rows: usize, columns: usize, dtype: DType) -> Tensor {
        let numbers: Vec<f32> = (0..rows * columns).map(made_up).collect();
        Tensor::from_vec(numbers, (rows, columns), &test_device()).unwrap().to_dtype(dtype).unwrap()
    }

    fn bits(tensor: &Tensor) -> Vec<u32> {
        tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
    }

    #[test]
    fn products_of_bf16_are_not_rounded_and_add_up() {
        let (input, matrix) = (random(3, 64, DType::BF16), random(5, 64, DType::BF16));
        let out = Tensor::ones((3, 5), DType::F32, &test_device()).unwrap();
        multiply(&input, &matrix, &out, true).unwrap();
        let (wide, weights) = (input.to_dtype(DType::F32).unwrap(), matrix.to_dtype(DType::F32).unwrap());
        let (wide, weights) = (wide.to_vec2::<f32>().unwrap(), weights.to_vec2::<f32>().unwrap());
        for (row, found) in wide.iter().zip(out.to_vec2::<f32>().unwrap()) {
            for (weights, found) in weights.iter().zip(found) {
                let exact: f64 = row.iter().zip(weights).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                assert!((f64::from(found) - exact - 1.0).abs() < 1e-5, "{found} is not {exact} + 1");
            }
        }
    }

    #[test]
    fn a_row_has_the_same_bits_in_every_tile() {
        let (input, matrix) = (random(21, 96, DType::F32), random(40, 96, DType::F32));
        let all = multiply_in_tiles(&input, &matrix, 8).unwrap();
        for row in 0..21 {
            let alone = multiply_in_tiles(&input.narrow(0, row, 1).unwrap(), &matrix, 8).unwrap();
            assert_eq!(bits(&alone), bits(&all.narrow(0, row, 1).unwrap()), "row {row}");
        }
    }

    #[test]
    fn a_row_that_has_other_bits_at_another_place_is_noticed() {
        for (matrix, tile) in [(random(40, 96, DType::F32), 8), (random(7, 33, DType::BF16), 128)] {
            assert!(has_equal_places(&matrix, tile).unwrap());
        }
        let rows = [0.5, f32::NAN, 0.5, f32::NAN, 0.5, f32::NAN];
        assert!(have_equal_bits(&rows, 2));
        for place in 2..6 {
            let mut other = rows;
            other[place] = f32::from_bits(other[place].to_bits() + 1);
            assert!(!have_equal_bits(&other, 2), "{place}");
        }
    }

    #[test]
    fn products_of_views_are_those_of_their_copies() {
        let left = random(2 * 3, 4, DType::F32).reshape((2, 3, 4)).unwrap();
        // Keys as they are gathered: positions first.
        let right = random(5 * 2, 4, DType::F32).reshape((5, 2, 4)).unwrap().transpose(0, 1).unwrap();
        let expected =
            left.matmul(&right.contiguous().unwrap().transpose(1, 2).unwrap().contiguous().unwrap()).unwrap();
        assert_eq!(bits(&batched_transposed(&left, &right).unwrap()), bits(&expected));
    }
}
