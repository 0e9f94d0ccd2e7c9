//! From the wire to prompts and sampling, every field checked.

use std::sync::Arc;

use axum::http::HeaderMap;

use super::types::{CompletionRequest, PromptInput};
use crate::{
    TokenId,
    api::{
        Api, answer_id,
        error::ApiError,
        sampling::Sampling,
        stream_options::{Delivery, delivery},
    },
    sampling::Logprobs,
};

/// vLLM's default for text completions.
const DEFAULT_MAX_TOKENS: i64 = 16;
/// Most prompts of one request, as in vLLM.
const MAX_PROMPTS: usize = 1024;

/// One prompt of a request.
#[derive(Debug, Clone)]
pub(super) struct Prompt {
    pub(super) token_ids: Arc<[TokenId]>,
    /// The text to repeat, with `echo`.
    pub(super) text: Option<String>,
}

/// A valid request.
#[derive(Debug)]
pub(super) struct CompletionTurn {
    pub(super) id: String,
    pub(super) prompts: Vec<Prompt>,
    pub(super) sampling: Sampling,
    pub(super) logprobs: Option<ShownLogprobs>,
    pub(super) delivery: Delivery,
    pub(super) echo: bool,
    /// Only the prompt is wanted (`echo` with 0 tokens); the engine samples one token all the same.
    pub(super) prompt_only: bool,
    /// Prompt log-probs were asked for by their own field, not by `echo`.
    pub(super) prompt_logprobs: bool,
}

/// Alternatives to show at each position; `None` is all that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShownLogprobs(pub(super) Option<usize>);

impl CompletionTurn {
    pub(super) async fn new(request: CompletionRequest, headers: &HeaderMap, api: &Arc<Api>) -> Result<Self, ApiError> {
        api.models.check(request.model.as_deref())?;
        if request.suffix.is_some() {
            let message = "suffix is only supported for models with FIM completion rendering";
            return Err(ApiError::invalid("suffix", message));
        }
        let id = answer_id("cmpl", headers, request.request_id.as_deref());
        let delivery = delivery(request.stream, request.stream_options)?;
        let echo = request.echo.unwrap_or(false);
        let prompt_only = echo && request.max_tokens == Some(0);
        let max_tokens = if prompt_only { 1 } else { request.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS) };
        api.check_max_tokens("max_tokens", request.max_tokens)?;
        let (logprobs, shown) = logprobs(&request)?;
        let mut sampling =
            request.sampling.resolve(Some(max_tokens), logprobs.clone(), &api.sampling, api.renderer.tokenizer())?;
        let prompt_logprobs = sampling.prompt_logprobs.is_some();
        if delivery != Delivery::Json && sampling.prompt_logprobs.is_some_and(|top| top > 0) {
            let message = "`prompt_logprobs` are not available when `stream=True`.";
            return Err(ApiError::refused("prompt_logprobs", message, None));
        }
        if echo {
            sampling.widen_prompt_logprobs(logprobs.as_ref(), api.renderer.tokenizer().vocab_size());
        }
        let add_special_tokens = request.add_special_tokens.unwrap_or(true);
        let prompts = prompts(request.prompt, add_special_tokens, echo, api).await?;
        Ok(Self { id, prompts, sampling, logprobs: shown, delivery, echo, prompt_only, prompt_logprobs })
    }
}

/// With k alternatives asked for, k + 1 may be shown: the sampled token is always among them.
fn logprobs(request: &CompletionRequest) -> Result<(Option<Logprobs>, Option<ShownLogprobs>), ApiError> {
    let all = request.sampling.logprob_token_ids.is_some();
    match request.logprobs {
        None => Ok((None, None)),
        Some(-1) => Ok((Some(Logprobs::All), Some(ShownLogprobs(None)))),
        Some(asked) => {
            let top = usize::try_from(asked)
                .map_err(|_| ApiError::invalid("logprobs", "`logprobs` must be a positive value or -1."))?;
            Ok((Some(Logprobs::Top(top)), Some(ShownLogprobs((!all).then_some(top + 1)))))
        }
    }
}

async fn prompts(
    input: Option<PromptInput>,
    add_special_tokens: bool,
    echo: bool,
    api: &Arc<Api>,
) -> Result<Vec<Prompt>, ApiError> {
    let empty = || {
        let message = "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)";
        ApiError::invalid("prompt", message)
    };
    let mut prompts = Vec::new();
    match input {
        None => return Err(empty()),
        Some(PromptInput::Text(text)) => prompts.push(of_text(text, add_special_tokens, api).await?),
        Some(PromptInput::Texts(texts)) => {
            check_count(texts.len())?;
            for text in texts {
                prompts.push(of_text(text, add_special_tokens, api).await?);
            }
        }
        Some(PromptInput::Ids(ids)) if ids.is_empty() => {
            return Err(ApiError::invalid_request("You must pass at least one prompt"));
        }
        Some(PromptInput::Ids(ids)) => prompts.push(of_ids(ids, echo, api)?),
        Some(PromptInput::IdLists(lists)) => {
            check_count(lists.len())?;
            for ids in lists {
                prompts.push(of_ids(ids, echo, api)?);
            }
        }
    }
    if prompts.iter().any(|prompt| prompt.token_ids.is_empty()) {
        return Err(ApiError::invalid_request("The decoder prompt cannot be empty"));
    }
    Ok(prompts)
}

fn check_count(count: usize) -> Result<(), ApiError> {
    if count <= MAX_PROMPTS {
        return Ok(());
    }
    Err(ApiError::invalid("prompt", format!("at most {MAX_PROMPTS} prompts are served at once, got {count}")))
}

async fn of_text(text: String, add_special_tokens: bool, api: &Arc<Api>) -> Result<Prompt, ApiError> {
    let token_ids = api.encode(text.clone(), add_special_tokens).await?.into();
    Ok(Prompt { token_ids, text: Some(text) })
}

fn of_ids(ids: Vec<TokenId>, echo: bool, api: &Api) -> Result<Prompt, ApiError> {
    if let Some(id) = ids.iter().find(|&&id| id as usize >= api.vocab_size()) {
        return Err(ApiError::invalid_request(format!("Token id {id} is out of vocabulary")));
    }
    api.check_given(&ids)?;
    let text = if echo { Some(api.renderer.tokenizer().decode(&ids, true)?) } else { None };
    Ok(Prompt { token_ids: ids.into(), text })
}
