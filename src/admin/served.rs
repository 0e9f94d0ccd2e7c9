//! The names of what is served.

use std::path::PathBuf;

/// The names of what is served, and where it was loaded from.
#[derive(Debug, Clone)]
pub struct Served {
    /// What the command line calls the model.
    pub model: String,
    /// The name under which it is served.
    pub name: String,
    /// The file or directory from which its weights were loaded; `None` where there is none.
    pub weights: Option<PathBuf>,
    /// The tokens of a block of the cache, where events of it are published.
    pub kv_block_size: Option<usize>,
}
