//! From a path to an open file, or the reason why not.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use redb::{Database, DatabaseError, ReadableDatabase, backends::FileBackend};
use thiserror::Error;

use super::{Identity, Purpose, StoreError, guard, tables, unfinished};

/// Why there is no store. The texts are for whoever starts the server.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another process has the file open.
    #[error("the {store} {path} is in use by another process")]
    InUse {
        /// What the file was to be.
        store: Purpose,
        /// Where the file is.
        path: PathBuf,
    },
    /// The file is something else.
    #[error("{path} is not a {store}")]
    Foreign {
        /// What the file was to be.
        store: Purpose,
        /// Where the file is.
        path: PathBuf,
    },
    /// The file was written by another version of tito.
    #[error("the {store} {path} has format {found}, and this version reads format {read}", read = tables::FORMAT)]
    Format {
        /// What the file was to be.
        store: Purpose,
        /// Where the file is.
        path: PathBuf,
        /// The number of the format that it has.
        found: u64,
    },
    /// The file is not what was written.
    #[error("the {store} {path} is corrupted: {reason}; move it away to begin a new one")]
    Corrupted {
        /// What the file was to be.
        store: Purpose,
        /// Where the file is.
        path: PathBuf,
        /// What was noticed.
        reason: String,
    },
    /// The system does not let us open the file.
    #[error("the {store} {path} cannot be opened: {error}")]
    Io {
        /// What the file was to be.
        store: Purpose,
        /// Where the file is.
        path: PathBuf,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// The library reports something else.
    #[error("the {store} {path} cannot be opened: {reason}")]
    Failed {
        /// What the file was to be.
        store: Purpose,
        /// Where the file is.
        path: PathBuf,
        /// What the library says.
        reason: String,
    },
}

/// Memory for pages that were read, and for those of a transaction.
const CACHE_BYTES: usize = 64 << 20;
/// What a file of redb begins with.
const MAGIC: &[u8] = b"redb";

/// Checks all of the file: it may have been changed, copied in part, or rot.
pub(super) fn open(store: Purpose, path: &Path) -> Result<(Database, Identity), OpenError> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => create(store, path)?,
        _ => {}
    }
    look_at(store, path)?;
    let file = Identity::at(store, path).map_err(|error| OpenError::Io { store, path: path.to_owned(), error })?;
    let database = checked(path).map_err(|error| open_error(store, path, error.into()))?;
    let replaced = |error: StoreError| OpenError::Failed { store, path: path.to_owned(), reason: error.to_string() };
    file.check().map_err(replaced)?;
    unfinished::remove(path);
    let read =
        || database.begin_read().map_err(redb::Error::from).and_then(|transaction| tables::format(&transaction, store));
    let format = guard::guarded(read, redb::Error::Corrupted);
    match format.map_err(|error| open_error(store, path, error))? {
        Some(tables::FORMAT) => Ok((database, file)),
        Some(tables::FORMAT_WITHOUT_HEADS) => {
            let adopted = guard::guarded(|| tables::adopt(&database, store), redb::Error::Corrupted);
            adopted.map_err(|error| open_error(store, path, error))?;
            Ok((database, file))
        }
        Some(tables::FORMAT_WITHOUT_CHUNKS) => {
            let adopt = || tables::create(&database, store);
            guard::guarded(adopt, redb::Error::Corrupted).map_err(|error| open_error(store, path, error))?;
            Ok((database, file))
        }
        Some(found) => Err(OpenError::Format { store, path: path.to_owned(), found }),
        None => Err(OpenError::Foreign { store, path: path.to_owned() }),
    }
}

/// Opens a file that is there, and checks all of it.
pub(super) fn checked(path: &Path) -> Result<Database, DatabaseError> {
    guard::opened(|| checking().open(path))
}

/// The same for a file that has no name.
pub(super) fn checked_file(file: File) -> Result<Database, DatabaseError> {
    guard::opened(|| checking().create_with_backend(FileBackend::new(file)?))
}

fn checking() -> redb::Builder {
    let mut builder = redb::Builder::new();
    builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(true);
    builder
}

/// Looks at what a file says of itself, before the library does.
pub(super) fn look_at(store: Purpose, path: &Path) -> Result<(), OpenError> {
    let failed = |error| OpenError::Io { store, path: path.to_owned(), error };
    let found = fs::metadata(path).map_err(failed)?;
    if !found.is_file() {
        return Err(OpenError::Foreign { store, path: path.to_owned() });
    }
    // tito makes a store under another name, so that a file of its own is never empty, and redb would begin anew.
    if found.len() == 0 {
        return Err(OpenError::Corrupted { store, path: path.to_owned(), reason: "it has 0 bytes".to_owned() });
    }
    let header = header(path).map_err(failed)?;
    if !header.starts_with(MAGIC) {
        return Err(OpenError::Foreign { store, path: path.to_owned() });
    }
    if !names_last_commit(&header) {
        let reason = "the earlier one of its two last commits is said to count".to_owned();
        return Err(OpenError::Corrupted { store, path: path.to_owned(), reason });
    }
    Ok(())
}

/// Opens the same file again after a fault. If it is not there, something is wrong.
pub(super) fn reopen(path: &Path) -> Result<Database, DatabaseError> {
    redb::Builder::new().set_cache_size(CACHE_BYTES).open(path)
}

/// The length of redb's header: the magic number, a byte of flags, the geometry, and the slots of two commits.
const HEADER_BYTES: u64 = 320;

/// The first bytes of a file, fewer where it ends before.
fn header(path: &Path) -> io::Result<Vec<u8>> {
    let mut header = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(File::open(path)?, HEADER_BYTES), &mut header)?;
    Ok(header)
}

/// Whether a file that was closed in order says that its last commit is the one that counts.
///
/// The byte that says so is under no checksum: with one bit changed, redb would serve the commit before, and a record
/// that was accepted would be gone without a word. What a process left open, redb looks through and decides itself.
fn names_last_commit(header: &[u8]) -> bool {
    const FLAGS: usize = 9;
    const SECOND_COUNTS: u8 = 1;
    const LEFT_OPEN: u8 = 2;
    const NOT_FLUSHED: u8 = 8;
    /// Where the numbers of the two commits stand.
    const NUMBERS: [usize; 2] = [64 + 104, 64 + 128 + 104];
    let number = |at: usize| header.get(at..)?.first_chunk().copied().map(u64::from_le_bytes);
    let (Some(flags), Some(first), Some(second)) = (header.get(FLAGS), number(NUMBERS[0]), number(NUMBERS[1])) else {
        // Too short for redb, which says so.
        return true;
    };
    let last_counts = if flags & SECOND_COUNTS == 0 { first > second } else { second > first };
    flags & LEFT_OPEN != 0 || (last_counts && flags & NOT_FLUSHED == 0)
}

/// A file is made under another name, so that none is ever found half made.
fn create(store: Purpose, path: &Path) -> Result<(), OpenError> {
    let failed = |error| OpenError::Io { store, path: path.to_owned(), error };
    let directory = unfinished::directory(path);
    let file = unfinished::begin(path).map_err(failed)?;
    let database = redb::Builder::new().set_cache_size(CACHE_BYTES).create(file.path());
    let database = database.map_err(|error| open_error(store, path, error.into()))?;
    tables::create(&database, store).map_err(|error| open_error(store, path, error))?;
    database.close().map_err(|error| open_error(store, path, error.into()))?;
    match file.persist_noclobber(path) {
        // Another server was faster: its file, or its lock, is what will be found.
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(failed(error.error)),
        // The name has to be on the disk too.
        Ok(_) => File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed),
    }
}

pub(super) fn open_error(store: Purpose, path: &Path, error: redb::Error) -> OpenError {
    let path = path.to_owned();
    match error {
        redb::Error::DatabaseAlreadyOpen | redb::Error::LockProtocolMismatch => OpenError::InUse { store, path },
        redb::Error::Corrupted(reason) => OpenError::Corrupted { store, path, reason },
        redb::Error::Io(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => {
            OpenError::Corrupted { store, path, reason: error.to_string() }
        }
        redb::Error::Io(error) => OpenError::Io { store, path, error },
        other => OpenError::Failed { store, path, reason: other.to_string() },
    }
}
