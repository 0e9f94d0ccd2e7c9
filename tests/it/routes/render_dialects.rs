//! `POST /v1/messages/render` and `/v1/responses/render`: the request in ids is that of the endpoint, in every turn.

use serde_json::{Value, json};
use tito::{
    parser::{ReasoningParser, ToolParser},
    turn::ToolPolicy,
};

use crate::it::app::{IM_END, MODEL, TestApp};

const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";
const GENERATE: &str = "/inference/v1/generate";

/// A server whose model says a text letter by letter, which is not how the text encodes.
fn spelling(text: &str) -> TestApp {
    let parser = ToolParser::named("hermes");
    let app = TestApp::new().tools(ToolPolicy {
        parser,
        auto: true,
        reasoning: ReasoningParser::named("qwen3"),
        ..ToolPolicy::default()
    });
    let ids = app.spelled(text);
    app.script(ids.into_iter().chain([IM_END]))
}

fn render(path: &str) -> String {
    format!("{path}/render")
}

fn with(mut body: Value, more: &Value) -> Value {
    body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
    body
}

fn message(more: &Value) -> Value {
    let messages = json!([{ "role": "user", "content": "hello" }]);
    with(json!({ "model": MODEL, "max_tokens": 40, "messages": messages, "temperature": 0 }), more)
}

fn schema() -> Value {
    json!({ "type": "object", "properties": { "a": { "enum": ["b"] } }, "required": ["a"], "additionalProperties": false })
}

/// The sampled ids of a request in ids.
async fn generated(app: &TestApp, rendered: Value) -> Value {
    app.post(GENERATE, rendered).await.ok()["choices"][0]["token_ids"].clone()
}

#[tokio::test]
async fn a_rendered_message_is_generated_as_the_message_is() {
    let tool = json!({ "name": "f", "description": "d", "input_schema": { "properties": {} } });
    let cases = [
        json!({}),
        json!({ "system": "you", "stop_sequences": ["lo"], "top_k": 3 }),
        json!({ "tools": [tool], "tool_choice": { "type": "auto", "disable_parallel_tool_use": true } }),
        json!({ "max_tokens": 2000, "thinking": { "type": "enabled", "budget_tokens": 1024 } }),
        json!({ "prompt_token_ids": [1, 5, 6], "seed": 3 }),
    ];
    for more in cases {
        let app = spelling("a</think>hello");
        let body = message(&with(json!({ "return_token_ids": true }), &more));
        let rendered = app.post(&render(MESSAGES), body.clone()).await.ok();
        let answer = app.post(MESSAGES, body).await.ok();
        assert_eq!(rendered["token_ids"], answer["prompt_token_ids"], "{more}");
        assert!(rendered["request_id"].as_str().unwrap().starts_with("chatcmpl-"), "{rendered}");
        assert_eq!(generated(&app, rendered).await, answer["generation_token_ids"], "{more}");
    }
}

#[tokio::test]
async fn a_rendered_message_says_how_its_answer_is_read_in_the_terms_of_a_chat() {
    let tool = json!({ "name": "f", "description": "d", "input_schema": { "properties": {} } });
    let choice = json!({ "type": "auto", "disable_parallel_tool_use": true });
    let app = spelling("a</think>hello<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>");
    let body = message(&json!({ "tools": [tool], "tool_choice": choice, "max_tokens": 200 }));
    let mut rendered = app.post(&render(MESSAGES), body).await.ok();
    let parameters = json!({ "properties": {}, "type": "object" });
    let function = json!({ "name": "f", "description": "d", "parameters": parameters });
    let context = json!({
        "tools": [{ "type": "function", "function": function }], "tool_choice": "auto", "parallel_tool_calls": false,
        "include_reasoning": true, "chat_template_kwargs": {}, "history_tool_call_cnt": 0,
    });
    assert_eq!(rendered["parse_context"], context);
    rendered["output_mode"] = json!("derender");
    let read = app.post(GENERATE, rendered).await.ok()["choices"][0]["message"].clone();
    assert_eq!((&read["reasoning"], &read["tool_calls"][0]["function"]["name"]), (&json!("a"), &json!("f")), "{read}");
}

#[tokio::test]
async fn a_rendered_response_is_generated_as_the_response_is() {
    let tool = json!({ "type": "function", "name": "f", "parameters": { "type": "object" } });
    let cases = [
        json!({}),
        json!({ "instructions": "you", "max_output_tokens": 3, "stream": true }),
        json!({ "tools": [tool] }),
        json!({ "background": true, "include": ["message.output_text.logprobs"], "top_logprobs": 2 }),
        json!({ "prompt_token_ids": [1, 5, 6], "thinking_token_budget": 3 }),
    ];
    for more in cases {
        let app = spelling("a</think>hello");
        let body = with(json!({ "input": "hello", "temperature": 0 }), &more);
        let rendered = app.post(&render(RESPONSES), body.clone()).await.ok();
        assert_eq!(rendered["stream"], more.get("stream") == Some(&json!(true)));
        let whole = json!({ "stream": false, "background": false, "return_token_ids": true });
        let answer = app.post(RESPONSES, with(body, &whole)).await.ok();
        let item = answer["output"].as_array().unwrap().last().unwrap();
        assert_eq!(rendered["token_ids"], item["prompt_token_ids"], "{more}");
        let plain = with(rendered, &json!({ "stream": false }));
        assert_eq!(generated(&app, plain).await, item["generation_token_ids"], "{more}");
    }
}

#[tokio::test]
async fn known_ids_of_earlier_turns_are_kept_as_in_the_endpoints() {
    let app = spelling("a</think>hello you");
    let first = app.post(MESSAGES, message(&json!({ "return_token_ids": true }))).await.ok();
    let bare = json!({ "role": "assistant", "content": first["content"] });
    for earlier in [with(bare.clone(), &ids(&first)), bare] {
        let turns = json!([{ "role": "user", "content": "hello" }, earlier, { "role": "user", "content": "world" }]);
        let body = message(&json!({ "messages": turns, "return_token_ids": true }));
        let rendered = app.post(&render(MESSAGES), body.clone()).await;
        assert!(rendered.headers["x-token-continuity"].to_str().unwrap().contains("outcome=exact"));
        let rendered = rendered.ok()["token_ids"].clone();
        assert_eq!(rendered, app.post(MESSAGES, body).await.ok()["prompt_token_ids"]);
        assert!(starts_with(&rendered, &first));
    }

    let first = app.post(RESPONSES, json!({ "input": "hello", "include": ["token_ids"] })).await.ok();
    let last = first["output"].as_array().unwrap().last().unwrap();
    let items = [json!([{ "role": "user", "content": "hello" }]), first["output"].clone()];
    let mut items: Vec<_> = items.iter().flat_map(|items| items.as_array().unwrap().clone()).collect();
    items.push(json!({ "role": "user", "content": "world" }));
    for body in [
        json!({ "input": items, "include": ["token_ids"] }),
        json!({ "input": "world", "previous_response_id": first["id"], "include": ["token_ids"] }),
    ] {
        let rendered = app.post(&render(RESPONSES), body.clone()).await.ok()["token_ids"].clone();
        let answer = app.post(RESPONSES, body).await.ok();
        assert_eq!(rendered, answer["output"].as_array().unwrap().last().unwrap()["prompt_token_ids"]);
        assert!(starts_with(&rendered, last));
    }
}

fn ids(of: &Value) -> Value {
    json!({ "prompt_token_ids": of["prompt_token_ids"], "generation_token_ids": of["generation_token_ids"] })
}

fn starts_with(prompt: &Value, turn: &Value) -> bool {
    let known = [&turn["prompt_token_ids"], &turn["generation_token_ids"]];
    let known: Vec<_> = known.iter().flat_map(|ids| ids.as_array().unwrap().clone()).collect();
    known.len() > 5 && prompt.as_array().unwrap().starts_with(&known)
}

#[tokio::test]
async fn the_form_of_an_answer_is_written_down() {
    let app = TestApp::new();
    let format = json!({ "type": "json_schema", "schema": schema() });
    let of_message = message(&json!({ "output_config": { "format": format } }));
    let named = json!({ "type": "json_schema", "name": "n", "schema": schema() });
    let of_response = json!({ "input": "hello", "text": { "format": named } });
    for (path, body) in [(MESSAGES, of_message), (RESPONSES, of_response)] {
        let rendered = app.post(&render(path), body).await.ok();
        assert_eq!(rendered["sampling_params"]["structured_outputs"]["json"], schema(), "{path}");
        let made = app.post(GENERATE, with(rendered, &json!({ "output_mode": "text" }))).await.ok();
        let text = made["choices"][0]["text"].as_str().unwrap().to_owned();
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), json!({ "a": "b" }), "{path} {text}");
    }
}

#[tokio::test]
async fn rendering_a_response_neither_stores_nor_reserves_it() {
    let app = TestApp::new().says("hello");
    let body = json!({ "input": "hello", "request_id": "resp_one", "background": true });
    let rendered = app.post(&render(RESPONSES), body.clone()).await.ok();
    assert_eq!(rendered["request_id"], "resp_one");
    assert_eq!(app.get("/v1/responses/resp_one").await.status, 404);
    assert_eq!(app.post(RESPONSES, body).await.status, 200);
}

#[tokio::test]
async fn what_cannot_be_written_down_is_refused_in_the_words_of_the_dialect() {
    let app = TestApp::new().reads_tool_calls();
    let tool = json!({ "name": "f", "input_schema": schema(), "strict": true });
    for more in [
        json!({ "tools": [tool], "tool_choice": { "type": "any" } }),
        json!({ "tools": [tool], "tool_choice": { "type": "tool", "name": "f" } }),
        json!({ "tools": [tool] }),
        json!({ "temperature": 9 }),
        json!({ "messages": [] }),
    ] {
        let refused = app.post(&render(MESSAGES), message(&more)).await;
        let shape = refused.json();
        assert_eq!((refused.status, &shape["type"]), (400, &json!("error")), "{more} {}", refused.text);
    }
    let tool = json!({ "type": "function", "name": "f", "parameters": schema(), "strict": true });
    for (more, param) in [
        (json!({ "tools": [tool], "tool_choice": "required" }), "tool_choice"),
        (json!({ "tools": [tool], "tool_choice": { "type": "function", "name": "f" } }), "tool_choice"),
        (json!({ "tools": [tool] }), "tools"),
        (json!({ "prompt": { "id": "x" } }), "prompt"),
    ] {
        let refused = app.post(&render(RESPONSES), with(json!({ "input": "hello" }), &more)).await;
        assert_eq!((refused.status, &refused.error()["param"]), (400, &json!(param)), "{more} {}", refused.text);
    }
    let unknown = json!({ "input": "hello", "previous_response_id": "resp_none" });
    assert_eq!(app.post(&render(RESPONSES), unknown).await.status, 404);
}

#[tokio::test]
async fn a_structured_output_of_a_rendered_request_follows_its_thoughts_as_in_the_endpoint() {
    let chosen = json!({ "choice": ["ab", "ba"] });
    let chat = json!({ "messages": [{ "role": "user", "content": "hello" }] });
    for (path, body) in
        [("/v1/chat/completions", chat), (MESSAGES, message(&json!({}))), (RESPONSES, json!({ "input": "hello" }))]
    {
        let app = spelling("xyz</think>zzzzz");
        let body = with(body, &json!({ "structured_outputs": chosen, "temperature": 0, "return_token_ids": true }));
        let rendered = app.post(&render(path), body.clone()).await.ok();
        assert_eq!(rendered["reasoning_ended"], false, "{path}");
        assert_eq!(rendered["reasoning_parser_kwargs"], json!({ "chat_template_kwargs": {} }), "{path}");
        let answer = app.post(path, body).await.ok();
        let message = match path {
            MESSAGES => &answer,
            RESPONSES => answer["output"].as_array().unwrap().last().unwrap(),
            _ => &answer["choices"][0]["message"],
        };
        let ids = generated(&app, rendered.clone()).await;
        assert_eq!(ids, message["generation_token_ids"], "{path}");
        assert_eq!(
            ids.as_array().unwrap()[..4],
            app.spelled("xyz</think>").iter().map(|id| json!(id)).collect::<Vec<_>>()
        );
        // Where the thoughts have ended, the output begins at once.
        let at_once = generated(&app, with(rendered, &json!({ "reasoning_ended": true }))).await;
        assert!([app.spelled("ab")[0], app.spelled("ba")[0]].map(|id| json!(id)).contains(&at_once[0]), "{at_once}");
    }
}

/// A stop string in thoughts that the model begins by itself ends no answer, rendered or not.
#[tokio::test]
async fn a_render_does_not_say_that_thoughts_have_ended_which_the_model_may_begin() {
    let cases =
        [("mistral", "[THINK]a you b[/THINK]c you d", "[THINK]a you b[/THINK]c "), ("granite", "c you d", "c ")];
    for (parser, said, kept) in cases {
        let policy = ToolPolicy { reasoning: ReasoningParser::named(parser), ..ToolPolicy::default() };
        let app = TestApp::new().tools(policy).says(said);
        let body = json!({
            "messages": [{ "role": "user", "content": "hello" }], "stop": ["you"], "temperature": 0, "return_token_ids": true
        });
        let chat = app.post("/v1/chat/completions", body.clone()).await.ok();
        let rendered = app.post(&render("/v1/chat/completions"), body).await.ok();
        assert_eq!(rendered["reasoning_ended"], false, "{parser}");
        let ids = generated(&app, rendered).await;
        assert_eq!(ids, chat["choices"][0]["token_ids"], "{parser}: {kept}");
    }
}

#[tokio::test]
async fn what_sglang_calls_otherwise_is_rendered_under_vllms_names() {
    let app = TestApp::new().says("hello");
    let asked = json!({
        "messages": [{ "role": "user", "content": "hello" }], "extra_key": "tenant-a", "routed_experts_start_len": 1,
        "no_stop_trim": true, "stop": "you",
    });
    let mut text = asked.clone();
    text["prompt"] = json!("hello");
    for (path, body) in [("/v1/chat/completions/render", asked), ("/v1/completions/render", text)] {
        let answer = app.post(path, body).await.ok();
        let rendered = if answer.is_array() { answer[0].clone() } else { answer };
        let params = &rendered["sampling_params"];
        assert_eq!(rendered["cache_salt"], "tenant-a", "{path}");
        assert_eq!(params["routed_experts_prompt_start"], 1, "{path}");
        assert_eq!(params["include_stop_str_in_output"], true, "{path}");
        app.post("/inference/v1/generate", rendered).await.ok();
        assert_eq!(app.engine().latest_cache_salt().as_deref(), Some("tenant-a"), "{path}");
    }
}

#[tokio::test]
async fn a_response_format_of_a_response_is_rendered() {
    let app = TestApp::new();
    let format = json!({ "type": "json_schema", "json_schema": { "name": "a", "schema": schema() } });
    let body = json!({ "model": MODEL, "input": "hello", "max_output_tokens": 40, "response_format": format });
    let rendered = app.post(&render(RESPONSES), body).await.ok();
    assert_eq!(rendered["sampling_params"]["structured_outputs"]["json"], schema());
}
