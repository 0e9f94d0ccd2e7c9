//! Conversations to ids: what it costs to continue from known ids, and to encode everything again; alone, and as a
//! `POST /tokenize`.
//!
//! The ratio of the two is printed as well, from runs of both in turns. All of it runs on one thread at a time. The
//! tokenizer is the tiny one of the tests; `TITO_TEST_MODEL` names the directory of a real one.

#![expect(clippy::print_stdout, reason = "a benchmark says what it measured")]

use std::{
    hint::black_box,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body as HttpBody, Bytes},
    http::{Request, header::CONTENT_TYPE},
};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use http_body_util::BodyExt;
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore, SeedableRng},
};
use serde_json::{Value, json};
use time::OffsetDateTime;
use tito::TokenId;
use tito::internals::{
    chat::{FunctionTool, Message},
    continuity::{Continuity, ContinuityPolicy, MemoryBounds, known_prefix},
    engine::{EngineInfo, scripted::ScriptedEngine},
    model::{EosTokens, ModelFiles},
    prompt::{ChatPrompt, OnUnprovable, PromptRenderer, Provenance, RenderedPrompt, Templates, template::ChatTemplate},
    server::{self, ControlPlane, ServerConfig},
    state::{Api, ServedModels},
    telemetry::Metrics,
    tokenizer::Tokenizer,
    turn::Turns,
    wire,
};
use tower::Service;

/// Tokens of the conversation before its last message.
const HISTORIES: [usize; 4] = [1_024, 8_192, 65_536, 262_144];

/// Qwen2.5's template, with tools and calls, and SmolLM2's, which knows neither.
const TEMPLATES: [(&str, &str, bool); 2] = [
    ("hermes", include_str!("../tests/golden/template/hermes.jinja"), true),
    ("default", include_str!("../tests/golden/template/default.jinja"), false),
];

#[expect(clippy::disallowed_methods, reason = "a benchmark has no command line of its own")]
fn model() -> ModelFiles {
    let tiny = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tiny-model");
    let directory = std::env::var("TITO_TEST_MODEL").map_or_else(|_| PathBuf::from(tiny), PathBuf::from);
    ModelFiles::open(&directory).expect("TITO_TEST_MODEL is a model's directory")
}

/// What a request's body says about its prompt.
struct Body {
    messages: Vec<Message>,
    tools: Option<Vec<FunctionTool>>,
}

impl Body {
    /// Read as the server reads it.
    fn parse(bytes: &[u8]) -> Self {
        let (messages, tools) = wire::read_chat(bytes).expect("a valid body");
        Self { messages, tools }
    }

    fn into_prompt(self, add_generation_prompt: bool) -> ChatPrompt {
        ChatPrompt {
            tools: self.tools,
            add_generation_prompt,
            now: OffsetDateTime::UNIX_EPOCH,
            ..ChatPrompt::new(self.messages)
        }
    }
}

fn renderer(files: &ModelFiles, tokenizer: &Arc<Tokenizer>, template: &str) -> PromptRenderer {
    let eos = files.eos(tokenizer).expect("end tokens that the tokenizer knows");
    let template = ChatTemplate::new(template, files.tokenizer_config.special_tokens.clone());
    let templates = Templates { default: Some(template.expect("a valid template")), tool_use: None };
    PromptRenderer::new(templates, Arc::clone(tokenizer), &eos, OnUnprovable::Error)
}

/// From a conversation to ids.
struct Road {
    renderer: PromptRenderer,
    tokenizer: Arc<Tokenizer>,
    eos: EosTokens,
}

impl Road {
    fn new(files: &ModelFiles, template: &str) -> Self {
        let tokenizer = Arc::new(files.tokenizer().expect("a supported tokenizer"));
        let eos = files.eos(&tokenizer).expect("end tokens that the tokenizer knows");
        Self { renderer: renderer(files, &tokenizer, template), tokenizer, eos }
    }

    /// What the server does with a request that it has read.
    fn ids(&self, prompt: &mut ChatPrompt) -> RenderedPrompt {
        let known = known_prefix(&prompt.messages, None, self.tokenizer.vocab_size());
        prompt.known = known.expect("valid ids");
        self.renderer.render(prompt).expect("a provable prompt")
    }

    fn ids_of(&self, messages: &[Value], tools: Option<&Value>, add_generation_prompt: bool) -> Vec<TokenId> {
        let body = json!({"messages": messages, "tools": tools}).to_string();
        self.ids(&mut Body::parse(body.as_bytes()).into_prompt(add_generation_prompt)).token_ids.to_vec()
    }

    fn length(&self, text: &str) -> usize {
        self.tokenizer.encode(text, false).expect("any text has ids").len()
    }

    /// What the model was given and sampled when it wrote message `anchor`, in other tokens than its text would have.
    fn bundle(&self, messages: &[Value], anchor: usize, tools: Option<&Value>) -> [Vec<TokenId>; 2] {
        let text = |ids: &[TokenId]| self.tokenizer.decode(ids, false).expect("ids of this tokenizer");
        let prompt = self.ids_of(&messages[..anchor], tools, true);
        let closed = text(&self.ids_of(&messages[..=anchor], tools, false));
        let eos = self.eos.primary.expect("an end token");
        let written = closed.strip_prefix(&text(&prompt)).expect("the message follows its prompt");
        let (written, _) = written.rsplit_once(&text(&[eos])).expect("the template closes the message");
        let letters = written.char_indices().map(|(place, letter)| &written[place..place + letter.len_utf8()]);
        let sampled = letters.flat_map(|letter| self.tokenizer.encode(letter, false).expect("any text has ids"));
        let generation = sampled.chain([eos]).collect();
        [prompt, generation]
    }
}

const WORDS: &str = "the of and to in is that it for on with as was at by be this have from or one had not but what \
    all were when we there can an your which their said if do will each about how up out them then she many some so \
    these would other into has more her two like him see time could no make than first been its who now people my \
    made over did down only way find use may water long little very after words called just where most know get \
    through back much before go good new write our used me man too any day same right look think also around another \
    came come work three word must because does part even place well such here take why things help put years \
    different away again off went old number great tell men say small every found still between name should home big";

/// Prose with numbers and lines, the same for the same seed.
fn prose(rng: &mut ChaCha8Rng, words: usize) -> String {
    let vocabulary: Vec<&str> = WORDS.split_whitespace().collect();
    let pieces = (0..words).map(|_| match rng.next_u32() as usize {
        random if random % 16 == 0 => format!("{}, ", random / 16 % 1_000),
        random if random % 16 == 1 => ".\n\n".to_owned(),
        random => format!("{} ", vocabulary[random / 16 % vocabulary.len()]),
    });
    pieces.chain(["and so on.".to_owned()]).collect()
}

fn tools() -> Value {
    let tool = |name: &str| {
        json!({"type": "function", "function": {
            "name": name,
            "description": "Looks something up and returns what was found.",
            "parameters": {
                "type": "object",
                "properties": {"query": {"type": "string"}, "limit": {"type": "integer", "minimum": 1}},
                "required": ["query"],
            },
        }})
    };
    json!([tool("search"), tool("read_page"), tool("run_command")])
}

/// One assistant message and the answer to it.
fn turn(rng: &mut ChaCha8Rng, number: usize, calls: bool) -> [Value; 2] {
    if !calls {
        return [
            json!({"role": "assistant", "content": prose(rng, 200)}),
            json!({"role": "user", "content": prose(rng, 60)}),
        ];
    }
    let arguments = json!({"query": prose(rng, 8), "limit": number}).to_string();
    let call = json!({"id": format!("call_{number}"), "type": "function", "function": {
        "name": "search", "arguments": arguments,
    }});
    [
        json!({"role": "assistant", "content": prose(rng, 40), "tool_calls": [call]}),
        json!({"role": "tool", "tool_call_id": format!("call_{number}"), "content": prose(rng, 200)}),
    ]
}

/// A conversation whose last two messages follow `history` tokens, and the place of its last assistant message.
fn conversation(road: &Road, history: usize, calls: bool) -> (Vec<Value>, usize) {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut messages = vec![json!({"role": "user", "content": prose(&mut rng, 100)})];
    let mut length = 0;
    while length < history {
        let turn = turn(&mut rng, messages.len(), calls);
        length += turn.iter().map(|message| road.length(&message.to_string())).sum::<usize>();
        messages.extend(turn);
    }
    let anchor = messages.len() - 2;
    (messages, anchor)
}

/// The same conversation with ids on its last assistant message and without any, as bodies.
fn bodies(road: &Road, history: usize, calls: bool) -> [(&'static str, Vec<u8>); 2] {
    let tools = calls.then(tools);
    let (mut messages, anchor) = conversation(road, history, calls);
    let body = |messages: &[Value]| json!({"messages": messages, "tools": tools}).to_string().into_bytes();
    let encoded = body(&messages);
    let [prompt, generation] = road.bundle(&messages, anchor, tools.as_ref());
    let known = [prompt.as_slice(), &generation].concat();
    messages[anchor]["prompt_token_ids"] = prompt.into();
    messages[anchor]["generation_log_probs"] = vec![-0.25; generation.len()].into();
    messages[anchor]["generation_token_ids"] = generation.into();
    let spliced = body(&messages);

    let [with, without] = [&spliced, &encoded].map(|body| road.ids(&mut Body::parse(body).into_prompt(true)));
    let text = |ids: &[TokenId]| road.tokenizer.decode(ids, false).expect("ids of this tokenizer");
    assert!(with.token_ids.starts_with(&known) && !without.token_ids.starts_with(&known));
    assert!(matches!(with.provenance, Provenance::Spliced { foreign_stop: false, .. }));
    assert_eq!(text(&with.token_ids), text(&without.token_ids));
    [("continued", spliced), ("encoded", encoded)]
}

/// The median time of each of two tasks, which take turns.
fn medians(mut tasks: [&mut dyn FnMut(); 2]) -> [Duration; 2] {
    const RUNS: usize = 15;
    let mut times = [[Duration::ZERO; RUNS]; 2];
    for run in 0..RUNS {
        for (task, times) in tasks.iter_mut().zip(&mut times) {
            let start = Instant::now();
            task();
            times[run] = start.elapsed();
        }
    }
    times.map(|mut times| {
        times.sort_unstable();
        times[RUNS / 2]
    })
}

/// Prints how many times faster it is to continue than to encode everything again, JSON included.
fn print_ratio(road: &Road, name: &str, history: usize, [(_, spliced), (_, encoded)]: &[(&str, Vec<u8>); 2]) {
    let ids = |body: &[u8]| drop(black_box(road.ids(&mut Body::parse(black_box(body)).into_prompt(true))));
    let [continued, encoded] = medians([&mut || ids(spliced), &mut || ids(encoded)]);
    let ratio = encoded.as_secs_f64() / continued.as_secs_f64();
    println!("prompt {name}/{history}: continued {continued:.2?}, encoded {encoded:.2?}, ratio {ratio:.1}");
}

fn prompt(criterion: &mut Criterion) {
    let files = model();
    for (name, template, calls) in TEMPLATES {
        let road = Road::new(&files, template);
        let mut group = criterion.benchmark_group(format!("prompt {name}"));
        group.sample_size(20);
        for history in HISTORIES {
            let bodies = bodies(&road, history, calls);
            print_ratio(&road, name, history, &bodies);
            for (how, body) in bodies {
                let mut request = Body::parse(&body).into_prompt(true);
                let expected = road.ids(&mut request).token_ids.len();
                group.throughput(Throughput::Elements(expected as u64));
                group.bench_function(BenchmarkId::new(how, history), |bencher| {
                    bencher.iter(|| assert_eq!(road.ids(black_box(&mut request)).token_ids.len(), expected));
                });
                group.bench_function(BenchmarkId::new(format!("{how} from JSON"), history), |bencher| {
                    bencher.iter(|| {
                        let mut request = Body::parse(black_box(&body)).into_prompt(true);
                        assert_eq!(road.ids(&mut request).token_ids.len(), expected);
                    });
                });
            }
        }
        group.finish();
    }
}

/// Turns of the conversation that goes through the routes.
const TURNS: usize = 100;

/// The routes of a server with the template `hermes`.
fn routes(files: &ModelFiles) -> Router {
    let tokenizer = Arc::new(files.tokenizer().expect("a supported tokenizer"));
    let eos = files.eos(&tokenizer).expect("end tokens that the tokenizer knows");
    let info = EngineInfo::scripted(tokenizer.vocab_size(), 1 << 20);
    let metrics = Metrics::detached("bench");
    let memory = MemoryBounds { bytes: 1 << 29, ttl: Duration::from_hours(1) };
    let policy = ContinuityPolicy { memory: Some(memory), ..ContinuityPolicy::default() };
    let continuity = Continuity::new(policy, info.vocab_size);
    let engine = Arc::new(ScriptedEngine::hashed(info, Vec::new()));
    let renderer = renderer(files, &tokenizer, TEMPLATES[0].1);
    let turns = Turns { continuity, ..Turns::new(renderer, engine, &eos) };
    let api = Api::new(turns, ServedModels::new("bench", Vec::new()));
    server::app(Arc::new(api), ControlPlane::Closed, &ServerConfig::default(), metrics)
}

/// A conversation of some 56 000 tokens as bodies: without ids, with ids on its last assistant message, and with ids on
/// all of them.
fn round_trips(road: &Road) -> [(&'static str, Bytes); 3] {
    let mut rng = ChaCha8Rng::seed_from_u64(12);
    let mut messages = vec![json!({"role": "user", "content": prose(&mut rng, 100)})];
    for number in 0..TURNS {
        let call = json!({"id": format!("call_{number}"), "type": "function", "function": {
            "name": "search", "arguments": json!({"query": prose(&mut rng, 16), "limit": number}).to_string(),
        }});
        messages.extend([
            json!({"role": "assistant", "content": prose(&mut rng, 95), "tool_calls": [call]}),
            json!({"role": "tool", "tool_call_id": format!("call_{number}"), "content": prose(&mut rng, 252)}),
        ]);
    }
    let tools = tools();
    // As Python's clients write JSON, with spaces.
    let body = |messages: &[Value]| {
        let body = json!({"messages": messages, "tools": tools}).to_string();
        Bytes::from(tito::internals::json::Value::parse(&body).expect("JSON").to_json_string())
    };
    let without = body(&messages);
    let last = messages.len() - 2;
    let [prompt, generation] = road.bundle(&messages, last, Some(&tools));
    let attach = |messages: &mut [Value], anchor: usize, prompt: &[TokenId], generation: &[TokenId]| {
        messages[anchor]["prompt_token_ids"] = prompt.into();
        messages[anchor]["generation_token_ids"] = generation.into();
        messages[anchor]["generation_log_probs"] = vec![-0.25; generation.len()].into();
    };
    attach(&mut messages, last, &prompt, &generation);
    let with_last = body(&messages);
    // Where they are split does not matter, as long as the last ids start with them.
    for anchor in (1..last).step_by(2) {
        let (prompt, rest) = prompt.split_at(prompt.len() * anchor / last);
        attach(&mut messages, anchor, prompt, &rest[..rest.len().min(generation.len())]);
    }
    let with_all = body(&messages);
    [("encoded", without), ("ids on the last message", with_last), ("ids on all messages", with_all)]
}

async fn post(app: &mut Router, body: &Bytes) -> Bytes {
    let request = Request::post("/tokenize").header(CONTENT_TYPE, "application/json");
    let request = request.body(HttpBody::from(body.clone())).expect("a valid request");
    let response = app.call(request).await.expect("routes that answer");
    response.into_body().collect().await.expect("a whole body").to_bytes()
}

fn tokenize(criterion: &mut Criterion) {
    let files = model();
    let mut app = routes(&files);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let bodies = round_trips(&Road::new(&files, TEMPLATES[0].1));
    let mut group = criterion.benchmark_group("tokenize");
    for (how, body) in &bodies {
        let answer = runtime.block_on(post(&mut app, body));
        let length = serde_json::from_slice::<Value>(&answer).expect("JSON")["count"].as_u64().expect("a count");
        println!("tokenize/{how}: {length} tokens, a body of {} bytes", body.len());
        group.throughput(Throughput::Elements(length));
        group.sample_size(30);
        group.bench_function(BenchmarkId::from_parameter(how), |bencher| {
            bencher.iter(|| assert_eq!(runtime.block_on(post(&mut app, black_box(body))).len(), answer.len()));
        });
    }
    group.finish();
    let mut twin = app.clone();
    let [encoded, continued] = medians([
        &mut || {
            black_box(runtime.block_on(post(&mut app, &bodies[0].1)));
        },
        &mut || {
            black_box(runtime.block_on(post(&mut twin, &bodies[1].1)));
        },
    ]);
    let ratio = encoded.as_secs_f64() / continued.as_secs_f64();
    println!("tokenize: continued {continued:.2?}, encoded {encoded:.2?}, ratio {ratio:.1}");
}

criterion_group!(benches, tokenize, prompt);
criterion_main!(benches);
