//! Codex and Claude Code as they are: their tools, also those that no server here runs, over several turns.

use serde_json::{Value, json};
use tito::TokenId;

use super::responses::events;
use crate::it::app::{Answer, IM_END, MODEL, TestApp};

const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";
const CHAT: &str = "/v1/chat/completions";

fn called(name: &str, arguments: &Value) -> String {
    format!("<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {arguments}}}\n</tool_call>")
}

/// A server that reads calls and whose model says `texts`, spelt letter by letter.
fn spelled(texts: &[String]) -> TestApp {
    texts.iter().fold(TestApp::new().reads_tool_calls(), |app, text| {
        let letters = text.chars().flat_map(|letter| app.ids(&letter.to_string()));
        let ids: Vec<TokenId> = letters.chain([IM_END]).collect();
        app.script(ids)
    })
}

fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    answer.headers.get(name).map(|value| value.to_str().unwrap())
}

fn parameters() -> Value {
    json!({ "type": "object", "properties": { "cmd": { "type": "string" } }, "required": ["cmd"] })
}

/// The tools of a request of Codex 0.169, and those that it has had with other settings.
fn codex_tools() -> Value {
    let function = |name: &str| {
        json!({
            "type": "function", "name": name, "description": "Does it.", "strict": false, "parameters": parameters(),
        })
    };
    json!([
        function("exec_command"),
        { "type": "namespace", "name": "multi_agent_v1", "description": "Tools for sub-agents.",
          "tools": [function("close_agent"), function("spawn_agent")] },
        { "type": "custom", "name": "apply_patch", "description": "A freeform tool.",
          "format": { "type": "grammar", "syntax": "lark", "definition": "start: /(.|\\n)+/" } },
        { "type": "web_search", "external_web_access": false },
        { "type": "image_generation", "output_format": "png" },
        { "type": "tool_search", "execution": "client", "parameters": parameters() },
        { "type": "local_shell" },
    ])
}

/// A conversation of Codex, which keeps all items and sends them again.
struct Codex {
    app: TestApp,
    items: Vec<Value>,
}

impl Codex {
    fn new(app: TestApp) -> Self {
        let text = |role: &str, text: &str| json!({ "type": "message", "role": role, "content": [{ "type": "input_text", "text": text }] });
        let items = vec![text("developer", "You are Codex."), text("developer", "Skills."), text("user", "hello")];
        Self { app, items }
    }

    fn body(&self) -> Value {
        json!({
            "model": MODEL, "input": self.items, "tools": codex_tools(), "tool_choice": "auto", "store": false,
            "parallel_tool_calls": true, "reasoning": { "summary": "auto" },
            "include": ["reasoning.encrypted_content"], "prompt_cache_key": "k", "client_metadata": { "a": "b" },
            "return_token_ids": true,
        })
    }

    async fn turn(&mut self) -> (Answer, Value) {
        let answer = self.app.post(RESPONSES, self.body()).await;
        let response = answer.ok();
        self.items.extend(response["output"].as_array().unwrap().iter().map(|item| {
            let mut item = item.clone();
            for ids in ["prompt_token_ids", "generation_token_ids", "generation_log_probs"] {
                item.as_object_mut().unwrap().remove(ids);
            }
            item
        }));
        (answer, response)
    }

    fn result(&mut self, response: &Value, kind: &str, output: &str) {
        let call_id = &response["output"][0]["call_id"];
        self.items.push(json!({ "type": kind, "call_id": call_id, "output": output }));
    }
}

fn call_of(response: &Value) -> (&Value, &Value, &Value) {
    let item = &response["output"][0];
    (&item["type"], &item["namespace"], &item["name"])
}

#[tokio::test]
async fn codex_works_with_its_own_tools_over_several_turns() {
    let patch = "*** Begin Patch\n*** End Patch";
    let mut codex = Codex::new(spelled(&[
        called("exec_command", &json!({ "cmd": "ls" })),
        called("multi_agent_v1__spawn_agent", &json!({ "cmd": "look" })),
        called("apply_patch", &json!({ "input": patch })),
        "done".to_owned(),
    ]));
    let (answer, first) = codex.turn().await;
    assert_eq!(call_of(&first), (&json!("function_call"), &Value::Null, &json!("exec_command")));
    let ignored = ["web_search", "image_generation", "tool_search", "local_shell"];
    assert_eq!(first["ignored_tools"], json!(ignored));
    assert_eq!(header(&answer, "x-ignored-tools"), Some(&*ignored.join(", ")));
    assert_eq!(first["unforced_tools"], json!(["apply_patch: grammar"]));
    assert_eq!(header(&answer, "x-unforced-tools"), Some("apply_patch: grammar"));
    assert_eq!(first["tools"].as_array().unwrap().len(), codex_tools().as_array().unwrap().len());
    codex.result(&first, "function_call_output", "a.rs");

    let (answer, second) = codex.turn().await;
    assert!(header(&answer, "x-token-continuity").unwrap().starts_with("cache; outcome=exact"));
    assert_eq!(call_of(&second), (&json!("function_call"), &json!("multi_agent_v1"), &json!("spawn_agent")));
    codex.result(&second, "function_call_output", "agent 1");
    // What another server's model did before this one took over.
    codex.items.push(json!({ "type": "web_search_call", "status": "completed", "action": { "type": "search" } }));
    codex.items.push(json!({ "type": "reasoning", "summary": [], "encrypted_content": "gAAA" }));

    let (answer, third) = codex.turn().await;
    assert!(header(&answer, "x-token-continuity").unwrap().starts_with("cache; outcome=exact"));
    assert_eq!(call_of(&third), (&json!("custom_tool_call"), &Value::Null, &json!("apply_patch")));
    assert_eq!(third["output"][0]["input"], patch);
    assert_eq!(third["ignored_items"], json!(["web_search_call", "reasoning"]));
    assert_eq!(header(&answer, "x-ignored-items"), Some("web_search_call, reasoning"));
    codex.result(&third, "custom_tool_call_output", "Done!");

    let (answer, last) = codex.turn().await;
    assert!(header(&answer, "x-token-continuity").unwrap().starts_with("cache; outcome=exact"));
    assert_eq!(last["output"][0]["content"][0]["text"], "done");
}

#[tokio::test]
async fn a_group_of_functions_is_shown_as_vllm_shows_it() {
    let app = spelled(&["hello".to_owned()]);
    let body = Codex::new(spelled(&[])).body();
    let answer = app.post(RESPONSES, body).await.ok();
    let function = |name: &str, description: &str, parameters: Value| {
        json!({ "type": "function", "function": {
            "name": name, "description": description, "parameters": parameters, "strict": false,
        } })
    };
    let mut input = json!({
        "type": "object",
        "properties": { "input": { "type": "string", "description": "The freeform text payload for this tool." } },
        "required": ["input"], "additionalProperties": false,
    });
    input = function("apply_patch", "A freeform tool.", input);
    input["function"]["strict"] = json!(true);
    let tools = json!([
        function("exec_command", "Does it.", parameters()),
        function("multi_agent_v1__close_agent", "Does it.", parameters()),
        function("multi_agent_v1__spawn_agent", "Does it.", parameters()),
        input,
    ]);
    let messages = json!([
        { "role": "developer", "content": "You are Codex." }, { "role": "developer", "content": "Skills." },
        { "role": "user", "content": "hello" },
    ]);
    let chat = app.post(CHAT, json!({ "messages": messages, "tools": tools, "return_token_ids": true })).await.ok();
    assert_eq!(answer["output"][0]["prompt_token_ids"], chat["prompt_token_ids"]);
}

#[tokio::test]
async fn a_choice_finds_its_tool_in_a_group_and_what_is_not_shown_cannot_be_chosen() {
    let app = TestApp::new().reads_tool_calls();
    let twice = json!([
        { "type": "namespace", "name": "a", "tools": [{ "type": "function", "name": "f" }] },
        { "type": "namespace", "name": "b", "tools": [{ "type": "function", "name": "f" }] },
    ]);
    let only_served = json!([{ "type": "web_search" }]);
    for (tools, choice, said) in [
        (codex_tools(), json!({ "type": "web_search" }), "the model is not shown it"),
        (codex_tools(), json!({ "type": "function", "name": "nobody" }), "tool_choice"),
        (twice, json!({ "type": "function", "name": "f" }), "(a__f, b__f)"),
        (only_served.clone(), json!("required"), "shown none of the `tools`"),
        (only_served, json!({ "type": "web_search" }), "the model is not shown it"),
    ] {
        let refused = app.post(RESPONSES, json!({ "input": "hello", "tools": tools, "tool_choice": choice })).await;
        assert_eq!(refused.status, 400, "{choice}: {}", refused.text);
        assert!(refused.error()["message"].as_str().unwrap().contains(said), "{choice}: {}", refused.text);
    }
    for (tools, place) in [
        (json!([{ "type": "dance" }]), "tools[0]"),
        (json!([{ "type": "namespace", "name": "a" }]), "tools[0]"),
        (json!([{ "type": "namespace", "name": "a", "tools": [{ "type": "function" }] }]), "tools[0].tools[0]"),
        (json!([{ "type": "namespace", "name": "a", "tools": [{ "type": "dance" }] }]), "tools[0].tools[0]"),
    ] {
        let refused = app.post(RESPONSES, json!({ "input": "hello", "tools": tools })).await;
        assert_eq!((refused.status, &refused.error()["param"]), (400, &json!(place)), "{}", refused.text);
    }
    let named = called("multi_agent_v1__close_agent", &json!({ "cmd": "x" }));
    for choice in [
        json!({ "type": "function", "name": "close_agent" }),
        json!({ "type": "function", "name": "multi_agent_v1__close_agent" }),
        json!({ "type": "function", "name": "close_agent", "namespace": "multi_agent_v1" }),
    ] {
        let app = spelled(std::slice::from_ref(&named));
        let body = json!({ "input": "hello", "tools": codex_tools(), "tool_choice": choice });
        let response = app.post(RESPONSES, body).await.ok();
        let call = (&json!("function_call"), &json!("multi_agent_v1"), &json!("close_agent"));
        assert_eq!(call_of(&response), call, "{choice}");
    }
}

#[tokio::test]
async fn an_event_of_a_stream_has_the_clients_name_of_a_function_in_a_group() {
    let app = spelled(&[called("multi_agent_v1__close_agent", &json!({ "cmd": "x" }))]);
    let mut body = Codex::new(spelled(&[])).body();
    body["stream"] = json!(true);
    let events = events(&app.post(RESPONSES, body).await);
    let of = |kind: &str| events.iter().find(|event| event["type"] == kind).unwrap_or_else(|| panic!("no {kind}"));
    for kind in ["response.output_item.added", "response.output_item.done"] {
        let item = &of(kind)["item"];
        assert_eq!((&item["namespace"], &item["name"]), (&json!("multi_agent_v1"), &json!("close_agent")));
    }
    assert_eq!(of("response.function_call_arguments.done")["name"], "close_agent");
    assert_eq!(of("response.created")["response"]["ignored_tools"][0], "web_search");
}

#[tokio::test]
async fn instructions_and_system_items_are_one_message_where_the_template_wants_one() {
    let strict = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('first!') }}\
                  {% endif %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";
    let body = json!({
        "instructions": "Be.", "return_token_ids": true,
        "input": [
            { "role": "system", "content": [{ "type": "input_text", "text": "It." }] },
            { "role": "user", "content": "hello" }, { "role": "system", "content": "Not." },
        ],
    });
    let app = TestApp::new().chat_template(strict).says("hello");
    let answer = app.post(RESPONSES, body).await.ok();
    let messages =
        json!([{ "role": "system", "content": "Be.\n\nIt.\n\nNot." }, { "role": "user", "content": "hello" }]);
    let chat = app.post(CHAT, json!({ "messages": messages, "return_token_ids": true })).await.ok();
    assert_eq!(answer["output"][0]["prompt_token_ids"], chat["prompt_token_ids"]);
}

/// The tools of Claude Code 2.1, and those that it sends where it wants the server to search.
fn claude_tools() -> Value {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "additionalProperties": false,
        "properties": { "command": { "type": "string" } }, "required": ["command"],
    });
    json!([
        { "name": "Bash", "description": "Runs it.", "input_schema": schema },
        { "type": "custom", "name": "Read", "description": "Reads it.", "input_schema": schema },
        { "type": "web_search_20250305", "name": "web_search", "max_uses": 8 },
        { "type": "mcp_toolset", "mcp_server_name": "s" },
    ])
}

fn claude(messages: &Value) -> Value {
    json!({
        "model": MODEL, "max_tokens": 400, "messages": messages, "tools": claude_tools(),
        "system": [
            { "type": "text", "text": "x-anthropic-billing-header: cc_version=2.1;" },
            { "type": "text", "text": "You are an agent.", "cache_control": { "type": "ephemeral" } },
            { "type": "text", "text": "Help." },
        ],
        "thinking": { "type": "adaptive" }, "output_config": { "effort": "high" },
        "context_management": { "edits": [{ "type": "clear_thinking_20251015", "keep": "all" }] },
        "metadata": { "user_id": "u" },
    })
}

#[tokio::test]
async fn claude_code_works_with_its_own_tools_over_several_turns() {
    let app = spelled(&[
        called("Bash", &json!({ "command": "ls" })),
        called("Read", &json!({ "command": "a.rs" })),
        "done".to_owned(),
    ]);
    let mut messages = vec![
        json!({ "role": "user", "content": [{ "type": "text", "text": "hello" }] }),
        json!({ "role": "system", "content": "Agents: none." }),
    ];
    for (turn, tool) in [Some("Bash"), Some("Read"), None].into_iter().enumerate() {
        let counted = app.post(&format!("{MESSAGES}/count_tokens"), claude(&json!(messages))).await;
        let answer = app.post(MESSAGES, claude(&json!(messages))).await;
        let message = answer.ok();
        assert_eq!(counted.ok()["input_tokens"], message["usage"]["input_tokens"]);
        for answer in [&counted, &answer] {
            assert_eq!(header(answer, "x-ignored-tools"), Some("web_search, mcp_toolset"));
        }
        assert_eq!(message["ignored_tools"], json!(["web_search", "mcp_toolset"]));
        if turn > 0 {
            assert!(header(&answer, "x-token-continuity").unwrap().starts_with("cache; outcome=exact"));
        }
        let block = &message["content"][0];
        match tool {
            Some(name) => assert_eq!((&block["type"], &block["name"]), (&json!("tool_use"), &json!(name))),
            None => assert_eq!(block["text"], "done"),
        }
        messages.push(json!({ "role": "assistant", "content": message["content"] }));
        let result = json!({ "type": "tool_result", "tool_use_id": block["id"], "content": "a.rs" });
        messages.push(json!({ "role": "user", "content": [result] }));
    }
}

#[tokio::test]
async fn a_tool_that_the_model_is_not_shown_cannot_be_chosen_in_a_message() {
    let app = TestApp::new().reads_tool_calls();
    let mut body = claude(&json!([{ "role": "user", "content": "hello" }]));
    body["tool_choice"] = json!({ "type": "tool", "name": "web_search" });
    let refused = app.post(MESSAGES, body.clone()).await;
    assert_eq!(refused.status, 400, "{}", refused.text);
    assert!(refused.text.contains("the model is not shown it"), "{}", refused.text);
    // Tools of the client still need their schema.
    body["tool_choice"] = Value::Null;
    for tool in [json!({ "name": "Bash" }), json!({ "type": "custom", "name": "Bash" })] {
        body["tools"] = json!([tool]);
        let refused = app.post(MESSAGES, body.clone()).await;
        assert_eq!(refused.status, 400, "{}", refused.text);
        assert!(refused.text.contains("input_schema"), "{}", refused.text);
    }
    // In a stream, the notice is in the message with which it starts.
    let app = spelled(&["hello".to_owned()]);
    let mut body = claude(&json!([{ "role": "user", "content": "hello" }]));
    body["stream"] = json!(true);
    let answer = app.post(MESSAGES, body).await;
    assert!(answer.text.contains("\"ignored_tools\":[\"web_search\",\"mcp_toolset\"]"), "{}", answer.text);
}
