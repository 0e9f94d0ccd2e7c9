//! Whether a GPU can be computed on, asked before anything is loaded.
//!
//! Owns the questions to the driver and what its answers mean. Refuses to choose a device, and to keep one open.

/// Why a GPU cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub enum Trouble {
    /// There is no GPU.
    Absent(String),
    /// There is a GPU, but it fails, or it is of a kind that the kernels were not built for.
    Unusable(String),
    /// This build does not know GPUs.
    NotBuilt,
}

/// Whether the GPU with this number can be used: there, free to be opened, and of the kind that the kernels were built for.
#[cfg(feature = "cuda")]
pub fn look(number: usize) -> Result<(), Trouble> {
    driver::look(number)
}

/// This build knows no GPUs.
#[cfg(not(feature = "cuda"))]
pub fn look(_: usize) -> Result<(), Trouble> {
    Err(Trouble::NotBuilt)
}

#[cfg(feature = "cuda")]
mod driver {
    use candle_core::cuda_backend::cudarc::driver::{
        CudaContext, DriverError,
        result::{self, device},
        sys::CUresult,
    };

    use super::{Trouble, built_for};

    pub(super) fn look(number: usize) -> Result<(), Trouble> {
        result::init().map_err(trouble)?;
        match usize::try_from(device::get_count().map_err(trouble)?).unwrap_or(0) {
            0 => return Err(none()),
            count if number >= count => {
                return Err(Trouble::Absent(format!("the driver shows {count}, numbered from 0")));
            }
            _ => {}
        }
        let context = CudaContext::new(number).map_err(unusable)?;
        let capability = context.compute_capability().map_err(unusable)?;
        built_for(option_env!("CUDA_COMPUTE_CAP"), capability).map_err(Trouble::Unusable)
    }

    fn none() -> Trouble {
        Trouble::Absent("the driver shows no GPU, see nvidia-smi and CUDA_VISIBLE_DEVICES".to_owned())
    }

    fn trouble(error: DriverError) -> Trouble {
        match error.0 {
            // What stands in for the driver answers so, see scripts/cuda-forward.c.
            CUresult::CUDA_ERROR_STUB_LIBRARY => {
                Trouble::Absent("there is no NVIDIA driver (libcuda.so.1) on this machine".to_owned())
            }
            CUresult::CUDA_ERROR_NO_DEVICE => none(),
            _ => unusable(error),
        }
    }

    fn unusable(error: DriverError) -> Trouble {
        Trouble::Unusable(format!("the driver answers {:?}", error.0))
    }
}

/// Compares the GPU's compute capability with that of the kernels. Those for 9.0 and later use what only that very
/// capability has; earlier ones run on later minor versions too.
#[cfg_attr(not(any(feature = "cuda", test)), expect(dead_code, reason = "without CUDA nobody looks"))]
fn built_for(built: Option<&str>, (major, minor): (i32, i32)) -> Result<(), String> {
    let Some(built) = built.and_then(|built| built.trim_end_matches(['a', 'f']).parse::<i32>().ok()) else {
        return Ok(());
    };
    let found = 10 * major + minor;
    if found == built || (built < 90 && found > built && major == built / 10) {
        return Ok(());
    }
    let (built_major, built_minor) = (built / 10, built % 10);
    Err(format!(
        "its compute capability is {major}.{minor}, and this build is for {built_major}.{built_minor}; build with \
         CUDA_COMPUTE_CAP={found}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_run_on_the_gpus_that_they_were_built_for() {
        for (built, found) in [("90", (9, 0)), ("90a", (9, 0)), ("80", (8, 9)), ("120", (12, 0)), ("native", (7, 5))] {
            built_for(Some(built), found).unwrap();
        }
        built_for(None, (9, 0)).unwrap();
        for (built, found) in [("90", (8, 0)), ("80", (9, 0)), ("89", (8, 6)), ("100", (10, 3)), ("90", (12, 0))] {
            built_for(Some(built), found).unwrap_err();
        }
        let error = built_for(Some("90"), (8, 0)).unwrap_err();
        let expected = "its compute capability is 8.0, and this build is for 9.0; build with CUDA_COMPUTE_CAP=80";
        assert_eq!(error, expected);
    }
}
