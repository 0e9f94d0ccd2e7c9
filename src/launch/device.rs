//! Which device computes, decided before anything is loaded.
//!
//! Owns what is said where a GPU is asked for and there is none. Refuses to talk to the driver.

use anyhow::bail;

use crate::{
    config::DeviceArg,
    engine::gpu::{self, Trouble},
};

/// Where the model is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Device {
    /// This machine's processor.
    Cpu,
    /// The GPU with this number among those that the driver shows.
    Cuda(usize),
}

/// What `--device` comes to on this machine, and the reason for which `auto` found no GPU.
pub(super) fn choose(asked: DeviceArg) -> anyhow::Result<(Device, Option<String>)> {
    decide(asked, gpu::look)
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
            bail!(
                "--device {asked} cannot be used: there is no CUDA device ({reason}); pass --device cpu, or leave --device out"
            )
        }
        Err(Trouble::Unusable(reason)) => {
            bail!("the GPU cuda:{number} cannot be used: {reason}; pass --device cpu to compute without it")
        }
        Err(Trouble::NotBuilt) => {
            bail!(
                "--device {asked} cannot be used: this build computes on the CPU only; install a build with the feature `cuda`, or leave \
                 --device out"
            )
        }
    }
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
        let expected = "--device cuda:1 cannot be used: there is no CUDA device (nobody has one); pass --device cpu, or leave --device out";
        assert_eq!(error, expected);
        let error = decide(DeviceArg::Cuda(0), |_| Err(Trouble::NotBuilt)).unwrap_err().to_string();
        assert!(
            error.contains("this build computes on the CPU only; install a build with the feature `cuda`"),
            "{error}"
        );
    }

    #[test]
    fn auto_does_not_pass_over_a_gpu_that_fails() {
        let broken = |_| Err(Trouble::Unusable("it smokes".to_owned()));
        let error = decide(DeviceArg::Auto, broken).unwrap_err().to_string();
        assert_eq!(error, "the GPU cuda:0 cannot be used: it smokes; pass --device cpu to compute without it");
    }
}
