//! The numbers that a trainer gives to weights, by which deltas lead from one to the next.

use std::path::{Path, PathBuf};

use super::{
    Control, ControlError,
    pulled::{self, Files},
    updating::{Update, Updated},
};

/// The files that the server was started with, as they were then.
#[derive(Debug, Clone)]
pub struct LoadedFiles {
    path: PathBuf,
    files: Files,
}

impl LoadedFiles {
    /// Takes note of the files at a path.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned(), files: pulled::files(path) }
    }

    /// Whether their names, lengths and times are those of then.
    fn are_unchanged(&self) -> bool {
        self.files.is_some() && self.files == pulled::files(&self.path)
    }
}

impl Control {
    /// Replaces weights by those that the server was started with, which are version 0, unless somebody wrote to their
    /// files since.
    ///
    /// # Errors
    ///
    /// As [`Control::update`].
    pub async fn reload(&self, loaded: &LoadedFiles) -> Result<Updated, ControlError> {
        let update = Update { path: loaded.path.clone(), label: None, aborts: false };
        self.update_numbered(update, Some(&|| loaded.are_unchanged())).await
    }

    /// The number of the weights after an update that calls its own `new`, where so many tensors lacked before it. The rest
    /// of weights that were lost is of the same number as what came before, or nobody knows the number.
    pub(super) fn trained_after(&self, new: Option<u64>, before: Option<u64>, lacking: usize) -> Option<u64> {
        let tensors = self.engine.control().map_or(0, |engine| engine.tensors().len());
        new.filter(|_| !(1..tensors).contains(&lacking) || new == before)
    }
}

/// The number that a trainer gives to weights: that of the directory, or what the caller calls them. The engine's own count
/// says nothing of what was trained.
pub(super) fn trained(of_source: Option<u64>, given: Option<&str>) -> Option<u64> {
    of_source.or_else(|| given?.parse().ok())
}
