/// What could make a splice silently wrong, one trick a test.
mod attacks;
/// Parallel branches of one conversation.
mod branches;
/// Clients that send no ids back.
mod cache;
/// The carriers of ids, and what speaks against them.
mod carriers;
/// Requests that continue their own final message.
mod continued;
/// The counterexamples that are known to break other servers.
mod counterexamples;
/// Calls, results and tools that a client changes beside ids.
mod dropped_turns;
mod edited_calls;
/// Imitations of the templates of model families, each with the trait that makes it hard.
mod families;
/// Clients that did nothing wrong.
mod honest;
/// Images, by shape, carrier and edit.
mod image_features;
mod images;
/// Clients that must not see what others were answered.
mod isolation;
/// Every family with every shape of conversation and every end of a generation.
mod matrix;
/// Recorded conversations: the ids of a patched vLLM.
pub(crate) mod multiturn;
/// What a splice has to be, found without it.
mod oracle;
/// Random conversations through the HTTP app.
mod properties;
/// The templates of released models, with their tokenizers.
mod real;
/// `required_prefix_token_ids`: ids without a message.
mod required;
/// Conversations, and the ways in which their generations end.
mod shapes;
/// The proof on a short conversation, and what it must not prove.
mod short;
/// Prompts that are texts.
mod texts;
/// What becomes of one conversation, here and elsewhere.
mod verdicts;

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    http::{Request, header},
};
use serde_json::Value;
use tito::{
    TokenId,
    continuity::{Continuity, ContinuityPolicy, MemoryBounds, known_prefix},
    engine::{EngineInfo, scripted::ScriptedEngine},
    model::EosTokens,
    prompt::{
        ChatPrompt, Checks, OnUnprovable, PromptError, PromptRenderer, RenderedPrompt, Templates,
        template::{ChatTemplate, Patience},
    },
    server::{self, ControlPlane, ServerConfig},
    state::{Api, ServedModels},
    telemetry::Metrics,
    tokenizer::Tokenizer,
    turn::Turns,
};
use tower::Service;

/// A model without weights: what decides the ids of a conversation.
pub(crate) struct Model {
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) eos: EosTokens,
    template: String,
    /// What the template writes for `bos_token`.
    bos: String,
    renderer: PromptRenderer,
}

impl Model {
    /// The tiny model, with a template of its own.
    pub(crate) fn tiny(template: &str) -> Self {
        Self::new(tiny_tokenizer(), template, EosTokens { primary: Some(2), others: vec![0] })
    }

    pub(crate) fn new(tokenizer: Tokenizer, template: &str, eos: EosTokens) -> Self {
        let bos = tokenizer.token(1).unwrap_or_default();
        Self::sharing(&Arc::new(tokenizer), template, eos, &bos)
    }

    /// A model whose tokenizer others have too.
    pub(crate) fn sharing(tokenizer: &Arc<Tokenizer>, template: &str, eos: EosTokens, bos: &str) -> Self {
        let renderer = renderer(tokenizer, template, &eos, bos, OnUnprovable::Error);
        Self { tokenizer: Arc::clone(tokenizer), eos, template: template.to_owned(), bos: bos.to_owned(), renderer }
    }

    pub(crate) fn template(&self) -> &str {
        &self.template
    }

    pub(crate) fn ids(&self, text: &str) -> Vec<TokenId> {
        self.tokenizer.encode(text, false).unwrap()
    }

    pub(crate) fn text(&self, ids: &[TokenId]) -> String {
        self.tokenizer.decode(ids, false).unwrap()
    }

    pub(crate) fn renderer(&self, policy: OnUnprovable) -> PromptRenderer {
        renderer(&self.tokenizer, &self.template, &self.eos, &self.bos, policy)
    }

    /// The ids of a request's conversation, by the road that the endpoints take.
    pub(crate) fn render(&self, request: &Value) -> Result<RenderedPrompt, PromptError> {
        self.renderer.render(&self.prompt(request))
    }

    /// The conversation without its known ids: what re-tokenising makes of it.
    pub(crate) fn honest(&self, request: &Value) -> Result<Vec<TokenId>, PromptError> {
        let prompt = ChatPrompt { known: None, ..self.prompt(request) };
        Ok(self.renderer.render(&prompt)?.token_ids.to_vec())
    }

    pub(crate) fn prompt(&self, request: &Value) -> ChatPrompt {
        let field = |name: &str| request.get(name).cloned().unwrap_or(Value::Null);
        let messages: Vec<tito::chat::Message> = serde_json::from_str(&field("messages").to_string()).unwrap();
        let required: Option<tito::chat::TokenIds> = Some(field("required_prefix_token_ids").to_string())
            .filter(|text| text != "null")
            .map(|text| serde_json::from_str(&text).unwrap());
        let known = known_prefix(&messages, required.as_ref(), self.tokenizer.vocab_size()).unwrap();
        let continues = field("continue_final_message") == true;
        ChatPrompt {
            messages,
            tools: serde_json::from_str(&field("tools").to_string()).unwrap(),
            documents: None,
            add_generation_prompt: field("add_generation_prompt").as_bool().unwrap_or(!continues),
            continue_final_message: continues,
            system_first: false,
            template: None,
            template_kwargs: serde_json::from_str::<Option<tito::json::Value>>(
                &field("chat_template_kwargs").to_string(),
            )
            .unwrap()
            .and_then(|kwargs| kwargs.as_object().cloned())
            .unwrap_or_default(),
            reasoning_effort: None,
            add_special_tokens: field("add_special_tokens") == true,
            stop_token_ids: serde_json::from_value::<Option<_>>(field("stop_token_ids")).unwrap().unwrap_or_default(),
            stop_strings: Vec::new(),
            known,
            checks: Checks::default(),
            patience: Patience::default(),
            now: time::OffsetDateTime::UNIX_EPOCH,
        }
    }

    /// The model behind the HTTP routes; request `n` samples script `n`, or from a hash without scripts.
    pub(crate) fn serve(&self, scripts: Vec<Vec<TokenId>>) -> Server {
        self.serve_by(scripts, ContinuityPolicy::default())
    }

    /// The model behind the HTTP routes, sampling from a hash and remembering what it answered.
    pub(crate) fn serve_with_cache(&self) -> Server {
        let memory = MemoryBounds { bytes: 1 << 26, ttl: Duration::from_hours(1) };
        self.serve_by(Vec::new(), ContinuityPolicy { memory: Some(memory), ..ContinuityPolicy::default() })
    }

    fn serve_by(&self, scripts: Vec<Vec<TokenId>>, continuity: ContinuityPolicy) -> Server {
        let info = EngineInfo::scripted(self.tokenizer.vocab_size(), 4096);
        let eos: Vec<_> = self.eos.primary.into_iter().chain(self.eos.others.iter().copied()).collect();
        let engine =
            if scripts.is_empty() { ScriptedEngine::hashed(info, eos) } else { ScriptedEngine::playing(info, scripts) };
        let models = ServedModels::new("test", vec!["test".to_owned(), "smollm2".to_owned()]);
        let turns = Turns {
            continuity: Continuity::new(continuity, self.tokenizer.vocab_size()),
            ..Turns::new(self.renderer(OnUnprovable::Error), Arc::new(engine), &self.eos)
        };
        let api = Api::new(turns, models);
        let metrics = Metrics::detached("test");
        Server { router: server::app(Arc::new(api), ControlPlane::Closed, &ServerConfig::default(), metrics) }
    }
}

/// 326 ids: bytes, some words, and a few added tokens.
pub(crate) fn tiny_tokenizer() -> Tokenizer {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tiny-model/tokenizer.json");
    Tokenizer::from_file(path).unwrap()
}

fn renderer(
    tokenizer: &Arc<Tokenizer>,
    template: &str,
    eos: &EosTokens,
    bos: &str,
    policy: OnUnprovable,
) -> PromptRenderer {
    let eos_token = eos.primary.and_then(|id| tokenizer.token(id)).unwrap_or_default();
    let special_tokens = [("bos_token", bos.to_owned()), ("eos_token", eos_token)];
    let special_tokens = special_tokens.map(|(name, token)| (name.to_owned(), token)).into_iter().collect();
    let template = ChatTemplate::new(template, special_tokens).unwrap();
    let templates = Templates { default: Some(template), tool_use: None };
    PromptRenderer::new(templates, Arc::clone(tokenizer), eos, policy)
}

/// A server without a socket.
pub(crate) struct Server {
    router: Router,
}

impl Server {
    /// Posts JSON text; the status and the body.
    pub(crate) async fn post(&self, path: &str, body: impl ToString) -> (u16, Value) {
        let request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
        let request = request.body(Body::from(body.to_string())).unwrap();
        let (parts, body) = self.router.clone().call(request).await.unwrap().into_parts();
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        (parts.status.as_u16(), serde_json::from_slice(&bytes).unwrap())
    }

    /// `tokens` of `/tokenize`, for a conversation that nobody edited.
    pub(crate) async fn tokenize(&self, body: &Value) -> Vec<TokenId> {
        let mut body = body.clone();
        body["return_token_continuity"] = Value::Bool(true);
        let (status, answer) = self.post("/tokenize", &body).await;
        assert_eq!(status, 200, "{body} -> {answer}");
        let warnings = answer["token_continuity"]["warnings"].as_array().unwrap();
        assert!(warnings.iter().all(|warning| warning == "foreign_stop"), "{body} -> {answer}");
        ids(&answer["tokens"])
    }
}

/// A JSON list of ids.
pub(crate) fn ids(value: &Value) -> Vec<TokenId> {
    serde_json::from_value(value.clone()).unwrap()
}
