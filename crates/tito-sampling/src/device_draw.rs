//! Tokens that a device draws itself: nothing comes to the host of a position but its token and what its log-prob is made
//! of.
//!
//! Owns which requests that serves: those whose logits nothing edits and whose draw nothing truncates, which is how most
//! rollouts are sampled, and tokens of prompts, both without alternatives. [`Drawn::of`] is what a device has to compute. What
//! comes out is what [`SequenceSampler::step`] and [`score`](super::score) give, to the bit.

use super::{
    Logprobs, SampledToken, SequenceSampler, Step,
    draw::first_exceeding,
    log_probs::Distribution,
    sampler::Method,
    skim::OwnedSummary,
    softmax::{BLOCK, BlockSums, Scale},
};
use crate::TokenId;

/// Which token of a position a device is to take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DeviceDraw {
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

/// What a device says of a position. Only the greatest logit and the sum mean anything where these are not finite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drawn {
    /// The token.
    pub id: TokenId,
    /// Its logit.
    pub logit: f32,
    /// The greatest logit, which is never NaN.
    pub max: f32,
    /// How many logits are at least that of the token.
    pub at_least: u32,
    /// The sum of all weights at the temperature 1; NaN where a logit is.
    pub total: f64,
}

impl DeviceDraw {
    /// That of a token of a prompt with its `top` alternatives, if a device can take it.
    pub fn of_token(id: TokenId, top: usize) -> Option<Self> {
        (top == 0).then_some(Self::Given(id))
    }

    /// The temperature of the weights that are summed for it, beside those at 1.
    pub fn temperature(self) -> f64 {
        match self {
            Self::Share { temperature, .. } => temperature,
            Self::Best | Self::Given(_) => 1.0,
        }
    }
}

impl Drawn {
    /// What a device says of `logits`: the definition of its kernels.
    ///
    /// # Panics
    /// Where a given token has no logit.
    pub fn of(logits: &[f32], draw: DeviceDraw) -> Self {
        let summary = OwnedSummary::new(logits, draw.temperature());
        let summary = summary.get();
        let max = summary.max();
        let place = match draw {
            DeviceDraw::Best => logits.iter().position(|logit| *logit >= max).unwrap_or_default(),
            DeviceDraw::Given(id) => id as usize,
            DeviceDraw::Share { temperature, uniform } => {
                let scale = Scale::new(max, temperature);
                let (block, before, target) = BlockSums::block_of(summary.scaled, uniform);
                let weights = logits[block * BLOCK..].iter().take(BLOCK).map(|logit| scale.weight(*logit));
                block * BLOCK + first_exceeding(weights, before, target)
            }
        };
        let (logit, id) = (logits[place], TokenId::try_from(place).expect("ids have 32 bits"));
        let at_least = logits.iter().map(|other| u32::from(*other >= logit)).sum();
        Self { id, logit, max, at_least, total: summary.raw.iter().sum() }
    }

    /// The token; `None` where the logits are not in order, which all of them say more of.
    pub fn token(self) -> Option<SampledToken> {
        let Self { id, logit, max, at_least: rank, total } = self;
        if !max.is_finite() || total.is_nan() {
            return None;
        }
        let logprob = Distribution::new(&[], Scale::new(max, 1.0), total).logprob(logit);
        Some(SampledToken { id, logprob, rank, top_logprobs: Vec::new(), sampling_mask: None })
    }
}

impl SequenceSampler {
    /// How a device draws the token that comes `ahead` tokens after the next one, if it can. Those before it are drawn in the
    /// same way.
    pub fn device_draw(&mut self, ahead: usize) -> Option<DeviceDraw> {
        let temperature = self.skims()?;
        let position = self.output.len() + ahead;
        match (&mut self.method, &self.params.logprobs) {
            (_, Some(logprobs)) if *logprobs != Logprobs::Top(0) => None,
            (Method::Greedy, _) => Some(DeviceDraw::Best),
            (Method::Draw(uniforms), _) => Some(DeviceDraw::Share { temperature, uniform: uniforms.at(position) }),
            (Method::TruncatedDraw(..), _) => None,
        }
    }

    /// Ends the position with what a device drew for it; `None` where all logits are needed, to say what is wrong with them.
    pub fn take_drawn(&mut self, drawn: Drawn) -> Option<Step> {
        let token = drawn.token()?;
        let sampling_mask = self.params.sampling_mask.map(|_| [token.id].into());
        Some(self.end_position(SampledToken { sampling_mask, ..token }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::SamplingParams;

    fn sampler(params: &SamplingParams) -> SequenceSampler {
        SequenceSampler::new(params.clone().valid(), Arc::new([]))
    }

    proptest! {
        #[test]
        fn a_device_draws_what_all_logits_give(
            // Few different numbers, so that some are equal.
            rows in prop::collection::vec(prop::collection::vec((-40_i8..40).prop_map(|tenths| f32::from(tenths) / 8.0), 1..1500), 3),
            temperature in prop::sample::select(vec![0.0, 0.3, 1.0, 1.7]),
            (logprobs, sampling_mask) in (prop::option::of(Just(Logprobs::Top(0))), prop::option::of(Just(4_usize))),
        ) {
            let sampling_mask = sampling_mask.filter(|_| temperature == 0.0);
            let params = SamplingParams { temperature, logprobs, sampling_mask, seed: Some(3), max_tokens: 3, ..Default::default() };
            let (mut whole, mut device) = (sampler(&params), sampler(&params));
            // All are drawn before the first is taken, as rows of a draft are.
            let drawn: Vec<Drawn> =
                (0..).zip(&rows).map(|(ahead, logits)| Drawn::of(logits, device.device_draw(ahead).unwrap())).collect();
            for (mut logits, drawn) in rows.into_iter().zip(drawn) {
                prop_assert_eq!(device.take_drawn(drawn), Some(whole.step(&mut logits).unwrap()));
            }
        }

        #[test]
        fn a_device_scores_a_token_as_all_logits_do(
            logits in prop::collection::vec((-40_i8..40).prop_map(|tenths| f32::from(tenths) / 8.0), 1..1500),
            place in any::<prop::sample::Index>(),
        ) {
            let id = TokenId::try_from(place.index(logits.len())).unwrap();
            let drawn = Drawn::of(&logits, DeviceDraw::of_token(id, 0).unwrap());
            prop_assert_eq!(drawn.token(), Some(crate::score_token(&logits, id, 0).unwrap()));
        }
    }

    #[test]
    fn the_best_is_the_lowest_id_among_equals() {
        for (logits, best) in [(&[1.0, 3.0, 3.0][..], 1), (&[-0.0, 0.0], 0), (&[f32::NEG_INFINITY, -2.0], 1)] {
            assert_eq!(Drawn::of(logits, DeviceDraw::Best).id, best, "{logits:?}");
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
            SamplingParams { min_tokens: 1, ..base() },
            SamplingParams { logit_bias: vec![(1, 1.0)], ..base() },
        ] {
            assert_eq!(sampler(&params).device_draw(0), None, "{params:?}");
        }
        assert_eq!(DeviceDraw::of_token(3, 1), None);
        assert_eq!(sampler(&SamplingParams { temperature: 0.0, ..base() }).device_draw(0), Some(DeviceDraw::Best));
    }

    #[test]
    fn logits_that_are_not_in_order_are_left_to_the_whole_row() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let all_bad = vec![bad; 600];
            let mut one_bad = vec![0.5; 600];
            one_bad[300] = bad;
            let is_fine = |logits: &[f32], draw| Drawn::of(logits, draw).token().is_some();
            for draw in [DeviceDraw::Best, DeviceDraw::Share { temperature: 0.7, uniform: 0.4 }, DeviceDraw::Given(3)] {
                assert!(!is_fine(&all_bad, draw), "{bad} {draw:?}");
                // What is minus infinity weighs nothing.
                assert_eq!(is_fine(&one_bad, draw), bad == f32::NEG_INFINITY, "{bad} {draw:?}");
            }
        }
    }
}
