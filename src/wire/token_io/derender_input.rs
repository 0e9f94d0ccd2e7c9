//! The answers of `/inference/v1/generate`, as they are sent back to be put into text.

use std::sync::Arc;

use serde::Deserialize;
use utoipa::ToSchema;

use crate::{
    TokenId,
    engine::SampledToken,
    generation::Finish,
    sampling::TopLogprob,
    wire::{
        answer::{
            output::{PromptLogprobs, StopReason, spelt_id},
            sampling_mask::SamplingMask,
            weight_versions::{PromptWeightVersion, WeightVersionSpan},
        },
        error::ApiError,
    },
};

/// A number of tokens that a client sends. No prompt and no answer has more than this type holds, and sums of such
/// numbers never wrap.
pub(crate) type TokenCount = u32;

/// An answer of `/inference/v1/generate`, with `output_mode` `tokens`.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = GivenResponse)]
pub(crate) struct ResponseToDerender {
    /// Becomes the answer's id; a random one where it is absent.
    #[serde(default = "random_id")]
    #[schema(required = false)]
    pub request_id: String,
    /// Its choices.
    pub choices: Vec<ChoiceToDerender>,
    /// Only `tokens`: another answer has its text already.
    #[serde(default, rename = "output_mode")]
    _output_mode: OutputModeToDerender,
    /// The prompt, where it was asked for.
    pub prompt_token_ids: Option<Vec<TokenId>>,
    /// Passed on as it is.
    #[schema(value_type = Option<Vec<Option<Object>>>)]
    pub prompt_logprobs: Option<PromptLogprobs>,
    /// Passed on as it is.
    pub prompt_weight_version: Option<PromptWeightVersion>,
    /// What was used; its `prompt_tokens` are taken where the prompt and its length are not given.
    pub usage: Option<UsageToDerender>,
}

/// An event of a stream of `/inference/v1/generate`, with `output_mode` `tokens`.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = GivenChunk)]
pub(crate) struct ChunkToDerender {
    /// Becomes the chunk's id; a random one where it is absent.
    #[serde(default = "random_id")]
    #[schema(required = false)]
    pub request_id: String,
    /// At most one.
    pub choices: Vec<ChoiceToDerender>,
    /// Only `tokens`.
    #[serde(default, rename = "output_mode")]
    _output_mode: OutputModeToDerender,
    /// The prompt, in the first event, where it was asked for.
    pub prompt_token_ids: Option<Vec<TokenId>>,
    /// What was used so far.
    pub usage: Option<UsageToDerender>,
}

fn random_id() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

/// Tokens that were used.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[schema(as = GivenUsage)]
pub(crate) struct UsageToDerender {
    pub prompt_tokens: Option<TokenCount>,
    pub completion_tokens: Option<TokenCount>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = GivenMode)]
enum OutputModeToDerender {
    #[default]
    Tokens,
}

/// One of the choices, or what one event adds to it.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = GivenChoice)]
pub(crate) struct ChoiceToDerender {
    pub index: usize,
    /// `stop`, `length`, `abort` or `repetition`; null for a choice that goes on, in an event.
    pub finish_reason: Option<String>,
    /// With `stop`, the stop string, or the stop token, which may be left out of the ids.
    pub stop_reason: Option<StopReason>,
    pub token_ids: Option<Vec<TokenId>>,
    pub logprobs: Option<LogprobsToDerender>,
    /// Passed on where the request asks for it.
    pub weight_versions: Option<Vec<WeightVersionSpan>>,
    /// Passed on: for each token the ids that it was drawn from.
    #[schema(value_type = Option<Vec<Vec<TokenId>>>)]
    pub sampling_mask: Option<SamplingMask>,
    /// Passed on as it is.
    pub routed_experts: Option<String>,
}

/// The log-probs of a choice.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = GivenLogprobs)]
pub(crate) struct LogprobsToDerender {
    content: Option<Vec<TokenToDerender>>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = GivenToken)]
struct TokenToDerender {
    /// `token_id:N`, if it is there.
    token: Option<String>,
    token_id: TokenId,
    logprob: f32,
    rank: Option<u32>,
    #[serde(default)]
    top_logprobs: Vec<TopLogprobToDerender>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = GivenTop)]
struct TopLogprobToDerender {
    token_id: TokenId,
    logprob: f32,
    rank: Option<u32>,
}

/// The limits of the server that gave the answers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Tokens of a prompt and its answer.
    pub max_model_len: usize,
    /// Alternatives of a token; `None` is the whole vocabulary.
    pub max_logprobs: Option<usize>,
    /// Sequences of a prompt.
    pub sequences: usize,
}

/// Bytes of the longest id that an answer of this server has, with room to spare.
const MOST_OF_AN_ANSWER_ID: usize = 1024;

/// Refuses an id that no answer of this server has.
fn check_id(id: &str) -> Result<(), ApiError> {
    if id.len() > MOST_OF_AN_ANSWER_ID {
        return Err(ApiError::invalid(
            "request_id",
            format!("`request_id` is longer than {MOST_OF_AN_ANSWER_ID} bytes"),
        ));
    }
    Ok(())
}

impl ChunkToDerender {
    /// Refuses values that no answer of this server has.
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        check_id(&self.request_id)
    }
}

impl ResponseToDerender {
    /// Refuses values that no answer of this server has.
    pub(crate) fn check(&self, limits: Limits) -> Result<(), ApiError> {
        check_id(&self.request_id)?;
        let count = self.choices.len();
        if count > limits.sequences {
            let (id, most) = (&self.request_id, limits.sequences);
            let message = format!("choices count ({count}) in response '{id}' exceeds server maximum ({most}).");
            return Err(ApiError::invalid_request(message));
        }
        let length = self.prompt_logprobs.as_ref().map_or(0, Vec::len);
        if length > limits.max_model_len {
            let (id, limit) = (&self.request_id, limits.max_model_len);
            let message =
                format!("prompt_logprobs length ({length}) in response '{id}' exceeds max_model_len ({limit}).");
            return Err(ApiError::invalid_request(message));
        }
        self.choices.iter().try_for_each(|choice| choice.check(limits))
    }
}

impl ChoiceToDerender {
    fn check(&self, limits: Limits) -> Result<(), ApiError> {
        let (index, limit) = (self.index, limits.max_model_len);
        let lengths = [
            ("token_ids", self.token_ids.as_ref().map_or(0, Vec::len)),
            ("logprobs.content", self.scores().map_or(0, <[_]>::len)),
        ];
        if let Some((name, length)) = lengths.into_iter().find(|(_, length)| *length > limit) {
            let message = format!("{name} length ({length}) in choice {index} exceeds max_model_len ({limit}).");
            return Err(ApiError::invalid_request(message));
        }
        let most = self.scores().unwrap_or_default().iter().map(|token| token.top_logprobs.len()).max().unwrap_or(0);
        match limits.max_logprobs {
            // The sampled token is always among the alternatives, even if fewer are allowed.
            Some(limit) if most > limit.max(1) => {
                let message = format!("top_logprobs count ({most}) in choice {index} exceeds max_logprobs ({limit}).");
                Err(ApiError::invalid_request(message))
            }
            _ => Ok(()),
        }
    }

    fn scores(&self) -> Option<&[TokenToDerender]> {
        self.logprobs.as_ref()?.content.as_deref()
    }

    /// Whether log-probs came with the tokens.
    pub(crate) fn has_logprobs(&self) -> bool {
        self.scores().is_some()
    }

    /// Returns the tokens with their sampling masks, where these came; log-probs are 0 where none came.
    pub(crate) fn tokens(&self, vocab_size: usize) -> Result<Vec<SampledToken>, ApiError> {
        let mut tokens = self.scored_tokens(vocab_size)?;
        let Some(rows) = &self.sampling_mask else { return Ok(tokens) };
        let is_row = |(row, token): (&Arc<[TokenId]>, &SampledToken)| {
            row.contains(&token.id) && row.iter().all(|&id| (id as usize) < vocab_size)
        };
        if rows.len() != tokens.len() || !rows.iter().zip(&tokens).all(is_row) {
            let message = format!("the sampling_mask of choice {} is not that of its token_ids", self.index);
            return Err(ApiError::invalid_request(message));
        }
        for (token, row) in tokens.iter_mut().zip(rows) {
            token.sampling_mask = Some(Arc::clone(row));
        }
        Ok(tokens)
    }

    fn scored_tokens(&self, vocab_size: usize) -> Result<Vec<SampledToken>, ApiError> {
        let ids = self.token_ids.as_deref().unwrap_or_default();
        if let Some(id) = ids.iter().find(|&&id| id as usize >= vocab_size) {
            return Err(ApiError::invalid_request(format!("Token id {id} is out of vocabulary")));
        }
        let Some(scores) = self.scores() else {
            let bare = |&id: &TokenId| SampledToken {
                id,
                logprob: 0.0,
                rank: 0,
                top_logprobs: Vec::new(),
                sampling_mask: None,
            };
            return Ok(ids.iter().map(bare).collect());
        };
        let is_named =
            |score: &TokenToDerender| score.token.as_ref().is_none_or(|name| *name == spelt_id(score.token_id));
        if !scores.iter().map(|score| score.token_id).eq(ids.iter().copied()) || !scores.iter().all(is_named) {
            let index = self.index;
            let message = format!("the log-probs of choice {index} are not those of its token_ids");
            return Err(ApiError::invalid_request(message));
        }
        scores.iter().map(|score| score.token(vocab_size)).collect()
    }

    /// Returns how the choice ended; `None` if it goes on.
    pub(crate) fn finish(&self) -> Result<Option<Finish>, ApiError> {
        let Some(reason) = &self.finish_reason else { return Ok(None) };
        Ok(Some(match (reason.as_str(), &self.stop_reason) {
            ("stop", None) => Finish::Eos,
            ("stop", Some(StopReason::Token(id))) => Finish::StopToken(*id),
            ("stop", Some(StopReason::Text(text))) => Finish::StopString(text.clone()),
            ("length", None) => Finish::Length,
            ("abort", _) => Finish::Abort,
            ("repetition", _) => Finish::Repetition,
            _ => {
                let (index, by) = (self.index, self.stop_reason.as_ref().map_or("", |_| ", beside a stop_reason"));
                let message = format!("choice {index} has a finish_reason that no answer here has: {reason}{by}");
                return Err(ApiError::invalid_request(message));
            }
        }))
    }
}

impl TokenToDerender {
    fn token(&self, vocab_size: usize) -> Result<SampledToken, ApiError> {
        if let Some(top) = self.top_logprobs.iter().find(|top| top.token_id as usize >= vocab_size) {
            return Err(ApiError::invalid_request(format!("Token id {} is out of vocabulary", top.token_id)));
        }
        let top = |top: &TopLogprobToDerender| TopLogprob {
            id: top.token_id,
            logprob: top.logprob,
            rank: top.rank.unwrap_or(0),
        };
        Ok(SampledToken {
            id: self.token_id,
            logprob: self.logprob,
            rank: self.rank.unwrap_or(0),
            top_logprobs: self.top_logprobs.iter().map(top).collect(),
            sampling_mask: None,
        })
    }
}
