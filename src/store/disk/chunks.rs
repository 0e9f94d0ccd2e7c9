//! The tables of chunks, and what an entry of any table takes.

use redb::{ReadOnlyTable, ReadTransaction, ReadableTable, Table, TableDefinition, TableError, WriteTransaction};

use crate::store::chunks::{ChunkKey, Chunks, ReadChunk};

/// Levels of roots by age, those that are not 0.
const LEVELS: TableDefinition<'_, u64, u8> = TableDefinition::new("levels");
const HOLDERS: TableDefinition<'_, ChunkKey, u64> = TableDefinition::new("chunk holders");
const CHUNKS: TableDefinition<'_, ChunkKey, &[u8]> = TableDefinition::new("chunks");

/// The tables, to be read.
pub(super) struct ReadChunks {
    levels: ReadOnlyTable<u64, u8>,
    chunks: ReadOnlyTable<ChunkKey, &'static [u8]>,
}

impl ReadChunks {
    /// Opens them; `None` in a file of an earlier format, which is only looked at.
    pub(super) fn open(transaction: &ReadTransaction) -> Result<Option<Self>, redb::Error> {
        let levels = match transaction.open_table(LEVELS) {
            Err(TableError::TableDoesNotExist(_)) => return Ok(None),
            levels => levels?,
        };
        Ok(Some(Self { levels, chunks: transaction.open_table(CHUNKS)? }))
    }

    /// The level of a root.
    pub(super) fn level(&self, age: u64) -> Result<u8, redb::Error> {
        Ok(self.levels.get(age)?.map_or(0, |level| level.value()))
    }
}

impl ReadChunk for ReadChunks {
    type Error = redb::Error;

    fn read(&self, key: ChunkKey) -> Result<Vec<u8>, redb::Error> {
        Ok(self.chunks.get(key)?.ok_or_else(missing)?.value().to_vec())
    }

    fn broken(&self, what: &str) -> redb::Error {
        broken(what)
    }
}

/// The tables, to be written.
pub(super) struct WrittenChunks<'t> {
    levels: Table<'t, u64, u8>,
    holders: Table<'t, ChunkKey, u64>,
    chunks: Table<'t, ChunkKey, &'static [u8]>,
    /// What chunks take that were added and that were removed since somebody asked.
    added: u64,
    freed: u64,
}

impl<'t> WrittenChunks<'t> {
    pub(super) fn open(transaction: &'t WriteTransaction) -> Result<Self, redb::Error> {
        Ok(Self {
            levels: transaction.open_table(LEVELS)?,
            holders: transaction.open_table(HOLDERS)?,
            chunks: transaction.open_table(CHUNKS)?,
            added: 0,
            freed: 0,
        })
    }

    /// Forgets the level of a root, and returns it.
    pub(super) fn take_level(&mut self, age: u64) -> Result<u8, redb::Error> {
        Ok(self.levels.remove(age)?.map_or(0, |level| level.value()))
    }

    pub(super) fn set_level(&mut self, age: u64, level: u8) -> Result<(), redb::Error> {
        if level > 0 {
            self.levels.insert(age, level)?;
        }
        Ok(())
    }

    /// What chunks take that were added, and that were removed, since this was asked last.
    pub(super) fn take_weights(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.added), std::mem::take(&mut self.freed))
    }
}

impl Chunks for WrittenChunks<'_> {
    type Error = redb::Error;

    fn holders(&self, key: ChunkKey) -> Result<Option<u64>, redb::Error> {
        Ok(self.holders.get(key)?.map(|holders| holders.value()))
    }

    fn set_holders(&mut self, key: ChunkKey, holders: u64) -> Result<(), redb::Error> {
        self.holders.insert(key, holders)?;
        Ok(())
    }

    fn insert(&mut self, key: ChunkKey, bytes: &[u8]) -> Result<(), redb::Error> {
        self.added += weight(key.len(), bytes.len());
        self.holders.insert(key, 1)?;
        self.chunks.insert(key, bytes)?;
        Ok(())
    }

    fn remove(&mut self, key: ChunkKey) -> Result<Vec<u8>, redb::Error> {
        self.holders.remove(key)?;
        let chunk = self.chunks.remove(key)?.ok_or_else(missing)?.value().to_vec();
        self.freed += weight(key.len(), chunk.len());
        Ok(chunk)
    }

    fn broken(&self, what: &str) -> redb::Error {
        broken(what)
    }
}

/// About how many bytes a record, or a chunk, takes in the file, by the lengths of its key and of its body: a body that is
/// longer than half a page has pages to itself, whose number is a power of two.
pub(super) fn weight(key: usize, bytes: usize) -> u64 {
    const PAGE: u64 = 4096;
    const ENTRY: u64 = 160;
    let bytes = bytes as u64;
    let body = if bytes > PAGE / 2 { (bytes + ENTRY).next_power_of_two().max(PAGE) } else { bytes };
    body.saturating_add(2 * key as u64 + ENTRY)
}

/// What is said when the tables contradict each other.
pub(super) fn broken(what: &str) -> redb::Error {
    redb::Error::Corrupted(what.to_owned())
}

fn missing() -> redb::Error {
    broken("a chunk is missing")
}
