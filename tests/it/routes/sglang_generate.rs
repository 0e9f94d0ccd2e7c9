//! `POST /generate`: SGLang's words for prompts, sampling and answers.

use serde_json::{Value, json};

use crate::it::app::{IM_END, TestApp, VOCAB_SIZE};

const PATH: &str = "/generate";

/// What slime sends (`slime/rollout/sglang_rollout.py`, commit 624b824 of August 2026).
fn of_slime(app: &TestApp, prompt: &str) -> Value {
    json!({
        "input_ids": app.ids(prompt),
        "sampling_params": {
            "temperature": 1.0, "top_p": 1.0, "top_k": -1, "max_new_tokens": 6, "stop": null, "stop_token_ids": null,
            "skip_special_tokens": false, "no_stop_trim": true, "spaces_between_special_tokens": false
        },
        "return_logprob": true
    })
}

/// An answer without what differs each time.
fn timeless(mut answer: Value) -> Value {
    let outputs = match &mut answer {
        Value::Array(outputs) => outputs.iter_mut().collect(),
        output => vec![output],
    };
    for output in outputs {
        assert!(output["meta_info"]["e2e_latency"].take().as_f64().unwrap() >= 0.0);
        assert!(!output["meta_info"]["id"].take().as_str().unwrap().is_empty());
    }
    answer
}

#[tokio::test]
async fn a_rollout_of_slime_has_the_ids_and_log_probs_of_each_token() {
    let app = TestApp::new().says("you");
    let answer = app.post(PATH, of_slime(&app, "hello world")).await.ok();
    let meta = &answer["meta_info"];
    let entries = meta["output_token_logprobs"].as_array().unwrap();
    let ids: Vec<_> = entries.iter().map(|entry| entry[1].clone()).collect();
    assert_eq!(answer["output_ids"], json!(ids));
    assert_eq!(ids.last(), Some(&json!(IM_END)));
    assert!(entries.iter().all(|entry| entry[0].as_f64().unwrap() <= 0.0 && entry[2].is_null()), "{entries:?}");
    // What ended it is left in the text, as `no_stop_trim` asks, and as a special token that is not skipped.
    assert_eq!(answer["text"], "you<|im_end|>");
    assert_eq!(meta["finish_reason"], json!({ "type": "stop", "matched": IM_END }));
    let counts = (&meta["prompt_tokens"], &meta["completion_tokens"], &meta["output_token_logprobs_length"]);
    assert_eq!(counts, (&json!(2), &json!(ids.len()), &json!(ids.len())));
    assert_eq!((&meta["weight_version"], &meta["input_token_logprobs"]), (&json!("default"), &json!([])));
}

#[tokio::test]
async fn it_samples_what_generate_of_vllm_samples() {
    let app = TestApp::new();
    let ids = app.ids("hello world");
    let shared = json!({ "temperature": 0.8, "top_k": 9, "top_p": 0.9, "min_p": 0.01, "presence_penalty": 0.3,
        "frequency_penalty": 0.2, "repetition_penalty": 1.1, "ignore_eos": true, "logit_bias": { "7": 2.0 } });
    let with = |more: Value| {
        let mut params = shared.clone();
        params.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        params
    };
    let sglang = json!({ "input_ids": ids, "return_logprob": true, "top_logprobs_num": 2,
        "sampling_params": with(json!({ "max_new_tokens": 12, "sampling_seed": 5, "min_new_tokens": 2 })) });
    let vllm = json!({ "token_ids": ids,
        "sampling_params": with(json!({ "max_tokens": 12, "seed": 5, "min_tokens": 2, "logprobs": 2 })) });
    let (ours, theirs) = (app.post(PATH, sglang).await.ok(), app.post("/inference/v1/generate", vllm).await.ok());
    let choice = &theirs["choices"][0];
    assert_eq!(ours["output_ids"], choice["token_ids"]);
    let content = choice["logprobs"]["content"].as_array().unwrap();
    let logprobs: Vec<_> = content.iter().map(|entry| json!([entry["logprob"], entry["token_id"], null])).collect();
    assert_eq!(ours["meta_info"]["output_token_logprobs"], json!(logprobs));
    assert_eq!(ours["meta_info"]["finish_reason"], json!({ "type": "length", "length": 12 }));
    let tops = ours["meta_info"]["output_top_logprobs"].as_array().unwrap();
    assert!(tops.len() == 12 && tops.iter().all(|top| top.as_array().unwrap().len() == 2), "{tops:?}");
}

#[tokio::test]
async fn each_event_of_a_stream_has_all_that_there_is_so_far() {
    let app = TestApp::new().says("hello world you and me");
    for n in [1, 2] {
        let mut body = of_slime(&app, "hello");
        body["sampling_params"]["n"] = json!(n);
        body["sampling_params"]["max_new_tokens"] = json!(20);
        body["sampling_params"]["sampling_seed"] = json!(4);
        let whole = timeless(app.post(PATH, body.clone()).await.ok());
        body["stream"] = json!(true);
        let events = app.post(PATH, body).await.events();
        let outputs = if n == 1 { vec![whole] } else { whole.as_array().unwrap().clone() };
        for (index, output) in outputs.iter().enumerate() {
            let own: Vec<&Value> = events.iter().filter(|event| n == 1 || event["index"] == json!(index)).collect();
            assert!(own.len() > 1, "{own:?}");
            for pair in own.windows(2) {
                let [before, after] = [pair[0], pair[1]];
                assert!(before["meta_info"]["finish_reason"].is_null());
                let ids = |event: &Value| event["output_ids"].as_array().unwrap().clone();
                assert!(ids(after).starts_with(&ids(before)));
                assert!(after["text"].as_str().unwrap().starts_with(before["text"].as_str().unwrap()));
            }
            let mut last = timeless((*own.last().unwrap()).clone());
            last.as_object_mut().unwrap().remove("index");
            assert_eq!(&last, output);
        }
    }
}

#[tokio::test]
async fn lists_and_several_sequences_are_answered_by_lists_in_their_order() {
    let app = TestApp::new();
    let prompts = ["hello", "hello world", "you"];
    let params = json!({ "max_new_tokens": 3, "ignore_eos": true, "sampling_seed": 2, "n": 2 });
    let alone = |prompt: &str| {
        let body = json!({ "text": prompt, "sampling_params": params });
        let app = &app;
        async move { timeless(app.post(PATH, body).await.ok()) }
    };
    let ids = prompts.map(|prompt| app.ids(prompt));
    for body in
        [json!({ "text": prompts, "sampling_params": params }), json!({ "input_ids": ids, "sampling_params": params })]
    {
        let answer = timeless(app.post(PATH, body).await.ok());
        let answers = answer.as_array().unwrap();
        assert_eq!(answers.len(), 6);
        for (prompt, pair) in prompts.iter().zip(answers.chunks(2)) {
            assert_eq!(json!(pair), alone(prompt).await, "{prompt}");
        }
    }
    let one = json!({ "text": ["hello"], "sampling_params": { "max_new_tokens": 1 }, "rid": ["mine"] });
    let answer = app.post(PATH, one).await.ok();
    assert_eq!(answer[0]["meta_info"]["id"], "mine");
}

#[tokio::test]
async fn stops_forms_and_what_is_shown_are_as_asked() {
    let app = TestApp::new().says("hello world you and me");
    let params = json!({ "max_new_tokens": 20, "stop": ["you"] });
    let answer = app.post(PATH, json!({ "text": "hello", "sampling_params": params })).await.ok();
    assert_eq!(answer["text"], "hello world ");
    assert_eq!(answer["meta_info"]["finish_reason"], json!({ "type": "stop", "matched": "you" }));
    assert_eq!(answer["meta_info"].get("output_token_logprobs"), None);
    let app = TestApp::new();
    let body = json!({
        "text": "hello", "return_prompt_token_ids": true, "return_logprob": true, "return_text_in_logprobs": true,
        "token_ids_logprob": [3, 5], "sampling_params": { "regex": "hello|you", "max_new_tokens": 9 }
    });
    let answer = app.post(PATH, body).await.ok();
    assert!(["hello", "you"].contains(&answer["text"].as_str().unwrap()), "{answer}");
    assert_eq!(answer["prompt_token_ids"], json!(app.ids("hello")));
    let entry = &answer["meta_info"]["output_token_logprobs"][0];
    assert_eq!(entry[2].as_str().map(str::is_empty), Some(false));
    let of_ids = &answer["meta_info"]["output_token_ids_logprobs"][0];
    assert_eq!((&of_ids[0][1], &of_ids[1][1]), (&json!(3), &json!(5)));
}

#[tokio::test]
async fn a_mask_comes_with_log_probs_over_it_and_needs_a_server_that_has_them() {
    use tito::sampling::LogprobsMode;

    let asked = json!({
        "text": "hello", "return_sampling_mask": true,
        "sampling_params": { "top_k": 4, "max_new_tokens": 5, "ignore_eos": true }
    });
    let app = TestApp::new().policy(|policy| policy.logprobs_mode = LogprobsMode::Processed);
    let answer = app.post(PATH, asked.clone()).await.ok();
    let meta = &answer["meta_info"];
    let rows = meta["output_token_sampling_mask"].as_array().unwrap();
    assert_eq!((rows.len(), &meta["output_token_sampling_mask_length"]), (5, &json!(5)));
    for (id, row) in answer["output_ids"].as_array().unwrap().iter().zip(rows) {
        assert!(row.as_array().unwrap().contains(id) && row.as_array().unwrap().len() <= 4);
    }
    assert_eq!(meta["output_token_sampling_logprobs"].as_array().unwrap().len(), 5);
    let refused = TestApp::new().post(PATH, asked).await;
    assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("return_sampling_mask")));
}

#[tokio::test]
async fn a_text_beside_ids_is_refused_since_one_of_them_would_be_dropped() {
    let app = TestApp::new();
    let ids = app.ids("hello world");
    for body in [json!({ "text": "you", "input_ids": ids }), json!({ "text": ["you"], "input_ids": [ids, ids] })] {
        let refused = app.post(PATH, body).await;
        assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("text")), "{}", refused.text);
    }
}

#[tokio::test]
async fn what_is_not_served_is_refused_by_its_name() {
    let app = TestApp::new();
    for (param, more) in [
        ("image_data", json!({ "image_data": "x" })),
        ("session_params", json!({ "session_params": { "id": "s" } })),
        ("return_routed_experts", json!({ "return_routed_experts": true })),
        ("top_logprobs_num", json!({ "return_logprob": true, "top_logprobs_num": -1 })),
        ("sampling_logprobs_mode", json!({ "return_sampling_mask": true, "sampling_logprobs_mode": "support" })),
        ("sampling_params.max_new_tokens", json!({ "sampling_params": { "max_new_tokens": 1_000_000 } })),
        ("sampling_params.stop_regex", json!({ "sampling_params": { "stop_regex": "a+" } })),
        ("sampling_params.custom_params", json!({ "sampling_params": { "custom_params": { "a": 1 } } })),
        ("sampling_params.seed", json!({ "sampling_params": { "seed": 5 } })),
        ("sampling_params.max_tokens", json!({ "sampling_params": { "max_new_tokens": 2, "max_tokens": 2 } })),
        ("sampling_params.no_such", json!({ "sampling_params": { "no_such": false } })),
        ("sampling_params.regex", json!({ "sampling_params": { "json_schema": "{}", "regex": "a" } })),
        ("sampling_logprobs_mode", json!({ "sampling_logprobs_mode": "support" })),
        ("sampling_logprobs_mode", json!({ "return_sampling_mask": false, "sampling_logprobs_mode": "support" })),
        ("sampling_params.stop", json!({ "sampling_params": { "stop": vec!["a"; 33] } })),
        ("sampling_params.stop", json!({ "sampling_params": { "stop": "" } })),
        ("sampling_params.min_new_tokens", json!({ "sampling_params": { "min_new_tokens": -1 } })),
        ("sampling_params.min_new_tokens", json!({ "sampling_params": { "max_new_tokens": 2, "min_new_tokens": 3 } })),
        ("sampling_params.top_k", json!({ "sampling_params": { "top_k": -2 } })),
        ("sampling_params.top_p", json!({ "sampling_params": { "top_p": 2.0 } })),
        ("sampling_params.min_p", json!({ "sampling_params": { "min_p": 2.0 } })),
        ("sampling_params.temperature", json!({ "sampling_params": { "temperature": -1.0 } })),
        ("sampling_params.n", json!({ "sampling_params": { "n": 0 } })),
        ("sampling_params.n", json!({ "sampling_params": { "n": 2, "temperature": 0.0 } })),
        ("sampling_params.presence_penalty", json!({ "sampling_params": { "presence_penalty": 3.0 } })),
        ("sampling_params.frequency_penalty", json!({ "sampling_params": { "frequency_penalty": 3.0 } })),
        ("sampling_params.repetition_penalty", json!({ "sampling_params": { "repetition_penalty": 0.0 } })),
        ("sampling_params.stop_token_ids", json!({ "sampling_params": { "stop_token_ids": [VOCAB_SIZE] } })),
        ("sampling_params.logit_bias", json!({ "sampling_params": { "logit_bias": { "a": 1.0 } } })),
        ("sampling_params.regex", json!({ "sampling_params": { "regex": "(" } })),
        ("sampling_params.ebnf", json!({ "sampling_params": { "ebnf": "root ::=" } })),
        ("sampling_params.json_schema", json!({ "sampling_params": { "json_schema": "{" } })),
        ("sampling_params.structural_tag", json!({ "sampling_params": { "structural_tag": "{" } })),
        ("input_ids", json!({ "text": null, "input_ids": [1, VOCAB_SIZE] })),
        ("input_ids", json!({ "text": null, "input_ids": [] })),
        ("input_ids", json!({ "text": null })),
        ("rid", json!({ "rid": ["a", "b"] })),
        ("rid", json!({ "rid": "a".repeat(600) })),
    ] {
        let mut body = json!({ "text": "hello" });
        body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        let answer = app.post(PATH, body.clone()).await;
        assert_eq!((answer.status, &answer.error()["param"]), (400, &json!(param)), "{body} {}", answer.text);
    }
    // Null and empty change nothing.
    let idle = json!({
        "text": "hello", "image_data": null, "session_params": null, "return_hidden_states": false, "priority": 3,
        "sampling_params": { "max_new_tokens": 2, "custom_params": {}, "stop_regex": null, "stream_interval": 1, "no_such": null }
    });
    assert_eq!(app.post(PATH, idle).await.status, 200);
}

#[tokio::test]
async fn an_empty_form_asks_for_none_and_thirty_two_texts_may_end_an_answer() {
    let app = TestApp::new().says("hello world you");
    let asked = async |more: Value| {
        let mut params = json!({ "max_new_tokens": 9 });
        params.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        app.post(PATH, json!({ "text": "hello", "sampling_params": params })).await.ok()["text"].clone()
    };
    let plain = asked(json!({})).await;
    for name in ["regex", "json_schema", "ebnf", "structural_tag"] {
        assert_eq!(asked(json!({ name: "" })).await, plain, "{name}");
    }
    assert_eq!(asked(json!({ "regex": "", "json_schema": "", "ebnf": "root ::= \"you\"" })).await, "you");
    let mut stops = vec!["nowhere"; 31];
    stops.push(" you");
    assert_eq!(asked(json!({ "stop": stops })).await, "hello world");
}

#[tokio::test]
async fn a_prompt_that_fills_the_context_is_told_of_by_the_field_that_has_it() {
    let app = TestApp::new().max_model_len(8);
    let few = json!({ "max_new_tokens": 1 });
    for (tokens, says) in [(8, "has 8 tokens"), (9, "has 9 tokens")] {
        let refused = app.post(PATH, json!({ "input_ids": vec![1; tokens], "sampling_params": few })).await;
        let message = refused.error()["message"].as_str().unwrap().to_owned();
        assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("input_ids")), "{message}");
        assert!(message.contains(says) && message.contains("context length of the model is 8"), "{message}");
        assert!(!message.contains("max_tokens"), "{message}");
    }
    for text in [" hello".repeat(8), " hello".repeat(9), " hello".repeat(900)] {
        let refused = app.post(PATH, json!({ "text": text, "sampling_params": few })).await;
        assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("text")), "{}", refused.text);
        assert!(!refused.text.contains("max_tokens") && refused.text.contains("context length"), "{}", refused.text);
    }
    app.post(PATH, json!({ "input_ids": vec![1; 7], "sampling_params": few })).await.ok();
}

#[tokio::test]
async fn more_prompts_than_a_request_may_have_are_refused() {
    let app = TestApp::new().requests(|policy| policy.max_prompts = 2);
    let few = json!({ "max_new_tokens": 1 });
    for (more, most) in [
        (json!({ "text": ["a", "b", "c"] }), json!({ "text": ["a", "b"] })),
        (json!({ "input_ids": [[1], [2], [3]] }), json!({ "input_ids": [[1], [2]] })),
    ] {
        let mut bodies = [more, most];
        for body in &mut bodies {
            body["sampling_params"] = few.clone();
        }
        let [refused, answered] = bodies;
        assert_eq!(app.post(PATH, refused).await.status, 400);
        assert_eq!(app.post(PATH, answered).await.ok().as_array().unwrap().len(), 2);
    }
}
