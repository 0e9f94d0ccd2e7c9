//! The architectures that are understood, under the names of both worlds.

use super::{GgufError, GgufFile};

/// An architecture whose tensors and settings are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Architecture {
    /// Llama, and what computes like it: Mistral, SmolLM2.
    Llama,
    Qwen2,
    Qwen3,
    Qwen3Moe,
    SmolLm3,
}

impl Architecture {
    pub(super) const ALL: [Self; 5] = [Self::Llama, Self::Qwen2, Self::Qwen3, Self::Qwen3Moe, Self::SmolLm3];

    /// The architecture of a file; another one is an error that names those that are understood.
    pub(super) fn of(file: &GgufFile) -> Result<Self, GgufError> {
        let name = file.architecture()?;
        Self::named(name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            GgufError::Unsupported(format!("its architecture is `{name}`, not one of {known}"))
        })
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|architecture| architecture.name() == name)
    }

    /// Its `general.architecture`, and the beginning of its keys.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Qwen3Moe => "qwen3moe",
            Self::SmolLm3 => "smollm3",
        }
    }

    /// Its `model_type` in config.json.
    pub(super) fn model_type(self) -> &'static str {
        match self {
            Self::Qwen3Moe => "qwen3_moe",
            other => other.name(),
        }
    }

    /// The one entry of `architectures` in config.json.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Llama => "LlamaForCausalLM",
            Self::Qwen2 => "Qwen2ForCausalLM",
            Self::Qwen3 => "Qwen3ForCausalLM",
            Self::Qwen3Moe => "Qwen3MoeForCausalLM",
            Self::SmolLm3 => "SmolLM3ForCausalLM",
        }
    }

    /// Whether a GGUF file interleaves the two rotary halves of its query and key heads.
    pub(super) fn interleaves_rotary(self) -> bool {
        matches!(self, Self::Llama | Self::SmolLm3)
    }

    /// Whether query and key heads have norms.
    pub(super) fn has_head_norms(self) -> bool {
        matches!(self, Self::Qwen3 | Self::Qwen3Moe)
    }
}
