//! What samples again: a model, and whose turns.

use std::{collections::HashMap, sync::Arc};

use crate::{
    engine::Adapter,
    generation::Generator,
    media::MediaReader,
    tokenizer::Tokenizer,
    trajectory::{ComputedBy, Owner},
    turn::StructuredOutputCompiler,
};

/// What samples again.
pub(crate) struct Replayer {
    /// Generates with the weights that are tried.
    pub generator: Generator,
    /// Finds stop strings in texts.
    pub tokenizer: Arc<Tokenizer>,
    /// Compiles what outputs had to keep to.
    pub compiler: Arc<StructuredOutputCompiler>,
    /// Prepares images, for a model that sees some.
    pub media: Option<MediaReader>,
    /// The adapters that are loaded, by the names that requests give them.
    pub adapters: HashMap<String, Arc<Adapter>>,
    /// How often the weights had been replaced that are tried. If others sample, nothing is compared.
    pub weights: u64,
    /// The checksum of these weights; `None` where it is not known, or not known yet.
    pub checksum: Option<String>,
    /// What computes besides.
    pub computed_by: ComputedBy,
    /// Who asks.
    pub owner: Owner,
    /// Keys and values are shared with requests of the same salt only; `None` shares them among all replays without one.
    pub cache_salt: Option<Arc<str>>,
}
