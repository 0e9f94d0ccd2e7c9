//! The wire shapes of SGLang's `POST /generate`.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    prompts::{OneOrMany, params_of_prompts},
    sampling::SglangSamplingParams,
};
use crate::{
    TokenId,
    foreign_fields::OF_SGLANG_GENERATE,
    pydantic::Schema,
    wire::{
        answer::{output::StopReason, sampling_mask::SamplingMask, weight_versions::WeightVersionSpan},
        body::{Body, Rules},
    },
};

/// Prompts as texts or ids, and how to continue them. Unknown fields are ignored.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct SglangGenerateRequest {
    /// The prompt, or several; refused beside `input_ids`.
    pub text: Option<OneOrMany<String>>,
    /// The prompt in ids, taken verbatim, or several.
    pub input_ids: Option<OneOrMany<Vec<i64>>>,
    /// How to sample; or how to sample each of several prompts, all with the same `n`.
    #[serde(default, deserialize_with = "params_of_prompts")]
    pub sampling_params: Option<OneOrMany<SglangSamplingParams>>,
    /// What the request is called, to abort it by; or what those of several prompts are called.
    pub rid: Option<OneOrMany<String>>,
    /// Answer with server-sent events, each with all that has been sampled so far.
    pub stream: Option<bool>,
    /// Report the log-prob of every sampled token; or whether to, for each of several prompts. The next three are lists
    /// too where prompts differ.
    pub return_logprob: Option<OneOrMany<bool>>,
    /// With `return_logprob`, also report the log-probs of the prompt's tokens from this position on, the first of which is
    /// null. -1 (the default) reports none of them.
    pub logprob_start_len: Option<OneOrMany<i64>>,
    /// Report this many alternatives of every token whose log-prob is reported.
    pub top_logprobs_num: Option<OneOrMany<i64>>,
    /// Report the log-probs of exactly these tokens.
    pub token_ids_logprob: Option<OneOrMany<Vec<i64>>>,
    /// Report the texts of tokens with their log-probs.
    pub return_text_in_logprobs: Option<bool>,
    /// Report the prompt's ids.
    pub return_prompt_token_ids: Option<bool>,
    /// Report with each sampled token the ids that it was drawn from, with `--logprobs-mode processed_logprobs`.
    pub return_sampling_mask: Option<bool>,
    /// Only `selected` (the default): the log-prob of the sampled token among those that it was drawn from.
    pub sampling_logprobs_mode: Option<String>,
    /// Report the experts of all tokens but the last one, with `--enable-return-routed-experts`.
    pub return_routed_experts: Option<bool>,
    /// Leave out those of so many tokens of the prompt (default 0).
    pub routed_experts_start_len: Option<i64>,
    /// One of the served names, or the name of the adapter that samples; absent or empty is any.
    pub model: Option<String>,
    /// The same as `model`, in SGLang's words. If both are given, they name the same.
    pub lora_path: Option<String>,
    /// The client's name for the session.
    pub session_id: Option<String>,
    /// Share cached prefixes only with requests of the same salt.
    #[schema(value_type = Option<String>)]
    pub cache_salt: Option<Value>,
    /// The same as `cache_salt`.
    #[schema(value_type = Option<String>)]
    pub extra_key: Option<Value>,
}

impl Body for SglangGenerateRequest {
    const RULES: &'static Rules = &Rules { foreign: &OF_SGLANG_GENERATE, ..Rules::new(&Schema::Any) };
}

/// A continuation, or with `stream` all that there is of it so far.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SglangOutput {
    /// The text of the tokens, without what ended it unless that was asked for.
    pub text: String,
    /// Every sampled token, the stop token included.
    pub output_ids: Vec<TokenId>,
    /// The prompt, with `return_prompt_token_ids`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<TokenId>>,
    /// All else that is known of it.
    pub meta_info: SglangMetaInfo,
    /// Which one of several it is, in a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
}

/// One continuation, or a list where there are several prompts or `n` is over 1.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum SglangAnswer {
    /// One.
    One(Box<SglangOutput>),
    /// Several.
    Many(Vec<SglangOutput>),
}

/// What is known of a continuation beside its tokens.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SglangMetaInfo {
    /// The request's `rid`, or one that was made for it.
    pub id: String,
    /// What ended it; null while it goes on.
    pub finish_reason: Option<SglangFinish>,
    pub prompt_tokens: usize,
    pub completion_tokens: usize,
    /// Tokens of the prompt that were not computed again; absent where the engine does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<usize>,
    /// What the weights are called that sampled the last token.
    pub weight_version: String,
    /// Which weights sampled which tokens.
    pub weight_versions: Vec<WeightVersionSpan>,
    /// Seconds since the request came.
    pub e2e_latency: f64,
    /// With `return_routed_experts`, at the end: the experts of all tokens but the last one, as int32 in base64, token by token,
    /// layer by layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routed_experts: Option<String>,
    #[serde(flatten)]
    pub logprobs: Option<SglangLogprobs>,
    #[serde(flatten)]
    pub mask: Option<SglangSamplingMask>,
}

/// A log-prob, which the first token of a prompt lacks, its token, and the token's text where that was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct SglangLogprob(pub Option<f32>, pub TokenId, pub Option<String>);

/// Tokens at each position; null at the first one of a prompt's.
pub(crate) type SglangAlternatives = Vec<Option<Vec<SglangLogprob>>>;

/// With `return_logprob`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SglangLogprobs {
    /// One entry for each token of the prompt from `logprob_start_len` on, the first of which has no log-prob.
    #[schema(value_type = Vec<Vec<Object>>, required = false)]
    pub input_token_logprobs: Vec<SglangLogprob>,
    /// One entry for each sampled token.
    #[schema(value_type = Vec<Vec<Object>>, required = false)]
    pub output_token_logprobs: Vec<SglangLogprob>,
    #[schema(required = false)]
    pub output_token_logprobs_length: usize,
    /// With `top_logprobs_num`: the most probable tokens at each position of the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Option<Vec<Vec<Object>>>>>)]
    pub input_top_logprobs: Option<SglangAlternatives>,
    /// The same at each sampled position; with a `max_new_tokens` of 0, at the one after the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Vec<Vec<Object>>>>)]
    pub output_top_logprobs: Option<SglangAlternatives>,
    /// With `token_ids_logprob`: these tokens at each position of the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Option<Vec<Vec<Object>>>>>)]
    pub input_token_ids_logprobs: Option<SglangAlternatives>,
    /// The same at each sampled position; with a `max_new_tokens` of 0, at the one after the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Vec<Vec<Object>>>>)]
    pub output_token_ids_logprobs: Option<SglangAlternatives>,
}

/// With `return_sampling_mask`.
#[derive(Debug, Serialize, ToSchema)]
#[expect(clippy::struct_field_names, reason = "they are SGLang's")]
pub(crate) struct SglangSamplingMask {
    /// For each token the ids that it was drawn from, ascending.
    #[schema(value_type = Vec<Vec<TokenId>>, required = false)]
    pub output_token_sampling_mask: SamplingMask,
    /// The log-prob of each token among those.
    #[schema(required = false)]
    pub output_token_sampling_logprobs: Vec<f32>,
    #[schema(required = false)]
    pub output_token_sampling_mask_length: usize,
}

/// What ended a continuation.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum SglangFinish {
    /// A token or a text that ends it.
    Stop { matched: StopReason },
    /// It has as many tokens as were asked for, or as there is room for.
    Length { length: usize },
    /// It was aborted, or the server ended it; what was sampled is valid.
    Abort { message: &'static str, status_code: Option<u16>, err_type: Option<&'static str> },
}
