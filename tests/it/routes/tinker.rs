//! `/api/v1`: what sampling clients of the package `tinker` ask.

use std::time::Duration;

use axum::{
    body::{Body, to_bytes},
    http::{Method, Request, header},
};
use prost::Message;
use serde_json::{Value, json};
use tito::{
    engine::{Engine as _, scripted::Gate},
    tinker_sessions::TinkerBounds,
};

use crate::{
    it::{
        app::{Answer, IM_END, TestApp, VOCAB_SIZE, posted},
        patience::until,
    },
    wire::tinker::protobuf::{SampleResponse, StopReason, TopkLogprobs},
};

/// Nobody is left waiting.
fn impatient() -> TinkerBounds {
    TinkerBounds { long_poll: Duration::ZERO, ..TinkerBounds::default() }
}

fn served() -> TestApp {
    TestApp::new().tinker(TinkerBounds::default())
}

async fn session(app: &TestApp) -> String {
    let body = json!({ "tags": [], "user_metadata": {}, "sdk_version": "0.38.0", "type": "create_session" });
    app.post("/api/v1/create_session", body).await.ok()["session_id"].as_str().unwrap().to_owned()
}

pub(super) async fn sampler(app: &TestApp) -> String {
    let body = json!({ "session_id": session(app).await, "sampling_session_seq_id": 0, "base_model": "tiny",
        "type": "create_sampling_session" });
    let answer = app.post("/api/v1/create_sampling_session", body).await.ok();
    answer["sampling_session_id"].as_str().unwrap().to_owned()
}

/// What the client sends of a request, with `more` in it.
pub(super) fn request(sampler: &str, seq: u64, ids: &[u32], params: &Value, more: &Value) -> Value {
    let mut body = json!({
        "sampling_session_id": sampler, "seq_id": seq, "num_samples": 1, "type": "sample", "topk_prompt_logprobs": 0,
        "topk_sample_logprobs": 0, "prompt_alt_tokens_k": 0, "prompt_logprobs": false, "record_stability_info": false,
        "prompt": { "chunks": [{ "type": "encoded_text", "tokens": ids }] }, "sampling_params": params
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

pub(super) async fn asample(app: &TestApp, body: Value) -> String {
    let answer = app.post("/api/v1/asample", body).await.ok();
    answer["request_id"].as_str().unwrap().to_owned()
}

fn retrieval(id: &str) -> Request<Body> {
    posted("/api/v1/retrieve_future", json!({ "request_id": id, "allow_metadata_only": true }).to_string())
}

pub(super) async fn retrieved(app: &TestApp, id: &str) -> Answer {
    app.request(retrieval(id)).await
}

/// Asks for a result, with nobody left waiting, until it is there.
async fn until_retrieved(app: &TestApp, id: &str) {
    until("the result is there", async || !retrieved(app, id).await.text.contains("try_again")).await;
}

pub(super) async fn result(app: &TestApp, id: &str) -> SampleResponse {
    let response = app.send(retrieval(id)).await;
    let bytes = |body| async { to_bytes(body, usize::MAX).await.unwrap() };
    let (parts, body) = response.into_parts();
    let body = bytes(body).await;
    assert_eq!(parts.headers[header::CONTENT_TYPE], "application/x-protobuf", "{}", String::from_utf8_lossy(&body));
    SampleResponse::decode(body).unwrap()
}

fn words(bytes: &[u8]) -> Vec<[u8; 4]> {
    bytes.chunks(4).map(|word| word.try_into().unwrap()).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    words(bytes).into_iter().map(f32::from_le_bytes).collect()
}

pub(super) fn ids(bytes: &[u8]) -> Vec<u32> {
    words(bytes).into_iter().map(u32::from_le_bytes).collect()
}

/// The rows of ids with their log-probs.
fn rows(top: &TopkLogprobs) -> Vec<Vec<(u32, f32)>> {
    let all: Vec<_> = ids(&top.token_ids).into_iter().zip(floats(&top.logprobs)).collect();
    let rows: Vec<Vec<_>> = all.chunks(top.k as usize).map(<[_]>::to_vec).collect();
    assert_eq!(rows.len(), top.length as usize);
    rows
}

#[tokio::test]
async fn it_samples_what_generate_samples_to_the_bit() {
    let app = served();
    let prompt = app.ids("hello world you");
    let params = json!({ "max_tokens": 6, "seed": 5, "temperature": 0.8, "top_k": 9, "top_p": 0.9, "stop": [] });
    let more =
        json!({ "num_samples": 2, "prompt_logprobs": true, "topk_prompt_logprobs": 2, "topk_sample_logprobs": 3 });
    let body = request(&sampler(&app).await, 0, &prompt, &params, &more);
    let promise = app.post("/api/v1/asample", body).await.ok();
    let id = promise["request_id"].as_str().unwrap();
    assert_eq!(promise["sample_sequence_ids"], json!([format!("{id}:0"), format!("{id}:1")]));
    let ours = result(&app, id).await;
    let theirs = app.post("/inference/v1/generate", json!({ "token_ids": prompt, "sampling_params": {
        "max_tokens": 6, "seed": 5, "temperature": 0.8, "top_k": 9, "top_p": 0.9, "n": 2, "ignore_eos": true, "logprobs": 3,
        "prompt_logprobs": 2 } }));
    let theirs = theirs.await.ok();
    #[expect(clippy::cast_possible_truncation, reason = "it was written from one")]
    let logprob = |entry: &Value| entry["logprob"].as_f64().unwrap() as f32;
    for (sequence, choice) in ours.sequences.iter().zip(theirs["choices"].as_array().unwrap()) {
        assert_eq!(json!(ids(&sequence.tokens)), choice["token_ids"]);
        let content = choice["logprobs"]["content"].as_array().unwrap();
        assert_eq!(floats(sequence.logprobs.as_ref().unwrap()), content.iter().map(logprob).collect::<Vec<_>>());
        assert_eq!(sequence.stop_reason, i32::from(StopReason::Length));
        for (row, entry) in rows(sequence.topk_sampled_logprobs.as_ref().unwrap()).iter().zip(content) {
            assert_eq!(row.len(), 3);
            assert!(row.windows(2).all(|pair| pair[0].1 >= pair[1].1), "{row:?}");
            let sampled = (u32::try_from(entry["token_id"].as_u64().unwrap()).unwrap(), logprob(entry));
            assert!(row.contains(&sampled) || row[2].1 >= sampled.1, "{row:?}, {sampled:?}");
        }
    }
    let scores = floats(ours.prompt_logprobs.as_ref().unwrap());
    let rows = rows(ours.topk_prompt_logprobs.as_ref().unwrap());
    assert!(scores[0].is_nan());
    assert_eq!(rows[0], [(0, -99999.0); 2]);
    let of_generate = theirs["prompt_logprobs"].as_array().unwrap();
    assert_eq!((scores.len(), rows.len(), of_generate.len()), (prompt.len(), prompt.len(), prompt.len()));
    for (index, &id) in prompt.iter().enumerate().skip(1) {
        let entries = &of_generate[index];
        assert_eq!(scores[index].to_bits(), logprob(&entries[id.to_string()]).to_bits(), "{index}");
        for (id, score) in &rows[index] {
            assert_eq!(score.to_bits(), logprob(&entries[id.to_string()]).to_bits(), "{index} {id}");
        }
    }
}

#[tokio::test]
async fn only_the_last_tokens_of_a_prompt_are_scored_where_that_is_asked_for() {
    let app = served();
    let prompt = app.ids("hello world you and me");
    let sampler = sampler(&app).await;
    let params = json!({ "max_tokens": 1 });
    let whole = json!({ "prompt_logprobs": true, "topk_prompt_logprobs": 1 });
    let whole = result(&app, &asample(&app, request(&sampler, 0, &prompt, &params, &whole)).await).await;
    let last = json!({ "prompt_logprobs": true, "topk_prompt_logprobs": 1, "prompt_logprobs_last_n": 2 });
    let last = result(&app, &asample(&app, request(&sampler, 1, &prompt, &params, &last)).await).await;
    let (all, some) = (floats(&whole.prompt_logprobs.unwrap()), floats(&last.prompt_logprobs.unwrap()));
    let from = prompt.len() - 2;
    assert!(some[..from].iter().all(|score| score.is_nan()) && some.len() == all.len(), "{some:?}");
    assert_eq!(some[from..], all[from..]);
    let (all, some) = (rows(&whole.topk_prompt_logprobs.unwrap()), rows(&last.topk_prompt_logprobs.unwrap()));
    assert!(some[..from].iter().all(|row| *row == [(0, -99999.0)]));
    assert_eq!(some[from..], all[from..]);
}

#[tokio::test]
async fn named_ids_are_scored_at_their_positions_as_generate_scores_them() {
    let app = served();
    let prompt = app.ids("hello world you and me");
    let rows = prompt.len() - 1;
    // The first row names none; each other one names the token that is there, and another one.
    let cells: Vec<[i64; 3]> =
        (0..rows).map(|row| if row == 0 { [-1; 3] } else { [i64::from(prompt[row + 1]), -1, 5] }).collect();
    let tensor = json!({ "data": cells.concat(), "dtype": "int64", "shape": [rows, 3] });
    let more = json!({ "target_prompt_logprobs": tensor, "prompt_logprobs": true });
    let body = request(&sampler(&app).await, 0, &prompt, &json!({ "max_tokens": 1 }), &more);
    let ours = result(&app, &asample(&app, body).await).await;
    let tensor = ours.target_prompt_logprobs.unwrap();
    let shape = [i64::try_from(rows).unwrap(), 3];
    assert_eq!((&tensor.shape[..], tensor.sparse_csr), (&shape[..], None));
    let (scores, targets) = (floats(&ours.prompt_logprobs.unwrap()), floats(&tensor.dense.unwrap()));
    let all = TestApp::new()
        .policy(|policy| policy.max_logprobs = None)
        .post(
            "/inference/v1/generate",
            json!({ "token_ids": prompt, "sampling_params": {
        "max_tokens": 1, "prompt_logprobs": -1 } }),
        )
        .await
        .ok()["prompt_logprobs"]
        .clone();
    assert_eq!(targets[..3], [0.0; 3]);
    for (row, cells) in targets.chunks(3).enumerate().skip(1) {
        assert_eq!((cells[0].to_bits(), cells[1]), (scores[row + 1].to_bits(), 0.0), "{row}");
        #[expect(clippy::cast_possible_truncation, reason = "it was written from one")]
        let other = all[row + 1]["5"]["logprob"].as_f64().unwrap() as f32;
        assert_eq!(cells[2].to_bits(), other.to_bits(), "{row}");
    }
}

#[tokio::test]
async fn a_client_that_waits_when_the_server_stops_is_told_so() {
    let app = TestApp::new().gate(&Gate::shut()).seats(1).tinker(TinkerBounds::default());
    let sampler = sampler(&app).await;
    let body = |seq| request(&sampler, seq, &app.ids("hello"), &json!({ "max_tokens": 3 }), &json!({}));
    let (running, waiting) = (asample(&app, body(0)).await, asample(&app, body(1)).await);
    app.until_load(1, 1).await;
    let engine = app.engine();
    let stop = engine.shutdown(Duration::MAX);
    let (running, waiting, ()) = tokio::join!(retrieved(&app, &running), retrieved(&app, &waiting), stop);
    for answer in [running, waiting] {
        let told = answer.ok();
        assert_eq!(told["category"], "server", "{told}");
        assert!(told["error"].as_str().unwrap().contains("the server is stopping"), "{told}");
    }
}

#[tokio::test]
async fn what_ends_a_sequence_is_as_asked() {
    let app = served().says("hello world you and me");
    let sampler = sampler(&app).await;
    let all: Vec<u32> = app.ids("hello world you and me").into_iter().chain([IM_END]).collect();
    let third = all[2];
    let up_to = all.iter().position(|&id| id == third).unwrap() + 1;
    // The script goes on after its end where that does not end it.
    for (seq, (stop, length, reason)) in (0..).zip([
        (json!(null), all.len(), StopReason::Stop),
        (json!([third]), up_to, StopReason::Stop),
        (json!("<|im_end|>"), all.len(), StopReason::Stop),
        (json!(["<|im_end|>", "never"]), all.len(), StopReason::Stop),
        (json!([]), 0, StopReason::Length),
    ]) {
        let max_tokens = if length == 0 { all.len() } else { 40 };
        let params = json!({ "max_tokens": max_tokens, "stop": stop });
        let id = asample(&app, request(&sampler, seq, &app.ids("hello"), &params, &json!({}))).await;
        let sequence = result(&app, &id).await.sequences.remove(0);
        let length = if length == 0 { all.len() } else { length };
        assert_eq!(ids(&sequence.tokens), all[..length], "{stop}");
        assert_eq!(sequence.stop_reason, i32::from(reason), "{stop}");
    }
}

#[tokio::test]
async fn several_greedy_samples_are_one_sequence_several_times() {
    let app = served();
    let params = json!({ "max_tokens": 5, "temperature": 0.0, "stop": [] });
    let body = request(&sampler(&app).await, 0, &app.ids("hello"), &params, &json!({ "num_samples": 3 }));
    let sequences = result(&app, &asample(&app, body).await).await.sequences;
    assert!(sequences.len() == 3 && sequences.iter().all(|one| *one == sequences[0]), "{sequences:?}");
    assert_eq!(ids(&sequences[0].tokens).len(), 5);
}

#[tokio::test]
async fn a_request_that_is_sent_again_is_sampled_once_and_its_result_stays() {
    let gate = Gate::shut();
    let app = TestApp::new().gate(&gate).tinker(impatient());
    let sampler = sampler(&app).await;
    let body = request(&sampler, 7, &app.ids("hello"), &json!({ "max_tokens": 3, "stop": [] }), &json!({}));
    let id = asample(&app, body.clone()).await;
    app.until_load(1, 0).await;
    assert_eq!(asample(&app, body.clone()).await, id);
    let pending = json!({ "type": "try_again", "request_id": id, "queue_state": "active" });
    assert_eq!(retrieved(&app, &id).await.ok(), pending);
    app.until_load(1, 0).await;
    gate.open();
    app.until_load(0, 0).await;
    until_retrieved(&app, &id).await;
    assert_eq!(asample(&app, body.clone()).await, id);
    assert_eq!(result(&app, &id).await, result(&app, &id).await);
    let mut other = body;
    other["sampling_params"]["max_tokens"] = json!(4);
    let refused = app.post("/api/v1/asample", other).await;
    assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("seq_id")));
}

#[tokio::test]
async fn whoever_is_done_with_a_request_or_a_session_ends_what_is_sampled() {
    let app = TestApp::new().gate(&Gate::shut()).tinker(impatient());
    let sampler = sampler(&app).await;
    let session = sampler.split(':').next().unwrap();
    let body = |seq| request(&sampler, seq, &app.ids("hello"), &json!({}), &json!({}));
    let (first, second) = (asample(&app, body(0)).await, asample(&app, body(1)).await);
    app.until_load(2, 0).await;
    app.post("/api/v1/cancel_future", json!({ "request_id": first })).await.ok();
    app.until_load(1, 0).await;
    assert_eq!(retrieved(&app, &first).await.status, 410);
    assert_eq!(retrieved(&app, &second).await.ok()["type"], "try_again");
    let finish = format!("/api/v1/sessions/{session}/finish");
    for _ in 0..2 {
        app.post(&finish, json!({ "reason": { "type": "success" }, "detail": null })).await.ok();
        app.until_load(0, 0).await;
    }
    assert_eq!(retrieved(&app, &second).await.status, 410);
    assert_eq!(app.post("/api/v1/session_heartbeat", json!({ "session_id": session })).await.status, 410);
    assert_eq!(app.post("/api/v1/asample", body(2)).await.status, 404);
}

#[tokio::test]
async fn results_and_sessions_live_their_time() {
    let bounds = TinkerBounds { session_ttl: Duration::from_hours(2), ..impatient() };
    let (retrieved_ttl, result_ttl, session_ttl) = (bounds.retrieved_ttl, bounds.result_ttl, bounds.session_ttl);
    let app = TestApp::new().tinker(bounds);
    let sampler = sampler(&app).await;
    let body = |seq| request(&sampler, seq, &app.ids("hello"), &json!({ "max_tokens": 2 }), &json!({}));
    let (taken, left) = (asample(&app, body(0)).await, asample(&app, body(1)).await);
    app.until_load(0, 0).await;
    until_retrieved(&app, &taken).await;
    app.tinker_sessions().sweep_after(retrieved_ttl);
    assert_eq!(retrieved(&app, &taken).await.status, 410);
    app.tinker_sessions().sweep_after(result_ttl);
    assert_eq!(retrieved(&app, &left).await.status, 410);
    // It is still known, and is not sampled anew under its old number.
    assert_eq!(asample(&app, body(1)).await, left);
    assert_eq!(retrieved(&app, &left).await.status, 410);
    let session = json!({ "session_id": sampler.split(':').next().unwrap() });
    app.post("/api/v1/session_heartbeat", session.clone()).await.ok();
    app.tinker_sessions().sweep_after(session_ttl);
    assert_eq!(app.post("/api/v1/session_heartbeat", session).await.status, 410);
}

#[tokio::test]
async fn what_is_full_has_clients_come_again() {
    let gate = Gate::shut();
    let app = TestApp::new().gate(&gate).seats(1).max_waiting(0).tinker(TinkerBounds { requests: 2, ..impatient() });
    let sampler = sampler(&app).await;
    let body = |seq| request(&sampler, seq, &app.ids("hello"), &json!({ "max_tokens": 2 }), &json!({}));
    asample(&app, body(0)).await;
    app.until_load(1, 0).await;
    // The engine is full, and then what waits for its clients.
    let refused = app.post("/api/v1/asample", body(1)).await;
    assert_eq!(
        (refused.status, &refused.headers[header::RETRY_AFTER]),
        (429, &"1".parse().unwrap()),
        "{}",
        refused.text
    );
    let app = TestApp::new().gate(&gate).tinker(TinkerBounds { requests: 1, sessions: 1, samplers: 1, ..impatient() });
    let sampler = self::sampler(&app).await;
    let body = |seq| request(&sampler, seq, &app.ids("hello"), &json!({ "max_tokens": 2 }), &json!({}));
    let first = asample(&app, body(0)).await;
    assert_eq!(app.post("/api/v1/asample", body(1)).await.status, 429);
    assert_eq!(app.post("/api/v1/create_session", json!({})).await.status, 429);
    let session = sampler.split(':').next().unwrap();
    let again = |number: u64| json!({ "session_id": session, "sampling_session_seq_id": number, "base_model": "tiny" });
    app.post("/api/v1/create_sampling_session", again(0)).await.ok();
    assert_eq!(app.post("/api/v1/create_sampling_session", again(1)).await.status, 429);
    // Nobody waits for a request that was given up.
    app.post("/api/v1/cancel_future", json!({ "request_id": first })).await.ok();
    let second = asample(&app, body(1)).await;
    assert_eq!(app.post("/api/v1/asample", body(2)).await.status, 429);
    gate.open();
    until_retrieved(&app, &second).await;
    asample(&app, body(2)).await;
    // One byte is more than there may be.
    let app = TestApp::new().tinker(TinkerBounds { bytes: 1, ..TinkerBounds::default() });
    let sampler = self::sampler(&app).await;
    let body = |seq| request(&sampler, seq, &app.ids("hello"), &json!({ "max_tokens": 2 }), &json!({}));
    let first = asample(&app, body(0)).await;
    app.until_load(0, 0).await;
    // Its bytes count once the result is there.
    until("the result is there", async || app.tinker_sessions().bytes() > 0).await;
    assert_eq!(app.post("/api/v1/asample", body(1)).await.status, 429);
    result(&app, &first).await;
    asample(&app, body(2)).await;
}

#[tokio::test]
async fn what_cannot_be_honoured_is_refused() {
    let app = served();
    let sampler = sampler(&app).await;
    let hello = app.ids("hello world");
    for (seq, (params, more, says)) in (0..).zip([
        (json!({}), json!({ "prompt_alt_tokens_k": 2 }), "`prompt_alt_tokens_k` is not supported"),
        (json!({}), json!({ "target_prompt_logprobs": { "data": [1] } }), "`target_prompt_logprobs` must have a shape"),
        (
            json!({}),
            json!({ "target_prompt_logprobs": { "data": [VOCAB_SIZE], "dtype": "int64", "shape": [1, 1] } }),
            "`target_prompt_logprobs` has the id",
        ),
        (json!({}), json!({ "record_stability_info": true }), "`record_stability_info` is not supported"),
        (json!({}), json!({ "something_new": "x" }), "`something_new` is not supported"),
        (json!({ "min_p": 0.5 }), json!({}), "`min_p` is not supported"),
        (json!({ "temperature": 3.0 }), json!({}), "temperature"),
        (json!({ "top_k": -2 }), json!({}), "top_k"),
        (json!({ "max_tokens": 0 }), json!({}), "max_tokens"),
        (json!({ "max_tokens": 5000 }), json!({}), "max_tokens"),
        (json!({ "stop": [VOCAB_SIZE] }), json!({}), "out-of-vocab"),
        (json!({ "stop": ["a", ""] }), json!({}), "stop cannot contain an empty string"),
        (json!({}), json!({ "num_samples": 0 }), "n must be at least 1"),
        (json!({}), json!({ "topk_sample_logprobs": -1 }), "`topk_sample_logprobs` must not be negative"),
        (json!({}), json!({ "topk_prompt_logprobs": 21 }), "prompt_logprobs"),
        (json!({}), json!({ "prompt_logprobs_last_n": 1 }), "needs `prompt_logprobs`"),
        (json!({}), json!({ "prompt_logprobs_last_n": 2, "prompt_logprobs": true }), "between 1 and 1"),
        (json!({}), json!({ "prompt": { "chunks": [] } }), "at least one token"),
        (json!({}), json!({ "prompt": { "chunks": [{ "type": "image", "data": "x" }] } }), "not of `image`"),
        (
            json!({}),
            json!({ "prompt": { "chunks": [{ "tokens": [5] }, { "type": "image_asset_pointer", "location": "x" }] } }),
            "not of `image_asset_pointer`",
        ),
        (json!({}), json!({ "prompt": { "chunks": [{ "tokens": [VOCAB_SIZE] }] } }), "out of vocabulary"),
    ]) {
        let refused = app.post("/api/v1/asample", request(&sampler, seq, &hello, &params, &more)).await;
        let message = refused.error()["message"].as_str().unwrap().to_owned();
        assert!(refused.status == 400 && message.contains(says), "{seq}: {} {message}", refused.status);
        // Nothing is kept of it.
        assert_eq!(retrieved(&app, &format!("{sampler}:{seq}")).await.status, 410);
    }
}

#[tokio::test]
async fn only_what_is_served_is_sampled() {
    let app = served();
    let session = session(&app).await;
    let asks = |more: Value| {
        let mut body = json!({ "session_id": session, "sampling_session_seq_id": 3 });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        app.post("/api/v1/create_sampling_session", body)
    };
    for (model, says) in [
        (json!({}), "either `base_model` or `model_path`"),
        (json!({ "base_model": "other" }), "`other` is not served here, but tiny"),
        (json!({ "model_path": "tinker://run/weights/1" }), "no adapter is loaded for"),
        // The model itself is no adapter.
        (json!({ "model_path": "tinker://tiny" }), "no adapter is loaded for"),
        (json!({ "base_model": "tiny", "model_path": "tinker://" }), "no adapter is loaded for"),
    ] {
        let refused = asks(model).await;
        let message = refused.error()["message"].as_str().unwrap().to_owned();
        assert!(refused.status == 400 && message.contains(says), "{message}");
    }
    let begun = asks(json!({ "base_model": "tiny" })).await.ok();
    assert_eq!(asks(json!({ "base_model": "tiny" })).await.ok(), begun);
    // Its path is a name of it too, and another model than the one that this number has.
    assert_eq!(asks(json!({ "base_model": "tests/fixtures/tiny-model" })).await.status, 400);
    let id = begun["sampling_session_id"].as_str().unwrap();
    let sampler = app.get(&format!("/api/v1/samplers/{id}")).await.ok();
    assert_eq!(sampler, json!({ "sampler_id": id, "base_model": "tiny", "model_path": null }));
    let models = app.get("/api/v1/get_server_capabilities").await.ok()["supported_models"].clone();
    let model = json!({ "model_name": "tiny", "max_context_length": 4096, "trainable": false, "sampleable": true });
    assert_eq!(models, json!([model]));
}

#[tokio::test]
async fn training_is_refused_and_all_is_off_without_the_flag() {
    let app = served();
    for (call, status, says) in [
        ("create_model", 400, "this server only samples"),
        ("forward_backward", 400, "this server only samples"),
        ("save_weights_for_sampler", 400, "this server only samples"),
        ("no_such_call", 404, "`no_such_call` is not served"),
    ] {
        let refused = app.post(&format!("/api/v1/{call}"), json!({})).await;
        assert!(refused.status == status && refused.text.contains(says), "{}", refused.text);
    }
    let off = TestApp::new();
    for call in ["client/config", "create_session", "create_model", "asample", "telemetry"] {
        let body = request("a:sample:0", 0, &[1], &json!({}), &json!({}));
        let refused = off.post(&format!("/api/v1/{call}"), body).await;
        assert!(refused.status == 404 && refused.text.contains("--tinker-api"), "{call}: {}", refused.text);
        let unread = off.post(&format!("/api/v1/{call}"), json!({})).await;
        assert!(unread.status == 404 && unread.text.contains("--tinker-api"), "{call}: {}", unread.text);
    }
    app.post("/api/v1/client/config", json!({ "sdk_version": "0.38.0" })).await.ok();
    assert_eq!(app.post("/api/v1/telemetry", json!({ "events": [] })).await.ok(), json!({ "status": "accepted" }));
}

#[tokio::test]
async fn nobody_with_another_key_finds_a_session() {
    let app = served().keys(&["tml-one", "tml-two"]);
    let ask = |key: &'static str, method: Method, path: String, body: Value| {
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
        app.request(request.header("X-API-Key", key).body(Body::from(body.to_string())).unwrap())
    };
    let post = |key, call: &str, body| ask(key, Method::POST, format!("/api/v1/{call}"), body);
    assert_eq!(post("tml-three", "create_session", json!({})).await.status, 401);
    let session = post("tml-one", "create_session", json!({})).await.ok()["session_id"].clone();
    let body = json!({ "session_id": session, "sampling_session_seq_id": 0, "base_model": "tiny" });
    assert_eq!(post("tml-two", "create_sampling_session", body.clone()).await.status, 404);
    let sampler = post("tml-one", "create_sampling_session", body).await.ok()["sampling_session_id"].clone();
    let sampler = sampler.as_str().unwrap();
    let body = request(sampler, 0, &app.ids("hello"), &json!({ "max_tokens": 2 }), &json!({}));
    let id = post("tml-one", "asample", body.clone()).await.ok()["request_id"].clone();
    assert_eq!(post("tml-two", "asample", body).await.status, 404);
    let finish = format!("sessions/{}/finish", session.as_str().unwrap());
    post("tml-two", &finish, json!({})).await.ok();
    post("tml-two", "cancel_future", json!({ "request_id": id })).await.ok();
    for (call, body) in
        [("session_heartbeat", json!({ "session_id": session })), ("retrieve_future", json!({ "request_id": id }))]
    {
        assert_eq!(post("tml-two", call, body.clone()).await.status, 410);
        assert_eq!(post("tml-one", call, body).await.status, 200);
    }
    let path = format!("/api/v1/samplers/{sampler}");
    assert_eq!(ask("tml-two", Method::GET, path.clone(), json!({})).await.status, 404);
    assert_eq!(ask("tml-one", Method::GET, path, json!({})).await.status, 200);
    // Elsewhere, the header is none.
    assert_eq!(ask("tml-one", Method::GET, "/v1/models".to_owned(), json!({})).await.status, 401);
}
