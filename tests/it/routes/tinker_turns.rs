//! What sampling clients of the package `tinker` ask: captured as turns, or refused by the names of its own fields.

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

#[tokio::test]
async fn refusals_name_the_fields_of_the_request() {
    let app = TestApp::new().tinker(TinkerBounds::default()).max_model_len(8);
    let sampler = sampler(&app).await;
    for (seq, (params, tokens, param, says)) in (0..).zip([
        (json!({ "stop": "" }), 2, "sampling_params.stop", "empty string"),
        (json!({ "top_k": -2 }), 2, "sampling_params.top_k", "top_k"),
        (json!({ "top_p": 2.0 }), 2, "sampling_params.top_p", "top_p"),
        (json!({}), 8, "prompt", "the prompt has 8 tokens, and the context length of the model is 8"),
        (json!({}), 9, "prompt", "the prompt has 9 tokens"),
    ]) {
        let asked = request(&sampler, seq, &vec![1; tokens], &params, &json!({}));
        let refused = app.post("/api/v1/asample", asked).await;
        let message = refused.error()["message"].as_str().unwrap().to_owned();
        assert_eq!((refused.status, &refused.error()["param"]), (400, &json!(param)), "{message}");
        assert!(message.contains(says) && !message.contains("max_tokens"), "{message}");
    }
    // Nor has Tinker the four of OpenAI.
    let params = json!({ "max_tokens": 2, "stop": ["a", "b", "c", "d", "e"] });
    asample(&app, request(&sampler, 9, &[1, 2], &params, &json!({}))).await;
}
