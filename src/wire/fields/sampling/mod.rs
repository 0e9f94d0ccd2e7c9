//! The sampling fields that chat and text completions share.
//!
//! Names, defaults and limits are vLLM 0.32's (`entrypoints/openai/chat_completion/protocol.py`, `sampling_params.py`).

pub(crate) mod field;
pub(crate) mod rules;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{repetition::RepetitionFields, structured::StructuredFields, unserved::refuse_unserved};
use crate::{TokenId, asked_for::is_on, wire::error::ApiError};

/// One string or several.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
pub enum Stop {
    /// One string.
    One(String),
    /// Several strings: at most four, 32 on SGLang's `/generate`, any number on `/inference/v1/generate`.
    Many(Vec<String>),
}

/// How to sample; `null` is the same as absent, and absent means the model's own default.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub struct SamplingFields {
    /// 0 is greedy, at most 2.
    pub temperature: Option<f64>,
    /// In (0, 1].
    pub top_p: Option<f64>,
    /// 0 or -1 is off.
    pub top_k: Option<i64>,
    /// In [0, 1].
    pub min_p: Option<f64>,
    /// In [-2, 2], over output tokens.
    pub presence_penalty: Option<f64>,
    /// In [-2, 2], over output tokens.
    pub frequency_penalty: Option<f64>,
    /// Over 0, over prompt and output tokens.
    pub repetition_penalty: Option<f64>,
    /// Token id (as a string) to what is added to its logit, within ±100.
    #[schema(value_type = Option<std::collections::HashMap<String, f64>>)]
    pub logit_bias: Option<BTreeMap<String, f64>>,
    /// Only these tokens may be sampled.
    pub allowed_token_ids: Option<Vec<i64>>,
    /// Texts that may not be written.
    pub bad_words: Option<Vec<String>>,
    /// The same seed gives the same ids; -1 is the same as none.
    pub seed: Option<i64>,
    /// Sequences to generate.
    pub n: Option<i64>,
    /// Texts that end the generation; they are left out of the answer's text.
    pub stop: Option<Stop>,
    /// Tokens that end the generation.
    pub stop_token_ids: Option<Vec<i64>>,
    /// Leave the stop string in the text.
    pub include_stop_str_in_output: Option<bool>,
    /// Go on after the end-of-sequence token.
    pub ignore_eos: Option<bool>,
    /// Sample at least this many tokens before one ends the generation.
    pub min_tokens: Option<i64>,
    /// Leave special tokens out of the text (by default as the model says, else true).
    pub skip_special_tokens: Option<bool>,
    /// False joins special tokens that follow each other directly, where they are in the text (default true).
    pub spaces_between_special_tokens: Option<bool>,
    /// Report the log-probs of exactly these tokens instead of the most probable ones.
    pub logprob_token_ids: Option<Vec<i64>>,
    /// Report log-probs of the prompt with this many alternatives; -1 is the whole vocabulary.
    pub prompt_logprobs: Option<i64>,
    /// Log-prob `token` strings become `token_id:N`; the server's `--return-tokens-as-token-ids` is the default.
    pub return_tokens_as_token_ids: Option<bool>,
    /// Report prompt and sampled token ids.
    pub return_token_ids: Option<bool>,
    /// Report with each sampled token the ids that it was drawn from, at most `--sampling-mask-max-tokens` of them; the
    /// server's `--return-sampling-mask` is the default on `/inference/v1/generate`, and false elsewhere.
    pub return_sampling_mask: Option<bool>,
    /// Report which weights sampled which tokens, at the end of each answer. `/inference/v1/generate` always does.
    pub return_weight_versions: Option<bool>,
    /// Leave the experts of so many tokens of the prompt out of `routed_experts` (`--enable-return-routed-experts`).
    pub routed_experts_prompt_start: Option<i64>,
    /// Share cached prefixes only with requests of the same salt: 1 to 128 characters without `@`, `/`, `\` and NUL.
    #[schema(value_type = Option<String>)]
    pub cache_salt: Option<Value>,
    /// Keep this many tokens of a prompt that is longer; -1 keeps what the context holds.
    pub truncate_prompt_tokens: Option<i64>,
    /// Which end of the prompt is cut off: `left` (the default) or `right`.
    pub truncation_side: Option<TruncationSide>,
    /// After this many tokens of thoughts their end is forced; -1 is the same as none. Needs `--reasoning-parser`.
    #[schema(value_type = Option<i64>)]
    pub thinking_token_budget: Option<Value>,
    /// End a generation that goes round in circles.
    pub repetition_detection: Option<RepetitionFields>,
    /// Tokens of a chunk in the middle of a stream; the server's `--stream-interval` is the least.
    pub stream_interval: Option<i64>,
    #[serde(flatten)]
    pub structured: StructuredFields,
    #[serde(flatten)]
    pub refused: RefusedFields,
}

/// Fields of vLLM that change what is generated and that tito does not have: refused, never ignored.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub struct RefusedFields {
    use_beam_search: Option<Value>,
    logits_processors: Option<Value>,
}

impl RefusedFields {
    /// Refuses the fields that are set.
    pub fn check(&self) -> Result<(), ApiError> {
        let fields = [("use_beam_search", &self.use_beam_search), ("logits_processors", &self.logits_processors)];
        refuse_unserved(fields, is_on)
    }
}

/// Returns an id that a request names, if the vocabulary has it.
pub(crate) fn known_id(id: i64, vocab_size: usize) -> Option<TokenId> {
    TokenId::try_from(id).ok().filter(|&id| (id as usize) < vocab_size)
}

/// Which end of a prompt is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TruncationSide {
    /// The start: the last tokens are kept.
    Left,
    /// The end: the first tokens are kept.
    Right,
}
