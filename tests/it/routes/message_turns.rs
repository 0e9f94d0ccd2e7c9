//! `/v1/messages` over several turns: clients that send no ids back, and clients that do; what is refused, and how.

use serde_json::{Value, json};
use tito::{
    TokenId,
    engine::scripted::Gate,
    parser::{ReasoningParser, ToolParser},
    turn::ToolPolicy,
};

use crate::it::app::{Answer, IM_END, MODEL, TestApp, posted};

const PATH: &str = "/v1/messages";
const COUNT: &str = "/v1/messages/count_tokens";

fn call(city: &str) -> String {
    format!(
        "<tool_call>\n{{\"name\": \"weather\", \"arguments\": {{\"city\": \"{city}\", \"days\": 1.0}}}}\n</tool_call>"
    )
}

/// A server that reads calls and whose model says `texts`, spelt letter by letter.
fn spelled(texts: &[String]) -> TestApp {
    texts.iter().fold(TestApp::new().reads_tool_calls(), |app, text| {
        let letters = text.chars().flat_map(|letter| app.ids(&letter.to_string()));
        let ids: Vec<TokenId> = letters.chain([IM_END]).collect();
        app.script(ids)
    })
}

/// A conversation whose client keeps content only, as Anthropic's do.
struct Harness {
    app: TestApp,
    messages: Vec<Value>,
    more: Value,
    known: Vec<Value>,
}

impl Harness {
    fn new(app: TestApp, more: Value) -> Self {
        Self { app, messages: Vec::new(), more, known: Vec::new() }
    }

    /// Asks, and checks that the prompt starts with the ids so far.
    async fn turn(&mut self, content: Value) -> (Answer, Value) {
        self.messages.push(json!({ "role": "user", "content": content }));
        let tool = json!({ "name": "weather", "input_schema": { "type": "object" } });
        let mut body = json!({
            "model": MODEL, "max_tokens": 400, "messages": self.messages, "tools": [tool], "return_token_ids": true,
        });
        body.as_object_mut().unwrap().append(&mut self.more.as_object().unwrap().clone());
        let answer = self.app.post(PATH, body).await;
        let message = answer.ok();
        let ids = |key: &str| message[key].as_array().unwrap().clone();
        let prompt = ids("prompt_token_ids");
        assert_eq!(prompt[..self.known.len()], self.known[..]);
        self.known = prompt;
        self.known.extend(ids("generation_token_ids"));
        self.messages.push(json!({ "role": "assistant", "content": message["content"] }));
        (answer, message)
    }
}

fn verdict(answer: &Answer) -> &str {
    answer.headers["x-token-continuity"].to_str().unwrap()
}

fn result(message: &Value) -> Value {
    let id = &message["content"][0]["id"];
    json!([{ "type": "tool_result", "tool_use_id": id, "content": [{ "type": "text", "text": "warm" }] }])
}

#[tokio::test]
async fn a_tool_loop_without_ids_is_continued_from_exactly_its_ids() {
    let app = spelled(&[call("Oslo"), call("Bergen"), "It is warm.".to_owned(), "hello".to_owned()]);
    let mut harness = Harness::new(app, json!({}));
    let (first, called) = harness.turn(json!("hello")).await;
    assert!(verdict(&first).starts_with("none; outcome=fresh"), "{}", verdict(&first));
    assert_eq!(called["content"][0]["input"], json!({ "city": "Oslo", "days": 1.0 }));
    let (second, called) = harness.turn(result(&called)).await;
    let (third, said) = harness.turn(result(&called)).await;
    assert_eq!(said["stop_reason"], "end_turn");
    let (fourth, _) = harness.turn(json!([{ "type": "text", "text": "you" }])).await;
    for answer in [second, third, fourth] {
        assert!(verdict(&answer).starts_with("cache; outcome=exact"), "{}", verdict(&answer));
    }
}

#[tokio::test]
async fn a_users_id_names_the_conversation() {
    let wish = json!({ "metadata": { "user_id": "user-1_session-2" } });
    let mut harness = Harness::new(spelled(&["hello".to_owned()]), wish);
    harness.turn(json!("hello")).await;
    let (_, second) = harness.turn(json!("you")).await;
    assert_eq!(second["token_continuity"]["matched_by"], "session");
}

#[tokio::test]
async fn a_broken_call_comes_back_as_it_was() {
    let broken = "<tool_call>{\"name\": \"weather\", \"arguments\": [1]}</tool_call>".to_owned();
    let mut harness = Harness::new(spelled(&[broken, "hello".to_owned()]), json!({}));
    let (_, called) = harness.turn(json!("hello")).await;
    assert_eq!(called["content"][0]["input"], json!({ "INVALID_JSON": "[1]" }));
    let (second, _) = harness.turn(result(&called)).await;
    assert!(verdict(&second).starts_with("cache; outcome=exact"), "{}", verdict(&second));
}

#[tokio::test]
async fn text_on_both_sides_of_a_call_is_continued_exactly() {
    let text = "<|channel|>commentary<|message|>one<|end|><|start|>assistant<|channel|>commentary to=functions.weather\
                <|message|>{}<|call|><|start|>assistant<|channel|>final<|message|>two";
    let policy =
        ToolPolicy { parser: ToolParser::named("openai"), auto: true, reasoning: None, ..ToolPolicy::default() };
    let mut harness = Harness::new(TestApp::new().tools(policy).says(text), json!({}));
    let (_, first) = harness.turn(json!("hello")).await;
    let kinds: Vec<_> = first["content"].as_array().unwrap().iter().map(|block| block["type"].clone()).collect();
    assert_eq!(kinds, ["text", "tool_use", "text"]);
    let (second, _) = harness.turn(json!("you")).await;
    assert!(verdict(&second).starts_with("cache; outcome=exact"), "{}", verdict(&second));
}

#[tokio::test]
async fn a_message_that_is_sent_back_whole_carries_its_ids() {
    let app = spelled(&["hello".to_owned()]).continuity(|policy| policy.memory = None);
    let user = |text: &str| json!({ "role": "user", "content": text });
    let body =
        |messages: Value| json!({ "model": MODEL, "max_tokens": 8, "messages": messages, "return_token_ids": true });
    let first = app.post(PATH, body(json!([user("hello")]))).await.ok();
    let second = app.post(PATH, body(json!([user("hello"), first, user("you")]))).await;
    assert!(verdict(&second).starts_with("message; outcome=exact"), "{}", verdict(&second));
    let ids = |message: &Value, key: &str| message[key].as_array().unwrap().clone();
    let known = [ids(&first, "prompt_token_ids"), ids(&first, "generation_token_ids")].concat();
    assert_eq!(ids(&second.ok(), "prompt_token_ids")[..known.len()], known);
}

#[tokio::test]
async fn errors_have_anthropics_shape() {
    const INVALID: &str = "invalid_request_error";
    let app = TestApp::new().says("hello");
    let user = |content: Value| json!([{ "role": "user", "content": content }]);
    let plain = user(json!("hello"));
    let image = json!([{ "type": "image", "source": { "type": "url", "url": "x" } }]);
    let call = json!([{ "type": "tool_use", "id": "c", "name": "f", "input": {} }]);
    let cases = [
        (json!({ "messages": plain, "model": "other" }), 404, "not_found_error", "The model `other` does not exist."),
        (json!({ "messages": plain, "model": "" }), 400, INVALID, "Model is required"),
        (json!({}), 400, INVALID, "body.messages"),
        (json!({ "messages": plain, "max_tokens": null }), 400, INVALID, "1 validation error:"),
        (json!({ "messages": plain, "max_tokens": 0 }), 400, INVALID, "must be positive"),
        (json!({ "messages": plain, "max_tokens": 5000 }), 400, INVALID, "cannot be greater than max_model_len"),
        (json!({ "messages": [{ "role": "tool", "content": "x" }] }), 400, INVALID, "'user', 'assistant' or 'system'"),
        (json!({ "messages": user(json!(5)) }), 400, INVALID, "body.messages.0.content"),
        (json!({ "messages": user(json!([{ "type": "x" }])) }), 400, INVALID, "body.messages.0.content.0.type"),
        (json!({ "messages": user(image) }), 400, INVALID, "messages.0.content.0"),
        (json!({ "messages": user(call) }), 400, INVALID, "\"tool_use\""),
        (json!({ "messages": [] }), 400, INVALID, "empty conversation"),
        (json!({ "messages": plain, "temperature": 3 }), 400, INVALID, "temperature must be in [0, 2]"),
        (json!({ "messages": plain, "tools": [{ "name": "x" }] }), 400, INVALID, "body.tools.0.input_schema"),
        (json!({ "messages": plain, "tool_choice": { "type": "tool" } }), 400, INVALID, "tool_choice.name is required"),
        (json!({ "messages": plain, "tool_choice": { "type": "any" } }), 400, INVALID, "`tools` must be set"),
        (json!({ "messages": plain, "stop_sequences": ["a", "b", "c", "d", "e"] }), 400, INVALID, "stop_sequences"),
        (json!({ "messages": plain, "n": 2 }), 400, INVALID, "`n` must be 1"),
        (json!({ "messages": plain, "stop_sequences": ["a", 7] }), 400, INVALID, "body.stop_sequences.1"),
        (json!({ "messages": plain, "tool_choice": { "type": "x" } }), 400, INVALID, "body.tool_choice.type"),
        (json!({ "messages": plain, "thinking": { "type": "x" } }), 400, INVALID, "body.thinking"),
        (
            json!({ "messages": plain, "thinking": { "type": "enabled", "budget_tokens": 2000 } }),
            400,
            INVALID,
            "thinking.budget_tokens must be less than",
        ),
        (json!({ "messages": plain, "mcp_servers": [{}] }), 400, INVALID, "mcp_servers"),
        (json!({ "messages": plain, "container": "x" }), 400, INVALID, "container"),
        (
            json!({ "messages": plain, "context_management": { "edits": [{ "type": "clear_tool_uses_20250919" }] } }),
            400,
            INVALID,
            "context_management",
        ),
    ];
    for (more, status, kind, words) in cases {
        let mut body = json!({ "model": MODEL, "max_tokens": 8 });
        body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        let answer = app.post(PATH, body).await;
        assert_eq!(answer.status, status, "{more} {}", answer.text);
        let error = answer.json();
        let keys: Vec<_> = error.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!((keys, &error["type"]), (vec!["type", "error"], &json!("error")));
        let message = error["error"]["message"].as_str().unwrap();
        assert_eq!(error["error"], json!({ "type": kind, "message": message }), "{more}");
        assert!(message.contains(words), "{more}: {message}");
        assert!(answer.headers["request-id"].to_str().unwrap().starts_with("req_"));
    }
    let answer = app.request(posted(PATH, "{oops")).await;
    assert_eq!((answer.status, &answer.json()["type"]), (400, &json!("error")));
    let missing = app.post(COUNT, json!({ "model": "other", "messages": plain })).await;
    assert_eq!((missing.status, &missing.json()["error"]["type"]), (404, &json!("not_found_error")));
}

#[tokio::test]
async fn what_is_refused_before_a_route_is_reached_is_in_anthropics_shape_too() {
    let app = TestApp::new().keys(&["key"]).server(|server| server.max_request_bytes = 500);
    let ask = async |method: &str, path: &str, key: &str, body: &str| {
        let mut request = posted(path, body.to_owned());
        *request.method_mut() = method.parse().unwrap();
        request.headers_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
        app.request(request).await
    };
    let long = json!({ "model": MODEL, "metadata": { "user_id": "a".repeat(600) } }).to_string();
    for path in [PATH, COUNT, "/v1/messages/render"] {
        for (method, key, body, status, kind, message) in [
            ("POST", "other", "{}", 401, "authentication_error", "Unauthorized"),
            ("POST", "key", &long, 413, "request_too_large", "the body of the request is longer than the 500 bytes"),
            ("GET", "key", "", 405, "invalid_request_error", "Method Not Allowed"),
            ("POST", "key", "{}", 400, "invalid_request_error", "body.model"),
        ] {
            let answer = ask(method, path, key, body).await;
            let told = answer.json();
            assert_eq!((answer.status, &told["type"]), (status, &json!("error")), "{path} {method} {}", answer.text);
            assert_eq!(told["error"]["type"], kind, "{path} {method}");
            let text = told["error"]["message"].as_str().unwrap();
            assert!(text.contains(message), "{path} {method} {text}");
            assert!(answer.headers["request-id"].to_str().unwrap().starts_with("req_"), "{path} {method}");
            assert!(answer.headers.contains_key("x-retry"), "{path} {method}");
            assert_eq!(answer.headers["content-type"], "application/json");
            let length = answer.headers.get("content-length").map(|length| length.to_str().unwrap().parse());
            assert!(length.is_none_or(|length| length == Ok(answer.text.len())), "{path} {method}");
        }
    }
    assert_eq!(ask("GET", PATH, "key", "").await.headers["allow"], "POST");
    let unknown = ask("POST", "/v1/messages/batches", "key", "{}").await;
    assert_eq!((unknown.status, &unknown.json()["error"]["type"]), (404, &json!("not_found_error")));
    // The shapes of other dialects stay.
    let other = ask("POST", "/v1/chat/completions", "other", "{}").await;
    assert_eq!((other.json(), other.headers.get("request-id")), (json!({ "error": "Unauthorized" }), None));
    let other = ask("POST", "/v1/responses", "key", &long).await;
    assert_eq!((other.status, &other.json()["error"]["type"]), (413, &json!("Request Entity Too Large")));
}

#[tokio::test]
async fn errors_of_the_server_have_anthropics_names_too() {
    let full = TestApp::new().gate(&Gate::shut()).seats(1).max_waiting(1);
    let body = json!({ "model": MODEL, "max_tokens": 8, "messages": [{ "role": "user", "content": "hello" }] });
    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    let engaging = json!({ "prompt": "hello", "stream": true });
    let _engaged = [full.open("/v1/completions", engaging.clone()).await, full.open("/v1/completions", engaging).await];
    let answer = full.post(PATH, body.clone()).await;
    assert_eq!((answer.status, &answer.json()["error"]["type"]), (503, &json!("overloaded_error")));
    let failing = TestApp::new().gate(&Gate::failing_after(1));
    let answer = failing.post(PATH, body).await;
    assert_eq!((answer.status, &answer.json()["error"]["type"]), (500, &json!("api_error")));
    let event = failing.post(PATH, streamed).await.text;
    assert!(event.contains("event: error\n") && event.contains("\"type\":\"api_error\""), "{event}");
}

/// Checks that both routes refuse what `more` adds, with a message that names `field`.
async fn refused(app: &TestApp, more: &Value, field: &str) {
    let mut body = json!({ "model": MODEL, "max_tokens": 8, "messages": [{ "role": "user", "content": "hello" }] });
    body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
    for path in [PATH, COUNT] {
        let answer = app.post(path, body.clone()).await;
        assert_eq!(answer.status, 400, "{path} {more} {}", answer.text);
        let error = &answer.json()["error"];
        assert_eq!(error["type"], "invalid_request_error", "{more}");
        let message = error["message"].as_str().unwrap();
        let named = message.trim_start_matches('`').strip_prefix(field);
        assert!(named.is_some_and(|rest| rest.starts_with([':', '`'])), "{more}: {message} names no {field}");
    }
}

#[tokio::test]
async fn a_block_that_cannot_be_shown_is_refused_by_its_place() {
    let app = TestApp::new();
    let image = json!({ "type": "image", "source": { "type": "url", "url": "x" } });
    let text = json!({ "type": "text", "text": "a" });
    for block in [image.clone(), json!({ "type": "thinking", "thinking": "hm" }), json!({ "type": "tool_reference" })] {
        refused(&app, &json!({ "system": [text, block] }), "system.1").await;
        let inline = json!([{ "role": "user", "content": "hello" }, { "role": "system", "content": [text, block] }]);
        refused(&app, &json!({ "messages": inline }), "messages.1.content.1").await;
    }
    refused(&app, &json!({ "system": [{ "type": "text" }] }), "system.0.text").await;
    let added = json!({ "type": "tool_addition", "tool": { "type": "tool_reference", "name": "f" } });
    let inline = json!([{ "role": "user", "content": "hello" }, { "role": "system", "content": [added] }]);
    refused(&app, &json!({ "messages": inline }), "messages.1.content.0").await;

    let first = json!({ "type": "tool_use", "id": "c", "name": "f", "input": {} });
    let cases = [
        ("user", json!({ "type": "text", "text": null }), ".text"),
        ("assistant", json!({ "type": "text" }), ".text"),
        ("assistant", json!({ "type": "thinking", "signature": "x" }), ".thinking"),
        ("assistant", json!({ "type": "tool_use", "name": "f", "input": {} }), ".id"),
        ("assistant", json!({ "type": "tool_use", "id": "c", "input": {} }), ".name"),
        ("user", json!({ "type": "tool_result", "content": "a" }), ".tool_use_id"),
        ("user", json!({ "type": "redacted_thinking", "data": "x" }), ""),
    ];
    for (role, block, field) in cases {
        let blocks = if role == "user" { json!([text, block]) } else { json!([first, block]) };
        let messages = json!([{ "role": "user", "content": "hello" }, { "role": role, "content": blocks }]);
        refused(&app, &json!({ "messages": messages }), &format!("messages.1.content.1{field}")).await;
    }
}

#[tokio::test]
async fn a_result_that_cannot_be_shown_is_refused_by_its_place() {
    let app = TestApp::new();
    let text = json!({ "type": "text", "text": "a" });
    let cases = [
        (json!({ "content": [{ "type": "text", "text": 7 }] }), ".0.text"),
        (json!({ "content": [text, { "type": "text" }] }), ".1.text"),
        (json!({ "content": [text, { "type": "image", "source": {} }] }), ".1"),
        (json!({ "content": [{ "text": "a" }] }), ".0"),
        (json!({ "is_error": true }), ""),
        (json!({ "is_error": true, "content": [] }), ""),
    ];
    for (more, place) in cases {
        let mut result = json!({ "type": "tool_result", "tool_use_id": "c" });
        result.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        let messages = json!([{ "role": "user", "content": [result] }]);
        refused(&app, &json!({ "messages": messages }), &format!("messages.0.content.0.content{place}")).await;
    }
}

#[tokio::test]
async fn a_message_that_says_nothing_is_refused_where_it_would_be_left_out() {
    let app = TestApp::new().says("hello").says("hello");
    let user = json!({ "role": "user", "content": "hello" });
    let empty = json!([{ "type": "text", "text": "" }]);
    for (role, content) in [
        ("user", json!([])),
        ("user", empty.clone()),
        ("assistant", json!([])),
        ("system", json!([])),
        ("system", json!("")),
        ("system", empty.clone()),
    ] {
        let messages = json!([user, { "role": role, "content": content }, user]);
        refused(&app, &json!({ "messages": messages }), "messages.1").await;
    }
    // An assistant's turn is one even where it says nothing that a model can read.
    let of = async |content: Value| {
        let messages = json!([user, { "role": "assistant", "content": content }]);
        let body = json!({ "model": MODEL, "max_tokens": 8, "messages": messages });
        app.post(COUNT, body).await.ok()["input_tokens"].clone()
    };
    let silent = of(json!("")).await;
    for content in [json!([]), empty, json!([{ "type": "redacted_thinking", "data": "x" }])] {
        assert_eq!(of(content).await, silent);
    }
}

#[tokio::test]
async fn a_field_that_cannot_be_kept_is_refused_by_its_name() {
    let app = TestApp::new().reads_tool_calls();
    for (management, field) in [
        (json!({ "edits": "x" }), "context_management.edits"),
        (json!({ "edits": { "type": "x" } }), "context_management.edits"),
        (json!({ "edits": [{ "type": "clear_thinking_20251015" }] }), "context_management.edits"),
        (json!("x"), "context_management"),
    ] {
        refused(&app, &json!({ "context_management": management }), field).await;
    }
    let tool = json!({ "name": "f", "input_schema": { "type": "object" } });
    let choice = json!({ "type": "any", "name": "f" });
    refused(&app, &json!({ "tools": [tool], "tool_choice": choice }), "tool_choice.name").await;
}

#[tokio::test]
async fn a_form_of_the_answer_needs_its_schema() {
    let app = TestApp::new();
    let cases = [
        (json!({ "output_config": { "format": { "type": "json_schema" } } }), "output_config.format"),
        (json!({ "output_format": { "type": "json_schema", "schema": null } }), "output_format"),
    ];
    for (more, field) in cases {
        let mut body = json!({ "model": MODEL, "max_tokens": 8, "messages": [{ "role": "user", "content": "hello" }] });
        body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        let answer = app.post(PATH, body).await;
        assert_eq!(answer.status, 400, "{more} {}", answer.text);
        let error = answer.json();
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(&format!("`{field}`")), "{more}: {message}");
    }
}

#[tokio::test]
async fn what_claude_code_sends_besides_is_taken() {
    let policy = ToolPolicy { reasoning: ReasoningParser::named("qwen3"), ..ToolPolicy::default() };
    let app = TestApp::new().tools(policy).says("</think>hello");
    let edits = json!([{ "type": "clear_thinking_20251015", "keep": "all" }]);
    let mut request = posted(
        "/v1/messages?beta=true",
        json!({
            "model": MODEL, "max_tokens": 1025, "messages": [{ "role": "ctx", "content": "hello" }], "tools": [],
            "tool_choice": { "type": "auto" }, "thinking": { "type": "enabled", "budget_tokens": 1024 },
            "context_management": { "edits": edits }, "mcp_servers": [], "container": null, "service_tier": "auto",
        })
        .to_string(),
    );
    for (name, value) in [("anthropic-version", "2023-06-01"), ("anthropic-beta", "context-management-2025-06-27")] {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    assert_eq!(app.request(request).await.ok()["content"][0]["text"], "hello");
}

#[tokio::test]
async fn the_key_may_stand_in_anthropics_header() {
    let app = TestApp::new().keys(&["key"]).says("hello");
    let ask = async |path: &str, header: &'static str, value: &str| {
        let mut request = posted(
            path,
            json!({ "model": MODEL, "max_tokens": 8, "messages": [{ "role": "user", "content": "a" }] }).to_string(),
        );
        request.headers_mut().insert(header, value.parse().unwrap());
        app.request(request).await.status
    };
    for path in [PATH, COUNT] {
        assert_eq!(ask(path, "x-api-key", "key").await, 200);
        assert_eq!(ask(path, "authorization", "Bearer key").await, 200);
        assert_eq!(ask(path, "x-api-key", "other").await, 401);
    }
    assert_eq!(ask("/v1/chat/completions", "x-api-key", "key").await, 401);
    assert_eq!(ask("/v1/messagesx", "x-api-key", "key").await, 401);
}

#[tokio::test]
async fn an_answer_keeps_to_the_schema_of_its_format() {
    let schema = json!({ "type": "object", "properties": { "a": { "enum": [1] } }, "required": ["a"],
        "additionalProperties": false });
    let format = json!({ "type": "json_schema", "schema": schema });
    let body = |more: Value| {
        let mut body =
            json!({ "model": MODEL, "max_tokens": 60, "messages": [{ "role": "user", "content": "hello" }] });
        body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        body
    };
    let app = TestApp::new();
    let other = json!({ "structured_outputs": { "regex": "a" }, "output_config": { "format": format } });
    assert_eq!(app.post(PATH, body(other)).await.status, 400);
    for more in [json!({ "output_config": { "format": format } }), json!({ "output_format": format })] {
        let answer = app.post(PATH, body(more)).await.ok();
        let text: String = answer["content"][0]["text"].as_str().unwrap().split_whitespace().collect();
        assert!(r#"{"a":1}"#.starts_with(&text) && !text.is_empty(), "{text}");
    }
}

#[tokio::test]
async fn an_answer_that_the_client_began_is_continued_where_the_request_says_so() {
    let app = TestApp::new();
    let begun = json!([{ "role": "user", "content": "hi" }, { "role": "assistant", "content": "hel" }]);
    let mut body = json!({ "model": "tiny", "messages": begun, "max_tokens": 4, "return_token_ids": true });
    // As in vLLM, the message is a whole turn, and the next one is the model's.
    let turn = app.post("/v1/messages", body.clone()).await.ok();
    let chat = json!({ "messages": begun, "return_token_ids": true, "max_tokens": 4 });
    let wanted = app.post("/v1/chat/completions", chat).await.ok();
    assert_eq!(turn["prompt_token_ids"], wanted["prompt_token_ids"]);
    (body["continue_final_message"], body["add_generation_prompt"]) = (json!(true), json!(false));
    let continued = app.post("/v1/messages", body).await.ok();
    let ids: Vec<u32> = serde_json::from_value(continued["prompt_token_ids"].clone()).unwrap();
    assert!(ids.ends_with(&app.ids("hel")), "{ids:?}");
}

#[tokio::test]
async fn what_an_assistant_said_in_fields_of_a_chat_is_refused() {
    let app = TestApp::new();
    let call = json!([{ "id": "c", "type": "function", "function": { "name": "f", "arguments": "{}" } }]);
    for (field, value, block) in [
        ("tool_calls", &call, "tool_use"),
        ("reasoning", &json!("hm"), "thinking"),
        ("reasoning_content", &json!("hm"), "thinking"),
    ] {
        for path in [PATH, COUNT] {
            let ask = async |role: &str, value: &Value| {
                let said = json!({ "role": role, "content": "a", field: value });
                let messages = json!([{ "role": "user", "content": "hi" }, said, { "role": "user", "content": "so?" }]);
                app.post(path, json!({ "model": "tiny", "messages": messages, "max_tokens": 4 })).await
            };
            let refused = ask("assistant", value).await;
            assert_eq!(refused.status, 400, "{path} {field}: {}", refused.text);
            let message = refused.error()["message"].as_str().unwrap().to_owned();
            assert!(message.contains(&format!("messages.1.{field}")) && message.contains(block), "{message}");
            assert_eq!(ask("assistant", &Value::Null).await.status, 200, "{path} {field}");
            assert_eq!(ask("user", value).await.status, 200, "{path} {field}");
        }
    }
}
