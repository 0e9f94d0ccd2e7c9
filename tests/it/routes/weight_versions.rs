//! `return_weight_versions`: which weights sampled which tokens of an answer, on every endpoint.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tito::{
    store::MemoryStore,
    tinker_sessions::TinkerBounds,
    trajectory::{CapturePolicy, Trajectories},
    turn::Capture,
};

use super::tinker;
use crate::it::app::{IM_END, MODEL, TestApp};

/// A server whose weights change while each answer is sampled, the second time with older keys; its answers have three
/// tokens.
fn app() -> TestApp {
    let app = TestApp::new();
    let ids = app.ids("hello you");
    assert_eq!(ids.len(), 2);
    app.script(ids.into_iter().chain([IM_END])).weights(&[(0, "step-1", false), (2, "step-2", true)])
}

fn spans() -> Value {
    json!([
        { "version": "step-1", "start": 0, "end": 2 },
        { "version": "step-2", "start": 2, "end": 3, "reuse_older_keys": true },
    ])
}

fn chat() -> Value {
    json!({ "model": MODEL, "messages": [{ "role": "user", "content": "hello" }], "temperature": 0 })
}

fn completion() -> Value {
    json!({ "model": MODEL, "prompt": "hello world", "temperature": 0 })
}

fn with(mut body: Value, fields: &Value) -> Value {
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

fn asked(body: Value) -> Value {
    with(body, &json!({ "return_weight_versions": true }))
}

fn streamed(body: Value) -> Value {
    with(body, &json!({ "stream": true }))
}

#[tokio::test]
async fn every_choice_says_which_weights_sampled_which_of_its_tokens() {
    let app = app();
    for (path, body) in [("/v1/chat/completions", chat()), ("/v1/completions", completion())] {
        let told = app.post(path, asked(body.clone())).await.ok();
        assert_eq!(told["choices"][0]["weight_versions"], spans(), "{path}");
        let untold = app.post(path, body).await.ok();
        assert_eq!(untold["choices"][0].get("weight_versions"), Some(&Value::Null), "{path}");
    }
    let params = json!({ "temperature": 0 });
    let ids = json!({ "model": MODEL, "token_ids": app.ids("hello"), "sampling_params": params });
    let always = app.post("/inference/v1/generate", ids).await.ok();
    assert_eq!(always["choices"][0]["weight_versions"], spans());
}

#[tokio::test]
async fn an_answer_with_one_prompt_names_the_weights_that_scored_it_where_a_choice_began_with_others() {
    let step = |label| [(0, label, false)];
    for (later, named) in [("step-1", None), ("step-2", Some(json!({ "version": "step-1" })))] {
        let two = json!({ "n": 2, "temperature": 1, "prompt_logprobs": 0 });
        let ids = json!({ "model": MODEL, "token_ids": [5, 6, 7], "sampling_params": two });
        for (path, body) in [("/v1/chat/completions", with(chat(), &two)), ("/inference/v1/generate", ids)] {
            // Their sequences are the first ones of a server.
            let app = app().weights(&step("step-1")).later_weights(&step(later));
            let answer = app.post(path, body).await.ok();
            assert!(answer["prompt_logprobs"].is_array(), "{path}: {answer}");
            assert_eq!(answer.get("prompt_weight_version"), named.as_ref(), "{path}");
        }
        // Here each choice has the scores of its own weights.
        let app = app().weights(&step("step-1")).later_weights(&step(later));
        let answer = app.post("/v1/completions", with(completion(), &two)).await.ok();
        assert_eq!(answer["choices"][0].get("prompt_weight_version"), None);
    }
    let app = app().weights(&step("step-1")).later_weights(&step("step-2"));
    let unscored = with(chat(), &json!({ "n": 2, "temperature": 1 }));
    assert_eq!(app.post("/v1/chat/completions", unscored).await.ok().get("prompt_weight_version"), None);
}

/// A result has no place for the name, and its client asks anew by itself.
#[tokio::test]
async fn a_sample_that_began_with_other_weights_than_those_that_scored_its_prompt_is_gone() {
    let step = |label| [(0, label, false)];
    for (later, scores, is_gone) in [("step-1", true, false), ("step-2", true, true), ("step-2", false, false)] {
        let app = TestApp::new().tinker(TinkerBounds::default()).weights(&step("step-1")).later_weights(&step(later));
        let more = json!({ "num_samples": 2, "prompt_logprobs": scores });
        let params = json!({ "max_tokens": 5, "temperature": 1.0, "stop": [] });
        let body = tinker::request(&tinker::sampler(&app).await, 0, &[5, 6, 7], &params, &more);
        let id = tinker::asample(&app, body).await;
        assert_eq!(tinker::retrieved(&app, &id).await.status == 410, is_gone, "{later} {scores}");
    }
}

#[tokio::test]
async fn a_stream_says_it_in_the_last_chunk_of_each_choice_only() {
    let app = app();
    let two = |body| with(streamed(body), &json!({ "n": 2, "temperature": 1 }));
    for (path, body) in [("/v1/chat/completions", two(chat())), ("/v1/completions", two(completion()))] {
        let told = app.post(path, asked(body.clone())).await.events();
        let mut ends = 0;
        for choice in told.iter().flat_map(|event| event["choices"].as_array().unwrap()) {
            let is_end = choice["finish_reason"] != Value::Null;
            ends += usize::from(is_end);
            assert_eq!(choice["weight_versions"], if is_end { spans() } else { Value::Null }, "{path}");
        }
        assert_eq!(ends, 2);
        let untold = app.post(path, body).await.events();
        let last = &untold.last().unwrap()["choices"][0];
        assert_eq!(last.get("weight_versions"), Some(&Value::Null), "{path}");
    }
}

#[tokio::test]
async fn messages_say_it_and_their_streams_at_the_end() {
    let app = app();
    let body = with(chat(), &json!({ "max_tokens": 9 }));
    let told = app.post("/v1/messages", asked(body.clone())).await.ok();
    assert_eq!(told["weight_versions"], spans());
    assert_eq!(app.post("/v1/messages", body.clone()).await.ok().get("weight_versions"), None);
    let text = app.post("/v1/messages", asked(streamed(body))).await.text;
    let events: Vec<Value> = named_events(&text);
    let telling: Vec<&Value> = events.iter().filter(|event| event.to_string().contains("weight_versions")).collect();
    assert_eq!((telling.len(), &telling[0]["type"]), (1, &json!("message_delta")));
    assert_eq!(telling[0]["delta"]["weight_versions"], spans());
}

#[tokio::test]
async fn responses_say_it_and_their_streams_at_the_end() {
    let app = app();
    let body = json!({ "model": MODEL, "input": "hello", "temperature": 0 });
    let told = app.post("/v1/responses", asked(body.clone())).await.ok();
    assert_eq!(told["weight_versions"], spans());
    let stored = app.get(&format!("/v1/responses/{}", told["id"].as_str().unwrap())).await.ok();
    assert_eq!(stored["weight_versions"], spans());
    assert_eq!(app.post("/v1/responses", body.clone()).await.ok().get("weight_versions"), None);
    let text = app.post("/v1/responses", asked(streamed(body))).await.text;
    let events: Vec<Value> = named_events(&text);
    let telling: Vec<&Value> = events.iter().filter(|event| event.to_string().contains("weight_versions")).collect();
    assert_eq!((telling.len(), &telling[0]["type"]), (1, &json!("response.completed")));
    assert_eq!(telling[0]["response"]["weight_versions"], spans());
}

#[tokio::test]
async fn the_next_turn_says_which_weights_sampled_the_ids_that_it_continues() {
    let app = app();
    let told = |answer: &Value| answer["token_continuity"]["weight_version"].clone();
    let body = with(chat(), &json!({ "return_token_continuity": true }));
    let first = app.post("/v1/chat/completions", body).await.ok();
    assert_eq!(told(&first), Value::Null);
    let said = first["choices"][0]["message"]["content"].clone();
    let next = |said: &Value| {
        let messages = json!([
            { "role": "user", "content": "hello" }, { "role": "assistant", "content": said },
            { "role": "user", "content": "the" },
        ]);
        with(chat(), &json!({ "messages": messages, "return_token_continuity": true }))
    };
    let second = app.post("/v1/chat/completions", next(&said)).await.ok();
    assert_eq!((&second["token_continuity"]["outcome"], told(&second)), (&json!("exact"), json!("step-2")));
    let unknown = app.post("/v1/chat/completions", next(&json!("other"))).await.ok();
    assert_eq!(told(&unknown), Value::Null);
}

#[tokio::test]
async fn an_engine_that_says_nothing_of_its_weights_has_those_that_it_was_loaded_with() {
    let app = TestApp::new().says("you");
    let told = app.post("/v1/chat/completions", asked(chat())).await.ok();
    assert_eq!(told["choices"][0]["weight_versions"], json!([{ "version": "default", "start": 0, "end": 2 }]));
}

#[tokio::test]
async fn a_derendered_answer_passes_on_what_it_was_given() {
    let app = app();
    let ids = json!({ "model": MODEL, "token_ids": app.ids("hello"), "sampling_params": { "temperature": 0 } });
    let generated = app.post("/inference/v1/generate", ids).await.ok();
    for (asks, shown) in [(true, spans()), (false, Value::Null)] {
        let told = json!({ "return_weight_versions": asks });
        let body = json!({ "generate_response": generated, "chat_request": with(chat(), &told) });
        let answer = app.post("/v1/chat/completions/derender", body).await.ok();
        assert_eq!(answer["choices"][0]["weight_versions"], shown);
        let body = json!({ "generate_responses": [generated], "completion_request": with(completion(), &told) });
        let answer = app.post("/v1/completions/derender", body).await.ok();
        assert_eq!(answer["choices"][0]["weight_versions"], shown);
    }
}

#[tokio::test]
async fn the_flag_is_a_boolean_and_never_null() {
    let app = app();
    for (path, body) in [("/v1/chat/completions", chat()), ("/v1/completions", completion())] {
        let answer = app.post(path, with(body, &json!({ "return_weight_versions": null }))).await;
        assert_eq!((answer.status, &answer.error()["param"]), (400, &json!("body.return_weight_versions")), "{path}");
    }
}

/// The data of the events of a stream that names them.
fn named_events(text: &str) -> Vec<Value> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// An adapter keeps its name when the base changes in the middle of its answer.
#[tokio::test]
async fn an_adapters_answer_names_the_base_in_every_dialect() {
    let spans = json!([
        { "version": "p@2", "base_version": "step-1", "start": 0, "end": 2 },
        { "version": "p@2", "base_version": "step-2", "start": 2, "end": 3 },
    ]);
    let app = app().weights(&[(0, "p@2 on step-1", false), (2, "p@2 on step-2", false)]).captures(in_memory());
    let ids = json!({ "token_ids": app.ids("hello"), "sampling_params": { "temperature": 0 } });
    let asked = [
        ("/v1/chat/completions", asked(chat())),
        ("/v1/completions", asked(completion())),
        ("/inference/v1/generate", ids),
        ("/v1/messages", asked(with(chat(), &json!({ "max_tokens": 9 })))),
        ("/v1/responses", asked(json!({ "model": MODEL, "input": "hello", "temperature": 0 }))),
    ];
    for (path, body) in &asked {
        let answer = app.post(path, body.clone()).await.ok();
        assert_eq!(told(&answer), [&spans], "{path}");
        let text = app.post(path, streamed(body.clone())).await.text;
        let events: Vec<Value> = named_events(&text);
        assert_eq!(events.iter().flat_map(told).collect::<Vec<_>>(), [&spans], "{path} {text}");
    }
    let listed = app.get("/v1/trajectories").await.ok();
    let trees = listed["data"].as_array().unwrap();
    let turns: usize = trees.iter().map(|tree| usize::try_from(tree["turn_count"].as_u64().unwrap()).unwrap()).sum();
    assert_eq!(turns, 2 * asked.len());
    let captured = |weights: &Value| {
        let told = weights.as_array().unwrap().iter().map(|span| {
            json!({ "version": span["version"], "base_version": span["base_version"], "start": span["start"], "end": span["end"] })
        });
        told.collect::<Value>()
    };
    for tree in trees {
        let id = tree["id"].as_str().unwrap();
        let tree = app.get(&format!("/v1/trajectories/{id}")).await.ok();
        for turn in tree["turns"].as_array().unwrap() {
            assert_eq!(captured(&turn["weights"]), spans);
            let path = format!("/v1/trajectories/{id}/turns/{}/tokens", turn["id"].as_str().unwrap());
            let tokens = app.get(&path).await.ok();
            let sampled = tokens["spans"].as_array().unwrap().iter().rev().take(2).rev();
            let bases: Vec<_> =
                sampled.map(|span| (span["weight_version"].clone(), span["base_version"].clone())).collect();
            assert_eq!(bases, ["step-1", "step-2"].map(|base| (json!("p@2"), json!(base))));
        }
    }
    let lines = app.get("/v1/trajectories/export?unit=turn").await.text;
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(captured(&line["turns"].as_array().unwrap().last().unwrap()["weights"]), spans);
    }
    assert_eq!(lines.lines().count(), turns);
}

fn in_memory() -> Capture {
    let store = Arc::new(MemoryStore::new(u64::MAX, Duration::MAX));
    let trajectories =
        Trajectories::open(store, CapturePolicy { bytes: 1 << 24, ttl: None, texts: true, images: true }).unwrap();
    Capture { trajectories: Arc::new(trajectories), model: MODEL.into(), process: "test".into() }
}

/// The spans of weights in an answer or an event, wherever its dialect has them.
fn told(value: &Value) -> Vec<&Value> {
    match value {
        Value::Object(fields) => {
            let own = fields.get("weight_versions").filter(|spans| !spans.is_null());
            own.into_iter().chain(fields.values().flat_map(told)).collect()
        }
        Value::Array(items) => items.iter().flat_map(told).collect(),
        _ => Vec::new(),
    }
}
