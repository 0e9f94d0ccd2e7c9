//! Whether drafts of another model gain anything, by the clock.
//!
//! An estimate of their cost decides how long drafts are. What steps with them take depends on more than it knows: on how a
//! product's time grows with its rows, on samplers, on what else the machine does. So steps with drafts are timed beside steps
//! without, for each number of sequences that draft, and the faster way is taken. The other one is tried now and then.

use std::time::Duration;

use super::{loads::Loads, pace::Pace};

/// How many times as fast steps with drafts must be: below that, the difference may be chance.
const LEAST_GAIN: f64 = 1.02;
/// How much of what is known is kept with each step.
const KEPT: f64 = 0.98;
/// The steps with drafts after which they are compared: how many tokens are right differs much from step to step.
const STEPS_WITH: u32 = 32;
/// The steps without drafts after which they are compared.
const STEPS_WITHOUT: u32 = 8;
/// The steps of the better way before the other one is tried.
const SHORTEST_PAUSE: u32 = 512;
/// The same, for drafts that lost again and again. To try them, the draft model has to read what it has missed.
const LONGEST_PAUSE: u32 = 16_384;

/// What is known for each load.
#[derive(Debug, Default)]
pub(crate) struct Gains(Loads<Ways>);

impl Gains {
    /// Whether the next step of so many sequences that may draft should have drafts.
    pub(crate) fn drafts(&mut self, sequences: usize) -> bool {
        self.0.of(sequences).drafts()
    }

    /// Learns what a step took that did have drafts or did not, and how many tokens it gave.
    pub(crate) fn learn(&mut self, sequences: usize, drafts: bool, tokens: usize, took: Duration) {
        self.0.of(sequences).learn(drafts, tokens, took);
    }
}

/// Steps with drafts and without.
#[derive(Debug)]
struct Ways {
    with: Pace,
    without: Pace,
    /// Whether drafts are the better way, as far as is known.
    gains: bool,
    /// Whether the other way is being tried.
    tries: bool,
    /// The steps of the present way before that changes.
    left: u32,
    /// The steps without drafts before they are tried again.
    pause: u32,
}

impl Default for Ways {
    fn default() -> Self {
        let (with, without) = (Pace::default(), Pace::default());
        Self { with, without, gains: true, tries: false, left: STEPS_WITH, pause: SHORTEST_PAUSE }
    }
}

impl Ways {
    fn drafts(&self) -> bool {
        self.gains != self.tries
    }

    fn learn(&mut self, drafts: bool, tokens: usize, took: Duration) {
        let pace = if drafts { &mut self.with } else { &mut self.without };
        pace.fade(KEPT);
        pace.add(tokens, took);
        if drafts != self.drafts() {
            return;
        }
        self.left -= 1;
        if self.left == 0 {
            if self.tries { self.compare() } else { self.begin_trial() }
        }
    }

    /// Begins to try the other way. What was known of it may be long ago.
    fn begin_trial(&mut self) {
        self.tries = true;
        if self.gains {
            (self.without, self.left) = (Pace::default(), STEPS_WITHOUT);
        } else {
            (self.with, self.left) = (Pace::default(), STEPS_WITH);
        }
    }

    fn compare(&mut self) {
        let gains = self.with.speed() >= self.without.speed() * LEAST_GAIN;
        self.pause = if gains || self.gains { SHORTEST_PAUSE } else { (self.pause * 2).min(LONGEST_PAUSE) };
        (self.gains, self.tries) = (gains, false);
        self.left = if gains { SHORTEST_PAUSE } else { self.pause };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many steps had drafts, where each gives so many tokens in so many milliseconds: with drafts, and without.
    fn drafted(gains: &mut Gains, sequences: usize, steps: usize, with: (usize, u64), without: (usize, u64)) -> usize {
        (0..steps)
            .filter(|_| {
                let drafts = gains.drafts(sequences);
                let (tokens, milliseconds) = if drafts { with } else { without };
                gains.learn(sequences, drafts, tokens, Duration::from_millis(milliseconds));
                drafts
            })
            .count()
    }

    #[test]
    fn drafts_that_lose_are_hardly_tried_and_those_that_gain_are_hardly_left_out() {
        let mut gains = Gains::default();
        // As it was measured: eight streams, three of four rows right, at 0.85 of the speed without.
        let lost = drafted(&mut gains, 8, 20_000, (32, 188), (8, 40));
        assert!((32..400).contains(&lost), "{lost}");
        let gained = drafted(&mut gains, 1, 20_000, (3, 40), (1, 20));
        assert!((19_600..20_000).contains(&gained), "{gained}");
        assert!(drafted(&mut gains, 8, 100, (32, 188), (8, 40)) <= 32, "each number of sequences stands for itself");
    }

    #[test]
    fn a_difference_that_may_be_chance_is_no_gain() {
        let mut gains = Gains::default();
        assert!(drafted(&mut gains, 2, 10_000, (101, 100), (100, 100)) < 300);
    }

    #[test]
    fn drafts_are_taken_up_again_once_they_gain_and_dropped_once_they_lose() {
        let mut gains = Gains::default();
        drafted(&mut gains, 4, 5_000, (4, 100), (4, 50));
        let taken_up = drafted(&mut gains, 4, 40_000, (12, 100), (4, 50));
        assert!(taken_up > 20_000, "{taken_up}");
        let dropped = drafted(&mut gains, 4, 10_000, (4, 100), (4, 50));
        assert!(dropped < 2_000, "{dropped}");
    }
}
