//! From the wire to a prompt and its sampling: checks every field.

use std::sync::Arc;

use super::{
    derender::{MessageReading, ShownInMessage, unread_message},
    images::ids_with_images,
};
use crate::{
    TokenId,
    engine::PromptImage,
    http::caller::Caller,
    parser::{OutputFormat, ReasoningFormat},
    request_fields::{
        answer_id::answer_id,
        conversation::SessionFields,
        delivery::{AnswerDelivery, delivery},
    },
    state::Api,
    turn::{IdsWithImages, Sampling},
    wire::{
        answer::output::ShownAlternatives,
        error::{
            ApiError,
            validation::{broken_rule, empty_list},
        },
        fields::{
            cache_salt::cache_salt,
            sampling::{known_id, rules::NO_PROMPT_LOGPROBS},
        },
        routed_experts,
        token_io::generate::{GenerateRequest, OutputMode, ReasoningParserKwargs},
    },
};

/// A valid request.
#[derive(Debug)]
pub(super) struct GenerateTurn {
    pub(super) id: String,
    pub(super) session: Option<String>,
    pub(super) prompt_token_ids: Arc<[TokenId]>,
    pub(super) images: Arc<[PromptImage]>,
    pub(super) sampling: Sampling,
    /// How many alternatives to show, if log-probs are reported.
    pub(super) shown: Option<ShownAlternatives>,
    pub(super) return_token_ids: bool,
    pub(super) output_mode: OutputMode,
    /// What is shown of the message, if one is reported.
    pub(super) message: Option<ShownInMessage>,
    pub(super) delivery: AnswerDelivery,
}

impl GenerateTurn {
    pub(super) async fn new(request: GenerateRequest, caller: &Caller, api: &Api) -> Result<Self, ApiError> {
        let IdsWithImages { token_ids: prompt_token_ids, images } =
            ids_with_images(prompt(&request.token_ids, api)?, &request, api).await?;
        check_mode(&request)?;
        let adapter = api.models.find(request.model.as_deref()).await?;
        let stream = request.stream.unwrap_or(false);
        // Stream options without a stream are not refused here, unlike in a chat.
        let delivery = delivery(
            request.stream,
            request.stream_options.filter(|_| stream),
            api.turns.policies.requests.force_include_usage,
        )?;
        let derenders = request.output_mode == OutputMode::Derender;
        let message = derenders.then(|| MessageReading::new(&request, api)).transpose()?;
        // Where other endpoints have it, and where this one has it.
        let return_token_ids =
            request.return_token_ids.or(request.sampling_params.sampling.return_token_ids).unwrap_or(false);
        let unread = unread_message(&request, api)?;
        let mut resolved = request.sampling_params.resolve(prompt_token_ids.len(), api)?;
        resolved.sampling.return_token_ids = return_token_ids;
        let tokenizer = api.turns.tokenizer();
        let message = message.map(|reading| {
            resolved.sampling.count_calls(reading.format.tools.as_ref(), tokenizer);
            resolved.sampling.read(reading.format);
            reading.shown
        });
        let unread = match unread {
            Some(format) => {
                resolved.sampling.count_calls(format.tools.as_ref(), tokenizer);
                format
            }
            None => OutputFormat {
                reasoning: thoughts(request.reasoning_ended, request.reasoning_parser_kwargs, api),
                ..OutputFormat::default()
            },
        };
        resolved.sampling.leave_unread(unread, request.output_mode == OutputMode::Tokens);
        if stream && resolved.sampling.prompt_logprobs.is_some_and(|top| top > 0) {
            return Err(ApiError::invalid("prompt_logprobs", NO_PROMPT_LOGPROBS));
        }
        if stream && resolved.sampling.candidates.is_some() {
            let message = "`prompt_logprob_token_ids` are not available when `stream=True`.";
            return Err(ApiError::invalid("prompt_logprob_token_ids", message));
        }
        resolved.sampling.routes.given = routed_experts::read(request.routed_experts.as_ref())?.map(Arc::new);
        resolved.sampling.adapter = adapter;
        resolved.sampling.cache_salt = cache_salt(request.cache_salt.as_ref())?;
        let (session_id, prompt_cache_key) = (request.session_id, request.prompt_cache_key);
        let named = SessionFields { session_id, prompt_cache_key, ..SessionFields::default() };
        Ok(Self {
            id: answer_id("generate-tokens", &caller.headers, request.request_id.as_deref())?,
            session: named.session(&caller.headers)?,
            prompt_token_ids,
            images,
            sampling: resolved.sampling,
            shown: resolved.shown,
            return_token_ids,
            output_mode: request.output_mode,
            message,
            delivery,
        })
    }
}

/// Returns how thoughts are told that come first, where the request says that they may.
fn thoughts(ended: Option<bool>, kwargs: Option<ReasoningParserKwargs>, api: &Api) -> Option<ReasoningFormat> {
    let variables = match (ended, kwargs) {
        (Some(true), _) | (None, None) => return None,
        (_, kwargs) => kwargs.unwrap_or_default().chat_template_kwargs,
    };
    Some(api.turns.policies.tools.reasoning?.format(&variables))
}

/// Checks that there is the text that a mode needs.
fn check_mode(request: &GenerateRequest) -> Result<(), ApiError> {
    let mode = match request.output_mode {
        OutputMode::Tokens => return Ok(()),
        OutputMode::Text => "text",
        OutputMode::Derender => "derender",
    };
    if !request.sampling_params.makes_text() {
        let rule = format!("output_mode='{mode}' requires sampling_params.detokenize to be true");
        return Err(ApiError::malformed(Some("body".into()), format!("1 validation error:\n  {rule}")));
    }
    Ok(())
}

fn prompt(ids: &[i64], api: &Api) -> Result<Arc<[TokenId]>, ApiError> {
    const FIELD: &str = "token_ids";

    if ids.is_empty() {
        return Err(empty_list(FIELD));
    }
    if ids.iter().any(|&id| id < 0) {
        return Err(broken_rule(FIELD, "token_ids must not contain negative values", ids.len()));
    }
    let vocab_size = api.turns.vocab_size();
    match ids.iter().find(|&&id| known_id(id, vocab_size).is_none()) {
        Some(id) => Err(ApiError::invalid_request(format!("Token id {id} is out of vocabulary"))),
        // All of them were just found to be ids.
        None => Ok(ids.iter().map(|&id| TokenId::try_from(id).unwrap_or_default()).collect()),
    }
}
