//! From the wire to prompts and their sampling: checks every field.

use std::sync::Arc;

use crate::{
    TokenId,
    engine::Adapter,
    json::Path,
    model::GenerationConfig,
    sampling::Logprobs,
    state::Api,
    tinker_sessions::SampledModel,
    turn::{Sampling, SamplingPolicy, TurnError},
    wire::{
        error::{ApiError, ErrorKind},
        tinker::{
            sample::{TinkerChunk, TinkerSampleRequest},
            targets::{TargetLimits, Targets},
        },
    },
};

/// A valid request.
#[derive(Debug)]
pub(super) struct TinkerTurn {
    pub(super) prompt: Arc<[TokenId]>,
    pub(super) sampling: Sampling,
    /// How often the prompt is sampled: greedily, sequences are those of as many prompts.
    pub(super) prompts: usize,
    pub(super) shown: Shown,
}

/// What an answer shows besides tokens and their log-probs.
#[derive(Debug)]
pub(super) struct Shown {
    /// The log-probs of so many tokens at the end of the prompt; `None` for none.
    pub(super) prompt_logprobs: Option<usize>,
    pub(super) topk_prompt: usize,
    pub(super) topk_sample: usize,
    /// The log-probs of these ids at positions of the prompt.
    pub(super) targets: Option<Targets>,
}

/// What a sampling session is to sample.
pub(super) async fn sampled_model(
    base_model: Option<String>,
    model_path: Option<String>,
    api: &Api,
) -> Result<SampledModel, ApiError> {
    if let Some(name) = base_model.as_deref().filter(|name| !api.models.is_model(name)) {
        let served = api.models.names().join(", ");
        let message = format!(
            "the model `{name}` is not served here, but {served}; an adapter is asked for by model_path=\"tinker://NAME\""
        );
        return Err(ApiError::invalid("base_model", message));
    }
    let Some(path) = model_path else {
        let Some(base_model) = base_model else {
            return Err(ApiError::invalid("base_model", "either `base_model` or `model_path` must be given"));
        };
        return Ok(SampledModel { base_model, adapter: None, model_path: None });
    };
    let adapter = adapter(&path, api).await?;
    let base_model = base_model.unwrap_or_else(|| api.models.name().to_owned());
    Ok(SampledModel { base_model, adapter: Some((adapter.name().to_string(), adapter.id())), model_path: Some(path) })
}

/// The adapter that `tinker://NAME` names: NAME, or as a whole. It is loaded now if it is found by its name.
async fn adapter(path: &str, api: &Api) -> Result<Arc<Adapter>, ApiError> {
    let names = path.strip_prefix("tinker://").into_iter().chain([path]);
    for name in names.filter(|name| !name.is_empty()) {
        match api.models.find(Some(name)).await {
            Ok(Some(adapter)) => return Ok(adapter),
            Err(error) if error.kind() != ErrorKind::UnknownModel => return Err(error),
            // A name of the model itself, or of nothing.
            Ok(None) | Err(_) => {}
        }
    }
    let message = format!(
        "no adapter is loaded for `{path}`: load it under the name that follows `tinker://`, and sample the model itself by \
         `base_model`"
    );
    Err(ApiError::invalid("model_path", message))
}

/// The adapter of a sampling session, if it is still the one that the session began with.
async fn same_adapter(model: &SampledModel, api: &Api) -> Result<Option<Arc<Adapter>>, ApiError> {
    let Some((name, id)) = &model.adapter else { return Ok(None) };
    match api.models.fitting(name).await? {
        Some(adapter) if adapter.id() == *id => Ok(Some(adapter)),
        _ => {
            let message = format!(
                "the adapter `{name}` was unloaded or replaced since this sampling client was created; create another one"
            );
            Err(ApiError::invalid("sampling_session_id", message))
        }
    }
}

impl TinkerTurn {
    pub(super) async fn new(request: &TinkerSampleRequest, model: &SampledModel, api: &Api) -> Result<Self, ApiError> {
        request.check_rest()?;
        let adapter = same_adapter(model, api).await?;
        let prompt = prompt(&request.prompt.chunks, api)?;
        let shown = Shown::new(request, prompt.len(), api)?;
        let params = &request.sampling_params;
        api.check_max_tokens("max_tokens", params.max_tokens).map_err(|error| error.elsewhere(renamed))?;
        let mut fields = params.fields();
        fields.n = request.num_samples;
        let scores = shown.prompt_logprobs.is_some() || shown.topk_prompt > 0;
        fields.prompt_logprobs = scores.then_some(request.topk_prompt_logprobs.unwrap_or(0));
        let mut prompts = 1;
        if params.temperature == Some(0.0) && request.num_samples.is_some_and(|samples| samples > 1) {
            // What is sampled greedily is one sequence elsewhere.
            prompts = usize::try_from(request.num_samples.unwrap_or(1)).unwrap_or(usize::MAX);
            fields.n = Some(1);
        }
        let policy = &api.turns.policies.sampling;
        let policy = SamplingPolicy { defaults: GenerationConfig::default(), ..policy.clone() };
        let logprobs = Some(Logprobs::Top(shown.topk_sample));
        let sampling = fields.resolve(params.max_tokens, logprobs, &policy, api.turns.vocabulary());
        let mut sampling = sampling.map_err(in_own_names)?;
        sampling.adapter = adapter;
        sampling.candidates = shown.targets.as_ref().map(|targets| Arc::new(targets.candidates()));
        api.turns.policies.requests.check_sequences(prompts, sampling.n)?;
        Ok(Self { prompt, sampling, prompts, shown })
    }
}

/// The error of a turn that cannot be sampled.
pub(super) fn refusal(error: TurnError) -> ApiError {
    in_own_names(ApiError::of_prompt_in("prompt", error))
}

/// The same error about fields by their names here.
fn in_own_names(error: ApiError) -> ApiError {
    error.named_by_its_words(&["n", "seed", "stop", "temperature", "top_k", "top_p"]).elsewhere(renamed)
}

fn param(name: &'static str) -> Path {
    Path::from("sampling_params").then(name)
}

/// The fields of a request by their names here.
fn renamed(field: Path) -> Path {
    match field.to_string().as_str() {
        "n" => "num_samples".into(),
        "logprobs" => "topk_sample_logprobs".into(),
        "prompt_logprobs" => "topk_prompt_logprobs".into(),
        "seed" => param("seed"),
        "stop" | "stop_token_ids" => param("stop"),
        "temperature" => param("temperature"),
        "top_k" => param("top_k"),
        "top_p" => param("top_p"),
        // Its name here is not that of chats.
        "max_completion_tokens" | "max_tokens" => Path::from("sampling_params").then("max_tokens".to_owned()),
        _ => field,
    }
}

impl Shown {
    fn new(request: &TinkerSampleRequest, prompt: usize, api: &Api) -> Result<Self, ApiError> {
        let is_scored = request.prompt_logprobs.unwrap_or(false);
        let last = match request.prompt_logprobs_last_n {
            None => prompt,
            Some(_) if !is_scored => {
                let message = "`prompt_logprobs_last_n` needs `prompt_logprobs`";
                return Err(ApiError::invalid("prompt_logprobs_last_n", message));
            }
            Some(last) => {
                let last = usize::try_from(last).ok().filter(|last| (1..prompt).contains(last));
                last.ok_or_else(|| {
                    let most = prompt.saturating_sub(1);
                    let message = format!("`prompt_logprobs_last_n` must be between 1 and {most} for this prompt");
                    ApiError::invalid("prompt_logprobs_last_n", message)
                })?
            }
        };
        let (vocab_size, most) = (api.turns.vocab_size(), api.turns.policies.sampling.max_logprobs);
        let limits = TargetLimits { prompt, vocab_size, most };
        let targets = request.target_prompt_logprobs.as_ref();
        Ok(Self {
            targets: targets.map(|tensor| Targets::new(tensor, limits)).transpose()?,
            prompt_logprobs: is_scored.then_some(last),
            topk_prompt: count("topk_prompt_logprobs", request.topk_prompt_logprobs)?,
            topk_sample: count("topk_sample_logprobs", request.topk_sample_logprobs)?,
        })
    }
}

fn count(field: &'static str, asked: Option<i64>) -> Result<usize, ApiError> {
    usize::try_from(asked.unwrap_or(0)).map_err(|_| ApiError::invalid(field, format!("`{field}` must not be negative")))
}

/// The ids of all pieces of a prompt.
fn prompt(chunks: &[TinkerChunk], api: &Api) -> Result<Arc<[TokenId]>, ApiError> {
    let mut ids = Vec::new();
    for chunk in chunks {
        let kind = chunk.kind.as_deref().unwrap_or("encoded_text");
        let Some(tokens) = chunk.tokens.as_ref().filter(|_| kind == "encoded_text") else {
            let message = format!("a prompt is made of chunks of the type `encoded_text` here, not of `{kind}`");
            return Err(ApiError::invalid("prompt", message));
        };
        ids.extend(api.known_ids("prompt", tokens)?);
    }
    if ids.is_empty() {
        return Err(ApiError::invalid("prompt", "a prompt must have at least one token"));
    }
    api.turns.check_given(&ids).map_err(refusal)?;
    Ok(ids.into())
}
