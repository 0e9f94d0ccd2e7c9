//! What comes from the device to the host, by way of memory that the device writes to itself.
//!
//! The driver copies to other memory of the host piece by piece, at a tenth of the speed.

use std::{
    cell::{Cell, RefCell},
    ffi::c_void,
    marker::PhantomData,
    ptr::NonNull,
    slice,
    sync::Arc,
};

use candle_core::{
    Device, Result, Tensor, WithDType, bail,
    cuda_backend::{
        WrapErr,
        cudarc::driver::{CudaContext, CudaEvent, CudaStream, result, sys::CUevent_flags},
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
    /// How many copies the thread has begun that come while other work goes on.
    static BEGUN: Cell<u64> = const { Cell::new(0) };
    /// How many of them are there, as far as the thread knows: all work is done in its order.
    static THERE: Cell<u64> = const { Cell::new(0) };
}

/// Memory of the host that a device writes to.
#[derive(Debug)]
pub(in super::super) struct Landing {
    at: NonNull<c_void>,
    bytes: usize,
    context: Arc<CudaContext>,
}

// SAFETY: it is the only one that names its memory, which belongs to no thread.
unsafe impl Send for Landing {}

impl Landing {
    fn new(bytes: usize, context: &Arc<CudaContext>) -> Result<Self> {
        context.bind_to_thread().w()?;
        // SAFETY: the context is this thread's.
        let at = unsafe { result::malloc_host(bytes, 0) }.w()?;
        let at = NonNull::new(at).ok_or_else(|| candle_core::Error::Msg("no memory of the host".to_owned()))?;
        Ok(Self { at, bytes, context: Arc::clone(context) })
    }

    /// One that has room for so many bytes: `kept`, or a new one.
    fn with_room(kept: Option<Self>, bytes: usize, context: &Arc<CudaContext>) -> Result<Self> {
        match kept {
            Some(landing) if landing.serves(bytes, context) => Ok(landing),
            kept => {
                // Not both at a time.
                drop(kept);
                Self::new(bytes.next_multiple_of(STEP_BYTES), context)
            }
        }
    }

    fn serves(&self, bytes: usize, context: &Arc<CudaContext>) -> bool {
        self.bytes >= bytes && Arc::ptr_eq(&self.context, context)
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        // A device that is lost has no memory to free.
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: `malloc_host` gave it, and nothing is copied to it any more: `landed` and `Coming` wait for each copy.
            let _ = unsafe { result::free_host(self.at.as_ptr()) };
        }
    }
}

/// All numbers of a tensor, row by row.
pub(in super::super) fn landed<T: WithDType>(tensor: &Tensor) -> Result<Vec<T>> {
    let (count, bytes) = (tensor.elem_count(), tensor.elem_count() * size_of::<T>());
    if bytes == 0 || bytes > MOST_BYTES || tensor.dtype() != T::DTYPE {
        // Copied on the device first: candle brings all memory behind a part.
        let numbers = tensor.force_contiguous()?.flatten_all()?.to_vec1()?;
        if bytes > 0 {
            wait_for_copies(tensor)?;
        }
        return Ok(numbers);
    }
    let tensor = &tensor.contiguous()?;
    let stream = device(tensor)?.cuda_stream();
    let (from, context) = (address(tensor)?, stream.context());
    LANDING.with_borrow_mut(|kept| {
        let landing = Landing::with_room(kept.take(), bytes, context)?;
        let landing = kept.insert(landing);
        // SAFETY: the memory has at least so many bytes, begins at a page and is nobody else's: it is this thread's, and
        // borrowed. Any bits are numbers of `T`, whose type the tensor has.
        let numbers = unsafe {
            let there = slice::from_raw_parts_mut(landing.at.as_ptr().cast::<u8>(), bytes);
            result::memcpy_dtoh_async(there, from, stream.cu_stream()).w()?;
            wait_for(&stream)?;
            slice::from_raw_parts(landing.at.as_ptr().cast::<T>(), count)
        };
        Ok(numbers.to_vec())
    })
}

/// Waits until copies of candle's have come to the host. The driver may say that they are done before they are: only for some
/// memory of the host does it promise anything else.
pub(in super::super) fn wait_for_copies(tensor: &Tensor) -> Result<()> {
    if tensor.device().is_cuda() { wait_for(&device(tensor)?.cuda_stream()) } else { Ok(()) }
}

fn wait_for(stream: &CudaStream) -> Result<()> {
    stream.synchronize().w()?;
    THERE.set(BEGUN.get());
    Ok(())
}

/// A place among the work of a device.
#[derive(Debug)]
pub(in super::super) struct Mark {
    event: CudaEvent,
    /// How many copies were begun before it.
    begun: u64,
    /// It counts the copies of one thread.
    stays: PhantomData<*const ()>,
}

impl Mark {
    /// After all work so far.
    pub(in super::super) fn after_all_so_far(device: &Device) -> Result<Self> {
        let stream = device.as_cuda_device()?.cuda_stream();
        // Whoever waits for it sleeps, as with a stream, and times are nobody's concern.
        let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING;
        let event = stream.record_event(Some(flags)).w()?;
        Ok(Self { event, begun: BEGUN.get(), stays: PhantomData })
    }

    /// Waits until the device has come past it, and not for what was begun later.
    pub(in super::super) fn wait(self) -> Result<()> {
        self.event.synchronize().w()?;
        THERE.set(THERE.get().max(self.begun));
        Ok(())
    }
}

/// Numbers that are on their way while other work goes on. They are there once the thread has waited for its device, or for a
/// [mark](Mark) after them, for whatever reason, as all work is done in its order.
#[derive(Debug)]
pub(in super::super) struct Coming<T> {
    /// `None` where it was taken.
    landing: Option<Landing>,
    count: usize,
    stream: Arc<CudaStream>,
    /// Its number among the copies of the thread.
    number: u64,
    /// It counts the copies of one thread.
    stays: PhantomData<*const T>,
}

impl<T: WithDType> Coming<T> {
    /// Begins to bring the numbers of a tensor, to memory of `landings` or to new one. What it is of may be freed or written after
    /// that by work of the same stream.
    pub(in super::super) fn begin(tensor: &Tensor, landings: &mut Vec<Landing>) -> Result<Self> {
        if tensor.dtype() != T::DTYPE || !tensor.is_contiguous() {
            bail!("numbers of {:?}, or with gaps", tensor.dtype());
        }
        let (count, bytes) = (tensor.elem_count(), tensor.elem_count() * size_of::<T>());
        let stream = device(tensor)?.cuda_stream();
        let landing = Landing::with_room(landings.pop(), bytes, stream.context())?;
        if bytes > 0 {
            // SAFETY: the memory has at least so many bytes and is nobody else's until it is dropped, before which
            // `Coming` waits for the copy.
            unsafe {
                let there = slice::from_raw_parts_mut(landing.at.as_ptr().cast::<u8>(), bytes);
                result::memcpy_dtoh_async(there, address(tensor)?, stream.cu_stream()).w()?;
            }
        }
        let number = BEGUN.get() + 1;
        BEGUN.set(number);
        Ok(Self { landing: Some(landing), count, stream, number, stays: PhantomData })
    }

    /// The numbers; the memory that they came to is for others then.
    pub(in super::super) fn land(mut self, landings: &mut Vec<Landing>) -> Result<Vec<T>> {
        self.wait()?;
        let landing = self.landing.take().expect("it is taken once");
        // SAFETY: `begin` had so many numbers written there, and any bits are numbers.
        let numbers = unsafe { slice::from_raw_parts(landing.at.as_ptr().cast::<T>(), self.count) }.to_vec();
        landings.push(landing);
        Ok(numbers)
    }
}

impl<T> Coming<T> {
    fn wait(&self) -> Result<()> {
        if self.number > THERE.get() { wait_for(&self.stream) } else { Ok(()) }
    }
}

impl<T> Drop for Coming<T> {
    fn drop(&mut self) {
        if self.landing.is_some() {
            // A device that is lost copies nothing any more.
            let _ = self.wait();
        }
    }
}
