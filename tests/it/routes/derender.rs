//! `POST /v1/chat/completions/derender` and `/v1/completions/derender`: what was generated says what it would have said.

use serde_json::{Value, json};
use tito::{
    parser::{ReasoningParser, ToolParser},
    turn::ToolPolicy,
};

use crate::it::app::{ENDOFTEXT, IM_END, TestApp, redacted, shape};

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
    let cases = [
        (&plain, json!({ "seed": 3, "max_tokens": 16 })),
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
    assert_eq!(answer["choices"][0]["message"].get("generation_log_probs"), None);
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

/// Sends every event of a generation's stream on, with the state that the event before it gave.
async fn piece_by_piece(app: &TestApp, path: &str, generate: Value, more: &Value) -> Vec<Value> {
    let events = app.post(GENERATE, generate).await.events();
    let mut state = Value::Null;
    let mut chunks = Vec::new();
    for event in events {
        let mut body = more.clone();
        body["stream"] = json!(true);
        body["generate_chunk"] = event;
        body["stream_state"] = state;
        let mut answer = app.post(path, body).await.ok();
        assert_eq!(answer.as_object().unwrap().len(), 2);
        state = answer["stream_state"].take();
        chunks.push(answer["chunk"].take());
    }
    chunks
}

#[tokio::test]
async fn a_stream_of_chat_is_derendered_event_by_event() {
    let call = "hello <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
    let tools = json!([{ "type": "function", "function": { "name": "f" } }]);
    let emoji = "\u{1F600} wörld";
    let cases = [
        (TestApp::new(), json!({ "seed": 3, "max_tokens": 20, "logprobs": true, "top_logprobs": 2 })),
        (TestApp::new().says(emoji), json!({ "temperature": 0, "return_token_ids": true })),
        (TestApp::new().says("hello world you"), json!({ "temperature": 0, "stop": ["world"] })),
        (TestApp::new().reads_tool_calls().says(call), json!({ "temperature": 0, "tools": tools })),
        (TestApp::new(), json!({ "seed": 4, "max_tokens": 9, "top_k": 4, "return_sampling_mask": true })),
    ];
    for (app, mut body) in cases {
        body["messages"] = messages();
        let whole = app.post(CHAT, body.clone()).await.ok();
        body["stream"] = json!(true);
        body["stream_options"] = json!({ "include_usage": true });
        let rendered = app.post(&format!("{CHAT}/render"), body.clone()).await.ok();
        let more = json!({
            "prompt_token_ids": rendered["token_ids"], "prompt_tokens": 7, "chat_request": body, "model": "tiny"
        });
        let mut chunks = piece_by_piece(&app, &format!("{CHAT}/derender"), rendered, &more).await;
        let last = chunks.pop().unwrap();
        assert_eq!(
            shape(&last),
            "id object created model choices usage{prompt_tokens total_tokens completion_tokens prompt_tokens_details \
             completion_tokens_details} system_fingerprint prompt_token_ids prompt_text metrics kv_transfer_params"
        );
        assert_eq!(last["usage"]["completion_tokens"], whole["usage"]["completion_tokens"]);
        assert_eq!(last["usage"]["prompt_tokens"], 7);
        let choice = &whole["choices"][0];
        let (mut content, mut ids, mut logprobs, mut calls) = (String::new(), Vec::new(), Vec::new(), Vec::new());
        let mut rows = Vec::new();
        for (index, chunk) in chunks.iter().enumerate() {
            let piece = &chunk["choices"][0];
            assert_eq!(piece["delta"]["role"], if index == 0 { json!("assistant") } else { Value::Null });
            content.push_str(piece["delta"]["content"].as_str().unwrap_or_default());
            ids.extend(piece["token_ids"].as_array().into_iter().flatten().cloned());
            logprobs.extend(piece["logprobs"]["content"].as_array().into_iter().flatten().cloned());
            rows.extend(piece["sampling_mask"].as_array().into_iter().flatten().cloned());
            calls.extend(piece["delta"]["tool_calls"].as_array().into_iter().flatten().cloned());
        }
        assert_eq!(content, choice["message"]["content"].as_str().unwrap(), "{body}");
        assert_eq!(ids, choice["token_ids"].as_array().cloned().unwrap_or_default());
        assert_eq!(logprobs, choice["logprobs"]["content"].as_array().cloned().unwrap_or_default());
        assert_eq!(rows, choice["sampling_mask"].as_array().cloned().unwrap_or_default());
        assert_eq!(calls.len(), choice["message"]["tool_calls"].as_array().map_or(0, Vec::len));
        let end = &chunks.last().unwrap()["choices"][0];
        assert_eq!((&end["finish_reason"], &end["stop_reason"]), (&choice["finish_reason"], &choice["stop_reason"]));
    }
}

#[tokio::test]
async fn a_stream_of_text_is_derendered_event_by_event() {
    let app = TestApp::new();
    let mut body = json!({ "prompt": "hello", "temperature": 0, "max_tokens": 9, "logprobs": 1, "ignore_eos": true });
    let whole = app.post(TEXT, body.clone()).await.ok();
    body["stream"] = json!(true);
    let rendered = app.post(&format!("{TEXT}/render"), body.clone()).await.ok()[0].take();
    let more = json!({ "prompt_token_ids": rendered["token_ids"], "completion_request": body });
    let chunks = piece_by_piece(&app, &format!("{TEXT}/derender"), rendered, &more).await;
    let text: String = chunks.iter().map(|chunk| chunk["choices"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(text, whole["choices"][0]["text"].as_str().unwrap());
    for list in ["tokens", "text_offset", "token_logprobs", "top_logprobs"] {
        let pieces = chunks.iter().flat_map(|chunk| chunk["choices"][0]["logprobs"][list].as_array().unwrap().clone());
        assert_eq!(json!(pieces.collect::<Vec<_>>()), whole["choices"][0]["logprobs"][list], "{list}");
    }
    assert_eq!(
        shape(&chunks[0]),
        "id object created model choices[index text logprobs{text_offset token_logprobs tokens top_logprobs[]} \
         finish_reason stop_reason prompt_token_ids token_ids weight_versions] usage system_fingerprint metrics \
         kv_transfer_params"
            .replace(
                "top_logprobs[]",
                &shape(&json!({ "top_logprobs": chunks[0]["choices"][0]["logprobs"]["top_logprobs"] }))
            )
    );
}

#[tokio::test]
async fn streams_repeat_the_prompts_ids_where_generate_told_them() {
    let app = TestApp::new().says("hello world");
    for (path, key, prompt) in [(CHAT, "messages", messages()), (TEXT, "prompt", json!("hello"))] {
        for asks in [true, false] {
            let mut body = json!({ "temperature": 0, "stream": true, "return_token_ids": asks });
            body[key] = prompt.clone();
            let mut rendered = app.post(&format!("{path}/render"), body.clone()).await.ok();
            if let Some(only) = rendered.get_mut(0) {
                rendered = only.take();
            }
            rendered["return_token_ids"] = json!(true);
            let ids = rendered["token_ids"].clone();
            let field = if path == CHAT { "chat_request" } else { "completion_request" };
            let more = json!({ "prompt_token_ids": ids, field: body });
            let chunks = piece_by_piece(&app, &format!("{path}/derender"), rendered, &more).await;
            let told = |chunk: &Value| {
                let place = if path == CHAT { chunk } else { &chunk["choices"][0] };
                place["prompt_token_ids"].clone()
            };
            let told: Vec<Value> = chunks.iter().map(told).filter(|told| !told.is_null()).collect();
            assert_eq!(told, if asks { vec![ids] } else { Vec::new() }, "{path}");
        }
    }
}

/// Sends tokens on in events of these lengths, and the end in an event of its own.
async fn in_events(app: &TestApp, ids: &[u32], cuts: &[usize], end: Value, body: &Value) -> [String; 3] {
    let mut events = Vec::new();
    let mut rest = ids;
    for &cut in cuts {
        let (event, later) = rest.split_at(cut);
        events.push(json!({ "index": 0, "token_ids": event }));
        rest = later;
    }
    events.push(end);
    let (mut state, mut said) = (Value::Null, [const { String::new() }; 3]);
    for choice in events {
        let body = json!({ "stream": true, "stream_state": state, "generate_chunk": { "choices": [choice] },
            "chat_request": body, "prompt_token_ids": app.ids("hello") });
        let mut answer = app.post(&format!("{CHAT}/derender"), body).await.ok();
        state = answer["stream_state"].take();
        let choice = answer["chunk"]["choices"][0].take();
        for (said, key) in said.iter_mut().zip(["reasoning", "content"]) {
            said.push_str(choice["delta"][key].as_str().unwrap_or_default());
        }
        for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            said[2].push_str(call["function"]["name"].as_str().unwrap());
        }
    }
    assert_eq!(state["output_token_ids"].as_array().unwrap().len(), ids.len());
    said
}

#[tokio::test]
async fn an_end_that_comes_after_its_token_has_no_text_and_gives_what_was_held_back() {
    let policy = ToolPolicy {
        parser: ToolParser::named("hermes"),
        auto: true,
        reasoning: ReasoningParser::named("deepseek_r1"),
        ..ToolPolicy::default()
    };
    let app = TestApp::new().tools(policy);
    let tools = json!([{ "type": "function", "function": { "name": "f" } }]);
    let body = json!({ "messages": messages(), "tools": tools });
    let stop = json!({ "index": 0, "token_ids": [], "finish_reason": "stop" });
    let length = json!({ "index": 0, "token_ids": [], "finish_reason": "length" });
    let by_id = json!({ "index": 0, "token_ids": [], "finish_reason": "stop", "stop_reason": ENDOFTEXT });
    for (text, last, end, reasoning, content, calls) in [
        ("hello world", Some(IM_END), &stop, "hello world", "", ""),
        ("hello</think>you", Some(IM_END), &stop, "hello", "you", ""),
        ("hello</think>you", Some(ENDOFTEXT), &by_id, "hello", "you", ""),
        // What may be the beginning of a mark is held back until the end.
        ("hello</thi", Some(IM_END), &stop, "hello</thi", "", ""),
        ("a</think>b<tool_", None, &length, "a", "b<tool_", ""),
        ("a</think><tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", Some(IM_END), &stop, "a", "", "f"),
    ] {
        let ids: Vec<u32> = app.ids(text).into_iter().chain(last).collect();
        let one_by_one = vec![1; ids.len()];
        for cuts in [&[ids.len()][..], &[ids.len() - 1, 1], &one_by_one] {
            let said = in_events(&app, &ids, cuts, end.clone(), &body).await;
            assert_eq!(said, [reasoning, content, calls], "{text} {last:?} {cuts:?}");
        }
    }
    // Where it ends nothing, it has its text, whatever follows.
    let ids: Vec<u32> = app.ids("a</think>b").into_iter().chain([IM_END]).chain(app.ids("you")).collect();
    let ignores = json!({ "messages": messages(), "tools": tools, "ignore_eos": true });
    let one_by_one = vec![1; ids.len()];
    let split = in_events(&app, &ids, &one_by_one, length.clone(), &ignores).await;
    assert_eq!(split, in_events(&app, &ids, &[ids.len()], length.clone(), &ignores).await);
    assert!(split[1].contains("<|im_end|>"), "{split:?}");
    assert_eq!(in_events(&app, &ids, &one_by_one, length, &body).await, split);
}

#[tokio::test]
async fn a_long_prompt_that_ended_its_thoughts_early_is_followed_by_content() {
    let reasoning = ReasoningParser::named("deepseek_r1");
    let app = TestApp::new().tools(ToolPolicy { reasoning, ..ToolPolicy::default() });
    for (mark, place, other) in [("</think>", "content", "reasoning"), ("<think>", "reasoning", "content")] {
        let (prompt, mut state) = (app.ids(&format!("hello{mark}{}", " you".repeat(40))), Value::Null);
        for word in [" hello", " world"] {
            let chunk = json!({ "choices": [{ "index": 0, "token_ids": app.ids(word) }] });
            let body = json!({ "stream": true, "stream_state": state, "generate_chunk": chunk,
                "chat_request": { "messages": messages() }, "prompt_token_ids": prompt });
            let mut answer = app.post(&format!("{CHAT}/derender"), body).await.ok();
            state = answer["stream_state"].take();
            let delta = &answer["chunk"]["choices"][0]["delta"];
            assert_eq!((&delta[place], &delta[other]), (&json!(word), &Value::Null), "{mark}");
        }
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
        (after_stop, "the tokens go on behind the end of the text"),
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
