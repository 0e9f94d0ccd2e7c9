//! Which file it is that a store has open, and whether its path still leads to it.
//!
//! A file that is removed or replaced stays with whoever has it open: what is written to it then is gone with the process.

use std::{
    fs::{self, Metadata, OpenOptions},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use super::{Purpose, StoreError};

/// A file that a store has open, by its path and by what the system knows it as.
#[derive(Debug)]
pub(super) struct Identity {
    store: Purpose,
    path: PathBuf,
    device: u64,
    inode: u64,
    /// Whether the log says already that it is gone.
    said: AtomicBool,
}

impl Identity {
    /// That of the file at `path`. It is opened to be written for a moment, as some file systems have another file then.
    pub(super) fn at(store: Purpose, path: &Path) -> io::Result<Self> {
        let found = OpenOptions::new().read(true).write(true).open(path)?.metadata()?;
        let (path, said) = (path.to_owned(), AtomicBool::new(false));
        Ok(Self { store, path, device: found.dev(), inode: found.ino(), said })
    }

    /// Refuses to go on where the path leads to another file, or to none.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let Err(reason) = self.found() else { return Ok(()) };
        if !self.said.swap(true, Ordering::AcqRel) {
            let (store, path) = (self.store, self.path.display());
            tracing::error!("the {store} {path} {reason}; what it has is lost when the server ends");
        }
        Err(StoreError::Failed(format!("its file {reason}; what it has is lost when the server ends")))
    }

    fn found(&self) -> Result<(), String> {
        let is_this = |found: &Metadata| (found.dev(), found.ino()) == (self.device, self.inode);
        match fs::metadata(&self.path) {
            Ok(found) if is_this(&found) => Ok(()),
            Ok(_) => Err("was replaced by another one while it was in use".to_owned()),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Err("was removed while it was in use".to_owned())
            }
            Err(error) => Err(format!("is not found any more while it is in use: {error}")),
        }
    }
}
