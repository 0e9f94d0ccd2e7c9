//! The random numbers of a sequence, and the inverse of a cumulative distribution.

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore, SeedableRng},
};

/// Tells this use of a seed from any other that may follow; a change of it changes every seeded answer.
const DOMAIN: &[u8; 24] = b"tito sampling, version 1";

/// One uniform number per position: a function of the seed and the position alone, the same on every platform.
#[derive(Debug)]
pub(super) struct UniformStream {
    rng: ChaCha8Rng,
}

impl UniformStream {
    pub(super) fn new(seed: u64) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..].copy_from_slice(DOMAIN);
        Self { rng: ChaCha8Rng::from_seed(key) }
    }

    /// In [0, 1), a multiple of 2^-53.
    pub(super) fn at(&mut self, position: usize) -> f64 {
        // A number takes two 32-bit words of the key stream.
        self.rng.set_word_pos(2 * position as u128);
        #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
        let integer = (self.rng.next_u64() >> 11) as f64;
        integer / 9_007_199_254_740_992.0
    }
}

/// The index at which `before` plus the weights first exceeds `target`. Should rounding keep it from doing so, the last
/// index that weighs anything; a weight of 0 is never chosen.
pub(super) fn first_exceeding(weights: impl Iterator<Item = f64>, before: f64, target: f64) -> usize {
    let mut cumulative = before;
    let mut last = 0;
    for (index, weight) in weights.enumerate().filter(|&(_, weight)| weight > 0.0) {
        last = index;
        cumulative += weight;
        if cumulative > target {
            break;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_gives_the_same_number_in_any_order() {
        let mut forwards = UniformStream::new(7);
        let mut backwards = UniformStream::new(7);
        let ascending: Vec<f64> = (0..100).map(|position| forwards.at(position)).collect();
        let mut descending: Vec<f64> = (0..100).rev().map(|position| backwards.at(position)).collect();
        descending.reverse();
        assert_eq!(ascending, descending);
    }

    #[test]
    fn the_stream_of_a_seed_never_changes() {
        let mut stream = UniformStream::new(42);
        let numbers: Vec<f64> = (0..3).map(|position| stream.at(position)).collect();
        // From a ChaCha8 written out independently of `rand_chacha`.
        assert_eq!(numbers, [0.882_533_741_087_851_9, 0.472_301_447_739_997_94, 0.333_509_007_065_104_8]);
    }

    #[test]
    fn numbers_are_uniform_in_the_unit_interval() {
        let mut stream = UniformStream::new(0);
        let mut tenths = [0_u32; 10];
        for position in 0..100_000 {
            let number = stream.at(position);
            assert!((0.0..1.0).contains(&number));
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a digit")]
            let tenth = (number * 10.0) as usize;
            tenths[tenth] += 1;
        }
        // Five standard deviations of 10 000 expected.
        assert!(tenths.iter().all(|count| count.abs_diff(10_000) < 475), "{tenths:?}");
    }

    #[test]
    fn weightless_entries_are_never_chosen() {
        let weights = [0.0, 1.0, 0.0, 1.0, 0.0];
        let choose = |target| first_exceeding(weights.into_iter(), 0.0, target);
        assert_eq!(choose(0.0), 1);
        assert_eq!(choose(0.999), 1);
        assert_eq!(choose(1.0), 3);
        assert_eq!(choose(2.0), 3);
    }
}
