//! Log-probs of prompts and of what was sampled, in SGLang's lists.

use super::plan::{Alternatives, SglangPlan, ShownLogprobs};
use crate::{
    TokenId,
    engine::{PromptOutput, SampledToken},
    generation::{Completion, Finish},
    sampling::TopLogprob,
    tokenizer::Tokenizer,
    wire::{
        answer::output::TokenSpelling,
        error::ApiError,
        sglang::generate::{SglangAlternatives, SglangLogprob, SglangLogprobs},
    },
};

/// Makes the lists of one continuation.
pub(super) struct LogprobLists<'a> {
    pub(super) plan: &'a SglangPlan,
    pub(super) prompt: &'a [TokenId],
    pub(super) completion: &'a Completion,
    pub(super) tokenizer: &'a Tokenizer,
    /// Whether tokens have their texts.
    pub(super) shows_texts: bool,
}

/// What there is of a prompt, in the order of its tokens.
#[derive(Default)]
struct OfPrompt {
    tokens: Vec<SglangLogprob>,
    alternatives: SglangAlternatives,
}

impl LogprobLists<'_> {
    pub(super) fn lists(&self, shown: ShownLogprobs) -> Result<SglangLogprobs, ApiError> {
        let of_prompt = match shown.from {
            Some(from) => self.of_prompt(from, shown.alternatives)?,
            None => OfPrompt::default(),
        };
        let tokens = &self.completion.tokens;
        let sampled: &[SampledToken] = if self.plan.scores_only { &[] } else { tokens };
        let sampled = sampled.iter().map(|token| self.entry(token.id, Some(token.logprob)));
        let sampled = sampled.collect::<Result<Vec<_>, _>>()?;
        let alternatives =
            tokens.iter().map(|token| self.alternatives(token, shown.alternatives)).collect::<Result<_, _>>()?;
        let lists = SglangLogprobs {
            input_token_logprobs: of_prompt.tokens,
            output_token_logprobs_length: sampled.len(),
            output_token_logprobs: sampled,
            input_top_logprobs: None,
            output_top_logprobs: None,
            input_token_ids_logprobs: None,
            output_token_ids_logprobs: None,
        };
        let (input, output) = (Some(of_prompt.alternatives), Some(alternatives));
        Ok(match shown.alternatives {
            Alternatives::Nothing => lists,
            Alternatives::Top => SglangLogprobs { input_top_logprobs: input, output_top_logprobs: output, ..lists },
            Alternatives::OfIds => {
                SglangLogprobs { input_token_ids_logprobs: input, output_token_ids_logprobs: output, ..lists }
            }
        })
    }

    /// The tokens of the prompt from a position on. The first of them has no log-prob, wherever it stands, as in SGLang.
    fn of_prompt(&self, from: usize, shown: Alternatives) -> Result<OfPrompt, ApiError> {
        let Some(scores) = self.scores()? else { return Ok(OfPrompt::default()) };
        let Some(&first) = self.prompt.get(from) else { return Ok(OfPrompt::default()) };
        // The engine has no score for the first token of all.
        let following = scores.logprobs.get(from..).unwrap_or_default();
        let mut of_prompt = OfPrompt { tokens: vec![self.entry(first, None)?], alternatives: vec![None] };
        for (index, token) in following.iter().enumerate() {
            of_prompt.tokens.push(self.entry(token.id, Some(token.logprob))?);
            of_prompt.alternatives.push(match shown {
                Alternatives::OfIds => Some(self.candidates(&scores.candidates, index)?),
                Alternatives::Nothing | Alternatives::Top => self.alternatives(token, shown)?,
            });
        }
        Ok(of_prompt)
    }

    /// What the engine said of the prompt; `None` where it was stopped before that.
    fn scores(&self) -> Result<Option<&PromptOutput>, ApiError> {
        let scores = self.completion.prompt.as_ref();
        if scores.map_or(0, |scores| scores.logprobs.len()) + 1 == self.prompt.len() {
            return Ok(scores);
        }
        match self.completion.finish {
            Some(Finish::Abort) if self.completion.tokens.is_empty() => Ok(None),
            _ => Err(ApiError::internal("the engine left out log-probs of the prompt")),
        }
    }

    /// The log-probs of the tokens that the request names, at one position of the prompt.
    fn candidates(&self, scores: &[f32], index: usize) -> Result<Vec<SglangLogprob>, ApiError> {
        let named = &self.plan.named;
        let scores = scores.get(index * named.len()..).unwrap_or_default();
        if scores.len() < named.len() {
            return Err(ApiError::internal("the engine left out log-probs of tokens that were asked for"));
        }
        named.iter().zip(scores).map(|(&id, &logprob)| self.entry(id, Some(logprob))).collect()
    }

    /// What is shown beside a token that has been described.
    fn alternatives(&self, token: &SampledToken, shown: Alternatives) -> Result<Option<Vec<SglangLogprob>>, ApiError> {
        let entry = |&TopLogprob { id, logprob, .. }: &TopLogprob| self.entry(id, Some(logprob));
        let of_named = |id: &TokenId| {
            let found = token.top_logprobs.iter().find(|other| other.id == *id);
            found.map_or_else(|| Err(ApiError::internal("the engine left out a token that was asked for")), entry)
        };
        match shown {
            Alternatives::Nothing => Ok(None),
            Alternatives::Top => token.top_logprobs.iter().map(entry).collect::<Result<_, _>>().map(Some),
            // However often a token is named, the engine describes it once.
            Alternatives::OfIds => self.plan.named.iter().map(of_named).collect::<Result<_, _>>().map(Some),
        }
    }

    fn entry(&self, id: TokenId, logprob: Option<f32>) -> Result<SglangLogprob, ApiError> {
        let spelling = TokenSpelling { tokenizer: self.tokenizer, as_ids: false };
        Ok(SglangLogprob(logprob, id, self.shows_texts.then(|| spelling.text(id)).transpose()?))
    }
}
