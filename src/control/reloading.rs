//! The weights that the server was started with, read again.

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
}
