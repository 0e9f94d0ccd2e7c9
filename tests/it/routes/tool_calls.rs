//! Calls that are read out of an answer's text: the JSON answer, the stream, and the ids, which know nothing of it.

use expect_test::expect;
use serde_json::{Value, json};
use tito::{TokenId, parser::ToolParser, turn::ToolPolicy};

use crate::it::{
    app::{Answer, IM_END, MODEL, TestApp, redacted},
    streaming::adds_up,
};

const PATH: &str = "/v1/chat/completions";
const CALL: &str = r#"<tool_call>
{"name": "weather", "arguments": {"city":"Køge","days":[1.0,2]}}
</tool_call>"#;
const OTHER: &str = r#"<tool_call>{"arguments": {}, "name": "time"}</tool_call>"#;

fn asking(more: &Value) -> Value {
    let tool = |name| json!({ "type": "function", "function": { "name": name, "parameters": { "type": "object" } } });
    let mut body = json!({
        "messages": [{ "role": "user", "content": "hello" }], "tools": [tool("weather"), tool("time")],
    });
    body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
    body
}

async fn ask(app: &TestApp, more: Value) -> Answer {
    app.post(PATH, asking(&more)).await
}

async fn choice(app: &TestApp, more: Value) -> Value {
    ask(app, more).await.ok()["choices"][0].take()
}

/// The choices of a stream's events.
async fn streamed(app: &TestApp, more: &Value) -> Vec<Value> {
    let mut body = asking(more);
    body["stream"] = json!(true);
    app.post(PATH, body).await.events().into_iter().map(|mut event| event["choices"][0].take()).collect()
}

/// A server that reads calls and whose model says `text`.
fn saying(text: &str) -> TestApp {
    TestApp::new().reads_tool_calls().says(text)
}

/// One token for each character where there is one, which is not how the text encodes.
fn spelled(text: &str) -> TestApp {
    let app = TestApp::new().reads_tool_calls();
    let ids: Vec<TokenId> = text.chars().flat_map(|letter| app.ids(&letter.to_string())).chain([IM_END]).collect();
    app.script(ids)
}

#[tokio::test]
async fn a_call_stands_where_vllm_puts_it() {
    let choice = choice(&saying(CALL), json!({})).await;
    expect![[r#"
        {
          "index": 0,
          "message": {
            "role": "assistant",
            "content": null,
            "refusal": null,
            "annotations": null,
            "audio": null,
            "function_call": null,
            "tool_calls": [
              {
                "id": "chatcmpl-tool-",
                "type": "function",
                "function": {
                  "name": "weather",
                  "arguments": "{\"city\": \"Køge\", \"days\": [1.0, 2]}"
                }
              }
            ],
            "reasoning": null
          },
          "logprobs": null,
          "finish_reason": "tool_calls",
          "stop_reason": null,
          "token_ids": null,
          "routed_experts": null,
          "weight_versions": null
        }"#]]
    .assert_eq(&format!("{:#}", redacted(choice)));
}

#[tokio::test]
async fn a_stream_gives_content_as_it_comes_and_each_call_in_two_chunks_of_its_own() {
    let app = saying(&format!("hello you\n{CALL}{OTHER} and more"));
    let choices: Vec<_> = streamed(&app, &json!({})).await.into_iter().map(redacted).collect();
    let deltas: Vec<_> = choices.iter().map(|choice| choice["delta"].to_string()).collect();
    expect![[r#"
        {"role":"assistant","content":""}
        {"content":"hello"}
        {"content":" you"}
        {"content":"\n"}
        {"content":null,"tool_calls":[{"id":"chatcmpl-tool-","type":"function","index":0,"function":{"name":"weather"}}]}
        {"content":null,"tool_calls":[{"index":0,"function":{"arguments":"{\"city\": \"Køge\", \"days\": [1.0, 2]}"}}]}
        {"content":null,"tool_calls":[{"id":"chatcmpl-tool-","type":"function","index":1,"function":{"name":"time"}}]}
        {"content":null,"tool_calls":[{"index":1,"function":{"arguments":"{}"}}]}
        {"content":" and more"}"#]]
    .assert_eq(&deltas.join("\n"));
    let (last, others) = choices.split_last().unwrap();
    assert_eq!((&last["finish_reason"], &last["stop_reason"]), (&json!("tool_calls"), &Value::Null));
    assert!(others.iter().all(|choice| choice["finish_reason"].is_null()));
}

#[tokio::test]
async fn text_in_front_is_content_and_white_space_is_none() {
    for (before, content) in [("", Value::Null), (" \n\n", Value::Null), ("hello\n", json!("hello\n"))] {
        let text = format!("{before}{CALL}\n{OTHER}");
        let choice = choice(&saying(&text), json!({})).await;
        assert_eq!(choice["message"]["content"], content);
        assert_eq!(choice["message"]["tool_calls"].as_array().unwrap().len(), 2);
        let deltas = streamed(&saying(&text), &json!({})).await;
        let said: Vec<_> = deltas[1..].iter().filter_map(|choice| choice["delta"]["content"].as_str()).collect();
        assert_eq!(said.concat(), content.as_str().unwrap_or_default());
        assert_eq!(said.is_empty(), content.is_null(), "{said:?}");
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_content_to_the_letter() {
    let texts = [
        "hello".to_owned(),
        "\n ".to_owned(),
        String::new(),
        "<tool_call>{\"name\": \"weather\"}</tool_call>".to_owned(),
        format!(" {CALL} and <tool_call>{{"),
    ];
    for text in texts {
        let choice = choice(&saying(&text), json!({})).await;
        assert_eq!(choice["message"]["content"], text);
        assert_eq!(choice["message"].get("tool_calls"), None);
        assert_eq!(choice["finish_reason"], "stop");
        let deltas = streamed(&saying(&text), &json!({})).await;
        let said: Vec<_> = deltas.iter().filter_map(|choice| choice["delta"]["content"].as_str()).collect();
        assert_eq!(said.concat(), text);
        assert_eq!(deltas.last().unwrap()["finish_reason"], "stop");
    }
}

#[tokio::test]
async fn calls_are_the_reason_unless_the_answer_was_cut_off() {
    let open = CALL.strip_suffix("\n</tool_call>").unwrap();
    let tokens = TestApp::new().ids(open).len();
    let whole = TestApp::new().ids(CALL).len();
    for (more, reason, stop_reason) in [
        (json!({ "max_tokens": tokens }), "length", Value::Null),
        (json!({ "max_tokens": whole }), "length", Value::Null),
        (json!({ "stop": "</tool_call>" }), "tool_calls", json!("</tool_call>")),
    ] {
        let choice = choice(&saying(CALL), more.clone()).await;
        assert_eq!(choice["message"]["tool_calls"].as_array().unwrap().len(), 1, "{more}");
        assert_eq!((&choice["finish_reason"], &choice["stop_reason"]), (&json!(reason), &stop_reason), "{more}");
        let events = streamed(&saying(CALL), &more).await;
        let last = events.last().unwrap();
        assert_eq!((&last["finish_reason"], &last["stop_reason"]), (&json!(reason), &stop_reason), "{more}");
    }
    let cut = choice(&saying(CALL), json!({ "max_tokens": tokens - 1 })).await;
    assert_eq!(cut["finish_reason"], "length");
    assert!(cut["message"]["content"].as_str().unwrap().starts_with("<tool_call>\n{\"name\""), "{cut}");
}

#[tokio::test]
async fn without_parallel_calls_the_first_one_is_kept() {
    let text = format!("{CALL}{OTHER}");
    for (parallel, names) in [
        (json!(false), vec!["weather"]),
        (json!(true), vec!["weather", "time"]),
        (Value::Null, vec!["weather", "time"]),
    ] {
        let more = json!({ "parallel_tool_calls": parallel });
        let name = |call: &Value| call["function"]["name"].as_str().unwrap().to_owned();
        let choice = choice(&saying(&text), more.clone()).await;
        let called: Vec<_> = choice["message"]["tool_calls"].as_array().unwrap().iter().map(name).collect();
        assert_eq!(called, names);
        let events = streamed(&saying(&text), &more).await;
        let called: Vec<_> =
            events.iter().filter_map(|choice| choice["delta"]["tool_calls"].as_array()).flatten().collect();
        let called: Vec<_> = called.into_iter().filter(|call| call["id"].is_string()).map(name).collect();
        assert_eq!(called, names);
    }
}

#[tokio::test]
async fn without_parallel_calls_the_mark_of_a_second_call_is_not_sampled() {
    let app = saying(&format!("{CALL}{OTHER}"));
    let [mark] = app.ids("<tool_call>")[..] else { panic!("the mark is one token") };
    for (parallel, marks) in [(false, 1), (true, 2)] {
        let choice = choice(&app, json!({ "parallel_tool_calls": parallel, "return_token_ids": true })).await;
        let ids = choice["token_ids"].as_array().unwrap();
        assert_eq!(ids.iter().filter(|id| **id == json!(mark)).count(), marks, "{choice}");
        assert_eq!(choice["message"]["tool_calls"].as_array().unwrap().len(), marks);
        assert_eq!(choice.get("dropped_tool_calls"), None, "{choice}");
    }
}

#[tokio::test]
async fn calls_that_are_left_out_are_told() {
    // The mark of the second call is spelled with other tokens.
    let app = || spelled(&format!("{CALL}{OTHER}{OTHER}"));
    for (parallel, dropped) in [(false, Some(json!(["time", "time"]))), (true, None)] {
        let more = json!({ "parallel_tool_calls": parallel });
        let choice = choice(&app(), more.clone()).await;
        assert_eq!(choice.get("dropped_tool_calls"), dropped.as_ref(), "{choice}");
        let events = streamed(&app(), &more).await;
        let (last, before) = events.split_last().unwrap();
        assert_eq!(last.get("dropped_tool_calls"), dropped.as_ref(), "{last}");
        assert!(before.iter().all(|choice| choice.get("dropped_tool_calls").is_none()));
    }
}

#[tokio::test]
async fn held_and_forced_calls_end_after_one_where_several_are_not_wanted() {
    let native = [("hermes", format!("{CALL}\n{CALL}"))];
    let bare =
        ("pythonic", r#"[{"name": "weather", "parameters": {}}, {"name": "time", "parameters": {}}]"#.to_owned());
    for (parser, text) in native.into_iter().chain([bare]) {
        let policy = ToolPolicy { parser: ToolParser::named(parser), auto: true, ..ToolPolicy::default() };
        let app = TestApp::new().tools(policy).says(&text);
        for (strict, tool_choice) in [(true, "auto"), (false, "required"), (true, "required")] {
            if parser == "pythonic" && tool_choice == "auto" {
                continue;
            }
            let function = |name| json!({ "name": name, "parameters": { "type": "object" }, "strict": strict });
            let tool = |name| json!({ "type": "function", "function": function(name) });
            let more = json!({
                "tools": [tool("weather"), tool("time")], "tool_choice": tool_choice, "parallel_tool_calls": false,
                "max_tokens": 400, "return_token_ids": true,
            });
            let choice = choice(&app, more).await;
            assert_eq!(choice["message"]["tool_calls"].as_array().unwrap().len(), 1, "{parser} {tool_choice} {choice}");
            assert_eq!(choice.get("dropped_tool_calls"), None, "{choice}");
            assert_eq!(choice["message"]["content"].as_str().unwrap_or_default(), "", "{choice}");
            assert_ne!(choice["finish_reason"], "length", "{choice}");
        }
    }
}

#[tokio::test]
async fn any_answer_with_calls_streams_as_it_is_told() {
    let texts = [
        CALL.to_owned(),
        format!("hello you\n{CALL}\n{OTHER} so"),
        format!("\n{CALL}"),
        format!("hello <tool {OTHER} <tool_call>"),
        "hello <tool_call".to_owned(),
        "<tool_call>{\"name\": \"é😀\"".to_owned(),
        " \n".to_owned(),
    ];
    let options = [
        json!({ "return_token_ids": true }),
        json!({ "return_token_ids": true, "logprobs": true, "n": 2 }),
        json!({ "logprobs": true, "top_logprobs": 2, "return_tokens_as_token_ids": true, "parallel_tool_calls": false }),
        json!({ "return_token_ids": true, "max_tokens": 20 }),
        json!({ "return_token_ids": true, "stop": ["}}", "hello y"], "include_stop_str_in_output": true }),
        json!({}),
    ];
    for text in &texts {
        for option in &options {
            adds_up(|| saying(text), PATH, asking(option)).await;
            adds_up(|| spelled(text), PATH, asking(option)).await;
        }
    }
}

#[tokio::test]
async fn every_sampled_id_is_in_one_chunk_whatever_becomes_of_its_text() {
    for text in [format!("hello {CALL}"), format!("hello {CALL}<tool_call>")] {
        for app in [saying(&text), spelled(&text)] {
            let sampled = choice(&app, json!({ "return_token_ids": true })).await["token_ids"].take();
            let sampled = sampled.as_array().unwrap().clone();
            let events = streamed(&app, &json!({ "return_token_ids": true, "logprobs": true })).await;
            let ids: Vec<_> = events.iter().filter_map(|choice| choice["token_ids"].as_array()).flatten().collect();
            assert_eq!(ids, sampled.iter().collect::<Vec<_>>());
            let scored = events.iter().filter_map(|choice| choice["logprobs"]["content"].as_array()).flatten().count();
            assert_eq!(scored, sampled.len());
        }
    }
}

#[tokio::test]
async fn chunks_that_say_nothing_are_left_out_unless_their_tokens_are_wanted() {
    let app = saying(CALL);
    assert_eq!(streamed(&app, &json!({})).await.len(), 4, "the role, the call and the end");
    let tokens = app.ids(CALL).len() + 1;
    for more in [json!({ "return_token_ids": true }), json!({ "logprobs": true })] {
        let events = streamed(&app, &more).await;
        assert_eq!(events.len(), 1 + tokens + 2, "{more}");
        assert!(events[1..tokens].iter().all(|choice| choice["delta"] == json!({})), "{more}");
    }
    let mut body = asking(&json!({ "stream_options": { "include_usage": true } }));
    body["stream"] = json!(true);
    let events = app.post(PATH, body).await.events();
    assert_eq!(events.last().unwrap()["usage"]["completion_tokens"], tokens);
}

#[tokio::test]
async fn special_tokens_stay_in_the_text_while_calls_are_read() {
    let app = TestApp::new().reads_tool_calls();
    let ids = [app.ids("hello"), vec![1], app.ids(CALL), vec![IM_END]].concat();
    let app = app.script(ids);
    let read = choice(&app, json!({ "skip_special_tokens": true })).await;
    assert_eq!(read["message"]["content"], "hello<|im_start|>");
    let text = choice(&app, json!({ "tool_choice": "none" })).await;
    assert_eq!(text["message"]["content"], format!("hello{CALL}"));
}

#[tokio::test]
async fn calls_are_read_where_the_request_leaves_them_to_the_model() {
    let tools = asking(&json!({}))["tools"].take();
    for (more, reads) in [
        (json!({ "tool_choice": "auto" }), true),
        (json!({ "tool_choice": null }), true),
        (json!({ "tool_choice": "none" }), false),
        (json!({ "tools": null, "tool_choice": "none" }), false),
        (json!({ "tools": null }), false),
    ] {
        let message = choice(&saying(CALL), more.clone()).await["message"].take();
        assert_eq!(message.get("tool_calls").is_some(), reads, "{more}");
        assert_eq!(message["content"] == CALL, !reads, "{more}");
    }
    let named = |name: &str| json!({ "type": "function", "function": { "name": name } });
    let both = ToolPolicy { parser: ToolParser::named("hermes"), auto: true, reasoning: None, ..ToolPolicy::default() };
    let parser = ToolPolicy { auto: false, ..both };
    let auto = "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set";
    let at = |place: &str| json!(place);
    for (policy, choice, param, words) in [
        (parser, json!("auto"), Value::Null, auto),
        (parser, Value::Null, Value::Null, auto),
        (both, named("f"), at("tool_choice"), "does not match any of the specified `tools`"),
        (both, named(""), at("tool_choice.function.name"), "Invalid `name` in `function`"),
        (both, json!({ "type": "function" }), at("tool_choice.function"), "Invalid value for `function`: `None`"),
        (both, json!({ "function": {} }), at("tool_choice.function.name"), "Expected field `name`"),
        (both, json!("weather"), at("tool_choice"), "Invalid value for `tool_choice`: weather!"),
        (both, json!(["auto"]), at("tool_choice"), "Invalid value for `tool_choice`: ['auto']!"),
    ] {
        let refused = ask(&TestApp::new().tools(policy), json!({ "tools": tools, "tool_choice": choice })).await;
        assert_eq!((refused.status, &refused.error()["param"]), (400, &param), "{choice}");
        assert!(refused.error()["message"].as_str().unwrap().contains(words), "{choice}: {}", refused.text);
    }
}

#[tokio::test]
async fn three_turns_of_calls_continue_from_exactly_the_sampled_ids() {
    let spelled_call: String = CALL.replace('\n', "");
    let app = TestApp::new().reads_tool_calls();
    let letters: Vec<TokenId> = spelled_call.chars().flat_map(|letter| app.ids(&letter.to_string())).collect();
    let end = [IM_END];
    let scripts = [[&letters[..], &end].concat(), [&app.ids(&format!("hello\n{CALL}{OTHER}"))[..], &end].concat()];
    let app = app.script(scripts[0].clone()).script(scripts[1].clone()).says("hello world");
    let mut messages = vec![json!({ "role": "user", "content": "hello" })];
    let mut known = Vec::new();
    for turn in 0..3 {
        let answer = ask(&app, json!({ "messages": messages, "return_token_ids": true })).await.ok();
        let prompt: Vec<Value> = answer["prompt_token_ids"].as_array().unwrap().clone();
        assert!(prompt.starts_with(&known), "turn {turn}");
        let message = answer["choices"][0]["message"].clone();
        known = [prompt, message["generation_token_ids"].as_array().unwrap().clone()].concat();
        let calls = message.get("tool_calls").and_then(Value::as_array).cloned().unwrap_or_default();
        assert_eq!(calls.len(), [1, 2, 0][turn]);
        messages.push(message);
        let result = |call: Value| json!({ "role": "tool", "tool_call_id": call["id"], "content": "123" });
        messages.extend(calls.into_iter().map(result));
    }
    assert_eq!(messages.last().unwrap()["content"], "hello world");
    let sampled: Vec<Value> = scripts[0].iter().map(|&id| json!(id)).collect();
    assert_eq!(messages[1]["generation_token_ids"], json!(sampled));
}

/// The events of a stream that names them.
fn data(answer: &Answer) -> Vec<Value> {
    let events = answer.text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    events.map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[tokio::test]
async fn every_dialect_says_that_an_answer_with_a_call_was_cut_off() {
    let tokens = TestApp::new().ids(CALL).len();
    let function = json!({ "type": "function", "name": "weather", "parameters": { "type": "object" } });
    let response = json!({ "input": "hello", "tools": [function], "max_output_tokens": tokens });
    let answer = saying(CALL).post("/v1/responses", response.clone()).await.ok();
    let mut asked = response;
    asked["stream"] = json!(true);
    let events = data(&saying(CALL).post("/v1/responses", asked).await);
    for response in [&answer, &events.last().unwrap()["response"]] {
        assert_eq!(response["output"][0]["type"], "function_call", "{response}");
        assert_eq!(response["status"], "incomplete");
        assert_eq!(response["incomplete_details"]["reason"], "max_output_tokens");
    }
    let tool = json!({ "name": "weather", "input_schema": { "type": "object" } });
    let user = json!([{ "role": "user", "content": "hello" }]);
    let message = json!({ "model": MODEL, "messages": user, "tools": [tool], "max_tokens": tokens });
    let answer = saying(CALL).post("/v1/messages", message.clone()).await.ok();
    assert_eq!((&answer["content"][0]["type"], &answer["stop_reason"]), (&json!("tool_use"), &json!("max_tokens")));
    let mut asked = message;
    asked["stream"] = json!(true);
    let events = data(&saying(CALL).post("/v1/messages", asked).await);
    let ended = events.iter().find(|event| event["type"] == "message_delta").unwrap();
    assert_eq!(ended["delta"]["stop_reason"], "max_tokens");
}

#[tokio::test]
async fn an_answer_that_ends_before_its_forced_call_does_not_say_that_it_calls() {
    let app = TestApp::new().reads_tool_calls();
    let named = json!({ "type": "function", "function": { "name": "weather" } });
    for forced in [json!("required"), named] {
        let more = json!({ "tool_choice": forced, "stop": "<tool_call>", "max_tokens": 2000, "temperature": 0 });
        let whole = choice(&app, more.clone()).await;
        assert_eq!(whole["message"].get("tool_calls"), None, "{whole}");
        assert_eq!((&whole["finish_reason"], &whole["stop_reason"]), (&json!("stop"), &json!("<tool_call>")));
        let last = streamed(&app, &more).await.pop().unwrap();
        assert_eq!((&last["finish_reason"], &last["stop_reason"]), (&json!("stop"), &json!("<tool_call>")));
    }
    let tool = json!({ "name": "weather", "input_schema": { "type": "object" } });
    for choice in [json!({ "type": "any" }), json!({ "type": "tool", "name": "weather" })] {
        let body = json!({ "model": MODEL, "messages": [{ "role": "user", "content": "hello" }], "tools": [tool],
            "tool_choice": choice, "max_tokens": 2000, "temperature": 0, "stop_sequences": ["<tool_call>"] });
        let answer = app.post("/v1/messages", body).await.ok();
        assert_eq!(answer["stop_reason"], "stop_sequence", "{answer}");
    }
}

/// Nobody can call a function with a list, so arguments are an object, whatever the schema leaves unsaid.
#[tokio::test]
async fn arguments_of_forced_calls_are_objects_whatever_the_schema_leaves_out() {
    let required = json!({ "properties": { "a": { "type": "integer" } }, "required": ["a"] });
    let nullable = json!({ "type": ["null", "object"], "properties": {} });
    for parser in ["hermes", "qwen3_coder"] {
        let policy = ToolPolicy { parser: ToolParser::named(parser), auto: true, ..ToolPolicy::default() };
        let app = TestApp::new().tools(policy);
        // Texts end as soon as they can, and so do objects that may hold anything, in JSON and between tags.
        let bias = [("\"", 80), ("/", 70), ("}", 60)].map(|(end, bias)| (app.ids(end)[0].to_string(), json!(bias)));
        let bias = Value::Object(bias.into_iter().collect());
        for parameters in [json!(null), json!({}), required.clone(), nullable.clone()] {
            for (seed, choice) in
                [(1, json!("required")), (2, json!({ "type": "function", "function": { "name": "f" } }))]
            {
                let tools = json!([{ "type": "function", "function": { "name": "f", "parameters": parameters } }]);
                let body = json!({
                    "messages": [{ "role": "user", "content": "hello" }], "tools": tools, "tool_choice": choice,
                    "seed": seed, "max_tokens": 3000, "logit_bias": bias, "parallel_tool_calls": false,
                });
                let choice = app.post(PATH, body).await.ok()["choices"][0].take();
                let arguments = choice["message"]["tool_calls"][0]["function"]["arguments"].as_str();
                let Some(arguments) = arguments else { panic!("{parser} {parameters}: {choice}") };
                let arguments: Value = serde_json::from_str(arguments).unwrap();
                assert!(arguments.is_object(), "{parser} {parameters}: {arguments}");
                assert!(parameters != required || arguments["a"].is_number(), "{parser} {parameters}: {arguments}");
            }
        }
    }
}
