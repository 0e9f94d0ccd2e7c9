//! Room for trajectories: whether one fits at all, and which leave so that the rest fits.
//!
//! What is known of trajectories is counted in the index. What their records take, the store says: it keeps once what they
//! have in common, and nobody else knows how much that is. So a record is written first, and then others leave.

use super::{CaptureError, Removal, Trajectories, index::Tree, weight};

impl Trajectories {
    /// Refuses records by which their trajectory would not fit if all others had left. `grown` is what is known of it besides.
    pub(super) fn check_size(&self, tree: u64, grown: u64, new: &[(&str, &[u8])]) -> Result<(), CaptureError> {
        let most = self.policy.bytes;
        let (known, keys) = {
            let index = self.index.lock();
            let found = index.trees.get(&tree);
            let known = found.map_or(0, Tree::bytes) + grown;
            let stored = found.map_or(0, Tree::most_stored)
                + weight::most_stored(new.len(), new.iter().map(|(_, bytes)| bytes.len() as u64).sum());
            if known.saturating_add(stored) <= most {
                return Ok(());
            }
            (known, index.keys(tree))
        };
        // Of what new records have in common, each has its own here.
        let Some((last, others)) = new.split_last() else { return Ok(()) };
        let mut bytes = known + self.store.bytes_alone(&keys, *last)?;
        for new in others {
            bytes += self.store.bytes_alone(&[], *new)?;
        }
        if bytes > most { Err(CaptureError::TooLarge { bytes, most }) } else { Ok(()) }
    }

    /// Has the oldest trajectories leave until the rest fits, and deletes what has left. `kept` stays.
    pub(super) fn settle(&self, kept: Option<u64>) -> Result<(), CaptureError> {
        if self.is_settled() {
            return Ok(());
        }
        // What leaves counts until the store has forgotten it: two at once would have too many leave.
        let _leaving = self.leaving.lock();
        loop {
            let gone = {
                let mut index = self.index.lock();
                if index.gone.is_empty() {
                    Removal::Size.count(index.shrink(self.writer.kept_bytes(), self.policy.bytes, kept));
                }
                std::mem::take(&mut index.gone)
            };
            if gone.is_empty() {
                return Ok(());
            }
            if let Err(error) = self.write(gone.clone(), Vec::new()) {
                // They are deleted with the next ones.
                self.index.lock().gone.extend(gone);
                return Err(error);
            }
        }
    }

    /// The same after something was written to `kept`, which is done however this ends: what a store cannot delete now
    /// leaves with the next write.
    pub(super) fn settle_later(&self, kept: u64) {
        drop(self.settle(Some(kept)));
    }

    fn is_settled(&self) -> bool {
        let index = self.index.lock();
        index.gone.is_empty() && index.fits(self.writer.kept_bytes(), self.policy.bytes)
    }

    /// What counts against the bound.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.index.lock().bytes() + self.writer.kept_bytes()
    }
}
