//! Derenders of streams: each event says what the stream itself would have said.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tito::{
    parser::{ReasoningParser, ToolParser},
    turn::ToolPolicy,
};

use crate::it::app::{ENDOFTEXT, IM_END, TestApp, shape};

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";
const GENERATE: &str = "/inference/v1/generate";

fn messages() -> Value {
    json!([{ "role": "user", "content": "hello" }])
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
            "prompt_token_ids": rendered["token_ids"], "prompt_tokens": whole["usage"]["prompt_tokens"],
            "chat_request": body, "model": "tiny"
        });
        let mut chunks = piece_by_piece(&app, &format!("{CHAT}/derender"), rendered, &more).await;
        let last = chunks.pop().unwrap();
        assert_eq!(
            shape(&last),
            "id object created model choices usage{prompt_tokens total_tokens completion_tokens prompt_tokens_details \
             completion_tokens_details} system_fingerprint prompt_token_ids prompt_text metrics kv_transfer_params"
        );
        assert_eq!(last["usage"]["completion_tokens"], whole["usage"]["completion_tokens"]);
        assert_eq!(last["usage"]["prompt_tokens"], whole["usage"]["prompt_tokens"]);
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
async fn the_first_event_has_the_role_and_the_text_that_is_repeated() {
    let app = TestApp::new().says("hello world");
    let begun = json!([{ "role": "user", "content": "hello" }, { "role": "assistant", "content": "I say" }]);
    let continues =
        json!({ "messages": begun, "continue_final_message": true, "add_generation_prompt": false, "echo": true });
    let as_user = json!({ "messages": messages(), "add_generation_prompt": false });
    for mut body in [continues, as_user] {
        body["temperature"] = json!(0);
        let whole = app.post(CHAT, body.clone()).await.ok();
        let message = &whole["choices"][0]["message"];
        body["stream"] = json!(true);
        let rendered = app.post(&format!("{CHAT}/render"), body.clone()).await.ok();
        let more = json!({ "prompt_token_ids": rendered["token_ids"], "chat_request": body });
        let chunks = piece_by_piece(&app, &format!("{CHAT}/derender"), rendered, &more).await;
        let deltas = || chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]);
        let roles: Vec<&Value> = deltas().map(|delta| &delta["role"]).filter(|role| !role.is_null()).collect();
        assert_eq!(roles, [&message["role"]], "{body}");
        let text: String = deltas().filter_map(|delta| delta["content"].as_str()).collect();
        assert_eq!(text, message["content"].as_str().unwrap(), "{body}");
    }
}

/// Texts that vLLM's readers were recorded on.
const RECORDED: [&str; 2] =
    [include_str!("../../golden/parser/more_tools.jsonl"), include_str!("../../golden/parser/tools.jsonl")];
/// Of one format, so many at the most: each takes a request for every token.
const MOST_RECORDED: usize = 2;
/// Texts within a call and after it, which formats without such a place in a call say before it or after it.
const TEXTS_IN_CALLS: [(&str, &str); 4] = [
    ("qwen3_coder", "Hi <tool_call>\n<function=f>\n# comment\n</function>\n</tool_call>\n"),
    ("qwen3_coder", "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\nnote</function>\n</tool_call>\nDone."),
    ("glm45", "<tool_call>f\nnote<arg_key>a</arg_key><arg_value>1</arg_value>more</tool_call>\nDone."),
    ("minimax_m2", "<minimax:tool_call><invoke name=\"f\">note</invoke>more</minimax:tool_call>\nDone."),
];

/// The recorded texts of each format that make calls and say something besides.
fn texts_with_calls() -> BTreeMap<String, Vec<String>> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in RECORDED.iter().flat_map(|lines| lines.lines()) {
        let record: Value = serde_json::from_str(line).unwrap();
        let [format, text] = ["tool_parser", "text"].map(|key| record[key].as_str().unwrap().to_owned());
        let says = record["content"].as_str().is_some_and(|content| !content.trim().is_empty());
        let of_format = texts.entry(format).or_default();
        if says && record["calls"][0].is_array() && text.len() < 160 && of_format.len() < MOST_RECORDED {
            of_format.push(text);
        }
    }
    for (format, text) in TEXTS_IN_CALLS {
        texts.entry(format.to_owned()).or_default().push(text.to_owned());
    }
    texts
}

#[tokio::test]
async fn texts_around_calls_are_derendered_token_by_token_as_in_one_piece() {
    let tools = json!([{ "type": "function", "function": { "name": "f" } }]);
    let body = json!({ "messages": messages(), "tools": tools });
    let mut compared = 0;
    for (format, texts) in texts_with_calls() {
        let policy = ToolPolicy { parser: ToolParser::named(&format), auto: true, ..ToolPolicy::default() };
        let app = TestApp::new().tools(policy);
        for text in texts {
            let ids = app.ids(&text);
            let choice = json!({ "index": 0, "token_ids": ids, "finish_reason": "length" });
            let given = json!({ "request_id": "x", "choices": [choice] });
            let whole =
                json!({ "generate_response": given, "chat_request": body, "prompt_token_ids": app.ids("hello") });
            let whole = app.post(&format!("{CHAT}/derender"), whole).await.ok();
            let message = &whole["choices"][0]["message"];
            let names = message["tool_calls"].as_array().into_iter().flatten();
            let names: String = names.map(|call| call["function"]["name"].as_str().unwrap()).collect();
            let whole = ["reasoning", "content"].map(|key| message[key].as_str().unwrap_or_default().to_owned());
            let length = json!({ "index": 0, "token_ids": [], "finish_reason": "length" });
            let said = in_events(&app, &ids, &vec![1; ids.len()], length, &body).await;
            assert_eq!((&said[..2], &said[2]), (&whole[..], &names), "{format} {text}");
            compared += 1;
        }
    }
    assert!(compared > 20, "{compared}");
}

#[tokio::test]
async fn the_usage_of_a_stream_says_how_much_was_reasoning() {
    let reasoning = ReasoningParser::named("deepseek_r1");
    let app = TestApp::new().tools(ToolPolicy { reasoning, ..ToolPolicy::default() });
    for app in [app.says("I think</think>so"), TestApp::new().says("hello")] {
        let mut body = json!({ "messages": messages(), "temperature": 0 });
        let whole = app.post(CHAT, body.clone()).await.ok();
        body["stream"] = json!(true);
        body["stream_options"] = json!({ "include_usage": true });
        let rendered = app.post(&format!("{CHAT}/render"), body.clone()).await.ok();
        let more = json!({ "prompt_token_ids": rendered["token_ids"], "chat_request": body });
        let chunks = piece_by_piece(&app, &format!("{CHAT}/derender"), rendered, &more).await;
        let usage = &chunks.last().unwrap()["usage"];
        assert_eq!(usage["completion_tokens_details"], whole["usage"]["completion_tokens_details"], "{usage}");
    }
}

#[tokio::test]
async fn a_stream_that_repeats_its_message_goes_through_ids_whatever_its_log_probs() {
    let begun = json!([{ "role": "user", "content": "hello" }, { "role": "assistant", "content": "I say" }]);
    for top in [0, 2] {
        let app = TestApp::new().says("hello world");
        let body = json!({ "messages": begun, "continue_final_message": true, "add_generation_prompt": false,
            "echo": true, "logprobs": true, "top_logprobs": top, "temperature": 0, "stream": true });
        assert_eq!(app.post(CHAT, body.clone()).await.status, 200);
        let rendered = app.post(&format!("{CHAT}/render"), body.clone()).await.ok();
        let more = json!({ "prompt_token_ids": rendered["token_ids"], "chat_request": body });
        let chunks = piece_by_piece(&app, &format!("{CHAT}/derender"), rendered, &more).await;
        let content = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str());
        assert_eq!(content.collect::<String>(), "I sayhello world");
    }
}
