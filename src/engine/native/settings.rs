//! What the engine is told when it starts.

use std::path::PathBuf;

use serde_json::{Map, Value};

pub use super::cpu::KernelSet;

/// The type of the weights and of what is cached; sums are in f32 with both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dtype {
    /// bfloat16.
    Bf16,
    /// float32.
    F32,
}

impl Dtype {
    /// Its short name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
        }
    }
}

/// Where weights are, and what becomes of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WeightsSource {
    /// A directory with safetensors.
    Directory(PathBuf),
    /// A GGUF file.
    Gguf {
        /// The file.
        path: PathBuf,
        /// Compute with its quantised blocks, and activations rounded to 8 bits; else its numbers are rounded to bf16.
        keep_blocks: bool,
    },
}

/// What to load, and the bounds to keep.
#[derive(Debug, Clone)]
pub struct NativeSettings {
    /// Where the weights are.
    pub source: WeightsSource,
    /// The content of its config.json.
    pub config: Map<String, Value>,
    /// See [`Dtype`].
    pub dtype: Dtype,
    /// The longest sequence, prompt and output together, in tokens.
    pub max_model_len: usize,
    /// Requests without a seed derive theirs from this one and their number.
    pub seed: u64,
    /// Sequences that run at a time.
    pub max_num_seqs: usize,
    /// Tokens of a step, over all sequences.
    pub max_num_batched_tokens: usize,
    /// Sequences that wait; the next one is [`EngineError::Overloaded`](crate::engine::EngineError::Overloaded).
    pub max_waiting: usize,
    /// Memory for keys and values, in bytes; it is taken from the system as it is needed.
    pub kv_cache_bytes: u64,
    /// Threads that compute; `None` for one on each core.
    pub threads: Option<usize>,
    /// The instructions that compute; `None` for the fastest that the machine has.
    pub kernels: Option<KernelSet>,
}
