//! Any bytes as the body of a request: never a 5xx, never a panic, and nothing keeps running.
//!
//! The first byte chooses the endpoint, the rest is the body. Shared by the fuzz target and by the test that replays
//! its seeds.

use std::{cell::OnceCell, path::Path, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    http::{Request, header},
};
use tito::internals::{
    continuity::{Continuity, ContinuityPolicy, MemoryBounds},
    engine::{Engine, EngineInfo, EngineLoad, scripted::ScriptedEngine},
    model::ModelFiles,
    prompt::{OnUnprovable, PromptRenderer, Templates, template::ChatTemplate},
    server::{self, ControlPlane, ServerConfig},
    state::{Api, ServedModels},
    telemetry::Metrics,
    turn::Turns,
};
use tower::ServiceExt;

/// New ones at the end: the bytes of the seeds count from the front.
pub(crate) const PATHS: [&str; 15] = [
    "/v1/chat/completions",
    "/v1/chat/completions/tokens",
    "/v1/completions",
    "/tokenize",
    "/detokenize",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/inference/v1/generate",
    "/v1/chat/completions/derender",
    "/v1/completions/derender",
    "/v1/chat/completions/render",
    "/v1/completions/render",
    "/v1/chat/completions/batch",
    "/invocations",
];

/// The server, once a thread.
struct Target {
    router: Router,
    api: Arc<Api>,
    engine: Arc<ScriptedEngine>,
    runtime: tokio::runtime::Runtime,
}

fn target() -> Target {
    let files = ModelFiles::open(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/tiny-model")))
        .or_else(|_| ModelFiles::open(Path::new("tests/fixtures/tiny-model")))
        .expect("the tiny model");
    let tokenizer = Arc::new(files.tokenizer().expect("its tokenizer"));
    let eos = files.eos(&tokenizer).expect("its ends");
    let info = EngineInfo::scripted(tokenizer.vocab_size(), 512);
    let ends = eos.primary.into_iter().chain(eos.others.iter().copied()).collect();
    let engine = Arc::new(ScriptedEngine::hashed(info, ends));
    let source = files.tokenizer_config.chat_templates.select(false).expect("its template");
    let template = ChatTemplate::new(source, files.tokenizer_config.special_tokens.clone()).expect("a template");
    let memory = MemoryBounds { bytes: 1 << 16, ttl: Duration::from_mins(1) };
    let policy = ContinuityPolicy { memory: Some(memory), ..ContinuityPolicy::default() };
    let continuity = Continuity::new(policy, tokenizer.vocab_size());
    let templates = Templates { default: Some(template), tool_use: None };
    let renderer = PromptRenderer::new(templates, tokenizer, &eos, OnUnprovable::Error);
    let models = ServedModels::new("tiny", vec!["tiny".to_owned()]);
    let turns = Turns { continuity, ..Turns::new(renderer, Arc::clone(&engine) as Arc<dyn Engine>, &eos) };
    let api = Api::new(turns, models);
    let metrics = Metrics::detached("tiny");
    let api = Arc::new(api);
    let router = server::app(Arc::clone(&api), ControlPlane::Closed, &ServerConfig::default(), metrics);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    Target { router, api, engine, runtime }
}

/// Sends the body and checks the answer: its path and its status.
pub(crate) fn check(data: &[u8]) -> Option<(&'static str, u16)> {
    thread_local!(static TARGET: OnceCell<Target> = const { OnceCell::new() });
    let (path, body) = data.split_first()?;
    let path = PATHS[usize::from(*path) % PATHS.len()];
    TARGET.with(|cell| {
        let target = cell.get_or_init(target);
        let request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
        let request = request.body(Body::from(body.to_vec())).expect("a request");
        let status = target.runtime.block_on(async {
            let response = target.router.clone().oneshot(request).await.expect("an answer");
            let status = response.status().as_u16();
            axum::body::to_bytes(response.into_body(), usize::MAX).await.expect("a body");
            target.api.responses.settled().await;
            status
        });
        assert!([200, 400, 404].contains(&status), "{path}: {status} for {:?}", String::from_utf8_lossy(body));
        assert_eq!(target.engine.load(), EngineLoad::default(), "{path}: something still runs");
        Some((path, status))
    })
}
