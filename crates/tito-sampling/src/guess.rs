//! Guesses of what a sequence samples next, from logits of another model.
//!
//! A guess takes the random number that the step at its position will take, and everything else that decides a token: where the
//! other model has the logits of this one, it guesses what will be sampled. A structured output is followed on a copy. Guesses
//! are forgotten before the next step, which is as it would have been without them.

use std::time::Instant;

use super::{
    SampleError,
    constrained::{Constrained, Foresees},
    guidance::Left,
    penalties::Penalties,
    sampler::{Guessing, SequenceSampler},
    softmax::{Scale, max_logit},
};
use crate::TokenId;

impl SequenceSampler {
    /// The token that these logits give after what was sampled and guessed, and those that a structured output leaves no choice
    /// about after it; at most `most`, which is at least 1. None where the logits give none, or one that ends the sequence:
    /// nothing is to be guessed after it. The logits are used as scratch space and left as they were.
    ///
    /// What a structured output leaves is known where it is [foreseen](Self::foreseeing). Elsewhere anything is guessed.
    pub fn guess(&mut self, logits: &mut [f32], most: usize) -> Vec<TokenId> {
        let left = match &mut self.constrained {
            None => Left::Anything,
            Some(constrained) => match constrained.guess_left() {
                Some(left) => left,
                None => return Vec::new(),
            },
        };
        let Some(id) = self.guess_one(logits, left).filter(|id| self.take_guess(*id)) else { return Vec::new() };
        let mut guesses = vec![id];
        let forced = self.constrained.as_mut().map(|constrained| constrained.guessed(id, left)).unwrap_or_default();
        for id in forced.into_iter().take(most.saturating_sub(1)) {
            let Some(constrained) = &mut self.constrained else { break };
            if !constrained.guessed_forced(id) || !self.take_guess(id) {
                break;
            }
            guesses.push(id);
        }
        guesses
    }

    /// Takes for guessed what a structured output leaves no choice about, before anything else is guessed; `false` where nothing is
    /// to be guessed after it, or cannot be.
    pub fn guess_forced(&mut self, forced: &[TokenId]) -> bool {
        let Some(constrained) = &mut self.constrained else { return forced.is_empty() };
        let began = Instant::now();
        constrained.begin_guesses();
        let follows = forced.iter().all(|id| {
            let follows = self.constrained.as_mut().is_some_and(|constrained| constrained.guessed_forced(*id));
            follows && self.take_guess(*id)
        });
        if let Some(constrained) = &mut self.constrained {
            constrained.note_guessing(began);
        }
        follows
    }

    /// The token that these logits give of what is left.
    fn guess_one(&mut self, logits: &mut [f32], left: Left) -> Option<TokenId> {
        let raw_scale = Scale::new(max_logit(logits).ok()?, 1.0);
        self.scratch.raw.compute(logits, raw_scale).ok()?;
        let sampled = self.constrained.as_mut().map(|constrained| constrained.stand_in(left));
        self.edit(logits);
        let chosen = self.choose(logits, raw_scale);
        if let Some((constrained, sampled)) = self.constrained.as_mut().zip(sampled) {
            constrained.resume(sampled);
        }
        self.scratch.edits.undo(logits);
        chosen.ok().map(|(id, _)| id)
    }

    /// Takes note of a guess; `false` for one that ends the sequence.
    fn take_guess(&mut self, id: TokenId) -> bool {
        if self.params.finish_after(id, self.output.len() + 1).is_some() {
            if let Some(constrained) = &mut self.constrained {
                constrained.end_guesses();
            }
            return false;
        }
        self.guessing.get_or_insert(Guessing {
            sampled: self.output.len(),
            known: self.penalties.as_ref().map_or(0, Penalties::known),
        });
        self.output.push(id);
        if let Some(penalties) = &mut self.penalties {
            penalties.record(id);
        }
        true
    }

    /// A draft that somebody else made, as far as a structured output lets it come; where it refuses a token and leaves no
    /// choice, with what comes instead. It does not get longer. `None` where it stays as it is, or nothing is known of it.
    pub fn guided(&mut self, draft: &[TokenId]) -> Option<Vec<TokenId>> {
        self.constrained.as_mut()?.guided(draft)
    }

    /// Forgets all guesses.
    pub fn forget_guesses(&mut self) {
        if let Some(constrained) = &mut self.constrained {
            constrained.forget_guesses();
        }
        let Some(Guessing { sampled, known }) = self.guessing.take() else { return };
        if let Some(penalties) = &mut self.penalties {
            penalties.take_back(&self.output[sampled..], known);
        }
        self.output.truncate(sampled);
    }
}

impl Constrained {
    /// What is left for the token that is guessed next; `None` where nothing is guessed any more.
    pub(super) fn guess_left(&mut self) -> Option<Left> {
        let began = Instant::now();
        self.begin_guesses();
        let left = self.guidance.left();
        self.note_guessing(began);
        left
    }

    /// Has guesses begin where the output is, unless they have begun.
    pub(super) fn begin_guesses(&mut self) {
        self.guidance.begin(match &self.foresees {
            Foresees::Now(foresight) => Some(&**foresight),
            Foresees::Never | Foresees::FromTheFirst => None,
        });
    }

    /// Has a guess be drawn from what is [left](Self::guess_left) for it. The answer goes to [`resume`](Self::resume).
    pub(super) fn stand_in(&mut self, left: Left) -> Option<Result<Left, SampleError>> {
        self.guidance.swap_mask(&mut self.mask);
        self.ready.replace(Ok(left))
    }

    /// Goes back to what is left for the token that is sampled next.
    pub(super) fn resume(&mut self, ready: Option<Result<Left, SampleError>>) {
        self.guidance.swap_mask(&mut self.mask);
        self.ready = ready;
    }

    /// Takes note of a token that was guessed, and returns those that there is no choice about after it.
    pub(super) fn guessed(&mut self, id: TokenId, left: Left) -> Vec<TokenId> {
        let began = Instant::now();
        let forced = self.guidance.follow(id, left);
        self.note_guessing(began);
        forced
    }

    /// Takes note of one of these; `false` where nothing is guessed after it.
    pub(super) fn guessed_forced(&mut self, id: TokenId) -> bool {
        self.guidance.follow_forced(id)
    }

    /// Guesses nothing any more, until all guesses are forgotten.
    pub(super) fn end_guesses(&mut self) {
        self.guidance.end();
    }

    /// Forgets all guesses.
    pub(super) fn forget_guesses(&mut self) {
        self.guidance.forget();
    }

    /// A draft up to its first token that may not come, and what there is no choice about there; `None` where that is all of it,
    /// or is not known.
    pub(super) fn guided(&mut self, draft: &[TokenId]) -> Option<Vec<TokenId>> {
        let Foresees::Now(foresight) = &mut self.foresees else { return None };
        let began = Instant::now();
        let kept = foresight.accepts(draft).min(draft.len());
        let guided = (kept < draft.len()).then(|| {
            let mut guided = draft[..kept].to_vec();
            if let Some(mut ahead) = foresight.ahead()
                && guided.iter().all(|id| ahead.follow(*id))
            {
                guided.extend(ahead.forced().into_iter().take(draft.len() - kept));
            }
            guided
        });
        self.note_guessing(began);
        guided
    }

    /// Ends guesses that take so long to follow that nobody should wait for them, and gives them up where they do so again.
    fn note_guessing(&mut self, began: Instant) {
        if began.elapsed() <= self.constraint.long() {
            return;
        }
        if self.guidance.end_slowly() {
            self.foresees = Foresees::Never;
        }
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
                    found.extend(guessing.guess(&mut scratch, 1));
                    assert_eq!(scratch, logits(position + ahead), "the logits are left as they were");
                }
                // Also guesses that come to nothing.
                guessing.guess(&mut [f32::NEG_INFINITY; 50], 1);
                guessing.forget_guesses();
                let mut rest = new();
                let expected: Vec<_> =
                    (0..position + 4).map(|at| rest.step(&mut logits(at)).unwrap().token.id).collect();
                assert_eq!(found, expected[position..], "{params:?}");
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
        for mut nothing in [vec![0.0, 1.0], vec![f32::NAN, 1.0], Vec::new()] {
            assert!(sampler.guess(&mut nothing, 1).is_empty(), "{nothing:?}");
        }
        let found: Vec<_> = (0..3).map(|_| sampler.guess(&mut [1.0, 0.0], 1)).collect();
        assert_eq!(found, [vec![0], vec![0], vec![]], "the third is the last");
        assert_eq!(sampler.output, [0, 0]);
        sampler.forget_guesses();
        assert!(sampler.output.is_empty());
    }
}
