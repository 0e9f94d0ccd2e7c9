//! `POST /v1/messages` and `/v1/messages/count_tokens`: the same ids as a chat, and a stream that adds up to the answer.

use axum::http::header;
use expect_test::expect;
use serde_json::{Value, json};
use tito::{
    parser::{ReasoningParser, ToolParser},
    turn::ToolPolicy,
};

use crate::it::app::{Answer, IM_END, MODEL, TestApp};

const PATH: &str = "/v1/messages";
const CHAT: &str = "/v1/chat/completions";
const COUNT: &str = "/v1/messages/count_tokens";
const THOUGHT: &str = "<think>\nhello you\n</think>\n\n";
const CALL: &str = r#"<tool_call>{"name": "weather", "arguments": {"city": "Køge", "days": [1.0, 2]}}</tool_call>"#;
const OTHER: &str = r#"<tool_call>{"name": "time", "arguments": {}}</tool_call>"#;

fn with(mut body: Value, more: &Value) -> Value {
    body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
    body
}

fn asking(more: &Value) -> Value {
    let messages = json!([{ "role": "user", "content": "hello" }]);
    with(json!({ "model": MODEL, "max_tokens": 400, "messages": messages }), more)
}

fn tools() -> Value {
    let tool = |name| json!({ "name": name, "description": "It is.", "input_schema": { "type": "object" } });
    json!([tool("weather"), tool("time")])
}

fn chat_tools() -> Value {
    let tool = |name| {
        let function = json!({ "name": name, "description": "It is.", "parameters": { "type": "object" } });
        json!({ "type": "function", "function": function })
    };
    json!([tool("weather"), tool("time")])
}

/// A server that reads thoughts and calls, whose model writes each of `texts` in one token for each character, which is
/// not how they encode.
fn spelled(texts: &[&str]) -> TestApp {
    let app = TestApp::new().tools(ToolPolicy {
        parser: ToolParser::named("hermes"),
        auto: true,
        reasoning: ReasoningParser::named("qwen3"),
        ..ToolPolicy::default()
    });
    texts.iter().fold(app, |app, text| {
        let ids = app.spelled(text);
        app.script(ids.into_iter().chain([IM_END]))
    })
}

/// The events of a stream, each under its own name.
fn events(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.headers[header::CONTENT_TYPE], "text/event-stream; charset=utf-8");
    let frames = answer.text.strip_suffix("\n\n").unwrap().split("\n\n");
    let event = |frame: &str| {
        let (name, data) = frame.strip_prefix("event: ").unwrap().split_once("\ndata: ").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["type"], name);
        data
    };
    frames.map(event).collect()
}

fn append(text: &mut Value, more: &Value) {
    *text = json!(text.as_str().unwrap_or_default().to_owned() + more.as_str().unwrap());
}

/// The message that events add up to, as Anthropic's clients do it.
fn folded(events: &[Value]) -> Value {
    let mut message = events[0]["message"].clone();
    assert_eq!((&message["stop_reason"], &message["content"]), (&Value::Null, &json!([])));
    let mut inputs: Vec<String> = Vec::new();
    let mut open = None;
    for event in &events[1..] {
        let index = event["index"].as_u64().map(|index| usize::try_from(index).unwrap());
        let content = message["content"].as_array_mut().unwrap();
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                assert_eq!((open, index), (None, Some(content.len())));
                content.push(event["content_block"].clone());
                inputs.push(String::new());
                open = index;
            }
            "content_block_delta" => {
                assert_eq!(index, open);
                let (block, delta) = (&mut content[index.unwrap()], &event["delta"]);
                match delta["type"].as_str().unwrap() {
                    "text_delta" => append(&mut block["text"], &delta["text"]),
                    "thinking_delta" => append(&mut block["thinking"], &delta["thinking"]),
                    "signature_delta" => block["signature"] = delta["signature"].clone(),
                    "input_json_delta" => inputs[index.unwrap()].push_str(delta["partial_json"].as_str().unwrap()),
                    other => panic!("{other}"),
                }
            }
            "content_block_stop" => {
                assert_eq!(index, open.take());
                let input = &inputs[index.unwrap()];
                if !input.is_empty() {
                    content[index.unwrap()]["input"] = serde_json::from_str(input).unwrap();
                }
            }
            "message_delta" => {
                assert_eq!(open, None);
                for (key, value) in event["delta"].as_object().unwrap() {
                    message[key] = value.clone();
                }
                message["usage"] = event["usage"].clone();
            }
            "message_stop" => assert_eq!(event, events.last().unwrap()),
            other => panic!("{other}"),
        }
    }
    assert_eq!(events.last().unwrap()["type"], "message_stop");
    message
}

/// Without what is random, and without nulls.
fn redacted(mut message: Value) -> Value {
    message["id"] = json!("chatcmpl-");
    for block in message["content"].as_array_mut().unwrap() {
        for key in ["id", "signature"] {
            if let Some(value) = block.get_mut(key) {
                assert!(value.as_str().unwrap().len() > 10, "{value}");
                *value = json!(key);
            }
        }
    }
    message.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    message
}

#[tokio::test]
async fn an_answer_has_the_shape_of_vllms() {
    let answer = TestApp::new().says("hello").post(PATH, asking(&json!({}))).await;
    let id = answer.json()["id"].clone();
    assert_eq!(answer.headers["request-id"], id.as_str().unwrap());
    expect![[r#"
        {
          "id": "chatcmpl-",
          "type": "message",
          "role": "assistant",
          "content": [
            {
              "type": "text",
              "text": "hello"
            }
          ],
          "model": "tiny",
          "stop_reason": "end_turn",
          "usage": {
            "input_tokens": 9,
            "output_tokens": 2
          }
        }"#]]
    .assert_eq(&format!("{:#}", redacted(answer.ok())));
}

#[tokio::test]
async fn a_stream_names_its_events_and_ends_without_a_word() {
    let app = spelled(&[&format!("{THOUGHT}hi{OTHER}")]);
    let answer = app.post(PATH, asking(&json!({ "tools": tools(), "stream": true }))).await;
    let mut shown = Vec::new();
    for event in events(&answer) {
        let what = [&event["content_block"], &event["delta"]].into_iter().find(|part| !part.is_null());
        let kind = what.map_or(&Value::Null, |part| &part["type"]);
        let line = format!("{} {} {}", event["type"].as_str().unwrap(), event["index"], kind);
        shown.push(line);
    }
    shown.dedup();
    expect![[r#"
        message_start null null
        content_block_start 0 "thinking"
        content_block_delta 0 "thinking_delta"
        content_block_delta 0 "signature_delta"
        content_block_stop 0 null
        content_block_start 1 "text"
        content_block_delta 1 "text_delta"
        content_block_stop 1 null
        content_block_start 2 "tool_use"
        content_block_delta 2 "input_json_delta"
        content_block_stop 2 null
        message_delta null null
        message_stop null null"#]]
    .assert_eq(&shown.join("\n"));
}

#[tokio::test]
async fn a_stream_adds_up_to_the_answer() {
    let broken = r#"<tool_call>{"name": "weather", "arguments": "no object"}</tool_call>"#;
    let cases = [
        ("hello you".to_owned(), json!({}), "end_turn"),
        (String::new(), json!({}), "end_turn"),
        ("hello you".to_owned(), json!({ "max_tokens": 4 }), "max_tokens"),
        (format!("{THOUGHT}hello you"), json!({ "stop_sequences": ["o y"] }), "stop_sequence"),
        (format!("{THOUGHT}hello"), json!({}), "end_turn"),
        (format!("{THOUGHT}{CALL}{OTHER}"), json!({ "tools": tools() }), "tool_use"),
        (format!("hello\n{CALL}"), json!({ "tools": tools(), "tool_choice": { "type": "auto" } }), "tool_use"),
        (broken.to_owned(), json!({ "tools": tools() }), "tool_use"),
        (CALL.to_owned(), json!({ "tools": tools(), "tool_choice": { "type": "none" } }), "end_turn"),
    ];
    for (text, more, reason) in cases {
        let body = asking(&with(json!({ "return_token_ids": true, "temperature": 0 }), &more));
        let answer = spelled(&[&text]).post(PATH, body.clone()).await.ok();
        assert_eq!(answer["stop_reason"], reason, "{text} {more}");
        let sampled = answer["generation_token_ids"].as_array().unwrap().len();
        assert_eq!(answer["usage"]["output_tokens"], sampled);
        assert_eq!(answer["generation_log_probs"].as_array().unwrap().len(), sampled);
        let stream = spelled(&[&text]).post(PATH, with(body, &json!({ "stream": true }))).await;
        assert_eq!(redacted(folded(&events(&stream))), redacted(answer), "{text} {more}");
    }
}

#[tokio::test]
async fn a_stream_of_larger_chunks_says_everything_in_the_same_order() {
    let text = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary<|message|>one<|end|>\
                <|start|>assistant<|channel|>commentary to=functions.weather<|message|>{}<|call|>\
                <|start|>assistant<|channel|>analysis<|message|>well<|end|>\
                <|start|>assistant<|channel|>final<|message|>two";
    let app = || {
        let policy = ToolPolicy {
            parser: ToolParser::named("openai"),
            auto: true,
            reasoning: ReasoningParser::named("openai_gptoss"),
            ..ToolPolicy::default()
        };
        let app = TestApp::new().tools(policy);
        let ids = app.spelled(text);
        app.script(ids.into_iter().chain([IM_END]))
    };
    let body = asking(&json!({ "tools": tools(), "return_token_ids": true }));
    let answer = redacted(app().post(PATH, body.clone()).await.ok());
    let kinds: Vec<_> = answer["content"].as_array().unwrap().iter().map(|block| block["type"].clone()).collect();
    assert_eq!(kinds, ["thinking", "text", "tool_use", "thinking", "text"]);
    for interval in [1, 7, 60, 1_000] {
        let stream =
            app().post(PATH, with(body.clone(), &json!({ "stream": true, "stream_interval": interval }))).await;
        assert_eq!(redacted(folded(&events(&stream))), answer, "every {interval}");
    }
}

#[tokio::test]
async fn a_stop_sequence_is_told_and_left_out() {
    let answer = TestApp::new().says("hello you").post(PATH, asking(&json!({ "stop_sequences": [" y"] }))).await.ok();
    assert_eq!(answer["content"], json!([{ "type": "text", "text": "hello" }]));
    assert_eq!((&answer["stop_reason"], &answer["stop_sequence"]), (&json!("stop_sequence"), &json!(" y")));
}

#[tokio::test]
async fn only_one_call_is_kept_where_several_are_not_wanted() {
    let choice = json!({ "type": "auto", "disable_parallel_tool_use": true });
    let body = asking(&json!({ "tools": tools(), "tool_choice": choice }));
    // The mark of the second call is spelled with other tokens.
    let app = || {
        let app = spelled(&[]);
        let text = format!("{CALL}{OTHER}");
        let ids: Vec<_> = text.chars().flat_map(|letter| app.ids(&letter.to_string())).chain([IM_END]).collect();
        app.script(ids)
    };
    let answer = app().post(PATH, body.clone()).await.ok();
    assert_eq!(answer["dropped_tool_calls"], json!(["time"]), "{answer}");
    let streamed = folded(&events(&app().post(PATH, with(body, &json!({ "stream": true }))).await));
    assert_eq!(streamed["dropped_tool_calls"], json!(["time"]), "{streamed}");
    let [call] = answer["content"].as_array().unwrap().as_slice() else { panic!("{answer}") };
    assert_eq!(call["input"].to_string(), r#"{"city":"Køge","days":[1.0,2]}"#);
}

#[tokio::test]
async fn an_answer_without_a_word_is_an_empty_text() {
    let answer = spelled(&[""]).post(PATH, asking(&json!({}))).await.ok();
    assert_eq!(answer["content"], json!([{ "type": "text", "text": "" }]));
}

#[tokio::test]
async fn what_was_cached_is_told_and_is_not_part_of_the_input() {
    let app = TestApp::new().says("hello").cached_tokens(3).prompt_tokens_details();
    let usage = app.post(PATH, asking(&json!({}))).await.ok()["usage"].clone();
    assert_eq!(usage, json!({ "input_tokens": 6, "output_tokens": 2, "cache_read_input_tokens": 3 }));
    let streamed = events(&app.post(PATH, asking(&json!({ "stream": true }))).await);
    let [start, .., delta, _] = streamed.as_slice() else { panic!("{streamed:?}") };
    let at_first = json!({ "input_tokens": 6, "output_tokens": 0, "cache_read_input_tokens": 3 });
    assert_eq!((&start["message"]["usage"], &delta["usage"]), (&at_first, &usage));
    let count = app.post(COUNT, asking(&json!({}))).await.ok();
    assert_eq!(count["input_tokens"], 9);
}

#[tokio::test]
async fn what_was_cached_is_left_out_where_it_is_not_known_or_not_to_be_told() {
    let whole = json!({ "input_tokens": 9, "output_tokens": 2 });
    for app in [TestApp::new().cached_tokens(3), TestApp::new().prompt_tokens_details()] {
        let app = app.says("hello");
        assert_eq!(app.post(PATH, asking(&json!({}))).await.ok()["usage"], whole);
        let streamed = events(&app.post(PATH, asking(&json!({ "stream": true }))).await);
        assert_eq!(streamed[streamed.len() - 2]["usage"], whole);
    }
    let empty = TestApp::new().says("hello").cached_tokens(0).prompt_tokens_details();
    let usage = empty.post(PATH, asking(&json!({}))).await.ok()["usage"].clone();
    assert_eq!(usage, json!({ "input_tokens": 9, "output_tokens": 2, "cache_read_input_tokens": 0 }));
}

#[tokio::test]
async fn what_is_refused_for_an_answer_is_refused_for_its_count_in_the_same_words() {
    let app = spelled(&["</think>hello"]);
    let format = |schema: Value| json!({ "type": "json_schema", "schema": schema });
    let refused = [
        json!({ "output_config": { "effort": "none" } }),
        json!({ "output_config": { "effort": 5 } }),
        json!({ "output_config": { "format": {} } }),
        json!({ "output_config": { "format": { "type": "text" } } }),
        json!({ "output_config": { "format": format(json!({ "type": "wrong" })) } }),
        json!({ "output_config": { "format": format(json!({})) }, "output_format": format(json!({})) }),
        json!({ "output_format": { "type": "json_schema" } }),
        json!({ "thinking": { "type": "enabled" } }),
        json!({ "thinking": { "type": "enabled", "budget_tokens": 400 } }),
        json!({ "tool_choice": { "type": "tool" }, "tools": tools() }),
        json!({ "tool_choice": { "type": "auto", "name": "weather" }, "tools": tools() }),
        json!({ "system": [{ "type": "text", "text": 5 }] }),
        json!({ "temperature": 9 }),
        json!({ "n": 2 }),
        json!({ "max_tokens": 0 }),
        json!({ "max_tokens": 5000 }),
        json!({ "stop_token_ids": [-1] }),
        json!({ "stop_sequences": ["a", "b", "c", "d", "e"] }),
        json!({ "routed_experts": [[[0, 1]]] }),
        json!({ "input_ids": [1] }),
        json!({ "tools": [{ "type": "function", "function": { "name": "f", "parameters": { "type": "object" } } }] }),
        json!({ "tools": [{ "type": "function", "name": "f", "parameters": { "type": "object" } }] }),
        json!({ "model": "" }),
    ];
    for more in refused {
        let (answer, count) = (app.post(PATH, asking(&more)).await, app.post(COUNT, asking(&more)).await);
        assert_eq!((answer.status, count.status), (400, 400), "{more} {} {}", answer.text, count.text);
        assert_eq!(answer.text, count.text, "{more}");
    }
    let taken = [
        json!({ "output_config": { "effort": "low", "format": format(json!({ "type": "object" })) } }),
        json!({ "thinking": { "type": "disabled", "budget_tokens": "none" } }),
        json!({ "output_config": null, "temperature": "0.5", "max_tokens": "7", "stop_sequences": [] }),
        json!({ "max_tokens": 2000, "thinking": { "type": "enabled", "budget_tokens": 1024, "display": "omitted" } }),
    ];
    for more in taken {
        let count = app.post(COUNT, asking(&more)).await.ok();
        assert_eq!(app.post(PATH, asking(&more)).await.ok()["usage"]["input_tokens"], count["input_tokens"], "{more}");
    }
}

/// The same conversation in both dialects.
fn dialects() -> Vec<(Value, Value)> {
    let user = |text: &str| json!({ "role": "user", "content": text });
    let call = json!({ "id": "c", "type": "function", "function": { "name": "weather", "arguments": "{\"x\":1.0}" } });
    let tool_use = json!({ "type": "tool_use", "id": "c", "name": "weather", "input": { "x": 1.0 } });
    let result = |content: Value| json!({ "type": "tool_result", "tool_use_id": "c", "content": content });
    let text = |text: &str| json!({ "type": "text", "text": text });
    let marked = json!({ "type": "text", "text": "hello", "cache_control": { "type": "ephemeral" } });
    let header = text("x-anthropic-billing-header: cch=1;");
    let called = |content: Value| json!({ "role": "assistant", "content": content, "tool_calls": [call] });
    let tool = |content: &str| json!({ "role": "tool", "tool_call_id": "c", "content": content });
    vec![
        (
            json!({ "system": "Be.", "messages": [user("hello")] }),
            json!({ "messages": [{ "role": "system", "content": "Be." }, user("hello")] }),
        ),
        (
            json!({ "system": [header, text("Be"), text("it.")], "messages": [{ "role": "user", "content": [marked] }] }),
            json!({ "messages": [{ "role": "system", "content": "Be\n\nit." }, user("hello")] }),
        ),
        (
            json!({ "system": [text("x-anthropic-billing-header: cch=1;\nBe.")], "messages": [
                user("hello"), { "role": "system", "content": "x-anthropic-billing-header: cch=1;" },
            ] }),
            json!({ "messages": [{ "role": "system", "content": "Be." }, user("hello")] }),
        ),
        (
            json!({ "messages": [{ "role": "user", "content": [text("a"), text(""), text("b")] }] }),
            json!({ "messages": [{ "role": "user", "content": [text("a"), text("b")] }] }),
        ),
        (
            json!({ "tools": tools(), "messages": [
                user("hello"),
                { "role": "assistant", "content": [
                    { "type": "thinking", "thinking": "hm", "signature": "x" },
                    { "type": "redacted_thinking", "data": "x" },
                    text("well"), tool_use,
                ] },
                { "role": "user", "content": [text("and"), result(json!([text("1"), text("2")])) ] },
            ] }),
            json!({ "tools": chat_tools(), "messages": [
                user("hello"), with(called(json!("well")), &json!({ "reasoning": "hm" })), tool("1\n2"), user("and"),
            ] }),
        ),
        (
            json!({ "tools": tools(), "messages": [
                user("hello"), { "role": "assistant", "content": [tool_use] },
                { "role": "user", "content": [with(result(json!("no")), &json!({ "is_error": true }))] },
                { "role": "system", "content": "Be." },
            ] }),
            json!({ "tools": chat_tools(), "messages": [
                user("hello"), called(Value::Null), tool("no"), { "role": "system", "content": "Be." },
            ] }),
        ),
    ]
}

#[tokio::test]
async fn a_conversation_has_the_ids_that_it_has_as_a_chat() {
    for (message, chat) in dialects() {
        let app = spelled(&["hello"]);
        let wish = json!({ "model": MODEL, "max_tokens": 3, "return_token_ids": true });
        let chat = app.post(CHAT, with(chat, &wish)).await.ok();
        let counted = app.post(COUNT, with(message.clone(), &json!({ "model": MODEL }))).await.ok();
        let message = app.post(PATH, with(message, &wish)).await.ok();
        assert_eq!(message["prompt_token_ids"], chat["prompt_token_ids"]);
        assert_eq!(message["usage"]["input_tokens"], chat["usage"]["prompt_tokens"]);
        let tokens = &chat["usage"]["prompt_tokens"];
        let count = json!({ "input_tokens": tokens, "context_management": { "original_input_tokens": tokens } });
        assert_eq!(counted, count);
    }
}

#[tokio::test]
async fn what_is_counted_is_what_would_be_sent() {
    for cut in [json!({ "truncate_prompt_tokens": 5 }), json!({ "truncate_prompt_tokens": -1 })] {
        let app = TestApp::new().says("hello");
        let body = asking(&cut);
        let counted = app.post(COUNT, body.clone()).await.ok();
        assert_eq!(app.post(PATH, body).await.ok()["usage"]["input_tokens"], counted["input_tokens"], "{cut}");
    }
    let wrong = TestApp::new().post(COUNT, asking(&json!({ "truncate_prompt_tokens": -2 }))).await;
    assert_eq!((wrong.status, &wrong.json()["type"]), (400, &json!("error")));
}

#[tokio::test]
async fn a_system_message_moves_to_the_front_where_the_template_wants_it_there() {
    let template = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('first!') }}\
                    {% endif %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";
    let app = TestApp::new().chat_template(template).says("hello");
    let messages = json!([{ "role": "user", "content": "hello" }, { "role": "system", "content": "Not." }]);
    let message = json!({ "system": "Be.", "messages": messages, "return_token_ids": true });
    let answer = app.post(PATH, asking(&message)).await.ok();
    let messages = json!([{ "role": "system", "content": "Be.\n\nNot." }, { "role": "user", "content": "hello" }]);
    let chat = app.post(CHAT, json!({ "messages": messages, "return_token_ids": true })).await.ok();
    assert_eq!(answer["prompt_token_ids"], chat["prompt_token_ids"]);
}

#[tokio::test]
async fn ids_come_with_either_wish_for_them() {
    let app = spelled(&["</think>hello"]);
    let plain = app.post(PATH, asking(&json!({}))).await.ok();
    assert_eq!(plain.get("generation_token_ids"), None);
    let [own, other] = ["return_token_ids", "return_tokens_as_token_ids"].map(|wish| asking(&json!({ wish: true })));
    let (own, other) = (app.post(PATH, own).await.ok(), app.post(PATH, other).await.ok());
    assert!(own["generation_token_ids"].is_array(), "{own}");
    for field in ["prompt_token_ids", "generation_token_ids", "generation_log_probs"] {
        assert_eq!(own[field], other[field], "{field}");
    }
}

#[tokio::test]
async fn thinking_that_is_switched_off_is_an_effort_that_the_template_knows() {
    let body = "{{ messages[0].content }}";
    for (template, effort) in [
        ("{{ reasoning_effort }}", "none"),
        ("{% if reasoning_effort == 'none' %}{{ raise_exception('no') }}{% endif %}{{ reasoning_effort }}", "low"),
        ("{{ 'high' if reasoning_effort == 'none' else reasoning_effort }}", "low"),
        ("{{ enable_thinking }}", "none"),
        ("", "low"),
    ] {
        let app = TestApp::new().chat_template(&format!("{template}{body}")).says("hello");
        let message = asking(&json!({ "thinking": { "type": "disabled" }, "return_token_ids": true }));
        let chat = json!({ "reasoning_effort": effort, "return_token_ids": true, "messages": message["messages"] });
        let (message, chat) = (app.post(PATH, message).await.ok(), app.post(CHAT, chat).await.ok());
        assert_eq!(message["prompt_token_ids"], chat["prompt_token_ids"], "{template}");
    }
}
