//! From the wire to prompts and their sampling: checks every field.

use std::sync::Arc;

use crate::{
    TokenId,
    api::{Api, MOST_OF_AN_ID, fields::conversation::SessionFields, http::caller::Caller},
    model::GenerationConfig,
    sampling::{Logprobs, LogprobsMode},
    tokenizer::Extent,
    turn::{Sampling, SamplingPolicy},
    wire::{
        error::ApiError,
        fields::{cache_salt::cache_salt, sampling::SamplingFields},
        sglang::{
            generate::{OneOrMany, SglangGenerateRequest},
            sampling::SglangSamplingParams,
        },
    },
};

/// One prompt of a request.
#[derive(Debug)]
pub(super) struct SglangPrompt {
    pub(super) token_ids: Arc<[TokenId]>,
    /// What the request is called, for this prompt.
    pub(super) id: String,
}

/// What the answer shows of log-probs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShownLogprobs {
    /// The sampled token's.
    Sampled,
    /// Also those of the most probable tokens.
    Top,
    /// Also those of the tokens that the request names.
    OfIds,
}

/// A valid request.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "what a request asks for is independent")]
pub(super) struct SglangTurn {
    pub(super) prompts: Vec<SglangPrompt>,
    /// Whether prompts came as a list, and the answer is one.
    pub(super) is_batch: bool,
    pub(super) session: Option<String>,
    pub(super) sampling: Sampling,
    pub(super) streams: bool,
    pub(super) logprobs: Option<ShownLogprobs>,
    /// Whether log-probs have the texts of tokens.
    pub(super) shows_texts: bool,
    pub(super) shows_prompts: bool,
    pub(super) shows_experts: bool,
}

impl SglangTurn {
    pub(super) async fn new(
        mut request: SglangGenerateRequest,
        caller: &Caller,
        api: &Arc<Api>,
    ) -> Result<Self, ApiError> {
        request.refused.check()?;
        let adapter = api.models.find(request.lora_path.as_deref()).await?;
        let params = request.sampling_params.take().unwrap_or_else(SglangSamplingParams::unsaid);
        let max_new_tokens = params.max_new_tokens;
        api.check_max_tokens("max_new_tokens", max_new_tokens)?;
        let mut fields = params.into_fields()?;
        let logprobs = logprobs(&request, &mut fields)?;
        check_mask(&request, api)?;
        fields.return_sampling_mask = request.return_sampling_mask;
        let shows_experts = shows_experts(&request, api)?;
        fields.routed_experts_prompt_start = request.routed_experts_start_len.filter(|_| shows_experts);
        let policy = &api.turns.policies.sampling;
        let policy = SamplingPolicy { defaults: GenerationConfig::default(), ..policy.clone() };
        let asked = logprobs.as_ref().map(|(asked, _)| asked.clone());
        let mut sampling = fields.resolve(max_new_tokens, asked, &policy, api.turns.tokenizer())?;
        sampling.adapter = adapter;
        sampling.cache_salt = match cache_salt(request.cache_salt.as_ref())? {
            Some(salt) => Some(salt),
            None => cache_salt(request.extra_key.as_ref())?,
        };
        let session = SessionFields { session_id: request.session_id.take(), ..SessionFields::default() };
        // Before any text is encoded.
        api.turns.policies.requests.check_sequences(count(&request), sampling.n)?;
        let (is_batch, prompts) = prompts(&mut request, api).await?;
        Ok(Self {
            prompts: name_prompts(prompts, request.rid)?,
            is_batch,
            session: session.session(&caller.headers)?,
            sampling,
            streams: request.stream.unwrap_or(false),
            logprobs: logprobs.map(|(_, shown)| shown),
            shows_texts: request.return_text_in_logprobs.unwrap_or(false),
            shows_prompts: request.return_prompt_token_ids.unwrap_or(false),
            shows_experts,
        })
    }
}

/// Returns the log-probs to ask for, and what is shown of them.
fn logprobs(
    request: &SglangGenerateRequest,
    fields: &mut SamplingFields,
) -> Result<Option<(Logprobs, ShownLogprobs)>, ApiError> {
    if request.return_logprob != Some(true) {
        return Ok(None);
    }
    if request.logprob_start_len.is_some_and(|start| start >= 0) {
        let message = "`logprob_start_len` must be -1: log-probs of prompts are not reported here; ask /v1/completions \
                       with `echo` and `logprobs`";
        return Err(ApiError::invalid("logprob_start_len", message));
    }
    let top = request.top_logprobs_num.unwrap_or(0);
    let top = usize::try_from(top)
        .map_err(|_| ApiError::invalid("top_logprobs_num", "`top_logprobs_num` must not be negative"))?;
    let ids = request.token_ids_logprob.as_ref().filter(|ids| !ids.is_empty());
    match (ids, top) {
        (None, 0) => Ok(Some((Logprobs::Top(0), ShownLogprobs::Sampled))),
        (None, top) => Ok(Some((Logprobs::Top(top), ShownLogprobs::Top))),
        (Some(ids), 0) => {
            fields.logprob_token_ids = Some(ids.clone());
            Ok(Some((Logprobs::Top(ids.len()), ShownLogprobs::OfIds)))
        }
        (Some(_), _) => {
            let message = "`token_ids_logprob` and `top_logprobs_num` exclude each other here";
            Err(ApiError::invalid("token_ids_logprob", message))
        }
    }
}

/// Refuses a mask whose log-probs would be those of another distribution.
fn check_mask(request: &SglangGenerateRequest, api: &Api) -> Result<(), ApiError> {
    if request.return_sampling_mask != Some(true) {
        return Ok(());
    }
    if request.sampling_logprobs_mode.as_deref().is_some_and(|mode| mode != "selected") {
        return Err(ApiError::invalid("sampling_logprobs_mode", "`sampling_logprobs_mode` must be `selected`"));
    }
    if api.turns.policies.sampling.logprobs_mode != LogprobsMode::Processed {
        let message = "`return_sampling_mask` needs a server with --logprobs-mode processed_logprobs, whose log-probs are \
                       those over the mask";
        return Err(ApiError::invalid("return_sampling_mask", message));
    }
    Ok(())
}

/// Whether experts are shown, which only some servers know of.
fn shows_experts(request: &SglangGenerateRequest, api: &Api) -> Result<bool, ApiError> {
    let is_asked = request.return_routed_experts == Some(true);
    if is_asked && !api.turns.policies.requests.return_routed_experts {
        let message = "`return_routed_experts` needs a server with --enable-return-routed-experts";
        return Err(ApiError::invalid("return_routed_experts", message));
    }
    Ok(is_asked)
}

/// Returns how many prompts there are.
fn count(request: &SglangGenerateRequest) -> usize {
    match (&request.text, &request.input_ids) {
        (Some(OneOrMany::Many(texts)), _) => texts.len(),
        (None, Some(OneOrMany::Many(lists))) => lists.len(),
        _ => 1,
    }
}

/// Returns whether there is a list of prompts, and the ids of each.
async fn prompts(request: &mut SglangGenerateRequest, api: &Arc<Api>) -> Result<(bool, Vec<Arc<[TokenId]>>), ApiError> {
    let (is_batch, prompts) = match (request.text.take(), request.input_ids.take()) {
        (Some(OneOrMany::One(text)), _) => (false, vec![encoded(text, api).await?]),
        (Some(OneOrMany::Many(texts)), _) => {
            let mut prompts = Vec::with_capacity(texts.len());
            for text in texts {
                prompts.push(encoded(text, api).await?);
            }
            (true, prompts)
        }
        (None, Some(OneOrMany::One(ids))) => (false, vec![known_ids(&ids, api)?]),
        (None, Some(OneOrMany::Many(lists))) => {
            (true, lists.iter().map(|ids| known_ids(ids, api)).collect::<Result<_, _>>()?)
        }
        (None, None) => return Err(ApiError::invalid("input_ids", "either `text` or `input_ids` must be given")),
    };
    if prompts.is_empty() || prompts.iter().any(|prompt| prompt.is_empty()) {
        return Err(ApiError::invalid("input_ids", "a prompt must have at least one token"));
    }
    Ok((is_batch, prompts))
}

async fn encoded(text: String, api: &Arc<Api>) -> Result<Arc<[TokenId]>, ApiError> {
    Ok(api.turns.encode(text, true, Extent::AtMost(api.turns.max_model_len)).await?.into())
}

fn known_ids(ids: &[i64], api: &Api) -> Result<Arc<[TokenId]>, ApiError> {
    let ids = api.known_ids("input_ids", ids)?;
    api.turns.check_given(&ids)?;
    Ok(ids.into())
}

/// Gives each prompt the name that the request has for it, or a fresh one.
fn name_prompts(prompts: Vec<Arc<[TokenId]>>, rid: Option<OneOrMany<String>>) -> Result<Vec<SglangPrompt>, ApiError> {
    let names = match rid {
        None => None,
        Some(OneOrMany::One(name)) if prompts.len() == 1 => Some(vec![name]),
        Some(OneOrMany::One(name)) => Some((0..prompts.len()).map(|index| format!("{name}_{index}")).collect()),
        Some(OneOrMany::Many(names)) => Some(names),
    };
    if let Some(names) = &names {
        if names.len() != prompts.len() {
            let (names, prompts) = (names.len(), prompts.len());
            return Err(ApiError::invalid("rid", format!("`rid` has {names} names, and there are {prompts} prompts")));
        }
        if names.iter().any(|name| name.len() > MOST_OF_AN_ID) {
            return Err(ApiError::invalid("rid", format!("`rid` is longer than {MOST_OF_AN_ID} bytes")));
        }
    }
    let mut names = names.unwrap_or_default().into_iter();
    let fresh = || uuid::Uuid::new_v4().simple().to_string();
    let prompts =
        prompts.into_iter().map(|token_ids| SglangPrompt { token_ids, id: names.next().unwrap_or_else(fresh) });
    Ok(prompts.collect())
}
