//! What SGLang says of a continuation that another endpoint gives.

use std::{sync::Arc, time::Instant};

use super::response::{ended, mask};
use crate::{
    generation::Completion,
    sampling::TopLogprob,
    state::Api,
    wire::{
        answer::{output::TokenSpelling, weight_versions::weight_versions},
        error::ApiError,
        sglang::generate::{SglangLogprob, SglangLogprobs, SglangMetaInfo},
    },
};

/// What a request asks for of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShownInMetaInfo {
    /// When the request came.
    pub(crate) began: Instant,
    /// Whether log-probs are shown.
    pub(crate) logprobs: bool,
    /// How many alternatives each of them has; `None` for all that there are.
    pub(crate) top: Option<usize>,
    /// Whether the ids are shown that each token was drawn from.
    pub(crate) mask: bool,
}

/// Makes `meta_info` of a continuation that has ended.
pub(crate) fn meta_info(
    api: &Arc<Api>,
    id: &str,
    prompt_tokens: usize,
    completion: &Completion,
    shown: ShownInMetaInfo,
) -> Result<SglangMetaInfo, ApiError> {
    let tokens = &completion.tokens;
    let current = || Arc::clone(&api.turns.generator.engine().current_weights().label);
    Ok(SglangMetaInfo {
        id: id.to_owned(),
        finish_reason: completion.finish.as_ref().map(|finish| ended(finish, tokens)),
        prompt_tokens,
        completion_tokens: tokens.len(),
        cached_tokens: completion.prompt.as_ref().map(|prompt| prompt.cached_tokens),
        weight_version: completion.weights.latest().unwrap_or_else(current).to_string(),
        weight_versions: if tokens.is_empty() { Vec::new() } else { weight_versions(&completion.weights) },
        e2e_latency: shown.began.elapsed().as_secs_f64(),
        routed_experts: api.routed_experts_of_meta_info(completion.routes.as_ref()),
        logprobs: if shown.logprobs { Some(logprobs(api, completion, shown.top)?) } else { None },
        mask: mask(shown.mask, tokens)?,
    })
}

/// The log-probs of what was sampled. As in SGLang's chats, tokens have their texts.
fn logprobs(api: &Api, completion: &Completion, top: Option<usize>) -> Result<SglangLogprobs, ApiError> {
    let spelling = TokenSpelling { tokenizer: api.turns.tokenizer(), as_ids: false };
    let entry = |id, logprob| Ok::<_, ApiError>(SglangLogprob(Some(logprob), id, Some(spelling.text(id)?)));
    let sampled =
        completion.tokens.iter().map(|token| entry(token.id, token.logprob)).collect::<Result<Vec<_>, _>>()?;
    let mut alternatives = Vec::new();
    let has_alternatives = top != Some(0);
    for token in completion.tokens.iter().filter(|_| has_alternatives) {
        let shown = token.top_logprobs.iter().take(top.unwrap_or(usize::MAX));
        let row = shown.map(|&TopLogprob { id, logprob, .. }| entry(id, logprob));
        alternatives.push(Some(row.collect::<Result<Vec<_>, _>>()?));
    }
    Ok(SglangLogprobs {
        input_token_logprobs: Vec::new(),
        output_token_logprobs_length: sampled.len(),
        output_token_logprobs: sampled,
        input_top_logprobs: has_alternatives.then(Vec::new),
        output_top_logprobs: has_alternatives.then_some(alternatives),
        input_token_ids_logprobs: None,
        output_token_ids_logprobs: None,
    })
}
