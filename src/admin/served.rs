//! The names of what is served.

use crate::control::LoadedFiles;

/// The names of what is served, and where it was loaded from.
#[derive(Debug, Clone)]
pub struct Served {
    /// What the command line calls the model.
    pub model: String,
    /// The name under which it is served.
    pub name: String,
    /// What its weights were loaded from; `None` where there is nothing.
    pub weights: Option<LoadedFiles>,
    /// The tokens of a block of the cache, where events of it are published.
    pub kv_block_size: Option<usize>,
}
