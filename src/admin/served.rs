//! The names of what is served.

/// The names of what is served.
#[derive(Debug, Clone)]
pub struct Served {
    /// What the command line calls the model.
    pub model: String,
    /// The name under which it is served.
    pub name: String,
}
