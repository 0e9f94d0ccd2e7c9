//! Memory of a device that kernels write as a whole, so that nothing else needs to.

use candle_core::{DType, Device, Result, Shape, Storage, Tensor, backend::BackendDevice, op::BackpropOp};

/// Memory for numbers. Zeros would be as many bytes to write as the kernel writes itself.
///
/// # Safety
/// Every number is written before it is read.
pub(super) unsafe fn unwritten(shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Tensor> {
    let shape = shape.into();
    // SAFETY: as the caller says.
    let storage = unsafe { device.as_cuda_device()?.alloc_uninit(&shape, dtype)? };
    Ok(Tensor::from_storage(Storage::Cuda(storage), shape, BackpropOp::none(), false))
}
