//! Tools that a client of `/v1/messages` defers, and shows by references in the results of its own search.

use serde_json::{Value, json};
use tito::{parser::ToolParser, turn::ToolPolicy};

use crate::it::app::{Answer, IM_END, MODEL, TestApp};

const MESSAGES: &str = "/v1/messages";
const COUNT: &str = "/v1/messages/count_tokens";
const RENDER: &str = "/v1/messages/render";
const GENERATE: &str = "/inference/v1/generate";

fn called(name: &str, arguments: &Value) -> String {
    format!("<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {arguments}}}\n</tool_call>")
}

/// A server whose model says `texts`, spelt letter by letter.
fn spelled(parser: &str, texts: &[&str]) -> TestApp {
    let policy = ToolPolicy { parser: ToolParser::named(parser), auto: true, ..ToolPolicy::default() };
    texts.iter().fold(TestApp::new().tools(policy), |app, text| {
        let ids = app.spelled(text);
        app.script(ids.into_iter().chain([IM_END]))
    })
}

fn schema() -> Value {
    json!({ "type": "object", "properties": { "depth": { "type": "integer" } } })
}

fn tool(name: &str) -> Value {
    json!({ "name": name, "description": "Does it.", "input_schema": schema() })
}

fn deferred(name: &str) -> Value {
    json!({ "name": name, "description": "Does it.", "input_schema": schema(), "defer_loading": true })
}

fn reference(name: &str) -> Value {
    json!({ "type": "tool_reference", "tool_name": name })
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn function(name: &str) -> String {
    let parameters = r#"{"type": "object", "properties": {"depth": {"type": "integer"}}}"#;
    format!(
        "<function>{{\"description\": \"Does it.\", \"name\": \"{name}\", \"parameters\": {parameters}}}</function>"
    )
}

fn result(id: &Value, content: &Value) -> Value {
    json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": id, "content": content }] })
}

/// A question, a search and what it found.
fn found(content: &Value) -> Value {
    let search = json!({ "type": "tool_use", "id": "c", "name": "ToolSearch", "input": { "depth": 1 } });
    json!([{ "role": "user", "content": "hello" }, { "role": "assistant", "content": [search] }, result(&json!("c"), content)])
}

fn body(messages: &Value, tools: &Value) -> Value {
    json!({ "model": MODEL, "max_tokens": 400, "messages": messages, "tools": tools, "return_token_ids": true })
}

fn with(mut body: Value, key: &str, value: Value) -> Value {
    body[key] = value;
    body
}

fn verdict(answer: &Answer) -> &str {
    answer.headers["x-token-continuity"].to_str().unwrap()
}

/// A client that keeps contents only, and whose list of tools grows by what its searches find.
struct Client {
    app: TestApp,
    tools: Vec<Value>,
    messages: Vec<Value>,
    known: Vec<Value>,
}

impl Client {
    /// Asks, and checks that the prompt is the same everywhere and starts with all ids before it.
    async fn turn(&mut self, later: &[&str]) -> Value {
        let body = body(&json!(self.messages), &json!(self.tools));
        let counted = self.app.post(COUNT, body.clone()).await;
        let rendered = self.app.post(RENDER, body.clone()).await;
        let answer = self.app.post(MESSAGES, body).await;
        let message = answer.ok();
        let ids = |key: &str| message[key].as_array().unwrap().clone();
        let prompt = ids("prompt_token_ids");
        assert_eq!(prompt[..self.known.len()], self.known[..]);
        assert_eq!(counted.ok()["input_tokens"], prompt.len());
        assert_eq!(rendered.ok()["token_ids"], json!(prompt));
        if !self.known.is_empty() {
            let exact = format!("cache; outcome=exact; reused={};", self.known.len());
            assert!(verdict(&answer).starts_with(&exact), "{}", verdict(&answer));
        }
        assert_eq!(message["deferred_tools"], json!(later));
        for answer in [&counted, &rendered, &answer] {
            assert_eq!(answer.headers["x-deferred-tools"].to_str().unwrap(), later.join(", "));
        }
        self.known = prompt;
        self.known.extend(ids("generation_token_ids"));
        self.messages.push(json!({ "role": "assistant", "content": message["content"] }));
        message
    }

    fn result(&mut self, message: &Value, content: &Value) {
        self.messages.push(result(&message["content"][0]["id"], content));
    }
}

#[tokio::test]
async fn a_prompt_starts_with_all_ids_before_it_over_searches_that_add_tools() {
    let texts = [
        called("ToolSearch", &json!({ "depth": 1 })),
        called("WebFetch", &json!({ "depth": 2 })),
        called("ToolSearch", &json!({ "depth": 3 })),
        "done".to_owned(),
    ];
    let mut client = Client {
        app: spelled("hermes", &texts.each_ref().map(String::as_str)),
        tools: vec![tool("Bash"), tool("ToolSearch"), deferred("Placeholder"), tool("Write")],
        messages: vec![json!({ "role": "user", "content": "hello" })],
        known: Vec::new(),
    };
    let searched = client.turn(&["Placeholder"]).await;
    client.tools.insert(2, deferred("WebFetch"));
    client.result(&searched, &json!([reference("WebFetch")]));

    let fetched = client.turn(&["Placeholder"]).await;
    assert_eq!(fetched["content"][0]["input"], json!({ "depth": 2 }));
    client.result(&fetched, &json!("a page"));

    let searched = client.turn(&["Placeholder"]).await;
    client.tools.insert(1, deferred("CronList"));
    client.tools.push(deferred("Monitor"));
    client.result(&searched, &json!([text("two:"), reference("Monitor"), reference("CronList"), text("of 9")]));
    let last = client.turn(&["Placeholder"]).await;
    assert_eq!(last["content"][0]["text"], "done");

    // Another tool in the head is another context, and the answer says so.
    client.tools.push(tool("Edit"));
    client.messages.push(json!({ "role": "user", "content": "hello" }));
    let count = async |client: &Client| {
        let answer = client.app.post(COUNT, body(&json!(client.messages), &json!(client.tools))).await;
        answer.ok();
        answer
    };
    let changed = count(&client).await;
    assert!(verdict(&changed).contains("outcome=retokenized"), "{}", verdict(&changed));
    assert!(verdict(&changed).contains("reason=context_changed"), "{}", verdict(&changed));
    // So is another definition of a tool that a result has shown: it is what that result says.
    client.tools.pop();
    assert!(verdict(&count(&client).await).contains("outcome=exact"));
    client.tools.last_mut().unwrap()["description"] = json!("Does more.");
    let changed = count(&client).await;
    assert!(verdict(&changed).contains("outcome=partial"), "{}", verdict(&changed));
}

#[tokio::test]
async fn a_reference_is_the_definition_of_the_tool_in_the_text_of_the_result() {
    let app = TestApp::new().reads_tool_calls();
    let tools = json!([tool("ToolSearch"), deferred("A"), deferred("B"), deferred("C"), deferred("D")]);
    let named = json!({ "type": "tool_reference", "name": "C" });
    let content = json!([text("found"), reference("B"), reference("A"), text("and"), named]);
    let shown = [
        "found",
        "<functions>",
        &function("B"),
        &function("A"),
        "</functions>",
        "and",
        "<functions>",
        &function("C"),
        "</functions>",
    ];
    let rendered = app.post(RENDER, body(&found(&content), &tools)).await;
    assert_eq!(rendered.headers["x-deferred-tools"], "D");
    let call =
        json!({ "id": "c", "type": "function", "function": { "name": "ToolSearch", "arguments": "{\"depth\": 1}" } });
    let messages = json!([
        { "role": "user", "content": "hello" },
        { "role": "assistant", "content": null, "tool_calls": [call] },
        { "role": "tool", "tool_call_id": "c", "content": shown.join("\n") },
    ]);
    let search = json!({ "name": "ToolSearch", "description": "Does it.", "parameters": schema() });
    let tools = json!([{ "type": "function", "function": search }]);
    let chat = json!({ "model": MODEL, "max_tokens": 400, "messages": messages, "tools": tools });
    let chat = app.post("/v1/chat/completions/render", chat).await.ok();
    assert_eq!(rendered.ok()["token_ids"], chat["token_ids"]);
}

#[tokio::test]
async fn a_call_of_a_tool_that_a_reference_shows_is_read_by_its_schema_and_can_be_chosen() {
    let called = "<tool_call>\n<function=WebFetch>\n<parameter=depth>\n3\n</parameter>\n</function>\n</tool_call>";
    let app = spelled("qwen3_coder", &[called, called]);
    let tools = json!([tool("ToolSearch"), deferred("WebFetch")]);
    let asked = body(&found(&json!([reference("WebFetch")])), &tools);
    let message = app.post(MESSAGES, asked.clone()).await.ok();
    assert_eq!(message["content"][0]["input"], json!({ "depth": 3 }), "{message}");
    assert_eq!(message.get("deferred_tools"), None);
    let rendered = app.post(RENDER, asked).await.ok();
    let read = app.post(GENERATE, with(rendered, "output_mode", json!("derender"))).await.ok();
    let arguments = &read["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"];
    assert_eq!(serde_json::from_str::<Value>(arguments.as_str().unwrap()).unwrap(), json!({ "depth": 3 }));

    let named = self::called("WebFetch", &json!({ "depth": 4 }));
    let app = spelled("hermes", &[&named]);
    let choice = json!({ "type": "tool", "name": "WebFetch" });
    let chosen = |messages: &Value| with(body(messages, &tools), "tool_choice", choice.clone());
    let early = app.post(MESSAGES, chosen(&json!([{ "role": "user", "content": "hello" }]))).await;
    assert_eq!(early.status, 400, "{}", early.text);
    assert!(
        early.text.contains("`tool_choice.name` is \\\"WebFetch\\\", a tool with `defer_loading`"),
        "{}",
        early.text
    );
    let message = app.post(MESSAGES, chosen(&found(&json!([reference("WebFetch")])))).await.ok();
    assert_eq!(message["content"][0]["input"], json!({ "depth": 4 }), "{message}");
}

#[tokio::test]
async fn a_reference_to_what_is_not_there_is_refused_by_its_place() {
    let app = TestApp::new().reads_tool_calls();
    let tools =
        json!([tool("ToolSearch"), deferred("WebFetch"), { "type": "web_search_20250305", "name": "web_search" }]);
    let place = "messages.2.content.0.content.1.tool_name: ";
    let none = |name: &str| format!("{place}no tool in `tools` that the model can be shown has the name \"{name}\"");
    for (reference, said) in [
        (reference("Nothing"), none("Nothing")),
        (reference("web_search"), none("web_search")),
        (json!({ "type": "tool_reference" }), format!("{place}a block of type \"tool_reference\" needs this")),
        (
            json!({ "type": "tool_reference", "tool_name": 7 }),
            format!("{place}a block of type \"tool_reference\" needs this"),
        ),
    ] {
        for path in [MESSAGES, COUNT, RENDER] {
            let refused = app.post(path, body(&found(&json!([text("found"), reference])), &tools)).await;
            let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
            assert!(refused.status == 400 && message.starts_with(&said), "{path}: {}", refused.text);
        }
    }
    let block = json!([{ "role": "user", "content": [reference("WebFetch")] }]);
    let refused = app.post(MESSAGES, body(&block, &tools)).await;
    assert!(refused.status == 400 && refused.text.contains("belongs into the `content` of a `tool_result`"));
    for tools in [json!([deferred("WebFetch")]), json!([deferred("WebFetch"), deferred("Monitor")])] {
        let refused = app.post(MESSAGES, body(&found(&json!([reference("WebFetch")])), &tools)).await;
        assert!(refused.status == 400 && refused.text.contains("`tools` all have `defer_loading`"), "{}", refused.text);
    }
}

#[tokio::test]
async fn deferred_tools_are_shown_at_once_if_a_server_would_search_them() {
    let app = TestApp::new().reads_tool_calls();
    let search = json!({ "type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex" });
    let messages = json!([{ "role": "user", "content": "hello" }]);
    let rendered = app.post(RENDER, body(&messages, &json!([search, deferred("WebFetch")]))).await;
    assert_eq!(rendered.headers["x-ignored-tools"], "tool_search_tool_regex");
    assert_eq!(rendered.headers.get("x-deferred-tools"), None);
    let shown = app.post(RENDER, body(&messages, &json!([tool("WebFetch")]))).await.ok();
    assert_eq!(rendered.ok()["token_ids"], shown["token_ids"]);
}
