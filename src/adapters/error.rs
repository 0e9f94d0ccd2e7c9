//! Why an adapter was not loaded or unloaded.

use crate::{
    engine::{EngineError, UpdateError},
    weights::peft::PeftError,
};

/// Why a call was not done. The words are those of vLLM 0.33 where it has some.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdapterError {
    /// The server serves no adapters.
    #[error("the server serves no adapters; start it with --enable-lora, and with --engine native")]
    Off,
    /// A name or a path is missing.
    #[error("Both 'lora_name' and 'lora_path' must be provided.")]
    Incomplete,
    /// A name cannot be one.
    #[error("'lora_name' {0}")]
    Name(&'static str),
    /// The name is one of the base model's.
    #[error("The lora adapter '{0}' conflicts with a served base model.")]
    IsBase(String),
    /// The name is taken.
    #[error(
        "The lora adapter '{0}' has already been loaded. If you want to load the adapter in place, set 'load_inplace' to \
         True."
    )]
    Taken(String),
    /// No more adapters may be loaded, and none of those that are may leave.
    #[error(
        "{0} adapters are loaded, as many as --max-cpu-loras allows, and each of them is in use or named by \
         --lora-modules; unload one, or load this one once a request has ended"
    )]
    TooMany(usize),
    /// There is nothing where the adapter should be.
    #[error("Loading lora {name} failed: No adapter found for {path}")]
    NotFound {
        /// Its name.
        name: String,
        /// The path, as it was said.
        path: String,
    },
    /// The path leads out of the directory of adapters.
    #[error("'lora_path' has to be within --lora-root")]
    Outside,
    /// The adapter cannot be used.
    #[error("{0}")]
    Unusable(String),
    /// The adapter cannot be used now, and the same call may work later.
    #[error("{0}")]
    NotNow(String),
    /// It is compared with weights that are being replaced.
    #[error("{0}")]
    Unsettled(String),
    /// It is compared with weights that are away.
    #[error("{0}")]
    WithoutWeights(String),
    /// The rank is too great.
    #[error("LoRA rank {rank} is greater than max_lora_rank {most}.")]
    Rank {
        /// Its rank.
        rank: usize,
        /// The greatest that is served.
        most: usize,
    },
    /// It is not an adapter of the model.
    #[error("{0}")]
    Model(String),
    /// It was loaded beside other weights of the base, which it has with it.
    #[error(
        "the adapter has other numbers for {0} than the model that is served since its weights were updated, so it was \
         trained with another one; load it again to have it compared anew"
    )]
    OtherBase(String),
    /// There is no such adapter.
    #[error("The lora adapter '{0}' cannot be found.")]
    Unknown(String),
}

impl AdapterError {
    /// Why the weights of the base were not read that an adapter is compared with.
    pub(super) fn of_weights(error: &UpdateError) -> Self {
        match error {
            UpdateError::Unsettled => Self::Unsettled(error.to_string()),
            UpdateError::Engine(EngineError::WithoutWeights { .. }) => Self::WithoutWeights(error.to_string()),
            _ => Self::Model(error.to_string()),
        }
    }

    pub(super) fn of_directory(name: &str, path: &str, error: PeftError) -> Self {
        match error {
            PeftError::NotFound(_) => Self::NotFound { name: name.to_owned(), path: path.to_owned() },
            PeftError::Changed(_) => Self::NotNow(error.to_string()),
            other => Self::Unusable(other.to_string()),
        }
    }
}
