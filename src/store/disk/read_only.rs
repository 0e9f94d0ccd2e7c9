//! A file that is only looked at: nothing is written to it, and nobody can write to it meanwhile.

use std::{fs::File, io, path::Path};

use redb::{Database, DatabaseError, ReadOnlyDatabase, ReadTransaction, ReadableDatabase};

use super::{BatchStore, Fault, OpenError, Purpose, StoreError, Tree, guard, opening, tables};

/// The records of a file, to be read.
pub struct ReadOnlyStore {
    purpose: Purpose,
    opened: Opened,
}

/// What is read.
enum Opened {
    /// The file itself.
    File(ReadOnlyDatabase),
    /// A copy of a file whose process ended without closing it: looking through what it left undone writes. The copy has no
    /// name, so that it is gone once this process is, however that ends.
    Copy(Database),
}

impl ReadOnlyStore {
    /// Opens the store at `path` that is for `purpose`.
    ///
    /// # Errors
    ///
    /// If there is no such file, if another process has it open to write, or if it is not what was written.
    pub fn open(purpose: Purpose, path: &Path) -> Result<Self, OpenError> {
        opening::look_at(purpose, path)?;
        let opened = guard::guarded(
            || ReadOnlyDatabase::open(path),
            |reason| DatabaseError::Storage(redb::StorageError::Corrupted(reason)),
        );
        let opened = match opened {
            Ok(database) => Opened::File(database),
            Err(DatabaseError::RepairAborted) => {
                let failed = |error| OpenError::Io { store: purpose, path: path.to_owned(), error };
                let copy = copied(path).map_err(failed)?;
                let database = opening::checked_file(copy);
                Opened::Copy(database.map_err(|error| opening::open_error(purpose, path, error.into()))?)
            }
            Err(error) => return Err(opening::open_error(purpose, path, error.into())),
        };
        let this = Self { purpose, opened };
        let format = this.read_with(|transaction| tables::format(transaction, purpose));
        match format.map_err(|error| opening::open_error(purpose, path, error))? {
            Some(tables::FORMAT | tables::FORMAT_WITHOUT_CHUNKS) => Ok(this),
            Some(found) => Err(OpenError::Format { store: purpose, path: path.to_owned(), found }),
            None => Err(OpenError::Foreign { store: purpose, path: path.to_owned() }),
        }
    }

    fn read_with<T>(&self, action: impl FnOnce(&ReadTransaction) -> Result<T, redb::Error>) -> Result<T, redb::Error> {
        let read = || {
            let transaction = match &self.opened {
                Opened::File(database) => database.begin_read(),
                Opened::Copy(database) => database.begin_read(),
            };
            action(&transaction?)
        };
        guard::guarded(read, redb::Error::Corrupted)
    }
}

/// A copy of a file, without a name.
fn copied(path: &Path) -> io::Result<File> {
    let mut copy = tempfile::tempfile()?;
    io::copy(&mut File::open(path)?, &mut copy)?;
    Ok(copy)
}

impl BatchStore for ReadOnlyStore {
    fn write(&self, _gone: &[String], _kept: &[(&str, &[u8])]) -> Result<(), StoreError> {
        Err(StoreError::ReadOnly("it was opened to be looked at".to_owned()))
    }

    fn read(&self, id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let found = self.read_with(|transaction| tables::Reading::open(transaction)?.get(id));
        Ok(found.map_err(|error| Fault::from(error).error)?.map(|(_, record)| record))
    }

    fn ids(&self) -> Result<Vec<String>, StoreError> {
        let found = self.read_with(|transaction| tables::Reading::open(transaction)?.ids());
        found.map_err(|error| Fault::from(error).error)
    }

    fn kept_bytes(&self) -> Result<u64, StoreError> {
        let found = self.read_with(|transaction| tables::kept_bytes(transaction, self.purpose));
        found.map_err(|error| Fault::from(error).error)
    }

    fn bytes_alone(&self, ids: &[String], (new, record): (&str, &[u8])) -> Result<u64, StoreError> {
        let tree = Tree::of(record);
        let found = self.read_with(|transaction| tables::Reading::open(transaction)?.bytes_alone(ids, new, &tree));
        found.map_err(|error| Fault::from(error).error)
    }
}
