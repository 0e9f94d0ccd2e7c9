//! From the wire to a turn: checks every field and fills in defaults.

use std::sync::Arc;

use super::shown::ShownInChat;
use crate::{
    http::caller::Caller,
    request_fields::{
        answer_id::{answer_id, check_chosen_id},
        conversation::{CarrierFields, Conversation},
        delivery::{AnswerDelivery, delivery},
        media_settings::refuse_media_settings,
        sampling::report_prompt,
        tools::{ToolFields, ToolUse},
    },
    sampling::Logprobs,
    sglang::plan::check_mask_mode,
    state::Api,
    turn::{PromptRequest, Sampling, TextForm, Turn},
    wire::{
        answer::tool_notices::ToolNotices,
        chat_completions::{rules::NO_TOP_LOGPROBS, types::ChatCompletionRequest},
        error::ApiError,
        fields::{sampling::rules::NO_PROMPT_LOGPROBS, untyped::not_positive},
        routed_experts,
    },
};

/// A valid request.
#[derive(Debug)]
pub(in crate::api) struct ChatTurn {
    pub(in crate::api) id: String,
    pub(in crate::api) turn: Turn,
    pub(in crate::api) shown: ShownInChat,
    /// The number of tokens in a chunk in the middle of a stream.
    pub(super) stream_interval: usize,
    pub(super) delivery: AnswerDelivery,
    /// What of the tools was not done as the request asks.
    pub(super) notices: ToolNotices,
}

impl ChatTurn {
    pub(in crate::api) async fn new(
        mut request: Box<ChatCompletionRequest>,
        caller: &Caller,
        api: &Api,
    ) -> Result<Self, ApiError> {
        request.sglang.read_into(&mut request.sampling)?;
        request.sglang.check_reasoning(api.turns.policies.tools.reasoning.is_some())?;
        let adapter = api.models.find(request.model.as_deref()).await?;
        let policies = &api.turns.policies;
        let id = answer_id("chatcmpl", &caller.headers, request.request_id.as_deref())?;
        let delivery = delivery(request.stream, request.stream_options, policies.requests.force_include_usage)?;
        refuse_media_settings(request.mm_processor_kwargs.as_ref(), request.media_io_kwargs.as_ref())?;
        if delivery != AnswerDelivery::Json {
            refuse_in_stream("return_meta_info", request.return_meta_info)?;
            refuse_in_stream("return_prompt_token_ids", request.return_prompt_token_ids)?;
            refuse_in_stream("return_routed_experts", request.sglang.return_routed_experts)?;
        }
        let mut tools = tools(&request).resolve(policies.tools)?;
        let (logprobs, top_logprobs) = logprobs(&request)?;
        let max_tokens = max_tokens(&request, api)?;
        let mut sampling = sampling(&request, max_tokens, logprobs, &mut tools, api)?;
        sampling.adapter = adapter;
        if sampling.prompt_logprobs.is_some_and(|top| top > 0) && delivery != AnswerDelivery::Json {
            return Err(ApiError::refused("prompt_logprobs", NO_PROMPT_LOGPROBS, None));
        }
        if request.return_meta_info == Some(true) && sampling.wants_mask() {
            check_mask_mode(api)?;
        }
        let shown = ShownInChat::new(&request, top_logprobs, tools.choice, api)?;
        // A stream has no place for log-probs of the prompt.
        if shown.echo.is_some() && delivery == AnswerDelivery::Json {
            let like_answer = alternatives(request.top_logprobs.unwrap_or(0));
            let vocab_size = api.turns.vocab_size();
            report_prompt(&mut sampling, Some(&like_answer), &policies.sampling, vocab_size)?;
        }
        let names = names(&id, request.sglang.rid.take())?;
        let stream_interval = request.sampling.stream_interval(policies.requests.stream_interval)?;
        let mut notices = ToolNotices::default();
        tools.unforced.into_iter().for_each(|what| notices.leave_unforced(what));
        let prompt = prompt(request, max_tokens, &sampling, caller, api)?;
        sampling.read(policies.tools.output_format(tools.format, &prompt.prompt));
        let turn =
            Turn { prompt, sampling, client: caller.client, names, delivery: delivery.into(), form: TextForm::Whole };
        Ok(Self { id, turn, shown, stream_interval, delivery, notices })
    }
}

/// Returns what the request is called, to abort it by: its id, and what the client calls it in SGLang's words.
fn names(id: &str, rid: Option<String>) -> Result<Vec<Arc<str>>, ApiError> {
    rid.as_deref().map_or(Ok(()), |rid| check_chosen_id("rid", rid))?;
    Ok([id.into()].into_iter().chain(rid.map(Into::into)).collect())
}

/// Refuses a field for which a stream has no place, as in SGLang.
fn refuse_in_stream(field: &'static str, asked: Option<bool>) -> Result<(), ApiError> {
    match asked {
        Some(true) => Err(ApiError::invalid(field, format!("`{field}` is not available in a stream"))),
        _ => Ok(()),
    }
}

/// Refuses the prompt of another path: the messages would be rendered instead of it.
pub(in crate::api) fn refuse_tokens(request: &ChatCompletionRequest) -> Result<(), ApiError> {
    if request.tokens.is_some() {
        let message = "`tokens` is only served on /v1/chat/completions/tokens: send the request there, or send `prompt_token_ids`";
        return Err(ApiError::invalid("tokens", message));
    }
    Ok(())
}

/// Refuses what is about sampled tokens where a chat is put into ids, or ids into its answer, and nothing is sampled.
pub(in crate::api) fn refuse_meta_info(request: &ChatCompletionRequest) -> Result<(), ApiError> {
    let asked = [
        ("return_meta_info", request.return_meta_info),
        ("return_routed_experts", request.sglang.return_routed_experts),
    ];
    match asked.into_iter().find(|(_, asked)| *asked == Some(true)) {
        None => Ok(()),
        Some((field, _)) => {
            let message = format!("`{field}` is about what is sampled, and this call samples nothing");
            Err(ApiError::invalid(field, message))
        }
    }
}

fn tools(request: &ChatCompletionRequest) -> ToolFields<'_> {
    ToolFields {
        tools: request.tools.as_deref(),
        tool_choice: request.tool_choice.as_ref(),
        parallel_tool_calls: request.parallel_tool_calls,
    }
}

/// Returns how many tokens the request asks for, which are no more than the context has.
fn max_tokens(request: &ChatCompletionRequest, api: &Api) -> Result<Option<i64>, ApiError> {
    let (field, asked) = match request.max_completion_tokens {
        Some(asked) => ("max_completion_tokens", Some(asked)),
        None => ("max_tokens", request.max_tokens),
    };
    api.check_max_tokens(field, asked)?;
    Ok(asked)
}

/// Returns how the answer is sampled, with what forces calls.
fn sampling(
    request: &ChatCompletionRequest,
    max_tokens: Option<i64>,
    logprobs: Option<Logprobs>,
    tools: &mut ToolUse,
    api: &Api,
) -> Result<Sampling, ApiError> {
    let vocabulary = api.turns.vocabulary();
    let mut sampling = request.sampling.resolve(max_tokens, logprobs, &api.turns.policies.sampling, vocabulary)?;
    tools.constrain(&mut sampling, vocabulary.tokenizer)?;
    sampling.routes.given = routed_experts::read(request.routed_experts.as_ref())?.map(Arc::new);
    Ok(sampling)
}

/// Returns the conversation with the ids that are known of it, and how it becomes a prompt.
fn prompt(
    request: Box<ChatCompletionRequest>,
    max_tokens: Option<i64>,
    sampling: &Sampling,
    caller: &Caller,
    api: &Api,
) -> Result<PromptRequest, ApiError> {
    let truncation = request.sampling.truncation(api.turns.max_model_len, max_tokens)?;
    let wants_text = request.return_prompt_text.unwrap_or(false);
    let may_not_call = request.tool_choice.as_ref().is_some_and(|choice| choice.as_str() == Some("none"));
    let hides_tools = may_not_call && api.turns.policies.requests.exclude_tools_when_tool_choice_none;
    let conversation = Conversation {
        messages: request.messages,
        carriers: CarrierFields {
            required_prefix_token_ids: request.required_prefix_token_ids,
            prompt_token_ids: request.prompt_token_ids,
            input_ids: request.input_ids,
            tokens: request.tokens,
            kv_transfer_params: request.kv_transfer_params,
            session_id: request.session_id,
            vllm_xargs: request.vllm_xargs,
            prompt_cache_key: request.prompt_cache_key,
            return_token_continuity: request.return_token_continuity,
        },
        tools: request.tools.filter(|_| !hides_tools),
        documents: request.documents,
        reasoning_effort: request.reasoning_effort,
        add_generation_prompt: request.add_generation_prompt,
        continue_final_message: request.continue_final_message,
        add_special_tokens: request.add_special_tokens,
        chat_template: request.chat_template,
        chat_template_kwargs: request.chat_template_kwargs,
        stop_token_ids: sampling.stop_token_ids().to_vec(),
        stop_strings: sampling.text.stop.clone(),
        cache_salt: sampling.cache_salt.clone(),
        adapter: sampling.adapter.clone(),
        said: request.said,
    };
    Ok(PromptRequest { truncation, wants_text, must_fit: true, ..conversation.into_request(api, caller)? })
}

/// Returns as many alternatives as `top_logprobs` asks for; -1 asks for the whole vocabulary.
fn alternatives(top: i64) -> Logprobs {
    if top == -1 { Logprobs::All } else { Logprobs::Top(usize::try_from(top).unwrap_or(usize::MAX)) }
}

/// Reads `top_logprobs`: null counts as 0, since a null that turned log-probs off has emptied training data before.
fn logprobs(request: &ChatCompletionRequest) -> Result<(Option<Logprobs>, Option<usize>), ApiError> {
    let invalid = |message: &str, value| Err(ApiError::refused("top_logprobs", message, value));
    let asked = request.logprobs.unwrap_or(false);
    let top = request.top_logprobs.unwrap_or(0);
    match (asked, top) {
        (false, 0) => Ok((None, None)),
        (_, ..=-2) => invalid(&not_positive("top_logprobs"), Some(top.to_string())),
        (false, _) => invalid(NO_TOP_LOGPROBS, None),
        (true, -1) => Ok((Some(Logprobs::All), None)),
        (true, top) => {
            let top = usize::try_from(top).unwrap_or(usize::MAX);
            // Tokens that the request chose are all shown, however many there are.
            let chosen = request.sampling.logprob_token_ids.as_ref().is_some_and(|ids| !ids.is_empty());
            Ok((Some(Logprobs::Top(top)), (!chosen).then_some(top)))
        }
    }
}
