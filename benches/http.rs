//! Tokens to clients: what the server adds to an engine, per token, for one stream and for many.
//!
//! All of it, the client included, runs on one thread: the differences between the cases are processor time.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    http::{Request, header::CONTENT_TYPE},
};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use futures::StreamExt;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tito::TokenId;
use tito::internals::{
    engine::{Engine, EngineInfo, EngineOutput, Routing, SamplingParams, SequenceRequest, scripted::ScriptedEngine},
    generation::{Event, GenerationRequest, Generator, TextOptions},
    model::ModelFiles,
    prompt::{OnUnprovable, PromptRenderer, Templates, template::ChatTemplate},
    server::{self, ControlPlane, Endpoint, Port, Ports, ServerConfig, Work},
    state::{Api, ServedModels},
    telemetry::Metrics,
    tokenizer::Tokenizer,
    turn::Turns,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
    task::JoinSet,
};
use tower::Service;

/// Requests at a time.
const STREAMS: [usize; 2] = [1, 256];
/// Tokens of each answer, all of them scripted.
const TOKENS: usize = 256;

/// How far the tokens of one answer go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Road {
    /// Polled from the engine.
    Engine,
    /// Decoded into events.
    Events,
    /// Through the routes, as one JSON body or as a stream, and then perhaps with ids and log-probs.
    Routes { stream: bool, ids: bool },
    /// A stream with ids and log-probs over a socket of its own.
    Socket,
}

impl Road {
    const ALL: [(&str, Self); 7] = [
        ("engine", Self::Engine),
        ("events", Self::Events),
        ("JSON", Self::Routes { stream: false, ids: false }),
        ("JSON with ids", Self::Routes { stream: false, ids: true }),
        ("SSE", Self::Routes { stream: true, ids: false }),
        ("SSE with ids", Self::Routes { stream: true, ids: true }),
        ("SSE with ids over TCP", Self::Socket),
    ];

    fn request(self) -> String {
        let (stream, ids) = match self {
            Self::Routes { stream, ids } => (stream, ids),
            _ => (true, true),
        };
        let request = json!({
            "messages": [{"role": "user", "content": "hello world"}],
            "max_tokens": TOKENS, "temperature": 0, "stream": stream, "logprobs": ids, "return_token_ids": ids,
        });
        request.to_string()
    }
}

/// The server and its parts.
struct Server {
    engine: Arc<dyn Engine>,
    generator: Generator,
    app: Router,
    address: SocketAddr,
    /// What every answer says.
    script: Vec<TokenId>,
    text: String,
}

impl Server {
    async fn start() -> Self {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tiny-model");
        let files = ModelFiles::open(directory.as_ref()).expect("a model's directory");
        let tokenizer = Arc::new(files.tokenizer().expect("a supported tokenizer"));
        let words = tokenizer.encode("hello world, 12 more\n", false).expect("any text has ids");
        let script: Vec<_> = words.into_iter().cycle().take(TOKENS).collect();
        let text = tokenizer.decode(&script, true).expect("ids of this tokenizer");
        let info = EngineInfo::scripted(tokenizer.vocab_size(), 4_096);
        // Before the engine and the generators, which count in the recorder that is installed.
        let metrics = Metrics::install("tiny", 4_096).expect("the process's only recorder");
        let engine: Arc<dyn Engine> = Arc::new(ScriptedEngine::playing(info, vec![script.clone()]));
        let api = api(&files, &tokenizer, &engine);
        let app = server::app(Arc::new(api), ControlPlane::Closed, &ServerConfig::default(), metrics);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        tokio::spawn({
            let (app, engine) = (app.clone(), Arc::clone(&engine));
            let work = Work { engine: Some(engine), ..Work::nothing() };
            let ports = Ports { main: Port { endpoint: Endpoint::Tcp(listener), app }, admin: None };
            async move {
                let config = ServerConfig { shutdown_timeout: Duration::ZERO, ..ServerConfig::default() };
                server::serve(ports, work, &config, std::future::pending()).await
            }
        });
        let generator = Generator::new(Arc::clone(&engine), tokenizer);
        Self { engine, generator, app, address, script, text }
    }

    /// One answer, to its end; of an engine its tokens, else its bytes.
    async fn answer(&self, road: Road) -> Vec<u8> {
        match road {
            Road::Engine => self.poll_engine().await,
            Road::Events => self.poll_events().await,
            Road::Routes { .. } => self.call(road).await,
            Road::Socket => self.connect(road).await.expect("a server that answers"),
        }
    }

    /// The texts of the tokens do not matter to an engine: one byte for each.
    async fn poll_engine(&self) -> Vec<u8> {
        let GenerationRequest { prompt_token_ids, sampling, .. } = generation();
        let mut outputs = self.engine.generate(SequenceRequest {
            prompt_token_ids,
            sampling,
            prompt_logprobs: None,
            candidates: None,
            cache_salt: None,
            adapter: None,
            routing: Routing::default(),
            images: Arc::default(),
            timed: false,
        });
        let mut tokens = Vec::new();
        while let Some(output) = outputs.next().await {
            if let EngineOutput::Token(token) = output.expect("a working engine") {
                tokens.push(u8::from(self.script.get(tokens.len()) == Some(&token.id)));
            }
        }
        tokens
    }

    async fn poll_events(&self) -> Vec<u8> {
        let mut events = self.generator.generate(generation());
        let mut text = Vec::new();
        while let Some(event) = events.next().await {
            if let Event::Delta(delta) = event.expect("a working engine") {
                text.extend_from_slice(delta.text.as_bytes());
            }
        }
        text
    }

    async fn call(&self, road: Road) -> Vec<u8> {
        let request = Request::post("/v1/chat/completions").header(CONTENT_TYPE, "application/json");
        let request = request.body(Body::from(road.request())).expect("a valid request");
        let response = self.app.clone().call(request).await.expect("routes that answer");
        response.into_body().collect().await.expect("a whole body").to_bytes().into()
    }

    async fn connect(&self, road: Road) -> std::io::Result<Vec<u8>> {
        let body = road.request();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        let mut socket = TcpStream::connect(self.address).await?;
        socket.write_all(head.as_bytes()).await?;
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).await?;
        Ok(answer)
    }

    /// Whether an answer says what the script does.
    fn check(&self, road: Road, answer: &[u8]) {
        let text = String::from_utf8_lossy(answer);
        let (content, ids) = match road {
            Road::Engine => return assert_eq!(answer, [1; TOKENS]),
            Road::Events => return assert_eq!(text, self.text),
            Road::Routes { stream: false, ids } => {
                let answer: Value = serde_json::from_str(&text).expect("JSON");
                let message = &answer["choices"][0]["message"];
                let all = message["generation_token_ids"].as_array().cloned().unwrap_or_default();
                (message["content"].as_str().unwrap_or_default().to_owned(), ids.then_some(all))
            }
            Road::Routes { stream: true, ids } => {
                let (content, all) = fold(&text);
                (content, ids.then_some(all))
            }
            Road::Socket => {
                let (content, all) = fold(&text);
                (content, Some(all))
            }
        };
        assert_eq!(content, self.text);
        if let Some(ids) = ids {
            assert_eq!(Value::Array(ids), json!(self.script));
        }
    }
}

fn api(files: &ModelFiles, tokenizer: &Arc<Tokenizer>, engine: &Arc<dyn Engine>) -> Api {
    let eos = files.eos(tokenizer).expect("end tokens that the tokenizer knows");
    let source = files.tokenizer_config.chat_templates.select(false).expect("a chat template");
    let template = ChatTemplate::new(source, files.tokenizer_config.special_tokens.clone());
    let templates = Templates { default: Some(template.expect("a valid template")), tool_use: None };
    let renderer = PromptRenderer::new(templates, Arc::clone(tokenizer), &eos, OnUnprovable::Error);
    Api::new(Turns::new(renderer, Arc::clone(engine), &eos), ServedModels::new("tiny", Vec::new()))
}

/// What the routes make of a request.
fn generation() -> GenerationRequest {
    let sampling = SamplingParams { temperature: 0.0, max_tokens: TOKENS, ..SamplingParams::default() };
    GenerationRequest {
        prompt_token_ids: [1, 2, 3, 4, 5, 6, 7, 8].into(),
        sequences: 1,
        party: None,
        sampling: Arc::new(sampling.validated(usize::MAX).expect("valid parameters")),
        prompt_logprobs: None,
        candidates: None,
        adapter: None,
        routing: Routing::default(),
        images: Arc::default(),
        cache_salt: None,
        text: Arc::new(TextOptions::default()),
        owner: None,
        request_ids: Arc::default(),
    }
}

/// The text and the ids of a stream.
fn fold(text: &str) -> (String, Vec<Value>) {
    let frames = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let mut content = String::new();
    let mut ids = Vec::new();
    for frame in frames.filter(|frame| *frame != "[DONE]") {
        let chunk: Value = serde_json::from_str(frame).expect("JSON");
        let choice = &chunk["choices"][0];
        content.push_str(choice["delta"]["content"].as_str().unwrap_or_default());
        ids.extend(choice["token_ids"].as_array().cloned().unwrap_or_default());
    }
    (content, ids)
}

/// As many answers at once, each as long as the first one was.
async fn answers(server: &Arc<Server>, road: Road, streams: usize, length: usize) {
    let mut running = JoinSet::new();
    for _ in 0..streams {
        let server = Arc::clone(server);
        running.spawn(async move { server.answer(road).await.len() });
    }
    while let Some(answer) = running.join_next().await {
        assert_eq!(answer.expect("no panic"), length);
    }
}

fn http(criterion: &mut Criterion) {
    let runtime: Runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let server = Arc::new(runtime.block_on(Server::start()));
    for streams in STREAMS {
        let mut group = criterion.benchmark_group(format!("http {streams}"));
        group.throughput(Throughput::Elements((streams * TOKENS) as u64));
        group.sample_size(50);
        for (name, road) in Road::ALL {
            let answer = runtime.block_on(server.answer(road));
            server.check(road, &answer);
            group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
                bencher.to_async(&runtime).iter(|| answers(&server, road, streams, answer.len()));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, http);
criterion_main!(benches);
