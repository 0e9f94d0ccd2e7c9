//! What sampling clients of the package `tinker` ask, as captured turns.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tito::{TokenId, store::MemoryStore, tinker_sessions::TinkerBounds};

use super::{
    tinker::{asample, ids, request, result, sampler},
    trajectories::{POLICY, capture},
};
use crate::it::app::TestApp;

#[tokio::test]
async fn samples_of_a_prompt_are_numbered_at_every_temperature() {
    let store = Arc::new(MemoryStore::new(u64::MAX, Duration::MAX));
    let app = TestApp::new().tinker(TinkerBounds::default()).captures(capture(store, POLICY));
    let sampler = sampler(&app).await;
    for (number, temperature) in [(0, 0.0), (1, 1.0)] {
        let params = json!({ "max_tokens": 5, "temperature": temperature, "stop": [] });
        let body = request(&sampler, number, &app.ids("hello"), &params, &json!({ "num_samples": 3 }));
        let id = asample(&app, body).await;
        let answered: Vec<Vec<TokenId>> =
            result(&app, &id).await.sequences.iter().map(|one| ids(&one.tokens)).collect();
        let mut found = vec![None; 3];
        for trajectory in app.get("/v1/trajectories").await.ok()["data"].as_array().unwrap() {
            let path = format!("/v1/trajectories/{}", trajectory["id"].as_str().unwrap());
            for turn in app.get(&path).await.ok()["turns"].as_array().unwrap() {
                if turn["request_ids"] == json!([id]) {
                    let index = usize::try_from(turn["index"].as_u64().unwrap()).unwrap();
                    assert_eq!(found[index].replace(turn["sampled_token_ids"].clone()), None, "{turn}");
                }
            }
        }
        let found: Vec<Value> = found.into_iter().flatten().collect();
        assert_eq!(json!(found), json!(answered), "temperature {temperature}");
    }
}
