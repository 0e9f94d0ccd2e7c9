//! A sequence's constraint at work: what it leaves of the logits, and when the output may end.

use std::{
    borrow::Cow,
    time::{Duration, Instant},
};

use super::{
    ConstraintState, Foresight, SampleError, SamplingParams, SharedConstraint, TokenMask,
    guidance::{Guidance, Left},
};
use crate::TokenId;

/// So many positions in a row have to be quick before a sequence that was slow counts as quick again.
const QUICK_AGAIN: u32 = 64;

/// A constraint with room for what it leaves.
#[derive(Debug)]
pub(super) struct Constrained {
    pub(super) constraint: SharedConstraint,
    /// The state of the constraint, which is begun at the first position, on the thread that samples.
    state: Option<Box<dyn ConstraintState>>,
    /// The tokens that end an output; they are allowed where it may end.
    end: Vec<TokenId>,
    /// Whether an end token was sampled that did not end the sequence (`ignore_eos`). Nothing but end tokens may follow
    /// it.
    ended: bool,
    /// The last token, until the state has taken it in.
    last: Option<TokenId>,
    /// What may come at this position, once that is known, or why there is no mask.
    pub(super) ready: Option<Result<Left, SampleError>>,
    pub(super) mask: TokenMask,
    pace: Pace,
    pub(super) foresees: Foresees,
    /// What guesses follow.
    pub(super) guidance: Guidance,
}

impl Constrained {
    pub(super) fn new(params: &SamplingParams) -> Option<Self> {
        Some(Self {
            constraint: params.constraint.clone()?,
            state: None,
            end: params.end_token_ids().collect(),
            ended: false,
            last: None,
            ready: None,
            mask: TokenMask::default(),
            pace: Pace::default(),
            foresees: Foresees::Never,
            guidance: Guidance::default(),
        })
    }

    /// From the first position on, says what there is no choice about.
    pub(super) fn foresee(&mut self) {
        self.foresees = Foresees::FromTheFirst;
    }

    /// Whether the last positions took so long that the next one is better prepared where nobody waits for it.
    pub(super) fn is_slow(&self) -> bool {
        self.pace.is_slow()
    }

    /// Works out which tokens may come next, unless that is known already.
    pub(super) fn prepare(&mut self) -> Result<Left, SampleError> {
        if let Some(ready) = self.ready {
            return ready;
        }
        let began = Instant::now();
        let ready = self.advance();
        self.pace.took(began.elapsed(), self.constraint.long());
        self.ready = Some(ready);
        ready
    }

    /// Takes in the last token, and writes the mask of those that may follow.
    fn advance(&mut self) -> Result<Left, SampleError> {
        if self.ended {
            self.mask.clear();
            return Ok(Left::Masked { may_end: true });
        }
        let state = self.state.get_or_insert_with(|| self.constraint.start());
        if let Some(last) = self.last.take() {
            state.accept(last)?;
        }
        if state.is_free() {
            return Ok(Left::Anything);
        }
        state.allow(&mut self.mask).map(|may_end| Left::Masked { may_end })
    }

    /// Whether nothing can be sampled at this position but tokens that end the output. What goes wrong is for the choice to say.
    pub(super) fn leaves_only_ends(&mut self, logits: &[f32], allowed: Option<&TokenMask>) -> bool {
        let Ok(left) = self.prepare() else { return false };
        let is_text =
            |id: TokenId| logits.get(id as usize).is_some_and(|logit| logit.is_finite()) && !self.end.contains(&id);
        match tokens_left(Some(self), left, allowed) {
            Some(mask) => !mask.ids().any(is_text),
            None => !(0..).zip(logits).any(|(id, _)| is_text(id)),
        }
    }

    /// Takes note of the token that was chosen from what was [left](Self::prepare); returns those that there is no choice
    /// about after it, where they are foreseen.
    pub(super) fn choose(&mut self, id: TokenId) -> Vec<TokenId> {
        let is_free = self.ready.take() == Some(Ok(Left::Anything));
        if is_free || self.mask.allows(id) {
            self.last = Some(id);
        } else {
            self.ended = true;
        }
        if self.ended || self.is_slow() {
            // Where following the output once takes long, nobody should wait for it twice.
            self.foresees = Foresees::Never;
        }
        self.foresees.after(id, &self.constraint)
    }
}

/// The tokens that are left of a position, of which a constraint leaves `left`: those of its mask and, where the output may end, the
/// end tokens; of these only those that are `allowed`. `None` for all.
pub(super) fn tokens_left<'m>(
    constrained: Option<&'m Constrained>,
    left: Left,
    allowed: Option<&'m TokenMask>,
) -> Option<Cow<'m, TokenMask>> {
    let (Some(constrained), Left::Masked { may_end }) = (constrained, left) else { return allowed.map(Cow::Borrowed) };
    let mut mask = Cow::Borrowed(&constrained.mask);
    if may_end {
        for id in &constrained.end {
            mask.to_mut().allow(*id);
        }
    }
    if let Some(allowed) = allowed {
        mask.to_mut().intersect(allowed);
    }
    Some(mask)
}

/// Whether it is said what there is no choice about.
#[derive(Debug)]
pub(super) enum Foresees {
    Never,
    /// From the first token on, on the thread that samples it.
    FromTheFirst,
    Now(Box<dyn Foresight>),
}

impl Foresees {
    /// What has to follow after the next token of the output.
    fn after(&mut self, id: TokenId, constraint: &SharedConstraint) -> Vec<TokenId> {
        if let Self::FromTheFirst = self {
            *self = constraint.foresight().map_or(Self::Never, Self::Now);
        }
        let Self::Now(foresight) = self else { return Vec::new() };
        if foresight.follow(id) {
            return foresight.forced();
        }
        *self = Self::Never;
        Vec::new()
    }
}

/// How fast a sequence's constraint has been.
#[derive(Debug, Default)]
struct Pace {
    /// How many quick positions are missing until the sequence counts as quick.
    missing: u32,
}

impl Pace {
    fn is_slow(&self) -> bool {
        self.missing > 0
    }

    /// Takes note of a position that took `time`, where more than `long` is too much.
    fn took(&mut self, time: Duration, long: Duration) {
        self.missing = if time > long { QUICK_AGAIN } else { self.missing.saturating_sub(1) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::{prelude::*, test_runner::RngSeed};

    use super::{super::constraint::LONG, *};
    use crate::{FinishReason, Logprobs, LogprobsMode, SequenceSampler, TokenConstraint};

    /// Allows one list of tokens after another, then only the end.
    #[derive(Debug)]
    struct Listed(Vec<Vec<TokenId>>);

    #[derive(Debug)]
    struct ListedState(std::vec::IntoIter<Vec<TokenId>>, Vec<TokenId>);

    impl TokenConstraint for Listed {
        fn start(&self) -> Box<dyn ConstraintState> {
            let mut lists = self.0.clone().into_iter();
            let first = lists.next().unwrap_or_default();
            Box::new(ListedState(lists, first))
        }
    }

    impl ConstraintState for ListedState {
        fn allow(&mut self, mask: &mut TokenMask) -> Result<bool, SampleError> {
            mask.clear();
            for &id in &self.1 {
                mask.allow(id);
            }
            Ok(self.1.is_empty())
        }

        fn accept(&mut self, id: TokenId) -> Result<(), SampleError> {
            assert!(self.1.contains(&id), "{id} is not among {:?}", self.1);
            self.1 = self.0.next().unwrap_or_default();
            Ok(())
        }
    }

    const EOS: TokenId = 7;

    fn params(lists: &[&[TokenId]]) -> SamplingParams {
        let lists = lists.iter().map(|list| list.to_vec()).collect();
        SamplingParams {
            constraint: Some(SharedConstraint::new(Arc::new(Listed(lists)))),
            eos_token_id: Some(EOS),
            max_tokens: 9,
            ..SamplingParams::default()
        }
    }

    fn sampler(params: SamplingParams) -> SequenceSampler {
        SequenceSampler::new(params.valid(), Arc::new([]))
    }

    fn sample(params: SamplingParams, logits: &[f32]) -> Result<(Vec<TokenId>, Option<FinishReason>), SampleError> {
        let mut sampler = sampler(params);
        let (mut ids, mut logits) = (Vec::new(), logits.to_vec());
        loop {
            let step = sampler.step(&mut logits)?;
            ids.push(step.token.id);
            if step.finish.is_some() {
                return Ok((ids, step.finish));
            }
        }
    }

    #[test]
    fn only_what_the_constraint_leaves_is_sampled_and_the_end_only_where_it_may_be() {
        let logits = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 90.0];
        let greedy = SamplingParams { temperature: 0.0, ..params(&[&[1, 2], &[0], &[3, 5]]) };
        assert_eq!(sample(greedy, &logits), Ok((vec![2, 0, 5, EOS], Some(FinishReason::Eos))));
    }

    #[test]
    fn a_position_that_was_prepared_is_the_same_one() {
        let logits = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 90.0];
        let params = SamplingParams { temperature: 0.0, ..params(&[&[1, 2], &[0], &[3, 5]]) };
        let mut sampler = sampler(params);
        for expected in [2, 0, 5, EOS] {
            (0..2).for_each(|_| sampler.prepare());
            assert_eq!(sampler.step(&mut logits.to_vec()).unwrap().token.id, expected);
        }
    }

    #[test]
    fn a_constraint_is_slow_from_its_first_long_position_until_many_were_quick() {
        let mut pace = Pace::default();
        pace.took(LONG, LONG);
        assert!(!pace.is_slow());
        pace.took(LONG + Duration::from_nanos(1), LONG);
        (1..QUICK_AGAIN).for_each(|_| pace.took(Duration::ZERO, LONG));
        assert!(pace.is_slow());
        pace.took(Duration::ZERO, LONG);
        assert!(!pace.is_slow());
    }

    #[test]
    fn a_mask_wider_than_the_logits_is_cut() {
        let greedy = SamplingParams { temperature: 0.0, ..params(&[&[1, 200]]) };
        assert_eq!(sample(greedy, &[0.0; 8]).unwrap().0, [1, EOS]);
    }

    #[test]
    fn a_request_stop_token_that_is_text_to_the_constraint_stays_text() {
        let params = SamplingParams { temperature: 0.0, stop_token_ids: vec![1], ..params(&[&[1], &[2]]) };
        assert_eq!(sample(params, &[0.0; 8]), Ok((vec![1], Some(FinishReason::StopToken(1)))));
        let params = SamplingParams { temperature: 0.0, stop_token_ids: vec![4], ..self::params(&[&[2], &[5]]) };
        assert_eq!(sample(params, &[0.0; 8]), Ok((vec![2, 5, 4], Some(FinishReason::StopToken(4)))));
    }

    #[test]
    fn with_ignore_eos_a_finished_output_goes_on_with_end_tokens_only() {
        let params = SamplingParams { ignore_eos: true, max_tokens: 5, ..params(&[&[3]]) };
        assert_eq!(sample(params, &[0.0; 8]), Ok((vec![3, EOS, EOS, EOS, EOS], Some(FinishReason::Length))));
    }

    #[test]
    fn other_masks_hold_too_and_where_nothing_is_left_that_is_said() {
        let allowed = SamplingParams { allowed_token_ids: Some(vec![2, 4, EOS]), ..params(&[&[1, 2], &[4, 5]]) };
        assert_eq!(sample(allowed, &[0.0; 8]).unwrap().0, [2, 4, EOS]);
        let bad = SamplingParams { bad_words: vec![vec![2]], ..params(&[&[1, 2]]) };
        assert_eq!(sample(bad, &[0.0; 8]).unwrap().0, [1, EOS]);
        let nothing = SamplingParams { allowed_token_ids: Some(vec![0]), ..params(&[&[1, 2]]) };
        assert_eq!(sample(nothing, &[0.0; 8]), Err(SampleError::NothingLeft));
        let biased = SamplingParams { temperature: 0.0, logit_bias: vec![(2, 9.0), (0, 99.0)], ..params(&[&[1, 2]]) };
        assert_eq!(sample(biased, &[0.0; 8]).unwrap().0, [2, EOS]);
    }

    #[test]
    fn an_output_that_is_complete_ends_before_min_tokens_and_others_do_not() {
        let logits = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 90.0];
        let ended = |ids: &[TokenId]| Ok((ids.to_vec(), Some(FinishReason::Eos)));
        let long = SamplingParams { min_tokens: 5, ..params(&[&[1], &[2, EOS]]) };
        assert_eq!(sample(long.clone(), &logits), ended(&[1, 2, EOS]));
        // A stop token is an end, also where the grammar takes it for text.
        let text = SamplingParams { stop_token_ids: vec![2], ..long.clone() };
        assert_eq!(sample(text, &logits), Ok((vec![1, EOS], Some(FinishReason::Eos))));
        // Where the rest is masked otherwise, the end is all that is left, too.
        let bad = SamplingParams { bad_words: vec![vec![2]], ..long.clone() };
        assert_eq!(sample(bad, &logits), ended(&[1, EOS]));
        let only = SamplingParams { allowed_token_ids: Some(vec![1, EOS]), ..long.clone() };
        assert_eq!(sample(only, &logits), ended(&[1, EOS]));
        // Neither biases nor penalties change what is left.
        let biased = SamplingParams { logit_bias: vec![(2, -100.0)], presence_penalty: 2.0, ..long.clone() };
        assert_eq!(sample(biased, &logits), ended(&[1, 2, EOS]));
        let never = SamplingParams { ignore_eos: true, max_tokens: 6, ..long.clone() };
        assert_eq!(sample(never, &logits), Ok((vec![1, 2, EOS, EOS, EOS, EOS], Some(FinishReason::Length))));
        let nothing = SamplingParams { allowed_token_ids: Some(vec![1]), ..long };
        assert_eq!(sample(nothing, &logits), Err(SampleError::NothingLeft));
    }

    #[test]
    fn raw_log_probs_know_nothing_of_the_constraint_and_processed_ones_are_among_what_it_leaves() {
        let logits = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
        let of = |mode| {
            let params = SamplingParams { logprobs: Some(Logprobs::Top(2)), logprobs_mode: mode, ..params(&[&[1, 3]]) };
            sampler(params).step(&mut logits.to_vec()).unwrap().token
        };
        let raw = of(LogprobsMode::Raw);
        assert_eq!(raw.top_logprobs.iter().map(|top| top.id).collect::<Vec<_>>(), [7, 6]);
        let processed = of(LogprobsMode::Processed);
        assert_eq!(processed.top_logprobs.iter().map(|top| top.id).collect::<Vec<_>>(), [3, 1]);
        let sum: f64 = processed.top_logprobs.iter().map(|top| f64::from(top.logprob).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-6, "{sum}");
        assert!(
            (f64::from(processed.top_logprobs[0].logprob) + 2.0 - f64::from(processed.top_logprobs[1].logprob) - 4.0)
                .abs()
                < 1e-6
        );
    }

    /// Allows anything for so many tokens, and then one of them only.
    #[derive(Debug, Clone)]
    struct FreeUntil(usize, TokenId);

    impl TokenConstraint for FreeUntil {
        fn start(&self) -> Box<dyn ConstraintState> {
            Box::new(self.clone())
        }
    }

    impl ConstraintState for FreeUntil {
        fn is_free(&self) -> bool {
            self.0 > 0
        }

        fn allow(&mut self, mask: &mut TokenMask) -> Result<bool, SampleError> {
            mask.clear();
            mask.allow(self.1);
            Ok(false)
        }

        fn accept(&mut self, _: TokenId) -> Result<(), SampleError> {
            self.0 = self.0.saturating_sub(1);
            Ok(())
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_position_that_is_free_has_the_bits_of_one_without_a_constraint(
            logits in prop::collection::vec(prop::collection::vec(-9.0_f32..9.0, 40), 1..6),
            seed in any::<u64>(),
            temperature in prop_oneof![Just(0.0), 0.1..2.0],
            (top_p, top_k) in (0.2..1.0, 0..9_usize),
            (penalty, processed, min_tokens) in (0.5..1.5, any::<bool>(), 0..3_usize),
        ) {
            let forced = 11;
            let plain = SamplingParams {
                seed: Some(seed), temperature, top_p, top_k, repetition_penalty: penalty, min_tokens,
                logprobs: Some(Logprobs::Top(3)), eos_token_id: Some(7), max_tokens: 9,
                logprobs_mode: if processed { LogprobsMode::Processed } else { LogprobsMode::Raw },
                allowed_token_ids: top_k.is_multiple_of(3).then(|| (5..30).collect()),
                ..SamplingParams::default()
            };
            let constraint = Some(SharedConstraint::new(Arc::new(FreeUntil(logits.len() - 1, forced))));
            let (mut free, mut bounded) = (sampler(plain.clone()), sampler(SamplingParams { constraint, ..plain }));
            for (position, row) in logits.iter().enumerate() {
                let step = bounded.step(&mut row.clone()).unwrap();
                if position + 1 == logits.len() {
                    prop_assert_eq!(step.token.id, forced);
                } else {
                    let expected = free.step(&mut row.clone()).unwrap();
                    prop_assert_eq!(format!("{step:?}"), format!("{expected:?}"));
                    if step.finish.is_some() {
                        break;
                    }
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 16,
            // What it asserts fails by chance for some seeds.
            rng_seed: RngSeed::Fixed(1),
            ..ProptestConfig::default()
        })]

        #[test]
        fn the_distribution_is_the_softmax_over_what_is_left(
            logits in prop::collection::vec(-3.0_f32..3.0, 8),
            left in prop::collection::btree_set(0_u32..7, 1..7),
            seed in any::<u64>(),
        ) {
            const DRAWS: u32 = 4_000;
            let left: Vec<TokenId> = left.into_iter().collect();
            let total: f64 = left.iter().map(|&id| f64::from(logits[id as usize]).exp()).sum();
            // Every position is constrained alike, so one sequence is many draws.
            let lists = vec![left.clone(); DRAWS as usize];
            let params = SamplingParams {
                constraint: Some(SharedConstraint::new(Arc::new(Listed(lists)))),
                seed: Some(seed),
                max_tokens: DRAWS as usize,
                ..SamplingParams::default()
            };
            let (ids, _) = sample(params, &logits).unwrap();
            for &id in &left {
                let expected = f64::from(logits[id as usize]).exp() / total;
                let count = ids.iter().filter(|&&drawn| drawn == id).count();
                let share = f64::from(u32::try_from(count).unwrap()) / f64::from(DRAWS);
                // Six standard deviations.
                let room = 6.0 * (expected * (1.0 - expected) / f64::from(DRAWS)).sqrt() + 1e-9;
                prop_assert!((share - expected).abs() <= room, "{id}: {share} for {expected}");
            }
        }
    }
}
