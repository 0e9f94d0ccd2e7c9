//! Fields of other endpoints: refused where they would change what is sampled, ignored where they ask for nothing.

use std::collections::{BTreeMap, BTreeSet};

use expect_test::expect_file;
use serde_json::{Value, json};

use crate::it::app::{MODEL, TestApp};

/// Of each endpoint with a conversation, a prompt or ids: the least that it answers.
fn endpoints() -> [(&'static str, Value); 7] {
    let messages = json!([{ "role": "user", "content": "hello" }]);
    [
        ("/v1/chat/completions", json!({ "model": MODEL, "messages": messages })),
        ("/v1/completions", json!({ "model": MODEL, "prompt": "hello" })),
        ("/v1/messages", json!({ "model": MODEL, "messages": messages, "max_tokens": 5 })),
        ("/v1/responses", json!({ "model": MODEL, "input": "hello" })),
        ("/tokenize", json!({ "model": MODEL, "messages": messages })),
        ("/generate", json!({ "text": "hello" })),
        ("/inference/v1/generate", json!({ "token_ids": [1], "sampling_params": {} })),
    ]
}

async fn answer_to(app: &TestApp, path: &str, least: &Value, field: &str, value: &Value) -> (u16, Value) {
    let mut body = least.clone();
    body[field] = value.clone();
    let answer = app.post(path, body).await;
    (answer.status, answer.json())
}

#[tokio::test]
async fn what_would_change_the_answer_is_refused_with_what_to_send() {
    let app = TestApp::new();
    let cases = [
        ("/v1/chat/completions", "max_output_tokens", json!(5), "is not served on chats: send `max_completion_tokens`"),
        ("/v1/completions", "max_output_tokens", json!(5), "is not served on text completions: send `max_tokens`"),
        ("/v1/messages", "reasoning_effort", json!("low"), "is not served on messages: send `output_config.effort`"),
        ("/v1/responses", "reasoning_effort", json!("low"), "is not served on responses: send `reasoning.effort`"),
        ("/tokenize", "truncate_prompt_tokens", json!(5), "is not served on `/tokenize`: nothing is cut off here"),
        (
            "/generate",
            "temperature",
            json!(0),
            "is not served on `/generate`: how to sample is said in `sampling_params`",
        ),
        (
            "/inference/v1/generate",
            "seed",
            json!(0),
            "is not served on `/inference/v1/generate`: how to sample is said in",
        ),
    ];
    for (path, field, value, reason) in cases {
        let (_, least) = endpoints().into_iter().find(|(named, _)| *named == path).unwrap();
        let (status, answer) = answer_to(&app, path, &least, field, &value).await;
        assert_eq!(status, 400, "{path} {field}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(&format!("`{field}` {reason}")), "{path} {field}: {message}");
        let (status, answer) = answer_to(&app, path, &least, field, &Value::Null).await;
        assert_eq!(status, 200, "{path} {field} null: {answer}");
    }
}

/// Fields of which an endpoint with ids would otherwise have a wish that nobody hears, with a value that asks for nothing.
#[tokio::test]
async fn what_an_endpoint_with_ids_calls_otherwise_is_refused() {
    let app = TestApp::new();
    let of_both = [
        ("min_new_tokens", json!(3), json!(0)),
        ("sampling_seed", json!(0), Value::Null),
        ("no_stop_trim", json!(true), json!(false)),
        ("stop_regex", json!("a"), json!("")),
        ("structural_tag", json!("{}"), Value::Null),
        ("guided_json", json!({ "type": "object" }), json!({})),
        ("spaces_between_special_tokens", json!(false), json!(true)),
        ("custom_logit_processor", json!("x"), Value::Null),
        ("session_params", json!({ "id": "a" }), Value::Null),
        ("echo", json!(true), json!(false)),
        ("best_of", json!(2), json!(1)),
        ("logprob_token_ids", json!([1]), json!([])),
        ("prompt_embeds", json!("x"), Value::Null),
        ("watermark", json!({ "key": 1 }), json!(false)),
        ("max_thinking_tokens", json!(0), json!(false)),
        ("require_reasoning", json!(true), json!(false)),
        ("positional_embed_overrides", json!([{}]), Value::Null),
        ("return_entropy", json!(true), json!(false)),
        ("return_flat_raw_top_logprobs", json!(true), json!(false)),
        ("return_flat_raw_output_top_logprobs", json!(true), json!(false)),
        ("return_flat_raw_top_logprobs_b64", json!(true), json!(false)),
        ("return_hidden_states", json!(true), json!(false)),
        ("return_indexer_topk", json!(true), json!(false)),
        ("multi_item_delimiter_indices", json!([1]), Value::Null),
        ("token_indices_to_pool", json!([1]), json!([])),
    ];
    let of_vllm = [
        ("prompt_logprob_token_ids", json!([1]), Value::Null),
        ("return_sampling_mask", json!(true), json!(false)),
        ("return_logprob", json!(true), json!(false)),
        ("top_logprobs", json!(2), json!(0)),
        ("return_routed_experts", json!(true), json!(false)),
        ("rid", json!("a"), Value::Null),
        ("token_ids_logprob", json!([1]), Value::Null),
        ("trace_decode_token_ids", json!([1]), json!([])),
    ];
    for (path, least) in endpoints().into_iter().filter(|(path, _)| path.ends_with("/generate")) {
        let own = if path == "/generate" { &[][..] } else { &of_vllm[..] };
        for (field, wish, nothing) in of_both.iter().chain(own) {
            let (status, answer) = answer_to(&app, path, &least, field, wish).await;
            assert_eq!((status, &answer["error"]["param"]), (400, &json!(field)), "{path} {field}: {answer}");
            let (status, answer) = answer_to(&app, path, &least, field, nothing).await;
            assert_eq!(status, 200, "{path} {field} {nothing}: {answer}");
        }
    }
}

#[tokio::test]
async fn what_sglang_calls_otherwise_is_refused_with_the_name_here() {
    let app = TestApp::new();
    let nothing = "this server has nothing like it";
    let cases = [
        ("min_new_tokens", json!(3), json!([null, 0]), "send `min_tokens`"),
        ("sampling_seed", json!(0), json!([null]), "send `seed`"),
        ("return_indexer_topk", json!(true), json!([null, false]), nothing),
        ("return_entropy", json!(true), json!([null, false]), nothing),
        ("return_flat_raw_top_logprobs_b64", json!(true), json!([null, false]), nothing),
        ("max_thinking_tokens", json!(0), json!([null, false]), "send `thinking_token_budget`"),
        ("logprob_start_len", json!(0), json!([null, -1]), "`prompt_logprobs`"),
        ("logprob_start_len", json!(2), json!([null, -1]), "`prompt_logprobs`"),
    ];
    for (path, least) in endpoints().into_iter().filter(|(path, _)| path.starts_with("/v1/")) {
        for (field, wish, nothings, instead) in &cases {
            let (status, answer) = answer_to(&app, path, &least, field, wish).await;
            assert_eq!(status, 400, "{path} {field}: {answer}");
            // Anthropic's errors have no place for the field but the message.
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(message.contains(&format!("`{field}`")) && message.contains(instead), "{path}: {message}");
            for nothing in nothings.as_array().unwrap() {
                let (status, answer) = answer_to(&app, path, &least, field, nothing).await;
                assert_eq!(status, 200, "{path} {field} {nothing}: {answer}");
            }
        }
    }
}

/// What chats show, and others would leave out without a word.
#[tokio::test]
async fn what_only_chats_show_is_refused_elsewhere() {
    let app = TestApp::new();
    let serve = |path: &str, field: &str| path == "/generate" && field != "return_prompt_text";
    for (path, least) in
        endpoints().into_iter().filter(|(path, _)| !["/v1/chat/completions", "/tokenize"].contains(path))
    {
        for field in ["return_meta_info", "return_prompt_text", "return_prompt_token_ids"] {
            let (status, answer) = answer_to(&app, path, &least, field, &json!(true)).await;
            assert_eq!(status == 200, serve(path, field), "{path} {field}: {answer}");
            assert!(status == 200 || answer["error"]["message"].as_str().unwrap().contains(field), "{path}: {answer}");
            assert_eq!(answer_to(&app, path, &least, field, &json!(false)).await.0, 200, "{path} {field}");
        }
    }
}

#[tokio::test]
async fn errors_about_an_extra_key_name_it() {
    let app = TestApp::new();
    let served = ["/v1/chat/completions", "/v1/completions", "/generate"];
    for (path, least) in endpoints().into_iter().filter(|(path, _)| served.contains(path)) {
        for wrong in [json!(""), json!("a/b"), json!(5)] {
            let (status, answer) = answer_to(&app, path, &least, "extra_key", &wrong).await;
            assert_eq!(status, 400, "{path} {wrong}: {answer}");
            assert!(answer["error"]["message"].as_str().unwrap().contains("extra_key"), "{path} {wrong}: {answer}");
        }
    }
}

#[tokio::test]
async fn functions_of_the_time_before_tools_are_refused_where_there_are_tools() {
    let app = TestApp::new();
    let function = json!({ "name": "f", "parameters": { "type": "object" } });
    for (path, least) in endpoints().into_iter().filter(|(path, _)| !path.ends_with("/generate")) {
        for (field, wish) in [("functions", json!([function])), ("function_call", json!({ "name": "f" }))] {
            // Without functions, none can be asked for.
            if (path, field) == ("/v1/completions", "function_call") {
                continue;
            }
            let (status, answer) = answer_to(&app, path, &least, field, &wish).await;
            assert_eq!(status, 400, "{path} {field}: {answer}");
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(message.contains(&format!("`{field}` is not served")), "{path}: {message}");
        }
        assert_eq!(answer_to(&app, path, &least, "functions", &json!([])).await.0, 200, "{path}");
        assert_eq!(answer_to(&app, path, &least, "function_call", &Value::Null).await.0, 200, "{path}");
    }
}

#[tokio::test]
async fn earlier_names_of_structured_outputs_are_refused() {
    let app = TestApp::new();
    let with_form = ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"];
    for (path, least) in endpoints().into_iter().filter(|(path, _)| with_form.contains(path)) {
        for field in ["guided_json", "guided_regex", "guided_choice", "guided_grammar", "structural_tag"] {
            let (status, answer) = answer_to(&app, path, &least, field, &json!("[0-9]")).await;
            assert_eq!(status, 400, "{path} {field}: {answer}");
            assert!(answer["error"]["message"].as_str().unwrap().contains("`structured_outputs`"), "{path}: {answer}");
            assert_eq!(answer_to(&app, path, &least, field, &Value::Null).await.0, 200, "{path} {field}");
        }
        let detection = json!({ "max_pattern_size": 4, "min_count": 3, "pattern_size": 2 });
        let (status, answer) = answer_to(&app, path, &least, "repetition_detection", &detection).await;
        assert_eq!(status, 400, "{path}: {answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("pattern_size"), "{path}: {answer}");
    }
}

/// What vLLM's engine does not have; and what a client sends that sends all that the engine has.
#[tokio::test]
async fn sampling_params_of_the_engine_have_no_other_names() {
    let app = TestApp::new();
    let asked = async |name: &str, value: &Value| {
        let params = json!({ "max_tokens": 2, name: value });
        let answer = app.post("/inference/v1/generate", json!({ "token_ids": [1], "sampling_params": params })).await;
        (answer.status, answer.json())
    };
    for (name, instead) in [
        ("max_new_tokens", "`max_tokens` is what"),
        ("max_completion_tokens", "`max_tokens` is what"),
        ("min_new_tokens", "`min_tokens` is what"),
        ("sampling_seed", "`seed` is what"),
        ("stop_sequences", "`stop` is what"),
        ("json_schema", "`structured_outputs` is what"),
        ("guided_decoding", "`structured_outputs` is what"),
        ("stop_regex", "has no `stop_regex`"),
        ("heat", "has no `heat`"),
    ] {
        for value in [json!(0), json!("a"), json!(false)] {
            let (status, answer) = asked(name, &value).await;
            assert_eq!((status, &answer["error"]["param"]), (400, &json!(name)), "{answer}");
            assert!(answer["error"]["message"].as_str().unwrap().contains(instead), "{answer}");
        }
        for nothing in [Value::Null, json!([]), json!({})] {
            assert_eq!(asked(name, &nothing).await.0, 200, "{name} {nothing}");
        }
    }
    assert_eq!(asked("response_format", &json!({ "type": "sausage" })).await.0, 400);
    let whole = r#"{
        "n": 1, "presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0, "temperature": 1.0,
        "watermarking": null, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "seed": null, "stop": [], "stop_token_ids": [],
        "ignore_eos": false, "max_tokens": 2, "min_tokens": 0, "logprobs": null, "prompt_logprobs": null,
        "prompt_logprob_token_ids": null, "prompt_logprob_start": null, "logprob_token_ids": null, "flat_logprobs": false,
        "detokenize": true, "skip_special_tokens": true, "spaces_between_special_tokens": true,
        "include_stop_str_in_output": false, "output_kind": 2, "stream_interval": null, "skip_clone": false,
        "output_text_buffer_length": 0, "_eos_token_id": null, "_all_stop_token_ids": [], "_watermarking_skipped": false,
        "structured_outputs": null, "logit_bias": null, "allowed_token_ids": null, "extra_args": null, "bad_words": [],
        "_bad_words_token_ids": null, "skip_reading_prefix_cache": true, "thinking_token_budget": null,
        "repetition_detection": null, "routed_experts_prompt_start": 0, "trace_decode_token_ids": null
    }"#;
    let mut whole: Value = serde_json::from_str(whole).unwrap();
    let answered = async |params: &Value| {
        let answer = app.post("/inference/v1/generate", json!({ "token_ids": [1], "sampling_params": params })).await;
        answer.ok()["choices"].clone()
    };
    answered(&whole).await;
    whole["seed"] = json!(1);
    let plain = answered(&whole).await;
    // Arguments of plugins, of which there are none. renderers sends this one.
    whole["extra_args"] = json!({ "prl_compact_logprobs": true });
    assert_eq!(answered(&whole).await, plain);
}

#[tokio::test]
async fn the_model_of_sglangs_generate_is_looked_for() {
    let app = TestApp::new();
    let asked = async |more: Value| {
        let mut body = json!({ "text": "hello" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        app.post("/generate", body).await.status
    };
    assert_eq!(asked(json!({ "model": "nosuch" })).await, 404);
    assert_eq!(asked(json!({ "model": MODEL, "lora_path": "nosuch" })).await, 404);
    for taken in [json!({ "model": MODEL }), json!({ "model": "" }), json!({ "model": MODEL, "lora_path": MODEL })] {
        assert_eq!(asked(taken.clone()).await, 200, "{taken}");
    }
}

/// Names of other dialects that an endpoint takes for its own.
const TAKEN: [(&str, &str, &str); 4] = [
    ("/v1/chat/completions", "stop_sequences", "stop"),
    ("/v1/completions", "stop_sequences", "stop"),
    ("/v1/completions", "max_completion_tokens", "max_tokens"),
    ("/v1/responses", "max_tokens", "max_output_tokens"),
];

/// Names that gateways and SDKs send whatever the endpoint is.
#[tokio::test]
async fn names_of_other_dialects_are_taken_where_the_own_name_is_missing() {
    let app = TestApp::new().says("you and me");
    for (path, alias, own) in TAKEN {
        let (wish, other) = if own == "stop" { (json!(["and"]), json!(["me"])) } else { (json!(1), json!(2)) };
        let (_, least) = endpoints().into_iter().find(|(named, _)| *named == path).unwrap();
        let sampled = async |fields: Value| {
            let mut body = least.clone();
            body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            let usage = app.post(path, body).await.ok()["usage"].clone();
            usage["completion_tokens"].as_u64().or_else(|| usage["output_tokens"].as_u64()).unwrap()
        };
        let expected = sampled(json!({ own: wish })).await;
        assert_eq!(sampled(json!({ alias: wish })).await, expected, "{path} {alias}");
        assert_eq!(sampled(json!({ alias: wish, own: wish })).await, expected, "{path} {alias}");
        assert_ne!(sampled(json!({ own: other })).await, expected, "{path} {alias}");
    }
}

/// What templates do not show of an assistant's turn.
#[tokio::test]
async fn two_names_of_one_thing_that_differ_are_refused() {
    let app = TestApp::new().says("hello you");
    let stops = ("stop", "stop_sequences");
    let cases = [
        ("/v1/completions", json!({ "prompt": "hi" }), ("max_tokens", "max_completion_tokens"), json!(9), json!(3)),
        ("/v1/responses", json!({ "input": "hi" }), ("max_output_tokens", "max_tokens"), json!(9), json!(3)),
        ("/v1/completions", json!({ "prompt": "hi" }), stops, json!(["a"]), json!(["a", "b"])),
        ("/v1/chat/completions", asked(), stops, json!("a"), json!(["b"])),
    ];
    for (path, least, (own, other), value, another) in cases {
        let with = |value: &Value, another: &Value| {
            let mut body = least.clone();
            (body[own], body[other]) = (value.clone(), another.clone());
            body
        };
        let refused = app.post(path, with(&value, &another)).await;
        assert_eq!(refused.status, 400, "{path}: {}", refused.text);
        assert!(refused.text.contains("send one of them"), "{}", refused.text);
        // NeMo Gym takes a 400 with this name for an overflow of the context.
        assert!(!refused.text.replace("max_completion_tokens", "").contains("max_tokens"), "{}", refused.text);
        app.post(path, with(&value, &value)).await.ok();
        app.post(path, with(&value, &Value::Null)).await.ok();
    }
    for nothing in [json!([]), Value::Null] {
        let mut body = asked();
        (body["stop"], body["stop_sequences"]) = (nothing, json!([" you"]));
        let answer = app.post("/v1/chat/completions", body).await.ok();
        assert_eq!(answer["choices"][0]["message"]["content"], "hello", "{answer}");
    }
    let mut body = asked();
    (body["stop"], body["stop_sequences"]) = (json!(" you"), json!([" you"]));
    let answer = app.post("/v1/chat/completions", body).await.ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "hello", "{answer}");
}

fn asked() -> Value {
    json!({ "messages": [{ "role": "user", "content": "hi" }] })
}

#[tokio::test]
async fn what_an_assistant_said_in_fields_that_no_template_reads_is_refused() {
    let app = TestApp::new();
    let call = json!([{ "id": "c", "type": "function", "function": { "name": "f", "arguments": "{}" } }]);
    let function_call = json!({ "name": "f", "arguments": "{}" });
    let spoken = json!({ "id": "audio_1", "transcript": "No." });
    let cases = [
        // The field, its value, what stands beside it, and what to send instead if it is refused.
        ("function_call", &function_call, json!({}), Some("send `tool_calls`")),
        ("function_call", &function_call, json!({ "content": "I call." }), Some("send `tool_calls`")),
        ("function_call", &function_call, json!({ "tool_calls": call }), None),
        ("refusal", &json!("No."), json!({}), Some("send it as `content`")),
        ("refusal", &json!("No."), json!({ "content": "Well." }), Some("send it as `content`")),
        ("refusal", &json!("No."), json!({ "tool_calls": call }), Some("send it as `content`")),
        ("refusal", &json!("No."), json!({ "content": "No." }), None),
        ("refusal", &json!("No."), json!({ "content": [{ "type": "refusal", "refusal": "No." }] }), None),
        ("audio", &json!({ "id": "audio_1" }), json!({}), Some("what it says as `content`")),
        ("audio", &json!({ "id": "audio_1" }), json!({ "content": "" }), Some("what it says as `content`")),
        ("audio", &json!({ "id": "audio_1" }), json!({ "tool_calls": call }), Some("what it says as `content`")),
        ("audio", &spoken, json!({ "content": "Well." }), Some("what it says as `content`")),
        ("audio", &spoken, json!({ "content": "No." }), None),
        ("audio", &json!({ "id": "audio_1" }), json!({ "content": "No." }), None),
    ];
    for (field, value, beside, instead) in &cases {
        for (path, list) in
            [("/v1/chat/completions", "messages"), ("/tokenize", "messages"), ("/v1/responses", "input")]
        {
            let ask = async |role: &str, value: &Value| {
                let mut message = json!({ "role": role, "content": null, (*field): value });
                message.as_object_mut().unwrap().extend(beside.as_object().unwrap().clone());
                app.post(path, json!({ list: [{ "role": "user", "content": "hello" }, message] })).await
            };
            let answer = ask("assistant", value).await;
            match instead {
                None => assert_eq!(answer.status, 200, "{path} {field} {beside}: {}", answer.text),
                Some(instead) => {
                    assert_eq!(answer.status, 400, "{path} {field} {beside}: {}", answer.text);
                    let message = answer.error()["message"].as_str().unwrap().to_owned();
                    assert!(message.contains(field) && message.contains(instead), "{path} {field}: {message}");
                }
            }
            // tito's own answers have all of them, as null.
            assert_eq!(ask("assistant", &Value::Null).await.status, 200, "{path} {field} {beside}");
            if beside["content"].is_string() {
                assert_eq!(ask("user", value).await.status, 200, "{path} {field} {beside}");
            }
        }
    }
}

#[tokio::test]
async fn a_message_that_is_to_be_continued_is_refused_where_the_request_does_not_say_so() {
    let app = TestApp::new().says("hello");
    for path in ["/v1/chat/completions", "/tokenize"] {
        for field in ["prefix", "partial"] {
            let begun = json!({ "role": "assistant", "content": "hel", field: true });
            let mut body = asked();
            body["messages"].as_array_mut().unwrap().push(begun);
            let answer = app.post(path, body.clone()).await;
            assert_eq!((answer.status, &answer.error()["param"]), (400, &json!("messages")), "{path}: {}", answer.text);
            assert!(answer.text.contains(field) && answer.text.contains("continue_final_message"), "{}", answer.text);
            (body["continue_final_message"], body["add_generation_prompt"]) = (json!(true), json!(false));
            app.post(path, body.clone()).await.ok();
            // It says something about the last message only.
            (body["continue_final_message"], body["add_generation_prompt"]) = (json!(false), json!(true));
            body["messages"].as_array_mut().unwrap().push(json!({ "role": "user", "content": "more" }));
            app.post(path, body).await.ok();
        }
    }
}

#[tokio::test]
async fn a_chat_that_wants_sounds_or_a_search_is_refused() {
    let app = TestApp::new().says("hello");
    let cases = [
        ("audio", json!({ "voice": "alloy", "format": "wav" }), json!(null)),
        ("modalities", json!(["text", "audio"]), json!(["text"])),
        ("web_search_options", json!({}), json!(null)),
    ];
    for (field, value, harmless) in cases {
        let mut body = asked();
        body[field] = value;
        let answer = app.post("/v1/chat/completions", body.clone()).await;
        assert_eq!((answer.status, &answer.error()["param"]), (400, &json!(field)), "{}", answer.text);
        body[field] = harmless;
        app.post("/v1/chat/completions", body).await.ok();
    }
}

/// The fields of the body of an endpoint, with their schemas.
fn fields_of(document: &Value, path: &str) -> BTreeMap<String, Value> {
    let mut fields = BTreeMap::new();
    let content = &document["paths"][path]["post"]["requestBody"]["content"]["application/json"];
    gather(document, &content["schema"], &mut fields);
    assert!(!fields.is_empty(), "{path}");
    fields
}

fn gather(document: &Value, schema: &Value, fields: &mut BTreeMap<String, Value>) {
    if let Some(reference) = schema["$ref"].as_str() {
        gather(document, document.pointer(reference.trim_start_matches('#')).unwrap(), fields);
    }
    for kind in ["allOf", "oneOf", "anyOf"] {
        schema[kind].as_array().into_iter().flatten().for_each(|part| gather(document, part, fields));
    }
    let own = schema["properties"].as_object().into_iter().flatten();
    fields.extend(own.map(|(name, schema)| (name.clone(), schema.clone())));
}

/// A value that asks for something.
fn a_wish(schema: &Value) -> Value {
    let kinds = [&schema["type"], &schema["type"][0], &schema["type"][1]];
    match kinds.into_iter().filter_map(Value::as_str).find(|kind| *kind != "null") {
        Some("boolean") => json!(true),
        Some("integer" | "number") => json!(2),
        Some("string") => json!("x"),
        Some("array") => json!([1]),
        _ => json!({ "a": 1 }),
    }
}

/// Whatever one endpoint has is served by another, or refused, or in that file: of these, none decides which tokens there are.
#[tokio::test]
async fn what_is_ignored_is_known() {
    let document = serde_json::to_value(tito::api::openapi()).unwrap();
    let of_all = endpoints().map(|(path, least)| (path, least, fields_of(&document, path)));
    let known: BTreeMap<&String, &Value> = of_all.iter().flat_map(|(_, _, fields)| fields).collect();
    let app = TestApp::new();
    let mut lines = Vec::new();
    for (path, least, own) in &of_all {
        let mut ignored = BTreeSet::new();
        let is_taken = |field: &str| TAKEN.iter().any(|(of, name, _)| of == path && *name == field);
        for (field, schema) in known.iter().filter(|(field, _)| !own.contains_key(**field) && !is_taken(field)) {
            match answer_to(&app, path, least, field, &a_wish(schema)).await {
                (200, _) => ignored.insert(field.as_str()),
                (400, answer) => {
                    let message = answer["error"]["message"].as_str().unwrap();
                    assert!(message.contains(field.as_str()), "{path} {field}: {message}");
                    continue;
                }
                (status, answer) => panic!("{path} {field}: {status} {answer}"),
            };
        }
        lines.push((*path).to_owned());
        let ignored: Vec<&str> = ignored.into_iter().collect();
        lines.extend(ignored.chunks(6).map(|names| format!("    {}", names.join(" "))));
    }
    expect_file!["../../golden/ignored_fields.txt"].assert_eq(&(lines.join("\n") + "\n"));
}
