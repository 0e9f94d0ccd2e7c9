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
use tito::{
    api::{Api, RequestPolicy, SamplingPolicy, ServedModels, ServerLoad, StructuredOutputCompiler, ToolPolicy},
    continuity::{Continuity, ContinuityPolicy, MemoryBounds},
    engine::{Engine, EngineInfo, EngineLoad, scripted::ScriptedEngine},
    generation::Generator,
    model::{GenerationConfig, ModelFiles},
    prompt::{OnUnprovable, PromptRenderer, Templates, template::ChatTemplate},
    sampling::LogprobsMode,
    server::{self, ServerConfig},
    store::MemoryStore,
    telemetry::Metrics,
};
use tower::ServiceExt;

const PATHS: [&str; 5] =
    ["/v1/chat/completions", "/v1/chat/completions/tokens", "/v1/completions", "/tokenize", "/detokenize"];

/// The server, once a thread.
struct Target {
    router: Router,
    engine: Arc<ScriptedEngine>,
    runtime: tokio::runtime::Runtime,
}

fn target() -> Target {
    let files = ModelFiles::open(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/tiny-model")))
        .or_else(|_| ModelFiles::open(Path::new("tests/fixtures/tiny-model")))
        .expect("the tiny model");
    let tokenizer = Arc::new(files.tokenizer().expect("its tokenizer"));
    let eos = files.eos(&tokenizer).expect("its ends");
    let max_model_len = 512;
    let info = EngineInfo {
        engine: "scripted",
        device: "cpu".to_owned(),
        dtype: "none".to_owned(),
        vocab_size: tokenizer.vocab_size(),
        max_model_len,
    };
    let ends = eos.primary.into_iter().chain(eos.others.iter().copied()).collect();
    let engine = Arc::new(ScriptedEngine::hashed(info, ends));
    let source = files.tokenizer_config.chat_templates.select(false).expect("its template");
    let template = ChatTemplate::new(source, files.tokenizer_config.special_tokens.clone()).expect("a template");
    let memory = MemoryBounds { bytes: 1 << 16, ttl: Duration::from_mins(1) };
    let api = Api {
        renderer: PromptRenderer::new(
            Templates { default: Some(template), tool_use: None },
            Arc::clone(&tokenizer),
            &eos,
            OnUnprovable::Error,
        ),
        generator: Generator::new(Arc::clone(&engine) as Arc<dyn Engine>, Arc::clone(&tokenizer)),
        models: ServedModels::new("tiny", vec!["tiny".to_owned()]),
        continuity: Continuity::new(
            ContinuityPolicy { memory: Some(memory), ..ContinuityPolicy::default() },
            tokenizer.vocab_size(),
        ),
        sampling: SamplingPolicy {
            defaults: GenerationConfig::default(),
            eos_token_id: eos.primary,
            extra_eos_token_ids: eos.others.clone(),
            max_logprobs: Some(20),
            logprobs_mode: LogprobsMode::Raw,
            return_tokens_as_token_ids: false,
            most_tokens: None,
        },
        structured: StructuredOutputCompiler::new(Arc::clone(&tokenizer), eos.primary),
        tools: ToolPolicy::default(),
        requests: RequestPolicy::default(),
        prompt_tokens_details: false,
        max_model_len,
        utc_offset: time::UtcOffset::UTC,
        server_load: ServerLoad::default(),
        tokenizer_info: None,
        store: Arc::new(MemoryStore::new(1 << 24, Duration::from_hours(1))),
    };
    let metrics = Metrics::detached("tiny");
    let router = server::app(Arc::new(api), &ServerConfig::default(), metrics);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    Target { router, engine, runtime }
}

/// Sends the body and checks the answer.
pub(crate) fn check(data: &[u8]) {
    thread_local!(static TARGET: OnceCell<Target> = const { OnceCell::new() });
    let Some((path, body)) = data.split_first() else { return };
    let path = PATHS[usize::from(*path) % PATHS.len()];
    TARGET.with(|cell| {
        let target = cell.get_or_init(target);
        let request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
        let request = request.body(Body::from(body.to_vec())).expect("a request");
        let status = target.runtime.block_on(async {
            let response = target.router.clone().oneshot(request).await.expect("an answer");
            let status = response.status().as_u16();
            axum::body::to_bytes(response.into_body(), usize::MAX).await.expect("a body");
            status
        });
        assert!([200, 400, 404].contains(&status), "{path}: {status} for {:?}", String::from_utf8_lossy(body));
        assert_eq!(target.engine.load(), EngineLoad::default(), "{path}: something still runs");
    });
}
