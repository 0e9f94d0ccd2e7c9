//! What flags of `tito serve` choose from, by name.

use clap::ValueEnum;

use crate::{prompt::template::ContentFormat, sampling::LogprobsMode};

/// vLLM's names of [`ContentFormat`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ContentFormatArg {
    /// As the template reads it.
    #[default]
    Auto,
    /// One string.
    String,
    /// A list of parts, as in OpenAI's API.
    Openai,
}

impl From<ContentFormatArg> for Option<ContentFormat> {
    fn from(format: ContentFormatArg) -> Self {
        match format {
            ContentFormatArg::Auto => None,
            ContentFormatArg::String => Some(ContentFormat::String),
            ContentFormatArg::Openai => Some(ContentFormat::OpenAi),
        }
    }
}

/// Type of weights and arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Dtype {
    /// The type of the weights, if the engine can compute in it.
    #[default]
    Auto,
    /// IEEE half precision.
    #[value(alias = "half")]
    Float16,
    /// Brain floating point.
    Bfloat16,
    /// IEEE single precision.
    #[value(alias = "float")]
    Float32,
}

/// Type of what weights are multiplied with, and of keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ActivationDtype {
    /// That of the weights.
    #[default]
    Auto,
    /// IEEE single precision, also with weights in bfloat16: no activation is rounded.
    #[value(alias = "float")]
    Float32,
}

/// What becomes of the weights of a GGUF file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum GgufWeights {
    /// Widen them if tito knows how and memory is large enough, otherwise keep them as they are.
    #[default]
    Auto,
    /// Keep them as they are: this takes less memory. The native engine computes the same bits; mistral.rs rounds
    /// activations to 8 bits.
    Native,
    /// Widen them to bfloat16, and compute as with any other model.
    Widened,
}

/// What becomes of the weights of a quantised directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum QuantizedWeights {
    /// Widen them if memory is large enough, otherwise keep them.
    #[default]
    Auto,
    /// Keep their codes, and widen them inside each product: this takes less memory.
    Kept,
    /// Widen them when they are loaded.
    Widened,
}

/// What runs the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum EngineKind {
    /// tito's own engine if it knows the model, otherwise mistral.rs.
    #[default]
    Auto,
    /// tito's own engine.
    Native,
    /// mistral.rs.
    Mistralrs,
    /// No model at all: fixed nonsense, for tests and benchmarks.
    Scripted,
}

/// vLLM's names of [`LogprobsMode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum LogprobsModeArg {
    /// The model's own, before penalties, masks and temperature.
    #[default]
    #[value(name = "raw_logprobs", alias = "raw")]
    Raw,
    /// The one that was sampled from, after all of these.
    #[value(name = "processed_logprobs", alias = "processed")]
    Processed,
}

impl From<LogprobsModeArg> for LogprobsMode {
    fn from(mode: LogprobsModeArg) -> Self {
        match mode {
            LogprobsModeArg::Raw => Self::Raw,
            LogprobsModeArg::Processed => Self::Processed,
        }
    }
}
