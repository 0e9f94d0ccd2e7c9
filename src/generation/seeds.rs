//! Seeds of requests that bring none.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Draws seeds, the same ones in the same order for the same base. Clones share the order.
#[derive(Debug, Clone, Default)]
pub(super) struct Seeds {
    base: u64,
    drawn: Arc<AtomicU64>,
}

impl Seeds {
    pub(super) fn new(base: u64) -> Self {
        Self { base, drawn: Arc::default() }
    }

    /// The next seed. The sequences of a request count on from its seed, so seeds have to be far apart: this is the
    /// finaliser of `SplitMix64`, a permutation that changes half of the bits when its input changes by one.
    pub(super) fn draw(&self) -> u64 {
        let number = self.drawn.fetch_add(1, Ordering::Relaxed);
        let mut bits = self.base.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_draws_the_same_seeds_again_and_others_draw_others() {
        let draw = |base| {
            let seeds = Seeds::new(base);
            let clone = seeds.clone();
            (0..50).flat_map(|_| [seeds.draw(), clone.draw()]).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        let mut all: Vec<u64> = (0..20).flat_map(draw).collect();
        all.sort_unstable();
        // No request's sequences reach the seed of another request.
        assert!(all.windows(2).all(|pair| pair[1] - pair[0] > 1 << 16));
    }

    #[test]
    fn the_seeds_of_a_base_never_change() {
        // `SplitMix64` of the seed 0, as it is published.
        let seeds = Seeds::default();
        assert_eq!([seeds.draw(), seeds.draw()], [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4]);
    }
}
