//! redb trusts what its pages say, and panics where one is not what it wrote. Here that is an error like any other.

use redb::{Database, DatabaseError, StorageError};

use crate::files;

/// Runs `action`, and has `corrupted` make an error of the message of a panic. What was worked on is thrown away then.
pub(super) fn guarded<T, E>(
    action: impl FnOnce() -> Result<T, E>,
    corrupted: impl FnOnce(String) -> E,
) -> Result<T, E> {
    files::without_panics(action).unwrap_or_else(|reason| Err(corrupted(reason)))
}

/// Opens a file.
pub(super) fn opened(open: impl FnOnce() -> Result<Database, DatabaseError>) -> Result<Database, DatabaseError> {
    guarded(open, |reason| DatabaseError::Storage(StorageError::Corrupted(reason)))
}

/// Closes a file, which writes to it.
pub(super) fn close(database: Option<Database>) {
    if let Err(reason) = files::without_panics(|| drop(database)) {
        tracing::error!(reason, "a store was closed in the middle of a fault");
    }
}
