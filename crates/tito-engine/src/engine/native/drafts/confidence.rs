//! How many tokens of a draft are worth their rows.

/// What a step costs however few rows it has, in rows.
const STEP_COST: f64 = 4.0;
/// The share of drafts that is taken to be right before anything is known.
const PRIOR: f64 = 0.5;
/// How much a draft of one token tells.
const LESSON: f64 = 0.2;
/// The share that is taken to be right at the most: nothing is certain, and a full step drafts nothing.
const MOST_RIGHT: f64 = 0.98;
/// How much is forgotten with each token that had no draft, so that another one is tried some day.
const FORGETTING: f64 = 0.01;

/// How probable a token of a draft must be to be worth its row, in a step that has `rows` without it; from 0 to 1.
#[expect(clippy::cast_precision_loss, reason = "no step has 2^52 rows")]
pub(super) fn least_probability(rows: usize) -> f64 {
    rows as f64 / (rows as f64 + STEP_COST)
}

/// What is expected of the drafts of a sequence.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Confidence {
    /// The share of tokens of drafts that is expected to be right, from 0 to 1.
    right: f64,
    /// What it is before anything is known.
    prior: f64,
}

impl Default for Confidence {
    fn default() -> Self {
        Self { right: PRIOR, prior: PRIOR }
    }
}

impl Confidence {
    /// That of drafts which have an estimate of their own: it is believed until it is wrong.
    pub(crate) fn in_estimates() -> Self {
        Self { right: MOST_RIGHT, prior: MOST_RIGHT }
    }

    /// How many tokens of a draft are worth their rows in a step that has `rows` without them.
    ///
    /// A row more has to give as much of a token as the step gives for what a row costs. Where a step has many rows, only
    /// drafts that are nearly certain do.
    pub(crate) fn worth(self, rows: usize, most: usize) -> usize {
        let least = least_probability(rows);
        let mut probability = 1.0;
        let is_worth = |_: &usize| {
            probability *= self.right;
            probability >= least
        };
        (0..most).take_while(is_worth).count()
    }

    /// Learns how many tokens of a draft were right.
    #[expect(clippy::cast_precision_loss, reason = "drafts are short")]
    pub(crate) fn learn(&mut self, drafted: usize, accepted: usize) {
        let tried = drafted.min(accepted + 1) as f64;
        let weight = 1.0 - (1.0 - LESSON).powf(tried);
        self.right = (self.right + (accepted as f64 / tried - self.right) * weight).min(MOST_RIGHT);
    }

    /// Takes note of a token for which no draft was worth it.
    pub(crate) fn forget(&mut self) {
        self.right += (self.prior - self.right) * FORGETTING;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drafts_get_longer_with_success_and_none_is_tried_in_a_full_step_or_after_failures() {
        let mut confidence = Confidence::default();
        assert!((1..5).contains(&confidence.worth(1, 5)));
        (0..20).for_each(|_| confidence.learn(5, 5));
        assert_eq!((confidence.worth(1, 5), confidence.worth(1, 2), confidence.worth(1_000, 5)), (5, 2, 0));
        (0..20).for_each(|_| confidence.learn(3, 0));
        assert_eq!(confidence.worth(1, 5), 0);
        let pause = (0..1_000)
            .take_while(|_| {
                confidence.forget();
                confidence.worth(1, 5) == 0
            })
            .count();
        assert!((20..200).contains(&pause), "{pause}");
    }

    #[test]
    fn estimates_are_believed_in_a_full_step_until_they_are_wrong() {
        let mut confidence = Confidence::in_estimates();
        assert_eq!((confidence.worth(16, 5), Confidence::default().worth(16, 5)), (5, 0));
        confidence.learn(5, 0);
        assert_eq!(confidence.worth(16, 5), 0);
        (0..100).for_each(|_| confidence.forget());
        assert!(confidence.worth(16, 5) > 0);
    }
}
