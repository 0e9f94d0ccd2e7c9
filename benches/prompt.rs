//! Conversations to ids: what it costs to continue from known ids, and to encode everything again.
//!
//! The tokenizer is the tiny one of the tests; `TITO_TEST_MODEL` names the directory of a real one.

use std::{hint::black_box, path::PathBuf, sync::Arc};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore, SeedableRng},
};
use serde::Deserialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use tito::{
    TokenId,
    chat::{FunctionTool, Message},
    continuity::known_prefix,
    model::{EosTokens, ModelFiles},
    prompt::{
        ChatPrompt, Checks, OnUnprovable, PromptRenderer, Provenance, RenderedPrompt, Templates, template::ChatTemplate,
    },
    tokenizer::Tokenizer,
};

/// Tokens of the conversation before its last message.
const HISTORIES: [usize; 3] = [1_024, 8_192, 65_536];

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

/// What a request's body says about its prompt, read as the server reads it.
#[derive(Deserialize)]
struct Body {
    messages: Vec<Message>,
    tools: Option<Vec<FunctionTool>>,
}

impl Body {
    fn parse(bytes: &[u8]) -> Self {
        serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_slice(bytes)).expect("a valid body")
    }

    fn into_prompt(self, add_generation_prompt: bool) -> ChatPrompt {
        ChatPrompt {
            messages: self.messages,
            tools: self.tools,
            documents: None,
            add_generation_prompt,
            continue_final_message: false,
            template_kwargs: tito::json::Object::new(),
            reasoning_effort: None,
            add_special_tokens: false,
            stop_token_ids: Vec::new(),
            known: None,
            now: OffsetDateTime::UNIX_EPOCH,
            checks: Checks::default(),
        }
    }
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
        let template = ChatTemplate::new(template, files.tokenizer_config.special_tokens.clone());
        let templates = Templates { default: Some(template.expect("a valid template")), tool_use: None };
        let renderer = PromptRenderer::new(templates, Arc::clone(&tokenizer), &eos, OnUnprovable::Error);
        Self { renderer, tokenizer, eos }
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

fn prompt(criterion: &mut Criterion) {
    let files = model();
    for (name, template, calls) in TEMPLATES {
        let road = Road::new(&files, template);
        let mut group = criterion.benchmark_group(format!("prompt {name}"));
        group.sample_size(20);
        for history in HISTORIES {
            for (how, body) in bodies(&road, history, calls) {
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

criterion_group!(benches, prompt);
criterion_main!(benches);
