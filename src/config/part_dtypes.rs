//! Types of what is computed beside the weights: asked for as in vLLM, and always those that they have anyway.

use clap::Args;

/// The types of keys and values, and of adapters.
#[derive(Debug, Args)]
pub struct PartDtypeArgs {
    /// The type of keys and values: `auto`, or the one that they have.
    ///
    /// That is the type of the arithmetic, or of --activation-dtype. Any other one is refused.
    #[arg(long, value_parser = kv_cache_dtype, default_value = "auto", hide_default_value = true, value_name = "TYPE")]
    pub kv_cache_dtype: PartDtype,

    /// The type of adapters: `auto`, or the one of the weights. Any other one is refused.
    #[arg(long, value_parser = lora_dtype, default_value = "auto", hide_default_value = true, value_name = "TYPE")]
    pub lora_dtype: PartDtype,
}

/// A type that a part may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartDtype {
    /// Whichever it has.
    Auto,
    /// Brain floating point.
    Bfloat16,
    /// IEEE single precision.
    Float32,
}

fn kv_cache_dtype(text: &str) -> Result<PartDtype, String> {
    const REASON: &str =
        "keys and values always have the type of the arithmetic, see --dtype; leave it out, or pass auto";
    named(text).ok_or_else(|| REASON.to_owned())
}

fn lora_dtype(text: &str) -> Result<PartDtype, String> {
    const REASON: &str = "tito applies adapters in the type of the weights, see --dtype; leave it out, or pass auto";
    named(text).ok_or_else(|| REASON.to_owned())
}

fn named(text: &str) -> Option<PartDtype> {
    match text {
        "auto" => Some(PartDtype::Auto),
        "bfloat16" => Some(PartDtype::Bfloat16),
        "float32" => Some(PartDtype::Float32),
        _ => None,
    }
}
