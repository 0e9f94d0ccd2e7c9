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
/// The share of a draft model's tokens that is taken to be right before anything is known.
const PRIOR_OF_A_MODEL: f64 = 0.8;
/// How much a draft of one token tells of a draft model, whose drafts for all sequences are learnt from.
const LESSON_ABOUT_A_MODEL: f64 = 0.02;
/// How much of that is forgotten with each token that had no draft: a draft model that was wrong for long costs little.
const FORGETTING_A_MODEL: f64 = 0.000_1;

/// How probable a token of a draft must be to be worth its row, in a step that has `rows` without it; from 0 to 1.
#[expect(clippy::cast_precision_loss, reason = "no step has 2^52 rows")]
pub(super) fn least_probability(rows: usize) -> f64 {
    rows as f64 / (rows as f64 + STEP_COST)
}

/// The same where another model drafts: it takes a step of its own for each token of a draft, beside those of other sequences
/// that draft. A row of it costs `cost` times what a row of the model costs.
#[expect(clippy::cast_precision_loss, reason = "no step has 2^52 rows")]
pub(super) fn least_probability_by_model(rows: usize, drafting: usize, cost: f64) -> f64 {
    let drafting = drafting.max(1) as f64;
    least_probability(rows) * (1.0 + cost * (STEP_COST + drafting) / drafting)
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
        self.worth_at(least_probability(rows), most)
    }

    /// How many tokens of a draft are at least as probable.
    pub(super) fn worth_at(self, least: f64, most: usize) -> usize {
        let mut probability = 1.0;
        let is_worth = |_: &usize| {
            probability *= self.right;
            probability >= least
        };
        (0..most).take_while(is_worth).count()
    }

    /// Learns how many tokens of a draft were right.
    pub(crate) fn learn(&mut self, drafted: usize, accepted: usize) {
        self.right = learnt(self.right, LESSON, drafted, accepted);
    }

    /// Takes note of a token for which no draft was worth it.
    pub(crate) fn forget(&mut self) {
        self.right += (self.prior - self.right) * FORGETTING;
    }
}

/// What is expected after a draft of which so many tokens were right.
#[expect(clippy::cast_precision_loss, reason = "drafts are short")]
fn learnt(right: f64, lesson: f64, drafted: usize, accepted: usize) -> f64 {
    let tried = drafted.min(accepted + 1) as f64;
    let weight = 1.0 - (1.0 - lesson).powf(tried);
    (right + (accepted as f64 / tried - right) * weight).min(MOST_RIGHT)
}

/// What is expected of a draft model, over all sequences: new ones begin with that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reputation(f64);

impl Default for Reputation {
    fn default() -> Self {
        Self(PRIOR_OF_A_MODEL)
    }
}

impl Reputation {
    /// That of the drafts of a sequence that begins.
    pub(crate) fn confidence(self) -> Confidence {
        Confidence { right: self.0, prior: self.0 }
    }

    /// Learns how many tokens of a draft were right.
    pub(crate) fn learn(&mut self, drafted: usize, accepted: usize) {
        self.0 = learnt(self.0, LESSON_ABOUT_A_MODEL, drafted, accepted);
    }

    /// Takes note of a token for which no draft was worth it.
    pub(crate) fn forget(&mut self) {
        self.0 += (PRIOR_OF_A_MODEL - self.0) * FORGETTING_A_MODEL;
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
    fn a_draft_model_is_asked_for_what_is_worth_its_own_steps_too() {
        let new = Reputation::default().confidence();
        let worth = |rows, drafting, cost| new.worth_at(least_probability_by_model(rows, drafting, cost), 9);
        assert_eq!([0.0, 0.1, 0.3, 1.0].map(|cost| worth(1, 1, cost)), [7, 5, 3, 0]);
        assert_eq!([1, 4, 16, 64].map(|rows| worth(rows, rows, 0.05)), [6, 2, 0, 0], "less in a step of more rows");
        assert!(worth(8, 1, 0.05) <= worth(8, 8, 0.05), "its steps are shared");
    }

    #[test]
    fn a_draft_model_that_is_always_wrong_is_hardly_asked_any_more_and_one_that_is_right_is_asked_again() {
        let mut reputation = Reputation::default();
        let worth = |reputation: Reputation| reputation.confidence().worth_at(least_probability_by_model(1, 1, 0.1), 5);
        (0..100).for_each(|_| reputation.learn(3, 0));
        assert_eq!(worth(reputation), 0);
        let mut sequence = reputation.confidence();
        (0..10_000).for_each(|_| sequence.forget());
        assert_eq!(worth(Reputation(sequence.right)), 0, "a sequence does not try by itself");
        let pause = (0..100_000).take_while(|_| {
            reputation.forget();
            worth(reputation) == 0
        });
        assert!((500..50_000).contains(&pause.count()));
        (0..200).for_each(|_| reputation.learn(5, 5));
        assert_eq!(worth(reputation), 5);
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
