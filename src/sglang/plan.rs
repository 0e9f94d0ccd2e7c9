//! How prompts are sampled and scored: the checks of everything that a request says for all of them, or for each.

use std::sync::Arc;

use crate::{
    TokenId,
    json::Path,
    model::GenerationConfig,
    sampling::{Candidates, Logprobs, LogprobsMode},
    state::Api,
    turn::{Sampling, SamplingPolicy, TurnError},
    wire::{
        error::ApiError,
        fields::{
            cache_salt::joined_salt,
            sampling::{SamplingFields, known_id},
        },
        sglang::{generate::SglangGenerateRequest, prompts::OneOrMany, sampling::SglangSamplingParams},
    },
};

/// What an answer shows of log-probs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShownLogprobs {
    /// From which token of the prompt on; `None` for those of sampled tokens only.
    pub(super) from: Option<usize>,
    /// What is shown beside the log-prob of each token.
    pub(super) alternatives: Alternatives,
}

/// Log-probs of tokens that do not stand at a position themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Alternatives {
    /// None.
    Nothing,
    /// Those of the most probable tokens.
    Top,
    /// Those of the tokens that the request names.
    OfIds,
}

/// How a prompt is sampled, and what is shown of it.
#[derive(Debug)]
pub(super) struct SglangPlan {
    pub(super) sampling: Sampling,
    /// Whether the prompt is only scored; the engine samples a token nevertheless, which is not shown.
    pub(super) scores_only: bool,
    pub(super) logprobs: Option<ShownLogprobs>,
    /// The tokens that the request names, in its order.
    pub(super) named: Vec<TokenId>,
    /// The parameter that says what form the answer has.
    form: Option<&'static str>,
}

/// The log-probs that a request asks for, for one prompt.
struct AskedLogprobs {
    from: Option<usize>,
    top: usize,
    ids: Vec<TokenId>,
}

/// Returns one plan for all prompts, or where they differ one for each.
pub(super) fn plans(request: &SglangGenerateRequest, prompts: usize, api: &Api) -> Result<Vec<SglangPlan>, ApiError> {
    let count = if differ(request, prompts)? { prompts } else { 1 };
    let plans = (0..count).map(|index| SglangPlan::new(request, index, api)).collect::<Result<Vec<_>, _>>()?;
    if plans.windows(2).any(|pair| pair[0].sampling.n != pair[1].sampling.n) {
        return Err(ApiError::invalid(param("n"), "`n` must be the same for all prompts of a request"));
    }
    Ok(plans)
}

/// Whether the request says how to sample each of so many prompts.
fn differ(request: &SglangGenerateRequest, prompts: usize) -> Result<bool, ApiError> {
    fn is_list<T>(field: &'static str, value: Option<&OneOrMany<T>>, prompts: usize) -> Result<bool, ApiError> {
        value.map_or(Ok(false), |value| value.is_of_each(field, prompts))
    }

    Ok(is_list("sampling_params", request.sampling_params.as_ref(), prompts)?
        | is_list("return_logprob", request.return_logprob.as_ref(), prompts)?
        | is_list("logprob_start_len", request.logprob_start_len.as_ref(), prompts)?
        | is_list("top_logprobs_num", request.top_logprobs_num.as_ref(), prompts)?
        | is_list("token_ids_logprob", request.token_ids_logprob.as_ref(), prompts)?)
}

fn of_prompt<T>(value: Option<&OneOrMany<T>>, index: usize) -> Option<&T> {
    value.and_then(|value| value.of_prompt(index))
}

impl SglangPlan {
    fn new(request: &SglangGenerateRequest, index: usize, api: &Api) -> Result<Self, ApiError> {
        let params = of_prompt(request.sampling_params.as_ref(), index);
        let params = params.cloned().unwrap_or_else(SglangSamplingParams::unsaid);
        let max_new_tokens = params.max_new_tokens;
        api.check_max_tokens("max_new_tokens", max_new_tokens).map_err(|error| error.elsewhere(renamed))?;
        let scores_only = max_new_tokens == Some(0);
        let form = params.form();
        let mut fields = params.into_fields().map_err(|error| error.elsewhere(|field| in_params(&field)))?;
        let asked = AskedLogprobs::new(request, index, api)?;
        if let Some(asked) = &asked {
            asked.ask(&mut fields);
        }
        check_mask(request, api)?;
        fields.return_sampling_mask = request.return_sampling_mask;
        let shows_experts = shows_experts(request.return_routed_experts, api)?;
        fields.routed_experts_prompt_start = request.routed_experts_start_len.filter(|_| shows_experts);
        let policy = &api.turns.policies.sampling;
        let mut policy = SamplingPolicy { defaults: GenerationConfig::default(), ..policy.clone() };
        if scores_only {
            // Nothing is sampled: the position after the prompt is scored as those in it are.
            policy.logprobs_mode = LogprobsMode::Raw;
        }
        // The engine computes a prompt for the token after it.
        let max_tokens = if scores_only { Some(1) } else { max_new_tokens };
        let candidates = asked.as_ref().and_then(AskedLogprobs::candidates).map(Arc::new);
        if candidates.is_some() {
            api.check_scores_candidates("token_ids_logprob")?;
        }
        if let Some(form) = form {
            fields.structured.resolve().map_err(|error| error_of_form(form, error.message()))?;
        }
        let logprobs = asked.as_ref().map(|asked| Logprobs::Top(asked.top.max(asked.ids.len())));
        let sampling = fields.resolve(max_tokens, logprobs, &policy, api.turns.vocabulary());
        let mut sampling = sampling.map_err(in_own_names)?;
        sampling.candidates = candidates;
        sampling.scores_only = scores_only;
        sampling.cache_salt = joined_salt(request.cache_salt.as_ref(), request.extra_key.as_ref())?;
        let logprobs = asked.as_ref().map(AskedLogprobs::shown);
        let named = asked.map(|asked| asked.ids).unwrap_or_default();
        Ok(Self { sampling, scores_only, logprobs, named, form })
    }

    /// The error of a turn that cannot be sampled so; `prompt` is the field that has the prompt.
    pub(super) fn refusal(&self, prompt: &'static str) -> impl Fn(TurnError) -> ApiError + use<> {
        let form = self.form;
        move |error| match (error, form) {
            (TurnError::Structured(error), Some(form)) => error_of_form(form, error.message),
            (error, _) => in_own_names(ApiError::of_prompt_in(prompt, error)),
        }
    }

    /// Refuses to score from a position that a prompt of so many tokens does not have.
    pub(super) fn check_prompt(&self, tokens: usize) -> Result<(), ApiError> {
        match self.logprobs.and_then(|shown| shown.from) {
            Some(from) if from > tokens => {
                let message = format!("`logprob_start_len` is {from}, and the prompt has {tokens} tokens");
                Err(ApiError::invalid("logprob_start_len", message))
            }
            _ => Ok(()),
        }
    }
}

impl AskedLogprobs {
    fn new(request: &SglangGenerateRequest, index: usize, api: &Api) -> Result<Option<Self>, ApiError> {
        if of_prompt(request.return_logprob.as_ref(), index) != Some(&true) {
            return Ok(None);
        }
        let from = match of_prompt(request.logprob_start_len.as_ref(), index).copied() {
            None | Some(-1) => None,
            Some(from) => Some(usize::try_from(from).map_err(|_| {
                let message = "`logprob_start_len` must be a position of the prompt, or -1 for none";
                ApiError::invalid("logprob_start_len", message)
            })?),
        };
        let top = of_prompt(request.top_logprobs_num.as_ref(), index).copied().unwrap_or(0);
        let top = usize::try_from(top)
            .map_err(|_| ApiError::invalid("top_logprobs_num", "`top_logprobs_num` must not be negative"))?;
        let ids = of_prompt(request.token_ids_logprob.as_ref(), index).map(Vec::as_slice).unwrap_or_default();
        if top > 0 && !ids.is_empty() {
            let message = "`token_ids_logprob` and `top_logprobs_num` exclude each other here";
            return Err(ApiError::invalid("token_ids_logprob", message));
        }
        let vocab_size = api.turns.vocab_size();
        let known = |&id: &i64| {
            known_id(id, vocab_size).ok_or_else(|| {
                ApiError::invalid("token_ids_logprob", format!("the token id {id} is out of vocabulary"))
            })
        };
        Ok(Some(Self { from, top, ids: ids.iter().map(known).collect::<Result<_, _>>()? }))
    }

    /// Says the same in the words that the fields have elsewhere.
    fn ask(&self, fields: &mut SamplingFields) {
        if !self.ids.is_empty() {
            fields.logprob_token_ids = Some(self.ids.iter().map(|&id| id.into()).collect());
        }
        fields.prompt_logprobs = self.from.and_then(|_| i64::try_from(self.top).ok());
    }

    /// The tokens that are scored at positions of the prompt, whichever tokens stand there.
    fn candidates(&self) -> Option<Candidates> {
        let from = self.from.filter(|_| !self.ids.is_empty())?;
        Some(Candidates::same(from, self.ids.clone()))
    }

    fn shown(&self) -> ShownLogprobs {
        let alternatives = match (self.top, self.ids.len()) {
            (0, 0) => Alternatives::Nothing,
            (0, _) => Alternatives::OfIds,
            _ => Alternatives::Top,
        };
        ShownLogprobs { from: self.from, alternatives }
    }
}

/// Parameters that are called the same everywhere.
const OF_PARAMS: [&str; 13] = [
    "frequency_penalty",
    "ignore_eos",
    "logit_bias",
    "max_new_tokens",
    "min_p",
    "n",
    "presence_penalty",
    "repetition_penalty",
    "stop",
    "stop_token_ids",
    "temperature",
    "top_k",
    "top_p",
];

/// The same error about fields by their names here.
fn in_own_names(error: ApiError) -> ApiError {
    error.named_by_its_words(&["min_tokens"]).named_by_its_words(&OF_PARAMS).elsewhere(renamed)
}

fn error_of_form(form: &'static str, message: String) -> ApiError {
    ApiError::invalid(param(form), message)
}

fn param(name: &'static str) -> Path {
    in_params(&name.into())
}

fn in_params(field: &Path) -> Path {
    Path::from("sampling_params").segments().iter().chain(field.segments()).cloned().collect()
}

/// The fields of a request by their names here.
fn renamed(field: Path) -> Path {
    match field.to_string().as_str() {
        "logprob_token_ids" => "token_ids_logprob".into(),
        "logprobs" | "prompt_logprobs" => "top_logprobs_num".into(),
        "max_completion_tokens" | "max_tokens" => param("max_new_tokens"),
        "min_tokens" => param("min_new_tokens"),
        "routed_experts_prompt_start" => "routed_experts_start_len".into(),
        "seed" => param("sampling_seed"),
        name => OF_PARAMS.iter().find(|own| **own == name).map_or(field, |own| param(own)),
    }
}

/// Refuses a mask whose log-probs would be those of another distribution.
fn check_mask(request: &SglangGenerateRequest, api: &Api) -> Result<(), ApiError> {
    // Without a mask too: SGLang refuses the other mode then.
    if request.sampling_logprobs_mode.as_deref().is_some_and(|mode| mode != "selected") {
        return Err(ApiError::invalid("sampling_logprobs_mode", "`sampling_logprobs_mode` must be `selected`"));
    }
    if request.return_sampling_mask == Some(true) { check_mask_mode(api) } else { Ok(()) }
}

/// Refuses the log-probs over a mask where the server has those over the vocabulary.
pub(crate) fn check_mask_mode(api: &Api) -> Result<(), ApiError> {
    if api.turns.policies.sampling.logprobs_mode != LogprobsMode::Processed {
        let message = "`return_sampling_mask` needs a server with --logprobs-mode processed_logprobs, whose log-probs are \
                       those over the mask";
        return Err(ApiError::invalid("return_sampling_mask", message));
    }
    Ok(())
}

/// Whether experts are shown, which only some servers know of.
pub(crate) fn shows_experts(asked: Option<bool>, api: &Api) -> Result<bool, ApiError> {
    let is_asked = asked == Some(true);
    if is_asked && !api.turns.policies.requests.return_routed_experts {
        let message = "`return_routed_experts` needs a server with --enable-return-routed-experts";
        return Err(ApiError::invalid("return_routed_experts", message));
    }
    Ok(is_asked)
}
