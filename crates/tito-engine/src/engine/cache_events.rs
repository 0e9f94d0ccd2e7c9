//! What an engine's cache of prefixes holds, told to whoever routes requests: blocks that came, that went, and that all are gone.
//!
//! Owns the queue between the engine's thread, which never waits for it, and its one reader. Refuses formats and sockets.
//!
//! A queue that is full loses events. The reader is never left with what is not so: once it has caught up, it is told that all is
//! gone, and then everything that is there.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::TokenId;

/// The most blocks that one [`StoredBlocks`] and one batch of a full account have. Readers refuse longer messages.
pub(crate) const MOST_BLOCKS: usize = 512;

/// What became of blocks of the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheEvent {
    /// Blocks can be found from now on.
    Stored(StoredBlocks),
    /// The blocks with these hashes cannot be found any more.
    Removed(Vec<u64>),
    /// No block can be found any more.
    Cleared,
}

/// Blocks that follow each other in a sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBlocks {
    /// What identifies each block: the adapter's name, the salt, and all tokens and images up to its end. Equal in all processes that
    /// serve the same.
    pub hashes: Vec<u64>,
    /// The hash of the block before the first one; `None` at the start of a sequence.
    pub parent: Option<u64>,
    /// The tokens of all blocks, one block after the other.
    pub token_ids: Vec<TokenId>,
    /// The adapter that computed them: its number in this process, and its name.
    pub adapter: Option<(u64, Arc<str>)>,
    /// For each block, what its hash depends on besides tokens.
    pub keys: Vec<BlockKeys>,
}

/// What a block's hash depends on besides tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlockKeys {
    /// The images that are at its tokens: what identifies each, and where it begins, in tokens from the start of the block. It may
    /// begin before the block.
    pub images: Vec<(Arc<str>, i64)>,
    /// The salt of the sequence, at its first block.
    pub salt: Option<Arc<str>>,
}

/// Events of one moment, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheEventBatch {
    /// When they were told.
    pub at: SystemTime,
    /// At least one.
    pub events: Vec<CacheEvent>,
}

#[derive(Default)]
struct Queue {
    batches: VecDeque<CacheEventBatch>,
    /// Whether events were lost, and the full account that makes up for them did not come yet.
    behind: bool,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    come: Notify,
    lost: AtomicU64,
}

/// The engine's end of the queue.
pub(crate) struct CacheEventSender {
    shared: Arc<Shared>,
    bound: usize,
}

/// The reader's end of the queue. Once it is dropped, events are told to nobody.
pub struct CacheEvents {
    shared: Arc<Shared>,
    block_size: usize,
    /// Has the engine give a full account, also if it has nothing to compute.
    wake: Box<dyn Fn() + Send + Sync>,
}

/// A queue of at most `bound` batches, not counting those of a full account.
pub(crate) fn channel(
    bound: usize,
    block_size: usize,
    wake: impl Fn() + Send + Sync + 'static,
) -> (CacheEventSender, CacheEvents) {
    let shared = Arc::new(Shared::default());
    let sender = CacheEventSender { shared: Arc::clone(&shared), bound };
    (sender, CacheEvents { shared, block_size, wake: Box::new(wake) })
}

impl CacheEventSender {
    /// Tells events, or loses them where there is no room: [`CacheEventSender::owes`] says so from then on.
    pub(crate) fn send(&self, events: Vec<CacheEvent>) {
        let mut queue = self.shared.queue.lock();
        if queue.closed {
            return;
        }
        if queue.behind || queue.batches.len() >= self.bound {
            let first = !std::mem::replace(&mut queue.behind, true);
            drop(queue);
            let lost = self.shared.lost.fetch_add(1, Ordering::Relaxed) + 1;
            if first {
                tracing::warn!(
                    "events of the cache come faster than they are published: {lost} batches lost so far; subscribers are told to \
                     forget all blocks, and then what is there"
                );
            }
            return;
        }
        queue.batches.push_back(CacheEventBatch { at: SystemTime::now(), events });
        drop(queue);
        self.shared.come.notify_one();
    }

    /// Whether a full account is due.
    pub(crate) fn owes(&self) -> bool {
        self.shared.queue.lock().behind
    }

    /// Gives a full account once the reader has read all that came before; `all` makes it, in batches.
    pub(crate) fn account(&self, all: impl FnOnce() -> Vec<Vec<CacheEvent>>) {
        let is_due = |queue: &Queue| queue.behind && queue.batches.is_empty() && !queue.closed;
        if !is_due(&self.shared.queue.lock()) {
            return;
        }
        // Nobody else sends, so that it is still due afterwards.
        let at = SystemTime::now();
        let batches = all().into_iter().map(|events| CacheEventBatch { at, events });
        let mut queue = self.shared.queue.lock();
        queue.behind = false;
        queue.batches.extend(batches);
        drop(queue);
        self.shared.come.notify_one();
    }
}

impl Drop for CacheEventSender {
    fn drop(&mut self) {
        self.shared.queue.lock().closed = true;
        self.shared.come.notify_one();
    }
}

impl CacheEvents {
    /// The tokens of a block.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// How many batches were lost so far because nobody read fast enough.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// The next batch; `None` once the engine has ended. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<CacheEventBatch> {
        loop {
            // One permit is kept if it comes before somebody waits.
            let come = self.shared.come.notified();
            let (batch, owed, closed) = {
                let mut queue = self.shared.queue.lock();
                let batch = queue.batches.pop_front();
                (batch, queue.behind && queue.batches.is_empty(), queue.closed)
            };
            if owed && !closed {
                (self.wake)();
            }
            match batch {
                Some(batch) => return Some(batch),
                None if closed => return None,
                None => come.await,
            }
        }
    }
}

impl Drop for CacheEvents {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.closed = true;
        queue.batches.clear();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_reader_that_is_too_slow_gets_a_full_account_and_nothing_in_between() {
        let wakes = Arc::new(AtomicU64::new(0));
        let woken = Arc::clone(&wakes);
        let (sender, mut reader) = channel(2, 32, move || _ = woken.fetch_add(1, Ordering::Relaxed));
        let removed = |hash| vec![CacheEvent::Removed(vec![hash])];
        (0..4).for_each(|hash| sender.send(removed(hash)));
        assert!(sender.owes());
        sender.account(|| panic!("what came before was not read"));
        let mut next = || reader.next().now_or_never().flatten().map(|batch| batch.events);
        assert_eq!(next(), Some(removed(0)));
        // There is room, but what was lost came before.
        sender.send(removed(9));
        assert_eq!((next(), wakes.load(Ordering::Relaxed)), (Some(removed(1)), 1));
        assert_eq!(next(), None);
        sender.account(|| vec![vec![CacheEvent::Cleared], removed(7), removed(8)]);
        assert!(!sender.owes());
        assert_eq!([next(), next(), next()], [vec![CacheEvent::Cleared], removed(7), removed(8)].map(Some));
        sender.send(removed(10));
        assert_eq!(next(), Some(removed(10)));
        assert_eq!(reader.lost(), 3);
        drop(sender);
        assert_eq!(reader.next().now_or_never(), Some(None));
    }
}
