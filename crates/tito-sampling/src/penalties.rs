//! Repetition, frequency and presence penalties, over the tokens that occurred.

use std::collections::HashMap;

use super::{SamplingParams, edits::Edits};
use crate::TokenId;

/// How penalties change a logit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PenaltyFactors {
    /// Taken from the logit of a token that was sampled.
    pub presence: f64,
    /// Taken from it as often as the token was sampled.
    pub frequency: f64,
    /// Divides a positive logit of a token that occurred, and multiplies another one.
    pub repetition: f64,
}

impl PenaltyFactors {
    /// Those that change no logit.
    pub const NONE: Self = Self { presence: 0.0, frequency: 0.0, repetition: 1.0 };

    /// The logit of a token that was sampled `count` times. It is rounded to `f32` once, at the end.
    pub(super) fn penalised(self, logit: f32, count: u32) -> f32 {
        let logit = f64::from(logit);
        let mut penalised = if logit > 0.0 { logit / self.repetition } else { logit * self.repetition };
        if count > 0 {
            penalised -= self.frequency * f64::from(count) + self.presence;
        }
        #[expect(clippy::cast_possible_truncation, reason = "an overflow to infinity is found by the next maximum")]
        let rounded = penalised as f32;
        rounded
    }
}

/// The penalties of a sequence and the tokens that they apply to.
#[derive(Debug)]
pub(super) struct Penalties {
    factors: PenaltyFactors,
    /// How often a token was sampled; 0 for one that only the prompt has. An entry per distinct token.
    occurrences: Vec<(TokenId, u32)>,
    places: HashMap<TokenId, usize>,
}

impl Penalties {
    /// `None` when every penalty is off.
    pub(super) fn new(params: &SamplingParams, prompt_token_ids: &[TokenId]) -> Option<Self> {
        let &SamplingParams { presence_penalty, frequency_penalty, repetition_penalty, .. } = params;
        let repeats = (repetition_penalty - 1.0).abs() > 0.0;
        if !repeats && presence_penalty.abs() + frequency_penalty.abs() <= 0.0 {
            return None;
        }
        let mut penalties = Self {
            factors: PenaltyFactors {
                presence: presence_penalty,
                frequency: frequency_penalty,
                repetition: repetition_penalty,
            },
            occurrences: Vec::new(),
            places: HashMap::new(),
        };
        if repeats {
            for &id in prompt_token_ids {
                penalties.entry(id);
            }
        }
        Some(penalties)
    }

    /// Counts a sampled token.
    pub(super) fn record(&mut self, id: TokenId) {
        *self.entry(id) += 1;
    }

    /// How many distinct tokens occurred.
    pub(super) fn known(&self) -> usize {
        self.occurrences.len()
    }

    /// Takes back tokens that were counted last, before which so many were [known](Self::known).
    pub(super) fn take_back(&mut self, ids: &[TokenId], known: usize) {
        for &id in ids {
            *self.entry(id) -= 1;
        }
        for (id, _) in self.occurrences.drain(known..) {
            self.places.remove(&id);
        }
    }

    /// Penalises what occurred so far.
    pub(super) fn apply(&self, logits: &mut [f32], edits: &mut Edits) {
        for &(id, count) in &self.occurrences {
            edits.edit(logits, id, |logit| self.factors.penalised(logit, count));
        }
    }

    /// How logits are penalised, and those of which tokens: with each how often it was sampled.
    pub(super) fn get(&self) -> (PenaltyFactors, &[(TokenId, u32)]) {
        (self.factors, &self.occurrences)
    }

    fn entry(&mut self, id: TokenId) -> &mut u32 {
        let place = *self.places.entry(id).or_insert_with(|| {
            self.occurrences.push((id, 0));
            self.occurrences.len() - 1
        });
        &mut self.occurrences[place].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn penalised(params: &SamplingParams, prompt: &[TokenId], output: &[TokenId]) -> Vec<f32> {
        let mut logits = vec![2.0, -2.0, 0.0, 4.0];
        if let Some(mut penalties) = Penalties::new(params, prompt) {
            for &id in output {
                penalties.record(id);
            }
            penalties.apply(&mut logits, &mut Edits::default());
        }
        logits
    }

    #[test]
    fn no_penalty_keeps_no_history() {
        assert!(Penalties::new(&SamplingParams::default(), &[1, 2]).is_none());
    }

    #[test]
    fn presence_counts_output_tokens_once() {
        let params = SamplingParams { presence_penalty: 0.5, ..Default::default() };
        assert_eq!(penalised(&params, &[0], &[]), [2.0, -2.0, 0.0, 4.0]);
        assert_eq!(penalised(&params, &[0], &[3, 3, 1]), [2.0, -2.5, 0.0, 3.5]);
    }

    #[test]
    fn frequency_counts_every_output_token() {
        let params = SamplingParams { frequency_penalty: 0.5, ..Default::default() };
        assert_eq!(penalised(&params, &[0, 0], &[3, 3, 1]), [2.0, -2.5, 0.0, 3.0]);
        let params = SamplingParams { frequency_penalty: -2.0, ..Default::default() };
        assert_eq!(penalised(&params, &[], &[3]), [2.0, -2.0, 0.0, 6.0]);
    }

    #[test]
    fn repetition_covers_prompt_and_output_and_pushes_both_signs_down() {
        let params = SamplingParams { repetition_penalty: 2.0, ..Default::default() };
        assert_eq!(penalised(&params, &[0, 1], &[3]), [1.0, -4.0, 0.0, 2.0]);
    }

    #[test]
    fn repetition_comes_before_frequency_and_presence() {
        let params = SamplingParams {
            repetition_penalty: 2.0,
            frequency_penalty: 0.25,
            presence_penalty: 0.5,
            ..Default::default()
        };
        assert_eq!(penalised(&params, &[0, 0], &[3, 3]), [1.0, -2.0, 0.0, 1.0]);
    }

    #[test]
    fn a_masked_token_stays_masked() {
        let params = SamplingParams { repetition_penalty: 0.1, frequency_penalty: -2.0, ..Default::default() };
        let mut penalties = Penalties::new(&params, &[]).unwrap();
        penalties.record(0);
        let mut logits = [f32::NEG_INFINITY];
        penalties.apply(&mut logits, &mut Edits::default());
        assert_eq!(logits, [f32::NEG_INFINITY]);
    }
}
