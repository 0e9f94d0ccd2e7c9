//! A disk in memory that runs full, fails, and loses what was not synchronised.

use std::{
    collections::BTreeSet,
    io::{Error, ErrorKind, Result},
    sync::Arc,
};

use parking_lot::Mutex;
use redb::{Database, DatabaseError, StorageBackend};

use super::super::guard;

/// Survives the processes that use it.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk(Arc<Mutex<DiskState>>);

#[derive(Debug, Default)]
struct DiskState {
    bytes: Vec<u8>,
    /// Blocks that were written, as files have holes.
    blocks: BTreeSet<u64>,
    synced: Vec<u8>,
    unsynced: Vec<Change>,
    /// Writes and synchronisations that still work, and how the one after them fails; so do all later ones.
    fault: Option<(usize, ErrorKind)>,
    most_blocks: Option<usize>,
    /// Handles of earlier processes are dead.
    process: u64,
}

#[derive(Debug, Clone)]
enum Change {
    Write(u64, Vec<u8>),
    Length(usize),
}

const BLOCK: u64 = 4096;

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Length(length) => bytes.resize(*length, 0),
        Change::Write(offset, data) => {
            let offset = usize::try_from(*offset).unwrap();
            let end = offset + data.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[offset..end].copy_from_slice(data);
        }
    }
}

impl Disk {
    pub(super) fn open(&self) -> std::result::Result<Database, DatabaseError> {
        let process = self.0.lock().process;
        guard::opened(|| redb::Builder::new().create_with_backend(Handle { disk: self.clone(), process }))
    }

    /// After `working` more writes, everything that writes fails.
    pub(super) fn fail_after(&self, working: usize, kind: ErrorKind) {
        self.0.lock().fault = Some((working, kind));
    }

    pub(super) fn heal(&self) {
        let mut state = self.0.lock();
        state.fault = None;
        state.most_blocks = None;
    }

    /// No room but for what is there.
    pub(super) fn fill(&self) {
        let mut state = self.0.lock();
        state.most_blocks = Some(state.blocks.len());
    }

    /// The machine stops: of what was not synchronised, only that is there for which `kept` says so.
    pub(super) fn lose_power(&self, mut kept: impl FnMut() -> bool) {
        let mut state = self.0.lock();
        let mut bytes = state.synced.clone();
        for change in std::mem::take(&mut state.unsynced) {
            if kept() {
                apply(&mut bytes, &change);
            }
        }
        state.synced.clone_from(&bytes);
        state.bytes = bytes;
        state.fault = None;
        state.process += 1;
    }

    /// Only the process stops: the system has what was written.
    pub(super) fn kill(&self) {
        self.lose_power(|| true);
    }

    pub(super) fn flip(&self, at: usize, bit: u8) {
        let mut state = self.0.lock();
        let at = at % state.bytes.len();
        state.bytes[at] ^= 1 << (bit % 8);
        state.synced = state.bytes.clone();
    }
}

#[derive(Debug)]
struct Handle {
    disk: Disk,
    process: u64,
}

impl Handle {
    fn state(&self) -> Result<parking_lot::MutexGuard<'_, DiskState>> {
        let state = self.disk.0.lock();
        if state.process == self.process { Ok(state) } else { Err(Error::other("the process is gone")) }
    }

    fn writing(&self) -> Result<parking_lot::MutexGuard<'_, DiskState>> {
        let mut state = self.state()?;
        match &mut state.fault {
            Some((0, kind)) => return Err((*kind).into()),
            Some((working, _)) => *working -= 1,
            None => {}
        }
        Ok(state)
    }
}

impl StorageBackend for Handle {
    fn len(&self) -> Result<u64> {
        Ok(self.state()?.bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let state = self.state()?;
        let offset = usize::try_from(offset).unwrap();
        let found = state.bytes.get(offset..offset + out.len()).ok_or(ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let mut state = self.writing()?;
        let change = Change::Length(usize::try_from(len).unwrap());
        apply(&mut state.bytes, &change);
        state.blocks.retain(|block| block * BLOCK < len);
        state.unsynced.push(change);
        Ok(())
    }

    fn sync_data(&self) -> Result<()> {
        let mut state = self.writing()?;
        state.synced = state.bytes.clone();
        state.unsynced.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut state = self.writing()?;
        let wanted = offset / BLOCK..=(offset + data.len().max(1) as u64 - 1) / BLOCK;
        let more = wanted.clone().filter(|block| !state.blocks.contains(block)).count();
        if state.most_blocks.is_some_and(|most| state.blocks.len() + more > most) {
            return Err(ErrorKind::StorageFull.into());
        }
        state.blocks.extend(wanted);
        let change = Change::Write(offset, data.to_vec());
        apply(&mut state.bytes, &change);
        state.unsynced.push(change);
        Ok(())
    }
}
