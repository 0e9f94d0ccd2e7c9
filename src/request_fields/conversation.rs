//! The fields that decide a conversation's ids, as `/v1/chat/completions` and `/tokenize` share them.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue};
use time::OffsetDateTime;

use crate::{
    TokenId,
    chat::{FunctionTool, Message, TokenIds},
    continuity::Carriers,
    engine::Adapter,
    http::caller::Caller,
    json::{Object, Path, Value},
    prompt::{
        ChatPrompt, Checks, PromptError,
        template::{ChatTemplate, Patience},
    },
    state::Api,
    trajectory::Said,
    turn::{PromptRequest, RESERVED_TEMPLATE_VARIABLES, RequestPolicy},
    wire::{error::ApiError, fields::chat_messages::two_ends},
};

/// A conversation as it was sent; both endpoints turn it into ids by the same rules.
pub(crate) struct Conversation {
    pub(crate) messages: Vec<Message>,
    pub(crate) carriers: CarrierFields,
    pub(crate) tools: Option<Vec<FunctionTool>>,
    pub(crate) documents: Option<Vec<Value>>,
    pub(crate) reasoning_effort: Option<String>,
    pub(crate) add_generation_prompt: Option<bool>,
    pub(crate) continue_final_message: Option<bool>,
    pub(crate) add_special_tokens: Option<bool>,
    pub(crate) chat_template: Option<Value>,
    pub(crate) chat_template_kwargs: Option<Value>,
    pub(crate) stop_token_ids: Vec<TokenId>,
    pub(crate) stop_strings: Vec<String>,
    /// The salt has been checked.
    pub(crate) cache_salt: Option<Arc<str>>,
    /// The adapter that is asked.
    pub(crate) adapter: Option<Arc<Adapter>>,
    /// What the client says, as it wrote it, where that is captured.
    pub(crate) said: Option<Said>,
}

/// The fields that bring ids, or that name the conversation to which the ids belong.
#[derive(Debug, Default)]
pub(crate) struct CarrierFields {
    pub(crate) required_prefix_token_ids: Option<TokenIds>,
    pub(crate) prompt_token_ids: Option<TokenIds>,
    pub(crate) input_ids: Option<TokenIds>,
    pub(crate) tokens: Option<TokenIds>,
    pub(crate) kv_transfer_params: Option<Value>,
    pub(crate) session_id: Option<String>,
    pub(crate) vllm_xargs: Option<Value>,
    pub(crate) prompt_cache_key: Option<String>,
    pub(crate) return_token_continuity: Option<bool>,
}

/// The header that names the conversation.
pub(crate) const SESSION_HEADER: &str = "x-session-id";

/// The fields of a body that name the session.
#[derive(Debug, Default)]
pub(crate) struct SessionFields {
    pub(crate) session_id: Option<String>,
    pub(crate) vllm_xargs: Option<Value>,
    pub(crate) prompt_cache_key: Option<String>,
}

impl SessionFields {
    /// The session: of the names that are not empty, the header's comes first.
    pub(crate) fn session(self, headers: &HeaderMap) -> Result<Option<String>, ApiError> {
        let header = headers.get(SESSION_HEADER).map(HeaderValue::to_str).transpose();
        let header = header.map_err(|_| ApiError::invalid(SESSION_HEADER, "`X-Session-ID` must be plain text"))?;
        let header = header.filter(|name| !name.is_empty()).map(str::to_owned);
        Ok(header.or_else(|| self.in_body()))
    }

    /// The first of the names in the body that is not empty.
    pub(crate) fn in_body(self) -> Option<String> {
        let argument =
            self.vllm_xargs.as_ref().and_then(|arguments| arguments.get("session_id")).and_then(Value::as_str);
        let argument = argument.map(str::to_owned);
        [self.session_id, argument, self.prompt_cache_key].into_iter().flatten().find(|name| !name.is_empty())
    }
}

impl CarrierFields {
    fn into_carriers(self, caller: &Caller, cache_salt: Option<&Arc<str>>) -> Result<Carriers, ApiError> {
        let overrides = self.kv_transfer_params.as_ref().and_then(|params| params.get("prompt_token_ids"));
        let overrides = overrides.filter(|ids| !ids.is_null()).map(TokenIds::from_value);
        let whole_prompts = [
            ("kv_transfer_params.prompt_token_ids", overrides),
            ("prompt_token_ids", self.prompt_token_ids),
            ("input_ids", self.input_ids),
            ("tokens", self.tokens),
        ];
        let Self { session_id, vllm_xargs, prompt_cache_key, .. } = self;
        let named = SessionFields { session_id, vllm_xargs, prompt_cache_key };
        Ok(Carriers {
            whole_prompts: whole_prompts.into_iter().filter_map(|(name, ids)| Some((name, ids?))).collect(),
            required_prefix_token_ids: self.required_prefix_token_ids,
            session: named.session(&caller.headers)?,
            salt: caller.client.salt(cache_salt),
            adapter: None,
            context_changed: false,
        })
    }
}

impl Conversation {
    /// Checks the fields and makes the request for a prompt.
    pub(crate) fn into_request(self, api: &Api, caller: &Caller) -> Result<PromptRequest, ApiError> {
        let policy = &api.turns.policies.requests;
        let template = self.template(api)?;
        let (add_generation_prompt, continue_final_message) = self.ending()?;
        let asks_for_continuity = self.carriers.return_token_continuity.unwrap_or(false);
        let reasoning_effort = self.reasoning_effort.map(|asked| policy.effort(asked));
        let adapter = self.adapter.map(|adapter| Arc::clone(adapter.name()));
        let carriers = Carriers { adapter, ..self.carriers.into_carriers(caller, self.cache_salt.as_ref())? };
        let prompt = ChatPrompt {
            messages: self.messages,
            tools: self.tools,
            documents: self.documents,
            add_generation_prompt,
            continue_final_message,
            system_first: false,
            template,
            template_kwargs: template_kwargs(self.chat_template_kwargs, reasoning_effort.as_deref(), policy)?,
            reasoning_effort,
            add_special_tokens: self.add_special_tokens.unwrap_or(false),
            stop_token_ids: self.stop_token_ids,
            stop_strings: self.stop_strings,
            known: None,
            now: OffsetDateTime::now_utc().to_offset(api.turns.utc_offset),
            checks: Checks::default(),
            patience: Patience::default(),
        };
        Ok(PromptRequest {
            prompt,
            carriers,
            asks_for_continuity,
            truncation: None,
            wants_text: false,
            must_fit: false,
            continues: None,
            said: self.said,
        })
    }

    /// Returns the template of the request, if it has one and is allowed to.
    fn template(&self, api: &Api) -> Result<Option<Arc<ChatTemplate>>, ApiError> {
        match &self.chat_template {
            None | Some(Value::Null) => Ok(None),
            // As in vLLM, no template is asked.
            Some(_) if api.turns.renderer.is_harmony() => Ok(None),
            Some(_) if !api.turns.policies.requests.trust_request_chat_template => Err(untrusted_template()),
            // vLLM ignores an empty template.
            Some(Value::String(source)) if source.is_empty() => Ok(None),
            Some(Value::String(source)) => match api.turns.renderer.compile(source) {
                Err(PromptError::Template(error)) => Err(ApiError::invalid("chat_template", error.to_string())),
                compiled => Ok(Some(compiled?)),
            },
            Some(_) => Err(ApiError::invalid("chat_template", "`chat_template` must be a string")),
        }
    }

    /// Returns `(add_generation_prompt, continue_final_message)`, by vLLM's rules.
    fn ending(&self) -> Result<(bool, bool), ApiError> {
        if self.messages.is_empty() {
            let message = "Cannot apply chat template to an empty conversation. Provide at least one message.";
            return Err(ApiError::invalid_request(message));
        }
        let continues = self.continue_final_message.unwrap_or(false);
        let message = match (self.add_generation_prompt, continues) {
            (Some(true), true) => return Err(two_ends()),
            (None, true) => {
                "continue_final_message and add_generation_prompt are not compatible. Use continue_final_message when \
                 you want the model to continue the final message, and add_generation_prompt when you want to add a \
                 header that will prompt it to start a new assistant message instead."
            }
            (add, _) => return Ok((add.unwrap_or(true), continues)),
        };
        Err(ApiError::invalid_request(message))
    }
}

/// The variable by which templates of thinking models decide whether the model thinks.
const THINKS: &str = "enable_thinking";

/// Returns the variables of the template. They are the server's defaults, then those of the request, except for null
/// and `auto`, which say nothing; then whether to think at all, which follows from `reasoning_effort` unless the
/// request sets it.
fn template_kwargs(
    kwargs: Option<Value>,
    reasoning_effort: Option<&str>,
    policy: &RequestPolicy,
) -> Result<Object, ApiError> {
    let kwargs = match kwargs {
        None | Some(Value::Null) => Object::default(),
        Some(Value::Object(kwargs)) => kwargs,
        Some(_) => return Err(ApiError::invalid("chat_template_kwargs", "`chat_template_kwargs` must be an object")),
    };
    let template = kwargs.get("chat_template").is_some_and(|template| !template.is_null());
    if template && !policy.trust_request_chat_template {
        return Err(untrusted_template());
    }
    if let Some(name) = RESERVED_TEMPLATE_VARIABLES.iter().find(|name| kwargs.contains_key(**name)) {
        let message = format!("`chat_template_kwargs` cannot set `{name}`");
        return Err(ApiError::invalid(Path::from("chat_template_kwargs").then(*name), message));
    }
    let mut variables = policy.default_chat_template_kwargs.clone();
    match reasoning_effort {
        // This holds even if it is null: then nothing says that the model is to think.
        Some(_) if kwargs.contains_key(THINKS) => drop(variables.entry(THINKS.to_owned()).or_insert(Value::Null)),
        Some(effort) => drop(variables.insert(THINKS.to_owned(), Value::Bool(effort != "none"))),
        None => {}
    }
    let says_something = |value: &Value| !value.is_null() && value.as_str() != Some("auto");
    variables.extend(kwargs.into_iter().filter(|(_, value)| says_something(value)));
    Ok(variables)
}

/// Makes the refusal of a request's template: templates come from the operator, unless the operator trusts those of
/// requests.
fn untrusted_template() -> ApiError {
    ApiError::invalid_request(
        "Chat template is passed with request, but --trust-request-chat-template is not set. Refused request with \
         untrusted chat template.",
    )
}
