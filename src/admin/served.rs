//! The names of what is served.

/// The names of what is served.
#[derive(Debug, Clone)]
pub struct Served {
    /// What the command line calls the model.
    pub model: String,
    /// The name under which it is served.
    pub name: String,
    /// The tokens of a block of the cache, where events of it are published.
    pub kv_block_size: Option<usize>,
}
