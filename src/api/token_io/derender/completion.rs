//! `POST /v1/completions/derender`: turns ids of `/inference/v1/generate` into a text completion.

use std::sync::Arc;

use axum::{Json, extract::State};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    Script, check_scores, decoded, event,
    known_prompt::{KnownPrompt, ToldOfPrompt},
    limits, plain_sampling, shown_mask, shown_model, usage,
};
use crate::{
    TokenId,
    api::completions::{
        request::{CompletionTurn, Prompt},
        response::CompletionEnvelope,
    },
    http::{caller::Caller, json_body::JsonBody},
    json::Path,
    request_fields::delivery::AnswerDelivery,
    state::Api,
    wire::{
        answer::output::{DetailedUsage, ShownAlternatives, Usage, created, finish_fields},
        completions::{
            prompt_input::PromptInput,
            types::{CompletionAnswer, CompletionChunkChoice, CompletionRequest},
        },
        error::{
            ApiError,
            validation::{missing_of, not_a_list},
        },
        token_io::{
            derender::{
                DerenderCompletionRequest, DerenderedCompletion, DerenderedCompletionChunk, PromptIds, PromptTokens,
                StreamState, WholeCompletionChunk,
            },
            derender_input::{ChoiceToDerender, TokenCount},
        },
    },
};

pub(in crate::api::token_io) fn router() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(derender_completion))
}

/// Puts what `/inference/v1/generate` gave into the text completion that it is.
///
/// The answer says what `/v1/completions` would have said. Streams are put together event by event: each answer brings a
/// `stream_state` that the next request of the same choice takes.
#[utoipa::path(
    post,
    path = "/v1/completions/derender",
    tag = "tokens",
    request_body = DerenderCompletionRequest,
    responses(
        (status = 200, description = "The answer; with `stream` an event of it and the state", body = DerenderedCompletion),
    )
)]
async fn derender_completion(
    State(api): State<Arc<Api>>,
    JsonBody(mut request): JsonBody<DerenderCompletionRequest>,
) -> Result<Json<DerenderedCompletion>, ApiError> {
    api.models.find(request.model.as_deref()).await?;
    let turn = turn(request.completion_request.take(), &api).await?;
    decoded(move || match request.stream {
        Some(true) => piece(&api, turn, request).map(|chunk| DerenderedCompletion::Event(Box::new(chunk))),
        _ => whole_answer(&api, turn, request).map(|answer| DerenderedCompletion::Whole(Box::new(answer))),
    })
    .await
}

/// Resolves how ids become an answer: as the request says, or by the defaults.
async fn turn(request: Option<CompletionRequest>, api: &Arc<Api>) -> Result<CompletionTurn, ApiError> {
    let Some(mut request) = request else {
        return Ok(CompletionTurn {
            id: String::new(),
            session: None,
            prompts: Vec::new(),
            truncation: None,
            sampling: plain_sampling(api)?,
            logprobs: None,
            delivery: AnswerDelivery::Json,
            echo: false,
            prompt_only: false,
            stream_interval: 1,
        });
    };
    if request.echo == Some(true) && (request.logprobs.is_some() || request.max_tokens == Some(0)) {
        let message = "`echo` with log-probs, or without tokens, cannot be derendered: ask for the completion itself";
        return Err(ApiError::invalid("echo", message));
    }
    // Prompts are only looked at if they are repeated.
    if request.echo != Some(true) {
        request.prompt = Some(PromptInput::Ids(vec![0]));
    }
    CompletionTurn::new(request, &Caller::default(), api).await
}

fn whole_answer(
    api: &Arc<Api>,
    mut turn: CompletionTurn,
    request: DerenderCompletionRequest,
) -> Result<CompletionAnswer, ApiError> {
    let Some(responses) = request.generate_responses else {
        return Err(missing_of("generate_responses", 1));
    };
    let Some(first) = responses.first() else {
        return Err(ApiError::invalid_request("generate_responses must not be empty"));
    };
    let (count, most) = (responses.len(), api.turns.policies.requests.max_sequences);
    if count > most {
        let message = format!("generate_responses count ({count}) exceeds server maximum ({most}).");
        return Err(ApiError::invalid_request(message));
    }
    let counts = each_count(request.prompt_tokens, responses.len())?;
    let prompt_ids = each_prompt(request.prompt_token_ids, responses.len())?;
    if turn.echo && turn.prompts.len() != responses.len() {
        return Err(ApiError::invalid("echo", "the request has another number of prompts than there are answers"));
    }
    turn.id.clone_from(&first.request_id);
    let shown = turn.logprobs.unwrap_or(ShownAlternatives(None));
    turn.logprobs =
        responses.iter().flat_map(|response| &response.choices).any(ChoiceToDerender::has_logprobs).then_some(shown);
    let tells_weights = turn.sampling.return_weight_versions;
    let echoed = std::mem::take(&mut turn.prompts);
    let (mut completions, mut prompt_tokens, mut sampled) = (Vec::new(), 0, 0);
    for (index, response) in responses.iter().enumerate() {
        response.check(limits(api))?;
        check_scores(&turn.sampling, response)?;
        let generated = response.usage.and_then(|usage| usage.prompt_tokens);
        let KnownPrompt { ids: prompt, count } = KnownPrompt::new(
            ToldOfPrompt::new(prompt_ids[index].as_ref(), counts[index]),
            ToldOfPrompt::new(response.prompt_token_ids.as_ref(), generated),
            api,
        )?;
        prompt_tokens += count;
        let script = Script::new(prompt.unwrap_or_default().into(), &turn.sampling);
        for given in &response.choices {
            let completion = script.play(api, given)?;
            sampled += completion.tokens.len();
            let weights = given.weight_versions.clone().filter(|_| tells_weights);
            let scores = (response.prompt_logprobs.clone(), response.prompt_weight_version.clone());
            completions.push((completion, given, prompt.is_some(), weights, scores));
            let text = echoed.get(index).and_then(|prompt| prompt.text.clone()).filter(|_| turn.echo);
            let token_ids = Arc::clone(&script.prompt_token_ids);
            turn.prompts.push(Prompt { token_ids, text, verdict: None, recorder: None });
        }
    }
    // Each choice has its own prompt in the list, and says itself which weights sampled it.
    turn.sampling.n = 1;
    let envelope = CompletionEnvelope::new(Arc::clone(api), turn);
    let mut choices = Vec::with_capacity(completions.len());
    for (index, (completion, given, knows_prompt, weights, scores)) in completions.into_iter().enumerate() {
        let mut choice = envelope.choice(index, &completion)?;
        choice.logprobs = choice.logprobs.filter(|_| given.has_logprobs());
        choice.prompt_token_ids = choice.prompt_token_ids.filter(|_| knows_prompt);
        choice.weight_versions = weights;
        (choice.prompt_logprobs, choice.prompt_weight_version) = scores;
        choice.sampling_mask = shown_mask(given, &completion.tokens);
        choice.routed_experts.clone_from(&given.routed_experts);
        choices.push(choice);
    }
    let answer = envelope.answer(&[])?;
    Ok(CompletionAnswer {
        model: shown_model(request.model, api),
        choices,
        usage: DetailedUsage::new(Usage::new(prompt_tokens, sampled), None),
        ..answer
    })
}

/// Returns the length of each prompt in tokens.
fn each_count(counts: Option<PromptTokens>, responses: usize) -> Result<Vec<Option<TokenCount>>, ApiError> {
    match counts {
        None => Ok(vec![None; responses]),
        Some(PromptTokens::Each(counts)) if counts.len() == responses => Ok(counts.into_iter().map(Some).collect()),
        Some(PromptTokens::Each(counts)) => Err(mismatch("prompt_tokens", counts.len(), responses)),
        Some(PromptTokens::One(count)) => Err(not_a_list("prompt_tokens", &count.to_string())),
    }
}

/// Returns the prompt of each answer.
fn each_prompt(prompts: Option<PromptIds>, responses: usize) -> Result<Vec<Option<Vec<TokenId>>>, ApiError> {
    match prompts {
        None => Ok(vec![None; responses]),
        // An empty list may also be a list of no lists.
        Some(PromptIds::One(ids)) if ids.is_empty() => Err(mismatch("prompt_token_ids", 0, responses)),
        Some(PromptIds::One(ids)) => Err(not_a_list(Path::from("prompt_token_ids").then(0), &ids[0].to_string())),
        Some(PromptIds::Each(lists)) if lists.len() == responses => Ok(lists),
        Some(PromptIds::Each(lists)) => Err(mismatch("prompt_token_ids", lists.len(), responses)),
    }
}

fn mismatch(field: &str, length: usize, responses: usize) -> ApiError {
    let message =
        format!("1 validation error:\n  {field} length ({length}) must equal generate_responses length ({responses})");
    ApiError::malformed(Some("body".into()), message)
}

fn piece(
    api: &Arc<Api>,
    mut turn: CompletionTurn,
    request: DerenderCompletionRequest,
) -> Result<DerenderedCompletionChunk, ApiError> {
    let chunk = event(request.generate_chunk, "derender_completion_stream")?;
    let asked = match request.prompt_token_ids {
        None => None,
        Some(PromptIds::One(ids)) => Some(ids),
        Some(PromptIds::Each(_)) => return Err(not_a_list("prompt_token_ids", "a list of lists")),
    };
    let prompt_tokens = match request.prompt_tokens {
        None => None,
        Some(PromptTokens::One(count)) => Some(count),
        Some(PromptTokens::Each(_)) => return Err(not_a_list("prompt_tokens", "a list")),
    };
    if turn.echo {
        return Err(ApiError::invalid("echo", "`echo` cannot be derendered in a stream"));
    }
    let KnownPrompt { ids: prompt, count: prompt_tokens } = KnownPrompt::new(
        ToldOfPrompt::new(asked.as_ref(), prompt_tokens),
        ToldOfPrompt::new(chunk.prompt_token_ids.as_ref(), chunk.usage.and_then(|usage| usage.prompt_tokens)),
        api,
    )?;
    let (text, tokenizer) = (&turn.sampling.text, api.turns.tokenizer());
    let mut state = StreamState::of(request.stream_state, prompt, text, tokenizer)?;
    turn.logprobs = Some(turn.logprobs.unwrap_or(ShownAlternatives(None)));
    let (script, return_token_ids) = (state.script(&turn.sampling), turn.sampling.return_token_ids);
    let tells_weights = turn.sampling.return_weight_versions;
    let envelope = CompletionEnvelope::new(Arc::clone(api), turn);
    let mut choices = Vec::new();
    for given in &chunk.choices {
        let completion = script.play_on(api, &mut state, given)?;
        let (finish_reason, stop_reason) = completion.finish.as_ref().map(finish_fields).unzip();
        let (logprobs, offset) = envelope.logprobs(&completion.tokens, state.logprob_text_offset as usize)?;
        state.set_logprob_text_offset(offset)?;
        choices.push(CompletionChunkChoice {
            index: given.index,
            logprobs: logprobs.filter(|_| given.has_logprobs()),
            finish_reason,
            stop_reason: stop_reason.flatten(),
            // As in vLLM: of the event that has them.
            prompt_token_ids: chunk.prompt_token_ids.clone().filter(|_| return_token_ids),
            token_ids: return_token_ids.then(|| completion.token_ids()),
            routed_experts: given.routed_experts.clone(),
            sampling_mask: shown_mask(given, &completion.tokens),
            weight_versions: given.weight_versions.clone().filter(|_| tells_weights),
            text: completion.text,
        });
    }
    let chunk = WholeCompletionChunk {
        id: chunk.request_id,
        object: "text_completion",
        created: created(),
        model: shown_model(request.model, api),
        choices,
        usage: usage(chunk.usage, prompt_tokens),
        system_fingerprint: None,
        metrics: None,
        kv_transfer_params: None,
    };
    Ok(DerenderedCompletionChunk { chunk, stream_state: state })
}
