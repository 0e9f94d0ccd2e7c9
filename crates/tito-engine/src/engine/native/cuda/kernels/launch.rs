//! Running the engine's own kernels.

use std::{cell::RefCell, collections::HashMap, rc::Rc, sync::Arc};

use candle_core::{
    CudaDevice, Result,
    cuda_backend::{
        WrapErr,
        cudarc::driver::{CudaFunction, LaunchConfig, PushKernelArg, sys::CUfunction_attribute},
    },
};

/// Bytes of shared memory that a block gets without being asked for as many as it has.
const ALWAYS_GRANTED: u32 = 48 << 10;

/// A file of kernels: its name, and what `build.rs` made of it.
pub(super) struct Kernels {
    pub(super) name: &'static str,
    pub(super) ptx: &'static str,
}

/// An argument of a kernel.
#[derive(Clone, Copy)]
pub(super) enum Argument {
    Address(u64),
    Count(u32),
    Number(f32),
}

impl Argument {
    pub(super) fn count(number: usize) -> Result<Self> {
        Ok(Self::Count(narrow(number)?))
    }
}

/// A number as kernels count.
pub(super) fn narrow(number: usize) -> Result<u32> {
    u32::try_from(number).map_err(candle_core::Error::wrap)
}

/// Kernels by the address of their context, their file and their name.
type Known = HashMap<(usize, &'static str), HashMap<String, Rc<CudaFunction>>>;

thread_local! {
    /// The driver looks for a kernel by its name each time that it is asked, and a step launches hundreds of them.
    static KNOWN: RefCell<Known> = RefCell::default();
}

/// A kernel of a file, which is loaded and looked for once in each thread.
fn found(device: &CudaDevice, file: &Kernels, kernel: &str) -> Result<Rc<CudaFunction>> {
    KNOWN.with_borrow_mut(|known| {
        // A known kernel holds on to its context, so that no other context has its address.
        let context = Arc::as_ptr(device.cuda_stream().context()).addr();
        let of_file = known.entry((context, file.name)).or_default();
        if let Some(function) = of_file.get(kernel) {
            return Ok(Rc::clone(function));
        }
        let function = Rc::new((*device.get_or_load_custom_func(kernel, file.name, file.ptx)?).clone());
        of_file.insert(kernel.to_owned(), Rc::clone(&function));
        Ok(function)
    })
}

/// A kernel, and the threads that run it: `rows` times `parts` blocks of `threads`.
pub(super) struct Launch<'a> {
    pub(super) file: &'a Kernels,
    pub(super) kernel: &'a str,
    pub(super) rows: usize,
    pub(super) parts: usize,
    pub(super) threads: u32,
}

impl Launch<'_> {
    /// Runs the kernel; without blocks there is nothing to run.
    ///
    /// # Safety
    /// The arguments are those that the kernel declares, in its order and of its types. Every address is that of memory of
    /// this device which nobody frees before the device's stream has come past this launch, and with these arguments and
    /// threads the kernel stays inside of that memory.
    pub(super) unsafe fn run(self, device: &CudaDevice, arguments: &[Argument]) -> Result<()> {
        // SAFETY: as the caller says; a kernel that is run so has no shared memory but what it declares.
        unsafe { self.run_with_memory(device, arguments, 0) }
    }

    /// Runs the kernel with some bytes of shared memory for each block, beside what the kernel itself declares.
    ///
    /// # Safety
    /// As for `run`, and the kernel stays inside of these bytes.
    pub(super) unsafe fn run_with_memory(self, device: &CudaDevice, arguments: &[Argument], bytes: u32) -> Result<()> {
        let Self { file, kernel, rows, parts, threads } = self;
        if rows == 0 || parts == 0 {
            return Ok(());
        }
        let function = found(device, file, kernel)?;
        if bytes > ALWAYS_GRANTED {
            let most = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            function.set_attribute(most, i32::try_from(bytes).map_err(candle_core::Error::wrap)?).w()?;
        }
        let stream = device.cuda_stream();
        let mut builder = stream.launch_builder(&function);
        for argument in arguments {
            match argument {
                Argument::Address(address) => builder.arg(address),
                Argument::Count(count) => builder.arg(count),
                Argument::Number(number) => builder.arg(number),
            };
        }
        let grid_dim = (narrow(rows)?, narrow(parts)?, 1);
        let shape = LaunchConfig { grid_dim, block_dim: (threads, 1, 1), shared_mem_bytes: bytes };
        // SAFETY: the caller answers for the arguments and for what the kernel does with them.
        unsafe { builder.launch(shape) }.w()?;
        Ok(())
    }
}
