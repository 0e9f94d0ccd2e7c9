//! Captured turns that are computed again over HTTP: sampled once more, or scored.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tito::{
    store::MemoryStore,
    trajectory::{CapturePolicy, Ended, Generation, Trajectories},
    turn::Capture,
};

use crate::it::app::{MODEL, TestApp};

/// A server with one captured turn of 9 tokens, the store, and the id of its trajectory.
async fn captured() -> (TestApp, Arc<Trajectories>, String) {
    let policy = CapturePolicy { bytes: 1 << 24, ttl: None, texts: true, images: true };
    let store = Arc::new(MemoryStore::new(u64::MAX, Duration::MAX));
    let trajectories = Arc::new(Trajectories::open(store, policy).unwrap());
    let capture = Capture { trajectories: Arc::clone(&trajectories), model: MODEL.into(), process: "test".into() };
    let app = TestApp::new().captures(capture);
    let body = json!({
        "model": MODEL, "messages": [{ "role": "user", "content": "Hi" }], "max_tokens": 9, "temperature": 0.7, "top_k": 5,
        "ignore_eos": true, "seed": 3,
    });
    app.post("/v1/chat/completions", body).await.ok();
    let id = app.get("/v1/trajectories").await.ok()["data"][0]["id"].as_str().unwrap().to_owned();
    (app, trajectories, id)
}

/// Captures one more turn; returns the id of its trajectory, which is a new one.
async fn added(app: &TestApp, trajectories: &Trajectories, generation: Generation) -> String {
    trajectories.capture(generation).unwrap().unwrap();
    app.get("/v1/trajectories?order=desc&limit=1").await.ok()["data"][0]["id"].as_str().unwrap().to_owned()
}

/// The turns of the trajectory, as they are kept.
fn generations(trajectories: &Trajectories, id: &str) -> Vec<Generation> {
    let (_, turns) = trajectories.get(&None, id).unwrap().unwrap();
    turns.into_iter().map(|turn| turn.generation).collect()
}

/// What comes of the last turn.
async fn checked(app: &TestApp, id: &str, what: &str) -> Value {
    let tree = app.get(&format!("/v1/trajectories/{id}")).await.ok();
    let turn = tree["turns"].as_array().unwrap().last().unwrap()["id"].as_str().unwrap().to_owned();
    let checked = app.post(&format!("/v1/trajectories/{id}/turns/{turn}/{what}"), json!({})).await.ok();
    assert_eq!((&checked["trajectory_id"], &checked["turn_id"]), (&json!(id), &json!(turn)));
    checked
}

/// The log-probs of an answer, of whose text each is the shortest for its bits.
fn logprobs(answer: &Value) -> Vec<f32> {
    serde_json::from_value(answer["logprobs"].clone()).unwrap()
}

fn span(start: usize, end: usize, verdict: &str) -> Value {
    json!({ "start": start, "end": end, "verdict": verdict })
}

#[tokio::test]
async fn a_turn_is_sampled_and_scored_again_and_nothing_of_that_is_captured() {
    let (app, trajectories, id) = captured().await;
    let [generation] = &generations(&trajectories, &id)[..] else { panic!("one turn") };
    let start = generation.prompt.len();
    let replay = checked(&app, &id, "replay").await;
    assert_eq!(replay["object"], "trajectory.turn.replay");
    assert_eq!((&replay["verdict"], &replay["start"]), (&json!("equal"), &json!(start)));
    assert_eq!(replay["spans"], json!([span(start, start + 9, "equal")]));
    assert_eq!((&replay["token_ids"], &replay["reasons"]), (&json!(generation.sampled), &json!([])));
    assert_eq!((logprobs(&replay), &replay["rescored"]), (generation.logprobs.clone(), &Value::Null));
    assert_eq!(
        (&replay["weight_version"], replay["message"].as_str()),
        (&json!("default"), Some("all 9 tokens are equal to the bit, and so is the end"))
    );
    let rescore = checked(&app, &id, "rescore").await;
    assert_eq!((&rescore["object"], &rescore["verdict"]), (&json!("trajectory.turn.rescore"), &json!("equal")));
    assert_eq!(rescore["spans"], replay["spans"]);
    assert_eq!((&rescore["token_ids"], &rescore["logprobs"]), (&Value::Null, &replay["logprobs"]));
    assert_eq!((&rescore["rescored"]["tokens"], &rescore["rescored"]["equal_tokens"]), (&json!(9), &json!(9)));
    // Nobody without a salt shares what was computed for it.
    let salt = app.engine().latest_cache_salt();
    checked(&app, &id, "rescore").await;
    assert!(salt.is_some() && app.engine().latest_cache_salt().is_some_and(|again| Some(again) != salt));
    assert_eq!(generations(&trajectories, &id).len(), 1);
    assert_eq!(app.get("/v1/trajectories").await.ok()["data"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn one_bit_and_one_id_are_found_at_their_positions() {
    let (app, trajectories, id) = captured().await;
    let good = generations(&trajectories, &id).remove(0);
    let start = good.prompt.len();
    let mut one_bit = good.clone();
    one_bit.logprobs[4] = f32::from_bits(one_bit.logprobs[4].to_bits() ^ 1);
    let id = added(&app, &trajectories, one_bit).await;
    let spans = json!([
        span(start, start + 4, "equal"),
        span(start + 4, start + 5, "log_prob"),
        span(start + 5, start + 9, "equal")
    ]);
    for what in ["replay", "rescore"] {
        let found = checked(&app, &id, what).await;
        assert_eq!((&found["verdict"], &found["spans"]), (&json!("differs"), &spans), "{what}");
        assert_eq!(logprobs(&found), good.logprobs, "{what}");
    }
    let mut one_id = good.clone();
    one_id.sampled[6] ^= 1;
    let id = added(&app, &trajectories, one_id).await;
    let found = checked(&app, &id, "replay").await;
    let spans = [
        span(start, start + 6, "equal"),
        span(start + 6, start + 7, "token_id"),
        span(start + 7, start + 9, "not_compared"),
    ];
    assert_eq!((&found["verdict"], &found["spans"]), (&json!("differs"), &json!(spans)));
    assert_eq!(found["token_ids"][6], json!(good.sampled[6]));
    assert_eq!(found["reasons"], json!(["nobody knows which weights sampled it: no checksum of them was kept"]));
    let cut = Generation { finish: Ended::Disconnect, ..good };
    let id = added(&app, &trajectories, cut).await;
    let found = checked(&app, &id, "replay").await;
    assert_eq!(found["verdict"], "in_part");
    assert!(found["message"].as_str().unwrap().contains("its client left"), "{found}");
}

#[tokio::test]
async fn what_cannot_be_computed_again_says_why() {
    let (app, trajectories, id) = captured().await;
    let good = generations(&trajectories, &id).remove(0);
    let mut experts = good.clone();
    experts.sampling.as_mut().unwrap().gives_experts = true;
    let id = added(&app, &trajectories, experts).await;
    let start = good.prompt.len();
    let replay = checked(&app, &id, "replay").await;
    assert_eq!(
        (&replay["verdict"], &replay["spans"]),
        (&json!("not_comparable"), &json!([span(start, start + 9, "not_compared")]))
    );
    assert!(replay["message"].as_str().unwrap().contains("through which experts"), "{replay}");
    let rescore = checked(&app, &id, "rescore").await;
    assert_eq!((&rescore["verdict"], &rescore["spans"]), (&json!("not_comparable"), &json!([])));
    assert!(rescore["message"].as_str().unwrap().contains("`routed_experts`"), "{rescore}");
}

#[tokio::test]
async fn only_an_own_turn_is_computed_again_and_no_field_is_ignored() {
    let (app, _, id) = captured().await;
    let tree = app.get(&format!("/v1/trajectories/{id}")).await.ok();
    let turn = tree["turns"][0]["id"].as_str().unwrap();
    for what in ["replay", "rescore"] {
        let unknown = app.post(&format!("/v1/trajectories/{id}/turns/turn_x/{what}"), json!({})).await;
        assert_eq!((unknown.status, &unknown.error()["param"]), (404, &json!("turn_id")), "{what}");
        let path = format!("/v1/trajectories/{id}/turns/{turn}/{what}");
        let answer = app.post(&path, json!({ "tokens": 3 })).await;
        assert_eq!(answer.status, 400, "{what}: {}", answer.text);
    }
}
