//! `POST /v1/chat/completions/derender`: turns ids of `/inference/v1/generate` into a chat completion.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    Script, StreamState, at_most_one,
    given::{GivenChoice, GivenChunk, GivenResponse, ToldCount},
    known_prompt, usage,
};
use crate::{
    TokenId,
    api::{
        Api,
        answer::output::{DetailedUsage, FinishReason, StopReason, Usage},
        body::{
            extract::JsonBody,
            validate::{self, Body, Rules},
        },
        chat_completions::{
            request::ChatTurn,
            response::{ChatEnvelope, ending},
            shown::ShownInChat,
            types::{ChatCompletion, ChatCompletionRequest, ChoiceLogprobs, ChunkToolCall},
        },
        fields::sampling::SamplingFields,
        http::{caller::Caller, error::ApiError, validation_error::missing_of},
    },
    turn::Sampling,
};

pub(in crate::api::token_io) fn router() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(derender_chat_completion))
}

/// An answer of `/inference/v1/generate`, or with `stream` one event of its stream.
#[derive(Debug, Deserialize, ToSchema)]
struct DerenderChatRequest {
    /// Whether an event is to be derendered.
    stream: Option<bool>,
    /// One of the served names; absent or empty is any.
    model: Option<String>,
    /// The answer.
    generate_response: Option<GivenResponse>,
    /// The event.
    generate_chunk: Option<GivenChunk>,
    /// What the event before it gave; null for the first one.
    stream_state: Option<StreamState>,
    /// Tokens of the prompt, for usage; 0 where it is not given.
    prompt_tokens: Option<ToldCount>,
    /// The prompt, as the render gave it.
    prompt_token_ids: Option<Vec<TokenId>>,
    /// The request that was rendered.
    chat_request: Option<ChatCompletionRequest>,
}

impl Body for DerenderChatRequest {
    const RULES: &'static Rules = &validate::ANY;
}

/// A whole answer, or an event of one.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum DerenderedChat {
    Whole(Box<ChatCompletion>),
    Event(Box<DerenderedChatChunk>),
}

/// An event of a completion's stream, and what the next one needs.
#[derive(Debug, Serialize, ToSchema)]
struct DerenderedChatChunk {
    chunk: WholeChatChunk,
    stream_state: StreamState,
}

/// An event with all its fields; those that say nothing are null.
#[derive(Debug, Serialize, ToSchema)]
struct WholeChatChunk {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    choices: Vec<WholeChatChoice>,
    usage: Option<DetailedUsage>,
    system_fingerprint: Option<&'static str>,
    prompt_token_ids: Option<Vec<TokenId>>,
    prompt_text: Option<String>,
    metrics: Option<u8>,
}

/// What an event adds to a choice.
#[derive(Debug, Serialize, ToSchema)]
struct WholeChatChoice {
    index: usize,
    delta: WholeDelta,
    logprobs: Option<ChoiceLogprobs>,
    finish_reason: Option<FinishReason>,
    stop_reason: Option<StopReason>,
    token_ids: Option<Vec<TokenId>>,
}

/// What an event adds to a message.
#[derive(Debug, Serialize, ToSchema)]
struct WholeDelta {
    role: Option<&'static str>,
    content: Option<String>,
    reasoning: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ChunkToolCall>,
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
    api.models.check(request.model.as_deref())?;
    if api.turns.policies.tools.parser.is_some() && request.chat_request.is_none() {
        let message = "chat_request is required when a tool or reasoning parser is configured because plain \
                       detokenization would leak raw parser markup into content.";
        return Err(ApiError::invalid_request(message));
    }
    let how = Derendering::new(request.chat_request.take(), &api)?;
    // Decoding a long answer takes a while, so it has a thread of its own.
    tokio::task::spawn_blocking(move || match request.stream {
        Some(true) => piece(&api, &how, request).map(|chunk| Json(DerenderedChat::Event(Box::new(chunk)))),
        _ => whole(&api, &how, request).map(|answer| Json(DerenderedChat::Whole(Box::new(answer)))),
    })
    .await
    .map_err(ApiError::internal)?
}

/// The request's choices of how the ids become an answer.
struct Derendering {
    sampling: Sampling,
    shown: ShownInChat,
}

impl Derendering {
    fn new(request: Option<ChatCompletionRequest>, api: &Api) -> Result<Self, ApiError> {
        let Some(request) = request else {
            let sampling =
                SamplingFields::default().resolve(None, None, &api.turns.policies.sampling, api.turns.tokenizer())?;
            return Ok(Self { sampling, shown: ShownInChat::plain(api) });
        };
        let turn = ChatTurn::new(request, &Caller::default(), api)?;
        Ok(Self { sampling: turn.turn.sampling, shown: turn.shown })
    }

    fn envelope(&self, api: &Arc<Api>, id: String, prompt: &[TokenId], choices: &[GivenChoice]) -> ChatEnvelope {
        let logprobs = choices.iter().any(GivenChoice::has_logprobs);
        ChatEnvelope::of_recording(Arc::clone(api), id, prompt.into(), &self.sampling, (logprobs, self.shown.clone()))
    }
}

fn whole(api: &Arc<Api>, how: &Derendering, request: DerenderChatRequest) -> Result<ChatCompletion, ApiError> {
    let Some(mut response) = request.generate_response else {
        return Err(missing_of("generate_response", 1));
    };
    response.check(api)?;
    let prompt = known_prompt(request.prompt_token_ids.as_ref(), response.prompt_token_ids.as_ref(), api)?;
    let script = Script::new(prompt.unwrap_or_default().into(), &how.sampling);
    let envelope = how.envelope(api, response.request_id.clone(), prompt.unwrap_or_default(), &response.choices);
    let mut choices = Vec::with_capacity(response.choices.len());
    let mut sampled = 0;
    for given in &response.choices {
        let completion = script.play(api, given)?;
        sampled += completion.tokens.len();
        let mut choice = envelope.choice(given.index, completion)?;
        // The tokens of a message are only shown if they are complete: with log-probs, and with the prompt.
        if !given.has_logprobs() || prompt.is_none() {
            choice.message.tokens = None;
        }
        if !given.has_logprobs() {
            choice.logprobs = None;
        }
        choices.push(choice);
    }
    let known = prompt.filter(|_| how.sampling.return_token_ids).map(<[_]>::to_vec);
    let answer = envelope.answer(Vec::new())?;
    Ok(ChatCompletion {
        model: request.model.filter(|model| !model.is_empty()).unwrap_or(answer.model),
        choices,
        usage: DetailedUsage::new(Usage::new(request.prompt_tokens.unwrap_or(0) as usize, sampled), None),
        prompt_logprobs: response.prompt_logprobs.take(),
        prompt_token_ids: known,
        ..answer
    })
}

fn piece(api: &Arc<Api>, how: &Derendering, request: DerenderChatRequest) -> Result<DerenderedChatChunk, ApiError> {
    let Some(chunk) = request.generate_chunk else {
        return Err(missing_of("generate_chunk", 1));
    };
    at_most_one(&chunk.choices, "derender_chat_stream")?;
    if api.turns.policies.tools.parser.is_some() && request.prompt_token_ids.is_none() {
        let message = "prompt_token_ids is required when a tool or reasoning parser is configured. Without it \
                       parse_delta cannot tell whether the prompt left reasoning open (e.g. a chat template that \
                       pre-opens <think>) and would misclassify reasoning content as plain content.";
        return Err(ApiError::invalid_request(message));
    }
    let prompt = known_prompt(request.prompt_token_ids.as_ref(), chunk.prompt_token_ids.as_ref(), api)?;
    let mut state = StreamState::of(request.stream_state, prompt)?;
    let envelope = how.envelope(api, chunk.request_id.clone(), &[], &chunk.choices);
    let mut choices = Vec::new();
    for given in &chunk.choices {
        choices.push(whole_choice(api, how, &mut state, given, &envelope)?);
    }
    let model = request.model.filter(|model| !model.is_empty()).unwrap_or_else(|| api.models.name().to_owned());
    let chunk = WholeChatChunk {
        id: chunk.request_id,
        object: "chat.completion.chunk",
        created: crate::api::answer::output::created(),
        model,
        choices,
        usage: usage(chunk.usage, request.prompt_tokens),
        system_fingerprint: None,
        prompt_token_ids: None,
        prompt_text: None,
        metrics: None,
    };
    Ok(DerenderedChatChunk { chunk, stream_state: state })
}

fn whole_choice(
    api: &Api,
    how: &Derendering,
    state: &mut StreamState,
    given: &GivenChoice,
    envelope: &ChatEnvelope,
) -> Result<WholeChatChoice, ApiError> {
    let completion = state.script(&how.sampling).play_on(api, state, given)?;
    state.add(&completion.tokens)?;
    let mut tool_calls = Vec::new();
    for call in completion.tool_calls.iter().cloned() {
        tool_calls.push(ChunkToolCall::whole(state.last_tool_call_ids.len(), &call));
        state.last_tool_call_ids.push(call.id);
    }
    state.tools_streamed |= !tool_calls.is_empty();
    let finish = completion.finish.as_ref().map(|finish| ending(finish, state.tools_streamed, &how.shown.tool_choice));
    let (finish_reason, stop_reason) = finish.map_or((None, None), |(reason, stop)| (Some(reason), stop));
    let role = (!std::mem::replace(&mut state.role_sent, true)).then_some("assistant");
    let logprobs = if given.has_logprobs() { envelope.choice_logprobs(&completion.tokens)? } else { None };
    let token_ids = how.sampling.return_token_ids.then(|| completion.token_ids());
    let content = (!completion.text.is_empty()).then_some(completion.text);
    let reasoning = completion.reasoning.filter(|reasoning| how.shown.reasoning && !reasoning.is_empty());
    let delta = WholeDelta { role, content, reasoning, tool_calls };
    Ok(WholeChatChoice { index: given.index, delta, logprobs, finish_reason, stop_reason, token_ids })
}
