//! How many tokens steps gave in how much time.

use std::time::Duration;

/// Tokens and the time that they took, in seconds; the last ones count most.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    tokens: f64,
    seconds: f64,
    steps: f64,
}

impl Pace {
    /// Counts what is known as this share of it.
    pub(super) fn fade(&mut self, kept: f64) {
        *self = Self { tokens: self.tokens * kept, seconds: self.seconds * kept, steps: self.steps * kept };
    }

    /// Adds a step.
    #[expect(clippy::cast_precision_loss, reason = "no step gives 2^52 tokens")]
    pub(super) fn add(&mut self, tokens: usize, took: Duration) {
        self.tokens += tokens as f64;
        self.seconds += took.as_secs_f64();
        self.steps += 1.0;
    }

    /// In tokens a second.
    pub(super) fn speed(self) -> f64 {
        self.tokens / self.seconds.max(f64::MIN_POSITIVE)
    }

    /// Adds what is known of other steps, and counts what was known as this share of it.
    pub(super) fn follow(&mut self, other: Self, kept: f64) {
        self.fade(kept);
        self.tokens += other.tokens;
        self.seconds += other.seconds;
        self.steps += other.steps;
    }

    /// What a step takes on average; not a number if there was none.
    pub(super) fn seconds_of_a_step(self) -> f64 {
        self.seconds / self.steps
    }

    /// What a step gives on average; not a number if there was none.
    pub(super) fn tokens_of_a_step(self) -> f64 {
        self.tokens / self.steps
    }
}
