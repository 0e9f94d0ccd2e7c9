//! Random bodies: whatever is sent, the server answers with a 200, a 400 or a 404, in JSON, and keeps nothing.

use std::collections::BTreeSet;

use axum::http::header::CONTENT_TYPE;
use proptest::prelude::*;
use serde_json::{Value, json};
use tito::engine::{Engine, EngineLoad};

use crate::it::{
    app::{Answer, MODEL, TestApp},
    errors::sounds_like_overflow,
};

/// Valid bodies with every field that is served.
fn bodies() -> Vec<(&'static str, Value)> {
    let sampling = json!({
        "model": MODEL, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "presence_penalty": 0.1,
        "frequency_penalty": 0.1, "repetition_penalty": 1.1, "logit_bias": { "5": 1.0 }, "allowed_token_ids": null,
        "bad_words": ["you"], "seed": 1, "n": 2, "stop": ["xyz"], "stop_token_ids": [9], "ignore_eos": false,
        "include_stop_str_in_output": true, "min_tokens": 1, "max_tokens": 4, "skip_special_tokens": true,
        "logprob_token_ids": null, "prompt_logprobs": null, "return_tokens_as_token_ids": true,
        "return_token_ids": true, "stream": false, "stream_options": null, "request_id": "r",
        "response_format": { "type": "text" }, "structured_outputs": null,
    });
    let call = json!({ "id": "c", "type": "function", "function": { "name": "f", "arguments": "{\"a\": 1}" } });
    let tool = json!({ "type": "function", "function": { "name": "f", "description": "d", "parameters": { "a": 1 } } });
    let conversation = json!({
        "messages": [
            { "role": "system", "content": "the" },
            { "role": "user", "content": [{ "type": "text", "text": "hello" }], "name": "a" },
            { "role": "assistant", "content": "you", "tool_calls": [call], "reasoning": "x",
              "prompt_token_ids": [], "generation_token_ids": [], "generation_log_probs": [] },
            { "role": "tool", "content": "1", "tool_call_id": "c" },
        ],
        "tools": [tool], "tool_choice": "auto", "parallel_tool_calls": false, "documents": null, "reasoning_effort": "low",
        "add_generation_prompt": true, "continue_final_message": false, "add_special_tokens": false,
        "chat_template": null, "chat_template_kwargs": { "a": 1 }, "required_prefix_token_ids": null,
        "prompt_token_ids": null, "kv_transfer_params": { "a": 1 }, "session_id": "s", "prompt_cache_key": null,
        "return_token_continuity": true,
    });
    let chat = json!({ "logprobs": true, "top_logprobs": 2, "echo": false, "max_completion_tokens": 4 });
    let completion = json!({ "prompt": ["hello", "you"], "logprobs": 2, "echo": true, "suffix": null });
    let streamed =
        json!({ "stream": true, "stream_options": { "include_usage": true, "continuous_usage_stats": true } });
    let mut bodies = token_bodies(&sampling, &conversation, &chat, &completion, &streamed);
    bodies.extend(agent_bodies(&sampling));
    bodies.extend([
        ("/v1/chat/completions", joined(&[&sampling, &conversation, &chat])),
        ("/v1/chat/completions", joined(&[&sampling, &conversation, &chat, &streamed])),
        ("/v1/chat/completions/tokens", joined(&[&sampling, &conversation, &json!({ "tokens": [5, 6] })])),
        ("/v1/completions", joined(&[&sampling, &completion])),
        ("/v1/completions", joined(&[&sampling, &completion, &streamed, &json!({ "prompt": [[5, 6], [7]] })])),
        ("/tokenize", joined(&[&conversation, &json!({ "model": MODEL, "return_token_strs": true })])),
        ("/tokenize", json!({ "model": MODEL, "prompt": "hello", "add_special_tokens": true })),
        ("/detokenize", json!({ "model": MODEL, "tokens": [5, 6, 300] })),
    ]);
    bodies
}

/// The fields of several objects.
fn joined(parts: &[&Value]) -> Value {
    Value::Object(parts.iter().flat_map(|part| part.as_object().unwrap().clone()).collect())
}

/// Those of the endpoints that take or give ids, with the parts of the others' bodies.
fn token_bodies(
    sampling: &Value,
    conversation: &Value,
    chat: &Value,
    completion: &Value,
    streamed: &Value,
) -> Vec<(&'static str, Value)> {
    let batch = json!({
        "messages": [[{ "role": "user", "content": "hello" }], [{ "role": "user", "content": "you" }]], "n": 1,
    });
    let params = json!({ "max_tokens": 4, "logprobs": 2, "logprob_token_ids": null, "detokenize": true });
    let mut params = joined(&[sampling, &params]);
    // What stands beside them in the bodies of other endpoints.
    params
        .as_object_mut()
        .unwrap()
        .retain(|name, _| !["model", "stream", "stream_options", "request_id"].contains(&&**name));
    let ids = json!({
        "model": MODEL, "token_ids": [5, 6], "sampling_params": params, "request_id": "r",
        "return_token_ids": true, "output_mode": "text", "cache_salt": "s", "features": null, "content_parts": [],
    });
    let generated = json!({
        "request_id": "r", "output_mode": "tokens", "prompt_token_ids": [5], "prompt_logprobs": null,
        "choices": [{
            "index": 0, "token_ids": [5, 6], "finish_reason": "stop", "stop_reason": null,
            "logprobs": { "content": [
                { "token_id": 5, "logprob": -1.0, "rank": 2, "top_logprobs": [{ "token_id": 7, "logprob": -0.5 }] },
                { "token_id": 6, "logprob": -1.0, "rank": 1, "top_logprobs": [] },
            ] },
        }],
    });
    let state = json!({ "role_sent": true, "output_token_ids": [9], "output_chunk_lens": [1], "prev_tokens": [] });
    let derender = json!({
        "model": MODEL, "generate_response": generated, "prompt_tokens": 1, "prompt_token_ids": [5],
        "chat_request": joined(&[conversation, chat]),
    });
    let derender_event = json!({
        "stream": true, "generate_chunk": generated, "stream_state": state, "prompt_tokens": 1,
        "completion_request": joined(&[sampling, &json!({ "prompt": "hello", "logprobs": 1 })]),
    });
    let derender_texts = json!({
        "generate_responses": [generated, generated], "prompt_tokens": [1, 1], "prompt_token_ids": [[5], null],
    });
    vec![
        ("/v1/chat/completions/batch", joined(&[sampling, &batch, &json!({ "max_tokens": 2 })])),
        ("/v1/chat/completions/render", joined(&[sampling, conversation, chat, streamed])),
        ("/v1/completions/render", joined(&[sampling, completion, &json!({ "return_token_offsets": true })])),
        ("/inference/v1/generate", ids.clone()),
        ("/inference/v1/generate", joined(&[&ids, streamed])),
        ("/inference/v1/abort_requests", json!({ "request_ids": ["r"] })),
        ("/v1/chat/completions/derender", derender),
        ("/v1/completions/derender", derender_texts),
        ("/v1/completions/derender", derender_event),
        ("/invocations", joined(&[sampling, completion])),
    ]
}

/// Those of the dialects of agents.
fn agent_bodies(sampling: &Value) -> Vec<(&'static str, Value)> {
    let schema = json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
    let function = json!({ "type": "function", "name": "f", "description": "d", "parameters": schema, "strict": true });
    let items = json!([
        { "role": "developer", "content": "the" },
        { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "hello" }] },
        { "type": "reasoning", "id": "rs", "summary": [], "content": [{ "type": "reasoning_text", "text": "x" }] },
        { "type": "message", "role": "assistant", "id": "msg", "status": "completed",
          "content": [{ "type": "output_text", "text": "you", "annotations": [] }] },
        { "type": "function_call", "call_id": "c", "name": "f", "arguments": "{\"a\": 1}",
          "prompt_token_ids": [], "generation_token_ids": [], "generation_log_probs": [] },
        { "type": "function_call_output", "call_id": "c", "output": "1" },
    ]);
    let response = json!({
        "input": items, "instructions": "the", "tools": [function], "tool_choice": "auto", "parallel_tool_calls": true,
        "text": { "format": { "type": "text" }, "verbosity": "low" }, "reasoning": { "effort": "low" },
        "max_output_tokens": 4, "max_tool_calls": 1, "include": ["message.output_text.logprobs", "token_ids"],
        "top_logprobs": 2, "metadata": { "a": "b" }, "truncation": "auto", "service_tier": "auto", "user": "u",
        "previous_response_id": null, "store": false, "background": false, "prompt": null, "conversation": null,
        "enable_response_messages": true, "chat_template_kwargs": { "a": 1 }, "required_prefix_token_ids": null,
        "session_id": "s", "vllm_xargs": { "session_id": "s" }, "prompt_cache_key": "s", "context_management": null,
        "return_token_continuity": true,
    });
    // What a response has one of, or counts by another name.
    let mut once = sampling.clone();
    for name in ["n", "max_tokens", "response_format", "structured_outputs", "stream_options", "request_id"] {
        once.as_object_mut().unwrap().remove(name);
    }
    let tool = json!({ "name": "f", "description": "d", "input_schema": schema });
    let message = json!({
        "model": MODEL, "max_tokens": 4, "system": [{ "type": "text", "text": "the" }],
        "messages": [
            { "role": "user", "content": [{ "type": "text", "text": "hello" }] },
            { "role": "assistant", "content": [
                { "type": "thinking", "thinking": "x", "signature": "s" }, { "type": "text", "text": "you" },
                { "type": "tool_use", "id": "c", "name": "f", "input": { "a": 1 } },
            ] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "c", "content": [{ "type": "text", "text": "1" }] },
            ] },
        ],
        "tools": [tool], "tool_choice": { "type": "auto", "disable_parallel_tool_use": true },
    });
    let sampled = json!({
        "temperature": 0.5, "top_p": 0.9, "top_k": 5, "stop_sequences": ["xyz"], "metadata": { "user_id": "u" },
        "thinking": { "type": "disabled" }, "stream": false, "kv_transfer_params": { "a": 1 },
        "chat_template_kwargs": { "a": 1 },
    });
    let streamed = json!({ "stream": true });
    vec![
        ("/v1/responses", joined(&[&once, &response])),
        ("/v1/responses", joined(&[&once, &response, &streamed])),
        ("/v1/responses", json!({ "input": "hello", "store": true, "max_output_tokens": 4 })),
        ("/v1/messages", joined(&[&message, &sampled])),
        ("/v1/messages", joined(&[&message, &sampled, &streamed])),
        ("/v1/messages/count_tokens", message),
    ]
}

/// The places in a value, its own first.
fn places(value: &Value, at: &str, out: &mut Vec<String>) {
    out.push(at.to_owned());
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                places(item, &format!("{at}/{index}"), out);
            }
        }
        Value::Object(fields) => {
            for (key, field) in fields {
                places(field, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), out);
            }
        }
        _ => {}
    }
}

fn leaf() -> impl Strategy<Value = Value> {
    let words =
        ["", "hello", "max_tokens", "context length", "auto", "none", "\0", "😀<|im_end|>", "{{", "é\u{301}", "text"];
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3..400_i64).prop_map(Value::from),
        proptest::sample::select(vec![i64::MIN, i64::MAX, 4_294_967_295, 4_294_967_296]).prop_map(Value::from),
        Just(Value::from(u64::MAX)),
        (-3.0..3.0_f64).prop_map(Value::from),
        proptest::sample::select(vec![1e300, -1e300, 1e-300, f64::MAX]).prop_map(Value::from),
        proptest::sample::select(words.to_vec()).prop_map(Value::from),
    ]
}

fn replacement() -> impl Strategy<Value = Value> {
    let keys = ["role", "content", "type", "text", "max_tokens", "5", "function", "name", "prompt_token_ids", ""];
    leaf().prop_recursive(3, 12, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((proptest::sample::select(keys.to_vec()), inner), 0..4).prop_map(|fields| {
                Value::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
            }),
        ]
    })
}

fn mutated() -> impl Strategy<Value = (&'static str, Value)> {
    let bases = bodies();
    let edits = prop::collection::vec((any::<prop::sample::Index>(), replacement()), 1..4);
    (0..bases.len(), edits).prop_map(move |(base, edits)| {
        let (path, mut body) = bases[base].clone();
        for (place, value) in edits {
            let mut all = Vec::new();
            places(&body, "", &mut all);
            // Seldom the whole body.
            let pointer = place.get(&all);
            if !pointer.is_empty() || all.len() == 1 {
                *body.pointer_mut(pointer).unwrap() = value;
            }
        }
        (path, body)
    })
}

/// The events of an answer that is a stream, in any dialect.
fn events(answer: &Answer) -> Vec<Value> {
    if !answer.headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream")) {
        return Vec::new();
    }
    let data = answer.text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// As many as the tests have time for; `PROPTEST_CASES` asks for more.
#[expect(clippy::disallowed_methods, reason = "tests have no command line of their own")]
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").map_or(2_048, |cases| cases.parse().unwrap())
}

/// Whether a client says what only an overflow is told in, elsewhere than in the names of fields.
fn speaks_of_overflow(body: &Value) -> bool {
    let speaks = |text: &str| ["max_tokens", "context length"].iter().any(|word| text.contains(word));
    match body {
        Value::Object(fields) => {
            fields.iter().any(|(key, value)| (key != "max_tokens" && speaks(key)) || speaks(&value.to_string()))
        }
        other => speaks(&other.to_string()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_body_makes_the_server_fail_or_sound_like_an_overflow((path, body) in mutated()) {
        thread_local! {
            static APP: TestApp = TestApp::new().reads_tool_calls().max_model_len(2_048);
            static RUNTIME: tokio::runtime::Runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        }
        let (answer, load) = APP.with(|app| {
            let answer = RUNTIME.with(|runtime| runtime.block_on(app.post(path, body.clone())));
            (answer, app.engine().load())
        });
        prop_assert_eq!(load, EngineLoad::default());
        prop_assert!([200, 400, 404].contains(&answer.status), "{}", answer.text);
        if answer.status == 400 {
            prop_assert!(answer.error()["message"].is_string());
            let overflow = answer.error()["param"] == "input_tokens";
            // What a client wrote is shown as it wrote it.
            prop_assert!(
                sounds_like_overflow(&answer) == overflow || speaks_of_overflow(&body),
                "{}",
                answer.text
            );
        }
        for event in events(&answer) {
            let error = if event["type"] == "response.failed" { &event["response"]["error"] } else { &event["error"] };
            let fault = !error.is_null() && error["code"] != 400 && error["type"] != "invalid_request_error";
            prop_assert!(!fault, "{event}");
        }
    }
}

#[tokio::test]
async fn the_bodies_that_are_mutated_are_valid() {
    let app = TestApp::new().reads_tool_calls();
    for (path, body) in bodies() {
        let answer = app.post(path, body).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    }
}

/// Paths whose bodies are not mutated here. The list may only get shorter.
const NOT_MUTATED: &[&str] = &[
    // Need a server with other flags, and what an earlier answer named.
    "/api/v1/asample",
    "/api/v1/cancel_future",
    "/api/v1/create_sampling_session",
    "/api/v1/create_session",
    "/api/v1/retrieve_future",
    "/api/v1/session_heartbeat",
    "/v1/trajectories/{trajectory_id}/reward",
    "/v1/trajectories/{trajectory_id}/tags",
    "/v1/trajectories/{trajectory_id}/turns/{turn_id}/replay",
    "/v1/trajectories/{trajectory_id}/turns/{turn_id}/rescore",
    // Has errors of another shape, SGLang's.
    "/generate",
    // Has no `strict` tools, which the bodies of their dialects have.
    "/v1/messages/render",
    "/v1/responses/render",
    // The same as without `/v1`.
    "/v1/detokenize",
    "/v1/tokenize",
];

#[test]
fn every_path_that_reads_a_body_is_here() {
    let document = serde_json::to_value(tito::api::openapi()).unwrap();
    let reads_a_body = |(_, methods): &(&String, &Value)| {
        methods.as_object().unwrap().values().any(|operation| operation.get("requestBody").is_some())
    };
    let paths = document["paths"].as_object().unwrap().iter().filter(reads_a_body).map(|(path, _)| path.as_str());
    let mutated: BTreeSet<&str> = bodies().into_iter().map(|(path, _)| path).collect();
    let known: BTreeSet<&str> = mutated.union(&NOT_MUTATED.iter().copied().collect()).copied().collect();
    let paths: BTreeSet<&str> = paths.collect();
    let new: Vec<_> = paths.difference(&known).collect();
    assert!(new.is_empty(), "add a valid body to `bodies` of tests/it/fuzz.rs for each of {new:?}");
    let gone: Vec<_> = NOT_MUTATED.iter().filter(|path| !paths.contains(*path) || mutated.contains(*path)).collect();
    assert!(gone.is_empty(), "to be taken off the list: {gone:?}");
}
