//! Products by cuBLAS: bf16 or f32 in, sums and results in f32.

use std::ffi::{c_int, c_longlong, c_void};

use candle_core::{
    DType, Result, Tensor, bail,
    cuda_backend::{
        WrapErr,
        cudarc::cublas::{result, sys},
    },
};

use super::{address, device, memory::unwritten, rows_of, sums_of};

/// `matrix * row` for every row of `input`, written to `out` or added to it.
pub(in super::super) fn multiply(input: &Tensor, matrix: &Tensor, out: &Tensor, accumulate: bool) -> Result<()> {
    let (row, rows, inputs) = rows_of(input)?;
    let (weights, outputs, columns) = rows_of(matrix)?;
    let (to, out_rows, out_columns) = sums_of(out)?;
    if columns != inputs || (out_rows, out_columns) != (rows, outputs) {
        bail!("a product of {rows} rows of {inputs} and {outputs} of {columns} to {out_rows} of {out_columns}");
    }
    let product = Product {
        // cuBLAS has columns where we have rows, so it computes the transpose.
        operation: sys::cublasOperation_t::CUBLAS_OP_T,
        left: Side { address: weights, leading: inputs, batch: 0 },
        right: Side { address: row, leading: inputs, batch: 0 },
        out: Side { address: to, leading: outputs, batch: 0 },
        rows: outputs,
        columns: rows,
        depth: inputs,
        batches: 1,
        dtype: same_type(input, matrix)?,
        beta: if accumulate { 1.0 } else { 0.0 },
    };
    // SAFETY: none of the three has gaps between its rows, and their shapes were just compared: `outputs` rows of `inputs`
    // numbers and `rows` of as many, both of the type, and `rows` rows of `outputs` numbers of f32.
    unsafe { product.run(input) }
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
    // SAFETY: the product adds to nothing, and writes every number.
    let out = unsafe { unwritten((batches, rows, outputs), DType::F32, left.device())? };
    let product = Product {
        operation,
        left: Side { address: address(right)?, leading, batch: right.stride()[0] },
        right: Side { address: address(&left)?, leading: inputs, batch: rows * inputs },
        out: Side { address: address(&out)?, leading: outputs, batch: rows * outputs },
        rows: outputs,
        columns: rows,
        depth: inputs,
        batches,
        dtype: same_type(&left, right)?,
        beta: 0.0,
    };
    // SAFETY: `left` and `out` have no gaps, `right` has the strides that it says, and the shapes were just compared.
    unsafe { product.run(&left)? };
    Ok(out)
}

fn same_type(left: &Tensor, right: &Tensor) -> Result<sys::cudaDataType_t> {
    match (left.dtype(), right.dtype()) {
        (DType::BF16, DType::BF16) => Ok(sys::cudaDataType_t::CUDA_R_16BF),
        (DType::F32, DType::F32) => Ok(sys::cudaDataType_t::CUDA_R_32F),
        (left, right) => bail!("a product of {left:?} and {right:?}"),
    }
}

/// One of the three matrices of a product, as cuBLAS sees it.
struct Side {
    address: u64,
    /// Numbers from one column to the next.
    leading: usize,
    /// Numbers from one batch to the next.
    batch: usize,
}

/// A product as cuBLAS sees it.
struct Product {
    /// How `left` is read: as it is, or transposed.
    operation: sys::cublasOperation_t,
    left: Side,
    right: Side,
    out: Side,
    /// The rows of the result.
    rows: usize,
    columns: usize,
    /// How many products are summed for each number of the result.
    depth: usize,
    batches: usize,
    /// The type of the numbers of `left` and `right`.
    dtype: sys::cudaDataType_t,
    beta: f32,
}

impl Product {
    /// Computes it on the device of `on`.
    ///
    /// # Safety
    /// The addresses are of that device's memory, which nobody frees before its stream has come past this product:
    /// numbers of `dtype` on the left and the right, of f32 in the result, as many as shape and distances span.
    unsafe fn run(self, on: &Tensor) -> Result<()> {
        let Self { operation, left, right, out, rows, columns, depth, batches, dtype, beta } = self;
        if rows == 0 || columns == 0 || batches == 0 {
            return Ok(());
        }
        let alpha = 1.0_f32;
        let blas = device(on)?.cublas_handle();
        let int = |number: usize| c_int::try_from(number).map_err(candle_core::Error::wrap);
        let long = |number: usize| c_longlong::try_from(number).map_err(candle_core::Error::wrap);
        // SAFETY: the caller answers for the addresses and for what the shape spans; the handle is that of the device, works
        // on its stream, and reads the two factors from this thread's memory before the call returns.
        unsafe {
            result::gemm_strided_batched_ex(
                *blas.handle(),
                operation,
                sys::cublasOperation_t::CUBLAS_OP_N,
                int(rows)?,
                int(columns)?,
                int(depth)?,
                (&raw const alpha).cast::<c_void>(),
                left.address as *const c_void,
                dtype,
                int(left.leading)?,
                long(left.batch)?,
                right.address as *const c_void,
                dtype,
                int(right.leading)?,
                long(right.batch)?,
                (&raw const beta).cast::<c_void>(),
                out.address as *mut c_void,
                sys::cudaDataType_t::CUDA_R_32F,
                int(out.leading)?,
                long(out.batch)?,
                int(batches)?,
                sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        }
        .w()
    }
}
