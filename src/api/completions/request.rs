//! From the wire to prompts and sampling: checks every field.

use std::sync::Arc;

use crate::{
    TokenId,
    continuity::{TextRecorder, TextScope, Verdict},
    http::caller::Caller,
    request_fields::{
        answer_id::answer_id,
        conversation::SessionFields,
        delivery::{AnswerDelivery, delivery},
        sampling::report_prompt,
    },
    sampling::Logprobs,
    state::Api,
    turn::{EncodedPrompt, PromptText, Sampling, Truncation},
    wire::{
        answer::{output::ShownAlternatives, token_continuity::TokenContinuity},
        completions::{prompt_input::PromptInput, rules::no_prompt, types::CompletionRequest},
        error::ApiError,
        fields::{sampling::rules::NO_PROMPT_LOGPROBS, untyped::not_positive},
        routed_experts,
    },
};

/// vLLM's default for text completions.
const DEFAULT_MAX_TOKENS: i64 = 16;

/// One prompt of a request.
#[derive(Debug, Clone)]
pub(in crate::api) struct Prompt {
    pub(in crate::api) token_ids: Arc<[TokenId]>,
    /// The text that is repeated, with `echo`.
    pub(in crate::api) text: Option<String>,
    /// What became of the ids of the answer that it goes on from; `None` if it is not to be continued.
    pub(in crate::api) verdict: Option<Verdict>,
    /// Remembers the answers to a text.
    pub(in crate::api) recorder: Option<Arc<TextRecorder>>,
}

/// A valid request.
#[derive(Debug)]
pub(in crate::api) struct CompletionTurn {
    pub(in crate::api) id: String,
    pub(in crate::api) session: Option<String>,
    pub(in crate::api) prompts: Vec<Prompt>,
    /// How long each prompt may be.
    pub(in crate::api) truncation: Option<Truncation>,
    pub(in crate::api) sampling: Sampling,
    pub(in crate::api) logprobs: Option<ShownAlternatives>,
    pub(in crate::api) delivery: AnswerDelivery,
    /// The number of tokens in a chunk in the middle of a stream.
    pub(in crate::api) stream_interval: usize,
    pub(in crate::api) echo: bool,
    /// Whether the prompt is only repeated (`echo` with 0 tokens); the engine still samples one token, as in vLLM.
    pub(in crate::api) prompt_only: bool,
}

impl CompletionTurn {
    pub(in crate::api) async fn new(
        mut request: CompletionRequest,
        caller: &Caller,
        api: &Arc<Api>,
    ) -> Result<Self, ApiError> {
        let adapter = api.models.find(request.model.as_deref()).await?;
        refuse_unserved(&request)?;
        request.sglang.read_into(&mut request.sampling)?;
        let id = answer_id("cmpl", &caller.headers, request.request_id.as_deref())?;
        let named = SessionFields {
            session_id: request.session_id.take(),
            vllm_xargs: request.vllm_xargs.take(),
            prompt_cache_key: request.prompt_cache_key.take(),
        };
        let session = named.session(&caller.headers)?;
        let delivery =
            delivery(request.stream, request.stream_options, api.turns.policies.requests.force_include_usage)?;
        let echo = request.echo.unwrap_or(false);
        let prompt_only = echo && request.max_tokens == Some(0);
        let max_tokens = if prompt_only { 1 } else { request.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS) };
        api.check_max_tokens("max_tokens", request.max_tokens)?;
        let (logprobs, shown) = logprobs(&request)?;
        let mut sampling = request.sampling.resolve(
            Some(max_tokens),
            logprobs.clone(),
            &api.turns.policies.sampling,
            api.turns.vocabulary(),
        )?;
        if delivery != AnswerDelivery::Json && sampling.prompt_logprobs.is_some_and(|top| top > 0) {
            return Err(ApiError::refused("prompt_logprobs", NO_PROMPT_LOGPROBS, None));
        }
        if echo {
            let vocab_size = api.turns.vocab_size();
            report_prompt(&mut sampling, logprobs.as_ref(), &api.turns.policies.sampling, vocab_size)?;
        }
        let stream_interval = request.sampling.stream_interval(api.turns.policies.requests.stream_interval)?;
        let asked = request.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS);
        let wanted = PromptForms {
            add_special_tokens: request.add_special_tokens.unwrap_or(true),
            // An answer with token ids needs no text of the prompt.
            text: echo && !sampling.return_token_ids,
            truncation: request.sampling.truncation(api.turns.max_model_len, Some(asked))?,
        };
        api.turns.policies.requests.check_sequences(count(request.prompt.as_ref()), sampling.n)?;
        sampling.adapter = adapter;
        sampling.scores_only = prompt_only;
        sampling.routes.given = routed_experts::read(request.routed_experts.as_ref())?.map(Arc::new);
        let truncation = wanted.truncation;
        let scope = TextScope {
            salt: caller.client.salt(sampling.cache_salt.as_ref()),
            adapter: sampling.adapter.as_ref().map(|adapter| Arc::clone(adapter.name())),
            session: session.clone(),
        };
        let prompts = prompts(request.prompt, wanted, &scope, api).await?;
        if sampling.routes.given.is_some() && prompts.len() > 1 {
            let message = format!("`routed_experts` is for a single prompt, got {}", prompts.len());
            return Err(ApiError::refused(routed_experts::FIELD, message, None));
        }
        let logprobs = shown;
        Ok(Self { id, session, prompts, truncation, sampling, logprobs, delivery, stream_interval, echo, prompt_only })
    }
}

impl CompletionTurn {
    /// Returns what became of the ids of earlier answers: the worst of the verdicts on its prompts.
    pub(in crate::api) fn continuity(&self) -> Option<TokenContinuity> {
        let verdicts = self.prompts.iter().filter_map(|prompt| prompt.verdict.as_ref());
        verdicts.max_by_key(|verdict| verdict.badness()).map(TokenContinuity::from)
    }
}

/// Reads `logprobs`. If k alternatives are asked for, k + 1 may be shown, because the sampled token is always among
/// them.
fn logprobs(request: &CompletionRequest) -> Result<(Option<Logprobs>, Option<ShownAlternatives>), ApiError> {
    let all = request.sampling.logprob_token_ids.as_ref().is_some_and(|ids| !ids.is_empty());
    match request.logprobs {
        None => Ok((None, None)),
        Some(-1) => Ok((Some(Logprobs::All), Some(ShownAlternatives(None)))),
        Some(asked) => {
            let top = usize::try_from(asked).map_err(|_| ApiError::invalid("logprobs", not_positive("logprobs")))?;
            Ok((Some(Logprobs::Top(top)), Some(ShownAlternatives((!all).then_some(top + 1)))))
        }
    }
}

/// Refuses what vLLM refuses too, in its words: only two model families of vLLM's can fill in, and it takes embeddings
/// only if a flag says so.
fn refuse_unserved(request: &CompletionRequest) -> Result<(), ApiError> {
    if request.sglang.return_routed_experts == Some(true) {
        let message = "completions have no place for SGLang's experts: a server with --enable-return-routed-experts has \
                       `routed_experts` in each choice, and in each answer of /generate";
        return Err(ApiError::invalid("return_routed_experts", message));
    }
    if request.sglang.rid.as_ref().is_some_and(|rid| !rid.is_empty()) {
        let message = "a completion is aborted by its own id: name it by `request_id`, instead of SGLang's `rid`";
        return Err(ApiError::invalid("rid", message));
    }
    let embeds = request.prompt_embeds.as_ref().is_some_and(|embeds| !embeds.is_null());
    if request.suffix.is_some() {
        let texts = matches!(request.prompt, Some(PromptInput::Text(_) | PromptInput::Texts(_)));
        let message = if request.echo == Some(true) {
            "Echo is unsupported with suffix."
        } else if embeds {
            "suffix is not supported with prompt_embeds"
        } else if request.sampling.truncate_prompt_tokens.is_some() {
            "suffix is not supported with truncate_prompt_tokens"
        } else if texts {
            "suffix is only supported for models with FIM completion rendering"
        } else {
            "suffix requires text prompt input for FIM completion rendering"
        };
        return Err(ApiError::invalid("suffix", message));
    }
    if embeds {
        let message = "You must set `--enable-prompt-embeds` to input `prompt_embeds`. (parameter=prompt_embeds)";
        return Err(ApiError::invalid("prompt_embeds", message));
    }
    Ok(())
}

/// The forms of each prompt that are wanted.
#[derive(Clone, Copy)]
struct PromptForms {
    add_special_tokens: bool,
    /// Whether its text is wanted, to be repeated.
    text: bool,
    truncation: Option<Truncation>,
}

async fn prompts(
    input: Option<PromptInput>,
    wanted: PromptForms,
    scope: &TextScope,
    api: &Arc<Api>,
) -> Result<Vec<Prompt>, ApiError> {
    let empty = no_prompt;
    let mut prompts = Vec::new();
    match input {
        None => return Err(empty()),
        Some(PromptInput::Text(text)) if text.is_empty() => return Err(empty()),
        Some(PromptInput::Text(text)) => prompts.push(of_text(text, wanted, scope, api).await?),
        Some(PromptInput::Texts(texts)) => {
            for text in texts {
                prompts.push(of_text(text, wanted, scope, api).await?);
            }
        }
        Some(PromptInput::Ids(ids)) if ids.is_empty() => {
            return Err(ApiError::invalid_request("You must pass at least one prompt"));
        }
        Some(PromptInput::Ids(ids)) => prompts.push(of_ids(ids, wanted, scope, api)?),
        Some(PromptInput::IdLists(lists)) => {
            for ids in lists {
                prompts.push(of_ids(ids, wanted, scope, api)?);
            }
        }
    }
    if prompts.iter().any(|prompt| prompt.token_ids.is_empty()) {
        return Err(ApiError::invalid_request("The decoder prompt cannot be empty"));
    }
    Ok(prompts)
}

/// Returns how many prompts there are.
fn count(input: Option<&PromptInput>) -> usize {
    match input {
        None => 0,
        Some(PromptInput::Text(_) | PromptInput::Ids(_)) => 1,
        Some(PromptInput::Texts(texts)) => texts.len(),
        Some(PromptInput::IdLists(lists)) => lists.len(),
    }
}

async fn of_text(text: String, wanted: PromptForms, scope: &TextScope, api: &Arc<Api>) -> Result<Prompt, ApiError> {
    let PromptForms { add_special_tokens, truncation, .. } = wanted;
    let prompt = PromptText { text, add_special_tokens, truncation, scope: scope.clone() };
    let EncodedPrompt { text, token_ids, verdict, recorder } = api.turns.prompt_text_into_ids(prompt).await?;
    // As in vLLM, the whole text is repeated, however much of it was cut off.
    Ok(Prompt { token_ids, text: wanted.text.then_some(text), verdict: Some(verdict), recorder })
}

fn of_ids(mut ids: Vec<TokenId>, wanted: PromptForms, scope: &TextScope, api: &Api) -> Result<Prompt, ApiError> {
    if let Some(truncation) = wanted.truncation {
        ids = truncation.of_ids(ids);
    }
    if let Some(id) = ids.iter().find(|&&id| id as usize >= api.turns.vocab_size()) {
        return Err(ApiError::invalid_request(format!("Token id {id} is out of vocabulary")));
    }
    api.turns.check_given(&ids)?;
    let text = if wanted.text { Some(api.turns.text_of(&ids)?) } else { None };
    let verdict = Verdict::of_given(ids.len(), scope.adapter.clone());
    Ok(Prompt { token_ids: ids.into(), text, verdict: Some(verdict), recorder: None })
}
