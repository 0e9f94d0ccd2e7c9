//! What comes from the device to the host, by way of memory that the device writes to itself.
//!
//! The driver copies to other memory of the host piece by piece, at a tenth of the speed.

use std::{cell::RefCell, ffi::c_void, ptr::NonNull, slice, sync::Arc};

use candle_core::{
    Result, Tensor, WithDType,
    cuda_backend::{
        WrapErr,
        cudarc::driver::{CudaContext, result},
    },
};

use super::{address, device};

/// Memory that is kept is of a multiple of so many bytes.
const STEP_BYTES: usize = 1 << 20;
/// What is larger than this goes its own way: matrices of weights, which are read for checksums.
const MOST_BYTES: usize = 16 << 20;

thread_local! {
    /// The engine's thread has one; so has each thread of a test.
    static LANDING: RefCell<Option<Landing>> = const { RefCell::new(None) };
}

/// Memory of the host that a device writes to.
struct Landing {
    at: NonNull<c_void>,
    bytes: usize,
    context: Arc<CudaContext>,
}

impl Landing {
    fn new(bytes: usize, context: &Arc<CudaContext>) -> Result<Self> {
        context.bind_to_thread().w()?;
        // SAFETY: the context is this thread's.
        let at = unsafe { result::malloc_host(bytes, 0) }.w()?;
        let at = NonNull::new(at).ok_or_else(|| candle_core::Error::Msg("no memory of the host".to_owned()))?;
        Ok(Self { at, bytes, context: Arc::clone(context) })
    }

    fn serves(&self, bytes: usize, context: &Arc<CudaContext>) -> bool {
        self.bytes >= bytes && Arc::ptr_eq(&self.context, context)
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        // A device that is lost has no memory to free.
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: `malloc_host` gave it, and nothing is copied to it any more: `landed` waits for each copy.
            let _ = unsafe { result::free_host(self.at.as_ptr()) };
        }
    }
}

/// All numbers of a tensor, row by row.
pub(in super::super) fn landed<T: WithDType>(tensor: &Tensor) -> Result<Vec<T>> {
    let (count, bytes) = (tensor.elem_count(), tensor.elem_count() * size_of::<T>());
    if bytes == 0 || bytes > MOST_BYTES || tensor.dtype() != T::DTYPE {
        // Copied on the device first: candle brings all memory behind a part.
        return tensor.force_contiguous()?.flatten_all()?.to_vec1();
    }
    let tensor = &tensor.contiguous()?;
    let stream = device(tensor)?.cuda_stream();
    let (from, context) = (address(tensor)?, stream.context());
    LANDING.with_borrow_mut(|kept| {
        let landing = match kept {
            Some(landing) if landing.serves(bytes, context) => landing,
            _ => {
                // Not both at a time.
                drop(kept.take());
                kept.insert(Landing::new(bytes.next_multiple_of(STEP_BYTES), context)?)
            }
        };
        // SAFETY: the memory has at least so many bytes, begins at a page and is nobody else's: it is this thread's, and
        // borrowed. Any bits are numbers of `T`, whose type the tensor has.
        let numbers = unsafe {
            let there = slice::from_raw_parts_mut(landing.at.as_ptr().cast::<u8>(), bytes);
            result::memcpy_dtoh_async(there, from, stream.cu_stream()).w()?;
            stream.synchronize().w()?;
            slice::from_raw_parts(landing.at.as_ptr().cast::<T>(), count)
        };
        Ok(numbers.to_vec())
    })
}
