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
        let vocabulary = self.vocab_size();
        let many = |alternatives: usize| Some(alternatives.min(vocabulary)).filter(|count| *count > FEW).unwrap_or(0);
        let candidates = sampling.candidates.as_ref().map_or(0, |candidates| candidates.width());
        let of_prompt = many(sampling.prompt_logprobs.unwrap_or(0)).max(many(candidates));
        let of_token = many(sampling.alternatives());
        if of_token == 0 && of_prompt == 0 {
            return Ok(());
        }
        let all = prompts.into_iter().fold(0_usize, |all, prompt| {
            let tokens = sampling.most_tokens(self.max_model_len.saturating_sub(prompt)).saturating_mul(sampling.n);
            let sampled = tokens.saturating_mul(of_token);
            all.saturating_add(sampled).saturating_add(prompt.saturating_mul(of_prompt))
        });
        if all <= MOST {
            return Ok(());
        }
        Err(TurnError::AnswerTooLarge { log_probs: all, most: MOST, few: FEW, of_output: of_token > 0 })
    }
}
