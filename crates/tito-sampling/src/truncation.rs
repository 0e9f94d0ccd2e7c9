//! `min_p`, `top_k` and `top_p`: which tokens stay, found without sorting the vocabulary.

use super::{
    SamplingParams,
    best::{BestTokens, Candidate, GROUP, any_at_least, best_first},
    draw::first_exceeding,
    softmax::Scale,
};

/// Tokens are counted by how far their log-weight is below the best: this many to a nat, the last for all that is
/// further. They only narrow the search down, so that their number decides speed, not results.
const BUCKETS_PER_NAT: f64 = 16.0;
const BUCKETS: usize = 512;

/// The truncation of a sequence and, after [`Truncation::apply`], the tokens that stay.
#[derive(Debug)]
pub(super) struct Truncation {
    min_p: f64,
    /// `usize::MAX` is off.
    top_k: usize,
    top_p: f64,
    best: BestTokens,
    /// Ascending; an entry is an index into the logits.
    kept: Vec<Candidate>,
    /// The weights of the tokens in `kept`.
    weights: Vec<f64>,
    total: f64,
    buckets: Vec<f64>,
    edge: Vec<Candidate>,
}

/// The logits of some tokens of a vocabulary, which are all that are greater than `unread`.
#[derive(Debug, Clone, Copy)]
pub(super) struct KnownLogits<'a> {
    pub(super) logits: &'a [f32],
    pub(super) vocab_size: usize,
    /// None of the other logits is greater.
    pub(super) unread: f32,
}

impl Truncation {
    /// `None` when nothing is cut off.
    pub(super) fn new(params: &SamplingParams) -> Option<Self> {
        let &SamplingParams { min_p, top_k, top_p, .. } = params;
        (min_p > 0.0 || top_k > 0 || top_p < 1.0).then(|| Self {
            min_p,
            top_k: if top_k == 0 { usize::MAX } else { top_k },
            top_p,
            best: BestTokens::default(),
            kept: Vec::new(),
            weights: Vec::new(),
            total: 0.0,
            buckets: Vec::new(),
            edge: Vec::new(),
        })
    }

    /// Whether [`Truncation::apply`] needs to know the weight of the whole vocabulary: it is what `top_p` is a share of,
    /// unless something else is cut off before.
    pub(super) fn needs_total(&self, vocab_size: usize) -> bool {
        self.top_p < 1.0 && self.min_p <= 0.0 && self.top_k >= vocab_size
    }

    /// Decides which tokens stay: `min_p`, then `top_k`, then `top_p` of what is left. The best token always stays.
    pub(super) fn apply(&mut self, logits: &[f32], scale: Scale, vocabulary_total: f64) {
        let known = KnownLogits { logits, vocab_size: logits.len(), unread: f32::NEG_INFINITY };
        self.apply_to_part(known, scale, vocabulary_total);
    }

    /// The same where not all logits are known, in the order of their ids. `false` where one of the others may stay, too; what
    /// is kept then is of no use.
    pub(super) fn apply_to_part(&mut self, known: KnownLogits<'_>, scale: Scale, vocabulary_total: f64) -> bool {
        let KnownLogits { logits, vocab_size, unread } = known;
        let mut floor = f32::MIN;
        if self.min_p > 0.0 {
            floor = floor.max(scale.logit_below(self.min_p));
        }
        if self.top_k < vocab_size {
            floor = floor.max(self.best.nth_logit(logits, self.top_k.min(logits.len())));
        }
        let of_vocabulary = self.needs_total(vocab_size);
        if of_vocabulary {
            // Tokens this light weigh too little together to be needed, even if all were.
            #[expect(clippy::cast_precision_loss, reason = "a bound with room to spare")]
            let vocab_size = vocab_size as f64;
            floor = floor.max(scale.logit_below(0.99 * (1.0 - self.top_p) * vocabulary_total / vocab_size));
        }
        self.collect(logits, scale, floor);
        let all_are_known = unread < floor;
        if self.top_p >= 1.0 {
            return all_are_known;
        }
        let whole = if of_vocabulary { vocabulary_total } else { self.total };
        let last_bucket = self.keep_nucleus(scale, self.top_p * whole);
        // The sums of buckets before that of any other token are those of all tokens.
        all_are_known || (of_vocabulary && last_bucket < bucket(scale, unread))
    }

    /// How many of the best blocks are likely to have every token that stays, where there is a summary of all; `None` for more
    /// than `most`. Blocks come with their greatest logits, best first, and the sums of their weights.
    pub(super) fn blocks_needed(
        &self,
        blocks: impl ExactSizeIterator<Item = (f32, f64)>,
        (scale, vocab_size): (Scale, usize),
        most: usize,
    ) -> Option<usize> {
        let all = blocks.len();
        let needed = if self.top_k < vocab_size {
            self.top_k
        } else if self.min_p > 0.0 {
            let floor = scale.logit_below(self.min_p);
            blocks.take_while(|(max, _)| *max >= floor).count()
        } else {
            let sums: Vec<f64> = blocks.map(|(_, sum)| sum).collect();
            // Half of what may be cut off, as the best tokens are not all of a block.
            let enough = f64::midpoint(1.0, self.top_p) * sums.iter().sum::<f64>();
            let mut before = 0.0;
            let is_needed = |weight: &&f64| {
                let is_needed = before < enough;
                before += **weight;
                is_needed
            };
            sums.iter().take_while(is_needed).count()
        };
        Some(needed.min(all)).filter(|needed| *needed <= most)
    }

    /// The tokens that stay, as indices into the logits.
    pub(super) fn candidates(&self) -> &[Candidate] {
        &self.kept
    }

    /// The index of the first kept token whose cumulative weight exceeds `uniform` (in [0, 1)) of the total.
    pub(super) fn locate(&self, uniform: f64) -> usize {
        let place = first_exceeding(self.weights.iter().copied(), 0.0, uniform * self.total);
        self.kept[place].0 as usize
    }

    /// Keeps what is at least `floor` and, by its weight, at least `min_p`.
    fn collect(&mut self, logits: &[f32], scale: Scale, floor: f32) {
        self.kept.clear();
        for (start, group) in (0..).step_by(GROUP).zip(logits.chunks(GROUP)) {
            if any_at_least(group, floor) {
                self.kept.extend((start..).zip(group.iter().copied()).filter(|&(_, logit)| logit >= floor));
            }
        }
        self.weights.clear();
        self.weights.extend(self.kept.iter().map(|&(_, logit)| scale.weight(logit)));
        if self.min_p > 0.0 {
            let min_p = self.min_p;
            self.retain(|_, weight| weight >= min_p);
        }
        self.total = self.weights.iter().sum();
    }

    /// Drops candidates together with their weights.
    fn retain(&mut self, stays: impl Fn(Candidate, f64) -> bool) {
        let mut length = 0;
        for place in 0..self.kept.len() {
            let (candidate, weight) = (self.kept[place], self.weights[place]);
            // Written always, kept sometimes: no branch to mispredict.
            self.kept[length] = candidate;
            self.weights[length] = weight;
            length += usize::from(stays(candidate, weight));
        }
        self.kept.truncate(length);
        self.weights.truncate(length);
    }

    /// Keeps the best tokens until they weigh `mass`: those before which less than that was reached. Returns the last bucket
    /// that was looked at.
    fn keep_nucleus(&mut self, scale: Scale, mass: f64) -> usize {
        self.buckets.clear();
        self.buckets.resize(BUCKETS, 0.0);
        for (&(_, logit), weight) in self.kept.iter().zip(&self.weights) {
            self.buckets[bucket(scale, logit)] += weight;
        }
        let (mut before, mut reaching) = (0.0, 0);
        while reaching < BUCKETS && before + self.buckets[reaching] < mass {
            before += self.buckets[reaching];
            reaching += 1;
        }
        // In no bucket when rounding keeps all weights together from reaching a mass near their total: all are needed.
        self.edge.clear();
        self.edge.extend(self.kept.iter().filter(|(_, logit)| bucket(scale, *logit) == reaching));
        self.edge.sort_unstable_by(best_first);
        let mut last: Option<Candidate> = None;
        for &candidate in &self.edge {
            if before >= mass {
                break;
            }
            before += scale.weight(candidate.1);
            last = Some(candidate);
        }
        if let Some(last) = last {
            self.retain(|candidate, _| best_first(&candidate, &last).is_le());
            self.total = self.weights.iter().sum();
        }
        reaching
    }
}

fn bucket(scale: Scale, logit: f32) -> usize {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "never negative, and saturating")]
    let bucket = (-scale.exponent(logit) * BUCKETS_PER_NAT) as usize;
    bucket.min(BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::TokenId;
    use crate::softmax::{BlockSums, max_logit};

    /// The tokens that stay, in the order of their ids.
    fn kept_ids(params: &SamplingParams, logits: &[f32]) -> Vec<TokenId> {
        let scale = Scale::new(max_logit(logits).unwrap(), params.temperature);
        let mut sums = BlockSums::default();
        sums.compute(logits, scale).unwrap();
        let mut truncation = Truncation::new(params).expect("a truncation");
        truncation.apply(logits, scale, sums.total());
        truncation.candidates().iter().map(|&(id, _)| id).collect()
    }

    /// Logits of probabilities, so that tables can be read.
    fn logits(probabilities: &[f32]) -> Vec<f32> {
        probabilities.iter().map(|probability| probability.ln()).collect()
    }

    fn top_p(top_p: f64) -> SamplingParams {
        SamplingParams { top_p, ..Default::default() }
    }

    fn top_k(top_k: usize) -> SamplingParams {
        SamplingParams { top_k, ..Default::default() }
    }

    fn min_p(min_p: f64) -> SamplingParams {
        SamplingParams { min_p, ..Default::default() }
    }

    #[test]
    fn nothing_to_cut_is_no_truncation() {
        assert!(Truncation::new(&SamplingParams::default()).is_none());
    }

    #[test]
    fn top_p_keeps_the_fewest_tokens_that_reach_it() {
        let logits = logits(&[0.1, 0.4, 0.3, 0.2]);
        assert_eq!(kept_ids(&top_p(1e-9), &logits), [1]);
        assert_eq!(kept_ids(&top_p(0.39), &logits), [1]);
        assert_eq!(kept_ids(&top_p(0.41), &logits), [1, 2]);
        assert_eq!(kept_ids(&top_p(0.75), &logits), [1, 2, 3]);
        assert_eq!(kept_ids(&top_p(0.95), &logits), [0, 1, 2, 3]);
    }

    #[test]
    fn top_p_prefers_the_lower_id_among_equals() {
        let logits = vec![0.25; 4];
        assert_eq!(kept_ids(&top_p(0.25), &logits), [0]);
        assert_eq!(kept_ids(&top_p(0.3), &logits), [0, 1]);
        assert_eq!(kept_ids(&top_p(0.5), &logits), [0, 1]);
        assert_eq!(kept_ids(&top_p(0.999), &logits), [0, 1, 2, 3]);
    }

    #[test]
    fn top_k_keeps_every_token_equal_to_the_last() {
        let logits = [1.0, 3.0, 2.0, 2.0, 0.0];
        assert_eq!(kept_ids(&top_k(1), &logits), [1]);
        assert_eq!(kept_ids(&top_k(2), &logits), [1, 2, 3]);
        assert_eq!(kept_ids(&top_k(3), &logits), [1, 2, 3]);
        assert_eq!(kept_ids(&top_k(4), &logits), [0, 1, 2, 3]);
        assert_eq!(kept_ids(&top_k(5), &logits), [0, 1, 2, 3, 4]);
        assert_eq!(kept_ids(&top_k(usize::MAX), &logits), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn min_p_is_relative_to_the_most_probable_token() {
        let logits = [0.0, 0.5_f32.ln(), 0.25_f32.ln(), f32::NEG_INFINITY];
        assert_eq!(kept_ids(&min_p(1.0), &logits), [0]);
        assert_eq!(kept_ids(&min_p(0.51), &logits), [0]);
        assert_eq!(kept_ids(&min_p(0.49), &logits), [0, 1]);
        assert_eq!(kept_ids(&min_p(0.1), &logits), [0, 1, 2]);
    }

    #[test]
    fn top_p_is_a_share_of_what_top_k_and_min_p_leave() {
        let logits = logits(&[0.4, 0.3, 0.2, 0.1]);
        // The two tokens have 0.7 together, of which the first one alone has 0.57.
        assert_eq!(kept_ids(&SamplingParams { top_k: 2, ..top_p(0.5) }, &logits), [0]);
        assert_eq!(kept_ids(&SamplingParams { top_k: 2, ..top_p(0.6) }, &logits), [0, 1]);
        assert_eq!(kept_ids(&SamplingParams { min_p: 0.6, ..top_p(0.5) }, &logits), [0]);
        assert_eq!(kept_ids(&SamplingParams { min_p: 0.6, ..top_p(0.9) }, &logits), [0, 1]);
    }

    #[test]
    fn masked_tokens_never_stay() {
        let logits = [f32::NEG_INFINITY, 0.0, f32::NEG_INFINITY];
        assert_eq!(kept_ids(&top_k(3), &logits), [1]);
        assert_eq!(kept_ids(&top_k(2), &logits), [1]);
        assert_eq!(kept_ids(&top_p(0.999_999), &logits), [1]);
        assert_eq!(kept_ids(&min_p(1e-300), &logits), [1]);
    }

    /// `top_p` by sorting everything.
    fn nucleus(logits: &[f32], temperature: f64, top_p: f64) -> Vec<TokenId> {
        let mut sorted: Vec<Candidate> = (0..).zip(logits.iter().copied()).collect();
        sorted.sort_by(best_first);
        let max = f64::from(sorted[0].1);
        let weight = |logit: f32| ((f64::from(logit) - max) / temperature).exp();
        let total: f64 = sorted.iter().map(|&(_, logit)| weight(logit)).sum();
        let mut before = 0.0;
        let mut ids = Vec::new();
        for (id, logit) in sorted {
            // Sums that differ in their last bits may fall on either side of the border; 1e-12 is taken as reached.
            if before >= top_p * total - 1e-12 {
                break;
            }
            before += weight(logit);
            ids.push(id);
        }
        ids.sort_unstable();
        ids
    }

    proptest! {
        #[test]
        fn top_p_agrees_with_sorting_everything(
            logits in prop::collection::vec(-30.0_f32..10.0, 1..1500),
            top_p in 0.01_f64..0.999,
            temperature in 0.1_f64..2.0,
        ) {
            let params = SamplingParams { temperature, top_p, ..Default::default() };
            prop_assert_eq!(kept_ids(&params, &logits), nucleus(&logits, temperature, top_p));
        }

        #[test]
        fn top_k_and_min_p_keep_what_their_definitions_say(
            logits in prop::collection::vec(-9_i8..9, 1..600),
            top_k in 1_usize..100,
            min_p in 0.001_f64..1.0,
        ) {
            let logits: Vec<f32> = logits.into_iter().map(f32::from).collect();
            let mut descending = logits.clone();
            descending.sort_by(|left, right| right.total_cmp(left));
            let last = descending[top_k.min(logits.len()) - 1];
            let enough = |logit: f32| f64::from(logit - descending[0]).exp() >= min_p;
            let expected: Vec<TokenId> =
                (0..).zip(&logits).filter(|&(_, &logit)| logit >= last && enough(logit)).map(|(id, _)| id).collect();
            prop_assert_eq!(kept_ids(&SamplingParams { top_k, min_p, ..Default::default() }, &logits), expected);
        }
    }
}
