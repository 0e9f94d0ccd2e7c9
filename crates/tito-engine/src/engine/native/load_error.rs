//! Why a model could not be loaded.

use super::{
    model::ConfigError,
    settings::{KernelName, KernelSet, Mismatch},
    weights::WeightsError,
};

/// Why the engine did not start.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The model is not one that this engine computes.
    #[error("{0}")]
    Unsupported(String),
    /// The weights cannot be read, or are not the model's.
    #[error("{0}")]
    Weights(String),
    /// The memory for keys and values does not hold a single block, and the least number of recurrent states.
    #[error("a KV cache of {bytes} bytes is too small; one block takes {block_bytes} bytes{}", and_states(*.states_bytes))]
    CacheTooSmall {
        /// What was asked for.
        bytes: u64,
        /// What a block takes.
        block_bytes: usize,
        /// What two recurrent states take; 0 in a model without them.
        states_bytes: usize,
    },
    /// The system has no room for keys and values.
    #[error("a KV cache of {bytes} bytes is too large: the system has no room for it")]
    CacheTooLarge {
        /// What was asked for.
        bytes: u64,
    },
    /// A GPU cannot be used.
    #[error("{0}")]
    Gpu(String),
    /// This machine does not have the instructions that were asked for.
    #[error("this machine cannot run the kernels {asked}; it can run {available}")]
    Kernels {
        /// What was asked for.
        asked: KernelName,
        /// What there is.
        available: String,
    },
    /// The instructions that were asked for compute something else than they should.
    #[error("the kernels {asked} are wrong on this machine: {mismatch}")]
    WrongKernels {
        /// What was asked for.
        asked: KernelSet,
        /// What they compute otherwise.
        mismatch: Mismatch,
    },
    /// The system refused a thread.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

impl From<ConfigError> for LoadError {
    fn from(error: ConfigError) -> Self {
        Self::Unsupported(error.to_string())
    }
}

impl From<WeightsError> for LoadError {
    fn from(error: WeightsError) -> Self {
        Self::Weights(error.to_string())
    }
}

fn and_states(bytes: usize) -> String {
    if bytes == 0 { String::new() } else { format!(", two recurrent states take {bytes} bytes") }
}
