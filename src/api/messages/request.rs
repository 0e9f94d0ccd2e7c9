//! From the wire to a turn: checks every field and fills in defaults.

use super::{
    input::{Readable, chat_messages},
    tools::{MessageTools, tool_use},
};
use crate::{
    chat::FunctionTool,
    http::caller::Caller,
    json::Value,
    request_fields::{
        answer_id::answer_id,
        conversation::{CarrierFields, Conversation, SessionFields},
        template_wishes::{effort_without_thinking, wants_system_first},
        tools::{ToolChoice, ToolUse},
    },
    state::Api,
    structured::{Constraint, JsonOptions},
    turn::{Delivery, PromptRequest, Sampling, TextForm, Turn},
    wire::{
        answer::tool_notices::ToolNotices,
        error::ApiError,
        fields::{sampling::Stop, unserved::refuse_unserved},
        messages::types::{JsonOutputFormat, MessagesRequest, Thinking},
    },
};

/// A valid request.
#[derive(Debug)]
pub(in crate::api) struct MessagesTurn {
    pub(in crate::api) id: String,
    pub(in crate::api) turn: Turn,
    /// The choice that the model had about calling tools.
    pub(super) tool_choice: ToolChoice,
    /// The tools that the model is shown, in the head of the prompt or by a reference; `None` if there are none.
    pub(in crate::api) callable_tools: Option<Vec<FunctionTool>>,
    /// What of the tools was not done as the request asks.
    pub(in crate::api) notices: ToolNotices,
    /// The number of tokens in an event in the middle of a stream.
    pub(super) stream_interval: usize,
    pub(super) stream: bool,
}

impl MessagesTurn {
    pub(in crate::api) async fn new(
        mut request: MessagesRequest,
        caller: &Caller,
        api: &Api,
    ) -> Result<Self, ApiError> {
        let adapter = api.models.find(Some(&request.model)).await?;
        let id = answer_id("chatcmpl", &caller.headers, request.request_id.as_deref())?;
        let mut tools = MessageTools::take(&mut request)?;
        tools.refuse_unshown_choice(&request)?;
        let mut sampling = sampling(&mut request, api)?;
        sampling.adapter = adapter;
        let callable_tools = tools.callable();
        let mut used = tool_use(&request, callable_tools.as_deref(), api)?;
        used.constrain(&mut sampling, api.turns.tokenizer())?;
        let ToolUse { choice, format, unforced, .. } = used;
        for what in unforced {
            tools.notices.leave_unforced(what);
        }
        let stream_interval = request.sampling.stream_interval(api.turns.policies.requests.stream_interval)?;
        let truncation = request.sampling.truncation(api.turns.max_model_len, request.max_tokens)?;
        let stream = request.stream.unwrap_or(false);
        let stop_token_ids = sampling.stop_token_ids().to_vec();
        let cache_salt = sampling.cache_salt.clone();
        let adapter = sampling.adapter.clone();
        let stop_strings = sampling.text.stop.clone();
        let conversation =
            Conversation { stop_token_ids, stop_strings, cache_salt, adapter, ..conversation(request, &tools, api)? };
        let system_first = wants_system_first(&conversation.messages, api);
        let mut prompt = PromptRequest { truncation, must_fit: true, ..conversation.into_request(api, caller)? };
        prompt.prompt.system_first = system_first;
        sampling.read(api.turns.policies.tools.output_format(format, &prompt.prompt));
        let turn = Turn {
            prompt,
            sampling,
            client: caller.client,
            names: vec![id.as_str().into()],
            delivery: if stream { Delivery::Streamed } else { Delivery::Whole },
            form: TextForm::Blocks,
        };
        Ok(Self { id, turn, tool_choice: choice, callable_tools, notices: tools.notices, stream_interval, stream })
    }
}

/// Makes the turn of a request whose prompt is counted. Its answer is checked as if it were wanted, so that a request
/// is refused for the same reasons.
pub(super) async fn counted_turn(
    mut request: MessagesRequest,
    caller: &Caller,
    api: &Api,
) -> Result<MessagesTurn, ApiError> {
    // The prompt has to leave room for an answer of one token.
    request.max_tokens.get_or_insert(1);
    MessagesTurn::new(request, caller, api).await
}

/// Whether images are read as parts of the chat: those that are refused for a reason are refused there, with it.
fn sees_images(api: &Api) -> bool {
    api.turns.media.is_some() || api.turns.refused_images.is_some()
}

/// Collects the fields that decide the prompt.
fn conversation(request: MessagesRequest, tools: &MessageTools, api: &Api) -> Result<Conversation, ApiError> {
    refuse_what_is_not_run(&request)?;
    let is_off = request.thinking.as_ref().is_some_and(|thinking| thinking.kind == "disabled");
    let effort = if is_off {
        Some(effort_without_thinking(api).to_owned())
    } else {
        request.output_config.and_then(|config| config.effort)
    };
    let may_not_call = request.tool_choice.as_ref().is_some_and(|choice| choice.kind == "none");
    let hides_tools = may_not_call && api.turns.policies.requests.exclude_tools_when_tool_choice_none;
    let readable = Readable { tools: tools.declared(), images: sees_images(api) };
    let user = request.metadata.as_ref().and_then(|metadata| metadata.get("user_id")).and_then(Value::as_str);
    // Whoever speaks for a user is the last to name the session.
    let named =
        SessionFields { session_id: request.session_id, vllm_xargs: request.vllm_xargs, ..SessionFields::default() };
    let session = named.in_body();
    Ok(Conversation {
        messages: chat_messages(request.system.as_ref(), request.messages, readable)?,
        carriers: CarrierFields {
            required_prefix_token_ids: request.required_prefix_token_ids,
            prompt_token_ids: request.prompt_token_ids,
            kv_transfer_params: request.kv_transfer_params,
            session_id: session.or(user.map(str::to_owned)),
            return_token_continuity: request.return_token_continuity,
            ..CarrierFields::default()
        },
        tools: tools.shown().filter(|_| !hides_tools),
        documents: None,
        reasoning_effort: effort,
        add_generation_prompt: request.add_generation_prompt,
        continue_final_message: request.continue_final_message,
        add_special_tokens: None,
        chat_template: None,
        chat_template_kwargs: request.chat_template_kwargs,
        stop_token_ids: Vec::new(),
        stop_strings: Vec::new(),
        cache_salt: None,
        adapter: None,
        said: request.said,
    })
}

/// Refuses fields that would change the conversation, or that the server would have to run something for.
fn refuse_what_is_not_run(request: &MessagesRequest) -> Result<(), ApiError> {
    // What a list asks for, as `asked_for::has_items` says it of another type of JSON.
    let has_items = |value: &Value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        _ => true,
    };
    refuse_unserved([("mcp_servers", &request.mcp_servers), ("container", &request.container)], has_items)?;
    refuse_edits(request.context_management.as_ref())
}

fn refuse_edits(management: Option<&Value>) -> Result<(), ApiError> {
    const EDITS: &str = "context_management.edits";

    let keeps_all = |edit: &Value| {
        let kind = edit.get("type").and_then(Value::as_str).unwrap_or_default();
        kind.starts_with("clear_thinking") && edit.get("keep").and_then(Value::as_str) == Some("all")
    };
    let (param, reason) = match management {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Object(fields)) => match fields.get("edits") {
            None | Some(Value::Null) => return Ok(()),
            Some(Value::Array(edits)) if edits.iter().all(keeps_all) => return Ok(()),
            Some(Value::Array(_)) => (EDITS, "is not supported by this server: edit the messages"),
            Some(_) => (EDITS, "must be a list"),
        },
        Some(_) => ("context_management", "must be an object"),
    };
    Err(ApiError::invalid(param, format!("`{param}` {reason}")))
}

fn sampling(request: &mut MessagesRequest, api: &Api) -> Result<Sampling, ApiError> {
    api.check_max_tokens("max_completion_tokens", request.max_tokens)?;
    if let Some(stops) = request.stop_sequences.take() {
        if request.sampling.stop.is_some() {
            return Err(ApiError::invalid("stop", "`stop` and `stop_sequences` are the same: send one of them"));
        }
        request.sampling.stop = Some(Stop::Many(stops));
    }
    request.sampling.refuse_sampling_mask()?;
    let vocabulary = api.turns.vocabulary();
    let mut sampling = request.sampling.resolve(request.max_tokens, None, &api.turns.policies.sampling, vocabulary)?;
    keep_thinking_budget(request.thinking.as_ref(), &mut sampling)?;
    if sampling.n > 1 {
        return Err(ApiError::invalid("n", "`n` must be 1: an answer is one message"));
    }
    if sampling.prompt_logprobs.is_some() {
        return Err(ApiError::invalid("prompt_logprobs", "`prompt_logprobs` have no place in a message"));
    }
    if let Some(schema) = output_schema(request)? {
        if sampling.constraint().is_some() {
            let message = "`output_config.format` is the form of the answer: send no other";
            return Err(ApiError::invalid("output_config.format", message));
        }
        sampling.demand(Constraint::Json(schema, JsonOptions::default()));
    }
    Ok(sampling)
}

/// Reads the budget for thoughts, which may stand in two fields.
fn keep_thinking_budget(thinking: Option<&Thinking>, sampling: &mut Sampling) -> Result<(), ApiError> {
    let Some(thinking) = thinking.filter(|thinking| thinking.kind == "enabled") else { return Ok(()) };
    if sampling.thinking_budget.is_some() {
        let message = "`thinking_token_budget` is `thinking.budget_tokens`: send one of them";
        return Err(ApiError::invalid("thinking_token_budget", message));
    }
    // One that is no number of this size is one that no answer could use up.
    let tokens = thinking.budget_tokens.as_ref().and_then(Value::as_i64);
    sampling.thinking_budget = tokens.and_then(|tokens| usize::try_from(tokens).ok());
    Ok(())
}

/// Returns the schema of the answer, which may stand in two fields.
fn output_schema(request: &mut MessagesRequest) -> Result<Option<serde_json::Value>, ApiError> {
    let schema = |param: &str, format: Option<JsonOutputFormat>| match format.map(|format| format.schema) {
        Some(None) => Err(ApiError::invalid(format!("{param}.schema"), format!("`{param}` needs a `schema`"))),
        schema => Ok(schema.flatten()),
    };
    let current = request.output_config.as_mut().and_then(|config| config.format.take());
    match (schema("output_config.format", current)?, schema("output_format", request.output_format.take())?) {
        (Some(_), Some(_)) => {
            Err(ApiError::invalid("output_format", "`output_format` is `output_config.format`: send one of them"))
        }
        (current, older) => Ok(current.or(older)),
    }
}
