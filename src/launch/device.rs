//! Which device computes, decided before anything is loaded.
//!
//! Owns what is said where a GPU is asked for and there is none. Refuses to open the device for use: the engines do.

use anyhow::bail;

use super::progress::Progress;
use crate::config::DeviceArg;

/// Where the model is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Device {
    /// This machine's processor.
    Cpu,
    /// The GPU with this number among those that the driver shows.
    Cuda(usize),
}

/// What `--device` comes to on this machine; one line says so if `auto` has to do without a GPU.
pub(super) fn choose(asked: DeviceArg, progress: &Progress) -> anyhow::Result<Device> {
    let (device, without) = decide(asked, gpu::look)?;
    if let Some(reason) = without {
        progress.say(&format!("no CUDA device: {reason}; computing on the CPU"));
    }
    Ok(device)
}

/// Why a GPU cannot be used.
#[derive(Debug, PartialEq, Eq)]
enum Trouble {
    /// There is none: what `auto` takes for "use the CPU".
    #[cfg_attr(not(any(feature = "cuda", test)), expect(dead_code, reason = "without CUDA nobody looks"))]
    Absent(String),
    /// There is one, and it fails: a CPU in its place would be a surprise.
    #[cfg_attr(not(any(feature = "cuda", test)), expect(dead_code, reason = "without CUDA nobody looks"))]
    Unusable(String),
    /// This build does not know GPUs.
    #[cfg_attr(all(feature = "cuda", not(test)), expect(dead_code, reason = "of builds without CUDA"))]
    NotBuilt,
}

/// The device, and the reason for which `auto` found no GPU.
fn decide(
    asked: DeviceArg,
    look: impl FnOnce(usize) -> Result<(), Trouble>,
) -> anyhow::Result<(Device, Option<String>)> {
    let number = match asked {
        DeviceArg::Cpu => return Ok((Device::Cpu, None)),
        DeviceArg::Auto => 0,
        DeviceArg::Cuda(number) => number,
    };
    let auto = asked == DeviceArg::Auto;
    match look(number) {
        Ok(()) => Ok((Device::Cuda(number), None)),
        Err(Trouble::Absent(reason)) if auto => Ok((Device::Cpu, Some(reason))),
        Err(Trouble::NotBuilt) if auto => Ok((Device::Cpu, None)),
        Err(Trouble::Absent(reason)) => {
            bail!("--device {asked}: no CUDA device: {reason}; --device cpu computes without one")
        }
        Err(Trouble::Unusable(reason)) => {
            bail!("cuda:{number} cannot be used: {reason}; --device cpu computes without it")
        }
        Err(Trouble::NotBuilt) => {
            bail!("--device {asked}: this build computes on the CPU only; build it with the feature `cuda`")
        }
    }
}

#[cfg(not(feature = "cuda"))]
mod gpu {
    use super::Trouble;

    pub(super) fn look(_: usize) -> Result<(), Trouble> {
        Err(Trouble::NotBuilt)
    }
}

#[cfg(feature = "cuda")]
mod gpu {
    use candle_core::cuda_backend::cudarc::driver::{
        CudaContext, DriverError,
        result::{self, device},
        sys::CUresult,
    };

    use super::{Trouble, built_for};

    /// Whether the GPU can be used: there, free to be opened, and of the kind that the kernels were built for.
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
        let (major, minor) = context.compute_capability().map_err(unusable)?;
        built_for(option_env!("CUDA_COMPUTE_CAP"), (major, minor)).map_err(Trouble::Unusable)
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

    fn absent(_: usize) -> Result<(), Trouble> {
        Err(Trouble::Absent("nobody has one".to_owned()))
    }

    #[test]
    fn auto_takes_the_first_gpu_and_says_why_it_takes_the_cpu() {
        assert_eq!(decide(DeviceArg::Auto, |_| Ok(())).unwrap(), (Device::Cuda(0), None));
        let without = decide(DeviceArg::Auto, absent).unwrap();
        assert_eq!(without, (Device::Cpu, Some("nobody has one".to_owned())));
        assert_eq!(decide(DeviceArg::Auto, |_| Err(Trouble::NotBuilt)).unwrap(), (Device::Cpu, None));
    }

    #[test]
    fn the_cpu_is_taken_without_a_look_at_gpus() {
        let looked = |_| -> Result<(), Trouble> { panic!("looked") };
        assert_eq!(decide(DeviceArg::Cpu, looked).unwrap(), (Device::Cpu, None));
    }

    #[test]
    fn a_gpu_that_was_asked_for_is_never_replaced() {
        assert_eq!(decide(DeviceArg::Cuda(1), |_| Ok(())).unwrap(), (Device::Cuda(1), None));
        let error = decide(DeviceArg::Cuda(1), absent).unwrap_err().to_string();
        let expected = "--device cuda:1: no CUDA device: nobody has one; --device cpu computes without one";
        assert_eq!(error, expected);
        let error = decide(DeviceArg::Cuda(0), |_| Err(Trouble::NotBuilt)).unwrap_err().to_string();
        assert!(error.ends_with("this build computes on the CPU only; build it with the feature `cuda`"), "{error}");
    }

    #[test]
    fn auto_does_not_pass_over_a_gpu_that_fails() {
        let broken = |_| Err(Trouble::Unusable("it smokes".to_owned()));
        let error = decide(DeviceArg::Auto, broken).unwrap_err().to_string();
        assert_eq!(error, "cuda:0 cannot be used: it smokes; --device cpu computes without it");
    }

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
