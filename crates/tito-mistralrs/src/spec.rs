//! What to load, and how.

use std::{fmt, path::PathBuf};

/// Where weights are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WeightsSource {
    /// A GGUF file.
    Gguf(PathBuf),
    /// A directory with `config.json` and safetensors.
    Directory(PathBuf),
}

/// The type of the arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dtype {
    /// `float32` on a CPU, `bfloat16` on a GPU.
    #[default]
    Auto,
    /// `float32`.
    F32,
    /// `float16`; on GPUs only.
    F16,
    /// `bfloat16`; on GPUs only.
    Bf16,
}

/// What to load, and how.
#[derive(Debug, Clone)]
pub struct LoadSpec {
    /// Where the weights are.
    pub source: WeightsSource,
    /// The GPU to compute on; `None` for the CPU.
    pub gpu: Option<usize>,
    /// The type of the arithmetic; a GGUF file's weights stay as they are.
    pub dtype: Dtype,
    /// The longest sequence, prompt and output together, in tokens.
    pub max_model_len: usize,
    /// How many sequences may wait; the next one gets [`EngineError::Overloaded`](tito_engine::engine::EngineError::Overloaded).
    pub max_waiting: usize,
    /// Width of the logits.
    pub vocab_size: usize,
    /// Why nobody knows whether mistral.rs computes this right.
    pub unproven: Option<String>,
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::F32 => "float32",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
        })
    }
}
