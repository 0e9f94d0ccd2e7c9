//! How large an answer in one piece may become.
//!
//! A stream goes out as it is sampled. An answer in JSON, and all that a stored response says, is kept until its end: a
//! request that asks for many alternatives for each token could fill the memory of the server with one answer.

use super::{Sampling, TurnError, Turns};

/// This many alternatives for each token are never too many; it is vLLM's own limit.
const FEW: usize = 20;
/// An answer with more alternatives than that may have at most this many log-probs; as JSON they are some 2 GB.
const MOST: usize = 1 << 25;

impl Turns {
    /// Refuses a request whose answer, in one piece, could have too many log-probs; `prompts` are the lengths of its
    /// prompts.
    pub fn check_answer_size(
        &self,
        sampling: &Sampling,
        prompts: impl IntoIterator<Item = usize>,
    ) -> Result<(), TurnError> {
        self.check_answer_sizes(prompts.into_iter().map(|prompt| (sampling, prompt)))
    }

    /// Does the same where each prompt has a sampling of its own.
    pub fn check_answer_sizes<'a>(
        &self,
        prompts: impl IntoIterator<Item = (&'a Sampling, usize)>,
    ) -> Result<(), TurnError> {
        let vocabulary = self.vocab_size();
        let many = |alternatives: usize| Some(alternatives.min(vocabulary)).filter(|count| *count > FEW).unwrap_or(0);
        let (mut all, mut of_output) = (0_usize, false);
        for (sampling, prompt) in prompts {
            let candidates = sampling.candidates.as_ref().map_or(0, |candidates| candidates.width());
            let of_prompt = many(sampling.prompt_logprobs.unwrap_or(0)).max(many(candidates));
            let of_token = many(sampling.alternatives());
            let tokens = sampling.most_tokens(self.max_model_len.saturating_sub(prompt)).saturating_mul(sampling.n);
            let sampled = tokens.saturating_mul(of_token);
            all = all.saturating_add(sampled).saturating_add(prompt.saturating_mul(of_prompt));
            of_output |= of_token > 0;
        }
        if all <= MOST {
            return Ok(());
        }
        Err(TurnError::AnswerTooLarge { log_probs: all, most: MOST, few: FEW, of_output })
    }
}
