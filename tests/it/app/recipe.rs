//! How a `TestApp` is made, and what is made of it.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use axum::Router;
use tito::{
    TokenId,
    continuity::{Continuity, ContinuityPolicy, MemoryBounds, Namespace},
    continuity_store::ContinuityStore,
    engine::{
        Engine, EngineInfo, RequestTimes, RouteShape, WeightsInUse,
        scripted::{Gate, ScriptedEngine},
    },
    generation::Generator,
    media::MediaPolicy,
    model::{EosTokens, ModelFiles},
    prompt::{Harmony, HarmonySettings, OnUnprovable, PromptRenderer, Templates, template::ChatTemplate},
    records::{Responses, TextFingerprint},
    server::{self, ControlPlane, ServerConfig},
    state::{Api, ServedModels, ServerLoad, TokenizerInfo},
    store::ResponseStore,
    telemetry::Metrics,
    tinker_sessions::{Tinker, TinkerBounds},
    tokenizer::Tokenizer,
    turn::{Capture, Policies, RequestPolicy, SamplingPolicy, ToolPolicy, Turns},
};

use super::{ENDOFTEXT, IM_END, MODEL, TINY_MODEL, images};

/// What reads requests and answers them.
pub(super) struct Served {
    pub(super) api: Arc<Api>,
    pub(super) router: Router,
    pub(super) engine: Arc<ScriptedEngine>,
}

/// How a [`super::TestApp`] is made.
#[derive(Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the server or of the engine")]
pub(super) struct Recipe {
    pub(super) scripts: Vec<Vec<TokenId>>,
    pub(super) gate: Option<Gate>,
    pub(super) seats: usize,
    pub(super) max_waiting: usize,
    pub(super) policy: SamplingPolicy,
    pub(super) tools: ToolPolicy,
    pub(super) cached_tokens: Option<usize>,
    pub(super) scores_candidates: bool,
    pub(super) prompt_tokens_details: bool,
    pub(super) request_metrics: Option<Vec<RequestTimes>>,
    pub(super) weights: Vec<(usize, WeightsInUse)>,
    pub(super) later_weights: Option<Vec<(usize, WeightsInUse)>>,
    pub(super) mixtures: Option<RouteShape>,
    pub(super) server: ServerConfig,
    pub(super) requests: RequestPolicy,
    pub(super) tracks_load: bool,
    pub(super) tokenizer_info: bool,
    pub(super) names: Vec<String>,
    pub(super) chat_template: Option<String>,
    pub(super) model: &'static str,
    pub(super) harmony: Option<HarmonySettings>,
    pub(super) max_model_len: usize,
    /// How many ids the model knows, if not as many as the tokenizer.
    pub(super) vocab_size: Option<usize>,
    pub(super) on_unprovable: OnUnprovable,
    pub(super) continuity: ContinuityPolicy,
    pub(super) store: Option<(Arc<ContinuityStore>, Namespace)>,
    pub(super) response_store: Option<Arc<dyn ResponseStore>>,
    pub(super) patience: Option<Duration>,
    pub(super) capture: Option<Capture>,
    pub(super) tinker: Option<TinkerBounds>,
    pub(super) images: Option<MediaPolicy>,
    pub(super) image_family: images::Family,
    pub(super) refused_images: Option<&'static str>,
}

/// By the directory of the model, and whose marks of images were added.
type Tokenizers = HashMap<(&'static str, Option<images::Family>), Arc<Tokenizer>>;

impl Recipe {
    /// The tiny model on the hashed engine, as `tito serve` would serve it with no further flags.
    pub(super) fn tiny() -> Self {
        Self {
            scripts: Vec::new(),
            gate: None,
            seats: 256,
            max_waiting: 65_536,
            policy: SamplingPolicy::new(&EosTokens { primary: Some(IM_END), others: vec![ENDOFTEXT] }),
            tools: ToolPolicy::default(),
            cached_tokens: None,
            scores_candidates: true,
            prompt_tokens_details: false,
            request_metrics: None,
            weights: Vec::new(),
            later_weights: None,
            mixtures: None,
            server: ServerConfig::default(),
            requests: RequestPolicy::default(),
            tracks_load: false,
            tokenizer_info: false,
            names: vec![MODEL.to_owned()],
            chat_template: None,
            model: TINY_MODEL,
            harmony: None,
            max_model_len: 4096,
            vocab_size: None,
            on_unprovable: OnUnprovable::Error,
            continuity: ContinuityPolicy {
                memory: Some(MemoryBounds { bytes: 1 << 24, ttl: Duration::from_hours(1) }),
                ..ContinuityPolicy::default()
            },
            store: None,
            response_store: None,
            patience: None,
            capture: None,
            tinker: None,
            images: None,
            image_family: images::Family::Qwen,
            refused_images: None,
        }
    }

    /// How the model shows images, if it sees any.
    fn family(&self) -> Option<images::Family> {
        self.images.is_some().then_some(self.image_family)
    }

    /// The tokenizer of the model, which is read once in a process: a test may make hundreds of servers.
    pub(super) fn tokenizer(&self) -> Arc<Tokenizer> {
        static READ: LazyLock<Mutex<Tokenizers>> = LazyLock::new(Mutex::default);
        let read = || {
            let tokenizer = ModelFiles::open(Path::new(self.model)).unwrap().tokenizer().unwrap();
            Arc::new(match self.family() {
                Some(family) => images::with_marks(tokenizer, family),
                None => tokenizer,
            })
        };
        Arc::clone(READ.lock().unwrap().entry((self.model, self.family())).or_insert_with(read))
    }

    /// What the ids of stored responses are made with.
    fn fingerprint(&self, template: &str) -> TextFingerprint {
        TextFingerprint::of([self.model, template].map(str::as_bytes))
    }

    pub(super) fn serve(&self) -> Served {
        let files = ModelFiles::open(Path::new(self.model)).unwrap();
        let tokenizer = self.tokenizer();
        let vocab_size = self.vocab_size.unwrap_or(tokenizer.vocab_size());
        let info = EngineInfo::scripted(vocab_size, self.max_model_len);
        let mut engine = match self.scripts.as_slice() {
            [] => ScriptedEngine::hashed(info, vec![IM_END, ENDOFTEXT]),
            scripts => ScriptedEngine::playing(info, scripts.to_vec()),
        };
        engine = engine.with_seats(self.seats, self.max_waiting).with_weights(self.weights.clone());
        engine = engine.with_later_weights(self.later_weights.clone());
        engine = engine.with_times(self.request_metrics.clone().unwrap_or_default());
        if let Some(tokens) = self.cached_tokens {
            engine = engine.with_cached_tokens(tokens);
        }
        if !self.scores_candidates {
            engine = engine.without_candidates();
        }
        if let Some(shape) = &self.mixtures {
            engine = engine.with_mixtures(shape.clone());
        }
        engine = images::reading(engine, self.images.is_some());
        if let Some(gate) = &self.gate {
            engine = engine.with_gate(gate.clone());
        }
        let engine = Arc::new(engine);
        let sees = self.family().map(images::Family::template);
        let source = self
            .chat_template
            .as_deref()
            .or(sees.as_deref())
            .or(files.tokenizer_config.chat_templates.select(false))
            .unwrap();
        let template = ChatTemplate::new(source, files.tokenizer_config.special_tokens.clone()).unwrap();
        let templates = Templates { default: Some(template), tool_use: None };
        let eos = files.eos(&tokenizer).unwrap();
        let renderer = PromptRenderer::new(templates, Arc::clone(&tokenizer), &eos, self.on_unprovable)
            .with_answer_formats(self.tools.answer_formats());
        let harmony = self.harmony.clone().map(|settings| Harmony::new(&tokenizer, settings).unwrap());
        let renderer = renderer.with_harmony(harmony).with_images(self.family().map(images::Family::marks));
        let models = ServedModels::new("tests/fixtures/tiny-model", self.names.clone());
        let info = || TokenizerInfo::new(&files.tokenizer_config.raw, &tokenizer, "tiny", None);
        let generator = Generator::new(Arc::clone(&engine) as Arc<dyn Engine>, Arc::clone(&tokenizer));
        let turns = Turns {
            generator: generator.with_patience(self.patience).timing(self.request_metrics.is_some()),
            capture: self.capture.clone(),
            media: self.images.clone().map(|policy| images::media(policy, self.image_family)),
            continuity: Continuity::new(self.continuity, tokenizer.vocab_size())
                .shared(self.store.as_ref().map(|(_, namespace)| *namespace)),
            refused_images: self.refused_images.map(Arc::from),
            store: self.store.as_ref().map(|(store, _)| Arc::clone(store)),
            policies: Policies { sampling: self.policy.clone(), tools: self.tools, requests: self.requests.clone() },
            ..Turns::new(renderer, Arc::clone(&engine) as Arc<dyn Engine>, &eos)
        };
        let api = Api::new(turns, models);
        let api = Api {
            prompt_tokens_details: self.prompt_tokens_details,
            request_metrics: self.request_metrics.is_some(),
            server_load: ServerLoad::new(self.tracks_load),
            tokenizer_info: self.tokenizer_info.then(info),
            tinker: self.tinker.clone().map(|bounds| Arc::new(Tinker::new(bounds))),
            responses: match self.response_store.clone() {
                Some(store) => Responses::new(store, Some(self.fingerprint(source))),
                None => api.responses,
            },
            ..api
        };
        let api = Arc::new(api);
        let router = server::app(Arc::clone(&api), ControlPlane::Closed, &self.server, Metrics::detached(MODEL));
        Served { api, router, engine }
    }
}
