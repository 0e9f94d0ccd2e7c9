//! The tables of the file, and what belongs together in them.
//!
//! Owns the layout: heads of records by id, bodies by age, and the sum of what all takes. Refuses to commit.

use redb::{
    Database, Durability, ReadOnlyTable, ReadTransaction, ReadableTable, Table, TableDefinition, TableHandle,
    WriteTransaction,
};

use super::chunks::{ReadChunks, WrittenChunks, broken, weight};
use crate::store::{
    Purpose, RecordState,
    chunks::{ChunkKey, Root, Tree},
};

/// The number of this layout. A file with a number that is not known is not touched.
pub(super) const FORMAT: u64 = 3;
/// The number of the layout in which all records are whole.
pub(super) const FORMAT_WITHOUT_CHUNKS: u64 = 2;
/// The number of the layout in which checksums are of id and body alone.
pub(super) const FORMAT_WITHOUT_HEADS: u64 = 1;

/// Age, state, epoch, bytes of the body, checksum of all that with id and body.
pub(super) type StoredHead = (u64, u8, u128, u64, [u8; 32]);

const HEADS: TableDefinition<'_, &str, StoredHead> = TableDefinition::new("heads");
const IDS: TableDefinition<'_, u64, &str> = TableDefinition::new("ids");
/// Roots, by age.
const BODIES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("bodies");

/// The numbers of a store, in a table whose name tells what the store is for.
fn numbers(purpose: Purpose) -> TableDefinition<'static, &'static str, u64> {
    TableDefinition::new(match purpose {
        Purpose::Responses => "tito response store",
        Purpose::Trajectories => "tito trajectory store",
    })
}

const NUMBER_FORMAT: &str = "format";
const NUMBER_WEIGHT: &str = "weight";
const NUMBER_NEXT: &str = "next";

/// What is known of a record besides its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) state: RecordState,
    /// The process that wrote it.
    pub(super) epoch: u128,
    pub(super) bytes: u64,
    /// The checksum of id and body.
    pub(super) content: [u8; 32],
}

/// The checksum of a body under its id.
pub(super) fn content(id: &str, record: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(id.len() as u64).to_le_bytes()).update(id.as_bytes()).update(record);
    hasher.finalize().into()
}

/// The checksum of a record: of what is in its head, and of its content.
fn checksum(age: u64, head: &Head) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&age.to_le_bytes()).update(&[state_byte(head.state)]).update(&head.epoch.to_le_bytes());
    hasher.update(&head.bytes.to_le_bytes()).update(&head.content);
    hasher.finalize().into()
}

/// A transaction whose commit returns when the disk has it.
pub(super) fn begin_write(database: &Database) -> Result<WriteTransaction, redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    // Bodies are written by others, so none may pass for a part of the tree after a crash.
    transaction.set_two_phase_commit(true);
    Ok(transaction)
}

/// Makes the tables that a file lacks, and writes this format's number: into a new file, or into one without chunks, whose
/// records stay whole.
pub(super) fn create(database: &Database, purpose: Purpose) -> Result<(), redb::Error> {
    let transaction = begin_write(database)?;
    transaction.open_table(numbers(purpose))?.insert(NUMBER_FORMAT, FORMAT)?;
    drop(Writing::open(&transaction, purpose)?);
    Ok(transaction.commit()?)
}

/// Gives the records of a file of the first format the checksums of this one, all at once.
pub(super) fn adopt(database: &Database, purpose: Purpose) -> Result<(), redb::Error> {
    let transaction = begin_write(database)?;
    {
        let mut heads = transaction.open_table(HEADS)?;
        let stored: Vec<(String, StoredHead)> = heads
            .iter()?
            .map(|entry| entry.map(|(id, head)| (id.value().to_owned(), head.value())))
            .collect::<Result<_, _>>()?;
        for (id, (age, state, epoch, bytes, content)) in stored {
            let head = Head { state: state_of(state)?, epoch, bytes, content };
            heads.insert(id.as_str(), (age, state, epoch, bytes, checksum(age, &head)))?;
        }
        transaction.open_table(numbers(purpose))?.insert(NUMBER_FORMAT, FORMAT)?;
    }
    drop(Writing::open(&transaction, purpose)?);
    Ok(transaction.commit()?)
}

/// What all records take.
pub(super) fn kept_bytes(transaction: &ReadTransaction, purpose: Purpose) -> Result<u64, redb::Error> {
    Ok(transaction.open_table(numbers(purpose))?.get(NUMBER_WEIGHT)?.map_or(0, |number| number.value()))
}

/// The layout's number; `None` where the file is of something else.
pub(super) fn format(transaction: &ReadTransaction, purpose: Purpose) -> Result<Option<u64>, redb::Error> {
    if !transaction.list_tables()?.any(|table| table.name() == numbers(purpose).name()) {
        return Ok(None);
    }
    Ok(transaction.open_table(numbers(purpose))?.get(NUMBER_FORMAT)?.map(|format| format.value()))
}

fn state_byte(state: RecordState) -> u8 {
    match state {
        RecordState::InProgress => 0,
        RecordState::Done => 1,
        RecordState::Interrupted => 2,
    }
}

fn state_of(byte: u8) -> Result<RecordState, redb::Error> {
    match byte {
        0 => Ok(RecordState::InProgress),
        1 => Ok(RecordState::Done),
        2 => Ok(RecordState::Interrupted),
        other => Err(broken(&format!("a record is in state {other}"))),
    }
}

/// The tables, to be read.
pub(super) struct Reading {
    heads: ReadOnlyTable<&'static str, StoredHead>,
    bodies: ReadOnlyTable<u64, &'static [u8]>,
    chunks: Option<ReadChunks>,
}

impl Reading {
    pub(super) fn open(transaction: &ReadTransaction) -> Result<Self, redb::Error> {
        Ok(Self {
            heads: transaction.open_table(HEADS)?,
            bodies: transaction.open_table(BODIES)?,
            chunks: ReadChunks::open(transaction)?,
        })
    }

    /// The ids of all records.
    pub(super) fn ids(&self) -> Result<Vec<String>, redb::Error> {
        self.heads.iter()?.map(|entry| Ok(entry?.0.value().to_owned())).collect()
    }

    /// The root of a record; `None` if there is none.
    fn root(&self, id: &str) -> Result<Option<Root>, redb::Error> {
        let Some(age) = self.heads.get(id)?.map(|stored| stored.value().0) else { return Ok(None) };
        let body = self.bodies.get(age)?.ok_or_else(|| broken("a record has no body"))?;
        let level = self.chunks.as_ref().map_or(Ok(0), |chunks| chunks.level(age))?;
        Ok(Some(Root { level, bytes: body.value().to_vec() }))
    }

    /// What records would take if nothing else was kept but a new one.
    pub(super) fn bytes_alone(&self, ids: &[String], new: &str, tree: &Tree) -> Result<u64, redb::Error> {
        let (mut chunks, mut bytes) = (tree.lengths(), weight(new.len(), tree.root.bytes.len()));
        for id in ids.iter().filter(|id| *id != new) {
            let Some(root) = self.root(id)? else { continue };
            bytes += weight(id.len(), root.bytes.len());
            if let Some(kept) = &self.chunks {
                root.lengths(kept, &mut chunks)?;
            }
        }
        Ok(bytes + chunks.values().map(|length| weight(size_of::<ChunkKey>(), *length)).sum::<u64>())
    }

    pub(super) fn get(&self, id: &str) -> Result<Option<(Head, Vec<u8>)>, redb::Error> {
        let Some(stored) = self.heads.get(id)? else { return Ok(None) };
        let (age, state, epoch, bytes, found) = stored.value();
        let body = self.bodies.get(age)?.ok_or_else(|| broken("a record has no body"))?;
        let record = match &self.chunks {
            None => body.value().to_vec(),
            Some(chunks) => Root { level: chunks.level(age)?, bytes: body.value().to_vec() }.record(chunks)?,
        };
        let head = Head { state: state_of(state)?, epoch, bytes, content: content(id, &record) };
        if bytes != record.len() as u64 || found != checksum(age, &head) {
            return Err(broken("a record is not what was written"));
        }
        Ok(Some((head, record)))
    }
}

/// The tables, to be written.
pub(super) struct Writing<'t> {
    heads: Table<'t, &'static str, StoredHead>,
    ids: Table<'t, u64, &'static str>,
    bodies: Table<'t, u64, &'static [u8]>,
    chunks: WrittenChunks<'t>,
    numbers: Table<'t, &'static str, u64>,
}

impl<'t> Writing<'t> {
    pub(super) fn open(transaction: &'t WriteTransaction, purpose: Purpose) -> Result<Self, redb::Error> {
        Ok(Self {
            heads: transaction.open_table(HEADS)?,
            ids: transaction.open_table(IDS)?,
            bodies: transaction.open_table(BODIES)?,
            chunks: WrittenChunks::open(transaction)?,
            numbers: transaction.open_table(numbers(purpose))?,
        })
    }

    fn number(&self, name: &str) -> Result<u64, redb::Error> {
        Ok(self.numbers.get(name)?.map_or(0, |number| number.value()))
    }

    /// What all records take.
    pub(super) fn weight(&self) -> Result<u64, redb::Error> {
        self.number(NUMBER_WEIGHT)
    }

    /// Removes a record, and says whether there was one.
    pub(super) fn remove(&mut self, id: &str) -> Result<bool, redb::Error> {
        let contradiction = || broken("the tables contradict each other");
        let Some(age) = self.heads.remove(id)?.map(|stored| stored.value().0) else { return Ok(false) };
        self.ids.remove(age)?.ok_or_else(contradiction)?;
        let body = self.bodies.remove(age)?.ok_or_else(contradiction)?.value().to_vec();
        let own = weight(id.len(), body.len());
        Root { level: self.chunks.take_level(age)?, bytes: body }.release(&mut self.chunks)?;
        self.count(0, own)?;
        Ok(true)
    }

    /// Counts what was added and what was freed, that of chunks too.
    fn count(&mut self, added: u64, freed: u64) -> Result<(), redb::Error> {
        let (chunks_added, chunks_freed) = self.chunks.take_weights();
        let all = self.weight()?.saturating_add(added).saturating_add(chunks_added);
        let left = all.checked_sub(freed.saturating_add(chunks_freed));
        let left = left.ok_or_else(|| broken("the tables contradict each other"))?;
        self.numbers.insert(NUMBER_WEIGHT, left)?;
        Ok(())
    }

    /// Removes the oldest records until all of them take `most` bytes.
    pub(super) fn make_room(&mut self, most: u64) -> Result<(), redb::Error> {
        while self.weight()? > most {
            let oldest = self.ids.first()?.map(|(_, id)| id.value().to_owned());
            let removed = oldest.map(|id| self.remove(&id)).transpose()?;
            if removed != Some(true) {
                return Err(broken("records are missing"));
            }
        }
        Ok(())
    }

    /// Keeps a record in place of the one that has its id.
    pub(super) fn put(&mut self, id: &str, head: &Head, tree: &Tree) -> Result<(), redb::Error> {
        // First the chunks are held, so that those stay which the record before has too.
        tree.hold(&mut self.chunks)?;
        self.remove(id)?;
        let age = self.number(NUMBER_NEXT)?;
        let checksum = checksum(age, head);
        self.heads.insert(id, (age, state_byte(head.state), head.epoch, head.bytes, checksum))?;
        self.ids.insert(age, id)?;
        self.bodies.insert(age, tree.root.bytes.as_slice())?;
        self.chunks.set_level(age, tree.root.level)?;
        self.numbers.insert(NUMBER_NEXT, age + 1)?;
        self.count(weight(id.len(), tree.root.bytes.len()), 0)
    }
}

/// Writes a head as no store does.
#[cfg(test)]
pub(super) fn change_head(database: &Database, id: &str, change: impl FnOnce(&mut StoredHead)) {
    let transaction = begin_write(database).unwrap();
    let mut heads = transaction.open_table(HEADS).unwrap();
    let mut head = heads.get(id).unwrap().unwrap().value();
    change(&mut head);
    heads.insert(id, head).unwrap();
    drop(heads);
    transaction.commit().unwrap();
}

/// Makes a file with these records one of the earlier format.
#[cfg(test)]
pub(super) fn make_earlier(database: &Database, records: &[(&str, &[u8])]) {
    for (id, record) in records {
        change_head(database, id, |head| head.4 = content(id, record));
    }
    let transaction = begin_write(database).unwrap();
    transaction.open_table(numbers(Purpose::Responses)).unwrap().insert(NUMBER_FORMAT, FORMAT_WITHOUT_HEADS).unwrap();
    transaction.commit().unwrap();
}
