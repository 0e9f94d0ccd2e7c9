//! The public HTTP API: one folder or file for each endpoint, and what all of them answer with.
//!
//! Owns wire shapes, the error table and server-sent events. Refuses logic that does not depend on a wire shape.

mod answer_size;
mod cache_salt;
mod caller;
mod capability;
mod chat_completions;
mod compiler;
mod completions;
mod conversation;
mod derender;
mod docs;
mod document;
mod error;
mod extract;
mod generate;
mod health;
mod in_flight;
mod invocations;
mod memory;
mod messages;
mod models;
mod output;
mod party;
mod policy;
mod render;
mod repetition;
mod request_templates;
mod responses;
mod sampling;
mod sanitize;
mod server_load;
mod slashes;
mod sse;
mod stream_interval;
mod stream_options;
mod structured;
mod thinking_budget;
mod token_continuity;
mod tokenize;
mod tokenizer_info;
mod tools;
mod truncation;
mod validate;

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::Request,
    http::{HeaderMap, Method, header::ALLOW},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use time::UtcOffset;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

pub use caller::Identity;
pub use compiler::StructuredOutputCompiler;
pub use docs::Docs;
pub use error::ApiError;
pub use in_flight::{BytesInFlight, Reservation, inherited, within};
pub use models::ServedModels;
pub use policy::RequestPolicy;
pub use request_templates::RequestTemplates;
pub use responses::Responses;
pub use sampling::SamplingPolicy;
pub use server_load::ServerLoad;
pub use slashes::Https;
pub use tokenizer_info::TokenizerInfo;
pub use tools::ToolPolicy;

use crate::{
    TokenId,
    continuity::{Continuity, ContinuityPolicy, Recorder},
    engine::{Engine, EngineInfo},
    generation::{GenerationRequest, Generator},
    model::EosTokens,
    prompt::{PromptError, PromptRenderer, Provenance, RenderedPrompt},
    store::MemoryStore,
    tokenizer::Extent,
};
use caller::Caller;
use conversation::PromptTurn;
use document::Document;
use request_templates::GivesUp;
use sampling::Sampling;
use slashes::Paths;
use token_continuity::TokenContinuity;
use truncation::Truncation;

/// What responses may take up, and how long they are kept, where no flag says so.
const RESPONSE_BYTES: u64 = 1 << 24;
const RESPONSE_TTL: Duration = Duration::from_hours(1);

/// What every endpoint works with.
pub struct Api {
    /// Conversations to ids.
    pub renderer: PromptRenderer,
    /// Ids to events.
    pub generator: Generator,
    /// The names that are served.
    pub models: ServedModels,
    /// Which ids are known for a conversation.
    pub continuity: Continuity,
    /// What the server decides about sampling.
    pub sampling: SamplingPolicy,
    /// What outputs must be, as grammars.
    pub structured: StructuredOutputCompiler,
    /// What the server decides about tool calls.
    pub tools: ToolPolicy,
    /// What the server decides about conversations and their answers.
    pub requests: RequestPolicy,
    /// Whether usage says how much of a prompt was cached.
    pub prompt_tokens_details: bool,
    /// The longest sequence, prompt and output together.
    pub max_model_len: usize,
    /// The time zone of templates that print the date.
    pub utc_offset: UtcOffset,
    /// Requests that are being served.
    pub server_load: ServerLoad,
    /// What `/tokenizer_info` answers, if it does.
    pub tokenizer_info: Option<TokenizerInfo>,
    /// Responses that can be asked for and continued by their ids.
    pub responses: Responses,
    /// Whose turn it is among the templates of requests.
    pub request_templates: RequestTemplates,
}

/// A conversation in ids.
struct Prompted {
    token_ids: Arc<[TokenId]>,
    verdict: TokenContinuity,
    /// The client wants to see it, whether or not it wants ids.
    asks_for_continuity: bool,
    /// Some of the ids are the client's own.
    has_known_ids: bool,
    /// The conversation was too long, and a part of it was cut off.
    is_cut: bool,
    /// The conversation as text, where `prompt_text` is asked for and there is one.
    text: Option<String>,
    /// Remembers the answers.
    recorder: Option<Recorder>,
    /// The session that the conversation belongs to.
    session: Option<String>,
}

impl Api {
    /// Of a model whose generations end with one of `eos`, without a flag: vLLM's defaults, nothing remembered but
    /// responses, no tools and no sampling defaults of the model.
    pub fn new(renderer: PromptRenderer, engine: Arc<dyn Engine>, models: ServedModels, eos: &EosTokens) -> Self {
        let tokenizer = Arc::clone(renderer.tokenizer());
        let EngineInfo { vocab_size, max_model_len, .. } = *engine.info();
        let ends = eos.primary.into_iter().chain(eos.others.iter().copied());
        let store = MemoryStore::new(RESPONSE_BYTES, RESPONSE_TTL);
        Self {
            structured: StructuredOutputCompiler::new(Arc::clone(&tokenizer), ends),
            generator: Generator::new(engine, tokenizer),
            renderer,
            models,
            continuity: Continuity::new(ContinuityPolicy::default(), vocab_size),
            sampling: SamplingPolicy::new(eos),
            tools: ToolPolicy::default(),
            requests: RequestPolicy::default(),
            prompt_tokens_details: false,
            max_model_len,
            utc_offset: UtcOffset::UTC,
            server_load: ServerLoad::default(),
            tokenizer_info: None,
            responses: Responses::new(Arc::new(store)),
            request_templates: RequestTemplates::default(),
        }
    }

    /// Puts a conversation into ids, away from the threads that serve connections. It ends early where the client does
    /// not wait for it.
    async fn prompt(self: &Arc<Self>, turn: PromptTurn) -> Result<Prompted, ApiError> {
        let _waiting = GivesUp(turn.prompt.patience.clone());
        // Templates of requests may take all that a render may, so few of them run at a time.
        let turn_of_template = match turn.prompt.template {
            Some(_) => Some(self.request_templates.turn().await?),
            None => None,
        };
        let api = Arc::clone(self);
        let prompting = move || {
            let _turn_of_template = turn_of_template;
            api.prompt_blocking(turn)
        };
        in_flight::blocking(prompting).await?
    }

    fn prompt_blocking(&self, turn: PromptTurn) -> Result<Prompted, ApiError> {
        let PromptTurn { mut prompt, carriers, asks_for_continuity, truncation, wants_text, must_fit } = turn;
        let extent = match truncation {
            Some(truncation) => truncation.extent(),
            None if must_fit => Extent::AtMost(self.max_model_len),
            None => Extent::Whole,
        };
        let mut found = self.continuity.find(&mut prompt, &carriers, asks_for_continuity)?;
        let mut rendered = match found.take_whole_prompt() {
            Some(token_ids) => RenderedPrompt::given(token_ids),
            None => self.renderer.render_part(&prompt, extent).inspect_err(|error| {
                if let PromptError::Unprovable(reason) = error {
                    self.continuity.count_refusal(&found, *reason);
                }
            })?,
        };
        if must_fit && truncation.is_none() && matches!(rendered.provenance, Provenance::Rendered) {
            self.check_encoded(&rendered.token_ids)?;
        }
        let has_known_ids = !matches!(rendered.provenance, Provenance::Rendered | Provenance::Retokenized(_));
        let cut = truncation.filter(|truncation| truncation.cuts(rendered.token_ids.len()));
        if let Some(truncation) = cut {
            self.truncate(&mut rendered, truncation, prompt.add_special_tokens)?;
        }
        let (verdict, recorder) = self.continuity.conclude(found, &prompt, &rendered)?;
        let verdict = TokenContinuity::from(&verdict);
        // Later turns start with the whole conversation, not with what was left of it for this one.
        let recorder = recorder.filter(|_| cut.is_none());
        let text = if wants_text { self.prompt_text(&mut rendered)? } else { None };
        let (token_ids, is_cut) = (rendered.token_ids, cut.is_some());
        let session = carriers.session;
        Ok(Prompted { token_ids, verdict, asks_for_continuity, has_known_ids, is_cut, text, recorder, session })
    }

    /// Cuts a prompt that is too long; ids that the client or the cache vouches for are never cut.
    fn truncate(
        &self,
        rendered: &mut RenderedPrompt,
        truncation: Truncation,
        add_special_tokens: bool,
    ) -> Result<(), ApiError> {
        if !matches!(rendered.provenance, Provenance::Rendered | Provenance::Retokenized(_)) {
            let message = "`truncate_prompt_tokens` would cut token ids that this prompt has to start with";
            return Err(ApiError::invalid("truncate_prompt_tokens", message));
        }
        let ids = rendered.token_ids.to_vec();
        rendered.token_ids = truncation.of_encoded(ids, add_special_tokens, self.renderer.tokenizer())?.into();
        Ok(())
    }

    /// The text of a prompt: what the template wrote or, with known ids in it, what all ids say. As in vLLM, a prompt
    /// that came in ids has none.
    fn prompt_text(&self, rendered: &mut RenderedPrompt) -> Result<Option<String>, ApiError> {
        match (rendered.text.take(), rendered.provenance) {
            (None, Provenance::Given) => Ok(None),
            (Some(text), _) => Ok(Some(text)),
            (None, _) => Ok(Some(self.renderer.tokenizer().decode(&rendered.token_ids, false)?)),
        }
    }

    /// Ids that the model knows, which may be more than the tokenizer's.
    fn vocab_size(&self) -> usize {
        self.generator.engine().info().vocab_size
    }

    /// Encodes as much of a text as is wanted, away from the threads that serve connections.
    async fn encode(
        self: &Arc<Self>,
        text: String,
        add_special_tokens: bool,
        extent: Extent,
    ) -> Result<Vec<TokenId>, ApiError> {
        let tokenizer = Arc::clone(self.renderer.tokenizer());
        let encoded = in_flight::blocking(move || tokenizer.encode_part(&text, add_special_tokens, extent)).await??;
        if matches!(extent, Extent::AtMost(_)) {
            self.check_encoded(&encoded)?;
        }
        Ok(encoded)
    }

    /// Refuses a text that has more ids than the context holds, of which some may have been left out.
    fn check_encoded(&self, ids: &[TokenId]) -> Result<(), ApiError> {
        if ids.len() > self.max_model_len {
            return Err(ApiError::prompt_too_long(ids.len(), self.max_model_len, true));
        }
        Ok(())
    }

    /// Refuses ids of the client's own that are more than the context holds; what is encoded here is checked later.
    fn check_given(&self, ids: &[TokenId]) -> Result<(), ApiError> {
        if ids.len() > self.max_model_len {
            return Err(ApiError::prompt_too_long(ids.len(), self.max_model_len, false));
        }
        Ok(())
    }

    /// Refuses a request for more tokens than there is context; `param` is the field that says so.
    fn check_max_tokens(&self, param: &str, asked: Option<i64>) -> Result<(), ApiError> {
        match asked {
            Some(asked) if usize::try_from(asked).is_ok_and(|tokens| tokens > self.max_model_len) => {
                Err(ApiError::too_many_tokens(param, asked, self.max_model_len))
            }
            _ => Ok(()),
        }
    }

    /// The sequences to generate for a prompt that must leave room for output; what the output must be is compiled.
    async fn sequences(
        &self,
        caller: &Caller,
        session: Option<&str>,
        prompt: &Arc<[TokenId]>,
        sampling: &mut Sampling,
    ) -> Result<GenerationRequest, ApiError> {
        in_flight::release();
        self.requests.check_sequences(1, sampling.n)?;
        self.structured.constrain(sampling, prompt, self.vocab_size()).await?;
        if prompt.is_empty() {
            return Err(ApiError::invalid_request("The decoder prompt cannot be empty"));
        }
        let room = self.max_model_len.saturating_sub(prompt.len());
        if room == 0 {
            return Err(ApiError::prompt_too_long(prompt.len(), self.max_model_len, true));
        }
        let (owner, salt) = (caller.owner(), caller.salt(sampling.cache_salt.as_ref()));
        Ok(GenerationRequest {
            prompt_token_ids: Arc::clone(prompt),
            sequences: sampling.n,
            party: party::party(owner.clone(), session),
            sampling: sampling.params(room)?,
            prompt_logprobs: sampling.prompt_logprobs,
            cache_salt: salt,
            text: Arc::clone(&sampling.text),
            owner,
            request_ids: Arc::default(),
        })
    }
}

/// The id of an answer: the client's own, from the header or the body, or a fresh one.
fn answer_id(prefix: &str, headers: &HeaderMap, request_id: Option<&str>) -> String {
    let header = headers.get("x-request-id").and_then(|value| value.to_str().ok());
    let id = match header.or(request_id).filter(|id| !id.is_empty()) {
        Some(id) => format!("{prefix}-{id}"),
        None => format!("{prefix}-{}", uuid::Uuid::new_v4().simple()),
    };
    tracing::Span::current().record("id", &id);
    id
}

fn routes() -> OpenApiRouter<Arc<Api>> {
    let mut router = OpenApiRouter::with_openapi(Document::openapi())
        .merge(chat_completions::router())
        .merge(capability::router())
        .merge(completions::router())
        .merge(messages::router())
        .merge(generate::router())
        .merge(invocations::router())
        .merge(responses::router())
        .merge(tokenize::router())
        .merge(tokenizer_info::router())
        .merge(models::router())
        .merge(health::router())
        .merge(server_load::router());
    document::complete(router.get_openapi_mut());
    router
}

/// The OpenAPI document of all routes.
pub fn openapi() -> utoipa::openapi::OpenApi {
    routes().into_openapi()
}

/// FastAPI's routes do not answer HEAD where they answer GET; its pages for people do.
async fn refuse_head(request: Request, next: Next) -> Response {
    let is_head = request.method() == Method::HEAD;
    let is_page = matches!(request.uri().path(), "/docs" | "/openapi.json" | "/redoc");
    let response = next.run(request).await;
    if is_head && !is_page && response.status().is_success() {
        return ([(ALLOW, "GET")], error::method_not_allowed().await).into_response();
    }
    response
}

/// All public routes.
pub fn router(api: Arc<Api>, docs: &Docs) -> Router {
    let (routes, document) = routes().split_for_parts();
    let paths = Paths::new(&document, docs::pages(docs));
    routes
        .merge(docs::router(document, docs))
        .layer(middleware::from_fn_with_state(Arc::clone(&api), server_load::track))
        .fallback(move |request: Request| {
            let redirection = paths.redirection(&request);
            async move { redirection.unwrap_or_else(error::not_found) }
        })
        .method_not_allowed_fallback(error::method_not_allowed)
        .layer(middleware::from_fn(refuse_head))
        .with_state(api)
}
