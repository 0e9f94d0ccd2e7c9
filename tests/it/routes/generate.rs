//! `POST /inference/v1/generate`: ids in, ids out, with the engine's own parameters.

use base64::{Engine, prelude::BASE64_STANDARD};
use expect_test::expect;
use serde_json::{Value, json};
use tito::TokenId;

use crate::it::app::{ENDOFTEXT, IM_END, MODEL, TestApp, VOCAB_SIZE, redacted, shape};

const PATH: &str = "/inference/v1/generate";

fn body(ids: &[TokenId], params: &Value) -> Value {
    json!({ "model": MODEL, "token_ids": ids, "sampling_params": params, "request_id": "r1" })
}

async fn generate(app: &TestApp, params: Value) -> Value {
    app.post(PATH, body(&app.ids("hello world"), &params)).await.ok()
}

#[tokio::test]
async fn an_answer_has_every_key_of_vllm_in_its_order() {
    let app = TestApp::new().says("you");
    let answer = generate(&app, json!({ "temperature": 0, "logprobs": 0 })).await;
    expect![[r#"
        {
          "request_id": "generate-tokens-r1",
          "model": "tiny",
          "created": 0,
          "usage": {
            "prompt_tokens": 2,
            "total_tokens": 4,
            "completion_tokens": 2,
            "prompt_tokens_details": null,
            "completion_tokens_details": null
          },
          "prompt_logprobs": null,
          "prompt_token_id_logprobs": null,
          "prompt_token_ids": null,
          "mm_placeholders": null,
          "metrics": null,
          "kv_transfer_params": null,
          "ec_transfer_params": null,
          "output_mode": "tokens",
          "choices": [
            {
              "index": 0,
              "finish_reason": "stop",
              "stop_reason": null,
              "token_ids": [
                282,
                2
              ],
              "routed_experts": null,
              "sampling_mask": null,
              "weight_versions": [
                {
                  "version": "default",
                  "start": 0,
                  "end": 2
                }
              ],
              "logprobs": {
                "content": [
                  {
                    "token": "token_id:282",
                    "token_id": 282,
                    "logprob": -2.220446e-15,
                    "rank": 1,
                    "top_logprobs": [
                      {
                        "token": "token_id:282",
                        "token_id": 282,
                        "logprob": -2.220446e-15,
                        "rank": 1
                      }
                    ]
                  },
                  {
                    "token": "token_id:2",
                    "token_id": 2,
                    "logprob": -1.7763568e-15,
                    "rank": 1,
                    "top_logprobs": [
                      {
                        "token": "token_id:2",
                        "token_id": 2,
                        "logprob": -1.7763568e-15,
                        "rank": 1
                      }
                    ]
                  }
                ]
              }
            }
          ]
        }"#]]
    .assert_eq(&format!("{:#}", redacted(answer)));
}

#[tokio::test]
async fn text_comes_on_demand_with_log_probs_by_text() {
    let app = TestApp::new().says("you");
    let mut request = body(&app.ids("hello"), &json!({ "temperature": 0, "logprobs": 2 }));
    request["output_mode"] = json!("text");
    request["return_token_ids"] = json!(true);
    let answer = app.post(PATH, request).await.ok();
    let choice = &answer["choices"][0];
    assert_eq!((&answer["output_mode"], &choice["text"]), (&json!("text"), &json!("you")));
    assert_eq!(answer["prompt_token_ids"], json!(app.ids("hello")));
    assert_eq!(
        shape(choice),
        "index finish_reason stop_reason token_ids routed_experts sampling_mask weight_versions[version start end] \
         text logprobs{content[token logprob bytes top_logprobs[token logprob bytes]]}"
    );
    let first = &choice["logprobs"]["content"][0];
    assert_eq!((&first["token"], &first["bytes"]), (&json!("you"), &json!(b"you")));
    assert_eq!(first["top_logprobs"].as_array().unwrap().len(), 2);
    assert_eq!(first["top_logprobs"][0]["token"], "you");
}

#[tokio::test]
async fn a_stream_adds_up_to_the_answer() {
    let app = TestApp::new();
    let params = json!({ "seed": 7, "max_tokens": 9, "logprobs": 2, "n": 2, "ignore_eos": true });
    let ids = app.ids("hello world");
    let mut request = body(&ids, &params);
    request["output_mode"] = json!("text");
    request["return_token_ids"] = json!(true);
    let whole = app.post(PATH, request.clone()).await.ok();
    request["stream"] = json!(true);
    request["stream_options"] = json!({ "include_usage": true, "continuous_usage_stats": true });
    let mut events = app.post(PATH, request).await.events();
    let last = events.pop().unwrap();
    assert_eq!(shape(&last), "request_id usage{prompt_tokens total_tokens completion_tokens} output_mode choices");
    assert_eq!((&last["choices"], &last["usage"]["completion_tokens"]), (&json!([]), &json!(18)));
    assert_eq!(events[0]["prompt_token_ids"], json!(ids));
    assert!(events[1..].iter().all(|event| event.get("prompt_token_ids").is_none()));
    assert!(events.iter().all(|event| event["usage"]["prompt_tokens_details"] == Value::Null));
    for choice in whole["choices"].as_array().unwrap() {
        let pieces = events.iter().map(|event| &event["choices"][0]).filter(|piece| piece["index"] == choice["index"]);
        let (mut token_ids, mut text, mut content) = (Vec::new(), String::new(), Vec::new());
        let mut end = Value::Null;
        for piece in pieces {
            assert_eq!(end, Value::Null, "nothing follows the end");
            token_ids.extend(piece["token_ids"].as_array().unwrap().iter().cloned());
            text.push_str(piece["text"].as_str().unwrap());
            content.extend(piece["logprobs"]["content"].as_array().unwrap().iter().cloned());
            if piece["finish_reason"] != Value::Null {
                end = piece.clone();
            }
        }
        assert_eq!((&json!(token_ids), &json!(text)), (&choice["token_ids"], &choice["text"]));
        assert_eq!(json!(content), choice["logprobs"]["content"]);
        for field in ["finish_reason", "stop_reason", "weight_versions"] {
            assert_eq!(end[field], choice[field], "{field}");
        }
    }
}

#[tokio::test]
async fn the_models_defaults_do_not_apply_but_that_of_the_length() {
    let greedy = TestApp::new().policy(|policy| {
        policy.defaults.temperature = Some(0.0);
        policy.defaults.max_new_tokens = Some(3);
    });
    let one = generate(&greedy, json!({ "ignore_eos": true, "seed": 1 })).await;
    assert_eq!(one["usage"]["completion_tokens"], 3);
    let more = generate(&greedy, json!({ "ignore_eos": true, "seed": 1, "max_tokens": 30 })).await;
    let drawn = generate(&TestApp::new(), json!({ "ignore_eos": true, "seed": 1, "max_tokens": 30 })).await;
    assert_eq!(more["choices"][0]["token_ids"], drawn["choices"][0]["token_ids"]);
    let all = TestApp::new().max_model_len(20);
    for params in [json!({ "ignore_eos": true }), json!({ "ignore_eos": true, "max_tokens": null })] {
        let answer = generate(&all, params).await;
        assert_eq!(
            (&answer["usage"]["total_tokens"], &answer["choices"][0]["finish_reason"]),
            (&json!(20), &json!("length"))
        );
    }
}

#[tokio::test]
async fn ends_are_told_as_in_chat() {
    let app = TestApp::new();
    let ids = app.ids("hello world you");
    let app = app.script(ids.iter().copied().chain([ENDOFTEXT]));
    let ended = generate(&app, json!({ "temperature": 0 })).await;
    assert_eq!(ended["choices"][0]["stop_reason"], ENDOFTEXT);
    let stopped = generate(&app, json!({ "temperature": 0, "stop": "world" })).await;
    assert_eq!(stopped["choices"][0]["stop_reason"], "world");
    assert_eq!(stopped["choices"][0]["token_ids"], json!(ids[..2]));
    let many = json!({ "temperature": 0, "stop": ["a1", "b1", "c1", "d1", "world"] });
    assert_eq!(generate(&app, many).await["choices"][0]["stop_reason"], "world");
    let by_id = generate(&app, json!({ "temperature": 0, "stop_token_ids": [ids[0]] })).await;
    assert_eq!(by_id["choices"][0]["stop_reason"], ids[0]);
}

#[tokio::test]
async fn chosen_tokens_have_log_probs_even_if_only_they_are_asked_for() {
    let app = TestApp::new().says("you");
    for params in [json!({ "logprob_token_ids": [3, 4] }), json!({ "logprob_token_ids": [3, 4], "logprobs": 2 })] {
        let answer = generate(&app, params.clone()).await;
        let top = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"].as_array().unwrap().clone();
        let ids: Vec<_> = top.iter().map(|entry| entry["token_id"].clone()).collect();
        assert_eq!(json!(ids), json!([282, 3, 4]), "{params}");
    }
    let odd = app.post(PATH, body(&[1], &json!({ "logprob_token_ids": [3, 4], "logprobs": 5 }))).await;
    assert_eq!((odd.status, odd.error()["param"].clone()), (400, json!("logprob_token_ids")));
    let one = generate(&app, json!({ "logprob_token_ids": [3], "logprobs": 1 })).await;
    let top = &one["choices"][0]["logprobs"]["content"][0]["top_logprobs"];
    assert_eq!((&top[0]["token_id"], &top[1]["token_id"]), (&json!(282), &json!(3)));
}

#[tokio::test]
async fn a_prompt_is_scored_on_demand() {
    let app = TestApp::new();
    let ids = app.ids("hello world you");
    let answer = app.post(PATH, body(&ids, &json!({ "prompt_logprobs": 1, "max_tokens": 1 }))).await.ok();
    let scores = answer["prompt_logprobs"].as_array().unwrap();
    assert_eq!((scores.len(), &scores[0]), (ids.len(), &Value::Null));
    assert!(scores[1][ids[1].to_string()]["rank"].is_u64());
    let mut streamed = body(&ids, &json!({ "prompt_logprobs": 1 }));
    streamed["stream"] = json!(true);
    assert_eq!(app.post(PATH, streamed).await.status, 400);
}

/// The numbers of an `.npy` file in base64, and the shape that its header states.
fn matrix(encoded: &Value) -> (String, Vec<f32>) {
    let file = BASE64_STANDARD.decode(encoded.as_str().unwrap()).unwrap();
    let start = 10 + usize::from(u16::from_le_bytes([file[8], file[9]]));
    let header = String::from_utf8(file[10..start].to_vec()).unwrap();
    let shape = header.split_once("'shape': ").unwrap().1.split_once(", }").unwrap().0.to_owned();
    let numbers = file[start..].as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    (shape, numbers)
}

#[tokio::test]
async fn candidates_are_scored_at_positions_of_the_prompt() {
    let app = TestApp::new().says("you");
    let ids = app.ids("hello world, hello you");
    let (hello, positions) = (ids[0], ids.len() - 1);
    let asked = async |params: Value| app.post(PATH, body(&ids, &params)).await.ok();
    let scored = asked(json!({ "max_tokens": 1, "prompt_logprobs": 0 })).await;
    let logprob = |position: usize| {
        let of_token = &scored["prompt_logprobs"][position + 1];
        of_token.as_object().unwrap().values().next().unwrap()["logprob"].to_string().parse::<f32>()
    };
    let rows: Vec<Value> = ids[1..].iter().map(|id| json!([id])).collect();
    let answer = asked(json!({ "max_tokens": 1, "prompt_logprob_token_ids": rows })).await;
    let (shape, numbers) = matrix(&answer["prompt_token_id_logprobs"]);
    assert_eq!(shape, format!("({positions}, 1)"));
    assert!(numbers.iter().enumerate().all(|(position, number)| Ok(*number) == logprob(position)));
    assert_eq!(answer["prompt_logprobs"], Value::Null);

    let rows = json!([[hello, ids[positions]], [-1]]);
    let from = positions - 2;
    let params = json!({ "max_tokens": 1, "prompt_logprob_token_ids": rows, "prompt_logprob_start": from });
    let (shape, numbers) = matrix(&asked(params).await["prompt_token_id_logprobs"]);
    assert_eq!(shape, "(2, 2)");
    assert!(numbers[0].is_finite() && numbers[1].is_finite());
    assert_eq!(numbers[2..], [f32::NEG_INFINITY; 2]);

    let params = json!({ "max_tokens": 1, "prompt_logprob_token_ids": [hello, 0], "prompt_logprob_start": 1 });
    let (shape, numbers) = matrix(&asked(params).await["prompt_token_id_logprobs"]);
    assert_eq!((shape, numbers.len()), (format!("({}, 2)", positions - 1), 2 * (positions - 1)));
}

#[tokio::test]
async fn candidates_that_cannot_be_scored_are_refused_by_name() {
    let app = TestApp::new().says("you");
    let ids = app.ids("hello world");
    assert_eq!(ids.len(), 2);
    let refusals = [
        (json!([]), json!(0), "ids must not be empty"),
        (json!([[]]), json!(0), "ids must not be empty"),
        (json!("a"), json!(0), "ids must be a list of integers, or a list of such lists"),
        (json!([[1.5]]), json!(0), "ids must be a list of integers, or a list of such lists"),
        (json!([-1]), json!(0), "token_id(s) [-1]"),
        (json!([[VOCAB_SIZE]]), json!(0), "out-of-vocab token ids"),
        (
            json!([[1], [2]]),
            json!(0),
            "has 2 rows, but the prompt has 1 scored rows (prompt_len - 1 - prompt_logprob_start).",
        ),
        (json!([vec![1; 21]]), json!(0), "of length 21, which is greater than max allowed: 20"),
        (json!([1]), json!(1), "start leaves no position of a prompt of 2 tokens to score"),
        (json!([1]), json!(-1), "start must be non-negative"),
        (json!(null), json!(0), "start requires prompt_logprob_token_ids"),
        (json!(null), json!(-5), "start requires prompt_logprob_token_ids"),
    ];
    for (candidates, start, expected) in refusals {
        let params = json!({ "prompt_logprob_token_ids": candidates, "prompt_logprob_start": start });
        let error = app.post(PATH, body(&ids, &params)).await.error();
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(expected), "{message}");
        assert!(error["param"].as_str().unwrap().starts_with("prompt_logprob_"), "{error}");
    }
    let mut streamed = body(&ids, &json!({ "prompt_logprob_token_ids": [1] }));
    streamed["stream"] = json!(true);
    let message = app.post(PATH, streamed).await.error()["message"].to_string();
    assert!(message.contains("not available when `stream=True`"), "{message}");
}

#[tokio::test]
async fn what_is_no_request_is_refused_with_its_reason() {
    let app = TestApp::new().max_model_len(8);
    let params = json!({ "max_tokens": 1 });
    let with = |field: &str, value: Value| {
        let mut body = body(&[1, 2], &params);
        body[field] = value;
        body
    };
    let cases = [
        (
            with("token_ids", json!([])),
            "Bad Request",
            json!("body.token_ids"),
            "at least 1 item after validation, not 0",
        ),
        (with("token_ids", json!([1, -1])), "Bad Request", json!("body.token_ids"), "must not contain negative values"),
        (with("token_ids", json!([VOCAB_SIZE])), "BadRequestError", Value::Null, "Token id 326 is out of vocabulary"),
        (
            with("token_ids", json!(vec![1; 8])),
            "BadRequestError",
            json!("max_tokens"),
            "max_tokens must be at least 1, got 0",
        ),
        (with("features", json!({ "mm_hashes": {} })), "BadRequestError", json!("features"), "sees none"),
        (with("content_parts", json!([{}])), "BadRequestError", json!("content_parts"), "sees none"),
        (
            with("reasoning_parser_kwargs", json!({ "chat_template_kwargs": {}, "tokenizer": null })),
            "Bad Request",
            json!("body.reasoning_parser_kwargs.tokenizer"),
            "tokenizer",
        ),
        (with("output_mode", json!("both")), "Bad Request", json!("body.output_mode"), "both"),
        (with("cache_salt", json!("")), "BadRequestError", json!("cache_salt"), "non-empty string"),
        (with("sampling_params", json!({ "logprobs": 21 })), "BadRequestError", json!("logprobs"), "max allowed: 20"),
        (
            with("sampling_params", json!({ "logprobs": -2 })),
            "BadRequestError",
            json!("logprobs"),
            "non-negative or -1",
        ),
        (with("sampling_params", json!({ "stop": [""] })), "BadRequestError", Value::Null, "empty string"),
        (
            with("sampling_params", json!({ "stop": "a", "detokenize": false })),
            "BadRequestError",
            Value::Null,
            "only supported when detokenize is True",
        ),
        (
            with("sampling_params", json!({ "trace_decode_token_ids": [1] })),
            "BadRequestError",
            json!("trace_decode_token_ids"),
            "not supported",
        ),
    ];
    let of_a_body = [
        ("cache_salt", json!("tenant-a")),
        ("truncate_prompt_tokens", json!(10)),
        ("truncation_side", json!("left")),
        ("stream_interval", json!(2)),
    ];
    let of_a_body = of_a_body.map(|(name, value)| {
        let params = with("sampling_params", json!({ name: value }));
        (params, "BadRequestError", json!(name), "is not supported in `sampling_params`")
    });
    for (body, kind, param, words) in cases.into_iter().chain(of_a_body) {
        let answer = app.post(PATH, body.clone()).await;
        let error = answer.error();
        assert_eq!((answer.status, &error["type"], &error["param"]), (400, &json!(kind), &param), "{body} {error}");
        assert!(error["message"].as_str().unwrap().contains(words), "{body} {error}");
    }
    let unknown = app.post(PATH, with("model", json!("other"))).await;
    assert_eq!((unknown.status, unknown.error()["type"].clone()), (404, json!("NotFoundError")));
    let missing = app.post(PATH, json!({ "token_ids": [1] })).await;
    assert_eq!((missing.status, missing.error()["param"].clone()), (400, json!("body.sampling_params")));
    assert_eq!(app.post(PATH, with("priority", json!(5))).await.status, 200);
    let end = app.post(PATH, with("sampling_params", json!({ "bad_words": [], "stop_token_ids": [IM_END] }))).await;
    assert_eq!(end.status, 200);
}
