//! Models that know fewer ids than their tokenizer, or more.

use serde_json::{Value, json};

use crate::it::app::{MODEL, TestApp};

/// The body of a request to an endpoint, with more fields.
fn asking(path: &str, more: &Value) -> Value {
    let mut body = match path {
        "/v1/completions" => json!({ "prompt": [1, 2] }),
        "/v1/responses" => json!({ "input": "a" }),
        "/inference/v1/generate" => return json!({ "token_ids": [1, 2], "sampling_params": more }),
        _ => json!({ "model": MODEL, "messages": [{ "role": "user", "content": "a" }], "max_tokens": 4 }),
    };
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

const PATHS: [&str; 5] =
    ["/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses", "/inference/v1/generate"];

#[tokio::test]
async fn ids_are_those_of_the_model_and_not_of_its_tokenizer() {
    let known = TestApp::new().tokenizer().vocab_size();
    for path in PATHS {
        let fields = |id: usize| {
            [
                json!({ "logit_bias": { id.to_string(): 5.0 } }),
                json!({ "allowed_token_ids": [1, id] }),
                json!({ "stop_token_ids": [id] }),
            ]
        };
        // A model of more ids can be asked for those that no text has.
        let wider = TestApp::new().vocab_size(known + 100).says("hello");
        for more in fields(known + 50) {
            let answer = wider.post(path, asking(path, &more)).await;
            assert_eq!(answer.status, 200, "{path} {more}: {}", answer.text);
        }
        let narrower = TestApp::new().vocab_size(known - 100).says("hello");
        for more in fields(known - 50) {
            let answer = narrower.post(path, asking(path, &more)).await;
            assert_eq!(answer.status, 400, "{path} {more}: {}", answer.text);
            let field = more.as_object().unwrap().keys().next().unwrap();
            assert!(answer.text.contains(field) && answer.text.contains("ocab"), "{path}: {}", answer.text);
        }
    }
}

#[tokio::test]
async fn a_text_with_a_token_that_the_model_does_not_know_is_refused_as_its_ids_are() {
    let app = TestApp::new();
    let text = "hello world";
    let ids = app.ids(text);
    let app = app.vocab_size(usize::try_from(*ids.iter().max().unwrap()).unwrap());
    let refused = app.post("/v1/completions", json!({ "prompt": ids })).await;
    let said = refused.error()["message"].clone();
    assert_eq!(refused.status, 400);
    let bodies = [
        ("/v1/completions", json!({ "prompt": text })),
        ("/v1/chat/completions", json!({ "messages": [{ "role": "user", "content": text }] })),
    ];
    for (path, body) in bodies {
        let answer = app.post(path, body).await;
        assert_eq!(answer.status, 400, "{path}: {}", answer.text);
        assert!(answer.error()["message"].as_str().unwrap().contains("is out of vocabulary"), "{path}: {said}");
    }
}

#[tokio::test]
async fn ids_that_only_the_model_knows_have_no_text() {
    let known = TestApp::new().tokenizer().vocab_size();
    let app = TestApp::new();
    let text = "hello world";
    let mut ids = app.ids(text);
    let wider = app.vocab_size(known + 20).says("!");
    ids.insert(1, u32::try_from(known + 5).unwrap());
    let echoed = wider.post("/v1/completions", json!({ "prompt": ids, "echo": true, "max_tokens": 0 })).await;
    assert_eq!((echoed.status, &echoed.json()["choices"][0]["text"]), (200, &json!(text)), "{}", echoed.text);
    let read = wider.post("/detokenize", json!({ "tokens": ids })).await;
    assert_eq!((read.status, &read.json()["prompt"]), (200, &json!(text)), "{}", read.text);
    ids.push(u32::try_from(known + 20).unwrap());
    for (path, body) in
        [("/v1/completions", json!({ "prompt": ids, "echo": true })), ("/detokenize", json!({ "tokens": ids }))]
    {
        let refused = wider.post(path, body).await;
        assert_eq!(refused.status, 400, "{path}: {}", refused.text);
        assert!(refused.text.contains("is out of vocabulary"), "{path}: {}", refused.text);
    }
}
