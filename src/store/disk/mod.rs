//! Records in a file: what was accepted survives the process, however it ends.
//!
//! Owns when the file is opened, and what becomes of its faults. Refuses to guess: a file that is not sound is not opened,
//! a record that is not what was written is not returned.
//!
//! After a failed write, redb gives up its handle of the file. So the next request opens the file again. What was on
//! the disk before stays readable. When the disk has room again, the store writes to it again.

mod chunks;
mod guard;
mod identity;
mod opening;
mod read_only;
mod tables;
#[cfg(test)]
mod tests;
mod unfinished;

use std::{io, path::Path};

use parking_lot::RwLock;
use redb::{Database, DatabaseError, ReadableDatabase};

use super::{
    BatchStore, Purpose, RecordState, ResponseStore, StoreError,
    chunks::{ChunkKey, Tree},
};
use identity::Identity;
pub use opening::OpenError;
pub use read_only::ReadOnlyStore;
use tables::{Head, Reading, Writing};

/// A bounded store in one file; the oldest records leave first.
pub struct DiskStore {
    purpose: Purpose,
    reopen: Opener,
    /// The file; `None` on a disk that has no files.
    file: Option<Identity>,
    handle: RwLock<Handle>,
    most: u64,
    /// Tells what this process generates from what earlier ones did.
    epoch: u128,
}

/// The open file; requests share it, and have it alone to replace it.
struct Handle {
    /// `None` from a fault until the next request.
    database: Option<Database>,
    /// How many handles there were before this one.
    number: u64,
}

/// How often a request tries again after faults that others met.
const MOST_RETRIES: usize = 8;

type Opener = Box<dyn Fn() -> Result<Database, DatabaseError> + Send + Sync>;

/// Why something did not work, and whether it is the file's handle that is to blame.
struct Fault {
    error: StoreError,
    /// The handle has failed before; the action may well work with a new one.
    stale: bool,
    /// The handle is of no use any more.
    fatal: bool,
}

impl DiskStore {
    /// Opens or makes the store of responses at `path`, with room for about `most` bytes.
    pub fn open(path: &Path, most: u64) -> Result<Self, OpenError> {
        Self::open_for(Purpose::Responses, path, most)
    }

    /// Opens or makes the store at `path` that is for `purpose`.
    pub fn open_for(purpose: Purpose, path: &Path, most: u64) -> Result<Self, OpenError> {
        let (database, file) = opening::open(purpose, path)?;
        let path = path.to_owned();
        let reopen = Box::new(move || opening::reopen(&path));
        let mut this = Self::new(purpose, database, reopen, most);
        this.file = Some(file);
        this.warn_of_small_room();
        Ok(this)
    }

    fn new(purpose: Purpose, database: Database, reopen: Opener, most: u64) -> Self {
        let epoch = uuid::Uuid::new_v4().as_u128();
        let handle = RwLock::new(Handle { database: Some(database), number: 0 });
        Self { purpose, reopen, file: None, handle, most, epoch }
    }

    /// Says that records will leave because there was more room when they came. A forgotten flag may empty a file.
    fn warn_of_small_room(&self) {
        if let Ok(bytes) = self.kept_bytes()
            && bytes > self.most
        {
            tracing::warn!(
                "the {} has {bytes} bytes of earlier processes, more than --response-store-size {}: its oldest records are removed \
                 with the next one that is stored",
                self.purpose,
                self.most
            );
        }
    }

    /// Refuses to go on with a file that its path does not lead to.
    fn check_file(&self) -> Result<(), StoreError> {
        self.file.as_ref().map_or(Ok(()), Identity::check)
    }

    /// Runs an `action` that writes. What is written to a file that is gone would be acknowledged, and lost.
    fn with_file<T>(&self, action: impl Fn(&Database) -> Result<T, Fault>) -> Result<T, StoreError> {
        self.check_file()?;
        let done = self.with(action)?;
        self.check_file()?;
        Ok(done)
    }

    /// Runs `action`, with a new handle where the one at hand has failed before.
    fn with<T>(&self, action: impl Fn(&Database) -> Result<T, Fault>) -> Result<T, StoreError> {
        let mut retries = 0;
        loop {
            let handle = self.handle.read();
            let Some(database) = &handle.database else {
                drop(handle);
                self.renew()?;
                continue;
            };
            let number = handle.number;
            let corrupted = |reason| Fault { error: StoreError::Corrupted(reason), stale: false, fatal: true };
            let fault = match guard::guarded(|| action(database), corrupted) {
                Ok(done) => return Ok(done),
                Err(fault) => fault,
            };
            drop(handle);
            if fault.fatal || fault.stale {
                self.close(number);
            }
            if !fault.stale || retries == MOST_RETRIES {
                return Err(fault.error);
            }
            retries += 1;
        }
    }

    /// Closes a handle that failed, unless someone else did.
    fn close(&self, number: u64) {
        let mut handle = self.handle.write();
        if handle.number == number {
            guard::close(handle.database.take());
        }
    }

    fn renew(&self) -> Result<(), StoreError> {
        let mut handle = self.handle.write();
        if handle.database.is_none() {
            self.check_file()?;
            let opened =
                guard::opened(|| (self.reopen)()).map_err(|error| Fault::from(redb::Error::from(error)).error)?;
            self.check_file()?;
            tracing::info!("the {} was opened again", self.purpose);
            *handle = Handle { database: Some(opened), number: handle.number + 1 };
        }
        Ok(())
    }

    fn head(&self, id: &str, state: RecordState, record: &[u8]) -> Head {
        Head { state, epoch: self.epoch, bytes: record.len() as u64, content: tables::content(id, record) }
    }
}

impl Drop for DiskStore {
    fn drop(&mut self) {
        // The last moment to say that what was kept is lost. The reason is in the log.
        if self.check_file().is_err() {
            tracing::error!("the {} ends without its file: what it has is lost", self.purpose);
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        guard::close(self.database.take());
    }
}

impl ResponseStore for DiskStore {
    fn put(&self, id: &str, state: RecordState, record: &[u8]) -> Result<(), StoreError> {
        let head = self.head(id, state, record);
        let tree = Tree::of(record);
        let chunks = tree.chunks().map(|(_, chunk)| chunks::weight(size_of::<ChunkKey>(), chunk.len()));
        let weight = chunks::weight(id.len(), tree.root.bytes.len()) + chunks.sum::<u64>();
        if weight > self.most {
            return Err(StoreError::TooLarge { bytes: weight, most: self.most });
        }
        self.with_file(|database| {
            let transaction = tables::begin_write(database)?;
            let mut writing = Writing::open(&transaction, self.purpose)?;
            writing.put(id, &head, &tree)?;
            writing.make_room(self.most)?;
            drop(writing);
            Ok(transaction.commit().map_err(redb::Error::from)?)
        })
    }

    fn get(&self, id: &str) -> Result<Option<(RecordState, Vec<u8>)>, StoreError> {
        let found = self.with(|database| {
            let transaction = database.begin_read().map_err(redb::Error::from)?;
            Ok(Reading::open(&transaction)?.get(id)?)
        })?;
        let Some((head, record)) = found else { return Ok(None) };
        let state = match head.state {
            RecordState::InProgress if head.epoch != self.epoch => RecordState::Interrupted,
            state => state,
        };
        Ok(Some((state, record)))
    }

    fn delete(&self, id: &str) -> Result<bool, StoreError> {
        self.with_file(|database| {
            let transaction = tables::begin_write(database)?;
            let removed = Writing::open(&transaction, self.purpose)?.remove(id)?;
            if removed {
                transaction.commit().map_err(redb::Error::from)?;
            } else {
                transaction.abort().map_err(redb::Error::from)?;
            }
            Ok(removed)
        })
    }
}

impl BatchStore for DiskStore {
    fn write(&self, gone: &[String], kept: &[(&str, &[u8])]) -> Result<(), StoreError> {
        let prepared =
            kept.iter().map(|(id, record)| (*id, self.head(id, RecordState::Done, record), Tree::of(record)));
        let kept: Vec<_> = prepared.collect();
        self.with_file(|database| {
            let transaction = tables::begin_write(database)?;
            let mut writing = Writing::open(&transaction, self.purpose)?;
            for id in gone {
                writing.remove(id)?;
            }
            for (id, head, tree) in &kept {
                writing.put(id, head, tree)?;
            }
            drop(writing);
            Ok(transaction.commit().map_err(redb::Error::from)?)
        })
    }

    fn read(&self, id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.get(id)?.map(|(_, record)| record))
    }

    fn ids(&self) -> Result<Vec<String>, StoreError> {
        self.with(|database| {
            let transaction = database.begin_read().map_err(redb::Error::from)?;
            Ok(Reading::open(&transaction)?.ids()?)
        })
    }

    fn kept_bytes(&self) -> Result<u64, StoreError> {
        self.with(|database| {
            let transaction = database.begin_read().map_err(redb::Error::from)?;
            Ok(tables::kept_bytes(&transaction, self.purpose)?)
        })
    }

    fn bytes_alone(&self, ids: &[String], (new, record): (&str, &[u8])) -> Result<u64, StoreError> {
        let tree = Tree::of(record);
        self.with(|database| {
            let transaction = database.begin_read().map_err(redb::Error::from)?;
            Ok(Reading::open(&transaction)?.bytes_alone(ids, new, &tree)?)
        })
    }
}

impl From<redb::Error> for Fault {
    fn from(error: redb::Error) -> Self {
        let text = error.to_string();
        let stale =
            matches!(error, redb::Error::PreviousIo | redb::Error::DatabaseClosed | redb::Error::LockPoisoned(_));
        let fatal = matches!(error, redb::Error::Io(_));
        let error = match error {
            redb::Error::Io(error) => io_error(&error),
            redb::Error::Corrupted(_) => StoreError::Corrupted(text),
            _ => StoreError::Failed(text),
        };
        Self { error, stale, fatal }
    }
}

fn io_error(error: &io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            StoreError::DiskFull(error.to_string())
        }
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => StoreError::ReadOnly(error.to_string()),
        _ => StoreError::Failed(error.to_string()),
    }
}
