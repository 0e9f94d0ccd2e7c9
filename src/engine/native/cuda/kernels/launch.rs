//! Running the engine's own kernels.

use candle_core::{
    CudaDevice, Result,
    cuda_backend::{
        WrapErr,
        cudarc::driver::{LaunchConfig, PushKernelArg},
    },
};

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

/// Runs a kernel over `(rows, parts)` blocks of threads.
pub(super) fn launch(
    device: &CudaDevice,
    (kernels, name): (&Kernels, &str),
    (rows, parts): (usize, usize),
    threads: u32,
    arguments: &[Argument],
) -> Result<()> {
    if rows == 0 || parts == 0 {
        return Ok(());
    }
    let function = device.get_or_load_custom_func(name, kernels.name, kernels.ptx)?;
    let mut builder = function.builder();
    for argument in arguments {
        match argument {
            Argument::Address(address) => builder.arg(address),
            Argument::Count(count) => builder.arg(count),
            Argument::Number(number) => builder.arg(number),
        };
    }
    let grid_dim = (narrow(rows)?, narrow(parts)?, 1);
    let shape = LaunchConfig { grid_dim, block_dim: (threads, 1, 1), shared_mem_bytes: 0 };
    // SAFETY: the arguments are those of the kernel of that name, and its callers checked the shapes.
    unsafe { builder.launch(shape) }.w()?;
    Ok(())
}
