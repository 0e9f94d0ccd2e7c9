//! How the sampling fields that endpoints share become the sampling of a turn.
//!
//! Names, defaults and limits are vLLM 0.32's (`entrypoints/openai/chat_completion/protocol.py`, `sampling_params.py`).

mod checks;
mod numbers;

use std::sync::Arc;

pub(crate) use numbers::SettledNumbers;

use super::truncation::TruncationFields;
use crate::{
    TokenId,
    generation::TextOptions,
    json::{Path, string_repr},
    parser::OutputFormat,
    sampling::{Logprobs, SamplingParams},
    turn::{Sampling, SamplingPolicy, Truncation, Vocabulary},
    wire::{
        error::ApiError,
        fields::{
            cache_salt::cache_salt,
            sampling::{SamplingFields, Stop, rules},
            thinking_budget::thinking_budget,
            untyped::not_positive,
        },
    },
};
use checks::{bad_words, checked_max_tokens, token_ids, within_limit};

impl SamplingFields {
    /// Checks the fields and fills in defaults. Each endpoint spells `max_tokens` and `logprobs` in its own way.
    pub(crate) fn resolve(
        &self,
        max_tokens: Option<i64>,
        logprobs: Option<Logprobs>,
        policy: &SamplingPolicy,
        Vocabulary { tokenizer, size: vocab_size }: Vocabulary<'_>,
    ) -> Result<Sampling, ApiError> {
        self.refused.check()?;
        let max_tokens = checked_max_tokens(max_tokens, policy)?;
        let params = SamplingParams {
            eos_token_id: policy.eos_token_id,
            extra_eos_token_ids: policy.extra_eos_token_ids.clone(),
            stop_token_ids: token_ids("stop_token_ids", self.stop_token_ids.as_deref(), vocab_size)?,
            logit_bias: self.logit_bias(vocab_size)?,
            allowed_token_ids: match &self.allowed_token_ids {
                Some(ids) => Some(token_ids("allowed_token_ids", Some(ids), vocab_size)?),
                None => None,
            },
            bad_words: bad_words(self.bad_words.as_deref().unwrap_or_default(), tokenizer)?,
            logprobs: self.logprobs(logprobs, policy, vocab_size)?,
            max_tokens: max_tokens.unwrap_or(usize::MAX),
            sampling_mask: self.return_sampling_mask.unwrap_or(false).then_some(policy.sampling_mask.most),
            repetition_detection: self.repetition_detection.unwrap_or_default().resolve()?,
            ..self.numbers(policy)?
        };
        let params = params.validated(vocab_size)?;
        let n = self.n(params.is_greedy(), policy.max_n)?;
        let mut sampling = Sampling::new(params, policy);
        if let Some(constraint) = self.structured.resolve()? {
            sampling.demand(constraint);
        }
        sampling.n = n;
        sampling.max_tokens = max_tokens;
        sampling.text = Arc::new(self.text(policy)?);
        sampling.prompt_logprobs = self.prompt_logprobs(policy, vocab_size)?;
        sampling.tokens_as_ids = self.return_tokens_as_token_ids.unwrap_or(policy.return_tokens_as_token_ids);
        sampling.return_token_ids = self.return_token_ids.unwrap_or(false);
        sampling.return_weight_versions = self.return_weight_versions.unwrap_or(false);
        sampling.thinking_budget = thinking_budget(self.thinking_token_budget.as_ref())?;
        sampling.cache_salt = cache_salt(self.cache_salt.as_ref())?;
        sampling.routes.start = self.routed_experts_prompt_start.unwrap_or(0);
        Ok(sampling)
    }

    /// Refuses a sampling mask on an endpoint whose answers have no place for one.
    pub(crate) fn refuse_sampling_mask(&self) -> Result<(), ApiError> {
        match self.return_sampling_mask {
            Some(true) => Err(ApiError::invalid(
                "return_sampling_mask",
                "`return_sampling_mask` has no place in the answers of this endpoint; ask /v1/chat/completions, \
                 /v1/completions or /inference/v1/generate",
            )),
            _ => Ok(()),
        }
    }

    /// Returns the plain numbers, with the model's defaults filled in.
    fn numbers(&self, policy: &SamplingPolicy) -> Result<SamplingParams, ApiError> {
        let numbers = SettledNumbers::new(self, &policy.defaults).params()?;
        let min_tokens = self.min_tokens.unwrap_or(0);
        let min_tokens = usize::try_from(min_tokens).map_err(|_| {
            let message = format!("min_tokens must be greater than or equal to 0, got {min_tokens}.");
            ApiError::invalid_request(message)
        })?;
        Ok(SamplingParams {
            seed: self.seed.filter(|&seed| seed != -1).map(i64::cast_unsigned),
            min_tokens,
            ignore_eos: self.ignore_eos.unwrap_or(false),
            logprobs_mode: policy.logprobs_mode,
            ..numbers
        })
    }

    fn n(&self, greedy: bool, most: usize) -> Result<usize, ApiError> {
        let n = self.n.unwrap_or(1);
        let Ok(count @ 1..) = usize::try_from(n) else {
            return Err(ApiError::invalid_request(format!("n must be at least 1, got {n}.")));
        };
        if count > most {
            return Err(ApiError::invalid_request(format!(
                "n must be at most {most}, got {n}. To increase this limit, start the server with a larger \
                 --max-request-sequences."
            )));
        }
        if count > 1 && greedy {
            return Err(ApiError::invalid_request(format!("n must be 1 when using greedy sampling, got {n}.")));
        }
        Ok(count)
    }

    fn text(&self, policy: &SamplingPolicy) -> Result<TextOptions, ApiError> {
        let stop = match &self.stop {
            None => Vec::new(),
            Some(Stop::One(stop)) => vec![stop.clone()],
            Some(Stop::Many(stops)) => stops.clone(),
        };
        // How many there may be differs between dialects, whose rules say so.
        if stop.iter().any(String::is_empty) {
            return Err(ApiError::invalid_request("stop cannot contain an empty string."));
        }
        Ok(TextOptions {
            stop,
            include_stop_str_in_output: self.include_stop_str_in_output.unwrap_or(false),
            skip_special_tokens: self.skip_special_tokens.or(policy.defaults.skip_special_tokens).unwrap_or(true),
            spaces_between_special_tokens: self.spaces_between_special_tokens.unwrap_or(true),
            format: OutputFormat::default(),
            unread: OutputFormat::default(),
            unseen: false,
        })
    }

    /// Returns how prompts are cut, in a context of `max_model_len` tokens of which the request wants `max_tokens` for
    /// output.
    pub(crate) fn truncation(
        &self,
        max_model_len: usize,
        max_tokens: Option<i64>,
    ) -> Result<Option<Truncation>, ApiError> {
        let Self { truncate_prompt_tokens, truncation_side, .. } = *self;
        TruncationFields { truncate_prompt_tokens, truncation_side }.resolve(max_model_len, max_tokens)
    }

    /// Returns the number of tokens in a chunk in the middle of a stream, on a server that sends at least `least`.
    pub(crate) fn stream_interval(&self, least: usize) -> Result<usize, ApiError> {
        let asked = self.stream_interval.unwrap_or(1);
        let Ok(asked @ 1..) = usize::try_from(asked) else {
            let message = "1 validation error:\n  body.stream_interval: Input should be greater than or equal to 1";
            return Err(ApiError::malformed(Some(Path::from("body").then("stream_interval")), message));
        };
        Ok(asked.max(least))
    }

    fn logit_bias(&self, vocab_size: usize) -> Result<Vec<(TokenId, f32)>, ApiError> {
        let mut biases = Vec::new();
        let keys = self.logit_bias.iter().flatten().map(|(key, _)| key);
        let unusable: Vec<_> = keys.filter(|key| key.parse::<i64>().is_err()).map(|key| string_repr(key)).collect();
        if !unusable.is_empty() {
            let keys = format!("[{}]", unusable.join(", "));
            let message = format!("logit_bias contains key(s) that cannot be converted to integer token IDs: {keys}");
            return Err(ApiError::refused("logit_bias", message, Some(keys)));
        }
        for (key, &bias) in self.logit_bias.iter().flatten() {
            let id = key.parse().expect("every key was seen to be an integer");
            let id = token_ids("logit_bias", Some(&[id]), vocab_size)?[0];
            #[expect(clippy::cast_possible_truncation, reason = "logits are f32")]
            biases.push((id, bias as f32));
        }
        Ok(biases)
    }

    fn logprobs(
        &self,
        asked: Option<Logprobs>,
        policy: &SamplingPolicy,
        vocab_size: usize,
    ) -> Result<Option<Logprobs>, ApiError> {
        let ids = self.logprob_token_ids.as_ref().filter(|ids| !ids.is_empty());
        if let (Some(ids), Some(_)) = (ids, &asked) {
            return Ok(Some(Logprobs::Ids(token_ids("logprob_token_ids", Some(ids), vocab_size)?)));
        }
        if ids.is_some() {
            return Err(ApiError::refused("logprob_token_ids", rules::NO_LOGPROBS, None));
        }
        if let Some(asked) = &asked {
            within_limit("logprobs", asked, policy.max_logprobs, vocab_size)?;
        }
        Ok(asked)
    }

    fn prompt_logprobs(&self, policy: &SamplingPolicy, vocab_size: usize) -> Result<Option<usize>, ApiError> {
        match self.prompt_logprobs {
            None => Ok(None),
            Some(-1) => {
                within_limit("prompt_logprobs", &Logprobs::All, policy.max_logprobs, vocab_size)?;
                Ok(Some(vocab_size))
            }
            Some(asked) => {
                let top = usize::try_from(asked)
                    .map_err(|_| ApiError::invalid("prompt_logprobs", not_positive("prompt_logprobs")))?;
                within_limit("prompt_logprobs", &Logprobs::Top(top), policy.max_logprobs, vocab_size)?;
                Ok(Some(top))
            }
        }
    }
}

/// Asks for log-probs of the prompt too, because the answer repeats it. There are as many alternatives as for sampled
/// tokens, unless the request sets their number.
pub(crate) fn report_prompt(
    sampling: &mut Sampling,
    logprobs: Option<&Logprobs>,
    policy: &SamplingPolicy,
    vocab_size: usize,
) -> Result<(), ApiError> {
    let (None, Some(logprobs)) = (sampling.prompt_logprobs, logprobs) else { return Ok(()) };
    within_limit("logprobs", logprobs, policy.max_logprobs, vocab_size)?;
    sampling.prompt_logprobs = Some(match logprobs {
        Logprobs::Top(top) => *top,
        Logprobs::All => vocab_size,
        Logprobs::Ids(_) => 0,
    });
    Ok(())
}
