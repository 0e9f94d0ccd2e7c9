//! `POST /v1/chat/completions/derender` and `/v1/completions/derender`: what was generated says what it would have said.

use crate::it::app::{ENDOFTEXT, TestApp, redacted};
use serde_json::{Value, json};
use tito::{parser::ReasoningParser, turn::ToolPolicy};

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";
const GENERATE: &str = "/inference/v1/generate";

fn messages() -> Value {
    json!([{ "role": "user", "content": "hello" }])
}

/// Render, generate, derender.
async fn in_three_steps(app: &TestApp, body: &Value) -> Value {
    let rendered = app.post(&format!("{CHAT}/render"), body.clone()).await.ok();
    let generated = app.post(GENERATE, rendered.clone()).await.ok();
    let derender = json!({
        "generate_response": generated,
        "prompt_tokens": rendered["token_ids"].as_array().unwrap().len(),
        "prompt_token_ids": rendered["token_ids"],
        "chat_request": body,
    });
    app.post(&format!("{CHAT}/derender"), derender).await.ok()
}

/// The chat completion itself, with the id that three steps give it.
fn with_id(mut answer: Value, id: &str) -> Value {
    answer["id"] = json!(id);
    answer.as_object_mut().unwrap().shift_remove("token_continuity");
    redacted(answer)
}

#[tokio::test]
async fn three_steps_say_what_a_chat_completion_says() {
    let plain = TestApp::new();
    let special = TestApp::new();
    let ids = special.ids("hello <think>world");
    let special = special.script(ids.iter().copied().chain([ENDOFTEXT]));
    let calls = TestApp::new()
        .reads_tool_calls()
        .says("hello <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>");
    let tools = json!([{ "type": "function", "function": { "name": "f" } }]);
    let reasoning = ReasoningParser::named("deepseek_r1");
    let thinks = TestApp::new().tools(ToolPolicy { reasoning, ..ToolPolicy::default() }).says("I think</think>so");
    let cases = [
        (&plain, json!({ "seed": 3, "max_tokens": 16 })),
        (&thinks, json!({ "temperature": 0 })),
        (&thinks, json!({ "seed": 3, "n": 2, "max_tokens": 2 })),
        (&plain, json!({ "seed": 4, "n": 3, "max_tokens": 40 })),
        (&plain, json!({ "temperature": 0, "max_tokens": 9, "ignore_eos": true })),
        (&plain, json!({ "seed": 5, "max_tokens": 30, "logprobs": true, "top_logprobs": 0 })),
        (
            &plain,
            json!({ "temperature": 0, "max_tokens": 12, "logprobs": true, "top_logprobs": 3, "return_token_ids": true }),
        ),
        (&plain, json!({ "seed": 6, "max_tokens": 12, "logprobs": true, "return_tokens_as_token_ids": true })),
        (&plain, json!({ "seed": 6, "max_tokens": 12, "logprobs": true, "logprob_token_ids": [3, 4] })),
        (&plain, json!({ "seed": 6, "max_tokens": 2, "prompt_logprobs": 1 })),
        (&plain, json!({ "seed": 6, "max_tokens": 9, "top_k": 5, "n": 2, "return_sampling_mask": true })),
        (&special, json!({ "top_k": 1, "stop": ["wor"], "return_sampling_mask": true })),
        (&special, json!({ "temperature": 0 })),
        (&special, json!({ "temperature": 0, "skip_special_tokens": false })),
        (&special, json!({ "temperature": 0, "stop": ["wor"] })),
        (
            &special,
            json!({ "temperature": 0, "stop": ["lo", "wor"], "min_tokens": 3, "include_stop_str_in_output": true }),
        ),
        (&special, json!({ "temperature": 0, "stop_token_ids": [ids[0]] })),
        (&calls, json!({ "temperature": 0, "tools": tools })),
        // The message of a prompt that was cut off carries no ids.
        (
            &plain,
            json!({ "seed": 6, "max_tokens": 3, "truncate_prompt_tokens": 5, "return_token_ids": true, "logprobs": true }),
        ),
        (
            &plain,
            json!({ "seed": 6, "max_tokens": 3, "truncate_prompt_tokens": 50, "return_token_ids": true, "logprobs": true }),
        ),
        // Values that a chat takes in another form, and a name that it takes for another.
        (&plain, json!({ "seed": "6", "n": "2", "max_tokens": "12", "logprobs": 1, "top_logprobs": 2.0 })),
        (&plain, json!({ "temperature": "0", "logit_bias": { "28": "1" }, "include_reasoning": "true", "stop": null })),
        (&special, json!({ "temperature": 0, "stop_sequences": ["wor"] })),
    ];
    for (app, mut body) in cases {
        body["messages"] = messages();
        body["request_id"] = json!("r");
        let chat = app.post(CHAT, body.clone()).await.ok();
        let derendered = in_three_steps(app, &body).await;
        assert_eq!(redacted(derendered), with_id(chat, "generate-tokens-chatcmpl-r"), "{body}");
    }
}

#[tokio::test]
async fn nothing_is_made_up_where_log_probs_or_the_prompt_are_unknown() {
    let app = TestApp::new().says("you");
    let body = json!({ "messages": messages(), "return_token_ids": true, "temperature": 0 });
    let answer = in_three_steps(&app, &body).await;
    let message = &answer["choices"][0]["message"];
    assert_eq!(message.get("generation_log_probs"), None);
    // The ids are known, and the next turn is continued with them.
    assert_eq!(message["generation_token_ids"], json!([282, 2]));
    assert!(message["prompt_token_ids"].is_array(), "{message}");
    let next = json!({ "messages": [messages()[0], message, { "role": "user", "content": "so?" }] });
    let next = TestApp::new().post(CHAT, next).await;
    assert!(
        next.headers["x-token-continuity"].to_str().unwrap().starts_with("message; outcome=exact"),
        "{}",
        next.text
    );
    assert_eq!(answer["choices"][0]["token_ids"], json!([282, 2]));
    let bare = json!({
        "generate_response": { "request_id": "x", "choices": [{ "index": 0, "token_ids": [282, 2], "finish_reason": "stop" }] }
    });
    let answer = app.post(&format!("{CHAT}/derender"), bare).await.ok();
    assert_eq!((&answer["id"], &answer["choices"][0]["message"]["content"]), (&json!("x"), &json!("you")));
    assert_eq!([&answer["usage"]["prompt_tokens"], &answer["usage"]["completion_tokens"]], [0, 2]);
    assert_eq!((&answer["prompt_token_ids"], &answer["choices"][0]["token_ids"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn a_stop_without_its_token_keeps_all_text_and_a_stop_string_is_left_out() {
    let app = TestApp::new();
    let ids = app.ids("hello world");
    let ask = |choice: Value| json!({ "generate_response": { "request_id": "x", "choices": [choice] } });
    let mut choice = json!({ "index": 0, "token_ids": ids, "finish_reason": "stop", "stop_reason": null });
    let text = |answer: &Value| answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    let whole = app.post(&format!("{CHAT}/derender"), ask(choice.clone())).await.ok();
    assert_eq!((text(&whole).as_str(), &whole["choices"][0]["finish_reason"]), ("hello world", &json!("stop")));
    choice["stop_reason"] = json!("wor");
    let stopped = app.post(&format!("{CHAT}/derender"), ask(choice)).await.ok();
    assert_eq!((text(&stopped).as_str(), &stopped["choices"][0]["stop_reason"]), ("hello ", &json!("wor")));
    // A stop token that was left out.
    let by_token = json!({ "index": 0, "token_ids": ids, "finish_reason": "stop", "stop_reason": 5 });
    let stopped = app.post(&format!("{CHAT}/derender"), ask(by_token)).await.ok();
    assert_eq!((text(&stopped).as_str(), &stopped["choices"][0]["stop_reason"]), ("hello world", &json!(5)));
}

#[tokio::test]
async fn text_completions_are_derendered_prompt_by_prompt() {
    let app = TestApp::new();
    let cases = [
        json!({ "prompt": ["hello", "you the"], "seed": 3, "max_tokens": 20, "n": 2, "return_token_ids": true }),
        json!({ "prompt": "hello", "temperature": 0, "max_tokens": 8, "logprobs": 2 }),
        json!({ "prompt": ["hello", "world"], "seed": 9, "max_tokens": 6, "echo": true }),
        json!({ "prompt": [[5, 6], [7]], "seed": 9, "max_tokens": 6, "stop": "e" }),
        json!({ "prompt": [[5, 6], [7]], "seed": 9, "max_tokens": 6, "n": 2, "top_k": 4, "return_sampling_mask": true }),
    ];
    for mut body in cases {
        body["request_id"] = json!("r");
        let direct = app.post(TEXT, body.clone()).await.ok();
        let rendered = app.post(&format!("{TEXT}/render"), body.clone()).await.ok();
        let rendered = rendered.as_array().unwrap();
        let mut generated = Vec::new();
        for request in rendered {
            generated.push(app.post(GENERATE, request.clone()).await.ok());
        }
        let id = generated[0]["request_id"].as_str().unwrap().to_owned();
        let derender = json!({
            "generate_responses": generated,
            "prompt_tokens": rendered.iter().map(|request| request["token_ids"].as_array().unwrap().len()).collect::<Vec<_>>(),
            "prompt_token_ids": rendered.iter().map(|request| request["token_ids"].clone()).collect::<Vec<_>>(),
            "completion_request": body,
        });
        let derendered = app.post(&format!("{TEXT}/derender"), derender).await.ok();
        assert_eq!(redacted(derendered), with_id(direct, &id), "{body}");
    }
}

#[tokio::test]
async fn answers_without_an_id_are_given_one() {
    let app = TestApp::new();
    let choices = json!([{ "index": 0, "token_ids": app.ids("hello"), "finish_reason": "length" }]);
    let given = json!({ "choices": choices });
    for (path, body) in [
        (CHAT, json!({ "generate_response": given })),
        (CHAT, json!({ "stream": true, "generate_chunk": given })),
        (TEXT, json!({ "generate_responses": [given] })),
        (TEXT, json!({ "stream": true, "generate_chunk": given })),
    ] {
        let ask = async || {
            let answer = app.post(&format!("{path}/derender"), body.clone()).await.ok();
            answer.get("chunk").unwrap_or(&answer)["id"].as_str().unwrap().to_owned()
        };
        let (first, second) = (ask().await, ask().await);
        assert!(first.len() >= 32 && first != second, "{path}: {first}, {second}");
    }
}

#[tokio::test]
async fn what_is_no_answer_of_the_server_is_refused() {
    let app = TestApp::new().max_model_len(8);
    let response = |choice: Value| json!({ "generate_response": { "request_id": "x", "choices": [choice] } });
    let choice = |ids: Value| json!({ "index": 0, "token_ids": ids, "finish_reason": "length" });
    let scored = json!({
        "index": 0, "token_ids": [5], "finish_reason": "length",
        "logprobs": { "content": [{ "token_id": 6, "logprob": -1.0 }] }
    });
    let misnamed = json!({
        "index": 0, "token_ids": [5], "finish_reason": "length",
        "logprobs": { "content": [{ "token": "token_id:6", "token_id": 5, "logprob": -1.0 }] }
    });
    let masked = |rows: Value| {
        let choice = json!({ "index": 0, "token_ids": [5], "finish_reason": "length", "sampling_mask": rows });
        response(choice)
    };
    let mut asks = response(choice(json!([5])));
    asks["chat_request"] = json!({ "messages": messages(), "return_sampling_mask": true });
    let mut lacks_logprobs = response(choice(json!([5])));
    lacks_logprobs["chat_request"] = json!({ "messages": messages(), "logprobs": true });
    let mut lacks_scores = response(choice(json!([5])));
    lacks_scores["chat_request"] = json!({ "messages": messages(), "prompt_logprobs": 0 });
    let ends = |reason: Value, by: Value| {
        response(json!({ "index": 0, "token_ids": [5, 6], "finish_reason": reason, "stop_reason": by }))
    };
    let mut after_stop = response(choice(json!([282, 282])));
    after_stop["chat_request"] = json!({ "messages": messages(), "stop": "you" });
    let cases = [
        (response(choice(json!([]))), "choice 0 has empty or null token_ids"),
        (response(choice(json!([326]))), "Token id 326 is out of vocabulary"),
        (response(choice(json!(vec![5; 9]))), "token_ids length (9) in choice 0 exceeds max_model_len (8)."),
        (response(scored), "the log-probs of choice 0 are not those of its token_ids"),
        (response(misnamed), "the log-probs of choice 0 are not those of its token_ids"),
        (masked(json!([])), "the sampling_mask of choice 0 is not that of its token_ids"),
        (masked(json!([[4, 6]])), "the sampling_mask of choice 0 is not that of its token_ids"),
        (masked(json!([[5, 326]])), "the sampling_mask of choice 0 is not that of its token_ids"),
        (asks, "asks for `return_sampling_mask`, and choice 0 of the answer has no `sampling_mask`"),
        (lacks_logprobs, "asks for `logprobs`, and choice 0 of the answer has no `logprobs`"),
        (lacks_scores, "the answer has no `prompt_logprobs`"),
        (after_stop, "the tokens go on behind the end of the text"),
        (ends(json!("length"), json!(6)), "a finish_reason that no answer here has: length, beside a stop_reason"),
        (ends(json!("length"), json!("a")), "a finish_reason that no answer here has: length, beside a stop_reason"),
        (ends(Value::Null, Value::Null), "choice 0 has no finish_reason, and a whole answer has ended"),
        (json!({}), "Field required"),
        (json!({ "stream": true }), "Field required"),
        (
            json!({ "stream": true, "generate_chunk": { "request_id": "x", "choices": [choice(json!([5])), choice(json!([5]))] } }),
            "at most one choice per chunk (got 2).",
        ),
        (
            json!({
                "stream": true, "generate_chunk": { "request_id": "x", "choices": [] },
                "stream_state": { "output_token_ids": [5], "output_chunk_lens": [] }
            }),
            "output_chunk_lens must sum to len(output_token_ids)",
        ),
    ];
    for (body, words) in cases {
        let answer = app.post(&format!("{CHAT}/derender"), body.clone()).await;
        assert_eq!(answer.status, 400, "{body}");
        assert!(answer.error()["message"].as_str().unwrap().contains(words), "{body}: {}", answer.text);
    }
    let parser = TestApp::new().reads_tool_calls();
    let error = parser.post(&format!("{CHAT}/derender"), response(choice(json!([5])))).await.error();
    assert!(error["message"].as_str().unwrap().starts_with("chat_request is required"), "{error}");
    let none = app.post(&format!("{TEXT}/derender"), json!({ "generate_responses": [] })).await.error();
    assert_eq!(none["message"], "generate_responses must not be empty");
}

#[tokio::test]
async fn what_an_answer_says_of_its_tokens_comes_through_unasked() {
    let app = TestApp::new();
    let choice = json!({
        "index": 0, "token_ids": [5, 6], "finish_reason": "length", "sampling_mask": [[4, 5], [6]],
        "routed_experts": "k05VTVBZ"
    });
    let answer = json!({ "request_id": "x", "choices": [choice] });
    let cases = [
        (CHAT, json!({ "generate_response": answer })),
        (CHAT, json!({ "stream": true, "generate_chunk": answer, "prompt_token_ids": [7] })),
        (TEXT, json!({ "generate_responses": [answer] })),
        (TEXT, json!({ "stream": true, "generate_chunk": answer })),
    ];
    for (path, body) in cases {
        let derendered = app.post(&format!("{path}/derender"), body.clone()).await.ok();
        let shown = if body["stream"] == true { &derendered["chunk"] } else { &derendered }["choices"][0].clone();
        assert_eq!(shown["sampling_mask"], json!([[4, 5], [6]]), "{body}");
        assert_eq!(shown["routed_experts"], "k05VTVBZ", "{body}");
    }
}

#[tokio::test]
async fn counts_that_no_prompt_has_are_refused() {
    let app = TestApp::new();
    let most = u64::MAX;
    let choice = json!({ "index": 0, "token_ids": [5], "finish_reason": "length" });
    let generated = json!({ "request_id": "x", "choices": [choice] });
    let event = |usage: Value| json!({ "request_id": "x", "choices": [choice], "usage": usage });
    let scored = json!({
        "request_id": "x",
        "choices": [{
            "index": 0, "token_ids": [5], "logprobs": { "content": [{ "token_id": 5, "logprob": -1.0 }] },
        }],
    });
    let of_chat = format!("{CHAT}/derender");
    let of_text = format!("{TEXT}/derender");
    let cases = [
        (&of_chat, json!({ "generate_response": generated, "prompt_tokens": most })),
        (&of_chat, json!({ "stream": true, "generate_chunk": event(json!({})), "prompt_tokens": most })),
        (&of_chat, json!({ "stream": true, "generate_chunk": event(json!({ "prompt_tokens": most })) })),
        (&of_chat, json!({ "stream": true, "generate_chunk": event(json!({ "completion_tokens": most })) })),
        (
            &of_chat,
            json!({
                "stream": true, "generate_chunk": event(json!({})),
                "stream_state": { "output_token_ids": [5], "output_chunk_lens": [most, 2] },
            }),
        ),
        (&of_text, json!({ "generate_responses": [generated, generated], "prompt_tokens": [most, 1] })),
        (&of_text, json!({ "generate_responses": [generated], "prompt_tokens": [most] })),
        (
            &of_text,
            json!({
                "stream": true, "generate_chunk": event(json!({})),
                "stream_state": { "logprob_text_offset": most },
            }),
        ),
        (
            &of_text,
            json!({
                "stream": true, "generate_chunk": scored,
                "stream_state": { "logprob_text_offset": u32::MAX },
            }),
        ),
    ];
    for (path, body) in cases {
        let answer = app.post(path, body.clone()).await;
        assert_eq!(answer.status, 400, "{body}: {}", answer.text);
    }
}
