//! Deltas on disk: what changed of a model's tensors from one version to the next, as trainers publish it.
//!
//! Two formats are read, that of [slime and SGLang](index) and that of [SkyRL](manifest). Both hold, for each tensor
//! that changed, a compressed patch of its bytes as a checkpoint has them, and a checksum of what they become. If a
//! delta is applied to bytes other than the trainer's, that checksum fails. So bytes that an engine has rounded cannot
//! be used.

mod chain;
mod changes;
mod digest;
mod error;
mod index;
mod manifest;
mod patch;
mod payload;
#[cfg(test)]
mod tests;
mod version_number;

use std::path::Path;

pub use self::{
    chain::{Chain, Start},
    changes::{Delta, DeltaTensor},
    error::DeltaError,
};

/// What a directory of a version holds.
#[derive(Debug)]
pub enum Version {
    /// What changed since another version.
    Delta(Delta),
    /// All weights, as in any checkpoint.
    Checkpoint,
}

impl Version {
    /// Opens what a trainer has published as one version. What can be wrong without the weights before is found here.
    pub fn open(directory: &Path) -> Result<Self, DeltaError> {
        let there = |name: &str| directory.join(name).exists();
        match (there(manifest::MANIFEST), there(index::INDEX)) {
            (true, true) => {
                let reason = format!("it has both {} and {}", manifest::MANIFEST, index::INDEX);
                Err(DeltaError::format(directory, &reason))
            }
            (true, false) => manifest::read(directory)?.checked().map(Self::Delta),
            (false, true) => match index::read(directory)? {
                Some(delta) => delta.checked().map(Self::Delta),
                None => Ok(Self::Checkpoint),
            },
            (false, false) if there("model.safetensors") => Ok(Self::Checkpoint),
            (false, false) => {
                let reason = format!("it has neither {} nor {}", manifest::MANIFEST, index::INDEX);
                Err(DeltaError::format(directory, &reason))
            }
        }
    }
}

#[cfg(test)]
impl Delta {
    /// Opens a delta, which is refused where it is a whole checkpoint.
    pub fn open(directory: &Path) -> Result<Self, DeltaError> {
        match Version::open(directory)? {
            Version::Delta(delta) => Ok(delta),
            Version::Checkpoint => Err(DeltaError::Checkpoint(directory.to_owned())),
        }
    }
}
