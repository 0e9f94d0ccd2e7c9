//! `return_sampling_mask`: with each sampled token the ids that it was drawn from, on every endpoint that has a place for them.

use serde_json::{Value, json};
use tito::TokenId;

use crate::it::app::{MODEL, TestApp};

const ENDPOINTS: [&str; 3] = ["/v1/chat/completions", "/v1/completions", "/inference/v1/generate"];

/// A request of `path` whose sampling fields are these.
fn body(app: &TestApp, path: &str, fields: &Value, stream: bool) -> Value {
    let more = json!({ "return_token_ids": true, "stream": stream });
    let (mut body, fields) = match path {
        "/v1/chat/completions" => (json!({ "messages": [{ "role": "user", "content": "hello" }] }), fields.clone()),
        "/v1/completions" => (json!({ "prompt": "hello" }), fields.clone()),
        _ => (json!({ "token_ids": app.ids("hello") }), json!({ "sampling_params": fields })),
    };
    for part in [fields, more] {
        body.as_object_mut().unwrap().append(&mut part.as_object().unwrap().clone());
    }
    body
}

/// The ids and the rows of a choice, whole or put together from a stream.
#[derive(Debug, Default, PartialEq)]
struct Drawn {
    ids: Vec<TokenId>,
    rows: Vec<Vec<TokenId>>,
}

impl Drawn {
    fn add(&mut self, choice: &Value) {
        let list = |name: &str| choice[name].as_array().cloned().unwrap_or_default();
        self.ids.extend(list("token_ids").into_iter().map(|id| serde_json::from_value::<TokenId>(id).unwrap()));
        self.rows
            .extend(list("sampling_mask").into_iter().map(|row| serde_json::from_value::<Vec<TokenId>>(row).unwrap()));
    }
}

async fn whole(app: &TestApp, path: &str, fields: &Value) -> Drawn {
    let answer = app.post(path, body(app, path, fields, false)).await.ok();
    let mut drawn = Drawn::default();
    drawn.add(&answer["choices"][0]);
    drawn
}

async fn streamed(app: &TestApp, path: &str, fields: &Value) -> Drawn {
    let events = app.post(path, body(app, path, fields, true)).await.events();
    let mut drawn = Drawn::default();
    events.iter().filter(|event| event["choices"].as_array().is_some_and(|choices| !choices.is_empty())).for_each(
        |event| {
            drawn.add(&event["choices"][0]);
        },
    );
    drawn
}

#[tokio::test]
async fn every_token_comes_with_its_row_whole_and_streamed_on_each_endpoint() {
    let app = TestApp::new();
    for (fields, longest) in [
        (json!({ "top_k": 7 }), 7),
        (json!({ "top_p": 0.5, "logit_bias": { "5": 4.0 } }), 4096),
        (json!({ "allowed_token_ids": [4, 9, 11] }), 3),
        (json!({ "temperature": 0 }), 1),
        (json!({ "min_p": 0.1, "presence_penalty": 1.0 }), 4096),
    ] {
        let mut asked = json!({
            "seed": 3, "max_tokens": 20, "ignore_eos": true, "return_sampling_mask": true, "logprobs": null
        });
        asked.as_object_mut().unwrap().append(&mut fields.as_object().unwrap().clone());
        for path in ENDPOINTS {
            let drawn = whole(&app, path, &asked).await;
            assert_eq!((drawn.ids.len(), drawn.rows.len()), (20, 20), "{path} {fields}");
            for (id, row) in drawn.ids.iter().zip(&drawn.rows) {
                assert!(row.contains(id) && row.is_sorted() && row.len() <= longest, "{path} {fields} {id} {row:?}");
            }
            assert_eq!(streamed(&app, path, &asked).await, drawn, "{path} {fields}");
        }
    }
}

#[tokio::test]
async fn what_a_stop_string_cuts_loses_its_rows_too() {
    let app = TestApp::new().says("hello world you and me");
    let asked = json!({ "top_k": 3, "stop": ["you"], "return_sampling_mask": true, "max_tokens": 12 });
    for path in ENDPOINTS {
        let drawn = whole(&app, path, &asked).await;
        assert!(!drawn.ids.is_empty(), "{path}");
        assert_eq!(drawn.ids.len(), drawn.rows.len(), "{path}");
        assert_eq!(streamed(&app, path, &asked).await, drawn, "{path}");
    }
}

#[tokio::test]
async fn a_structured_output_leaves_only_what_its_grammar_takes() {
    let app = TestApp::new();
    let asked = json!({
        "structured_outputs": { "choice": ["hello", "you"] }, "return_sampling_mask": true, "max_tokens": 12
    });
    for path in ENDPOINTS {
        let drawn = whole(&app, path, &asked).await;
        assert_eq!(drawn.ids.len(), drawn.rows.len(), "{path}");
        assert!(drawn.rows.iter().zip(&drawn.ids).all(|(row, id)| row.contains(id) && row.len() < 20), "{drawn:?}");
    }
}

#[tokio::test]
async fn the_flag_is_for_generate_and_a_request_may_say_no() {
    let app = TestApp::new().policy(|policy| policy.sampling_mask.on_generate = true);
    let generate = "/inference/v1/generate";
    let quiet = json!({ "top_k": 3, "max_tokens": 4, "ignore_eos": true });
    assert_eq!(whole(&app, generate, &quiet).await.rows.len(), 4);
    for path in &ENDPOINTS[..2] {
        let answer = app.post(path, body(&app, path, &quiet, false)).await.ok();
        assert_eq!(answer["choices"][0].get("sampling_mask"), None, "{path}");
    }
    let refused = json!({ "top_k": 3, "max_tokens": 4, "ignore_eos": true, "return_sampling_mask": false });
    let answer = app.post(generate, body(&app, generate, &refused, false)).await.ok();
    assert_eq!(answer["choices"][0]["sampling_mask"], Value::Null);
}

#[tokio::test]
async fn a_row_that_would_be_too_long_ends_the_request_with_the_flag_that_bounds_it() {
    let app = TestApp::new().policy(|policy| policy.sampling_mask.most = 5);
    for path in ENDPOINTS {
        let asked = json!({ "max_tokens": 4, "return_sampling_mask": true });
        let answer = app.post(path, body(&app, path, &asked, false)).await;
        let message = answer.error()["message"].as_str().unwrap().to_owned();
        assert_eq!(answer.status, 400, "{path}");
        assert!(message.contains("--sampling-mask-max-tokens") && message.contains("than the 5 "), "{message}");
        let few = json!({ "max_tokens": 4, "return_sampling_mask": true, "top_k": 5, "ignore_eos": true });
        assert_eq!(whole(&app, path, &few).await.rows.len(), 4);
    }
}

#[tokio::test]
async fn endpoints_without_a_place_for_masks_refuse_them() {
    let app = TestApp::new();
    let message = json!([{ "role": "user", "content": "hello" }]);
    for (path, body) in [
        ("/v1/responses", json!({ "input": "hello", "return_sampling_mask": true })),
        ("/v1/messages", json!({ "model": MODEL, "messages": message, "max_tokens": 3, "return_sampling_mask": true })),
    ] {
        let answer = app.post(path, body).await;
        assert_eq!(answer.status, 400, "{path}");
        let message = answer.error()["message"].as_str().unwrap().to_owned();
        assert!(message.contains("`return_sampling_mask` has no place"), "{path} {message}");
    }
}

#[tokio::test]
async fn a_rendered_request_still_asks_for_its_mask() {
    let app = TestApp::new();
    let asked = json!({ "top_k": 4, "seed": 1, "max_tokens": 6, "ignore_eos": true, "return_sampling_mask": true });
    let chat = whole(&app, ENDPOINTS[0], &asked).await;
    let rendered = app.post("/v1/chat/completions/render", body(&app, ENDPOINTS[0], &asked, false)).await.ok();
    let answer = app.post("/inference/v1/generate", rendered).await.ok();
    let mut drawn = Drawn::default();
    drawn.add(&answer["choices"][0]);
    assert_eq!(drawn, chat);
}
