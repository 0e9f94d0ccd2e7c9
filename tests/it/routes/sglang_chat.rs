//! `POST /v1/chat/completions` with SGLang's fields.

use serde_json::{Value, json};

use tito::sampling::LogprobsMode;

use crate::it::app::{TestApp, VOCAB_SIZE};

const PATH: &str = "/v1/chat/completions";

/// What the session server of miles makes of an agent's request (`miles/rollout/session/sessions.py`, 0.0.2).
fn of_miles(ids: &Value) -> Value {
    json!({
        "messages": [{ "role": "user", "content": "hello" }], "max_tokens": 6, "seed": 3,
        "logprobs": true, "return_meta_info": true, "no_stop_trim": false, "input_ids": ids
    })
}

#[tokio::test]
async fn a_prompt_in_ids_is_taken_as_it_is_and_each_choice_says_what_was_sampled() {
    let app = TestApp::new().says("you and me");
    let ids = json!(app.ids("hello world you"));
    let mut body = of_miles(&ids);
    body["return_prompt_token_ids"] = json!(true);
    body["return_token_ids"] = json!(true);
    let answer = app.post(PATH, body).await.ok();
    let (choice, continuity) = (&answer["choices"][0], &answer["token_continuity"]);
    assert_eq!((&choice["prompt_token_ids"], &answer["prompt_token_ids"]), (&ids, &ids));
    assert_eq!((&continuity["source"], &continuity["proof"]), (&json!("prompt_override"), &json!("whole_prompt")));
    let meta = &choice["meta_info"];
    let entries = meta["output_token_logprobs"].as_array().unwrap();
    let sampled: Vec<_> = entries.iter().map(|entry| entry[1].clone()).collect();
    assert_eq!(json!(sampled), choice["token_ids"]);
    for (entry, shown) in entries.iter().zip(choice["logprobs"]["content"].as_array().unwrap()) {
        assert_eq!((&entry[0], &entry[2]), (&shown["logprob"], &shown["token"]));
    }
    assert_eq!((&meta["id"], &meta["prompt_tokens"]), (&answer["id"], &answer["usage"]["prompt_tokens"]));
    assert_eq!(meta["completion_tokens"], answer["usage"]["completion_tokens"]);
    assert_eq!(
        (&meta["finish_reason"]["type"], &meta["weight_version"]),
        (&choice["finish_reason"], &json!("default"))
    );
    assert_eq!(meta.get("output_top_logprobs"), None);
}

#[tokio::test]
async fn what_is_shown_is_what_is_asked_for() {
    let app = TestApp::new().says("you");
    let mut body = of_miles(&json!(app.ids("hello")));
    body["top_logprobs"] = json!(2);
    let meta = app.post(PATH, body.clone()).await.ok()["choices"][0]["meta_info"].clone();
    let rows = meta["output_top_logprobs"].as_array().unwrap();
    assert_eq!(rows.len(), meta["completion_tokens"]);
    for row in rows {
        let logprobs: Vec<f64> = row.as_array().unwrap().iter().map(|entry| entry[0].as_f64().unwrap()).collect();
        assert!(logprobs.len() == 2 && logprobs[0] >= logprobs[1], "{row}");
    }
    body["top_logprobs"] = json!(0);
    body["logprobs"] = json!(false);
    let meta = app.post(PATH, body.clone()).await.ok()["choices"][0]["meta_info"].clone();
    assert_eq!((meta.get("output_token_logprobs"), meta["prompt_tokens"].as_u64()), (None, Some(1)));
    body["return_meta_info"] = json!(false);
    let choice = app.post(PATH, body).await.ok()["choices"][0].clone();
    assert_eq!((choice.get("meta_info"), choice.get("prompt_token_ids")), (None, None));
}

#[tokio::test]
async fn what_contradicts_itself_or_has_no_place_is_refused_by_name() {
    let app = TestApp::new();
    let ids = json!(app.ids("hello world"));
    for (param, field, value) in [
        ("input_ids", "prompt_token_ids", json!([1])),
        ("input_ids", "input_ids", json!([])),
        ("input_ids", "input_ids", json!([-1])),
        ("return_meta_info", "stream", json!(true)),
    ] {
        let mut body = of_miles(&ids);
        body[field] = value;
        let answer = app.post(PATH, body).await;
        assert_eq!((answer.status, &answer.error()["param"]), (400, &json!(param)), "{field} {}", answer.text);
    }
    let body = json!({
        "messages": [{ "role": "user", "content": "hello" }], "stream": true, "return_prompt_token_ids": true
    });
    let answer = app.post(PATH, body).await;
    assert_eq!((answer.status, &answer.error()["param"]), (400, &json!("return_prompt_token_ids")));
    // The same prompt may come twice.
    let mut same = of_miles(&ids);
    same["prompt_token_ids"] = ids;
    assert_eq!(app.post(PATH, same).await.status, 200);
}

#[tokio::test]
async fn ids_of_any_length_within_the_context_are_the_prompt_and_others_are_refused_with_the_reason() {
    let app = TestApp::new().max_model_len(16).says("you");
    for ids in [vec![5], vec![5; 15], vec![1, 2, 3]] {
        let mut body = of_miles(&json!(ids));
        body["return_prompt_token_ids"] = json!(true);
        body["max_tokens"] = json!(1);
        let answer = app.post(PATH, body).await.ok();
        assert_eq!(answer["choices"][0]["prompt_token_ids"], json!(ids));
    }
    for ids in [json!(vec![5; 17]), json!([VOCAB_SIZE]), json!("hello"), json!([1.5])] {
        let answer = app.post(PATH, of_miles(&ids)).await;
        let message = answer.error()["message"].as_str().unwrap().to_owned();
        assert!(answer.status == 400 && !message.is_empty(), "{ids}: {} {message}", answer.status);
    }
}

#[tokio::test]
async fn a_mask_is_shown_where_sglangs_clients_read_it() {
    let app = TestApp::new().policy(|policy| policy.logprobs_mode = LogprobsMode::Processed).says("you and me");
    let mut body = of_miles(&json!(app.ids("hello")));
    body["return_sampling_mask"] = json!(true);
    body["top_k"] = json!(4);
    let choice = app.post(PATH, body.clone()).await.ok()["choices"][0].clone();
    let meta = &choice["meta_info"];
    assert_eq!(meta["output_token_sampling_mask"], choice["sampling_mask"]);
    assert_eq!(meta["output_token_sampling_mask_length"], meta["completion_tokens"]);
    let logprobs: Vec<_> = meta["output_token_logprobs"].as_array().unwrap().iter().map(|entry| &entry[0]).collect();
    assert_eq!(json!(logprobs), meta["output_token_sampling_logprobs"]);
    // Elsewhere, log-probs are those of another distribution.
    let answer = TestApp::new().post(PATH, body).await;
    assert_eq!((answer.status, &answer.error()["param"]), (400, &json!("return_sampling_mask")), "{}", answer.text);
}

#[tokio::test]
async fn where_nothing_is_sampled_nothing_is_said_of_it() {
    let app = TestApp::new();
    let body = of_miles(&json!(app.ids("hello")));
    let rendered = app.post("/v1/chat/completions/render", body.clone()).await;
    let given = json!({ "request_id": "r", "choices": [{ "index": 0, "token_ids": app.ids("you") }] });
    let derendered = json!({ "chat_request": body, "generate_response": given });
    let derendered = app.post("/v1/chat/completions/derender", derendered).await;
    for answer in [rendered, derendered] {
        assert_eq!((answer.status, &answer.error()["param"]), (400, &json!("return_meta_info")), "{}", answer.text);
    }
}

#[tokio::test]
async fn a_field_that_has_no_effect_here_is_refused_by_name_on_chats_and_completions() {
    let app = TestApp::new();
    for path in [PATH, "/v1/completions"] {
        for (field, value) in [
            ("regex", json!("a+")),
            ("ebnf", json!("root ::= \"a\"")),
            ("lora_path", json!("a")),
            ("stop_regex", json!("a")),
            ("session_params", json!({ "id": "a" })),
            ("custom_params", json!({ "a": 1 })),
            ("custom_logit_processor", json!("a")),
            ("watermark", json!({ "enabled": true })),
            ("return_hidden_states", json!("last")),
            ("return_cached_tokens_details", json!(true)),
            ("return_spec_tokens_details", json!(true)),
            ("return_input_ids_in_sglext", json!(true)),
            ("return_output_ids_in_sglext", json!(true)),
            ("return_routed_experts", json!(true)),
            ("sampling_logprobs_mode", json!("support")),
        ] {
            let mut body =
                json!({ "messages": [{ "role": "user", "content": "hello" }], "prompt": "hello", "max_tokens": 2 });
            body[field] = value;
            let answer = app.post(path, body.clone()).await;
            assert_eq!(
                (answer.status, &answer.error()["param"]),
                (400, &json!(field)),
                "{path} {field} {}",
                answer.text
            );
            body[field] = json!(null);
            app.post(path, body).await.ok();
        }
    }
}

#[tokio::test]
async fn a_stop_string_that_is_not_trimmed_stays_in_the_text() {
    let app = TestApp::new().says("you and me");
    for path in [PATH, "/v1/completions"] {
        let mut body = json!({
            "messages": [{ "role": "user", "content": "hello" }], "prompt": "hello", "max_tokens": 9, "stop": ["and"]
        });
        let text = |answer: Value| {
            let choice = &answer["choices"][0];
            choice["text"].as_str().or(choice["message"]["content"].as_str()).unwrap().trim().to_owned()
        };
        assert_eq!(text(app.post(path, body.clone()).await.ok()), "you", "{path}");
        body["no_stop_trim"] = json!(true);
        assert_eq!(text(app.post(path, body).await.ok()), "you and", "{path}");
    }
}
