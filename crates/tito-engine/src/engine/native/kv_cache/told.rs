//! What others are told of the cache of prefixes: see `engine::cache_events`.
//!
//! Owns which blocks they believe to be there. Blocks of an adapter that nobody can ask for any more are gone for them.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::hash::BlockHash;
use crate::engine::{
    AdapterId,
    cache_events::{CacheEvent, CacheEventSender, MOST_BLOCKS, StoredBlocks},
};

/// A block that became known.
pub(crate) struct NewBlock {
    /// Under which hash the cache finds it.
    pub(crate) hash: BlockHash,
    /// The adapter that computed it.
    pub(crate) adapter: Option<AdapterId>,
    /// What others are told: one block.
    pub(crate) stored: StoredBlocks,
}

/// Who is told, and what they were told.
pub(crate) struct Told {
    sender: CacheEventSender,
    /// What was not sent yet.
    pending: Vec<CacheEvent>,
    /// The blocks that the cache finds and that requests can ask for.
    known: HashMap<BlockHash, Known>,
    /// How many blocks there are of each hash that others see. Two adapters that had the same name one after the other may both
    /// have one.
    counts: HashMap<u64, u32>,
    /// Numbers the known blocks.
    clock: u64,
    /// The adapters that nobody can ask for any more.
    forgotten: BTreeSet<AdapterId>,
}

struct Known {
    number: u64,
    adapter: Option<AdapterId>,
    stored: StoredBlocks,
}

impl Told {
    pub(crate) fn new(sender: CacheEventSender) -> Self {
        let (pending, known, counts) = (Vec::new(), HashMap::new(), HashMap::new());
        Self { sender, pending, known, counts, clock: 0, forgotten: BTreeSet::new() }
    }

    /// Tells of a block that the cache finds from now on.
    pub(crate) fn stored(&mut self, NewBlock { hash, adapter, stored }: NewBlock) {
        if adapter.is_some_and(|adapter| self.forgotten.contains(&adapter)) {
            return;
        }
        let count = self.counts.entry(stored.hashes[0]).or_default();
        *count += 1;
        if *count == 1 {
            match self.pending.last_mut() {
                Some(CacheEvent::Stored(last)) if continues(last, &stored) => extend(last, stored.clone()),
                _ => self.pending.push(CacheEvent::Stored(stored.clone())),
            }
        }
        self.clock += 1;
        self.known.insert(hash, Known { number: self.clock, adapter, stored });
    }

    /// Tells of a block that the cache finds no more.
    pub(crate) fn removed(&mut self, hash: &BlockHash) {
        let Some(Known { stored, .. }) = self.known.remove(hash) else { return };
        let hash = stored.hashes[0];
        let Some(count) = self.counts.get_mut(&hash) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        self.counts.remove(&hash);
        match self.pending.last_mut() {
            Some(CacheEvent::Removed(hashes)) => hashes.push(hash),
            _ => self.pending.push(CacheEvent::Removed(vec![hash])),
        }
    }

    /// Tells that the cache finds nothing any more.
    pub(crate) fn cleared(&mut self) {
        self.known.clear();
        self.counts.clear();
        self.pending.push(CacheEvent::Cleared);
    }

    /// Takes note that nobody can ask for an adapter any more.
    pub(crate) fn forget_adapter(&mut self, adapter: AdapterId) {
        self.forgotten.insert(adapter);
        let mut gone: Vec<(u64, BlockHash)> = self
            .known
            .iter()
            .filter(|(_, known)| known.adapter == Some(adapter))
            .map(|(hash, known)| (known.number, *hash))
            .collect();
        gone.sort_unstable_by_key(|(number, _)| *number);
        for (_, hash) in &gone {
            self.removed(hash);
        }
    }

    /// Sends what is pending, or everything where something was lost.
    pub(crate) fn send(&mut self) {
        if self.sender.owes() {
            self.pending.clear();
            self.sender.account(|| account(&self.known));
        } else if !self.pending.is_empty() {
            self.sender.send(std::mem::take(&mut self.pending));
        }
    }
}

impl std::fmt::Debug for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Told({} blocks)", self.known.len())
    }
}

/// Whether a block comes after these in the same sequence.
fn continues(last: &StoredBlocks, next: &StoredBlocks) -> bool {
    last.hashes.last().copied() == next.parent && last.adapter == next.adapter && last.hashes.len() < MOST_BLOCKS
}

fn extend(last: &mut StoredBlocks, next: StoredBlocks) {
    last.hashes.extend(next.hashes);
    last.token_ids.extend(next.token_ids);
    last.keys.extend(next.keys);
}

/// Everything that is there, after it was said that all is gone; the blocks that came first are told first.
fn account(known: &HashMap<BlockHash, Known>) -> Vec<Vec<CacheEvent>> {
    let mut all: Vec<&Known> = known.values().collect();
    all.sort_unstable_by_key(|known| known.number);
    let mut seen = HashSet::new();
    all.retain(|known| seen.insert(known.stored.hashes[0]));
    let stored = all.chunks(MOST_BLOCKS);
    let stored = stored.map(|some| some.iter().map(|known| CacheEvent::Stored(known.stored.clone())).collect());
    std::iter::once(vec![CacheEvent::Cleared]).chain(stored).collect()
}
