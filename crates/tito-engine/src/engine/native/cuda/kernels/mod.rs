//! What runs on CUDA only: cuBLAS, the engine's own kernels, and those of mistralrs-paged-attn.
//!
//! Owns pointers into the device's memory. Its functions check shapes and types and are safe to call: they read and
//! write the memory of the tensors that they are given, which live until the stream has done the work, as all of it is
//! ordered on the one stream of the device, the freeing of memory too. An engine has one device, where all of its tensors
//! are.

#![expect(unsafe_code, reason = "calls of kernels and of cuBLAS")]

mod blas;
mod coded;
mod draws;
mod edited_rows;
#[cfg(test)]
mod emulated;
mod experts;
mod graph;
mod landing;
mod launch;
mod logits;
mod memory;
mod mistralrs_paged_attention;
mod paged_attention;
mod rows;
mod segments;
mod sending;

use candle_core::{
    CudaDevice, DType, Device, Error, Result, Storage, Tensor, bail,
    cuda_backend::{
        CudaError, WrapErr,
        cudarc::driver::{
            DevicePtr, DriverError, result,
            sys::{self, CUmemoryPool, CUresult},
        },
    },
};

#[cfg(test)]
pub(super) use self::emulated::{Counts, be_late, counted};
pub(super) use self::{
    blas::{batched, multiply},
    coded::widen,
    draws::{begin_tokens, draw_tokens, drawn_ids, drawn_of},
    experts::{add_experts, choose_experts, list_rows, multiply_experts, table},
    graph::{Graph, give_workspace, record},
    landing::{Coming, Landing, Mark, landed, wait_for_copies},
    logits::{blocks_of, count_at_least, summarize},
    mistralrs_paged_attention::{attend, serve, write_cache},
    paged_attention::{attend_paged, prepare_paged, serve_paged, tiles_prepare, write_paged},
    rows::{add_rows, centred_norm, embed, gate, head_norm, multiply_vector, norm, put_vector, rotate},
    segments::{join_heads, split_heads, weights},
    sending::send,
};

/// How much freed memory the driver keeps for the next allocation, in bytes. By default it keeps none over a wait for the
/// device, of which each step has several, and asks for it anew. What a step takes and gives back is less than this; a
/// server that sleeps keeps nothing.
const KEPT_FREE: u64 = 512 << 20;

/// Opens a GPU, with a stream of its own.
pub(super) fn open(number: usize) -> Result<Device> {
    let device = Device::new_cuda_with_stream(number)?;
    // SAFETY: there is one stream, so that no other one uses or frees what it works on.
    unsafe { device.as_cuda_device()?.disable_event_tracking() };
    keep_freed_memory(device.as_cuda_device()?)?;
    Ok(device)
}

/// Makes the device known to this thread. All else does so by itself, but not what frees memory: where a thread does that first, it
/// fails, and so does whatever is asked for next.
pub(super) fn bind_to_thread(device: &Device) -> Result<()> {
    if let Device::Cuda(device) = device {
        device.cuda_stream().context().bind_to_thread().w()?;
    }
    Ok(())
}

/// Sets how much freed memory is kept.
fn keep_freed_memory(device: &CudaDevice) -> Result<()> {
    let mut kept = KEPT_FREE;
    let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    // SAFETY: the device is open, its pool lives as long as it does, and the attribute is a number of 64 bits.
    unsafe { result::mem_pool::set_attribute(pool_of(device)?, attribute, (&raw mut kept).cast()).w() }
}

/// Where memory comes from, and where it goes when it is freed.
fn pool_of(device: &CudaDevice) -> Result<CUmemoryPool> {
    // SAFETY: the device is open.
    unsafe { result::device::get_default_mem_pool(device.cuda_stream().context().cu_device()).w() }
}

/// Has the driver give back to the system all that was freed. By itself, it does so when somebody waits for the device, and as far
/// as more is free than is kept.
pub(super) fn return_freed_memory(device: &Device) -> Result<()> {
    let Device::Cuda(device) = device else { return Ok(()) };
    // What is freed is freed in the order of the stream.
    device.cuda_stream().synchronize().w()?;
    // SAFETY: the pool lives as long as the device, which is open.
    unsafe { result::mem_pool::trim_to(pool_of(device)?, 0).w() }
}

/// Free and all memory of a GPU, in bytes.
pub(super) fn memory(device: &Device) -> Result<(u64, u64)> {
    return_freed_memory(device)?;
    let stream = device.as_cuda_device()?.cuda_stream();
    let (free, total) = stream.context().mem_get_info().w()?;
    Ok((free as u64, total as u64))
}

/// Whether this is the driver's refusal of memory.
pub(super) fn is_out_of_memory(error: &Error) -> bool {
    const OUT_OF_MEMORY: DriverError = DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    match error {
        Error::Cuda(error) => {
            matches!(error.downcast_ref::<CudaError>(), Some(CudaError::Cuda(error)) if *error == OUT_OF_MEMORY)
        }
        Error::WithBacktrace { inner, .. } => is_out_of_memory(inner),
        _ => false,
    }
}

/// The device of a tensor.
fn device(tensor: &Tensor) -> Result<&CudaDevice> {
    tensor.device().as_cuda_device()
}

/// The address of the first number of a tensor.
fn address(tensor: &Tensor) -> Result<u64> {
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Cuda(storage) = &*storage else { bail!("a tensor is not on a CUDA device") };
    let stream = device(tensor)?.cuda_stream();
    let base = match tensor.dtype() {
        DType::BF16 => storage.as_cuda_slice::<half::bf16>()?.device_ptr(&stream).0,
        DType::F32 => storage.as_cuda_slice::<f32>()?.device_ptr(&stream).0,
        DType::F64 => storage.as_cuda_slice::<f64>()?.device_ptr(&stream).0,
        DType::I64 => storage.as_cuda_slice::<i64>()?.device_ptr(&stream).0,
        DType::U32 => storage.as_cuda_slice::<u32>()?.device_ptr(&stream).0,
        DType::U8 => storage.as_cuda_slice::<u8>()?.device_ptr(&stream).0,
        other => bail!("no kernel takes {other:?}"),
    };
    Ok(base + (layout.start_offset() * tensor.dtype().size_in_bytes()) as u64)
}

/// The address of a tensor whose rows follow each other, and its type and shape.
fn rows_of(tensor: &Tensor) -> Result<(u64, usize, usize)> {
    if !tensor.is_contiguous() {
        bail!("rows with gaps");
    }
    let (rows, columns) = tensor.dims2()?;
    Ok((address(tensor)?, rows, columns))
}

/// The address and the lengths of a tensor of f32.
fn sums_of(tensor: &Tensor) -> Result<(u64, usize, usize)> {
    if tensor.dtype() != DType::F32 {
        bail!("states of {:?}", tensor.dtype());
    }
    rows_of(tensor)
}
