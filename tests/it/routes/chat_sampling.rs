//! Sampling through the API: what a request asks for is what happens to the ids.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tito::TokenId;

use crate::it::app::{ENDOFTEXT, IM_END, TestApp};

const PATH: &str = "/v1/chat/completions";

async fn answer(app: &TestApp, more: Value) -> Value {
    let mut body = json!({ "messages": [{ "role": "user", "content": "hello" }], "return_token_ids": true });
    body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
    app.post(PATH, body).await.ok()
}

fn ids_of(choice: &Value) -> Vec<TokenId> {
    serde_json::from_value(choice["token_ids"].clone()).unwrap()
}

async fn ids(app: &TestApp, more: Value) -> Vec<TokenId> {
    ids_of(&answer(app, more).await["choices"][0])
}

#[tokio::test]
async fn the_same_seed_gives_the_same_ids_and_another_seed_others() {
    let app = TestApp::new();
    let seeded = |seed: u64| ids(&app, json!({ "seed": seed, "max_tokens": 40, "ignore_eos": true }));
    let first = seeded(7).await;
    assert_eq!(first.len(), 40);
    assert_eq!(seeded(7).await, first);
    assert_ne!(seeded(8).await, first);
}

#[tokio::test]
async fn no_seed_and_a_seed_of_minus_one_are_fresh_every_time() {
    let app = TestApp::new();
    let mut seen = BTreeSet::new();
    for seed in [Value::Null, json!(-1), Value::Null, json!(-1)] {
        assert!(seen.insert(ids(&app, json!({ "seed": seed, "max_tokens": 40, "ignore_eos": true })).await));
    }
}

#[tokio::test]
async fn a_temperature_of_zero_needs_no_seed_to_repeat_itself() {
    let app = TestApp::new();
    let greedy = || ids(&app, json!({ "temperature": 0, "max_tokens": 40, "ignore_eos": true, "top_k": 3 }));
    assert_eq!(greedy().await, greedy().await);
}

#[tokio::test]
async fn each_of_n_answers_has_the_seed_plus_its_index() {
    let app = TestApp::new();
    let several = answer(&app, json!({ "seed": 5, "n": 3, "max_tokens": 12, "ignore_eos": true })).await;
    let choices = several["choices"].as_array().unwrap();
    assert_eq!(several["usage"]["completion_tokens"], 36);
    for (index, choice) in choices.iter().enumerate() {
        assert_eq!(choice["index"], index);
        let alone = ids(&app, json!({ "seed": 5 + index, "max_tokens": 12, "ignore_eos": true })).await;
        assert_eq!(ids_of(choice), alone);
    }
}

#[tokio::test]
async fn tokens_to_generate_are_clamped_to_the_room_that_the_prompt_leaves() {
    let app = TestApp::new().max_model_len(32);
    for asked in [json!({ "max_tokens": 32 }), json!({}), json!({ "max_completion_tokens": 32, "max_tokens": 1 })] {
        let mut more = asked.clone();
        more["ignore_eos"] = json!(true);
        let answer = answer(&app, more).await;
        assert_eq!(answer["usage"]["total_tokens"], 32, "{asked}");
        assert_eq!(answer["choices"][0]["finish_reason"], "length");
    }
}

#[tokio::test]
async fn more_tokens_than_the_context_has_are_refused_and_do_not_sound_like_an_overflow() {
    let app = TestApp::new().max_model_len(32);
    for field in ["max_tokens", "max_completion_tokens"] {
        let body = json!({ "messages": [{ "role": "user", "content": "hello" }], field: 33 });
        let refused = app.post(PATH, body).await;
        assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("max_completion_tokens")));
        let message = refused.error()["message"].as_str().unwrap().to_owned();
        assert!(message.starts_with("max_completion_tokens=33 cannot be greater than max_model_len=32."), "{message}");
    }
}

#[tokio::test]
async fn a_prompt_that_leaves_no_room_is_an_overflow_and_says_so() {
    for max_model_len in [9, 8, 1] {
        let app = TestApp::new().max_model_len(max_model_len);
        let body = json!({ "messages": [{ "role": "user", "content": "hello" }] });
        let refused = app.post(PATH, body).await;
        let error = refused.error();
        assert_eq!((refused.status, &error["type"]), (400, &json!("BadRequestError")));
        let message = error["message"].as_str().unwrap();
        // The prompt has nine tokens; no token of the tiny model has more than 16 bytes, so that one cannot be so many.
        let (param, says) = match max_model_len {
            9 => ("max_tokens", "max_tokens must be at least 1, got 0."),
            8 => (
                "input_tokens",
                "maximum context length is 8 tokens. However, your prompt contains at least 9 input tokens",
            ),
            _ => (
                "input_text",
                "maximum context length is 1 tokens. However, your prompt contains 55 characters (more than 16",
            ),
        };
        assert_eq!(error["param"], param);
        assert!(message.contains(says), "{message}");
    }
}

#[tokio::test]
async fn max_completion_tokens_wins_over_max_tokens() {
    let app = TestApp::new();
    let more = json!({ "max_completion_tokens": 3, "max_tokens": 5, "ignore_eos": true });
    assert_eq!(ids(&app, more).await.len(), 3);
    let more = json!({ "max_completion_tokens": null, "max_tokens": 5, "ignore_eos": true });
    assert_eq!(ids(&app, more).await.len(), 5);
}

#[tokio::test]
async fn the_models_own_defaults_apply_where_a_request_is_silent() {
    let app = TestApp::new().policy(|policy| {
        policy.defaults.max_new_tokens = Some(4);
        policy.defaults.temperature = Some(0.0);
    });
    let silent = ids(&app, json!({ "ignore_eos": true })).await;
    assert_eq!(silent.len(), 4);
    assert_eq!(ids(&app, json!({ "ignore_eos": true, "temperature": null })).await, silent);
    assert_eq!(ids(&app, json!({ "ignore_eos": true, "max_tokens": 6 })).await[..4], silent);
}

#[tokio::test]
async fn min_tokens_holds_every_end_token_back() {
    let app = TestApp::new();
    for seed in 0..20 {
        let sampled = ids(&app, json!({ "seed": seed, "min_tokens": 30, "max_tokens": 60 })).await;
        assert!(sampled.len() >= 30, "{sampled:?}");
        let early = &sampled[..29];
        assert!(!early.contains(&IM_END) && !early.contains(&ENDOFTEXT), "{sampled:?}");
    }
}

#[tokio::test]
async fn a_bias_lifts_a_token_over_all_others_and_a_ban_keeps_it_out() {
    let app = TestApp::new();
    let lifted = ids(&app, json!({ "logit_bias": { "77": 100 }, "max_tokens": 8 })).await;
    assert_eq!(lifted, [77; 8]);
    let greedy = json!({ "temperature": 0, "max_tokens": 1, "ignore_eos": true });
    let best = ids(&app, greedy.clone()).await[0];
    let mut banned = greedy;
    banned["logit_bias"] = json!({ best.to_string(): -100 });
    assert_ne!(ids(&app, banned).await[0], best);
}

#[tokio::test]
async fn only_allowed_tokens_are_sampled() {
    let app = TestApp::new();
    for seed in 0..8 {
        let more = json!({ "allowed_token_ids": [50, 60, 70], "max_tokens": 30, "seed": seed });
        let sampled = ids(&app, more).await;
        assert!(sampled.iter().all(|id| [50, 60, 70].contains(id)), "{sampled:?}");
    }
}

#[tokio::test]
async fn bad_words_are_never_completed() {
    let app = TestApp::new();
    let ids_of_hello = app.ids("hello");
    let app = app.says("hello world");
    let more = json!({ "bad_words": ["hello"], "max_tokens": 2, "ignore_eos": true });
    let sampled = ids(&app, more).await;
    assert_ne!(sampled[0], ids_of_hello[0]);
}

#[tokio::test]
async fn penalties_change_what_is_sampled() {
    let app = TestApp::new();
    let with = |name: &str, value: f64| {
        let more =
            json!({ "temperature": 0, "max_tokens": 60, "ignore_eos": true, "logit_bias": { "77": 36 }, name: value });
        ids(&app, more)
    };
    let plain = with("frequency_penalty", 0.0).await;
    assert!(plain.iter().filter(|id| **id == 77).count() > 50, "{plain:?}");
    for name in ["frequency_penalty", "presence_penalty", "repetition_penalty"] {
        let fewer = with(name, if name == "repetition_penalty" { 1.9 } else { 2.0 }).await;
        assert!(fewer.iter().filter(|id| **id == 77).count() < 60, "{name}: {fewer:?}");
        assert_ne!(fewer, plain, "{name}");
    }
}

#[tokio::test]
async fn log_probs_describe_the_model_or_the_sampled_distribution_as_the_server_is_told() {
    use tito::sampling::LogprobsMode;
    let more = json!({ "allowed_token_ids": [50], "max_tokens": 1, "logprobs": true });
    let logprob = |answer: Value| answer["choices"][0]["logprobs"]["content"][0]["logprob"].as_f64().unwrap();
    let raw = logprob(answer(&TestApp::new(), more.clone()).await);
    let processed = TestApp::new().policy(|policy| policy.logprobs_mode = LogprobsMode::Processed);
    let processed = logprob(answer(&processed, more).await);
    assert!(raw < -1.0 && processed == 0.0, "{raw} {processed}");
}

/// Not the server's fault, so not a 500: the request masks every token.
#[tokio::test]
async fn a_request_that_masks_every_token_is_told_so() {
    let app = TestApp::new();
    let body = json!({
        "messages": [{ "role": "user", "content": "hello" }],
        "allowed_token_ids": [IM_END],
        "min_tokens": 3,
        "max_tokens": 5,
    });
    let refused = app.post(PATH, body.clone()).await;
    assert_eq!(refused.status, 400, "{}", refused.text);
    assert!(refused.error()["message"].as_str().unwrap().contains("every token is masked"), "{}", refused.text);
    let mut streamed = body;
    streamed["stream"] = json!(true);
    let events = app.post(PATH, streamed).await.events();
    let mut error = refused.error();
    error["retry"] = json!("never");
    error["done"] = json!("maybe");
    assert_eq!(events, [json!({ "error": error })]);
}

#[tokio::test]
async fn an_answer_that_is_complete_ends_before_min_tokens() {
    let app = &TestApp::new();
    let chat = async |seed: u64, more: &Value| {
        let mut more = more.clone();
        more["seed"] = json!(seed);
        answer(app, more).await["choices"][0].take()
    };
    let choices = ["a", "hello there you are", "b"];
    let early =
        json!({ "min_tokens": 4, "max_tokens": 3000, "temperature": 1.5, "structured_outputs": { "choice": choices } });
    let mut found = std::collections::BTreeSet::new();
    for seed in 0..12 {
        let choice = chat(seed, &early).await;
        assert_eq!(choice["finish_reason"], "stop", "{choice}");
        found.insert(choice["message"]["content"].as_str().unwrap().to_owned());
    }
    assert!(found.len() > 1 && found.iter().all(|text| choices.contains(&&**text)), "{found:?}");
    // What may go on does.
    let more = json!({ "min_tokens": 8, "max_tokens": 12, "structured_outputs": { "regex": "[0-9]*" } });
    for seed in 0..6 {
        let choice = chat(seed, &more).await;
        assert!(choice["message"]["content"].as_str().unwrap().len() >= 8, "{choice}");
    }
    let mut body = json!({ "prompt": "hi", "max_tokens": 20, "seed": 1, "min_tokens": 8, "stream": true,
        "structured_outputs": { "json": { "type": "boolean" } } });
    let text = |event: &Value| event["choices"][0]["text"].as_str().unwrap_or_default().to_owned();
    let streamed: String = app.post("/v1/completions", body.clone()).await.events().iter().map(text).collect();
    assert!(["true", "false"].contains(&streamed.trim()), "{streamed}");
    body["stream"] = json!(false);
    assert_eq!(app.post("/v1/completions", body).await.ok()["choices"][0]["text"], streamed);
}
