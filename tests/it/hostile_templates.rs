//! Templates and variables that are made to stop the server: an error at the start, or the client's fault. What they may
//! be made of is tested where templates are run, `crates/tito-text/src/prompt/template/tests/hostile.rs`.

use serde_json::{Value, json};

use crate::it::app::{TestApp, posted};

fn trusting() -> TestApp {
    TestApp::new().says("you").requests(|policy| policy.trust_request_chat_template = true)
}

fn body(mut more: Value) -> Value {
    let mut body = json!({ "messages": [{ "role": "user", "content": "hello" }] });
    body.as_object_mut().unwrap().append(more.as_object_mut().unwrap());
    body
}

/// Endless, and soon at its bound.
const DOUBLES: &str =
    "{% set n = namespace(v='a') %}{% for i in range(99) %}{% set n.v = n.v ~ n.v %}{% endfor %}{{ n.v }}";

#[tokio::test]
async fn a_template_that_cannot_be_read_within_the_bounds_is_refused_by_its_field() {
    let app = trusting();
    for source in [
        format!("{{{{ {}a{} }}}}", "(".repeat(20_000), ")".repeat(20_000)),
        "{% if true %}".repeat(5_000),
        "a".repeat(300_000),
        "{{ a".to_owned(),
    ] {
        for path in ["/v1/chat/completions", "/tokenize"] {
            let refused = app.post(path, body(json!({ "chat_template": source }))).await;
            assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("chat_template")), "{}", refused.text);
            let error = refused.error();
            let message = error["message"].as_str().unwrap();
            assert!(message.starts_with("template line 1: ") && message.len() < 200, "{message}");
        }
    }
}

#[tokio::test]
async fn a_render_beyond_the_bounds_is_the_clients_fault_and_the_server_goes_on() {
    let app = trusting();
    for (source, reason) in [
        (DOUBLES, "memory"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested too deeply"),
        ("{% set n = namespace(v=1) %}{% for i in range(999) %}{% set n.v = [n.v] %}{% endfor %}", "nested too deeply"),
        ("{% set n = namespace() %}{% set n.x = n %}{{ n }}", "cannot be printed"),
    ] {
        let refused = app.post("/tokenize", body(json!({ "chat_template": source }))).await;
        assert_eq!(refused.status, 400, "{}", refused.text);
        let error = refused.error();
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(reason), "{message}");
    }
    app.post("/tokenize", body(json!({ "chat_template": "hello" }))).await.ok();
}

#[tokio::test]
async fn deep_variables_are_shown_or_refused() {
    let app = TestApp::new().says("you").chat_template("{{ deep|tojson|length }} {{ (deep ~ '')|length }}");
    let nested = |depth: usize| {
        let deep = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        format!(r#"{{"messages": [{{"role": "user", "content": "a"}}], "chat_template_kwargs": {{"deep": {deep}}}}}"#)
    };
    let shown = app.request(posted("/tokenize", nested(200))).await.ok();
    let ids: Vec<u32> = serde_json::from_value(shown["tokens"].clone()).unwrap();
    assert_eq!(app.tokenizer().decode(&ids, false).unwrap(), "400 400");
    for depth in [1_000, 100_000] {
        let refused = app.request(posted("/tokenize", nested(depth))).await;
        assert!((400..500).contains(&refused.status), "{}", refused.text);
    }
}
