//! `POST /generate` of SGLang: scores of prompts, and requests whose prompts are sampled each in its own way.

use serde_json::{Value, json};

use tito::sampling::LogprobsMode;

use crate::it::app::{TestApp, VOCAB_SIZE};

const PATH: &str = "/generate";
const PROMPT: &str = "hello world you and me";

/// What miles sends to score a sample (`miles/rollout/generate_utils/prefill_logprobs.py`, 0.0.2).
fn scoring(ids: &Value, from: i64) -> Value {
    json!({
        "input_ids": ids,
        "sampling_params": { "top_p": 1.0, "max_new_tokens": 0, "temperature": 0, "skip_special_tokens": false },
        "return_logprob": true, "logprob_start_len": from
    })
}

fn with(mut body: Value, more: Value) -> Value {
    let Value::Object(mut more) = more else { panic!("fields are an object") };
    body.as_object_mut().unwrap().append(&mut more);
    body
}

async fn meta(app: &TestApp, body: Value) -> Value {
    app.post(PATH, body).await.ok()["meta_info"].clone()
}

#[tokio::test]
async fn a_prompt_has_the_log_probs_that_completions_repeat_with_it_to_the_bit() {
    for mode in [LogprobsMode::Raw, LogprobsMode::Processed] {
        let app = TestApp::new().policy(|policy| policy.logprobs_mode = mode);
        let ids = json!(app.ids(PROMPT));
        let echo = json!({ "prompt": ids, "echo": true, "max_tokens": 0, "logprobs": 0 });
        let echo = app.post("/v1/completions", echo).await.ok();
        let expected = echo["choices"][0]["logprobs"]["token_logprobs"].as_array().unwrap();
        let ids_of = ids.as_array().unwrap();
        assert!(ids_of.len() > 3 && expected.len() == ids_of.len());
        for from in 0..=ids_of.len() {
            let answer = app.post(PATH, scoring(&ids, i64::try_from(from).unwrap())).await.ok();
            let entry = |index| {
                let logprob = if index == from { &Value::Null } else { &expected[index] };
                json!([logprob, ids_of[index], null])
            };
            let entries: Vec<_> = (from..ids_of.len()).map(entry).collect();
            let meta = &answer["meta_info"];
            assert_eq!(meta["input_token_logprobs"], json!(entries), "from {from}");
            // Nothing is sampled.
            assert_eq!((&answer["text"], &answer["output_ids"]), (&json!(""), &json!([])));
            assert_eq!(meta["finish_reason"], json!({ "type": "length", "length": 0 }));
            assert_eq!((&meta["prompt_tokens"], &meta["completion_tokens"]), (&json!(ids_of.len()), &json!(0)));
            assert_eq!(
                (&meta["output_token_logprobs"], &meta["output_token_logprobs_length"]),
                (&json!([]), &json!(0))
            );
            assert_eq!(meta["weight_versions"], json!([]));
        }
    }
}

#[tokio::test]
async fn alternatives_of_a_prompt_are_the_most_probable_tokens_or_those_that_are_named() {
    let app = TestApp::new();
    let ids = json!(app.ids(PROMPT));
    let vllm = json!({ "token_ids": ids, "sampling_params": { "max_tokens": 1, "prompt_logprobs": 3 } });
    let vllm = app.post("/inference/v1/generate", vllm).await.ok();
    let expected = vllm["prompt_logprobs"].as_array().or(vllm["choices"][0]["prompt_logprobs"].as_array()).unwrap();
    let scored = meta(&app, with(scoring(&ids, 1), json!({ "top_logprobs_num": 3 }))).await;
    let rows = scored["input_top_logprobs"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[0]), (expected.len() - 1, &Value::Null));
    for (row, expected) in rows[1..].iter().zip(&expected[2..]) {
        let row = row.as_array().unwrap();
        assert_eq!(row.len(), 3);
        for entry in row {
            assert_eq!(entry[0], expected[entry[1].to_string()]["logprob"], "{entry} {expected}");
        }
    }
    // The position after the prompt is shown too, as in SGLang, and no token of it.
    assert_eq!(scored["output_top_logprobs"].as_array().unwrap().len(), 1);
    assert_eq!(scored.get("input_token_ids_logprobs"), None);

    // Every position has the log-probs of all of these tokens: that of the token which stands there is its own.
    let named = meta(&app, with(scoring(&ids, 2), json!({ "token_ids_logprob": ids }))).await;
    let (rows, own) = (&named["input_token_ids_logprobs"], &named["input_token_logprobs"]);
    let (rows, own) = (rows.as_array().unwrap(), own.as_array().unwrap());
    assert_eq!((rows.len(), &rows[0]), (own.len(), &Value::Null));
    for (index, (row, own)) in rows.iter().zip(own).enumerate().skip(1) {
        let named: Vec<_> = row.as_array().unwrap().iter().map(|entry| entry[1].clone()).collect();
        assert_eq!(json!(named), ids);
        assert_eq!(&row[index + 2], own);
    }
    let after = &named["output_token_ids_logprobs"];
    assert_eq!((after.as_array().unwrap().len(), after[0].as_array().unwrap().len()), (1, named_count(&ids)));
    assert_eq!(named.get("input_top_logprobs"), None);
}

fn named_count(ids: &Value) -> usize {
    ids.as_array().unwrap().len()
}

#[tokio::test]
async fn a_prompt_is_scored_beside_what_is_sampled_and_each_event_of_a_stream_has_its_scores() {
    let app = TestApp::new();
    let ids = json!(app.ids(PROMPT));
    let more = json!({ "top_logprobs_num": 2, "return_text_in_logprobs": true });
    let scored = meta(&app, with(scoring(&ids, 1), more.clone())).await;
    assert_eq!(scored["input_token_logprobs"][1][2].as_str().map(str::is_empty), Some(false));
    let mut sampled = with(scoring(&ids, 1), more);
    sampled["sampling_params"] = json!({ "max_new_tokens": 4, "ignore_eos": true, "sampling_seed": 3 });
    let whole = app.post(PATH, sampled.clone()).await.ok();
    let plain = with(sampled.clone(), json!({ "logprob_start_len": -1 }));
    let plain = app.post(PATH, plain).await.ok();
    assert_eq!(whole["output_ids"], plain["output_ids"]);
    for list in ["output_token_logprobs", "output_top_logprobs"] {
        assert_eq!(whole["meta_info"][list], plain["meta_info"][list]);
    }
    assert_eq!(plain["meta_info"]["input_token_logprobs"], json!([]));
    sampled["stream"] = json!(true);
    let events = app.post(PATH, sampled).await.events();
    assert_eq!(events.len(), 4);
    for list in ["input_token_logprobs", "input_top_logprobs"] {
        assert_eq!(whole["meta_info"][list], scored[list]);
        assert!(events.iter().all(|event| event["meta_info"][list] == scored[list]), "{list}");
    }
}

#[tokio::test]
async fn a_prompt_of_one_token_has_nothing_to_score() {
    let app = TestApp::new();
    for more in [json!({}), json!({ "top_logprobs_num": 1 }), json!({ "token_ids_logprob": [3] })] {
        let scored = meta(&app, with(scoring(&json!([5]), 0), more)).await;
        assert_eq!(scored["input_token_logprobs"], json!([[null, 5, null]]));
    }
}

#[tokio::test]
async fn each_prompt_of_a_list_is_sampled_and_scored_in_its_own_way() {
    let app = TestApp::new();
    let prompts = ["hello", "hello world", PROMPT];
    let params = [
        json!({ "max_new_tokens": 3, "ignore_eos": true, "sampling_seed": 2 }),
        json!({ "max_new_tokens": 0 }),
        json!({ "max_new_tokens": 9, "regex": "hello|you", "temperature": 0.5, "sampling_seed": 7 }),
    ];
    let own = [
        json!({ "return_logprob": true, "logprob_start_len": -1, "top_logprobs_num": 2, "token_ids_logprob": [] }),
        json!({ "return_logprob": true, "logprob_start_len": 0, "top_logprobs_num": 0, "token_ids_logprob": [3, 4] }),
        json!({ "return_logprob": false, "logprob_start_len": 1, "top_logprobs_num": 0, "token_ids_logprob": [] }),
    ];
    let mut body = json!({ "input_ids": prompts.map(|prompt| app.ids(prompt)), "sampling_params": params });
    for field in ["return_logprob", "logprob_start_len", "top_logprobs_num", "token_ids_logprob"] {
        body[field] = own.iter().map(|fields| fields[field].clone()).collect();
    }
    let timeless = |mut answer: Value| {
        answer["meta_info"]["id"].take();
        answer["meta_info"]["e2e_latency"].take();
        answer
    };
    let answers = app.post(PATH, body).await.ok();
    assert_eq!(answers.as_array().unwrap().len(), 3);
    for (index, prompt) in prompts.iter().enumerate() {
        let alone = json!({ "input_ids": app.ids(prompt), "sampling_params": params[index] });
        let alone = app.post(PATH, with(alone, own[index].clone())).await.ok();
        assert_eq!(timeless(answers[index].clone()), timeless(alone), "{prompt}");
    }
}

#[tokio::test]
async fn scores_and_lists_that_cannot_be_honoured_are_refused_by_name() {
    let app = TestApp::new();
    let two = json!({ "text": ["hello", "you"] });
    let one = json!({ "text": "hello", "return_logprob": true });
    for (param, body) in [
        ("logprob_start_len", with(one.clone(), json!({ "logprob_start_len": -2 }))),
        ("logprob_start_len", with(one.clone(), json!({ "logprob_start_len": 99 }))),
        ("logprob_start_len", with(one.clone(), json!({ "logprob_start_len": [0, 0] }))),
        ("top_logprobs_num", with(one.clone(), json!({ "logprob_start_len": 0, "top_logprobs_num": 10_000 }))),
        ("token_ids_logprob", with(one.clone(), json!({ "token_ids_logprob": [VOCAB_SIZE] }))),
        ("token_ids_logprob", with(one.clone(), json!({ "token_ids_logprob": [1], "top_logprobs_num": 1 }))),
        ("token_ids_logprob", with(two.clone(), json!({ "token_ids_logprob": [[1]] }))),
        ("sampling_params", with(two.clone(), json!({ "sampling_params": [{}] }))),
        ("sampling_params", with(one.clone(), json!({ "sampling_params": [] }))),
        ("sampling_params.n", with(two.clone(), json!({ "sampling_params": [{ "n": 2 }, {}] }))),
        (
            "sampling_params.ebnf",
            with(two, json!({ "sampling_params": [{}, { "ebnf": "root ::= \"a\"", "regex": "a" }] })),
        ),
        (
            "sampling_params.min_new_tokens",
            with(one.clone(), json!({ "sampling_params": { "max_new_tokens": 0, "min_new_tokens": 1 } })),
        ),
        ("sampling_params.max_new_tokens", with(one, json!({ "sampling_params": { "max_new_tokens": -1 } }))),
    ] {
        let answer = app.post(PATH, body.clone()).await;
        assert_eq!((answer.status, &answer.error()["param"]), (400, &json!(param)), "{body} {}", answer.text);
    }
    // A value of the wrong type is named where it stands.
    let wrong = json!({ "text": ["a", "b"], "sampling_params": [{}, { "temperature": "hot" }] });
    let answer = app.post(PATH, wrong).await;
    assert_eq!(answer.status, 400);
    assert!(answer.text.contains("temperature"), "{}", answer.text);
}

#[tokio::test]
async fn an_engine_that_scores_no_named_tokens_refuses_the_field_that_the_client_sent() {
    let app = TestApp::new().without_candidates();
    let ids = json!(app.ids(PROMPT));
    let answer = app.post(PATH, with(scoring(&ids, 0), json!({ "token_ids_logprob": [1, 2] }))).await;
    let message = answer.error()["message"].as_str().unwrap().to_owned();
    assert_eq!((answer.status, &answer.error()["param"]), (400, &json!("token_ids_logprob")), "{message}");
    assert!(message.contains("`token_ids_logprob`") && !message.contains("prompt_logprob_token_ids"), "{message}");
    let params = json!({ "max_tokens": 1, "prompt_logprob_token_ids": [1, 2] });
    let answer = app.post("/inference/v1/generate", json!({ "token_ids": ids, "sampling_params": params })).await;
    assert_eq!((answer.status, &answer.error()["param"]), (400, &json!("prompt_logprob_token_ids")), "{}", answer.text);
    // At sampled positions, every engine scores them.
    let sampled =
        with(scoring(&ids, -1), json!({ "token_ids_logprob": [1, 2], "sampling_params": { "max_new_tokens": 2 } }));
    let meta = meta(&app, sampled).await;
    assert_eq!(meta["output_token_ids_logprobs"].as_array().unwrap().len(), meta["completion_tokens"]);
}
