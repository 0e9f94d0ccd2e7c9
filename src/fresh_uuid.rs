//! Random UUIDs, of which every request needs some.

use std::cell::RefCell;

use rand_chacha::{
    ChaCha12Rng,
    rand_core::{RngCore, SeedableRng},
};
use uuid::{Builder, Uuid};

thread_local! {
    static GENERATOR: RefCell<ChaCha12Rng> = RefCell::new(ChaCha12Rng::from_seed(seed()));
}

/// Returns a UUID of version 4 that nobody can guess from others. `Uuid::new_v4` asks the system each time, for a third of all
/// that a short request asks of it; this one asks once for each thread.
pub(crate) fn fresh_uuid() -> Uuid {
    let mut bytes = [0; 16];
    GENERATOR.with_borrow_mut(|generator| generator.fill_bytes(&mut bytes));
    Builder::from_random_bytes(bytes).into_uuid()
}

/// Bytes of the system's randomness, 244 bits of them.
fn seed() -> [u8; 32] {
    let mut seed = [0; 32];
    for half in seed.chunks_exact_mut(16) {
        half.copy_from_slice(Uuid::new_v4().as_bytes());
    }
    seed
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::fresh_uuid;

    #[test]
    fn uuids_are_of_version_4_and_none_comes_twice_on_any_thread() {
        let of_a_thread = || (0..2_000).map(|_| fresh_uuid()).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(of_a_thread)).collect();
        let all: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        assert!(all.iter().all(|uuid| uuid.get_version_num() == 4));
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
    }
}
