//! From the wire to a turn: every field checked, defaults filled in.

use axum::http::HeaderMap;

use super::types::ChatCompletionRequest;
use crate::{
    api::{
        Api, answer_id,
        conversation::{CarrierFields, Conversation, PromptTurn},
        error::ApiError,
        sampling::Sampling,
        stream_options::{Delivery, delivery},
        tool_grammar,
        tools::{ToolChoice, ToolFields},
    },
    sampling::Logprobs,
};

/// A valid request.
#[derive(Debug)]
pub(super) struct ChatTurn {
    pub(super) id: String,
    pub(super) prompt: PromptTurn,
    pub(super) sampling: Sampling,
    pub(super) shown: Shown,
    pub(super) delivery: Delivery,
}

/// What the answer shows of what was generated.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) top_logprobs: Option<usize>,
    /// Whether the model could choose to call.
    pub(super) tool_choice: ToolChoice,
    pub(super) reasoning: bool,
}

impl ChatTurn {
    pub(super) fn new(request: ChatCompletionRequest, headers: &HeaderMap, api: &Api) -> Result<Self, ApiError> {
        api.models.check(request.model.as_deref())?;
        let tokenizer = api.renderer.tokenizer();
        let id = answer_id("chatcmpl", headers, request.request_id.as_deref());
        let delivery = delivery(request.stream, request.stream_options)?;
        refuse_unserved(&request)?;
        let tools = ToolFields {
            tools: request.tools.as_deref(),
            tool_choice: request.tool_choice.as_ref(),
            parallel_tool_calls: request.parallel_tool_calls,
        };
        let tools = tools.resolve(api.tools)?;
        let (logprobs, top_logprobs) = logprobs(&request)?;
        let max_tokens = request.max_completion_tokens.or(request.max_tokens);
        let param = if request.max_completion_tokens.is_some() { "max_completion_tokens" } else { "max_tokens" };
        api.check_max_tokens(param, max_tokens)?;
        let mut sampling = request.sampling.resolve(max_tokens, logprobs, &api.sampling, tokenizer)?;
        if let Some(format) = &tools.format
            && let Some(constraint) = tool_grammar::constraint(format, tokenizer)?
        {
            sampling.demand(constraint);
        }
        let shown =
            Shown { top_logprobs, tool_choice: tools.choice, reasoning: request.include_reasoning.unwrap_or(true) };
        if sampling.prompt_logprobs.is_some_and(|top| top > 0) && delivery != Delivery::Json {
            let message = "`prompt_logprobs` are not available when `stream=True`.";
            return Err(ApiError::refused("prompt_logprobs", message, None));
        }
        let conversation = Conversation {
            messages: request.messages,
            carriers: CarrierFields {
                required_prefix_token_ids: request.required_prefix_token_ids,
                prompt_token_ids: request.prompt_token_ids,
                tokens: request.tokens,
                kv_transfer_params: request.kv_transfer_params,
                session_id: request.session_id,
                prompt_cache_key: request.prompt_cache_key,
                return_token_continuity: request.return_token_continuity,
            },
            tools: request.tools,
            documents: request.documents,
            reasoning_effort: request.reasoning_effort,
            add_generation_prompt: request.add_generation_prompt,
            continue_final_message: request.continue_final_message,
            add_special_tokens: request.add_special_tokens,
            chat_template: request.chat_template,
            chat_template_kwargs: request.chat_template_kwargs,
            stop_token_ids: sampling.stop_token_ids().to_vec(),
        };
        let prompt = conversation.into_turn(api, headers)?;
        sampling.read(api.tools.output_format(tools.format, &prompt.prompt));
        Ok(Self { id, prompt, sampling, shown, delivery })
    }
}

fn refuse_unserved(request: &ChatCompletionRequest) -> Result<(), ApiError> {
    if request.echo == Some(true) {
        return Err(ApiError::invalid("echo", "`echo` is not supported on chat completions by this server"));
    }
    Ok(())
}

/// `top_logprobs`: null counts as 0, since a null that turned log-probs off has emptied training data before.
fn logprobs(request: &ChatCompletionRequest) -> Result<(Option<Logprobs>, Option<usize>), ApiError> {
    let invalid = |message: &str, value| Err(ApiError::refused("top_logprobs", message, value));
    let asked = request.logprobs.unwrap_or(false);
    let top = request.top_logprobs.unwrap_or(0);
    match (asked, top) {
        (false, 0) => Ok((None, None)),
        (_, ..=-2) => invalid("`top_logprobs` must be a positive value or -1.", Some(top.to_string())),
        (false, _) => invalid("when using `top_logprobs`, `logprobs` must be set to true.", None),
        (true, -1) => Ok((Some(Logprobs::All), None)),
        (true, top) => {
            let top = usize::try_from(top).unwrap_or(usize::MAX);
            // Chosen tokens are all shown, whatever their number.
            let shown = request.sampling.logprob_token_ids.is_none().then_some(top);
            Ok((Some(Logprobs::Top(top)), shown))
        }
    }
}
