//! `POST /v1/chat/completions`: the shape of an answer, the ids in it, and what ends it.

use expect_test::expect;
use serde_json::{Value, json};

use crate::it::app::{ENDOFTEXT, IM_END, MODEL, TestApp, posted, redacted, shape};

const PATH: &str = "/v1/chat/completions";

/// A question and whatever else the request has.
fn asking(more: &Value) -> Value {
    let mut body = json!({ "model": MODEL, "messages": [{ "role": "user", "content": "hello" }] });
    body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
    body
}

async fn choice(app: &TestApp, more: Value) -> Value {
    app.post(PATH, asking(&more)).await.ok()["choices"][0].take()
}

/// Content, `finish_reason` and `stop_reason`.
fn ending(choice: &Value) -> (&str, &str, &Value) {
    let content = choice["message"]["content"].as_str().unwrap();
    (content, choice["finish_reason"].as_str().unwrap(), &choice["stop_reason"])
}

#[tokio::test]
async fn a_plain_answer_has_every_key_of_vllm_in_its_order() {
    let app = TestApp::new().says("hello world");
    let answer = app.post(PATH, asking(&json!({ "request_id": "1" }))).await;
    assert_eq!(answer.headers["content-type"], "application/json");
    expect![[r#"
        {
          "id": "chatcmpl-1",
          "object": "chat.completion",
          "created": 0,
          "model": "tiny",
          "choices": [
            {
              "index": 0,
              "message": {
                "role": "assistant",
                "content": "hello world",
                "refusal": null,
                "annotations": null,
                "audio": null,
                "function_call": null,
                "reasoning": null
              },
              "logprobs": null,
              "finish_reason": "stop",
              "stop_reason": null,
              "token_ids": null,
              "routed_experts": null,
              "weight_versions": null
            }
          ],
          "service_tier": null,
          "system_fingerprint": "tito-0.1.0",
          "usage": {
            "prompt_tokens": 9,
            "total_tokens": 12,
            "completion_tokens": 3,
            "prompt_tokens_details": null,
            "completion_tokens_details": null
          },
          "prompt_logprobs": null,
          "prompt_token_ids": null,
          "prompt_text": null,
          "kv_transfer_params": null,
          "ec_transfer_params": null,
          "metrics": null
        }"#]]
    .assert_eq(&format!("{:#}", redacted(answer.ok())));
}

#[tokio::test]
async fn return_token_ids_reports_the_same_ids_in_all_three_places() {
    let app = TestApp::new();
    let script = [app.ids("hel"), app.ids("lo"), vec![IM_END]].concat();
    let app = app.script(script.clone());
    let answer = app.post(PATH, asking(&json!({ "return_token_ids": true }))).await.ok();
    let prompt = app.ids("<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n");
    let (choice, message) = (&answer["choices"][0], &answer["choices"][0]["message"]);
    assert_eq!(answer["prompt_token_ids"], json!(prompt));
    assert_eq!(message["prompt_token_ids"], json!(prompt));
    assert_eq!(choice["token_ids"], json!(script));
    assert_eq!(message["generation_token_ids"], json!(script));
    assert_eq!(message["generation_log_probs"].as_array().unwrap().len(), script.len());
    assert_eq!(message["content"], "hello");
    assert_ne!(app.ids("hello"), script[..2], "the ids are not what the text would encode to");
    assert_eq!(choice["logprobs"], Value::Null);
    assert_eq!(answer["usage"]["completion_tokens"], 3);
}

#[tokio::test]
async fn log_probs_named_by_id_bring_the_message_bundle_but_no_other_ids() {
    let app = TestApp::new().says("hello");
    let more = json!({ "logprobs": true, "top_logprobs": 0, "return_tokens_as_token_ids": true });
    let answer = app.post(PATH, asking(&more)).await.ok();
    expect![
        "id object created model choices[index message{role content refusal annotations audio function_call reasoning \
         prompt_token_ids generation_token_ids generation_log_probs} logprobs{content[token logprob bytes \
         top_logprobs]} finish_reason stop_reason token_ids routed_experts weight_versions] service_tier \
         system_fingerprint usage{prompt_tokens total_tokens completion_tokens prompt_tokens_details \
         completion_tokens_details} prompt_logprobs prompt_token_ids prompt_text kv_transfer_params ec_transfer_params \
         metrics token_continuity{source outcome reason anchor reused_ids new_ids proof matched_by warnings drift}"
    ]
    .assert_eq(&shape(&answer));
    assert_eq!(answer["prompt_token_ids"], Value::Null);
    let choice = &answer["choices"][0];
    assert_eq!(choice["token_ids"], Value::Null);
    let content = choice["logprobs"]["content"].as_array().unwrap();
    let names: Vec<_> = content.iter().map(|entry| entry["token"].as_str().unwrap()).collect();
    let ids = choice["message"]["generation_token_ids"].as_array().unwrap();
    assert_eq!(names, ids.iter().map(|id| format!("token_id:{id}")).collect::<Vec<_>>());
    // The bytes are those of the token, not of its name.
    assert_eq!(content[0]["bytes"], json!(b"hello"));
    assert!(content.iter().all(|entry| entry["top_logprobs"] == json!([])));
    let logprobs: Vec<_> = content.iter().map(|entry| entry["logprob"].clone()).collect();
    assert_eq!(choice["message"]["generation_log_probs"], json!(logprobs));
}

#[tokio::test]
async fn the_server_may_name_tokens_by_id_unless_a_request_says_otherwise() {
    let app = TestApp::new().policy(|policy| policy.return_tokens_as_token_ids = true).says("hello");
    let named = choice(&app, json!({ "logprobs": true })).await;
    assert!(named["logprobs"]["content"][0]["token"].as_str().unwrap().starts_with("token_id:"));
    assert!(named["message"]["generation_token_ids"].is_array());
    let spelled = choice(&app, json!({ "logprobs": true, "return_tokens_as_token_ids": false })).await;
    assert_eq!(spelled["logprobs"]["content"][0]["token"], "hello");
    assert_eq!(spelled["message"].get("generation_token_ids"), None);
}

#[tokio::test]
async fn alternatives_start_with_the_sampled_token_and_are_as_many_as_asked_for() {
    let app = TestApp::new();
    let more = json!({ "logprobs": true, "top_logprobs": 3, "seed": 5, "max_tokens": 20, "ignore_eos": true });
    let choice = choice(&app, more).await;
    let content = choice["logprobs"]["content"].as_array().unwrap();
    assert_eq!(content.len(), 20);
    for entry in content {
        let alternatives = entry["top_logprobs"].as_array().unwrap();
        assert_eq!(alternatives.len(), 3);
        assert_eq!(
            (&alternatives[0]["token"], &alternatives[0]["logprob"]),
            (&entry["token"], &entry["logprob"]),
            "{entry}"
        );
        let rest: Vec<_> = alternatives[1..].iter().map(|other| other["logprob"].as_f64().unwrap()).collect();
        assert!(rest.is_sorted_by(|left, right| left >= right), "{entry}");
    }
}

#[tokio::test]
async fn top_logprobs_of_minus_one_is_the_whole_vocabulary_where_the_server_allows_it() {
    let app = TestApp::new().policy(|policy| policy.max_logprobs = None).says("hello");
    let all = choice(&app, json!({ "logprobs": true, "top_logprobs": -1, "max_tokens": 1 })).await;
    let alternatives = all["logprobs"]["content"][0]["top_logprobs"].as_array().unwrap();
    assert_eq!(alternatives.len(), app.tokenizer().vocab_size());
}

#[tokio::test]
async fn a_null_top_logprobs_keeps_log_probs_on() {
    let app = TestApp::new().says("hello");
    let choice = choice(&app, json!({ "logprobs": true, "top_logprobs": null })).await;
    assert_eq!(choice["logprobs"]["content"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn chosen_tokens_are_reported_instead_of_the_best() {
    let app = TestApp::new().says("hello");
    let more = json!({ "logprobs": true, "logprob_token_ids": [7, 300], "return_tokens_as_token_ids": true });
    let choice = choice(&app, more).await;
    let alternatives = choice["logprobs"]["content"][0]["top_logprobs"].as_array().unwrap();
    let names: Vec<_> = alternatives.iter().map(|other| other["token"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names[0], format!("token_id:{}", app.ids("hello")[0]));
    assert!(names.contains(&"token_id:7".to_owned()) && names.contains(&"token_id:300".to_owned()), "{names:?}");
}

#[tokio::test]
async fn prompt_log_probs_start_with_null_and_name_every_prompt_token_first() {
    let app = TestApp::new().says("hello");
    let answer = app.post(PATH, asking(&json!({ "prompt_logprobs": 2, "return_token_ids": true }))).await.ok();
    let prompt = answer["prompt_token_ids"].as_array().unwrap();
    let scores = answer["prompt_logprobs"].as_array().unwrap();
    assert_eq!(scores.len(), prompt.len());
    assert_eq!(scores[0], Value::Null);
    for (score, id) in scores.iter().zip(prompt).skip(1) {
        let entries = score.as_object().unwrap();
        assert!((2..=3).contains(&entries.len()), "{score}");
        let (first, entry) = entries.iter().next().unwrap();
        assert_eq!(*first, id.to_string());
        assert_eq!(shape(entry), "logprob rank decoded_token");
    }
}

#[tokio::test]
async fn an_answer_ends_with_the_first_end_token_of_either_kind() {
    let hello = |end| {
        let app = TestApp::new();
        let script: Vec<_> = app.ids("hello").into_iter().chain([end, 5]).collect();
        app.script(script)
    };
    let eos = choice(&hello(IM_END), json!({ "return_token_ids": true })).await;
    assert_eq!(ending(&eos), ("hello", "stop", &Value::Null));
    assert_eq!(eos["token_ids"].as_array().unwrap().last(), Some(&json!(IM_END)));
    // As in vLLM, another end token of the model is named.
    let other = choice(&hello(ENDOFTEXT), json!({})).await;
    assert_eq!(ending(&other), ("hello", "stop", &json!(ENDOFTEXT)));
    let ignored =
        choice(&hello(IM_END), json!({ "ignore_eos": true, "max_tokens": 3, "return_token_ids": true })).await;
    assert_eq!(ignored["finish_reason"], "length");
    assert_eq!(ignored["token_ids"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn a_stop_string_ends_the_text_before_it_and_the_ids_with_the_token_that_completed_it() {
    let app = TestApp::new();
    let ids = app.ids("hello world you");
    let app = app.says("hello world you");
    let stopped = choice(&app, json!({ "stop": ["xyz", "rld"], "return_token_ids": true })).await;
    assert_eq!(ending(&stopped), ("hello wo", "stop", &json!("rld")));
    let world = app.ids("hello world").len();
    assert_eq!(stopped["token_ids"], json!(ids[..world]));
    let included = choice(&app, json!({ "stop": "rld", "include_stop_str_in_output": true })).await;
    assert_eq!(ending(&included), ("hello world", "stop", &json!("rld")));
}

#[tokio::test]
async fn a_stop_string_that_spans_tokens_is_found_and_one_that_never_comes_is_given_out() {
    let app = TestApp::new().says("hello world");
    let spanning = choice(&app, json!({ "stop": "lo w" })).await;
    assert_eq!(ending(&spanning), ("hel", "stop", &json!("lo w")));
    let held = choice(&app, json!({ "stop": "world!" })).await;
    assert_eq!(ending(&held), ("hello world", "stop", &Value::Null));
}

#[tokio::test]
async fn a_stop_token_ends_the_answer_and_is_part_of_the_ids_only() {
    let app = TestApp::new();
    let (hello, world) = (app.ids("hello")[0], app.ids(" world")[0]);
    let app = app.says("hello world you");
    let more = json!({ "stop_token_ids": [world], "return_token_ids": true });
    let stopped = choice(&app, more).await;
    assert_eq!(ending(&stopped), ("hello", "stop", &json!(world)));
    assert_eq!(stopped["token_ids"], json!([hello, world]));
    let kept = choice(&app, json!({ "stop_token_ids": [world], "include_stop_str_in_output": true })).await;
    assert_eq!(ending(&kept), ("hello world", "stop", &json!(world)));
}

#[tokio::test]
async fn special_tokens_are_left_out_of_the_text_unless_asked_for() {
    let app = TestApp::new();
    let script = [app.ids("hello"), vec![1], app.ids("<think>"), vec![IM_END]].concat();
    let app = app.script(script);
    assert_eq!(choice(&app, json!({})).await["message"]["content"], "hello<think>");
    let kept = choice(&app, json!({ "skip_special_tokens": false })).await;
    assert_eq!(kept["message"]["content"], "hello<|im_start|><think>");
}

#[tokio::test]
async fn the_id_comes_from_the_header_then_the_body_and_else_is_fresh() {
    let app = TestApp::new().says("hello");
    let mut request = posted(PATH, asking(&json!({ "request_id": "body" })).to_string());
    request.headers_mut().insert("x-request-id", "header".parse().unwrap());
    assert_eq!(app.request(request).await.ok()["id"], "chatcmpl-header");
    assert_eq!(app.post(PATH, asking(&json!({ "request_id": "body" }))).await.ok()["id"], "chatcmpl-body");
    let [first, second] = [app.post(PATH, asking(&json!({}))).await, app.post(PATH, asking(&json!({}))).await];
    assert_ne!(first.ok()["id"], second.ok()["id"]);
}

#[tokio::test]
async fn every_served_name_is_accepted_and_the_first_one_answers() {
    let app = TestApp::new().names(&["first", "second"]).says("hello");
    for name in [json!("first"), json!("second"), json!(""), Value::Null] {
        let answer = app.post(PATH, asking(&json!({ "model": name }))).await.ok();
        assert_eq!(answer["model"], "first", "{name}");
    }
    let unknown = app.post(PATH, asking(&json!({ "model": "third" }))).await;
    assert_eq!((unknown.status, &unknown.error()["type"]), (404, &json!("NotFoundError")));
    assert_eq!(unknown.error()["message"], "The model `third` does not exist. Valid aliases: first, second.");
}

#[tokio::test]
async fn unknown_fields_are_ignored() {
    let app = TestApp::new().says("hello");
    let more = json!({ "user": "u", "metadata": { "a": 1 }, "no_such_field": [[]],
                       "parallel_tool_calls": false, "store": true, "service_tier": "auto" });
    assert_eq!(choice(&app, more).await["message"]["content"], "hello");
}

#[tokio::test]
async fn an_answer_sent_back_as_it_is_continues_from_its_own_ids() {
    let app = TestApp::new();
    let turn = [app.ids("hel"), app.ids("lo"), vec![IM_END]].concat();
    let app = app.script(turn).says("you");
    let first = app.post(PATH, asking(&json!({ "return_token_ids": true }))).await.ok();
    let known = [&first["prompt_token_ids"], &first["choices"][0]["token_ids"]];
    let known: Vec<Value> = known.iter().flat_map(|ids| ids.as_array().unwrap().clone()).collect();
    let messages = json!([
        { "role": "user", "content": "hello" },
        first["choices"][0]["message"],
        { "role": "user", "content": "you" },
    ]);
    let second = app.post(PATH, json!({ "messages": messages, "return_token_ids": true })).await.ok();
    let prompt = second["prompt_token_ids"].as_array().unwrap();
    assert_eq!(prompt[..known.len()], known);
    let tail = app.ids("\n<|im_start|>user\nyou<|im_end|>\n<|im_start|>assistant\n");
    assert_eq!(json!(prompt[known.len()..]), json!(tail));
}
