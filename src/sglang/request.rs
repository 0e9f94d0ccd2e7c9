//! From the wire to prompts: checks every field that is not about sampling.

use std::sync::Arc;

use super::plan::{SglangPlan, plans, shows_experts};
use crate::{
    TokenId,
    engine::Adapter,
    http::caller::Caller,
    request_fields::{answer_id::check_chosen_id, conversation::SessionFields},
    state::Api,
    tokenizer::Extent,
    wire::{
        error::ApiError,
        sglang::{generate::SglangGenerateRequest, prompts::OneOrMany},
    },
};

const TEXT: &str = "text";
const IDS: &str = "input_ids";

/// One prompt of a request.
#[derive(Debug)]
pub(super) struct SglangPrompt {
    pub(super) token_ids: Arc<[TokenId]>,
    /// What the request is called, for this prompt.
    pub(super) id: String,
    /// What it is called to be aborted: by that, and by the one name of all prompts, if the client gave them one. SGLang ends
    /// whatever begins with the name that it is told.
    pub(super) names: Vec<Arc<str>>,
}

/// A valid request.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "what a request asks for is independent")]
pub(super) struct SglangTurn {
    pub(super) prompts: Vec<SglangPrompt>,
    /// The field that has them.
    pub(super) prompt_field: &'static str,
    /// One for all prompts, or one for each.
    pub(super) plans: Vec<SglangPlan>,
    /// Sequences of each prompt.
    pub(super) n: usize,
    /// Whether prompts came as a list, and the answer is one.
    pub(super) is_batch: bool,
    pub(super) session: Option<String>,
    pub(super) streams: bool,
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
        let adapter = adapter(request.model.as_deref(), request.lora_path.as_deref(), api).await?;
        let count = count(&request);
        if count == 0 {
            return Err(no_prompt());
        }
        // Before each has its plan, and before any text is encoded.
        api.turns.policies.requests.check_sequences(count, 1)?;
        let mut plans = plans(&request, count, api)?;
        let n = plans[0].sampling.n;
        api.turns.policies.requests.check_sequences(count, n)?;
        for plan in &mut plans {
            plan.sampling.adapter.clone_from(&adapter);
        }
        let session = SessionFields { session_id: request.session_id.take(), ..SessionFields::default() };
        let shows_experts = shows_experts(request.return_routed_experts, api)?;
        let prompt_field = if request.text.is_some() { TEXT } else { IDS };
        let (is_batch, prompts) = prompts(&mut request, api).await?;
        let turn = Self {
            prompts: name_prompts(prompts, request.rid)?,
            prompt_field,
            plans,
            n,
            is_batch,
            session: session.session(&caller.headers)?,
            streams: request.stream.unwrap_or(false),
            shows_texts: request.return_text_in_logprobs.unwrap_or(false),
            shows_prompts: request.return_prompt_token_ids.unwrap_or(false),
            shows_experts,
        };
        turn.check_prompts(api)?;
        Ok(turn)
    }

    /// What holds for the prompt with this index.
    pub(super) fn plan(&self, prompt: usize) -> &SglangPlan {
        &self.plans[prompt.min(self.plans.len() - 1)]
    }

    /// Refuses prompts that cannot be scored as asked, and an answer that would be too large.
    fn check_prompts(&self, api: &Api) -> Result<(), ApiError> {
        let planned =
            || self.prompts.iter().enumerate().map(|(index, prompt)| (self.plan(index), prompt.token_ids.len()));
        planned().try_for_each(|(plan, tokens)| plan.check_prompt(tokens))?;
        // Each event of a stream has all scores of its prompt.
        let kept = planned().map(|(plan, tokens)| (&plan.sampling, tokens));
        let kept = kept.filter(|(sampling, _)| !self.streams || sampling.prompt_logprobs.is_some());
        Ok(api.turns.check_answer_sizes(kept)?)
    }
}

/// Returns the adapter that either of the two fields names.
async fn adapter(model: Option<&str>, lora_path: Option<&str>, api: &Api) -> Result<Option<Arc<Adapter>>, ApiError> {
    let [model, lora_path] = [model, lora_path].map(|name| name.filter(|name| !name.is_empty()));
    let adapter = api.models.find(model.or(lora_path)).await?;
    if let (Some(model), Some(lora_path)) = (model, lora_path) {
        let other = api.models.find(Some(lora_path)).await?;
        if adapter.as_deref().map(Adapter::name) != other.as_deref().map(Adapter::name) {
            let message = format!("`lora_path` is {lora_path:?} and `model` is {model:?}: send one of them");
            return Err(ApiError::invalid("lora_path", message));
        }
    }
    Ok(adapter)
}

/// Returns how many prompts there are.
fn count(request: &SglangGenerateRequest) -> usize {
    match (&request.input_ids, &request.text) {
        (Some(OneOrMany::Many(lists)), _) => lists.len(),
        (None, Some(OneOrMany::Many(texts))) => texts.len(),
        _ => 1,
    }
}

/// Returns whether there is a list of prompts, and the ids of each.
async fn prompts(request: &mut SglangGenerateRequest, api: &Arc<Api>) -> Result<(bool, Vec<Arc<[TokenId]>>), ApiError> {
    if request.input_ids.is_some() && request.text.is_some() {
        return Err(ApiError::invalid("text", "`text` and `input_ids` are two prompts: send one of them"));
    }
    let (is_batch, prompts) = match (request.input_ids.take(), request.text.take()) {
        (Some(OneOrMany::One(ids)), _) => (false, vec![known_ids(&ids, api)?]),
        (Some(OneOrMany::Many(lists)), _) => {
            (true, lists.iter().map(|ids| known_ids(ids, api)).collect::<Result<_, _>>()?)
        }
        (None, Some(OneOrMany::One(text))) => (false, vec![encoded(text, api).await?]),
        (None, Some(OneOrMany::Many(texts))) => {
            let mut prompts = Vec::with_capacity(texts.len());
            for text in texts {
                prompts.push(encoded(text, api).await?);
            }
            (true, prompts)
        }
        (None, None) => return Err(ApiError::invalid("input_ids", "either `text` or `input_ids` must be given")),
    };
    if prompts.is_empty() || prompts.iter().any(|prompt| prompt.is_empty()) {
        return Err(no_prompt());
    }
    Ok((is_batch, prompts))
}

fn no_prompt() -> ApiError {
    ApiError::invalid("input_ids", "a prompt must have at least one token")
}

async fn encoded(text: String, api: &Arc<Api>) -> Result<Arc<[TokenId]>, ApiError> {
    let ids = api.turns.encode(text, true, Extent::AtMost(api.turns.max_model_len)).await;
    Ok(ids.map_err(|error| ApiError::of_prompt_in(TEXT, error))?.into())
}

fn known_ids(ids: &[i64], api: &Api) -> Result<Arc<[TokenId]>, ApiError> {
    let ids = api.known_ids(IDS, ids)?;
    api.turns.check_given(&ids).map_err(|error| ApiError::of_prompt_in(IDS, error))?;
    Ok(ids.into())
}

/// Gives each prompt the name that the request has for it, or a fresh one.
fn name_prompts(prompts: Vec<Arc<[TokenId]>>, rid: Option<OneOrMany<String>>) -> Result<Vec<SglangPrompt>, ApiError> {
    let (ids, of_all) = match rid {
        None => (prompts.iter().map(|_| uuid::Uuid::new_v4().simple().to_string()).collect(), None),
        Some(OneOrMany::One(name)) if prompts.len() == 1 => (vec![name], None),
        Some(OneOrMany::One(name)) => ((0..prompts.len()).map(|index| format!("{name}_{index}")).collect(), Some(name)),
        Some(OneOrMany::Many(names)) => (names, None),
    };
    if ids.len() != prompts.len() {
        let (names, prompts) = (ids.len(), prompts.len());
        return Err(ApiError::invalid("rid", format!("`rid` has {names} names, and there are {prompts} prompts")));
    }
    ids.iter().chain(&of_all).try_for_each(|name| check_chosen_id("rid", name))?;
    let named = prompts.into_iter().zip(ids).map(|(token_ids, id)| {
        let names = [&id].into_iter().chain(&of_all).map(|name| name.as_str().into()).collect();
        SglangPrompt { token_ids, id, names }
    });
    Ok(named.collect())
}
