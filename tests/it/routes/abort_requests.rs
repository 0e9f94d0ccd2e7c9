//! `POST /inference/v1/abort_requests`: requests of every generation endpoint end with what they have.

use axum::{body::Body, http::Response};
use serde_json::{Value, json};
use tito::{
    TokenId,
    engine::{Engine, EngineLoad, scripted::Gate},
    generation::Door,
};
use tokio::task::JoinHandle;
use tower::Service;

use crate::it::app::{TestApp, posted};

const PATH: &str = "/inference/v1/abort_requests";

fn spawned(app: &TestApp, path: &str, body: &Value) -> JoinHandle<Response<Body>> {
    let mut router = app.router();
    let request = posted(path, body.to_string());
    tokio::spawn(async move { router.call(request).await.unwrap() })
}

async fn read(response: Response<Body>) -> Value {
    assert_eq!(response.status(), 200);
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

/// Path, body, the ids that end it, and where the sampled ids are.
fn endpoints() -> [(&'static str, Value, [&'static str; 2]); 4] {
    let messages = json!([{ "role": "user", "content": "hello" }]);
    let chat = json!({ "messages": messages, "request_id": "a", "return_token_ids": true });
    let text = json!({ "prompt": "hello", "max_tokens": 9, "request_id": "a", "return_token_ids": true });
    let batch = json!({ "messages": [messages], "request_id": "a", "return_token_ids": true });
    let ids = json!({ "token_ids": [5, 6], "sampling_params": {}, "request_id": "a" });
    [
        ("/v1/chat/completions", chat, ["chatcmpl-a", "chatcmpl-a"]),
        ("/v1/completions", text, ["cmpl-a", "cmpl-a-0"]),
        ("/v1/chat/completions/batch", batch, ["chatcmpl-a", "chatcmpl-a_0"]),
        ("/inference/v1/generate", ids, ["generate-tokens-a", "generate-tokens-a"]),
    ]
}

#[tokio::test]
async fn a_request_that_is_aborted_is_answered_with_what_was_sampled() {
    for (path, body, ids) in endpoints() {
        for id in ids {
            let gate = Gate::shut();
            let app = TestApp::new();
            let script: Vec<TokenId> = app.ids("hello world you the weather");
            let app = app.script(script.clone()).gate(&gate);
            let running = spawned(&app, path, &body);
            app.until_load(1, 0).await;
            let unknown = app.post(PATH, json!({ "request_ids": ["a", "unknown"] })).await;
            assert_eq!((unknown.status, unknown.text.as_str()), (200, ""), "{path}");
            assert_eq!(app.engine().load().running, 1, "{path}");
            assert_eq!(app.post(PATH, json!({ "request_ids": [id] })).await.status, 200);
            let answer = read(running.await.unwrap()).await;
            let choice = &answer["choices"][0];
            assert_eq!((&choice["finish_reason"], &choice["token_ids"]), (&json!("abort"), &json!([])), "{path} {id}");
            assert_eq!(app.engine().load(), EngineLoad::default());
        }
    }
}

#[tokio::test]
async fn a_request_that_waits_for_a_pause_to_end_is_aborted_at_once() {
    for (path, body, ids) in endpoints() {
        let app = TestApp::new();
        app.running().set_door(Door::Queueing);
        let waiting = spawned(&app, path, &body);
        app.until_load(0, 1).await;
        assert_eq!(app.post(PATH, json!({ "request_ids": [ids[0]] })).await.status, 200);
        let answer = read(waiting.await.unwrap()).await;
        let choice = &answer["choices"][0];
        assert_eq!((&choice["finish_reason"], &choice["token_ids"]), (&json!("abort"), &json!([])), "{path}");
        assert_eq!(app.engine().load(), EngineLoad::default());
    }
}

#[tokio::test]
async fn an_answer_that_is_aborted_before_its_prompt_is_scored_has_no_scores() {
    let app = TestApp::new();
    app.running().set_door(Door::Queueing);
    let sampling = json!({ "prompt_logprobs": 1, "prompt_logprob_token_ids": [5, 6] });
    let body = json!({ "token_ids": [5, 6, 7], "sampling_params": sampling, "request_id": "a" });
    let waiting = spawned(&app, "/inference/v1/generate", &body);
    app.until_load(0, 1).await;
    assert_eq!(app.post(PATH, json!({ "request_ids": ["generate-tokens-a"] })).await.status, 200);
    let answer = read(waiting.await.unwrap()).await;
    assert_eq!(answer["choices"][0]["finish_reason"], "abort");
    assert_eq!((&answer["prompt_logprobs"], &answer["prompt_token_id_logprobs"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn an_aborted_answer_without_a_token_has_empty_log_probs_where_they_were_asked_for() {
    let lists = json!({ "text_offset": [], "token_logprobs": [], "tokens": [], "top_logprobs": [] });
    let content = json!({ "content": [] });
    let asked = [json!({ "logprobs": true }), json!({ "logprobs": 0 }), json!({ "logprobs": true }), Value::Null];
    let empty = [content.clone(), lists, content.clone(), content];
    for (((path, mut body, [id, _]), asked), empty) in endpoints().into_iter().zip(asked).zip(empty) {
        match asked {
            Value::Object(asked) => body.as_object_mut().unwrap().extend(asked),
            _ => body["sampling_params"] = json!({ "logprobs": 0 }),
        }
        let gate = Gate::shut();
        let app = TestApp::new().gate(&gate);
        let running = spawned(&app, path, &body);
        app.until_load(1, 0).await;
        app.post(PATH, json!({ "request_ids": [id] })).await;
        let answer = read(running.await.unwrap()).await;
        assert_eq!(
            (&answer["choices"][0]["logprobs"], answer["usage"]["completion_tokens"].as_u64()),
            (&empty, Some(0))
        );
        if path.ends_with("/batch") {
            continue;
        }
        body["stream"] = json!(true);
        let mut router = app.router();
        let stream = router.call(posted(path, body.to_string())).await.unwrap();
        let text = tokio::spawn(axum::body::to_bytes(stream.into_body(), usize::MAX));
        app.until_load(1, 0).await;
        app.post(PATH, json!({ "request_ids": [id] })).await;
        let text = String::from_utf8(text.await.unwrap().unwrap().to_vec()).unwrap();
        let events = text.split_terminator("\n\n").filter_map(|frame| frame.strip_prefix("data: {"));
        let events: Vec<Value> = events.map(|event| serde_json::from_str(&format!("{{{event}")).unwrap()).collect();
        assert_eq!(events.last().unwrap()["choices"][0]["logprobs"], empty, "{path}");
    }
}

#[tokio::test]
async fn a_stream_that_is_aborted_ends_as_a_stream_does_with_the_tokens_that_it_had() {
    let gate = Gate::shut();
    let app = TestApp::new();
    let script = app.ids("hello world you the weather");
    let app = app.script(script.clone()).gate(&gate);
    let body = json!({ "token_ids": [5], "sampling_params": {}, "request_id": "a", "stream": true });
    let mut stream = app.open("/inference/v1/generate", body).await;
    gate.pass(2);
    let mut ids = Vec::new();
    for _ in 0..2 {
        let event = stream.next().await.unwrap();
        assert_eq!(event["choices"][0]["weight_versions"], Value::Null);
        ids.extend(event["choices"][0]["token_ids"].as_array().unwrap().iter().cloned());
    }
    app.post(PATH, json!({ "request_ids": ["generate-tokens-a"] })).await;
    let rest = stream.rest().await;
    let [end] = rest.as_slice() else { panic!("{rest:?}") };
    assert_eq!(end["choices"][0]["finish_reason"], "abort");
    assert_eq!(end["choices"][0]["weight_versions"], json!([{ "version": "default", "start": 0, "end": 2 }]));
    assert_eq!(json!(ids), json!(script[..2]));
}

#[tokio::test]
async fn of_several_prompts_one_may_end_and_a_request_that_waits_ends_too() {
    let gate = Gate::shut();
    let app = TestApp::new().gate(&gate).seats(1);
    let body = json!({ "prompt": ["hello", "world"], "request_id": "a", "max_tokens": 2, "ignore_eos": true });
    let running = spawned(&app, "/v1/completions", &body);
    app.until_load(1, 1).await;
    assert_eq!(app.post(PATH, json!({ "request_ids": ["cmpl-a-1"] })).await.status, 200);
    gate.open();
    let answer = read(running.await.unwrap()).await;
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["choices"][1]["finish_reason"], "abort");
}

#[tokio::test]
async fn one_name_of_several_prompts_ends_them_all_and_each_has_its_own() {
    let prompts = json!({ "text": ["hello", "world"], "rid": "mine", "sampling_params": { "n": 2 } });
    for (name, ended) in [("mine", [true, true]), ("mine_1", [false, true])] {
        let gate = Gate::shut();
        let app = TestApp::new().gate(&gate);
        let running = spawned(&app, "/generate", &prompts);
        app.until_load(4, 0).await;
        assert_eq!(app.post(PATH, json!({ "request_ids": [name] })).await.status, 200);
        gate.open();
        let answer = read(running.await.unwrap()).await;
        for (index, sequence) in answer.as_array().unwrap().iter().enumerate() {
            let info = &sequence["meta_info"];
            let is_ended = info["finish_reason"]["type"] == "abort";
            assert_eq!((info["id"].as_str(), is_ended), (Some(["mine_0", "mine_1"][index / 2]), ended[index / 2]));
        }
    }
}

#[tokio::test]
async fn a_chat_that_is_named_in_the_words_of_sglang_says_that_name() {
    let messages = json!([{ "role": "user", "content": "hello" }]);
    let body = json!({ "messages": messages, "rid": "mine", "request_id": "a", "return_meta_info": true });
    let answer = TestApp::new().post("/v1/chat/completions", body).await.ok();
    assert_eq!((&answer["id"], &answer["choices"][0]["meta_info"]["id"]), (&json!("chatcmpl-a"), &json!("mine")));
}

#[tokio::test]
async fn a_body_without_ids_is_refused() {
    let app = TestApp::new();
    let missing = app.post(PATH, json!({})).await;
    let error = missing.error();
    assert_eq!((missing.status, &error["type"], &error["param"]), (400, &json!("Bad Request"), &Value::Null));
    assert_eq!(error["message"], "Missing 'request_ids' in request body");
    assert_eq!(app.post(PATH, json!({ "request_ids": 5 })).await.status, 400);
}
