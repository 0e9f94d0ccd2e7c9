//! `routed_experts`, out of answers and into requests, on every endpoint that has them.

use std::{sync::Arc, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use tito::{
    engine::RouteShape,
    store::MemoryStore,
    trajectory::{CapturePolicy, Trajectories},
    turn::Capture,
};

use crate::it::app::{MODEL, TestApp};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const GENERATE: &str = "/inference/v1/generate";

const PROMPT: [u32; 5] = [5, 6, 7, 8, 9];
const LAYERS: usize = 3;
const EXPERTS: usize = 4;

/// A model whose first layer has no experts.
fn shape() -> RouteShape {
    RouteShape { layers: LAYERS, mixtures: vec![1, 2], experts: EXPERTS, per_token: 2 }
}

fn app(returns: bool) -> TestApp {
    TestApp::new().says("hello").mixtures(shape(), returns)
}

/// A request whose prompt is [`PROMPT`], on any endpoint.
fn body(path: &str, more: Value) -> Value {
    let mut body = match path {
        CHAT => {
            json!({ "messages": [{ "role": "user", "content": "hi" }], "prompt_token_ids": PROMPT, "max_tokens": 4 })
        }
        COMPLETIONS => json!({ "prompt": PROMPT, "max_tokens": 4 }),
        _ => json!({ "token_ids": PROMPT, "sampling_params": { "max_tokens": 4 } }),
    };
    let Value::Object(fields) = more else { panic!("no fields: {more}") };
    for (name, value) in fields {
        let is_parameter = path == GENERATE && ["routed_experts_prompt_start", "n", "seed"].contains(&name.as_str());
        let place = if is_parameter { &mut body["sampling_params"] } else { &mut body };
        place[name] = value;
    }
    body
}

/// The numbers of an `.npy` file of bytes, and its sizes.
fn decoded(choice: &Value) -> (Vec<usize>, Vec<u8>) {
    let file = BASE64_STANDARD.decode(choice["routed_experts"].as_str().unwrap()).unwrap();
    let header = usize::from(u16::from_le_bytes([file[8], file[9]]));
    let text = std::str::from_utf8(&file[10..10 + header]).unwrap();
    assert!(text.starts_with("{'descr': '|u1', 'fortran_order': False, 'shape': ("), "{text}");
    let sizes = text.split_once("'shape': (").unwrap().1.split_once(')').unwrap().0;
    (sizes.split(", ").map(|size| size.parse().unwrap()).collect(), file[10 + header..].to_vec())
}

/// What the engine says that the tokens at these positions go through; the first layer has no experts.
fn expected(positions: std::ops::Range<usize>) -> (Vec<usize>, Vec<u8>) {
    let of_token = |position: usize| {
        let experts = |mixture| [0, 1].map(|at| u8::try_from((position + mixture + at) % EXPERTS).unwrap());
        [[0, 0], experts(0), experts(1)].concat()
    };
    (vec![positions.len(), LAYERS, 2], positions.flat_map(of_token).collect())
}

#[tokio::test]
async fn sglang_has_the_same_experts_as_bare_numbers() {
    let app = app(true);
    let params = json!({ "max_new_tokens": 4, "ignore_eos": true });
    for start in [0, 2] {
        let asked = json!({
            "input_ids": PROMPT, "sampling_params": params, "return_routed_experts": true, "routed_experts_start_len": start
        });
        let answer = app.post("/generate", asked.clone()).await.ok();
        let bytes = BASE64_STANDARD.decode(answer["meta_info"]["routed_experts"].as_str().unwrap()).unwrap();
        let numbers: Vec<i32> = bytes.as_chunks::<4>().0.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect();
        let sampled = answer["output_ids"].as_array().unwrap().len();
        let (_, experts) = expected(start..PROMPT.len() + sampled - 1);
        assert_eq!(numbers, experts.into_iter().map(i32::from).collect::<Vec<_>>());
        let mut streamed = asked;
        streamed["stream"] = json!(true);
        let events = app.post("/generate", streamed).await.events();
        let (last, others) = events.split_last().unwrap();
        assert_eq!(last["meta_info"]["routed_experts"], answer["meta_info"]["routed_experts"]);
        assert!(others.iter().all(|event| event["meta_info"].get("routed_experts").is_none()));
    }
    let quiet = app.post("/generate", json!({ "input_ids": PROMPT, "sampling_params": params })).await.ok();
    assert_eq!(quiet["meta_info"].get("routed_experts"), None);
}

fn sampled(answer: &Value) -> usize {
    usize::try_from(answer["usage"]["completion_tokens"].as_u64().unwrap()).unwrap()
}

#[tokio::test]
async fn answers_have_the_experts_of_all_tokens_but_the_last() {
    for path in [CHAT, COMPLETIONS, GENERATE] {
        for start in [0, 2, PROMPT.len()] {
            let answer = app(true).post(path, body(path, json!({ "routed_experts_prompt_start": start }))).await.ok();
            let end = PROMPT.len() + sampled(&answer) - 1;
            assert_eq!(decoded(&answer["choices"][0]), expected(start..end), "{path} {start}");
        }
    }
}

#[tokio::test]
async fn without_the_flag_they_are_null_and_not_in_streams() {
    for path in [CHAT, COMPLETIONS, GENERATE] {
        let more = json!({ "routed_experts_prompt_start": 1, "return_token_ids": true });
        let answer = app(false).post(path, body(path, more.clone())).await.ok();
        assert_eq!(answer["choices"][0].get("routed_experts"), Some(&Value::Null), "{path}");
        assert_eq!(answer["choices"][0]["message"].get("routed_experts"), None, "{path}");
        let mut streamed = body(path, more);
        streamed["stream"] = json!(true);
        for event in app(false).post(path, streamed).await.events() {
            let found = event["choices"][0].get("routed_experts");
            assert_eq!(found, (path == GENERATE).then_some(&Value::Null), "{path}: {event}");
        }
    }
}

#[tokio::test]
async fn the_last_event_of_a_choice_has_what_a_whole_answer_has() {
    for path in [CHAT, COMPLETIONS, GENERATE] {
        let app = || TestApp::new().says("hello").says("hi you").mixtures(shape(), true);
        let more = json!({ "n": 2, "seed": 7, "return_token_ids": true });
        let whole = app().post(path, body(path, more.clone())).await.ok();
        let mut streamed = body(path, more);
        streamed["stream"] = json!(true);
        let events = app().post(path, streamed).await.events();
        for index in 0..2 {
            let choice = &whole["choices"][index];
            let end = PROMPT.len() - 1 + choice["token_ids"].as_array().unwrap().len();
            assert_eq!(decoded(choice), expected(0..end), "{path} {index}");
            let choices = events.iter().map(|event| &event["choices"][0]);
            let of_choice: Vec<&Value> = choices.filter(|choice| choice["index"] == index).collect();
            let (last, others) = of_choice.split_last().unwrap();
            assert!(!last["finish_reason"].is_null(), "{path}: {last}");
            assert_eq!(last["routed_experts"], choice["routed_experts"], "{path} {index}");
            assert!(!others.is_empty(), "{path}");
            for other in others {
                assert!(other["routed_experts"].is_null(), "{path}: {other}");
            }
        }
    }
}

#[tokio::test]
async fn messages_with_their_ids_carry_the_experts_of_all_tokens_as_nemo_rl_has_them() {
    let app = app(true);
    let mut asked = body(CHAT, json!({ "return_token_ids": true }));
    let answer = app.post(CHAT, asked.clone()).await.ok();
    let message = &answer["choices"][0]["message"];
    let tokens = PROMPT.len() + sampled(&answer);
    let mut numbers = expected(0..tokens - 1).1;
    numbers.extend([0, 1, 0, 1, 0, 1]);
    let envelope = format!("nrlre1:int8:{tokens}x3x2:{}", BASE64_STANDARD.encode(numbers));
    assert_eq!(message["routed_experts"], envelope);
    // Sent back, it is the next turn's history, and changes nothing.
    asked.as_object_mut().unwrap().remove("prompt_token_ids");
    asked["messages"].as_array_mut().unwrap().push(message.clone());
    asked["messages"].as_array_mut().unwrap().push(json!({ "role": "user", "content": "and?" }));
    let next = app.post(CHAT, asked.clone()).await.ok();
    asked["messages"][1].as_object_mut().unwrap().remove("routed_experts");
    let same = app.post(CHAT, asked).await.ok();
    assert_eq!(next["prompt_token_ids"], same["prompt_token_ids"]);
    let begin = next["prompt_token_ids"].as_array().unwrap()[..PROMPT.len()].to_vec();
    assert_eq!(begin, PROMPT.map(Value::from), "the ids of the first turn are kept");
}

#[tokio::test]
async fn items_and_anthropic_messages_with_their_ids_carry_them_too() {
    let app = app(true);
    let response = app.post("/v1/responses", json!({ "input": "hi", "return_token_ids": true })).await.ok();
    let item = response["output"].as_array().unwrap().iter().find(|item| item["type"] == "message").unwrap();
    assert!(item["routed_experts"].as_str().unwrap().starts_with("nrlre1:int8:"), "{item}");
    let stored = app.get(&format!("/v1/responses/{}/input_items", response["id"].as_str().unwrap())).await;
    assert!(!stored.text.contains("nrlre1"));
    let next = json!({ "input": [{ "role": "user", "content": "hi" }, item, { "role": "user", "content": "and?" }] });
    app.post("/v1/responses", next).await.ok();
    let messages = json!({ "model": "tiny", "max_tokens": 4, "return_token_ids": true,
        "messages": [{ "role": "user", "content": "hi" }] });
    let message = app.post("/v1/messages", messages).await.ok();
    assert!(message["routed_experts"].as_str().unwrap().starts_with("nrlre1:int8:"), "{message}");
}

/// Experts that nobody would choose: the last ones, in all layers.
fn given(rows: usize) -> Value {
    json!(vec![vec![[3, 2]; LAYERS]; rows])
}

#[tokio::test]
async fn given_experts_are_taken_and_what_follows_them_is_chosen() {
    for path in [CHAT, COMPLETIONS, GENERATE] {
        let answer = app(true).post(path, body(path, json!({ "routed_experts": given(3) }))).await.ok();
        let (_, found) = decoded(&answer["choices"][0]);
        let row = LAYERS * 2;
        assert_eq!(found[..3 * row], [0, 0, 3, 2, 3, 2].repeat(3), "{path}");
        let end = PROMPT.len() + sampled(&answer) - 1;
        assert_eq!(found[3 * row..], expected(3..end).1, "{path}");
        // What an answer says can be given back as it is.
        let again = json!({ "routed_experts": answer["choices"][0]["routed_experts"] });
        let longer = app(true).post(path, body(path, again)).await;
        let rows = end;
        let message = format!("has the experts of {rows} tokens, and the prompt has 5");
        assert!(longer.status == 400 && longer.text.contains(&message), "{}", longer.text);
    }
}

#[tokio::test]
async fn a_render_carries_what_is_said_of_experts() {
    for path in [CHAT, COMPLETIONS] {
        let asked = body(path, json!({ "routed_experts": given(3), "routed_experts_prompt_start": 2 }));
        let direct = app(true).post(path, asked.clone()).await.ok();
        let rendered = app(true).post(&format!("{path}/render"), asked).await.ok();
        let rendered = if path == CHAT { rendered } else { rendered[0].clone() };
        let generated = app(true).post(GENERATE, rendered).await.ok();
        assert_eq!(decoded(&generated["choices"][0]), decoded(&direct["choices"][0]), "{path}");
    }
}

#[tokio::test]
async fn turns_with_given_experts_are_scored_again_each_by_itself() {
    let policy = CapturePolicy { bytes: 1 << 24, ttl: None, texts: true, images: true };
    let trajectories = Trajectories::open(Arc::new(MemoryStore::new(u64::MAX, Duration::MAX)), policy).unwrap();
    let capture = Capture { trajectories: Arc::new(trajectories), model: MODEL.into(), process: "test".into() };
    let app = TestApp::new().mixtures(shape(), false).captures(capture);
    for more in [json!({}), json!({ "routed_experts": given(3) })] {
        app.post(COMPLETIONS, body(COMPLETIONS, more)).await.ok();
    }
    let lines = app.get("/v1/trajectories/export?rescore=true").await.text;
    let rescored: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["rescored"].take()).collect();
    let [free, given] = &rescored[..] else { panic!("{lines}") };
    for rescored in [free, given] {
        assert_eq!((&rescored["tokens"], &rescored["greatest"], rescored.get("error")), (&json!(4), &json!(0.0), None));
    }
}

#[tokio::test]
async fn what_cannot_be_followed_is_refused_by_the_name_of_the_field() {
    let refused = |app: TestApp, path: &'static str, more: Value| async move {
        let answer = app.post(path, body(path, more)).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        answer.error()
    };
    for path in [CHAT, COMPLETIONS, GENERATE] {
        let error = refused(app(false), path, json!({ "routed_experts": [[[0, 1]]] })).await;
        assert_eq!(error["param"], "routed_experts", "{path}");
        assert_eq!(
            error["message"],
            "`routed_experts` must have the shape (tokens, 3, 2) of this model's layers and experts per token, or \
             (tokens, 2, 2) of the layers with experts alone, got (1, 1, 2) (parameter=routed_experts)",
            "{path}"
        );
        let error = refused(app(false), path, json!({ "routed_experts": "no" })).await;
        assert_eq!(error["param"], "routed_experts", "{path}");
        let error = refused(app(false), path, json!({ "routed_experts": [[[0, 0], [1, 4], [0, 1]]] })).await;
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("names expert 4 for token 0 in layer 1"), "{message}");
        let error = refused(TestApp::new(), path, json!({ "routed_experts": given(1) })).await;
        assert!(error["message"].as_str().unwrap().contains("needs a model with mixtures of experts"), "{error}");
        // As vLLM does, with the flag or without.
        let late = json!({ "routed_experts_prompt_start": 6 });
        for app in [app(true), app(false), TestApp::new()] {
            let error = refused(app, path, late.clone()).await;
            assert_eq!(error["param"], "routed_experts_prompt_start", "{path}");
            assert_eq!(
                error["message"],
                "routed_experts_prompt_start must be between 0 and the prompt length (5), inclusive. \
                 (parameter=routed_experts_prompt_start, value=6)",
                "{path}"
            );
        }
    }
    let two = json!({ "prompt": [[5, 6], [7, 8]], "routed_experts": given(1) });
    let error = refused(app(false), COMPLETIONS, two).await;
    assert!(error["message"].as_str().unwrap().contains("is for a single prompt, got 2"), "{error}");
    let batch = json!({ "messages": [[{ "role": "user", "content": "hi" }]], "routed_experts": given(1) });
    let answer = app(false).post("/v1/chat/completions/batch", batch).await;
    assert_eq!((answer.status, &answer.error()["param"]), (400, &json!("routed_experts")));
}

#[tokio::test]
async fn a_chat_shows_experts_where_sglang_does_if_it_is_asked_to() {
    let app = app(true);
    let answer =
        app.post(CHAT, body(CHAT, json!({ "return_routed_experts": true, "return_meta_info": true }))).await.ok();
    let shown = answer["sglext"]["routed_experts"].as_str().unwrap();
    assert_eq!(shown, answer["choices"][0]["meta_info"]["routed_experts"]);
    let all = BASE64_STANDARD.decode(shown).unwrap().len();
    let later = body(CHAT, json!({ "return_routed_experts": true, "routed_experts_start_len": 2 }));
    let later = app.post(CHAT, later).await.ok()["sglext"]["routed_experts"].as_str().unwrap().to_owned();
    assert_eq!(BASE64_STANDARD.decode(later).unwrap().len(), all - 2 * LAYERS * 2 * 4);
    assert_eq!(app.post(CHAT, body(CHAT, json!({}))).await.ok().get("sglext"), None);
    for more in [json!({ "stream": true }), json!({})] {
        let mut asked = body(CHAT, more.clone());
        asked["return_routed_experts"] = json!(true);
        let answer =
            if more == json!({}) { self::app(false).post(CHAT, asked).await } else { app.post(CHAT, asked).await };
        assert_eq!((answer.status, &answer.error()["param"]), (400, &json!("return_routed_experts")), "{more}");
    }
}
