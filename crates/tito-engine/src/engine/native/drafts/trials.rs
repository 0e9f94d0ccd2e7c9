//! Whether drafts gain anything that were found in texts, or that a structured output forces, by the clock.
//!
//! An estimate of what rows cost decides how long drafts are, and whether there are any. What they really cost depends on more than
//! it knows: on how a product's time grows with its rows, on samplers, on what else the machine does. So of the steps that
//! could have such drafts, a few are computed without them, and the way that gives more tokens a second is taken. While that is
//! the way without, a few steps have them.
//!
//! These few are one in each run of some steps, drawn by lot: both ways see the same requests and lengths. Their times are compared
//! within the run, and of the last runs those in the middle count: a machine that is busy for a while slows both ways of a run,
//! or spoils few runs. Steps without anything to draft say nothing, and cost nothing.

use std::{collections::VecDeque, time::Duration};

use super::{loads::Loads, pace::Pace};

/// How many times as fast steps with drafts must be before drafts are taken up again.
const LEAST_GAIN: f64 = 1.02;
/// The last runs that count.
const RUNS: usize = 16;
/// The runs after which ways are compared.
const FEWEST_RUNS: usize = 8;
/// How much of what is known of tokens is kept with each run.
const KEPT: f64 = 1.0 - 1.0 / 16.0;
/// The steps of a run before ways are compared.
const RUN_AT_FIRST: u64 = 4;
/// The same once they are.
const RUN: u64 = 32;

/// What is known for each load.
#[derive(Debug)]
pub(super) struct Trials {
    loads: Loads<Ways>,
    lot: Lot,
}

impl Trials {
    /// Those with the same seed try the same steps.
    pub(super) fn seeded(seed: u64) -> Self {
        Self { loads: Loads::default(), lot: Lot(seed) }
    }

    /// Whether a step of so many sequences that may draft should have drafts. One that is not learnt from is no trial.
    pub(super) fn drafts(&mut self, sequences: usize, is_learnt_from: bool) -> bool {
        let ways = self.loads.of(sequences);
        ways.gains != (is_learnt_from && ways.run.is_trial())
    }

    /// Learns what a step took that could have drafts and did or did not, and how many tokens it gave.
    pub(super) fn learn(&mut self, sequences: usize, drafts: bool, tokens: usize, took: Duration) {
        let ways = self.loads.of(sequences);
        let run = &mut ways.run;
        let pace = if drafts { &mut run.with } else { &mut run.without };
        pace.add(tokens, took);
        run.left -= 1;
        if run.left == 0 {
            ways.learn();
            let steps = if ways.are_known() { RUN } else { RUN_AT_FIRST };
            ways.run = Run { left: steps, trial: 1 + self.lot.draw(steps), ..Run::default() };
        }
    }
}

/// Steps of which one goes the other way.
#[derive(Debug, Clone, Copy)]
struct Run {
    with: Pace,
    without: Pace,
    /// The steps of it that are left.
    left: u64,
    /// How many are left when it is the turn of that one.
    trial: u64,
}

impl Default for Run {
    fn default() -> Self {
        Self { with: Pace::default(), without: Pace::default(), left: RUN_AT_FIRST, trial: 1 }
    }
}

impl Run {
    fn is_trial(&self) -> bool {
        self.left == self.trial
    }
}

/// Steps with drafts and without.
#[derive(Debug)]
struct Ways {
    /// The last ones count most.
    with: Pace,
    without: Pace,
    /// How many times as long steps with drafts took in each of the last runs.
    times: VecDeque<f64>,
    /// Whether drafts are the better way, as far as is known.
    gains: bool,
    run: Run,
}

impl Default for Ways {
    fn default() -> Self {
        let (with, without) = (Pace::default(), Pace::default());
        Self { with, without, times: VecDeque::new(), gains: true, run: Run::default() }
    }
}

impl Ways {
    fn are_known(&self) -> bool {
        self.times.len() >= FEWEST_RUNS
    }

    /// Learns what a run took, and compares the ways.
    fn learn(&mut self) {
        let Run { with, without, .. } = self.run;
        // A clock may stand still.
        let times = with.seconds_of_a_step() / without.seconds_of_a_step();
        if !times.is_finite() || times <= 0.0 {
            return;
        }
        self.times.truncate(RUNS - 1);
        self.times.push_front(times);
        self.with.follow(with, KEPT);
        self.without.follow(without, KEPT);
        if self.are_known() {
            let tokens = self.with.tokens_of_a_step() / self.without.tokens_of_a_step();
            let least = if self.gains { 1.0 } else { LEAST_GAIN };
            self.gains = tokens >= self.usual_times() * least;
        }
    }

    /// What is left of the times without the greatest quarter and the least one, on average.
    #[expect(clippy::cast_precision_loss, reason = "there are few")]
    fn usual_times(&self) -> f64 {
        let mut times: Vec<f64> = self.times.iter().copied().collect();
        times.sort_by(f64::total_cmp);
        let middle = &times[times.len() / 4..times.len() - times.len() / 4];
        middle.iter().sum::<f64>() / middle.len() as f64
    }
}

/// Draws lots, the same ones each time.
#[derive(Debug)]
struct Lot(u64);

impl Lot {
    /// Draws a number below this one.
    fn draw(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step: tokens and milliseconds.
    type Step = (usize, u64);

    /// How many of so many steps had drafts, each of which takes what it says for its number: with drafts, and without.
    fn drafted(trials: &mut Trials, sequences: usize, steps: usize, step: impl Fn(usize) -> [Step; 2]) -> usize {
        (0..steps)
            .filter(|number| {
                let drafts = trials.drafts(sequences, true);
                let [with, without] = step(*number);
                let (tokens, milliseconds) = if drafts { with } else { without };
                trials.learn(sequences, drafts, tokens, Duration::from_millis(milliseconds));
                drafts
            })
            .count()
    }

    #[test]
    fn drafts_that_lose_are_hardly_tried_and_those_that_gain_are_hardly_left_out() {
        let mut trials = Trials::seeded(1);
        let lost = drafted(&mut trials, 16, 10_000, |_| [(24, 70), (16, 40)]);
        assert!((150..500).contains(&lost), "{lost}");
        let gained = drafted(&mut trials, 1, 10_000, |_| [(3, 40), (1, 20)]);
        assert!((9_500..9_850).contains(&gained), "{gained}");
        assert!(drafted(&mut trials, 17, 100, |_| [(24, 70), (16, 40)]) < 20, "sixteen and more are one load");
    }

    #[test]
    fn what_drafts_that_always_lose_cost_is_within_a_hundredth() {
        let mut trials = Trials::seeded(2);
        let steps = 10_000;
        // A quarter of the speed is lost, which is more than what any estimate was off.
        let lost = drafted(&mut trials, 16, steps, |_| [(16, 50), (16, 40)]);
        let seconds = (steps - lost) * 40 + lost * 50;
        assert!(seconds * 100 < steps * 40 * 101, "{lost} steps");
    }

    #[test]
    fn a_machine_that_is_busy_for_a_while_switches_drafts_neither_off_nor_on() {
        // Now and then, some fifty steps take three times as long, and one takes a second.
        let busy = |number: usize| if number % 700 < 50 { 3 } else { 1 };
        let waits = |number: usize| if number.is_multiple_of(411) { 1_000 } else { 0 };
        for seed in 0..20 {
            let mut trials = Trials::seeded(seed);
            let step = |number: usize, with: Step, without: Step| {
                [with, without].map(|(tokens, took)| (tokens, took * busy(number) + waits(number)))
            };
            let gained = drafted(&mut trials, 1, 10_000, |number| step(number, (5, 40), (3, 30)));
            assert!(gained > 9_300, "{gained} with {seed}");
            let lost = drafted(&mut trials, 16, 10_000, |number| step(number, (18, 60), (16, 40)));
            assert!(lost < 700, "{lost} with {seed}");
        }
    }

    #[test]
    fn drafts_are_taken_up_again_once_they_gain_and_dropped_once_they_lose() {
        let mut trials = Trials::seeded(3);
        drafted(&mut trials, 4, 2_000, |_| [(4, 60), (4, 50)]);
        let taken_up = drafted(&mut trials, 4, 2_000, |_| [(12, 70), (4, 50)]);
        assert!(taken_up > 1_700, "{taken_up}");
        let dropped = drafted(&mut trials, 4, 2_000, |_| [(4, 80), (4, 50)]);
        assert!(dropped < 1_000, "{dropped}");
    }

    #[test]
    fn a_step_that_is_not_learnt_from_is_no_trial() {
        let mut trials = Trials::seeded(4);
        for _ in 0..100 {
            drafted(&mut trials, 1, 1, |_| [(3, 40), (1, 20)]);
            assert!(trials.drafts(1, false));
        }
    }
}
