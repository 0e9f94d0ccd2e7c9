//! `POST /v1/completions`: prompts in four spellings, echo, log-probs, several answers.

use expect_test::expect;
use serde_json::{Value, json};
use tito::TokenId;

use crate::it::app::{IM_END, MODEL, TestApp, redacted};

const PATH: &str = "/v1/completions";

async fn complete(app: &TestApp, body: Value) -> Value {
    app.post(PATH, body).await.ok()
}

async fn choice(app: &TestApp, body: Value) -> Value {
    complete(app, body).await["choices"][0].take()
}

fn ids_of(value: &Value) -> Vec<TokenId> {
    serde_json::from_value(value.clone()).unwrap()
}

#[tokio::test]
async fn a_plain_answer_has_every_key_of_vllm_in_its_order() {
    let app = TestApp::new().says(" world");
    let answer = complete(&app, json!({ "model": MODEL, "prompt": "hello", "request_id": "1" })).await;
    expect![[r#"
        {
          "id": "cmpl-1",
          "object": "text_completion",
          "created": 0,
          "model": "tiny",
          "choices": [
            {
              "index": 0,
              "text": " world",
              "logprobs": null,
              "finish_reason": "stop",
              "stop_reason": null,
              "token_ids": null,
              "prompt_logprobs": null,
              "prompt_token_ids": null,
              "routed_experts": null,
              "weight_versions": null
            }
          ],
          "service_tier": null,
          "system_fingerprint": "tito-0.1.0",
          "usage": {
            "prompt_tokens": 1,
            "total_tokens": 3,
            "completion_tokens": 2,
            "prompt_tokens_details": null,
            "completion_tokens_details": null
          },
          "kv_transfer_params": null,
          "ec_transfer_params": null,
          "metrics": null
        }"#]]
    .assert_eq(&format!("{:#}", redacted(answer)));
}

#[tokio::test]
async fn sixteen_tokens_are_the_default_and_null_is_the_default_too() {
    let app = TestApp::new();
    for body in [json!({ "prompt": "hello" }), json!({ "prompt": "hello", "max_tokens": null })] {
        let mut body = body;
        body["ignore_eos"] = json!(true);
        assert_eq!(complete(&app, body).await["usage"]["completion_tokens"], 16);
    }
}

#[tokio::test]
async fn ids_are_taken_verbatim_even_where_the_text_would_encode_otherwise() {
    let app = TestApp::new();
    let ids = [app.ids("hel"), app.ids("lo"), vec![IM_END, 1]].concat();
    let app = app.says("you");
    let answer = choice(&app, json!({ "prompt": ids, "return_token_ids": true })).await;
    assert_eq!(ids_of(&answer["prompt_token_ids"]), ids);
    assert_eq!(ids_of(&answer["token_ids"]).last(), Some(&IM_END));
    assert_eq!(answer["text"], "you");
}

#[tokio::test]
async fn the_choices_of_the_first_prompt_come_first() {
    let app = TestApp::new();
    let more = json!({ "n": 2, "seed": 3, "max_tokens": 6, "ignore_eos": true, "return_token_ids": true });
    let with = |prompt: Value| {
        let mut body = more.clone();
        body["prompt"] = prompt;
        body
    };
    let [first, second] = [app.ids("hello world"), app.ids("you")];
    let lists = complete(&app, with(json!([first, second]))).await;
    let texts = complete(&app, with(json!(["hello world", "you"]))).await;
    assert_eq!(redacted(lists["choices"].clone()), redacted(texts["choices"].clone()));
    assert_eq!(lists["usage"]["prompt_tokens"], first.len() + second.len());
    let choices = lists["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 4);
    for (index, choice) in choices.iter().enumerate() {
        assert_eq!(choice["index"], index);
        assert_eq!(ids_of(&choice["prompt_token_ids"]), if index < 2 { first.clone() } else { second.clone() });
    }
    let alone = complete(&app, with(json!("you"))).await;
    for (together, alone) in choices[2..].iter().zip(alone["choices"].as_array().unwrap()) {
        assert_eq!(together["token_ids"], alone["token_ids"]);
    }
}

#[tokio::test]
async fn echo_repeats_the_prompt_as_it_was_sent() {
    let app = TestApp::new().says(" world");
    let ids = app.ids("hello");
    let whole = choice(&app, json!({ "prompt": [1, ids[0]], "echo": true })).await;
    assert_eq!(whole["text"], "<|im_start|>hello world", "special tokens of a prompt in ids are part of it");
    for prompt in [json!("hello"), json!(["hello"]), json!(ids), json!([ids])] {
        let answer = choice(&app, json!({ "prompt": prompt, "echo": true })).await;
        assert_eq!(answer["text"], "hello world", "{prompt}");
        assert_eq!(answer["logprobs"], Value::Null);
    }
}

#[tokio::test]
async fn echo_with_log_probs_covers_prompt_and_output_and_the_first_token_has_none() {
    let app = TestApp::new();
    let prompt = app.ids("hello world you");
    let app = app.says(" the");
    let body = json!({ "prompt": "hello world you", "echo": true, "logprobs": 2, "return_token_ids": true });
    let answer = choice(&app, body).await;
    let logprobs = &answer["logprobs"];
    let tokens: Vec<String> = serde_json::from_value(logprobs["tokens"].clone()).unwrap();
    assert_eq!(tokens.len(), prompt.len() + ids_of(&answer["token_ids"]).len());
    assert_eq!(tokens.concat(), "hello world you the<|im_end|>");
    let mut offset = 0;
    for (index, token) in tokens.iter().enumerate() {
        assert_eq!(logprobs["text_offset"][index], offset);
        offset += token.chars().count();
        let (own, best) = (&logprobs["token_logprobs"][index], &logprobs["top_logprobs"][index]);
        if index == 0 {
            assert_eq!((own, best), (&Value::Null, &Value::Null));
        } else {
            assert!((2..=3).contains(&best.as_object().unwrap().len()), "{best}");
            assert_eq!(own, &best[token]);
        }
    }
    assert_eq!(answer["text"], " the", "the ids say the prompt already");
    let scores = answer["prompt_logprobs"].as_array().unwrap();
    assert_eq!(scores.len(), prompt.len());
    for (index, id) in prompt.iter().enumerate().skip(1) {
        assert_eq!(scores[index][id.to_string()]["logprob"], logprobs["token_logprobs"][index]);
    }
}

#[tokio::test]
async fn a_prompt_can_be_scored_without_a_continuation() {
    let app = TestApp::new();
    let prompt = app.ids("hello world you");
    let body = json!({ "prompt": prompt, "echo": true, "logprobs": 0, "max_tokens": 0, "return_token_ids": true });
    let scored = complete(&app, body).await;
    let choice = &scored["choices"][0];
    assert_eq!(choice["text"], "", "the ids say it");
    assert_eq!(choice["logprobs"]["token_logprobs"].as_array().unwrap().len(), prompt.len());
    // The token that the engine has to sample is reported, as in vLLM, but neither as text nor among the log-probs.
    assert_eq!(ids_of(&choice["token_ids"]).len(), 1);
    assert_eq!(scored["usage"]["completion_tokens"], 1);
    let text = json!({ "prompt": prompt, "echo": true, "max_tokens": 0 });
    assert_eq!(complete(&app, text).await["choices"][0]["text"], "hello world you");
    let same = json!({ "prompt": prompt, "prompt_logprobs": 0, "max_tokens": 1 });
    let same = complete(&app, same).await["choices"][0]["prompt_logprobs"].take();
    for (index, id) in prompt.iter().enumerate().skip(1) {
        assert_eq!(choice["logprobs"]["token_logprobs"][index], same[index][id.to_string()]["logprob"]);
    }
}

#[tokio::test]
async fn no_tokens_without_echo_is_refused() {
    let app = TestApp::new();
    for body in
        [json!({ "prompt": "hello", "max_tokens": 0 }), json!({ "prompt": "hello", "max_tokens": 0, "echo": false })]
    {
        let refused = app.post(PATH, body).await;
        assert_eq!((refused.status, &refused.error()["type"]), (400, &json!("BadRequestError")), "{}", refused.text);
    }
}

#[tokio::test]
async fn log_probs_show_the_sampled_token_and_k_others_at_most() {
    let app = TestApp::new();
    for k in [0, 1, 5] {
        let body = json!({ "prompt": "hello", "logprobs": k, "max_tokens": 30, "ignore_eos": true, "seed": 2,
                           "return_tokens_as_token_ids": true, "temperature": 2 });
        let answer = choice(&app, body).await;
        let (tokens, best) = (&answer["logprobs"]["tokens"], &answer["logprobs"]["top_logprobs"]);
        let mut widths = Vec::new();
        for (index, token) in tokens.as_array().unwrap().iter().enumerate() {
            let shown = best[index].as_object().unwrap();
            assert_eq!(shown.keys().next().map(String::as_str), token.as_str());
            assert_eq!(shown[token.as_str().unwrap()], answer["logprobs"]["token_logprobs"][index]);
            widths.push(shown.len());
        }
        let (least, most) = (widths.iter().min().unwrap(), widths.iter().max().unwrap());
        assert!(*least >= k.max(1) && *most <= k + 1, "{k}: {widths:?}");
    }
}

#[tokio::test]
async fn text_offsets_count_characters_of_names() {
    let app = TestApp::new().says("hello world");
    let named = json!({ "prompt": "you", "logprobs": 0, "return_tokens_as_token_ids": true });
    let named = choice(&app, named).await["logprobs"].take();
    let lengths: Vec<_> = named["tokens"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().len()).collect();
    assert_eq!(named["text_offset"], json!([0, lengths[0], lengths[0] + lengths[1]]));
}

#[tokio::test]
async fn prompt_log_probs_are_each_choices_own() {
    let app = TestApp::new().says("you");
    let body = json!({ "prompt": ["hello world", "the weather"], "prompt_logprobs": 1, "return_token_ids": true });
    for choice in complete(&app, body).await["choices"].as_array().unwrap() {
        let ids = ids_of(&choice["prompt_token_ids"]);
        let scores = choice["prompt_logprobs"].as_array().unwrap();
        assert_eq!((scores.len(), &scores[0]), (ids.len(), &Value::Null));
        for (score, id) in scores.iter().zip(&ids).skip(1) {
            assert_eq!(score.as_object().unwrap().keys().next(), Some(&id.to_string()));
        }
    }
}

#[tokio::test]
async fn prompts_that_are_none_are_refused() {
    let app = TestApp::new();
    let cases = [
        (json!({}), json!("prompt")),
        (json!({ "prompt": null }), json!("prompt")),
        (json!({ "prompt": "" }), json!("prompt")),
        (json!({ "prompt": ["hello", ""] }), Value::Null),
        (json!({ "prompt": [[1], []] }), Value::Null),
        (json!({ "prompt": [326] }), Value::Null),
        (json!({ "prompt": [[5, 4_294_967_295_u32]] }), Value::Null),
        (json!({ "prompt": vec!["hello"; 1025] }), json!("prompt")),
        (json!({ "prompt": "hello", "suffix": "!" }), json!("suffix")),
    ];
    for (body, param) in cases {
        let refused = app.post(PATH, body.clone()).await;
        assert_eq!(refused.status, 400, "{body}");
        assert_eq!(refused.error()["param"], param, "{body}");
    }
    let empty = app.post(PATH, json!({ "prompt": [] })).await;
    assert_eq!(empty.error()["message"], "You must pass at least one prompt");
    for malformed in
        [json!([1, "a"]), json!([-1]), json!([1.5]), json!({ "a": 1 }), json!(5), json!([[["a"]]]), json!([null])]
    {
        let refused = app.post(PATH, json!({ "prompt": malformed })).await;
        assert_eq!((refused.status, &refused.error()["type"]), (400, &json!("Bad Request")), "{malformed}");
    }
}

#[tokio::test]
async fn a_prompt_that_fills_the_context_is_an_overflow() {
    let app = TestApp::new().max_model_len(8);
    assert_eq!(
        app.post(PATH, json!({ "prompt": vec![5; 7], "ignore_eos": true })).await.ok()["usage"]["total_tokens"],
        8
    );
    for (length, words) in [
        (8, "max_tokens must be at least 1, got 0."),
        (9, "maximum context length is 8 tokens. However, your prompt contains at least 9 input tokens,"),
        (10, "maximum context length is 8 tokens. However, your prompt contains 10 input tokens,"),
    ] {
        let refused = app.post(PATH, json!({ "prompt": vec![5; length] })).await;
        assert_eq!(refused.status, 400);
        assert!(refused.error()["message"].as_str().unwrap().contains(words), "{}", refused.text);
    }
}

#[tokio::test]
async fn prompts_are_cut_at_their_start_or_where_the_request_says() {
    let app = TestApp::new().says(" you");
    let ids = app.ids("hello world you");
    let cut = |prompt: Value, side: Value| {
        let body =
            json!({ "prompt": prompt, "truncate_prompt_tokens": 2, "truncation_side": side, "return_token_ids": true });
        choice(&app, body)
    };
    for prompt in [json!("hello world you"), json!(ids)] {
        assert_eq!(cut(prompt.clone(), json!(null)).await["prompt_token_ids"], json!(ids[ids.len() - 2..]));
        assert_eq!(cut(prompt.clone(), json!("left")).await["prompt_token_ids"], json!(ids[ids.len() - 2..]));
        assert_eq!(cut(prompt, json!("right")).await["prompt_token_ids"], json!(ids[..2]));
    }
    let none = app.post(PATH, json!({ "prompt": "hello", "truncate_prompt_tokens": 0 })).await;
    assert_eq!(none.status, 400, "{}", none.text);
}

#[tokio::test]
async fn what_only_other_models_and_servers_have_is_refused_in_vllms_words() {
    let app = TestApp::new();
    let cases = [
        (
            json!({ "prompt_token_ids": [5] }),
            "prompt_token_ids",
            "`prompt_token_ids` is not served on text completions: send the ids as `prompt`",
        ),
        (
            json!({ "input_ids": [5] }),
            "input_ids",
            "`input_ids` is not served on text completions: send the ids as `prompt`",
        ),
        (
            json!({ "required_prefix_token_ids": [] }),
            "required_prefix_token_ids",
            "`required_prefix_token_ids` is not served on text completions: send the ids as `prompt`",
        ),
        (json!({ "suffix": "!" }), "suffix", "suffix is only supported for models with FIM completion rendering"),
        (json!({ "suffix": "", "echo": true }), "suffix", "Echo is unsupported with suffix."),
        (
            json!({ "suffix": "!", "prompt": [5] }),
            "suffix",
            "suffix requires text prompt input for FIM completion rendering",
        ),
        (
            json!({ "suffix": "!", "truncate_prompt_tokens": 1 }),
            "suffix",
            "suffix is not supported with truncate_prompt_tokens",
        ),
        (
            json!({ "prompt_embeds": "AAAA" }),
            "prompt_embeds",
            "You must set `--enable-prompt-embeds` to input `prompt_embeds`. (parameter=prompt_embeds)",
        ),
    ];
    for (more, param, message) in cases {
        let mut body = json!({ "prompt": "hello" });
        body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        let refused = app.post(PATH, body).await;
        assert_eq!(refused.status, 400, "{more}");
        assert_eq!((&refused.error()["param"], &refused.error()["message"]), (&json!(param), &json!(message)));
    }
}

#[tokio::test]
async fn a_loop_ends_a_completion_too_and_chunks_may_be_wide() {
    let app = TestApp::new().script([7; 9]);
    let body = json!({ "prompt": "hello", "repetition_detection": { "max_pattern_size": 1, "min_count": 4 },
                       "stream_interval": 2, "stream": true, "return_token_ids": true });
    let events = app.post(PATH, body).await.events();
    let widths: Vec<_> =
        events.iter().map(|event| event["choices"][0]["token_ids"].as_array().unwrap().len()).collect();
    assert_eq!(widths, [1, 2, 1]);
    let last = &events.last().unwrap()["choices"][0];
    assert_eq!((&last["finish_reason"], &last["stop_reason"]), (&json!("repetition"), &json!("repetition_detected")));
}

/// The body of `_forward_to_engine` of SkyRL 0.4 (`skyrl/tinker/extra/external_inference.py`), and the fields that it reads.
#[tokio::test]
async fn the_requests_of_skyrls_tinker_server_are_answered_as_it_reads_them() {
    let app = TestApp::new();
    let body = json!({
        "model": MODEL, "prompt": [3, 4, 5], "n": 2, "seed": 7, "max_tokens": 6, "temperature": 0.7, "top_p": 0.9,
        "top_k": -1, "logprobs": true, "stream": false, "return_token_ids": true, "prompt_logprobs": 0,
    });
    let answer = complete(&app, body.clone()).await;
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 2);
    for choice in choices {
        let ids = ids_of(&choice["token_ids"]);
        let log_probs = choice["logprobs"]["token_logprobs"].as_array().unwrap();
        assert!(!ids.is_empty() && ids.len() == log_probs.len() && log_probs.iter().all(Value::is_f64), "{choice}");
        assert!(["stop", "length"].contains(&choice["finish_reason"].as_str().unwrap()), "{choice}");
        assert_eq!(choice["prompt_logprobs"].as_array().unwrap().len(), 3);
    }
    // As pydantic reads it: `true` is 1, and `false` is 0.
    let shown = async |logprobs: Value| {
        let mut body = body.clone();
        body["logprobs"] = logprobs;
        complete(&app, body).await["choices"].take()
    };
    assert_eq!(shown(json!(true)).await, shown(json!(1)).await);
    assert_eq!(shown(json!(false)).await, shown(json!(0)).await);
    // What the sampler leaves to the server is `null`.
    let mut open = body;
    for field in ["seed", "max_tokens"] {
        open[field] = Value::Null;
    }
    assert_eq!(complete(&app, open).await["choices"].as_array().unwrap().len(), 2);
}
