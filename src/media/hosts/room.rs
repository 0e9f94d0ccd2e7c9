//! Memory that files of other hosts share.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What one permit stands for, in bytes: a semaphore cannot count as many as there may be.
const UNIT: usize = 1 << 10;

/// The part that one file has of the shared memory.
pub(super) struct Room {
    shared: Arc<Semaphore>,
    taken: Option<OwnedSemaphorePermit>,
}

/// Room for so many bytes.
pub(super) fn of_bytes(bytes: u64) -> Arc<Semaphore> {
    let units = usize::try_from(bytes.div_ceil(UNIT as u64)).unwrap_or(usize::MAX);
    Arc::new(Semaphore::new(units.min(Semaphore::MAX_PERMITS)))
}

impl Room {
    /// None yet.
    pub(super) fn new(shared: &Arc<Semaphore>) -> Self {
        Self { shared: Arc::clone(shared), taken: None }
    }

    /// Takes as much more as a file of `bytes` needs; `None` if others have it. It does not wait: files that are read in part
    /// could wait for each other.
    pub(super) fn grow(&mut self, bytes: usize) -> Option<()> {
        let taken = self.taken.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = u32::try_from(bytes.div_ceil(UNIT).saturating_sub(taken)).ok()?;
        let more = Arc::clone(&self.shared).try_acquire_many_owned(more).ok()?;
        match &mut self.taken {
            Some(taken) => taken.merge(more),
            None => self.taken = Some(more),
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_share_the_room_and_give_it_back() {
        let shared = of_bytes(4_000);
        let (mut one, mut other) = (Room::new(&shared), Room::new(&shared));
        for bytes in [1, 2, 1_024, 2_048] {
            assert_eq!(one.grow(bytes), Some(()), "{bytes}");
        }
        assert_eq!(shared.available_permits(), 2);
        assert_eq!(other.grow(2_049), None);
        assert_eq!(other.grow(2_048), Some(()));
        assert_eq!(one.grow(2_049), None);
        drop(one);
        assert_eq!(other.grow(4_096), Some(()));
        drop(other);
        assert_eq!(shared.available_permits(), 4);
    }
}
