//! `TestApp`: everything that a request passes through, with a tiny tokenizer and the scripted engine.

mod answers;
mod engine;
pub(crate) mod images;
mod recipe;
mod redacted;
mod stores;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    http::{Method, Request, Response, header},
};
use serde_json::Value;
use tito::{
    TokenId,
    continuity::ContinuityPolicy,
    engine::{
        Engine, EngineLoad, RequestTimes,
        scripted::{Gate, ScriptedEngine},
    },
    generation::RunningRequests,
    parser::ToolParser,
    prompt::{HarmonySettings, OnUnprovable},
    server::{self, ApiKeys, ControlPlane, ServerConfig},
    telemetry::Metrics,
    tinker_sessions::{Tinker, TinkerBounds},
    tokenizer::Tokenizer,
    turn::{RequestPolicy, SamplingPolicy, ToolPolicy},
};
use tower::Service;

use self::recipe::{Recipe, Served};
pub(crate) use self::{
    answers::{Answer, Events},
    redacted::{redacted, shape},
};
use crate::it::patience::PATIENCE;

/// The model directory of all tests.
pub(crate) const TINY_MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tiny-model");
/// Tokenizer and settings of gpt-oss, as far as recorded prompts need them.
const HARMONY_MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/harmony");
/// The name that it is served under.
pub(crate) const MODEL: &str = "tiny";
/// The end of a turn, the tokenizer's own end-of-sequence token.
pub(crate) const IM_END: TokenId = 2;
/// The second end-of-sequence token, of `generation_config.json`.
pub(crate) const ENDOFTEXT: TokenId = 0;
/// Ids of the tiny tokenizer, all known.
pub(crate) const VOCAB_SIZE: usize = 326;

/// A server without a socket.
pub(crate) struct TestApp {
    recipe: Recipe,
    /// Made when it is first asked.
    served: OnceLock<Served>,
}

impl TestApp {
    /// The tiny model on the hashed engine, as `tito serve` would serve it with no further flags.
    pub(crate) fn new() -> Self {
        Self { recipe: Recipe::tiny(), served: OnceLock::new() }
    }

    fn with(mut self, change: impl FnOnce(&mut Recipe)) -> Self {
        change(&mut self.recipe);
        Self { recipe: self.recipe, served: OnceLock::new() }
    }

    fn served(&self) -> &Served {
        self.served.get_or_init(|| self.recipe.serve())
    }

    /// The ids that the next request samples; the last script also serves every later request.
    pub(crate) fn script(self, ids: impl IntoIterator<Item = TokenId>) -> Self {
        self.scripts([ids.into_iter().collect()])
    }

    /// Like [`Self::script`], for as many requests as there are scripts.
    pub(crate) fn scripts(self, scripts: impl IntoIterator<Item = Vec<TokenId>>) -> Self {
        self.with(|recipe| recipe.scripts.extend(scripts))
    }

    /// Like [`Self::script`], with the text's own ids and the end of a turn after them.
    pub(crate) fn says(self, text: &str) -> Self {
        let ids = self.ids(text);
        self.script(ids.into_iter().chain([IM_END]))
    }

    /// Every token waits for `gate`.
    pub(crate) fn gate(self, gate: &Gate) -> Self {
        self.with(|recipe| recipe.gate = Some(gate.clone()))
    }

    /// Sequences that run at a time.
    pub(crate) fn seats(self, seats: usize) -> Self {
        self.with(|recipe| recipe.seats = seats)
    }

    /// Sequences that may wait for a seat.
    pub(crate) fn max_waiting(self, max_waiting: usize) -> Self {
        self.with(|recipe| recipe.max_waiting = max_waiting)
    }

    /// `--enable-prompt-tokens-details`.
    pub(crate) fn prompt_tokens_details(self) -> Self {
        self.with(|recipe| recipe.prompt_tokens_details = true)
    }

    /// `--enable-per-request-metrics`, with the times that the engine reports, token by token.
    pub(crate) fn request_metrics(self, times: Vec<RequestTimes>) -> Self {
        self.with(|recipe| recipe.request_metrics = Some(times))
    }

    /// What the server decides about conversations and their answers.
    pub(crate) fn requests(self, change: impl FnOnce(&mut RequestPolicy)) -> Self {
        self.with(|recipe| change(&mut recipe.requests))
    }

    /// `--enable-server-load-tracking`.
    pub(crate) fn tracks_load(self) -> Self {
        self.with(|recipe| recipe.tracks_load = true)
    }

    /// `--enable-tokenizer-info-endpoint`.
    pub(crate) fn tokenizer_info(self) -> Self {
        self.with(|recipe| recipe.tokenizer_info = true)
    }

    /// What the server decides about sampling.
    pub(crate) fn policy(self, change: impl FnOnce(&mut SamplingPolicy)) -> Self {
        self.with(|recipe| change(&mut recipe.policy))
    }

    /// `--enable-auto-tool-choice --tool-call-parser hermes`.
    pub(crate) fn reads_tool_calls(self) -> Self {
        self.tools(ToolPolicy {
            parser: ToolParser::named("hermes"),
            auto: true,
            reasoning: None,
            ..ToolPolicy::default()
        })
    }

    /// What the server decides about tool calls.
    pub(crate) fn tools(self, policy: ToolPolicy) -> Self {
        self.with(|recipe| recipe.tools = policy)
    }

    /// Keys that open the API.
    pub(crate) fn keys(self, keys: &[&str]) -> Self {
        self.server(|server| server.api_keys = ApiKeys::new(keys))
    }

    /// How the process serves.
    pub(crate) fn server(self, change: impl FnOnce(&mut ServerConfig)) -> Self {
        self.with(|recipe| change(&mut recipe.server))
    }

    /// Served names.
    pub(crate) fn names(self, names: &[&str]) -> Self {
        self.with(|recipe| recipe.names = names.iter().map(ToString::to_string).collect())
    }

    /// Another template than the model's.
    pub(crate) fn chat_template(self, source: &str) -> Self {
        self.with(|recipe| recipe.chat_template = Some(source.to_owned()))
    }

    /// A part of gpt-oss's tokenizer, and Harmony.
    pub(crate) fn harmony(self, settings: HarmonySettings) -> Self {
        self.with(|recipe| {
            recipe.model = HARMONY_MODEL;
            recipe.harmony = Some(settings);
        })
    }

    /// The longest sequence.
    pub(crate) fn max_model_len(self, tokens: usize) -> Self {
        self.with(|recipe| recipe.max_model_len = tokens)
    }

    /// How many ids the model knows, if not as many as the tokenizer.
    pub(crate) fn vocab_size(self, ids: usize) -> Self {
        self.with(|recipe| recipe.vocab_size = Some(ids))
    }

    /// What happens to known ids that cannot be joined.
    pub(crate) fn on_unprovable(self, policy: OnUnprovable) -> Self {
        self.with(|recipe| recipe.on_unprovable = policy)
    }

    /// What the server decides about continuity.
    pub(crate) fn continuity(self, change: impl FnOnce(&mut ContinuityPolicy)) -> Self {
        self.with(|recipe| change(&mut recipe.continuity))
    }

    /// `--stream-stall-timeout`, for generations.
    pub(crate) fn patience(self, patience: Duration) -> Self {
        self.with(|recipe| recipe.patience = Some(patience))
    }

    /// `--tinker-api`, with what is kept at most.
    pub(crate) fn tinker(self, bounds: TinkerBounds) -> Self {
        self.with(|recipe| recipe.tinker = Some(bounds))
    }

    /// The sessions of Tinker's clients.
    pub(crate) fn tinker_sessions(&self) -> &Tinker {
        self.served().api.tinker.as_ref().expect("`tinker` was called")
    }

    /// The tokenizer of the tiny model.
    pub(crate) fn tokenizer(&self) -> Arc<Tokenizer> {
        self.recipe.tokenizer()
    }

    /// The ids of a text.
    pub(crate) fn ids(&self, text: &str) -> Vec<TokenId> {
        self.recipe.tokenizer().encode(text, false).unwrap()
    }

    /// The ids of a text that a model writes in one token for each character, and one for each mark.
    pub(crate) fn spelled(&self, text: &str) -> Vec<TokenId> {
        let mut ids = Vec::new();
        let mut rest = text;
        while let Some(letter) = rest.chars().next() {
            let marks = ["<think>", "</think>", "<tool_call>", "</tool_call>"];
            let mark = marks.iter().find(|mark| rest.starts_with(**mark));
            let length = mark.map_or(letter.len_utf8(), |mark| mark.len());
            ids.extend(self.ids(&rest[..length]));
            rest = &rest[length..];
        }
        ids
    }

    /// The engine.
    pub(crate) fn engine(&self) -> Arc<ScriptedEngine> {
        Arc::clone(&self.served().engine)
    }

    /// Resolves when no turn is being captured whose client has left.
    pub(crate) fn captures_settled(&self) -> impl Future<Output = ()> + use<> {
        self.served().api.turns.captures_settled()
    }

    /// Which generations run.
    pub(crate) fn running(&self) -> &RunningRequests {
        self.served().api.turns.generator.running()
    }

    /// All routes.
    pub(crate) fn router(&self) -> Router {
        self.served().router.clone()
    }

    /// All routes, and a control plane beside them.
    pub(crate) fn router_with(&self, control: ControlPlane) -> Router {
        server::app(Arc::clone(&self.served().api), control, &self.recipe.server, Metrics::detached(MODEL))
    }

    /// Sends a request and does not read the body of the response.
    pub(crate) async fn send(&self, request: Request<Body>) -> Response<Body> {
        self.router().call(request).await.unwrap()
    }

    /// Sends a request.
    pub(crate) async fn request(&self, request: Request<Body>) -> Answer {
        let (parts, body) = self.send(request).await.into_parts();
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Answer { status: parts.status.as_u16(), headers: parts.headers, text }
    }

    /// Posts JSON.
    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.request(posted(path, body.to_string())).await
    }

    /// Gets a page.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.request(Request::get(path).body(Body::empty()).unwrap()).await
    }

    /// Posts JSON and reads the events as they come.
    pub(crate) async fn open(&self, path: &str, body: Value) -> Events {
        let response = self.send(posted(path, body.to_string())).await;
        assert_eq!(response.status(), 200);
        Events { frames: response.into_body().into_data_stream(), buffer: String::new() }
    }

    /// Waits until the engine's load is `running` and `waiting`.
    pub(crate) async fn until_load(&self, running: usize, waiting: usize) {
        let wanted = EngineLoad { running, waiting, ..EngineLoad::default() };
        let came = tokio::time::timeout(PATIENCE, self.served().engine.until_load(wanted)).await.is_ok();
        assert!(came, "the load is {:?}, not {wanted:?}", self.served().engine.load());
    }
}

/// A POST of JSON text.
pub(crate) fn posted(path: &str, body: impl Into<Body>) -> Request<Body> {
    let request = Request::builder().method(Method::POST).uri(path);
    request.header(header::CONTENT_TYPE, "application/json").body(body.into()).unwrap()
}
