//! A stream adds up to the JSON answer, and its chunks look like those of vLLM 0.32.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::it::app::{ENDOFTEXT, IM_END, TestApp, shape};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

/// What one choice consists of, whichever way it came.
#[derive(Debug, Default, PartialEq)]
struct Whole {
    text: String,
    reasoning: String,
    /// Names and arguments; the ids are random.
    tool_calls: Vec<[String; 2]>,
    token_ids: Vec<Value>,
    /// Entries of the log-prob lists, by the name of the list.
    logprobs: Map<String, Value>,
    finish_reason: Value,
    stop_reason: Value,
    prompt_token_ids: Value,
}

impl Whole {
    /// Adds the lists of a piece to the lists so far.
    fn add_logprobs(&mut self, piece: &Value) {
        for (name, items) in piece.as_object().into_iter().flatten() {
            let list = self.logprobs.entry(name.clone()).or_insert_with(|| json!([]));
            list.as_array_mut().unwrap().extend(items.as_array().unwrap().iter().cloned());
        }
    }

    /// Adds a piece of the call at `index`.
    fn add_call(&mut self, index: usize, function: &Value) {
        self.tool_calls.resize_with(self.tool_calls.len().max(index + 1), Default::default);
        for (text, key) in self.tool_calls[index].iter_mut().zip(["name", "arguments"]) {
            text.push_str(function[key].as_str().unwrap_or_default());
        }
    }

    fn add_piece(&mut self, piece: &Value) {
        assert_eq!(self.finish_reason, Value::Null, "a piece after the end: {piece}");
        let text = piece["delta"]["content"].as_str().or(piece["text"].as_str()).unwrap_or_default();
        self.text.push_str(text);
        for message in ["delta", "message"] {
            self.reasoning.push_str(piece[message]["reasoning"].as_str().unwrap_or_default());
            for (at, call) in piece[message]["tool_calls"].as_array().into_iter().flatten().enumerate() {
                let index = call["index"].as_u64().map_or(at, |index| usize::try_from(index).unwrap());
                self.add_call(index, &call["function"]);
            }
        }
        self.token_ids.extend(piece["token_ids"].as_array().into_iter().flatten().cloned());
        self.add_logprobs(&piece["logprobs"]);
        self.finish_reason = piece["finish_reason"].clone();
        self.stop_reason = piece["stop_reason"].clone();
        if !piece["prompt_token_ids"].is_null() {
            self.prompt_token_ids = piece["prompt_token_ids"].clone();
        }
    }
}

/// The choices and the usage of a JSON answer.
fn of_answer(answer: &Value) -> (Vec<Whole>, Value) {
    let choices = answer["choices"].as_array().unwrap().iter().map(|choice| {
        let mut whole = Whole::default();
        whole.add_piece(choice);
        if let Some(content) = choice["message"]["content"].as_str() {
            content.clone_into(&mut whole.text);
        }
        if !answer["prompt_token_ids"].is_null() {
            whole.prompt_token_ids = answer["prompt_token_ids"].clone();
        }
        whole
    });
    let usage = &answer["usage"];
    (choices.collect(), counts(usage))
}

/// The same of a stream with `include_usage`.
fn of_stream(events: &[Value], choices: usize) -> (Vec<Whole>, Value) {
    let mut wholes: Vec<_> = (0..choices).map(|_| Whole::default()).collect();
    let (last, pieces) = events.split_last().unwrap();
    for event in pieces {
        assert_eq!((&event["id"], &event["created"]), (&last["id"], &last["created"]));
        let [choice] = event["choices"].as_array().unwrap().as_slice() else { panic!("{event}") };
        let whole = &mut wholes[usize::try_from(choice["index"].as_u64().unwrap()).unwrap()];
        whole.add_piece(choice);
        if event["prompt_token_ids"].is_array() {
            whole.prompt_token_ids = event["prompt_token_ids"].clone();
        }
    }
    assert_eq!(last["choices"], json!([]));
    let usage = &last["usage"];
    (wholes, counts(usage))
}

/// What both ways say about usage.
fn counts(usage: &Value) -> Value {
    let reasoning = usage["completion_tokens_details"]["reasoning_tokens"].clone();
    json!([usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"], reasoning])
}

/// Asks twice, each time a fresh server, and compares.
pub(crate) async fn adds_up(make: impl Fn() -> TestApp, path: &str, body: Value) {
    let answer = make().post(path, body.clone()).await.ok();
    let (whole, usage) = of_answer(&answer);
    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    streamed["stream_options"] = json!({ "include_usage": true });
    let events = make().post(path, streamed).await.events();
    assert_eq!(of_stream(&events, whole.len()), (whole, usage), "{body}");
}

fn conversation(more: &Value) -> Value {
    let mut body = json!({ "messages": [{ "role": "user", "content": "hello" }], "return_token_ids": true });
    body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
    body
}

fn prompt(more: &Value) -> Value {
    let mut body = json!({ "prompt": "hello", "return_token_ids": true });
    body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
    body
}

/// A script with an emoji in pieces, a special token in the middle and an end.
fn wordy() -> TestApp {
    let app = TestApp::new();
    let script = [app.ids("hello world é😀"), vec![1], app.ids(" you the weather"), vec![IM_END]].concat();
    app.script(script)
}

#[tokio::test]
async fn a_scripted_stream_adds_up_to_the_json_answer() {
    let options = [
        json!({}),
        json!({ "max_tokens": 1 }),
        json!({ "max_tokens": 6 }),
        json!({ "stop": "world" }),
        json!({ "stop": ["zzz", "you t"] }),
        json!({ "stop": ["zzz", "you t"], "include_stop_str_in_output": true }),
        json!({ "stop": "weather!!" }),
        json!({ "stop_token_ids": [1] }),
        json!({ "stop_token_ids": [1], "include_stop_str_in_output": true }),
        json!({ "skip_special_tokens": false }),
        json!({ "ignore_eos": true }),
        json!({ "min_tokens": 3, "stop": "hello" }),
        json!({ "return_token_ids": false }),
    ];
    for option in &options {
        adds_up(wordy, CHAT, conversation(option)).await;
        adds_up(wordy, COMPLETIONS, prompt(option)).await;
    }
    for option in [
        json!({ "logprobs": true }),
        json!({ "logprobs": true, "top_logprobs": 3, "return_tokens_as_token_ids": true }),
        json!({ "logprobs": true, "logprob_token_ids": [9, 3] }),
        json!({ "echo": true, "add_generation_prompt": false }),
        json!({ "repetition_detection": { "max_pattern_size": 1, "min_count": 2 } }),
        json!({ "stream_interval": 3, "logprobs": true, "return_prompt_text": true }),
    ] {
        adds_up(wordy, CHAT, conversation(&option)).await;
    }
    for option in [
        json!({ "logprobs": 0 }),
        json!({ "logprobs": 4 }),
        json!({ "echo": true }),
        json!({ "echo": true, "logprobs": 2 }),
        json!({ "echo": true, "logprobs": 1, "max_tokens": 0 }),
        json!({ "echo": true, "max_tokens": 0 }),
    ] {
        adds_up(wordy, COMPLETIONS, prompt(&option)).await;
    }
}

#[tokio::test]
async fn an_end_without_text_and_one_of_the_second_kind_add_up_too() {
    for script in [vec![IM_END], vec![ENDOFTEXT], vec![5], vec![]] {
        let make = || TestApp::new().script(script.clone());
        adds_up(make, CHAT, conversation(&json!({ "logprobs": true }))).await;
        adds_up(make, COMPLETIONS, prompt(&json!({ "logprobs": 1 }))).await;
    }
}

fn sampling_options() -> impl Strategy<Value = Value> {
    let numbers = (0..1000_i64, 1..60_i64, 1..4_i64, 0..3_usize, 0..20_i64, any::<[bool; 5]>());
    let floats = (0.1..2.0_f64, 0.1..=1.0_f64, 0.0..0.3_f64, -2.0..2.0_f64, 0.5..1.5_f64);
    (numbers, floats, proptest::option::of("[a-e]{1,2}")).prop_map(
        |(
            (seed, max_tokens, n, logprobs, min_tokens, flags),
            (temperature, top_p, min_p, penalty, repetition),
            stop,
        )| {
            json!({
                "seed": seed, "max_tokens": max_tokens, "n": n, "logprobs": logprobs,
                "min_tokens": min_tokens.min(max_tokens), "temperature": temperature, "top_p": top_p, "min_p": min_p,
                "frequency_penalty": penalty, "repetition_penalty": repetition, "stop": stop,
                "ignore_eos": flags[0], "skip_special_tokens": flags[1], "include_stop_str_in_output": flags[2],
                "return_tokens_as_token_ids": flags[3], "echo": flags[4],
                "stream_interval": 1 + seed % 4,
            })
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_stream_adds_up_to_the_json_answer(options in sampling_options()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut completions = options.clone();
            if completions["logprobs"] == json!(0) {
                completions["logprobs"] = Value::Null;
            }
            completions["prompt"] = json!(["hello world", "you"]);
            adds_up(TestApp::new, COMPLETIONS, prompt(&completions)).await;
            let mut chat = options;
            chat["top_logprobs"] = chat["logprobs"].clone();
            chat["logprobs"] = json!(chat["top_logprobs"] != json!(0));
            adds_up(TestApp::new, CHAT, conversation(&chat)).await;
        });
    }
}

/// The shape of each event, runs of the same shape once.
async fn shapes(path: &str, body: Value) -> Vec<String> {
    let mut streamed = body;
    streamed["stream"] = json!(true);
    let mut shapes: Vec<_> =
        TestApp::new().says("hello world").post(path, streamed).await.events().iter().map(shape).collect();
    shapes.dedup();
    shapes
}

#[tokio::test]
async fn chat_chunks_have_the_keys_that_vllm_sends() {
    const FIRST: &str = "id object created model choices[index delta{role content} logprobs finish_reason] prompt_token_ids prompt_text";
    const NEXT: &str =
        "id object created model choices[index delta{content} logprobs finish_reason token_ids] kv_transfer_params";
    let ids = json!({ "return_token_ids": true });
    let last = "id object created model choices[index delta{content} logprobs finish_reason stop_reason token_ids \
                weight_versions] system_fingerprint kv_transfer_params";
    let verdict = "token_continuity{source outcome reason anchor reused_ids new_ids proof matched_by warnings drift}";
    assert_eq!(shapes(CHAT, conversation(&ids)).await, [&format!("{FIRST} {verdict}"), NEXT, last]);
    let length = json!({ "max_tokens": 2, "return_token_ids": false });
    assert_eq!(shapes(CHAT, conversation(&length)).await, [FIRST, NEXT, last]);
    let usage = json!({ "max_tokens": 2, "stream_options": { "include_usage": true }, "return_token_ids": false });
    let last = "id object created model choices[index delta{content} logprobs finish_reason stop_reason token_ids \
                weight_versions] kv_transfer_params";
    let total =
        "id object created model choices usage{prompt_tokens total_tokens completion_tokens} system_fingerprint";
    assert_eq!(shapes(CHAT, conversation(&usage)).await, [FIRST, NEXT, last, total]);
}

#[tokio::test]
async fn completion_chunks_have_the_keys_that_vllm_sends() {
    const CHUNK: &str = "id object created model choices[index text logprobs finish_reason stop_reason \
                         prompt_token_ids token_ids weight_versions]";
    let (next, last) =
        (format!("{CHUNK} kv_transfer_params"), format!("{CHUNK} system_fingerprint kv_transfer_params"));
    assert_eq!(shapes(COMPLETIONS, prompt(&json!({}))).await, [next.as_str(), &last]);
    let usage = json!({ "stream_options": { "include_usage": true } });
    let total =
        "id object created model choices usage{prompt_tokens total_tokens completion_tokens} system_fingerprint";
    assert_eq!(shapes(COMPLETIONS, prompt(&usage)).await, [next.as_str(), total]);
    let continuous = json!({ "stream_options": { "include_usage": true, "continuous_usage_stats": true } });
    let chunk = format!("{CHUNK} usage{{prompt_tokens total_tokens completion_tokens}} kv_transfer_params");
    assert_eq!(shapes(COMPLETIONS, prompt(&continuous)).await, [chunk.as_str(), total]);
}

#[tokio::test]
async fn continuous_usage_grows_token_by_token() {
    for (path, body) in [(CHAT, conversation(&json!({}))), (COMPLETIONS, prompt(&json!({})))] {
        let mut body = body;
        body["stream"] = json!(true);
        body["stream_options"] = json!({ "include_usage": true, "continuous_usage_stats": true });
        let events = TestApp::new().says("hello world").post(path, body).await.events();
        let counts: Vec<_> = events.iter().map(|event| event["usage"]["completion_tokens"].as_u64().unwrap()).collect();
        let expected: &[u64] = if path == CHAT { &[0, 1, 2, 3, 3] } else { &[1, 2, 3, 3] };
        assert_eq!(counts, expected, "{path}");
    }
}

#[tokio::test]
async fn every_choice_of_a_stream_starts_with_a_role_and_its_prompt() {
    let mut body = conversation(&json!({ "n": 3, "seed": 1, "max_tokens": 4 }));
    body["stream"] = json!(true);
    let events = TestApp::new().post(CHAT, body).await.events();
    for index in 0..3 {
        let mut own = events.iter().filter(|event| event["choices"][0]["index"] == index);
        let first = own.next().unwrap();
        assert_eq!(first["choices"][0]["delta"], json!({ "role": "assistant", "content": "" }));
        assert!(first["prompt_token_ids"].is_array());
        assert!(own.all(|event| event["choices"][0]["delta"].get("role").is_none()));
    }
}

#[tokio::test]
async fn a_stream_is_not_held_back_by_proxies_or_caches() {
    let mut body = conversation(&json!({ "max_tokens": 1 }));
    body["stream"] = json!(true);
    let answer = TestApp::new().post(CHAT, body).await;
    assert_eq!(answer.headers["cache-control"], "no-cache");
    assert_eq!(answer.headers["x-accel-buffering"], "no");
}

#[tokio::test]
async fn prompt_log_probs_are_not_streamed() {
    for path in [CHAT, COMPLETIONS] {
        let mut body = if path == CHAT { conversation(&json!({})) } else { prompt(&json!({})) };
        body["stream"] = json!(true);
        body["prompt_logprobs"] = json!(1);
        let refused = TestApp::new().post(path, body).await;
        assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("prompt_logprobs")), "{path}");
    }
}
