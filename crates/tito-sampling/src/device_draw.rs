//! Tokens that a device draws itself: nothing comes to the host of a position but its token and what its log-prob is made
//! of.
//!
//! Owns which requests that serves: those whose draw nothing truncates, which is how most rollouts are sampled, with whatever edits
//! their logits; and tokens of prompts. Both without alternatives. [`Drawn::of`] is what a device has to compute. What comes out is
//! what [`SequenceSampler::step`] and [`score`](super::score) give, to the bit.

use std::borrow::Cow;

use super::{
    Logprobs, LogprobsMode, RowEdits, SampledToken, SequenceSampler, Step,
    draw::first_exceeding,
    log_probs::Distribution,
    sampler::Method,
    skim::OwnedSummary,
    softmax::{BLOCK, BlockSums, Scale},
};
use crate::TokenId;

/// Which token of a position a device is to take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DevicePick {
    /// The one with the greatest logit, the lowest id among equals.
    Best,
    /// The first one at which the cumulative weights exceed a share of all.
    Share {
        /// The temperature of the weights.
        temperature: f64,
        /// The share, in [0, 1).
        uniform: f64,
    },
    /// This one, of a prompt.
    Given(TokenId),
}

/// What a device is to do with the logits of a position.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceDraw {
    /// Which token it takes.
    pub pick: DevicePick,
    /// What it edits of the logits before that.
    pub edits: RowEdits,
    /// Whether it says of the token what the model's own logits have, or those that it was drawn from.
    pub logprobs_mode: LogprobsMode,
}

/// What a device says of a position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drawn {
    /// The token. It means nothing where the logits are not in order.
    pub id: TokenId,
    /// Its logit.
    pub logit: f32,
    /// The greatest logit, which is never NaN.
    pub max: f32,
    /// How many logits are at least that of the token.
    pub at_least: u32,
    /// The sum of all weights. NaN where a logit is, and where edits leave nothing, or something that is not finite.
    pub total: f64,
}

impl DevicePick {
    /// The temperature of the weights of which it takes a share.
    pub fn temperature(self) -> f64 {
        match self {
            Self::Share { temperature, .. } => temperature,
            Self::Best | Self::Given(_) => 1.0,
        }
    }

    /// The place of the token among logits of this summary.
    fn place(self, logits: &[f32], summary: &OwnedSummary) -> usize {
        let summary = summary.get();
        match self {
            Self::Best => logits.iter().position(|logit| *logit >= summary.max()).unwrap_or_default(),
            Self::Given(id) => id as usize,
            Self::Share { temperature, uniform } => {
                let scale = Scale::new(summary.max(), temperature);
                let (block, before, target) = BlockSums::block_of(summary.scaled, uniform);
                let weights = logits[block * BLOCK..].iter().take(BLOCK).map(|logit| scale.weight(*logit));
                block * BLOCK + first_exceeding(weights, before, target)
            }
        }
    }
}

impl DeviceDraw {
    /// A token of the model's own logits.
    pub fn unedited(pick: DevicePick) -> Self {
        Self { pick, edits: RowEdits::default(), logprobs_mode: LogprobsMode::Raw }
    }

    /// That of a token of a prompt with its `top` alternatives, if a device can take it.
    pub fn of_token(id: TokenId, top: usize) -> Option<Self> {
        (top == 0).then_some(Self::unedited(DevicePick::Given(id)))
    }
}

impl Drawn {
    /// What a device says of `logits`: the definition of its kernels.
    ///
    /// # Panics
    /// Where a given token has no logit.
    pub fn of(logits: &[f32], draw: &DeviceDraw) -> Self {
        let mut edited = Cow::Borrowed(logits);
        if !draw.edits.is_empty() {
            draw.edits.apply(edited.to_mut());
        }
        let own = OwnedSummary::new(logits, 1.0);
        let drawn_from = OwnedSummary::new(&edited, draw.pick.temperature());
        let place = draw.pick.place(&edited, &drawn_from);
        let id = TokenId::try_from(place).expect("ids have 32 bits");
        let raw_total: f64 = own.get().raw.iter().sum();
        let (described, max, total) = match draw.logprobs_mode {
            LogprobsMode::Raw => (logits, own.get().max(), raw_total),
            LogprobsMode::Processed => (&*edited, drawn_from.get().max(), drawn_from.get().scaled.iter().sum()),
        };
        let is_in_order = !raw_total.is_nan() && drawn_from.get().max().is_finite();
        let logit = described[place];
        let at_least = described.iter().map(|other| u32::from(*other >= logit)).sum();
        Self { id, logit, max, at_least, total: if is_in_order { total } else { f64::NAN } }
    }

    /// Whether there is a token; all logits say more of what is wrong where there is none.
    pub fn is_in_order(&self) -> bool {
        self.max.is_finite() && !self.total.is_nan()
    }

    /// The token, of weights at this temperature; `None` where the logits are not in order.
    pub fn token(self, temperature: f64) -> Option<SampledToken> {
        let Self { id, logit, max, at_least: rank, total } = self;
        if !self.is_in_order() {
            return None;
        }
        let logprob = Distribution::new(&[], Scale::new(max, temperature), total).logprob(logit);
        Some(SampledToken { id, logprob, rank, top_logprobs: Vec::new(), sampling_mask: None })
    }
}

impl SequenceSampler {
    /// How a device draws the next token, if it can.
    pub fn device_draw(&mut self) -> Option<DeviceDraw> {
        let pick = self.device_pick(0)?;
        Some(DeviceDraw { edits: self.row_edits()?, ..self.without_edits(pick) })
    }

    /// How a device draws the token that comes `ahead` tokens after the next one, if it can. Those before it are drawn in the
    /// same way.
    pub fn device_draw_ahead(&mut self, ahead: usize) -> Option<DeviceDraw> {
        let pick = self.device_pick(ahead).filter(|_| !self.edits_logits())?;
        Some(self.without_edits(pick))
    }

    fn without_edits(&self, pick: DevicePick) -> DeviceDraw {
        DeviceDraw { logprobs_mode: self.params.logprobs_mode, ..DeviceDraw::unedited(pick) }
    }

    /// Which token a device takes, if it can, so many tokens after the next one.
    fn device_pick(&mut self, ahead: usize) -> Option<DevicePick> {
        let position = self.output.len() + ahead;
        if !matches!(&self.params.logprobs, None | Some(Logprobs::Top(0))) {
            return None;
        }
        let is_processed = self.params.logprobs_mode == LogprobsMode::Processed;
        match (&mut self.method, self.params.sampling_mask.is_some()) {
            // How probable the best token is said to be depends on the mask; and whatever has a weight could be drawn.
            (Method::Greedy, true) if is_processed => None,
            (Method::Draw(_), true) | (Method::TruncatedDraw(..), _) => None,
            (Method::Greedy, _) => Some(DevicePick::Best),
            (Method::Draw(uniforms), false) => {
                Some(DevicePick::Share { temperature: self.params.temperature, uniform: uniforms.at(position) })
            }
        }
    }

    /// Ends the position with what a device drew for it; `None` where all logits are needed, to say what is wrong with them.
    pub fn take_drawn(&mut self, drawn: Drawn) -> Option<Step> {
        let temperature = match (self.params.logprobs_mode, &self.method) {
            (LogprobsMode::Raw, _) | (_, Method::Greedy) => 1.0,
            (LogprobsMode::Processed, _) => self.params.temperature,
        };
        let token = drawn.token(temperature)?;
        let sampling_mask = self.params.sampling_mask.map(|_| [token.id].into());
        Some(self.end_position(SampledToken { sampling_mask, ..token }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::{ConstraintState, SampleError, SamplingParams, SharedConstraint, TokenConstraint, TokenMask};

    fn sampler(params: &SamplingParams) -> SequenceSampler {
        SequenceSampler::new(params.clone().valid(), Arc::new([3, 3, 8]))
    }

    /// Any token at first, then those whose ids are divided by a number that rises; the output may end after two tokens.
    #[derive(Debug, Clone)]
    struct Divided(TokenId);

    impl TokenConstraint for Divided {
        fn start(&self) -> Box<dyn ConstraintState> {
            Box::new(self.clone())
        }
    }

    impl ConstraintState for Divided {
        fn is_free(&self) -> bool {
            self.0 == 0
        }

        fn allow(&mut self, mask: &mut TokenMask) -> Result<bool, SampleError> {
            mask.clear();
            (0..1200).step_by(self.0 as usize).for_each(|id| mask.allow(id));
            Ok(self.0 > 1)
        }

        fn accept(&mut self, _: TokenId) -> Result<(), SampleError> {
            self.0 += 1;
            Ok(())
        }
    }

    fn rows(lengths: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Vec<f32>>> {
        // Few different numbers, so that some are equal.
        let logit = (-40_i8..40).prop_map(|tenths| f32::from(tenths) / 8.0);
        prop::collection::vec(prop::collection::vec(logit, lengths), 4)
    }

    fn mode(is_processed: bool) -> LogprobsMode {
        if is_processed { LogprobsMode::Processed } else { LogprobsMode::Raw }
    }

    proptest! {
        #[test]
        fn a_device_draws_what_all_logits_give(
            rows in rows(1..1500),
            temperature in prop::sample::select(vec![0.0, 0.3, 1.0, 1.7]),
            (logprobs, sampling_mask) in (prop::option::of(Just(Logprobs::Top(0))), prop::option::of(Just(4_usize))),
            is_processed in any::<bool>(),
        ) {
            let sampling_mask = sampling_mask.filter(|_| temperature == 0.0 && !is_processed);
            let logprobs_mode = mode(is_processed);
            let base = SamplingParams { seed: Some(3), max_tokens: 4, ..Default::default() };
            let params = SamplingParams { temperature, logprobs, logprobs_mode, sampling_mask, ..base };
            let (mut whole, mut device) = (sampler(&params), sampler(&params));
            // All are drawn before the first is taken, as rows of a draft are.
            let drawn: Vec<Drawn> =
                (0..).zip(&rows).map(|(ahead, logits)| Drawn::of(logits, &device.device_draw_ahead(ahead).unwrap())).collect();
            for (mut logits, drawn) in rows.into_iter().zip(drawn) {
                prop_assert_eq!(device.take_drawn(drawn), Some(whole.step(&mut logits).unwrap()));
            }
        }

        #[test]
        fn a_device_draws_what_edited_logits_give(
            rows in rows(20..900),
            temperature in prop::sample::select(vec![0.0, 0.3, 1.0, 1.7]),
            (bias, presence_penalty, frequency_penalty) in (any::<bool>(), 0_u8..2, 0_u8..2),
            repetition_penalty in prop::sample::select(vec![1.0, 0.8, 1.3]),
            (is_processed, bad_words, min_tokens) in (any::<bool>(), any::<bool>(), 0_usize..3),
            allowed in prop::option::of(2_usize..40),
            constraint in prop::option::of(0_u32..3),
        ) {
            let constraint = constraint.map(|first| SharedConstraint::new(Arc::new(Divided(first))));
            let params = SamplingParams {
                temperature, repetition_penalty, constraint,
                min_tokens,
                presence_penalty: f64::from(presence_penalty),
                frequency_penalty: f64::from(frequency_penalty),
                logit_bias: if bias { vec![(0, 2.5), (7, -1.25), (5_000, 1.0)] } else { Vec::new() },
                bad_words: if bad_words { vec![vec![0], vec![6, 12]] } else { Vec::new() },
                allowed_token_ids: allowed.map(|step| (0..2_000).step_by(step).chain([3]).collect()),
                logprobs_mode: mode(is_processed),
                eos_token_id: Some(3),
                ignore_eos: true,
                seed: Some(5),
                max_tokens: 9,
                ..Default::default()
            };
            let (mut whole, mut device) = (sampler(&params), sampler(&params));
            for mut logits in rows {
                let Some(draw) = device.device_draw() else {
                    prop_assert!(params.constraint.is_some() && device.output.len() < min_tokens);
                    prop_assert_eq!(device.step(&mut logits.clone()), whole.step(&mut logits));
                    continue;
                };
                let drawn = Drawn::of(&logits, &draw);
                match whole.step(&mut logits) {
                    Ok(step) => prop_assert_eq!(device.take_drawn(drawn), Some(step)),
                    Err(error) => {
                        prop_assert_eq!(device.take_drawn(drawn), None);
                        prop_assert_eq!(device.step(&mut logits), Err(error));
                        break;
                    }
                }
            }
        }

        #[test]
        fn a_device_scores_a_token_as_all_logits_do(
            logits in prop::collection::vec((-40_i8..40).prop_map(|tenths| f32::from(tenths) / 8.0), 1..1500),
            place in any::<prop::sample::Index>(),
        ) {
            let id = TokenId::try_from(place.index(logits.len())).unwrap();
            let drawn = Drawn::of(&logits, &DeviceDraw::of_token(id, 0).unwrap());
            prop_assert_eq!(drawn.token(1.0), Some(crate::score_token(&logits, id, 0).unwrap()));
        }
    }

    #[test]
    fn the_best_is_the_lowest_id_among_equals() {
        for (logits, best) in [(&[1.0, 3.0, 3.0][..], 1), (&[-0.0, 0.0], 0), (&[f32::NEG_INFINITY, -2.0], 1)] {
            assert_eq!(Drawn::of(logits, &DeviceDraw::unedited(DevicePick::Best)).id, best, "{logits:?}");
        }
    }

    #[test]
    fn what_needs_more_than_a_token_is_not_left_to_a_device() {
        let base = SamplingParams::default;
        for params in [
            SamplingParams { top_k: 5, ..base() },
            SamplingParams { top_p: 0.9, ..base() },
            SamplingParams { min_p: 0.1, ..base() },
            SamplingParams { logprobs: Some(Logprobs::Top(1)), ..base() },
            SamplingParams { logprobs: Some(Logprobs::All), ..base() },
            SamplingParams { sampling_mask: Some(9), ..base() },
        ] {
            assert_eq!(sampler(&params).device_draw(), None, "{params:?}");
        }
        assert_eq!(DeviceDraw::of_token(3, 1), None);
        let greedy = sampler(&SamplingParams { temperature: 0.0, ..base() }).device_draw();
        assert_eq!(greedy, Some(DeviceDraw::unedited(DevicePick::Best)));
    }

    #[test]
    fn tokens_after_the_next_one_are_drawn_where_nothing_edits_any_of_them() {
        let base = SamplingParams::default;
        for params in [
            SamplingParams { min_tokens: 1, ..base() },
            SamplingParams { logit_bias: vec![(1, 1.0)], ..base() },
            SamplingParams { bad_words: vec![vec![1, 2]], ..base() },
            SamplingParams { frequency_penalty: 0.5, ..base() },
        ] {
            assert_eq!(sampler(&params).device_draw_ahead(0), None, "{params:?}");
            assert!(sampler(&params).device_draw().is_some(), "{params:?}");
        }
    }

    #[test]
    fn logits_that_are_not_in_order_are_left_to_the_whole_row() {
        let share = DevicePick::Share { temperature: 0.7, uniform: 0.4 };
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let all_bad = vec![bad; 600];
            let mut one_bad = vec![0.5; 600];
            one_bad[300] = bad;
            let is_fine = |logits: &[f32], draw| Drawn::of(logits, &draw).is_in_order();
            for draw in [DevicePick::Best, share, DevicePick::Given(3)].map(DeviceDraw::unedited) {
                assert!(!is_fine(&all_bad, draw.clone()), "{bad} {draw:?}");
                // What is minus infinity weighs nothing.
                assert_eq!(is_fine(&one_bad, draw.clone()), bad == f32::NEG_INFINITY, "{bad} {draw:?}");
                // Also where only others are left.
                let edits = RowEdits { forbidden: vec![300], ..RowEdits::default() };
                let processed = DeviceDraw { edits, logprobs_mode: LogprobsMode::Processed, ..draw };
                assert_eq!(is_fine(&one_bad, processed), bad == f32::NEG_INFINITY, "{bad}");
            }
        }
    }
}
