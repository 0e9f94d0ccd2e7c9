//! The scores of a prompt, from its first position to the last.

use std::sync::Arc;

use crate::{
    TokenId,
    engine::{Candidates, PromptOutput, native::jobs::Job},
    sampling::Score,
};

/// What is wanted of a prompt, and what there is of it.
pub(super) struct Scoring {
    /// Alternatives of each token, where the tokens are asked for.
    top: Option<usize>,
    candidates: Option<Arc<Candidates>>,
    cached_tokens: usize,
    /// The position of the first score.
    first: usize,
    /// One for each position that is scored, as far as they are computed.
    scores: Vec<Option<Score>>,
}

impl Scoring {
    /// `None` where nothing is wanted, and in a prompt of one token, of which there is nothing to score.
    pub(super) fn new(prompt_len: usize, top: Option<usize>, candidates: Option<Arc<Candidates>>) -> Option<Self> {
        let first = match (&top, &candidates) {
            (Some(_), _) => 0,
            (None, Some(candidates)) => candidates.first(),
            (None, None) => return None,
        };
        let positions = prompt_len.checked_sub(first + 1).filter(|positions| *positions > 0)?;
        Some(Self { top, candidates, cached_tokens: 0, first, scores: vec![None; positions] })
    }

    /// Takes note of how many tokens of the prompt were cached.
    pub(super) fn note_cached_tokens(&mut self, cached_tokens: usize) {
        self.cached_tokens = cached_tokens;
    }

    /// The position of the first score.
    pub(super) fn first(&self) -> usize {
        self.first
    }

    /// What is to be made of the logits of a position, after which `token` follows.
    pub(super) fn job(&self, position: usize, token: TokenId) -> Job<'_> {
        let candidates = self.candidates.as_ref().map_or(&[][..], |candidates| candidates.at(position));
        Job::Score { token: self.top.map(|top| (token, top)), candidates }
    }

    /// Takes the score of a position; that of the weights before counts no more, where they were replaced meanwhile.
    pub(super) fn take(&mut self, position: usize, score: Score) {
        if let Some(place) = self.scores.get_mut(position - self.first) {
            *place = Some(score);
        }
    }

    /// What was asked for, all of it computed with the weights that sample the first token.
    pub(super) fn finish(&mut self) -> PromptOutput {
        let mut output = PromptOutput { cached_tokens: self.cached_tokens, ..PromptOutput::default() };
        for score in std::mem::take(&mut self.scores) {
            let score = score.expect("the prompt is computed before a token is sampled");
            output.logprobs.extend(score.token);
            output.candidates.extend(score.candidates);
        }
        output
    }
}
