//! Which blocks of keys and values are whose, and which can be used again.
//!
//! Pure bookkeeping: block numbers and hashes, no tensors. A block is *held* by any number of sequences, *kept* when
//! nobody holds it but its content is known by a hash, or *free*. Kept blocks give way to new ones, the one that was
//! let go of first before all others.

mod hash;

use std::collections::{BTreeMap, HashMap};

pub(crate) use hash::BlockHash;

/// The number of a block.
pub(crate) type BlockId = u32;

/// All blocks.
#[derive(Debug)]
pub(crate) struct KvCache {
    /// How many there are.
    count: BlockId,
    /// The blocks that were ever taken. The others take no memory, neither here nor where keys and values are.
    blocks: Vec<Block>,
    /// The blocks among them that are neither held nor kept; the last one is taken first.
    free: Vec<BlockId>,
    /// The kept blocks, in the order in which sequences let go of them.
    kept: BTreeMap<u64, BlockId>,
    by_hash: HashMap<BlockHash, BlockId>,
    clock: u64,
}

#[derive(Debug, Clone, Default)]
struct Block {
    holders: u32,
    hash: Option<BlockHash>,
    /// When the last holder let go of it.
    released: u64,
}

impl KvCache {
    /// `blocks` free blocks.
    pub(crate) fn new(blocks: usize) -> Self {
        Self {
            count: BlockId::try_from(blocks).expect("fewer than 2^32 blocks"),
            blocks: Vec::new(),
            free: Vec::new(),
            kept: BTreeMap::new(),
            by_hash: HashMap::new(),
            clock: 0,
        }
    }

    /// The number of all blocks.
    pub(crate) fn len(&self) -> usize {
        self.count as usize
    }

    fn untouched(&self) -> usize {
        self.len() - self.blocks.len()
    }

    /// The number of blocks that can be had: free or kept.
    pub(crate) fn available(&self) -> usize {
        self.untouched() + self.free.len() + self.kept.len()
    }

    /// The number of blocks that sequences hold.
    pub(crate) fn held(&self) -> usize {
        self.len() - self.available()
    }

    /// The block with this content, if there is one. Finding it does not hold it.
    pub(crate) fn find(&self, hash: &BlockHash) -> Option<BlockId> {
        self.by_hash.get(hash).copied()
    }

    /// Whether nobody holds the block.
    pub(crate) fn is_kept(&self, block: BlockId) -> bool {
        self.blocks[block as usize].holders == 0
    }

    /// Holds a block that [`KvCache::find`] gave.
    pub(crate) fn hold(&mut self, block: BlockId) {
        let entry = &mut self.blocks[block as usize];
        if entry.holders == 0 {
            self.kept.remove(&entry.released);
        }
        entry.holders += 1;
    }

    /// Takes a block for new content, if any can be had.
    pub(crate) fn take(&mut self) -> Option<BlockId> {
        let block = match self.free.pop() {
            Some(block) => block,
            None if self.untouched() > 0 => self.touch(),
            None => self.evict()?,
        };
        self.blocks[block as usize].holders = 1;
        Some(block)
    }

    fn touch(&mut self) -> BlockId {
        let block = BlockId::try_from(self.blocks.len()).expect("fewer than 2^32 blocks");
        self.blocks.push(Block::default());
        block
    }

    fn evict(&mut self) -> Option<BlockId> {
        let (_, block) = self.kept.pop_first()?;
        if let Some(hash) = self.blocks[block as usize].hash.take() {
            self.by_hash.remove(&hash);
        }
        Some(block)
    }

    /// Makes a held block's content known. Where another block has the same content already, that one stays known.
    pub(crate) fn publish(&mut self, block: BlockId, hash: BlockHash) {
        let entry = &mut self.blocks[block as usize];
        debug_assert!(entry.holders > 0, "whoever computed a block holds it");
        if entry.hash.is_none() && !self.by_hash.contains_key(&hash) {
            entry.hash = Some(hash);
            self.by_hash.insert(hash, block);
        }
    }

    /// Lets go of a block.
    pub(crate) fn release(&mut self, block: BlockId) {
        let entry = &mut self.blocks[block as usize];
        entry.holders = entry.holders.checked_sub(1).expect("a block is let go of as often as it was held");
        if entry.holders > 0 {
            return;
        }
        if entry.hash.is_some() {
            self.clock += 1;
            entry.released = self.clock;
            self.kept.insert(self.clock, block);
        } else {
            self.free.push(block);
        }
    }

    /// Forgets the content of every block, so that none is used again; held blocks stay held.
    pub(crate) fn forget(&mut self) {
        self.by_hash.clear();
        for block in &mut self.blocks {
            block.hash = None;
        }
        self.free.extend(std::mem::take(&mut self.kept).into_values());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hash(content: u32) -> BlockHash {
        BlockHash::root(0, None).then(&[content])
    }

    #[test]
    fn a_kept_block_is_found_until_its_place_is_needed() {
        let mut cache = KvCache::new(2);
        let first = cache.take().unwrap();
        cache.publish(first, hash(1));
        cache.release(first);
        assert_eq!((cache.find(&hash(1)), cache.available(), cache.held()), (Some(first), 2, 0));
        let second = cache.take().unwrap();
        assert_ne!(second, first, "a free block goes before a kept one");
        assert_eq!(cache.take(), Some(first));
        assert_eq!((cache.find(&hash(1)), cache.take()), (None, None));
    }

    #[test]
    fn the_block_that_was_let_go_of_first_gives_way_first() {
        let mut cache = KvCache::new(3);
        let blocks: Vec<BlockId> = (0..3).map(|_| cache.take().unwrap()).collect();
        for (content, block) in (0..).zip(&blocks) {
            cache.publish(*block, hash(content));
        }
        for index in [1, 0, 2] {
            cache.release(blocks[index]);
        }
        cache.hold(blocks[1]);
        cache.release(blocks[1]);
        assert_eq!([cache.take(), cache.take(), cache.take()], [blocks[0], blocks[2], blocks[1]].map(Some));
    }

    #[test]
    fn two_blocks_of_the_same_content_are_known_by_the_first() {
        let mut cache = KvCache::new(2);
        let (first, second) = (cache.take().unwrap(), cache.take().unwrap());
        cache.publish(first, hash(1));
        cache.publish(second, hash(1));
        cache.release(second);
        cache.release(first);
        assert_eq!(cache.find(&hash(1)), Some(first));
        assert_eq!(cache.take(), Some(second));
        assert_eq!(cache.find(&hash(1)), Some(first));
    }

    #[test]
    fn forgotten_blocks_are_free_once_they_are_let_go_of() {
        let mut cache = KvCache::new(2);
        let (kept, held) = (cache.take().unwrap(), cache.take().unwrap());
        cache.publish(kept, hash(1));
        cache.publish(held, hash(2));
        cache.release(kept);
        cache.forget();
        assert_eq!((cache.find(&hash(1)), cache.find(&hash(2)), cache.available()), (None, None, 1));
        cache.release(held);
        assert_eq!((cache.available(), cache.kept.len()), (2, 0));
    }

    #[test]
    fn blocks_that_were_never_taken_take_no_memory() {
        let mut cache = KvCache::new(u32::MAX as usize / 2);
        assert_eq!((cache.take(), cache.take(), cache.held()), (Some(0), Some(1), 2));
        cache.release(0);
        assert_eq!((cache.take(), cache.available()), (Some(0), cache.len() - 2));
    }

    proptest! {
        /// Against a model that knows only who holds what.
        #[test]
        fn no_block_is_lost_or_held_twice(actions in prop::collection::vec((0..5_u8, 0..8_u32), 1..200)) {
            let mut cache = KvCache::new(6);
            let mut held: Vec<BlockId> = Vec::new();
            for (action, number) in actions {
                match action {
                    0 => {
                        let distinct: std::collections::BTreeSet<_> = held.iter().copied().collect();
                        if let Some(block) = cache.take() {
                            prop_assert!(!held.contains(&block));
                            held.push(block);
                        } else {
                            prop_assert_eq!(distinct.len(), 6);
                        }
                    }
                    1 if !held.is_empty() => cache.publish(held[number as usize % held.len()], hash(number)),
                    2 if !held.is_empty() => cache.release(held.swap_remove(number as usize % held.len())),
                    3 => if let Some(block) = cache.find(&hash(number)) {
                        cache.hold(block);
                        held.push(block);
                    },
                    4 if number == 0 => cache.forget(),
                    _ => {}
                }
                let distinct: std::collections::BTreeSet<_> = held.iter().copied().collect();
                prop_assert_eq!(cache.held(), distinct.len());
            }
        }
    }
}
