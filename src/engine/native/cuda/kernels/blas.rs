//! Products by cuBLAS: bf16 or f32 in, sums and results in f32.

use std::ffi::{c_int, c_longlong, c_void};

use candle_core::{
    DType, Result, Tensor, bail,
    cuda_backend::{
        WrapErr,
        cudarc::cublas::{result, sys},
    },
};

use super::{address, device, rows_of, sums_of};

/// `matrix * row` for every row of `input`, written to `out` or added to it.
pub(in super::super) fn multiply(input: &Tensor, matrix: &Tensor, out: &Tensor, accumulate: bool) -> Result<()> {
    let (row, rows, inputs) = rows_of(input)?;
    let (weights, outputs, columns) = rows_of(matrix)?;
    let (to, out_rows, out_columns) = sums_of(out)?;
    if columns != inputs || (out_rows, out_columns) != (rows, outputs) {
        bail!("a product of {rows} rows of {inputs} and {outputs} of {columns} to {out_rows} of {out_columns}");
    }
    let product = Product {
        // cuBLAS has columns where we have rows: it computes the transpose.
        left: (weights, sys::cublasOperation_t::CUBLAS_OP_T, inputs, 0),
        right: (row, inputs, 0),
        out: (to, outputs, 0),
        shape: (outputs, rows, inputs),
        batches: 1,
        dtype: same_type(input, matrix)?,
        beta: if accumulate { 1.0 } else { 0.0 },
    };
    product.run(input)
}

/// `left * right` of each batch; `right` may be a view whose last or last but one dimension is contiguous.
pub(in super::super) fn batched(left: &Tensor, right: &Tensor) -> Result<Tensor> {
    let left = left.contiguous()?;
    let (batches, rows, inputs) = left.dims3()?;
    let (right_batches, right_inputs, outputs) = right.dims3()?;
    if right_batches != batches || right_inputs != inputs {
        bail!("a product of {:?} and {:?}", left.shape(), right.shape());
    }
    let (operation, leading) = match *right.stride() {
        [_, leading, 1] => (sys::cublasOperation_t::CUBLAS_OP_N, leading),
        [_, 1, leading] => (sys::cublasOperation_t::CUBLAS_OP_T, leading),
        _ => bail!("a product with strides of {:?}", right.stride()),
    };
    let out = Tensor::zeros((batches, rows, outputs), DType::F32, left.device())?;
    let product = Product {
        left: (address(right)?, operation, leading, right.stride()[0]),
        right: (address(&left)?, inputs, rows * inputs),
        out: (address(&out)?, outputs, rows * outputs),
        shape: (outputs, rows, inputs),
        batches,
        dtype: same_type(&left, right)?,
        beta: 0.0,
    };
    product.run(&left)?;
    Ok(out)
}

fn same_type(left: &Tensor, right: &Tensor) -> Result<sys::cudaDataType_t> {
    match (left.dtype(), right.dtype()) {
        (DType::BF16, DType::BF16) => Ok(sys::cudaDataType_t::CUDA_R_16BF),
        (DType::F32, DType::F32) => Ok(sys::cudaDataType_t::CUDA_R_32F),
        (left, right) => bail!("a product of {left:?} and {right:?}"),
    }
}

/// A product as cuBLAS sees it: addresses, distances between columns, and distances between batches.
struct Product {
    left: (u64, sys::cublasOperation_t, usize, usize),
    right: (u64, usize, usize),
    out: (u64, usize, usize),
    /// Rows, columns, and what is summed over.
    shape: (usize, usize, usize),
    batches: usize,
    dtype: sys::cudaDataType_t,
    beta: f32,
}

impl Product {
    fn run(self, on: &Tensor) -> Result<()> {
        let Self { left, right, out, shape: (m, n, k), batches, dtype, beta } = self;
        if m == 0 || n == 0 || batches == 0 {
            return Ok(());
        }
        let alpha = 1.0_f32;
        let blas = device(on)?.cublas_handle();
        let int = |number: usize| c_int::try_from(number).map_err(candle_core::Error::wrap);
        let long = |number: usize| c_longlong::try_from(number).map_err(candle_core::Error::wrap);
        // SAFETY: the addresses are of tensors with as many numbers of these types as the shape has, which the callers
        // checked; the handle works on the stream of the device.
        unsafe {
            result::gemm_strided_batched_ex(
                *blas.handle(),
                left.1,
                sys::cublasOperation_t::CUBLAS_OP_N,
                int(m)?,
                int(n)?,
                int(k)?,
                (&raw const alpha).cast::<c_void>(),
                left.0 as *const c_void,
                dtype,
                int(left.2)?,
                long(left.3)?,
                right.0 as *const c_void,
                dtype,
                int(right.1)?,
                long(right.2)?,
                (&raw const beta).cast::<c_void>(),
                out.0 as *mut c_void,
                sys::cudaDataType_t::CUDA_R_32F,
                int(out.1)?,
                long(out.2)?,
                int(batches)?,
                sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        }
        .w()
    }
}
