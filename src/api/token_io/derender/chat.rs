//! `POST /v1/chat/completions/derender`: turns ids of `/inference/v1/generate` into a chat completion.

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
    api::chat_completions::{
        ending::ending,
        request::{ChatTurn, refuse_meta_info},
        response::ChatEnvelope,
        shown::ShownInChat,
    },
    http::{caller::Caller, json_body::JsonBody},
    state::Api,
    turn::{Sampling, Truncation},
    wire::{
        answer::{
            output::{DetailedUsage, Usage, created},
            weight_versions::WeightVersionSpan,
        },
        chat_completions::types::{ChatCompletion, ChatCompletionRequest, ChunkToolCall},
        error::{ApiError, validation::missing_of},
        token_io::{
            derender::{
                DerenderChatRequest, DerenderedChat, DerenderedChatChunk, StreamState, WholeChatChoice, WholeChatChunk,
                WholeDelta,
            },
            derender_input::ChoiceToDerender,
        },
    },
};

pub(in crate::api::token_io) fn router() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(derender_chat_completion))
}

/// Puts what `/inference/v1/generate` gave into the chat completion that it is.
///
/// The answer says what `/v1/chat/completions` would have said. Streams are put together event by event: each answer
/// brings a `stream_state` that the next request takes.
#[utoipa::path(
    post,
    path = "/v1/chat/completions/derender",
    tag = "tokens",
    request_body = DerenderChatRequest,
    responses(
        (status = 200, description = "The answer; with `stream` an event of it and the state", body = DerenderedChat),
    )
)]
async fn derender_chat_completion(
    State(api): State<Arc<Api>>,
    JsonBody(mut request): JsonBody<DerenderChatRequest>,
) -> Result<Json<DerenderedChat>, ApiError> {
    api.models.find(request.model.as_deref()).await?;
    if api.turns.policies.tools.parser.is_some() && request.chat_request.is_none() {
        let message = "chat_request is required when a tool or reasoning parser is configured because plain \
                       detokenization would leak raw parser markup into content.";
        return Err(ApiError::invalid_request(message));
    }
    let how = Derendering::new(request.chat_request.take(), &api).await?;
    decoded(move || match request.stream {
        Some(true) => piece(&api, &how, request).map(|chunk| DerenderedChat::Event(Box::new(chunk))),
        _ => whole_answer(&api, &how, request).map(|answer| DerenderedChat::Whole(Box::new(answer))),
    })
    .await
}

/// The request's choices of how the ids become an answer.
struct Derendering {
    sampling: Sampling,
    shown: ShownInChat,
    /// Whether the prompt may be cut off, and where.
    truncation: Option<Truncation>,
}

impl Derendering {
    async fn new(request: Option<Box<ChatCompletionRequest>>, api: &Api) -> Result<Self, ApiError> {
        let Some(request) = request else {
            return Ok(Self { sampling: plain_sampling(api)?, shown: ShownInChat::plain(api), truncation: None });
        };
        refuse_meta_info(&request)?;
        let turn = ChatTurn::new(request, &Caller::default(), api).await?;
        let truncation = turn.turn.prompt.truncation;
        Ok(Self { sampling: turn.turn.sampling, shown: turn.shown, truncation })
    }

    /// Whether a prompt is the whole conversation. One that is as long as a cut one is not known to be.
    fn is_whole(&self, prompt: &[TokenId]) -> bool {
        self.truncation.is_none_or(|truncation| prompt.len() < truncation.limit)
    }

    /// Returns which weights sampled the tokens of a choice, as it says, where the request asks for that.
    fn weight_versions(&self, given: &ChoiceToDerender) -> Option<Vec<WeightVersionSpan>> {
        given.weight_versions.clone().filter(|_| self.sampling.return_weight_versions)
    }

    fn envelope(&self, api: &Arc<Api>, id: String, prompt: &[TokenId], choices: &[ChoiceToDerender]) -> ChatEnvelope {
        let logprobs = choices.iter().any(ChoiceToDerender::has_logprobs);
        let (prompt, shown) = ((prompt.into(), self.is_whole(prompt)), (logprobs, self.shown.clone()));
        ChatEnvelope::of_recording(Arc::clone(api), id, prompt, &self.sampling, shown)
    }
}

fn whole_answer(api: &Arc<Api>, how: &Derendering, request: DerenderChatRequest) -> Result<ChatCompletion, ApiError> {
    let Some(mut response) = request.generate_response else {
        return Err(missing_of("generate_response", 1));
    };
    response.check(limits(api))?;
    check_scores(&how.sampling, &response)?;
    let generated = response.usage.and_then(|usage| usage.prompt_tokens);
    let KnownPrompt { ids: prompt, count: prompt_tokens } = KnownPrompt::new(
        ToldOfPrompt::new(request.prompt_token_ids.as_ref(), request.prompt_tokens),
        ToldOfPrompt::new(response.prompt_token_ids.as_ref(), generated),
        api,
    )?;
    let script = Script::new(prompt.unwrap_or_default().into(), &how.sampling);
    let envelope = how.envelope(api, response.request_id.clone(), prompt.unwrap_or_default(), &response.choices);
    let mut choices = Vec::with_capacity(response.choices.len());
    let (mut sampled, mut thought) = (0, 0);
    for given in &response.choices {
        let completion = script.play(api, given)?;
        sampled += completion.tokens.len();
        thought += completion.reasoning_tokens;
        let sampling_mask = shown_mask(given, &completion.tokens);
        let mut choice = envelope.choice(given.index, completion)?;
        choice.sampling_mask = sampling_mask;
        choice.routed_experts.clone_from(&given.routed_experts);
        if prompt.is_none() {
            (choice.message.tokens, choice.prompt_token_ids) = (None, None);
        }
        if !given.has_logprobs() {
            choice.logprobs = None;
            // The ids alone are what the next turn is continued with.
            if let Some(tokens) = &mut choice.message.tokens {
                tokens.generation_log_probs = None;
            }
        }
        choice.weight_versions = how.weight_versions(given);
        choices.push(choice);
    }
    let known = prompt.filter(|_| how.sampling.return_token_ids).map(<[_]>::to_vec);
    let answer = envelope.answer(Vec::new())?;
    let usage = DetailedUsage::new(Usage::new(prompt_tokens, sampled), None);
    Ok(ChatCompletion {
        model: shown_model(request.model, api),
        choices,
        usage: usage.detailed(envelope.completion_details(thought)),
        prompt_logprobs: response.prompt_logprobs.take(),
        prompt_weight_version: response.prompt_weight_version.take(),
        prompt_token_ids: known,
        ..answer
    })
}

fn piece(api: &Arc<Api>, how: &Derendering, request: DerenderChatRequest) -> Result<DerenderedChatChunk, ApiError> {
    let chunk = event(request.generate_chunk, "derender_chat_stream")?;
    if api.turns.policies.tools.parser.is_some() && request.prompt_token_ids.is_none() {
        let message = "prompt_token_ids is required when a tool or reasoning parser is configured. Without it \
                       parse_delta cannot tell whether the prompt left reasoning open (e.g. a chat template that \
                       pre-opens <think>) and would misclassify reasoning content as plain content.";
        return Err(ApiError::invalid_request(message));
    }
    let KnownPrompt { ids: prompt, count: prompt_tokens } = KnownPrompt::new(
        ToldOfPrompt::new(request.prompt_token_ids.as_ref(), request.prompt_tokens),
        ToldOfPrompt::new(chunk.prompt_token_ids.as_ref(), chunk.usage.and_then(|usage| usage.prompt_tokens)),
        api,
    )?;
    let (text, tokenizer) = (&how.sampling.text, api.turns.tokenizer());
    let mut state = StreamState::of(request.stream_state, prompt, text, tokenizer)?;
    let envelope = how.envelope(api, chunk.request_id.clone(), &[], &chunk.choices);
    let mut choices = Vec::new();
    for given in &chunk.choices {
        choices.push(whole_choice(api, how, &mut state, given, &envelope)?);
    }
    let usage = usage(chunk.usage, prompt_tokens).map(|usage| {
        // The state is that of one choice: it says nothing of several.
        let is_whole = usage.counts(state.output_token_ids.len());
        usage.detailed(envelope.completion_details(state.reasoning_tokens as usize).filter(|_| is_whole))
    });
    let chunk = WholeChatChunk {
        id: chunk.request_id,
        object: "chat.completion.chunk",
        created: created(),
        model: shown_model(request.model, api),
        choices,
        usage,
        system_fingerprint: None,
        // As in vLLM: of the event that has them.
        prompt_token_ids: chunk.prompt_token_ids.filter(|_| how.sampling.return_token_ids),
        prompt_text: None,
        metrics: None,
        kv_transfer_params: None,
    };
    Ok(DerenderedChatChunk { chunk, stream_state: state })
}

fn whole_choice(
    api: &Api,
    how: &Derendering,
    state: &mut StreamState,
    given: &ChoiceToDerender,
    envelope: &ChatEnvelope,
) -> Result<WholeChatChoice, ApiError> {
    let completion = state.script(&how.sampling).play_on(api, state, given)?;
    let mut tool_calls = Vec::new();
    for call in completion.tool_calls.iter().cloned() {
        tool_calls.push(ChunkToolCall::whole(state.last_tool_call_ids.len(), &call));
        state.last_tool_call_ids.push(call.id);
    }
    state.tools_streamed |= !tool_calls.is_empty();
    let ending = |finish| ending(finish, state.tools_streamed, &how.shown.tool_choice);
    let (finish_reason, stop_reason) = completion.finish.as_ref().map(ending).unzip();
    let stop_reason = stop_reason.flatten();
    let is_first = !std::mem::replace(&mut state.role_sent, true);
    let role = is_first.then(|| how.shown.role.clone());
    let echo = how.shown.echo.as_deref().filter(|_| is_first).unwrap_or_default();
    let logprobs = if given.has_logprobs() { envelope.choice_logprobs(&completion.tokens)? } else { None };
    let token_ids = how.sampling.return_token_ids.then(|| completion.token_ids());
    let sampling_mask = shown_mask(given, &completion.tokens);
    let content = Some(echo.to_owned() + &completion.text).filter(|content| !content.is_empty());
    let reasoning = completion.reasoning.filter(|reasoning| how.shown.reasoning && !reasoning.is_empty());
    let delta = WholeDelta { role, content, reasoning, tool_calls };
    let weight_versions = how.weight_versions(given);
    Ok(WholeChatChoice {
        index: given.index,
        delta,
        logprobs,
        finish_reason,
        stop_reason,
        token_ids,
        routed_experts: given.routed_experts.clone(),
        sampling_mask,
        weight_versions,
        dropped_tool_calls: completion.dropped_calls,
    })
}
