//! From the wire to a turn: checks every field, fills in defaults, and puts the stored conversation in front.

use std::sync::Arc;

use super::{
    input::{Folded, is_unfinished, items},
    names::CallNames,
    output::{ShownInResponse, ShownLogprobs, fresh_id},
    places::{Places, named_as_here},
    stored::{context_of, folded, hides_tools},
    tools::{Tools, with_keys},
};
use crate::{
    chat::Message,
    http::caller::Caller,
    json::Value,
    records::{IdReservation, Record, ResponseKey},
    request_fields::{
        answer_id::MOST_OF_A_CHOSEN_ID,
        conversation::{CarrierFields, Conversation},
        media_settings::refuse_media_settings,
        template_wishes::wants_system_first,
    },
    sampling::{Logprobs, ValidSamplingParams},
    state::Api,
    structured::{Constraint, JsonOptions},
    turn::{Delivery, PromptRequest, Prompted, Sampling, TextForm, Turn},
    wire::{
        answer::{output::created, token_continuity::TokenContinuity, tool_notices::ToolNotices},
        error::ApiError,
        fields::structured::rules::no_schema_of_objects,
        responses::types::{
            PromptCacheOptions, RawMessage, ResponseObject, ResponsesRequest, Status, TextConfig, TextFormat,
        },
    },
};

/// The fields that vLLM adds to the objects that it repeats.
const REASONING_KEYS: [&str; 5] = ["context", "effort", "generate_summary", "mode", "summary"];

/// A valid request.
pub(in crate::api) struct ResponseTurn {
    pub(in crate::api) turn: Turn,
    pub(super) shown: ShownInResponse,
    pub(super) stream: bool,
    pub(super) background: bool,
    /// The record to be stored, and the reservation of its id; `None` if nothing is stored.
    pub(super) record: Option<(IdReservation, Record)>,
    pub(super) repeated: Repeated,
    places: Places,
}

/// The fields of a request that its answer repeats.
pub(super) struct Repeated {
    pub(super) id: String,
    pub(super) model: String,
    asks_for_continuity: bool,
    notices: ToolNotices,
    instructions: Option<String>,
    metadata: Option<Value>,
    parallel_tool_calls: bool,
    tool_choice: Value,
    tools: Vec<Value>,
    background: bool,
    max_tool_calls: Option<i64>,
    previous_response_id: Option<String>,
    prompt_cache_options: Option<PromptCacheOptions>,
    prompt_cache_key: Option<String>,
    prompt_cache_retention: Option<String>,
    reasoning: Option<Value>,
    safety_identifier: Option<String>,
    service_tier: String,
    text: Option<TextConfig>,
    top_logprobs: Option<i64>,
    truncation: String,
    user: Option<String>,
}

impl ResponseTurn {
    pub(super) async fn new(mut request: ResponsesRequest, caller: &Caller, api: &Arc<Api>) -> Result<Self, ApiError> {
        refuse_unserved(&request)?;
        let adapter = api.models.find(request.model.as_deref()).await?;
        let id = answer_id(request.request_id.take())?;
        tracing::Span::current().record("id", &id);
        let keeps = request.store.unwrap_or(true);
        let reservation =
            if keeps { Some(api.responses.reserve(ResponseKey::of(caller.client, &*id)).await?) } else { None };
        let stored = match &request.previous_response_id {
            Some(previous) => Some(api.responses.continued(&ResponseKey::of(caller.client, previous)).await?),
            None => None,
        };
        let (context, begins_anew) = context_of(&request, stored.as_ref(), api)?;
        context.apply(&mut request)?;
        let mut tools = Tools::new(request.tools.as_deref().unwrap_or_default())?;
        let (mut sampling, format) = sampling(&mut request, &mut tools, api).map_err(named_as_here)?;
        sampling.adapter = adapter;
        let stream_interval = request.sampling.stream_interval(api.turns.policies.requests.stream_interval)?;
        let shown = ShownInResponse { stream_interval, ..shown_in_response(&request, &sampling, tools.names.clone()) };
        let truncation = request.sampling.truncation(api.turns.max_model_len, request.max_output_tokens.or(Some(1)));
        let truncation = truncation.map_err(named_as_here)?;
        let new_items = items(&request.input)?;
        let goes_on = is_unfinished(&new_items)?;
        let Folded { messages, places, ignored } = folded(&context, stored.as_ref(), begins_anew, &new_items)?;
        let instructed = context.instructions.as_ref().is_some_and(|text| !text.is_empty());
        let places = Places::new(places, &messages, instructed);
        let system_first = wants_system_first(&messages, api);
        for kind in ignored {
            tools.notices.ignore_item(kind);
        }
        let instructions = context.instructions.clone();
        let record = reservation.map(|reservation| (reservation, api.responses.record(context, stored, new_items)));
        let repeated =
            Repeated::new(&request, (id, api.models.answering(sampling.adapter.as_ref())), instructions, &tools);
        let (stream, background) = (request.stream.unwrap_or(false), repeated.background);
        let wants_text = request.enable_response_messages.unwrap_or(false);
        let continues = request.previous_response_id.as_deref().map(Into::into);
        let conversation = Conversation {
            add_generation_prompt: goes_on.then_some(false),
            continue_final_message: goes_on.then_some(true),
            ..conversation(request, messages, &tools, &sampling, api)
        };
        let mut prompt = conversation.into_request(api, caller)?;
        prompt.prompt.system_first = system_first;
        prompt.carriers.context_changed = begins_anew.is_some();
        let prompt = PromptRequest { truncation, wants_text, must_fit: true, continues, ..prompt };
        sampling.read(api.turns.policies.tools.output_format(format, &prompt.prompt));
        let turn = Turn {
            prompt,
            sampling,
            client: caller.client,
            names: vec![repeated.id.as_str().into()],
            // A stream ends with the whole response too, so it is kept in memory.
            delivery: Delivery::Whole,
            form: TextForm::Whole,
        };
        Ok(Self { turn, shown, stream, background, record, repeated, places })
    }

    /// Makes the turn of a response that is only put into ids: it is neither stored nor generated.
    pub(in crate::api) async fn rendered(
        request: ResponsesRequest,
        caller: &Caller,
        api: &Arc<Api>,
    ) -> Result<Self, ApiError> {
        let unstored = ResponsesRequest { store: Some(false), background: None, ..request };
        Self::new(unstored, caller, api).await
    }

    /// Returns the id that the response would have.
    pub(in crate::api) fn id(&self) -> &str {
        &self.repeated.id
    }

    /// Returns what of the tools was not done as the request asks.
    pub(in crate::api) fn notices(&self) -> &ToolNotices {
        &self.repeated.notices
    }

    /// Returns how an error in the terms of a chat is put into those of this response.
    pub(in crate::api) fn names_of_items(&self) -> impl Fn(ApiError) -> ApiError + use<> {
        let places = self.places.clone();
        move |error| places.named(error)
    }
}

/// Refuses fields that cannot be served, instead of ignoring them.
fn refuse_unserved(request: &ResponsesRequest) -> Result<(), ApiError> {
    let set = |value: &Option<Value>| value.as_ref().is_some_and(|value| !value.is_null());
    if set(&request.prompt) {
        return Err(ApiError::invalid_response("prompt", "prompt template is not supported"));
    }
    if set(&request.conversation) {
        let message = "`conversation` is not supported by this server: continue with `previous_response_id`";
        return Err(ApiError::invalid_response("conversation", message));
    }
    if set(&request.previous_input_messages) {
        let message = "`previous_input_messages` is not supported by this server: ids come on items";
        return Err(ApiError::invalid_response("previous_input_messages", message));
    }
    let manages = |wish: &Value| wish.as_array().is_none_or(|edits| !edits.is_empty());
    if set(&request.context_management) && request.context_management.as_ref().is_some_and(manages) {
        let message = "`context_management` is not supported by this server: nothing is compacted";
        return Err(ApiError::invalid_response("context_management", message));
    }
    refuse_media_settings(request.mm_processor_kwargs.as_ref(), request.media_io_kwargs.as_ref())?;
    if request.include_reasoning == Some(false) {
        let message = "`include_reasoning` must be true: a conversation continues from items of reasoning; leave them out \
                       of what you read";
        return Err(ApiError::invalid_response("include_reasoning", message));
    }
    let unserved = [
        ("n", request.sampling.n.is_some_and(|n| n != 1)),
        ("prompt_logprobs", request.sampling.prompt_logprobs.is_some()),
        ("truncate_prompt_tokens", request.sampling.truncate_prompt_tokens.is_some()),
        ("truncation_side", request.sampling.truncation_side.is_some()),
    ];
    if let Some((field, _)) = unserved.iter().find(|(_, is_set)| *is_set) {
        let message = format!("`{field}` is not a field of responses");
        return Err(ApiError::invalid_response(field, message));
    }
    if request.background == Some(true) && request.store == Some(false) {
        let message = "background can only be used when `store` is true";
        return Err(ApiError::invalid_response("background", message));
    }
    Ok(())
}

/// Returns the client's own id, or a fresh one.
fn answer_id(asked: Option<String>) -> Result<String, ApiError> {
    let Some(id) = asked.filter(|id| !id.is_empty()) else { return Ok(fresh_id("resp")) };
    if id.len() > MOST_OF_A_CHOSEN_ID {
        let message = format!("`request_id` is longer than {MOST_OF_A_CHOSEN_ID} bytes");
        return Err(ApiError::invalid_response("request_id", message));
    }
    Ok(id)
}

type Demanded = (Sampling, Option<crate::parser::ToolFormat>);

/// Returns how the answer is sampled, and how calls are parsed.
fn sampling(request: &mut ResponsesRequest, tools: &mut Tools, api: &Api) -> Result<Demanded, ApiError> {
    let vocabulary = api.turns.vocabulary();
    let fields = &mut request.sampling;
    fields.truncate_prompt_tokens = (request.truncation.as_deref() == Some("auto")).then_some(-1);
    let top = request.top_logprobs.unwrap_or(0);
    let Ok(top) = usize::try_from(top) else {
        let message = format!("`top_logprobs` must be at least 0, got {top}");
        return Err(ApiError::invalid_response("top_logprobs", message));
    };
    let logprobs = includes(request, "message.output_text.logprobs").then_some(Logprobs::Top(top));
    if logprobs.is_none() && request.sampling.logprob_token_ids.as_ref().is_some_and(|ids| !ids.is_empty()) {
        let message = "`logprob_token_ids` needs `include`: [\"message.output_text.logprobs\"]";
        return Err(ApiError::invalid("logprob_token_ids", message));
    }
    api.check_max_tokens("max_output_tokens", request.max_output_tokens)?;
    request.sampling.refuse_sampling_mask()?;
    let mut sampling =
        request.sampling.resolve(request.max_output_tokens, logprobs, &api.turns.policies.sampling, vocabulary)?;
    if let Some(format) = request.text.as_ref().and_then(|text| text.format.as_ref())
        && let Some(constraint) = text_constraint(format)?
    {
        if sampling.constraint().is_some() {
            let fields = &request.sampling.structured;
            let other = if fields.structured_outputs.is_some() { "structured_outputs" } else { "response_format" };
            return Err(ApiError::invalid("text.format", format!("Cannot specify both {other} and text.format")));
        }
        sampling.demand(constraint);
    }
    let mut used =
        tools.resolve(request.tool_choice.as_ref(), request.parallel_tool_calls, api.turns.policies.tools)?;
    used.unforced.iter().for_each(|what| tools.notices.leave_unforced(what.clone()));
    used.constrain(&mut sampling, vocabulary.tokenizer)?;
    Ok((sampling, used.format))
}

fn includes(request: &ResponsesRequest, what: &str) -> bool {
    request.include.iter().flatten().any(|included| included == what)
}

fn text_constraint(format: &TextFormat) -> Result<Option<Constraint>, ApiError> {
    let schema = format.schema.as_ref().map(|schema| serde_json::from_str(&schema.to_json_string())).transpose();
    let schema =
        schema.map_err(|error| ApiError::invalid("text.format.schema", format!("not a JSON schema: {error}")))?;
    match (format.kind.as_str(), schema) {
        ("json_object", schema) => {
            no_schema_of_objects("text.format.schema", schema.as_ref())?;
            Ok(Some(Constraint::JsonObject(JsonOptions::default())))
        }
        ("json_schema", Some(schema)) => Ok(Some(Constraint::Json(schema, JsonOptions::default()))),
        ("json_schema", None) => {
            Err(ApiError::invalid("text.format.schema", "`text.format` of type json_schema needs a `schema`"))
        }
        _ => Ok(None),
    }
}

fn shown_in_response(request: &ResponsesRequest, sampling: &Sampling, names: CallNames) -> ShownInResponse {
    let top = request.top_logprobs.and_then(|top| usize::try_from(top).ok()).unwrap_or(0);
    // Ids that the request chose are all shown, as in a chat.
    let chooses = request.sampling.logprob_token_ids.as_ref().is_some_and(|ids| !ids.is_empty());
    let top = (!chooses).then_some(top);
    let logprobs = sampling.wants_logprobs().then_some(ShownLogprobs { top, as_ids: sampling.tokens_as_ids });
    ShownInResponse {
        token_ids: sampling.return_token_ids || sampling.tokens_as_ids || includes(request, "token_ids"),
        logprobs,
        messages: request.enable_response_messages.unwrap_or(false),
        weight_versions: sampling.return_weight_versions,
        stream_interval: 1,
        names,
    }
}

fn conversation(
    request: ResponsesRequest,
    messages: Vec<Message>,
    tools: &Tools,
    sampling: &Sampling,
    api: &Api,
) -> Conversation {
    let hides_tools = hides_tools(request.tool_choice.as_ref(), api);
    let effort = request.reasoning.as_ref().and_then(|reasoning| reasoning.get("effort")?.as_str());
    Conversation {
        messages,
        carriers: CarrierFields {
            required_prefix_token_ids: request.required_prefix_token_ids,
            prompt_token_ids: request.prompt_token_ids,
            input_ids: None,
            tokens: None,
            kv_transfer_params: request.kv_transfer_params,
            session_id: request.session_id,
            vllm_xargs: request.vllm_xargs,
            prompt_cache_key: request.prompt_cache_key,
            return_token_continuity: request.return_token_continuity,
        },
        tools: tools.functions.clone().filter(|_| !hides_tools),
        documents: None,
        reasoning_effort: effort.map(str::to_owned),
        add_generation_prompt: None,
        continue_final_message: None,
        add_special_tokens: None,
        chat_template: request.chat_template,
        chat_template_kwargs: request.chat_template_kwargs,
        stop_token_ids: sampling.stop_token_ids().to_vec(),
        stop_strings: sampling.text.stop.clone(),
        cache_salt: sampling.cache_salt.clone(),
        adapter: sampling.adapter.clone(),
        said: request.said,
    }
}

impl Repeated {
    fn new(
        request: &ResponsesRequest,
        (id, model): (String, String),
        instructions: Option<String>,
        tools: &Tools,
    ) -> Self {
        let choice = request.tool_choice.clone().filter(|choice| !choice.is_null());
        let given = |text: &Option<String>, default: &str| text.clone().unwrap_or_else(|| default.to_owned());
        let object = |value: &Value| with_keys(value, &REASONING_KEYS);
        Self {
            id,
            model,
            asks_for_continuity: request.return_token_continuity.unwrap_or(false),
            notices: tools.notices.clone(),
            instructions,
            metadata: request.metadata.clone(),
            parallel_tool_calls: request.parallel_tool_calls.unwrap_or(true),
            tool_choice: match (&tools.functions, choice) {
                (None, _) => Value::from("none"),
                (Some(_), choice) => choice.unwrap_or_else(|| Value::from("auto")),
            },
            tools: tools.shown.clone(),
            background: request.background.unwrap_or(false),
            max_tool_calls: request.max_tool_calls,
            previous_response_id: request.previous_response_id.clone(),
            prompt_cache_options: request.prompt_cache_options.clone(),
            prompt_cache_key: request.prompt_cache_key.clone(),
            prompt_cache_retention: request.prompt_cache_retention.clone(),
            safety_identifier: request.safety_identifier.clone(),
            reasoning: request.reasoning.as_ref().filter(|value| !value.is_null()).map(object),
            service_tier: given(&request.service_tier, "auto"),
            text: request.text.clone(),
            top_logprobs: request.top_logprobs,
            truncation: given(&request.truncation, "disabled"),
            user: request.user.clone(),
        }
    }

    /// Makes the response as it is before anything is sampled.
    pub(super) fn into_response(
        self,
        prompt: &Prompted,
        params: &ValidSamplingParams,
        shown: &ShownInResponse,
        api: &Api,
    ) -> Result<ResponseObject, ApiError> {
        let token_continuity =
            (shown.token_ids || self.asks_for_continuity).then(|| TokenContinuity::from(&prompt.verdict));
        let input_messages = shown.messages.then(|| raw_prompt(prompt, api)).transpose()?;
        Ok(ResponseObject {
            id: self.id,
            created_at: created(),
            incomplete_details: None,
            instructions: self.instructions,
            metadata: self.metadata,
            model: self.model,
            object: "response",
            output: Vec::new(),
            parallel_tool_calls: self.parallel_tool_calls,
            temperature: params.temperature,
            tool_choice: self.tool_choice,
            tools: self.tools,
            top_p: params.top_p,
            background: self.background,
            max_output_tokens: params.max_tokens,
            max_tool_calls: self.max_tool_calls,
            previous_response_id: self.previous_response_id,
            prompt: None,
            prompt_cache_options: self.prompt_cache_options,
            prompt_cache_key: self.prompt_cache_key,
            prompt_cache_retention: self.prompt_cache_retention,
            reasoning: self.reasoning,
            safety_identifier: self.safety_identifier,
            service_tier: self.service_tier,
            status: Status::Queued,
            text: self.text,
            top_logprobs: self.top_logprobs,
            truncation: self.truncation,
            usage: None,
            user: self.user,
            metrics: None,
            presence_penalty: params.presence_penalty,
            frequency_penalty: params.frequency_penalty,
            kv_transfer_params: None,
            ec_transfer_params: None,
            input_messages,
            output_messages: None,
            weight_versions: None,
            dropped_tool_calls: Vec::new(),
            error: None,
            token_continuity,
            notices: self.notices,
        })
    }
}

/// Returns the prompt as a text and its ids. A prompt that came as ids has the text that they are read as.
fn raw_prompt(prompt: &Prompted, api: &Api) -> Result<Vec<RawMessage>, ApiError> {
    let tokens = prompt.token_ids.to_vec();
    let message = prompt.text.clone().map_or_else(|| api.turns.text_of(&tokens), Ok)?;
    Ok(vec![RawMessage { message, tokens, kind: "raw_message_tokens" }])
}
