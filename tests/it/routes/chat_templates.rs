//! Templates of requests, and the variables that templates get.

use serde_json::{Value, json};

use crate::it::app::{Answer, TestApp};

/// Prints what it is given.
const SHOWS: &str =
    "{{ bos_token }}{{ enable_thinking is defined }} {{ enable_thinking }} {{ reasoning_effort }} {{ mood }}";

async fn ask(app: &TestApp, path: &str, more: Value) -> Answer {
    let mut body = json!({ "messages": [{ "role": "user", "content": "hello" }], "return_token_ids": true });
    body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
    app.post(path, body).await
}

async fn prompt(app: &TestApp, more: Value) -> String {
    let answer = ask(app, "/v1/chat/completions", more.clone()).await.ok();
    let same = ask(app, "/tokenize", more).await.ok();
    assert_eq!(answer["prompt_token_ids"], same["tokens"], "/tokenize gives the ids of the chat");
    let ids: Vec<u32> = serde_json::from_value(same["tokens"].clone()).unwrap();
    app.tokenizer().decode(&ids, false).unwrap()
}

fn app() -> TestApp {
    TestApp::new().says("you").continuity(|policy| policy.memory = None)
}

fn trusting() -> TestApp {
    app().requests(|policy| policy.trust_request_chat_template = true)
}

/// What the header says that a template does not show of a conversation with everything.
async fn hidden(app: TestApp, path: &str, more: Value) -> Option<String> {
    let call = json!({ "id": "abcdefghi", "type": "function", "function": { "name": "f", "arguments": "{}" } });
    let messages = json!([
        { "role": "user", "content": "hello" },
        { "role": "assistant", "content": null, "tool_calls": [call] },
        { "role": "tool", "content": "you", "tool_call_id": "abcdefghi" },
    ]);
    let tools = json!([{ "type": "function", "function": { "name": "f", "parameters": { "type": "object" } } }]);
    let mut body = json!({ "messages": messages, "tools": tools, "documents": [{ "title": "a", "text": "b" }] });
    body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
    let answer = app.reads_tool_calls().post(path, body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.headers.get("x-hidden-by-template").map(|names| names.to_str().unwrap().to_owned())
}

#[tokio::test]
async fn what_the_template_does_not_show_is_told() {
    const TEXTS: &str = "{{ bos_token }}{% for message in messages %}{{ message.content }}{% endfor %}";
    const ALL: &str = "{{ bos_token }}{{ messages }}{{ tools }}{{ documents }}";
    const NO_TOOLS: &str = "{{ bos_token }}{{ messages }}{{ documents }}";

    let none = json!({});
    for path in ["/v1/chat/completions", "/v1/chat/completions/render", "/tokenize"] {
        let told = hidden(app().chat_template(TEXTS), path, none.clone()).await;
        assert_eq!(told.as_deref(), Some("tools, tool_calls, documents"), "{path}");
        assert_eq!(hidden(app().chat_template(ALL), path, none.clone()).await, None, "{path}");
        assert_eq!(hidden(app().chat_template(NO_TOOLS), path, none.clone()).await.as_deref(), Some("tools"), "{path}");
        // A request's own template is asked as well.
        let own = json!({ "chat_template": NO_TOOLS });
        assert_eq!(hidden(trusting().chat_template(ALL), path, own).await.as_deref(), Some("tools"), "{path}");
    }
    // Nothing is told of what is not there.
    let bare = json!({ "messages": [{ "role": "user", "content": "a" }] });
    let answer = app().chat_template(TEXTS).post("/v1/chat/completions", bare).await;
    assert_eq!(answer.headers.get("x-hidden-by-template"), None);
}

#[tokio::test]
async fn every_dialect_tells_of_tools_that_the_template_does_not_show() {
    let app = || app().chat_template("{{ bos_token }}{{ messages[0].content }}").reads_tool_calls();
    let messages = json!([{ "role": "user", "content": "hello" }]);
    let tool = json!({ "type": "function", "name": "f", "parameters": { "type": "object" } });
    let message = json!({
        "model": crate::it::app::MODEL, "messages": messages, "max_tokens": 9,
        "tools": [{ "name": "f", "input_schema": { "type": "object" } }],
    });
    for (path, body) in [
        ("/v1/responses", json!({ "input": "hello", "tools": [tool] })),
        ("/v1/messages", message.clone()),
        ("/v1/messages/count_tokens", message.clone()),
        ("/v1/messages/render", message),
    ] {
        let answer = app().post(path, body).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(
            answer.headers.get("x-hidden-by-template").map(|value| value.to_str().unwrap()),
            Some("tools"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_server_that_trusts_requests_uses_their_templates() {
    let own = json!({ "chat_template": "{{ bos_token }}{{ messages[0].content }}!" });
    assert_eq!(prompt(&trusting(), own.clone()).await, "<|im_start|>hello!");
    for none in [json!({ "chat_template": null }), json!({ "chat_template": "" })] {
        assert!(prompt(&trusting(), none).await.starts_with("<|im_start|>user"));
    }
    for path in ["/v1/chat/completions", "/tokenize"] {
        let refused = ask(&app(), path, own.clone()).await;
        assert_eq!((refused.status, &refused.error()["param"]), (400, &Value::Null));
        assert_eq!(
            refused.error()["message"],
            "Chat template is passed with request, but --trust-request-chat-template is not set. Refused request with \
             untrusted chat template."
        );
    }
}

#[tokio::test]
async fn a_template_that_cannot_be_read_or_that_refuses_is_the_clients_fault() {
    for broken in ["{{ messages[0].content ", "{{ raise_exception('no') }}"] {
        let refused = ask(&trusting(), "/v1/chat/completions", json!({ "chat_template": broken })).await;
        assert_eq!((refused.status, &refused.error()["type"]), (400, &json!("BadRequestError")), "{}", refused.text);
    }
}

#[tokio::test]
async fn turns_of_one_template_are_not_continued_in_another() {
    let app = TestApp::new().says("you").requests(|policy| policy.trust_request_chat_template = true);
    let path = "/v1/chat/completions";
    ask(&app, path, json!({ "chat_template": "{{ messages[0].content }}", "session_id": "a" })).await.ok();
    let messages = json!([
        { "role": "user", "content": "hello" }, { "role": "assistant", "content": "you" },
        { "role": "user", "content": "the" },
    ]);
    let answer = ask(&app, path, json!({ "messages": messages, "session_id": "a" })).await.ok();
    assert_ne!(answer["token_continuity"]["outcome"], "exact");
}

#[tokio::test]
async fn effort_says_whether_to_think_unless_the_request_does() {
    let app = app().chat_template(SHOWS);
    assert_eq!(prompt(&app, json!({})).await, "<|im_start|>False   ");
    assert_eq!(prompt(&app, json!({ "reasoning_effort": "low" })).await, "<|im_start|>True True low ");
    assert_eq!(prompt(&app, json!({ "reasoning_effort": "none" })).await, "<|im_start|>True False none ");
    let told = json!({ "reasoning_effort": "low", "chat_template_kwargs": { "enable_thinking": false } });
    assert_eq!(prompt(&app, told).await, "<|im_start|>True False low ");
}

#[tokio::test]
async fn the_servers_map_says_which_effort_the_template_is_told() {
    let app = app().chat_template(SHOWS).requests(|policy| {
        let map = [("medium", "low"), ("max", "none")];
        policy.reasoning_effort_map = map.map(|(asked, told)| (asked.to_owned(), told.to_owned())).into();
    });
    assert_eq!(prompt(&app, json!({ "reasoning_effort": "medium" })).await, "<|im_start|>True True low ");
    assert_eq!(prompt(&app, json!({ "reasoning_effort": "high" })).await, "<|im_start|>True True high ");
    assert_eq!(prompt(&app, json!({ "reasoning_effort": "max" })).await, "<|im_start|>True False none ");
    let variable = json!({ "chat_template_kwargs": { "reasoning_effort": "medium" } });
    assert_eq!(prompt(&app, variable).await, "<|im_start|>False  medium ");
}

#[tokio::test]
async fn variables_of_the_server_hold_until_the_request_says_otherwise() {
    let app = app().chat_template(SHOWS).requests(|policy| {
        policy.default_chat_template_kwargs.insert("mood".to_owned(), "calm".into());
        policy.default_chat_template_kwargs.insert("enable_thinking".to_owned(), tito::json::Value::Bool(false));
    });
    assert_eq!(prompt(&app, json!({})).await, "<|im_start|>True False  calm");
    assert_eq!(
        prompt(&app, json!({ "chat_template_kwargs": { "mood": "wild" } })).await,
        "<|im_start|>True False  wild"
    );
    for silent in [json!(null), json!("auto")] {
        assert_eq!(
            prompt(&app, json!({ "chat_template_kwargs": { "mood": silent } })).await,
            "<|im_start|>True False  calm"
        );
    }
    assert_eq!(prompt(&app, json!({ "reasoning_effort": "high" })).await, "<|im_start|>True True high calm");
}

#[tokio::test]
async fn what_says_nothing_is_not_shown_to_the_template() {
    let app = app().chat_template("{{ mood is defined }}");
    assert_eq!(prompt(&app, json!({ "chat_template_kwargs": { "mood": null } })).await, "False");
    assert_eq!(prompt(&app, json!({ "chat_template_kwargs": { "mood": "auto" } })).await, "False");
    assert_eq!(prompt(&app, json!({ "chat_template_kwargs": { "mood": false } })).await, "True");
}

#[tokio::test]
async fn documents_are_shown_to_the_template() {
    let app = app().chat_template("{% for document in documents %}{{ document.text }} {% endfor %}");
    let documents = json!([{ "text": "hello" }, { "text": "you" }]);
    assert_eq!(prompt(&app, json!({ "documents": documents })).await, "hello you ");
}

#[tokio::test]
async fn an_answer_that_makes_calls_is_not_continued_without_them() {
    let app = TestApp::new();
    let call = json!({ "id": "c", "type": "function", "function": { "name": "f", "arguments": "{}" } });
    let body = |calls: Value| {
        json!({
            "messages": [{ "role": "user", "content": "a" }, { "role": "assistant", "content": "sure", "tool_calls": calls }],
            "continue_final_message": true, "add_generation_prompt": false,
        })
    };
    let refused = app.post("/v1/chat/completions", body(json!([call]))).await;
    let message = refused.error()["message"].clone();
    assert!(refused.status == 400 && message.as_str().unwrap().contains("makes calls"), "{}", refused.text);
    app.post("/v1/chat/completions", body(json!([]))).await.ok();
}
