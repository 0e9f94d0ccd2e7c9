//! What goes from the host to memory of the device that is there already.

use candle_core::{
    Result, Tensor, WithDType, bail,
    cuda_backend::{WrapErr, cudarc::driver::result},
};

use super::{address, device};

/// Overwrites all numbers of a tensor.
pub(in super::super) fn send<T: WithDType>(numbers: &[T], to: &Tensor) -> Result<()> {
    if to.dtype() != T::DTYPE || to.elem_count() != numbers.len() || !to.is_contiguous() {
        bail!("{} numbers of {:?} to {:?} of {:?}", numbers.len(), T::DTYPE, to.shape(), to.dtype());
    }
    if numbers.is_empty() {
        return Ok(());
    }
    let stream = device(to)?.cuda_stream();
    stream.context().bind_to_thread().w()?;
    // SAFETY: the tensor has as many numbers of this type, one after the other, and the driver has read memory that is not pinned,
    // as that of `numbers`, when the call returns.
    unsafe { result::memcpy_htod_async(address(to)?, numbers, stream.cu_stream()) }.w()
}
