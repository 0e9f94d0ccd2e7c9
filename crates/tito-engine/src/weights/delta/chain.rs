//! From the version that is there to a later one, delta by delta.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use super::{Delta, DeltaError, Version};
use crate::weights::WeightTensor;

/// What the first delta of a chain is applied to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// The weights that are there.
    Current,
    /// The weights of a checkpoint that was published in between: those that are there are of no use any more.
    Checkpoint(PathBuf),
}

/// Deltas of which each builds on the one before.
#[derive(Debug)]
pub struct Chain {
    start: Start,
    /// The oldest first.
    deltas: Vec<Delta>,
    /// The delta that led to the version that is there, where that is the one that is asked for.
    held: Option<Delta>,
}

impl Chain {
    /// Finds what leads from the version that is there to a later one, among the versions that a trainer has published in
    /// a directory: `weight_v000004` as slime names them, or `delta-00000004` as SkyRL does. Where a whole checkpoint lies
    /// in between, the newest of them is the start. Where that version is there already, nothing is to be applied, and
    /// [`last`](Self::last) tells what it has.
    pub fn find(directory: &Path, from: u64, to: u64) -> Result<Self, DeltaError> {
        let wrong = |reason: String| {
            let directory = directory.to_owned();
            Err(DeltaError::Versions { directory, from, to, reason })
        };
        if from > to {
            return wrong("weights do not go back".to_owned());
        }
        let (mut version, mut start, mut deltas, mut held) = (to, Start::Current, Vec::new(), None);
        // Version 0 was never published.
        while version > from || (from == to && to > 0) {
            let path = match directories(directory, version) {
                (Some(path), None) | (None, Some(path)) => path,
                (Some(_), Some(_)) => return wrong(format!("version {version} is there in two formats")),
                (None, None) => return wrong(format!("version {version} is not there")),
            };
            let Version::Delta(delta) = Version::open(&path)? else {
                start = Start::Checkpoint(path);
                break;
            };
            if delta.version() != version {
                let found = delta.version();
                return wrong(format!("{} says that it is version {found}", path.display()));
            }
            if from == to {
                held = Some(delta);
                break;
            }
            if delta.base_version() < from {
                let base = delta.base_version();
                return wrong(format!("version {version} builds on version {base}, which is before version {from}"));
            }
            version = delta.base_version();
            deltas.push(delta);
        }
        deltas.reverse();
        Ok(Self { start, deltas, held })
    }

    /// What the first delta is applied to.
    pub fn start(&self) -> &Start {
        &self.start
    }

    /// Whether there is nothing to apply.
    pub fn is_empty(&self) -> bool {
        self.start == Start::Current && self.deltas.is_empty()
    }

    /// The delta whose tensors the last version has as they are; `None` where that is a checkpoint, or was never published.
    pub fn last(&self) -> Option<&Delta> {
        self.deltas.last().or(self.held.as_ref())
    }

    /// The deltas, the oldest first.
    pub fn deltas(&self) -> &[Delta] {
        &self.deltas
    }

    /// The names of all tensors that any of the deltas changes.
    pub fn changed(&self) -> BTreeSet<&str> {
        self.deltas.iter().flat_map(Delta::tensors).map(|tensor| tensor.name).collect()
    }

    /// Makes of a tensor at the [`start`](Self::start) that of the last version; see [`Delta::apply_to`].
    pub fn apply_to(&self, tensor: WeightTensor) -> Result<WeightTensor, DeltaError> {
        self.deltas.iter().try_fold(tensor, |tensor, delta| delta.apply_to(tensor))
    }
}

/// Where a version is, as slime names it and as SkyRL does.
fn directories(directory: &Path, version: u64) -> (Option<PathBuf>, Option<PathBuf>) {
    let there = |name: String| Some(directory.join(name)).filter(|path| path.is_dir());
    (there(format!("weight_v{version:06}")), there(format!("delta-{version:08}")))
}
