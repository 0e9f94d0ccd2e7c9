//! Guesses of what a sequence samples next, from logits of another model.
//!
//! A guess takes the random number that the step at its position will take, and everything else that decides a token but a
//! structured output: where the other model has the logits of this one, it guesses what will be sampled. Guesses are
//! forgotten before the next step, which is as it would have been without them.

use super::{
    penalties::Penalties,
    sampler::{Guessing, SequenceSampler},
    softmax::{Scale, max_logit},
};
use crate::TokenId;

impl SequenceSampler {
    /// The token that these logits give after what was sampled and guessed. `None` where they give none, or one that ends
    /// the sequence: nothing is to be guessed after it. The logits are used as scratch space and left as they were.
    pub fn guess(&mut self, logits: &mut [f32]) -> Option<TokenId> {
        let raw_scale = Scale::new(max_logit(logits).ok()?, 1.0);
        self.scratch.raw.compute(logits, raw_scale).ok()?;
        self.edit(logits);
        // It has not followed the guesses so far, and is not to be led astray by them.
        let constrained = self.constrained.take();
        let chosen = self.choose(logits, raw_scale);
        self.constrained = constrained;
        self.scratch.edits.undo(logits);
        let (id, _) = chosen.ok()?;
        if self.params.finish_after(id, self.output.len() + 1).is_some() {
            return None;
        }
        self.guessing.get_or_insert(Guessing {
            sampled: self.output.len(),
            known: self.penalties.as_ref().map_or(0, Penalties::known),
        });
        self.output.push(id);
        if let Some(penalties) = &mut self.penalties {
            penalties.record(id);
        }
        Some(id)
    }

    /// Forgets all guesses.
    pub fn forget_guesses(&mut self) {
        let Some(Guessing { sampled, known }) = self.guessing.take() else { return };
        if let Some(penalties) = &mut self.penalties {
            penalties.take_back(&self.output[sampled..], known);
        }
        self.output.truncate(sampled);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::SamplingParams;

    /// Logits that differ from position to position.
    fn logits(position: usize) -> Vec<f32> {
        (0..50_u16).map(|id| f32::from((id * 37 + u16::try_from(position).unwrap() * 11) % 50) / 9.0).collect()
    }

    fn all_params() -> Vec<SamplingParams> {
        let base = SamplingParams { seed: Some(5), max_tokens: 30, ..SamplingParams::default() };
        vec![
            SamplingParams { temperature: 0.0, ..base.clone() },
            base.clone(),
            SamplingParams { temperature: 0.7, top_k: 9, top_p: 0.9, ..base.clone() },
            SamplingParams { repetition_penalty: 1.7, ..base.clone() },
            SamplingParams { presence_penalty: 1.0, frequency_penalty: 0.5, ..base.clone() },
            SamplingParams { bad_words: vec![vec![3], vec![7, 9]], min_tokens: 4, ..base.clone() },
            SamplingParams { logit_bias: vec![(2, 3.0)], allowed_token_ids: Some(vec![2, 5, 9]), ..base },
        ]
    }

    #[test]
    fn guesses_from_the_same_logits_are_what_is_sampled_and_change_no_step() {
        for params in all_params() {
            let new = || SequenceSampler::new(params.clone().valid(), Arc::new([1, 2, 3]));
            let (mut plain, mut guessing) = (new(), new());
            for position in 0..20 {
                let mut found = Vec::new();
                for ahead in 0..4 {
                    let mut scratch = logits(position + ahead);
                    found.push(guessing.guess(&mut scratch));
                    assert_eq!(scratch, logits(position + ahead), "the logits are left as they were");
                }
                // Also guesses that come to nothing.
                guessing.guess(&mut [f32::NEG_INFINITY; 50]);
                guessing.forget_guesses();
                let mut rest = new();
                let expected: Vec<_> =
                    (0..position + 4).map(|at| rest.step(&mut logits(at)).unwrap().token.id).collect();
                assert_eq!(found, expected[position..].iter().map(|id| Some(*id)).collect::<Vec<_>>(), "{params:?}");
                let [one, other] =
                    [&mut plain, &mut guessing].map(|sampler| sampler.step(&mut logits(position)).unwrap());
                assert_eq!(one, other, "{params:?}");
            }
        }
    }

    #[test]
    fn what_ends_a_sequence_and_what_is_no_number_is_not_guessed() {
        let params = SamplingParams { temperature: 0.0, stop_token_ids: vec![1], max_tokens: 3, ..Default::default() };
        let mut sampler = SequenceSampler::new(params.valid(), Arc::new([]));
        assert_eq!(sampler.guess(&mut [0.0, 1.0]), None);
        assert_eq!(sampler.guess(&mut [f32::NAN, 1.0]), None);
        assert_eq!(sampler.guess(&mut []), None);
        assert_eq!([(); 3].map(|()| sampler.guess(&mut [1.0, 0.0])), [Some(0), Some(0), None], "the third is the last");
        assert_eq!(sampler.output, [0, 0]);
        sampler.forget_guesses();
        assert!(sampler.output.is_empty());
    }
}
