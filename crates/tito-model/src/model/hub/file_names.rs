//! Files of a repository, by their names.

use std::path::Path;

/// The files of an adapter.
pub(super) const ADAPTER: [&str; 2] = ["adapter_config.json", "adapter_model.safetensors"];

/// Whether a file has one of these extensions.
pub(super) fn has_extension(file: &str, extensions: &[&str]) -> bool {
    Path::new(file).extension().is_some_and(|extension| extensions.iter().any(|wanted| extension == *wanted))
}
