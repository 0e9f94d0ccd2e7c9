//! redb trusts what its pages say, and panics where one is not what it wrote. Here that is an error like any other.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

use redb::{Database, DatabaseError, StorageError};

/// Does it; a panic is what `corrupted` makes of its message. What was worked on is thrown away afterwards.
pub(super) fn guarded<T, E>(
    action: impl FnOnce() -> Result<T, E>,
    corrupted: impl FnOnce(String) -> E,
) -> Result<T, E> {
    catch_unwind(AssertUnwindSafe(action)).unwrap_or_else(|panic| Err(corrupted(message(panic.as_ref()))))
}

/// Opens a file.
pub(super) fn opened(open: impl FnOnce() -> Result<Database, DatabaseError>) -> Result<Database, DatabaseError> {
    guarded(open, |reason| DatabaseError::Storage(StorageError::Corrupted(reason)))
}

/// Closes a file, which writes to it.
pub(super) fn close(database: Option<Database>) {
    let closing = || {
        drop(database);
        Ok(())
    };
    if let Err(reason) = guarded(closing, |reason| reason) {
        tracing::error!(reason, "the response store was closed in the middle of a fault");
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a page is not what was written").to_owned()
}
