//! `/v1/responses`: shapes, streams, what is stored, and ids, which are a chat's for the same conversation.

use axum::{body::Body, http::Request};
use serde_json::{Value, json};
use tito::{
    TokenId,
    parser::{ReasoningParser, ToolParser},
    turn::ToolPolicy,
};

use crate::it::app::{Answer, IM_END, TestApp};

pub(super) const PATH: &str = "/v1/responses";
const CALL: &str =
    "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\":\"Køge\",\"days\":[1.0,2]}}\n</tool_call>";
pub(super) const ID_FIELDS: [&str; 3] = ["prompt_token_ids", "generation_token_ids", "generation_log_probs"];

/// A body with `more` in it.
pub(super) fn with(mut body: Value, more: &Value) -> Value {
    body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
    body
}

pub(super) async fn create(app: &TestApp, body: Value) -> Value {
    app.post(PATH, body).await.ok()
}

pub(super) async fn call(app: &TestApp, method: &str, path: &str) -> Answer {
    app.request(Request::builder().method(method).uri(path).body(Body::empty()).unwrap()).await
}

/// The events of a stream, whose numbers and names are checked.
pub(super) fn events(answer: &Answer) -> Vec<Value> {
    events_from(answer, 0)
}

/// The events of a stream from number `first` on.
pub(super) fn events_from(answer: &Answer, first: usize) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", answer.text);
    let frames = answer.text.split_terminator("\n\n").zip(first..).map(|(frame, number)| {
        let (name, data) = frame.split_once('\n').unwrap();
        let event: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(name.strip_prefix("event: ").unwrap(), event["type"]);
        assert_eq!(event["sequence_number"], json!(number));
        event
    });
    frames.collect()
}

pub(super) async fn streamed(app: &TestApp, body: &Value) -> Vec<Value> {
    events(&app.post(PATH, with(body.clone(), &json!({ "stream": true }))).await)
}

/// What differs from answer to answer.
fn masked(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(masked).collect(),
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| {
                let random = matches!(key.as_str(), "id" | "created_at" | "call_id" | "item_id");
                (key.clone(), if random { Value::Null } else { masked(value) })
            };
            fields.iter().map(field).collect()
        }
        value => value.clone(),
    }
}

/// The output that the events of a stream tell of, from their deltas.
fn told(events: &[Value]) -> Vec<Value> {
    let mut items: Vec<Value> = Vec::new();
    for event in events {
        let index = event["output_index"].as_u64().map_or(0, |index| usize::try_from(index).unwrap());
        let kind = event["type"].as_str().unwrap();
        match kind.strip_prefix("response.").unwrap() {
            "output_item.added" => {
                assert_eq!(index, items.len());
                items.push(event["item"].clone());
            }
            "content_part.added" => items[index]["content"].as_array_mut().unwrap().push(event["part"].clone()),
            "output_text.delta" | "reasoning_text.delta" => {
                assert_eq!(event["item_id"], items[index]["id"]);
                extend(&mut items[index]["content"][0]["text"], &event["delta"]);
            }
            "function_call_arguments.delta" => extend(&mut items[index]["arguments"], &event["delta"]),
            "custom_tool_call_input.delta" => extend(&mut items[index]["input"], &event["delta"]),
            "output_text.done" | "reasoning_text.done" => {
                assert_eq!(event["text"], items[index]["content"][0]["text"]);
            }
            "content_part.done" => assert_eq!(event["part"]["text"], items[index]["content"][0]["text"]),
            "output_item.done" => assert_eq!(event["item"]["id"], items[index]["id"]),
            _ => {}
        }
    }
    items
}

fn extend(text: &mut Value, delta: &Value) {
    *text = json!(text.as_str().unwrap().to_owned() + delta.as_str().unwrap());
}

pub(super) fn tools() -> Value {
    json!([{ "type": "function", "name": "weather", "parameters": { "type": "object" } }])
}

pub(super) fn reading() -> TestApp {
    let parser = ToolParser::named("hermes");
    TestApp::new().tools(ToolPolicy {
        parser,
        auto: true,
        reasoning: ReasoningParser::named("deepseek_r1"),
        ..ToolPolicy::default()
    })
}

#[tokio::test]
async fn a_response_has_the_shape_of_vllms() {
    let app = TestApp::new().says("Hello there");
    let body = json!({ "input": "Hi", "temperature": 0, "metadata": { "k": "v" }, "user": "u" });
    let response = create(&app, body).await;
    assert!(response["id"].as_str().unwrap().starts_with("resp_"));
    assert!(response["output"][0]["id"].as_str().unwrap().starts_with("msg_"));
    let usage = json!({
        "input_tokens": response["usage"]["input_tokens"],
        "input_tokens_details": {
            "cached_tokens": 0, "cache_write_tokens": 0, "input_tokens_per_turn": [], "cached_tokens_per_turn": [],
        },
        "output_tokens": app.ids("Hello there").len() + 1,
        "output_tokens_details": {
            "reasoning_tokens": 0, "tool_output_tokens": 0, "output_tokens_per_turn": [],
            "tool_output_tokens_per_turn": [],
        },
        "total_tokens": response["usage"]["total_tokens"],
    });
    let part = json!({ "annotations": [], "text": "Hello there", "type": "output_text", "logprobs": null });
    let wanted = json!({
        "id": null, "created_at": null, "incomplete_details": null, "instructions": null, "metadata": { "k": "v" },
        "model": "tiny", "object": "response",
        "output": [{
            "id": null, "content": [part], "role": "assistant", "status": "completed", "type": "message", "phase": null,
        }],
        "parallel_tool_calls": true, "temperature": 0.0, "tool_choice": "none", "tools": [], "top_p": 1.0,
        "background": false, "max_output_tokens": 4096 - response["usage"]["input_tokens"].as_u64().unwrap(),
        "max_tool_calls": null, "previous_response_id": null, "prompt": null, "prompt_cache_options": null,
        "prompt_cache_key": null, "prompt_cache_retention": null, "reasoning": null, "safety_identifier": null,
        "service_tier": "auto", "status": "completed", "text": null, "top_logprobs": null, "truncation": "disabled",
        "usage": usage, "user": "u", "presence_penalty": 0.0, "frequency_penalty": 0.0, "kv_transfer_params": null,
        "ec_transfer_params": null, "input_messages": null, "output_messages": null,
    });
    assert_eq!(masked(&response), wanted);
}

#[tokio::test]
async fn a_response_that_is_cut_off_says_so() {
    let app = TestApp::new().says("Hello there, my friend");
    let response = create(&app, json!({ "input": "Hi", "max_output_tokens": 2 })).await;
    assert_eq!(response["status"], "incomplete");
    assert_eq!(response["incomplete_details"], json!({ "reason": "max_output_tokens" }));
    assert_eq!((&response["max_output_tokens"], &response["usage"]["output_tokens"]), (&json!(2), &json!(2)));
    assert_eq!(response["output"][0]["status"], "incomplete");
    let events = streamed(&app, &json!({ "input": "Hi", "max_output_tokens": 2 })).await;
    let last = &events[events.len() - 1];
    assert_eq!((&last["type"], &last["response"]["status"]), (&json!("response.incomplete"), &json!("incomplete")));
    assert_eq!(masked(&last["response"]), masked(&response));
    let item = events.iter().find(|event| event["type"] == "response.output_item.done").unwrap();
    assert_eq!(item["item"]["status"], "incomplete");
}

#[tokio::test]
async fn an_answer_that_went_round_in_circles_is_incomplete() {
    let app = TestApp::new();
    let ids = app.ids("hello");
    let app = app.script(ids.into_iter().cycle().take(20));
    let looping = json!({ "max_pattern_size": 1, "min_count": 4 });
    let response = create(&app, json!({ "input": "Hi", "repetition_detection": looping })).await;
    assert_eq!(response["status"], "incomplete");
    assert_eq!(response["incomplete_details"], json!({ "reason": "repetition" }));
    assert_eq!(response["output"][0]["status"], "incomplete");
}

#[tokio::test]
async fn more_tokens_than_the_context_has_are_refused() {
    let app = TestApp::new().says("Hello there");
    let refused = app.post(PATH, json!({ "input": "Hi", "max_output_tokens": 1_000_000 })).await;
    assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("max_output_tokens")), "{}", refused.text);
}

#[tokio::test]
async fn only_the_last_item_of_a_response_that_is_cut_off_is_incomplete() {
    let text = format!("I think.</think>Let me see.{CALL}");
    let app = reading();
    let ids = app.ids(&text);
    let body = json!({ "input": "Hi", "tools": tools(), "max_output_tokens": ids.len() });
    let response = create(&app.script(ids), body).await;
    let statuses: Vec<_> = response["output"].as_array().unwrap().iter().map(|item| item["status"].clone()).collect();
    assert_eq!(statuses, [Value::Null, json!("completed"), json!("incomplete")]);
}

#[tokio::test]
async fn what_a_request_says_of_caches_and_its_user_comes_back() {
    let app = TestApp::new().says("Hello there");
    let body = json!({
        "input": "Hi", "prompt_cache_key": "k", "prompt_cache_options": { "prewarm": true },
        "prompt_cache_retention": "in-memory", "safety_identifier": "s",
    });
    let response = create(&app, body).await;
    let options = json!({ "mode": "implicit", "ttl": "30m", "comparison_response_id": null });
    assert_eq!((&response["prompt_cache_key"], &response["prompt_cache_options"]), (&json!("k"), &options));
    assert_eq!(response["prompt_cache_retention"], "in_memory");
    assert_eq!(response["safety_identifier"], "s");
    for (field, value) in [("prompt_cache_retention", json!("1h")), ("prompt_cache_options", json!({ "ttl": "1h" }))] {
        let answer = app.post("/v1/responses", json!({ "input": "Hi", field: value })).await;
        assert_eq!(answer.status, 400, "{field}");
    }
}

#[tokio::test]
async fn a_stream_folds_to_the_json_answer() {
    let custom = json!([{ "type": "custom", "name": "shell" }]);
    let shell = r#"<tool_call>{"name": "shell", "arguments": {"input": "ls \"x\""}}</tool_call>"#;
    let texts = [
        ("Hello there", json!({})),
        ("", json!({})),
        ("I think.</think>So it is.", json!({})),
        ("I think.</think>", json!({})),
        (&format!("I think.</think>{CALL}{CALL}"), json!({ "tools": tools() })),
        (&format!("</think>Let me see.{CALL}"), json!({ "tools": tools() })),
        (&format!("</think>{shell}"), json!({ "tools": custom })),
    ]
    .map(|(text, more)| (text.to_owned(), more));
    for (text, more) in texts {
        for ids in [false, true] {
            let app = reading().says(&text);
            let include = if ids { json!(["token_ids", "message.output_text.logprobs"]) } else { json!([]) };
            let body = with(json!({ "input": "Hi", "include": include, "top_logprobs": 1 }), &more);
            let whole = create(&app, body.clone()).await;
            let events = streamed(&app, &body).await;
            let kinds = [&events[0], &events[1], &events[events.len() - 1]].map(|event| event["type"].clone());
            assert_eq!(kinds, ["response.created", "response.in_progress", "response.completed"]);
            let last = &events[events.len() - 1]["response"];
            assert_eq!(masked(last), masked(&whole), "{text}");
            let done: Vec<_> = events.iter().filter(|event| event["type"] == "response.output_item.done").collect();
            let done: Vec<_> = done.iter().map(|event| event["item"].clone()).collect();
            assert_eq!(json!(done), last["output"], "{text}");
            let told = told(&events);
            assert_eq!(told.len(), done.len());
            for (told, done) in told.iter().zip(&done) {
                let said =
                    |item: &Value| [&item["content"][0]["text"], &item["arguments"], &item["input"]].map(Clone::clone);
                assert_eq!((said(told), &told["id"]), (said(done), &done["id"]), "{text}");
            }
        }
    }
}

#[tokio::test]
async fn items_stand_in_the_order_of_reasoning_message_calls() {
    let app = reading().says(&format!("I think.</think>Let me see.{CALL}"));
    let response = create(&app, json!({ "input": "Hi", "tools": tools() })).await;
    let kinds: Vec<_> = response["output"].as_array().unwrap().iter().map(|item| item["type"].clone()).collect();
    assert_eq!(kinds, ["reasoning", "message", "function_call"]);
    let [reasoning, message, call] = [0, 1, 2].map(|index| &response["output"][index]);
    assert_eq!(reasoning["content"], json!([{ "type": "reasoning_text", "text": "I think." }]));
    assert_eq!(message["content"][0]["text"], "Let me see.");
    assert_eq!((&call["name"], &call["status"]), (&json!("weather"), &json!("completed")));
    assert_eq!(call["arguments"], "{\"city\": \"Køge\", \"days\": [1.0, 2]}");
    assert!(call["id"].as_str().unwrap().starts_with("fc_"));
    assert!(response["usage"]["output_tokens_details"]["reasoning_tokens"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn ids_are_on_the_last_item_if_they_are_asked_for() {
    let text = format!("I think.</think>{CALL}");
    let asks = [json!({ "include": ["token_ids"] }), json!({ "return_token_ids": true }), json!({})];
    for (index, ask) in asks.iter().enumerate() {
        for by_flag in [false, true] {
            let app = reading().policy(|policy| policy.return_tokens_as_token_ids = by_flag).says(&text);
            let response = create(&app, with(json!({ "input": "Hi", "tools": tools() }), ask)).await;
            let [first, last] = [0, 1].map(|index| response["output"][index].as_object().unwrap());
            assert!(ID_FIELDS.iter().all(|field| !first.contains_key(*field)));
            if index == 2 && !by_flag {
                assert!(ID_FIELDS.iter().all(|field| !last.contains_key(*field)));
                continue;
            }
            let sampled: Vec<TokenId> = app.ids(&text).into_iter().chain([IM_END]).collect();
            assert_eq!(last["generation_token_ids"], json!(sampled));
            assert_eq!(last["generation_log_probs"].as_array().unwrap().len(), sampled.len());
            assert_eq!(last["prompt_token_ids"].as_array().unwrap().len() as u64, response["usage"]["input_tokens"]);
            assert_eq!(response["token_continuity"]["outcome"], "fresh");
        }
    }
}

#[tokio::test]
async fn a_stored_response_is_continued_from_its_ids_though_nobody_asked_for_them() {
    let app = TestApp::new().continuity(|policy| policy.memory = None);
    let letters: Vec<TokenId> = "Hello Bob".chars().flat_map(|letter| app.ids(&letter.to_string())).collect();
    assert_ne!(letters, app.ids("Hello Bob"));
    let app = app.script(letters.iter().copied().chain([IM_END]));
    let first = create(&app, json!({ "input": "I am Bob.", "instructions": "Be brief." })).await;
    assert!(first["output"][0].get("generation_token_ids").is_none());
    let body = json!({ "input": "Who am I?", "previous_response_id": first["id"], "include": ["token_ids"] });
    let second = create(&app, body).await;
    assert_eq!(second["token_continuity"]["outcome"], "exact");
    assert_eq!(second["instructions"], "Be brief.");
    assert_eq!(second["previous_response_id"], first["id"]);
    let prompt: Vec<TokenId> = serde_json::from_value(second["output"][0]["prompt_token_ids"].clone()).unwrap();
    assert!(prompt.windows(letters.len()).any(|window| window == letters));
}

#[tokio::test]
async fn other_instructions_begin_the_conversation_anew() {
    let app = TestApp::new().says("Hello Bob");
    let first = create(&app, json!({ "input": "I am Bob.", "instructions": "Be brief." })).await;
    let body = json!({
        "input": "Who am I?", "previous_response_id": first["id"], "instructions": "Be long.", "include": ["token_ids"],
    });
    let second = create(&app, body).await;
    let chat = json!({ "messages": [
        { "role": "system", "content": "Be long." }, { "role": "user", "content": "I am Bob." },
        { "role": "assistant", "content": "Hello Bob" }, { "role": "user", "content": "Who am I?" },
    ] });
    let honest = app.post("/tokenize", chat).await.ok();
    assert_eq!(second["output"][0]["prompt_token_ids"], honest["tokens"]);
    assert_ne!(second["token_continuity"]["outcome"], "exact");
}

#[tokio::test]
async fn items_of_the_model_that_follow_each_other_are_one_message() {
    let app = TestApp::new().says("x");
    let ids = |body: Value| async {
        create(&app, with(body, &json!({ "return_token_ids": true }))).await["output"][0]["prompt_token_ids"].clone()
    };
    let items = json!([
        { "role": "user", "content": "Hi" },
        { "type": "reasoning", "id": "rs_1", "summary": [{ "type": "summary_text", "text": "hm" }] },
        { "type": "message", "role": "assistant", "content": [
            { "type": "output_text", "text": "He" }, { "type": "output_text", "text": "llo" },
        ] },
        { "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}" },
        { "type": "function_call_output", "call_id": "c", "output": [{ "type": "input_text", "text": "5" }] },
    ]);
    let messages = json!({ "messages": [
        { "role": "user", "content": "Hi" },
        { "role": "assistant", "reasoning": "hm", "content": "Hello",
          "tool_calls": [{ "id": "c", "type": "function", "function": { "name": "f", "arguments": "{}" } }] },
        { "role": "tool", "tool_call_id": "c", "content": [{ "type": "text", "text": "5" }] },
    ] });
    assert_eq!(ids(json!({ "input": items })).await, app.post("/tokenize", messages).await.ok()["tokens"]);
}

/// A first turn whose answer is spelt letter by letter, as an item with `text` and the turn's ids, and its ids.
async fn answered(app: &TestApp, text: &str) -> (Value, Vec<Value>) {
    let user = json!({ "messages": [{ "role": "user", "content": "Hi" }] });
    let prompt = app.post("/tokenize", user).await.ok()["tokens"].clone();
    let sampled: Vec<TokenId> = text.chars().flat_map(|letter| app.ids(&letter.to_string())).chain([IM_END]).collect();
    let known = [prompt.as_array().unwrap().clone(), sampled.iter().map(|id| json!(id)).collect()].concat();
    let item = json!({
        "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": text }],
        "prompt_token_ids": prompt, "generation_token_ids": sampled, "generation_log_probs": [],
    });
    (item, known)
}

/// The prompt of an answer to `items`, and the verdict on it.
async fn prompted(app: &TestApp, items: Value) -> (Vec<Value>, Value) {
    let response = create(app, json!({ "input": items, "return_token_ids": true })).await;
    let prompt = response["output"][0]["prompt_token_ids"].as_array().unwrap().clone();
    (prompt, response["token_continuity"].clone())
}

#[tokio::test]
async fn the_last_ids_count() {
    let app = TestApp::new().says("x").continuity(|policy| policy.memory = None);
    let (item, known) = answered(&app, "Hello").await;
    let items = json!([
        { "role": "user", "content": "Hi" },
        { "type": "reasoning", "id": "rs_1", "summary": [], "prompt_token_ids": [1], "generation_token_ids": [2] },
        item,
        { "role": "user", "content": "Go on" },
    ]);
    let (prompt, verdict) = prompted(&app, items).await;
    assert_eq!((&verdict["outcome"], &verdict["warnings"]), (&json!("exact"), &json!(["chain_broken"])));
    assert_eq!(prompt[..known.len()], known[..]);
}

#[tokio::test]
async fn items_with_the_same_ids_are_one_message() {
    let app = TestApp::new().says("x").continuity(|policy| policy.memory = None);
    let (item, known) = answered(&app, "Hello").await;
    let mut thought = item.clone();
    (thought["type"], thought["content"]) = (json!("reasoning"), Value::Null);
    let go_on = json!({ "role": "user", "content": "Go on" });
    let (alone, _) = prompted(&app, json!([{ "role": "user", "content": "Hi" }, item, go_on])).await;
    let (prompt, verdict) = prompted(&app, json!([{ "role": "user", "content": "Hi" }, thought, item, go_on])).await;
    assert_eq!((&verdict["outcome"], &verdict["warnings"]), (&json!("exact"), &json!([])));
    assert_eq!(prompt, alone);
    assert_eq!(prompt[..known.len()], known[..]);
}

#[tokio::test]
async fn what_stands_behind_the_ids_is_not_lost() {
    let app = TestApp::new().says("x").continuity(|policy| policy.memory = None);
    let (item, known) = answered(&app, "Hello").await;
    let items = json!([
        { "role": "user", "content": "Hi" }, item,
        { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "Said by a harness." }] },
        { "role": "user", "content": "Go on" },
    ]);
    let (prompt, verdict) = prompted(&app, items).await;
    assert_eq!(verdict["outcome"], "partial");
    assert_eq!(prompt[..known.len()], known[..]);
    let after = app.post("/detokenize", json!({ "tokens": prompt[known.len()..] })).await.ok()["prompt"].clone();
    assert!(after.as_str().unwrap().contains("Said by a harness."), "{after}");
}

#[tokio::test]
async fn a_response_is_there_until_it_is_deleted() {
    let app = TestApp::new().says("Hello");
    let response = create(&app, json!({ "input": "Hi" })).await;
    let path = format!("{PATH}/{}", response["id"].as_str().unwrap());
    assert_eq!(app.get(&path).await.ok(), response);
    let list = app.get(&format!("{path}/input_items")).await.ok();
    let part = json!({ "type": "input_text", "text": "Hi" });
    assert_eq!(list["data"][0]["content"], json!([part]));
    assert_eq!((&list["first_id"], &list["has_more"]), (&list["data"][0]["id"], &json!(false)));
    let cancelled = call(&app, "POST", &format!("{path}/cancel")).await;
    assert_eq!(
        (cancelled.status, &cancelled.error()["message"]),
        (400, &json!("Cannot cancel a synchronous response."))
    );
    assert_eq!(
        call(&app, "DELETE", &path).await.ok(),
        json!({ "id": response["id"], "object": "response", "deleted": true })
    );
    for (method, path) in [("GET", path.clone()), ("DELETE", path.clone()), ("POST", format!("{path}/cancel"))] {
        let gone = call(&app, method, &path).await;
        let id = response["id"].as_str().unwrap();
        let message = format!("Response with id '{id}' not found.");
        assert_eq!(
            gone.error(),
            json!({
                "message": message, "type": "invalid_request_error", "param": "response_id", "code": 404,
            })
        );
    }
    let body = json!({ "input": "Hi", "previous_response_id": response["id"] });
    assert_eq!(app.post(PATH, body).await.status, 404);
}

#[tokio::test]
async fn what_is_not_to_be_stored_is_not() {
    let app = TestApp::new().says("Hello");
    let response = create(&app, json!({ "input": "Hi", "store": false })).await;
    assert_eq!(app.get(&format!("{PATH}/{}", response["id"].as_str().unwrap())).await.status, 404);
    let both = app.post(PATH, json!({ "input": "Hi", "store": false, "background": true })).await;
    assert_eq!((both.status, &both.error()["param"]), (400, &json!("background")));
}

#[tokio::test]
async fn custom_tools_have_text_as_their_format_and_other_fields_have_vllms_values() {
    let app = TestApp::new().says("hello");
    let with = |more: Value| {
        let mut body = json!({ "input": "hello" });
        body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        body
    };
    let custom = |format: Value| with(json!({ "tools": [{ "type": "custom", "name": "x", "format": format }] }));
    for body in [
        custom(Value::Null),
        custom(json!({ "type": "text" })),
        with(json!({ "mm_payload": "none" })),
        with(json!({ "mm_payload": "tensors", "return_mm_kwargs": false })),
    ] {
        let answer = app.post(PATH, body.clone()).await;
        assert_eq!(answer.status, 200, "{body}: {}", answer.text);
    }
    for (body, param) in [
        (custom(json!("text")), "tools[0]"),
        (custom(json!({})), "tools[0]"),
        (custom(json!([])), "tools[0]"),
        (custom(json!({ "type": "grammar", "syntax": "abnf", "definition": "" })), "tools[0]"),
        (custom(json!({ "type": "grammar", "syntax": "lark" })), "tools[0]"),
        (with(json!({ "mm_payload": "source" })), "body.mm_payload"),
        (with(json!({ "mm_payload": null })), "body.mm_payload"),
    ] {
        let answer = app.post(PATH, body.clone()).await;
        assert_eq!((answer.status, &answer.error()["param"]), (400, &json!(param)), "{body}: {}", answer.text);
    }
}
