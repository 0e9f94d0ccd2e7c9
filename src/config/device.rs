//! `--device`: where the model is computed.
//!
//! Owns its spelling. Refuses to know what devices there are.

use std::{fmt, str::FromStr};

/// What `--device` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceArg {
    /// The first GPU if this build can use one and there is one, else the CPU.
    #[default]
    Auto,
    /// The CPU, in any build.
    Cpu,
    /// A GPU by its number, counted among those that the driver shows.
    Cuda(usize),
}

impl FromStr for DeviceArg {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match (text, text.strip_prefix("cuda:")) {
            ("auto", _) => Ok(Self::Auto),
            ("cpu", _) => Ok(Self::Cpu),
            ("cuda", _) => Ok(Self::Cuda(0)),
            (_, Some(number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                number.parse().map(Self::Cuda).map_err(|_| "expected the number of a GPU behind `cuda:`")
            }
            _ => Err("expected auto, cpu, cuda or cuda:N"),
        }
    }
}

impl fmt::Display for DeviceArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_may_be_named_by_its_number() {
        let parsed: [DeviceArg; 5] = ["auto", "cpu", "cuda", "cuda:0", "cuda:7"].map(|text| text.parse().unwrap());
        let expected = [DeviceArg::Auto, DeviceArg::Cpu, DeviceArg::Cuda(0), DeviceArg::Cuda(0), DeviceArg::Cuda(7)];
        assert_eq!(parsed, expected);
        assert_eq!(DeviceArg::Cuda(7).to_string().parse(), Ok(DeviceArg::Cuda(7)));
    }

    #[test]
    fn what_is_no_device_is_refused() {
        for text in ["", "gpu", "cuda:", "cuda:x", "cuda:+1", "cuda:-1", "cuda:99999999999999999999", "CPU", "cuda0"] {
            text.parse::<DeviceArg>().unwrap_err();
        }
    }
}
