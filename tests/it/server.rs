//! What surrounds the API: browsers of other origins, limits, proxies, docs.

use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    http::{Method, Request},
};
use serde_json::json;
use tito::{engine::scripted::Gate, server::Cors};

use crate::it::app::{Answer, TestApp, posted};

fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    answer.headers.get(name).map(|value| value.to_str().unwrap())
}

async fn asked(app: &TestApp, method: Method, headers: &[(&str, &str)]) -> Answer {
    let request = Request::builder().method(method).uri("/health");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    app.request(request.body(Body::empty()).unwrap()).await
}

const PREFLIGHT: [(&str, &str); 2] = [("Origin", "http://x"), ("Access-Control-Request-Method", "POST")];

fn allowing(origins: &[&str], credentials: bool) -> TestApp {
    let origins = origins.iter().map(ToString::to_string).collect();
    TestApp::new().server(|server| server.cors = Cors { origins, credentials, ..Cors::default() })
}

#[tokio::test]
async fn without_flags_no_page_may_ask() {
    // Recorded from vLLM.
    let app = TestApp::new().keys(&["key"]);
    let answer = asked(&app, Method::OPTIONS, &PREFLIGHT).await;
    assert_eq!((answer.status, answer.text.as_str()), (400, "Disallowed CORS origin"));
    let all = "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT, QUERY";
    assert_eq!(header(&answer, "access-control-allow-methods"), Some(all));
    assert_eq!(header(&answer, "access-control-max-age"), Some("600"));
    assert_eq!(header(&answer, "access-control-allow-origin"), None);
    let plain = asked(&app, Method::GET, &[]).await;
    assert_eq!((plain.status, header(&plain, "vary")), (200, Some("Origin")));
    let cross = asked(&app, Method::GET, &[("Origin", "http://x")]).await;
    assert_eq!((cross.status, header(&cross, "access-control-allow-origin")), (200, None));
}

#[tokio::test]
async fn allowed_pages_are_told_so() {
    let app = allowing(&["http://x"], false);
    let answer = asked(&app, Method::OPTIONS, &PREFLIGHT).await;
    assert_eq!((answer.status, answer.text.as_str()), (200, "OK"));
    assert_eq!(header(&answer, "access-control-allow-origin"), Some("http://x"));
    let cross = asked(&app, Method::GET, &[("Origin", "http://x")]).await;
    assert_eq!(header(&cross, "access-control-allow-origin"), Some("http://x"));
    assert_eq!(header(&asked(&app, Method::GET, &[("Origin", "http://y")]).await, "access-control-allow-origin"), None);

    let everyone = asked(&allowing(&["*"], false), Method::GET, &[("Origin", "http://y")]).await;
    assert_eq!(header(&everyone, "access-control-allow-origin"), Some("*"));
    // With credentials, browsers want the origin itself.
    let everyone = asked(&allowing(&["*"], true), Method::GET, &[("Origin", "http://y")]).await;
    assert_eq!(header(&everyone, "access-control-allow-origin"), Some("http://y"));
    assert_eq!(header(&everyone, "access-control-allow-credentials"), Some("true"));
}

#[tokio::test]
async fn preflights_ask_for_methods_and_headers_too() {
    let app = TestApp::new().server(|server| {
        let only = |text: &str| vec![text.to_owned()];
        server.cors = Cors { origins: only("*"), methods: only("GET"), headers: only("X-Own"), credentials: false };
    });
    let with = |headers: &'static str| [PREFLIGHT[0], PREFLIGHT[1], ("Access-Control-Request-Headers", headers)];
    let answer = asked(&app, Method::OPTIONS, &with("x-other")).await;
    assert_eq!((answer.status, answer.text.as_str()), (400, "Disallowed CORS method, headers"));
    let answer = asked(&app, Method::OPTIONS, &with("x-own, content-type")).await;
    assert_eq!(answer.text, "Disallowed CORS method");
    assert_eq!(
        header(&answer, "access-control-allow-headers"),
        Some("Accept, Accept-Language, Content-Language, Content-Type, X-Own")
    );
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_whether_or_not_it_says_its_length() {
    let app = TestApp::new().server(|server| server.max_request_bytes = 100);
    let long = json!({ "prompt": "hello ".repeat(100) }).to_string();
    let chunks = long.as_bytes().chunks(60).map(|chunk| Ok::<_, std::io::Error>(Bytes::copy_from_slice(chunk)));
    let chunked = Body::from_stream(futures::stream::iter(chunks.collect::<Vec<_>>()));
    for body in [Body::from(long.clone()), chunked] {
        let answer = app.request(posted("/v1/completions", body)).await;
        assert_eq!((answer.status, &answer.error()["type"]), (413, &json!("Request Entity Too Large")));
        assert_eq!(answer.error()["code"], 413);
        assert!(answer.error()["message"].as_str().unwrap().contains("100 bytes"), "{}", answer.text);
    }
    app.post("/v1/completions", json!({ "prompt": "hello", "max_tokens": 1 })).await.ok();
}

#[tokio::test]
async fn a_silent_stream_gets_comments_and_stays_a_stream() {
    let gate = Gate::shut();
    let app = TestApp::new().says("hello").gate(&gate);
    let app = app.server(|server| server.stream_comments = Some(Duration::from_millis(1)));
    let body = json!({ "prompt": "hello", "stream": true }).to_string();
    let response = app.send(posted("/v1/completions", body)).await;
    let mut frames = response.into_body().into_data_stream();
    let comment = futures::StreamExt::next(&mut frames).await.unwrap().unwrap();
    assert_eq!(comment, ": keep-alive\n\n");
    gate.open();
    let mut text = String::new();
    while let Some(frame) = futures::StreamExt::next(&mut frames).await {
        text.push_str(std::str::from_utf8(&frame.unwrap()).unwrap());
    }
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    assert!(text.contains("hello"), "{text}");
}

#[tokio::test]
async fn responses_carry_request_ids_if_asked_to() {
    let app = TestApp::new().server(|server| server.request_id_headers = true);
    let own = asked(&app, Method::GET, &[("X-Request-Id", "mine")]).await;
    assert_eq!(header(&own, "x-request-id"), Some("mine"));
    let fresh = asked(&app, Method::GET, &[]).await;
    assert_eq!(header(&fresh, "x-request-id").map(str::len), Some(32));
    assert_eq!(header(&asked(&TestApp::new(), Method::GET, &[]).await, "x-request-id"), None);
}

#[tokio::test]
async fn the_path_of_a_proxy_may_be_there_or_not() {
    let app = TestApp::new().keys(&["key"]).server(|server| server.root_path = "/proxy".to_owned());
    for path in ["/health", "/proxy/health", "/proxy/openapi.json", "/proxy/docs/"] {
        assert_eq!(app.get(path).await.status, 200, "{path}");
    }
    assert_eq!(app.get("/proxy/v1/models").await.status, 401);
    let document = app.get("/openapi.json").await.ok();
    assert_eq!(document["servers"][0]["url"], "/proxy");
    let redoc = app.get("/redoc").await;
    assert_eq!(header(&redoc, "location"), Some("/proxy/docs"));
}

/// The answer to a request for another spelling of a path: the status and the address.
async fn redirected(app: &TestApp, method: &str, uri: &str, headers: &[(&str, &str)]) -> (u16, Option<String>) {
    let request = Request::builder().method(method).uri(uri);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let answer = app.request(request.body(Body::from("{}")).unwrap()).await;
    if answer.status == 307 {
        assert_eq!((answer.text.as_str(), header(&answer, "content-type")), ("", None), "{uri}");
    }
    (answer.status, header(&answer, "location").map(str::to_owned))
}

/// What Starlette 1.10 answers with the same routes.
#[tokio::test]
async fn a_slash_too_many_is_redirected_to_the_route_that_is_meant() {
    let app = TestApp::new();
    for (method, path, target) in [
        ("POST", "/tokenize/", "/tokenize"),
        ("POST", "/tokenize/?a=b&c=%20d", "/tokenize?a=b&c=%20d"),
        ("POST", "/tokenize/?", "/tokenize"),
        ("GET", "/tokenize/", "/tokenize"),
        ("HEAD", "/tokenize///", "/tokenize"),
        ("OPTIONS", "/v1/models/", "/v1/models"),
        ("POST", "/v1/chat/completions/", "/v1/chat/completions"),
        ("GET", "/v1/responses/", "/v1/responses"),
        ("GET", "/v1/responses/a%20b/", "/v1/responses/a%20b"),
        ("POST", "/v1/responses/a/cancel/", "/v1/responses/a/cancel"),
        ("GET", "/health/", "/health"),
        ("GET", "/openapi.json/", "/openapi.json"),
        ("GET", "/redoc/", "/redoc"),
    ] {
        let expected = (307, Some(format!("http://h:81{target}")));
        assert_eq!(redirected(&app, method, path, &[("Host", "h:81")]).await, expected, "{method} {path}");
    }
    for path in ["/nope/", "/nope", "//", "/", "/v1/", "/v1/responses//cancel/", "/v1//models/", "/tokenize/x/"] {
        let answer = redirected(&app, "GET", path, &[("Host", "h:81")]).await;
        assert_eq!(answer, (404, None), "{path}");
    }
    // Prometheus asks for either.
    assert_eq!(app.get("/metrics/").await.status, 200);
}

#[tokio::test]
async fn a_redirection_leads_back_by_the_way_that_the_client_came() {
    let app = TestApp::new().server(|server| server.root_path = "/proxy".to_owned());
    let host = ("Host", "h");
    for (path, headers, target) in [
        ("/proxy/tokenize/?a", &[host][..], "http://h/proxy/tokenize?a"),
        ("/tokenize/", &[host], "http://h/tokenize"),
        ("/tokenize/", &[host, ("X-Forwarded-Proto", "https")], "https://h/tokenize"),
        ("/tokenize/", &[host, ("X-Forwarded-Proto", "gopher")], "http://h/tokenize"),
        ("http://asked/tokenize/", &[], "http://asked/tokenize"),
        ("/tokenize/", &[], "/tokenize"),
    ] {
        let answer = redirected(&app, "POST", path, headers).await;
        assert_eq!(answer, (307, Some(target.to_owned())), "{path} {headers:?}");
    }
    assert_eq!(redirected(&app, "GET", "/proxy/", &[host]).await.0, 404);
}

/// Nobody without a key learns which paths there are.
#[tokio::test]
async fn a_redirection_needs_a_key() {
    let app = TestApp::new().keys(&["key"]);
    assert_eq!(redirected(&app, "POST", "/tokenize/", &[("Host", "h")]).await.0, 401);
    let keyed = [("Host", "h"), ("Authorization", "Bearer key")];
    assert_eq!(redirected(&app, "POST", "/tokenize/", &keyed).await.0, 307);
}

#[tokio::test]
async fn docs_can_be_left_out() {
    let app = TestApp::new().server(|server| server.docs = false);
    for path in ["/docs", "/docs/", "/redoc", "/redoc/", "/openapi.json"] {
        assert_eq!(app.get(path).await.status, 404, "{path}");
    }
    assert_eq!(app.get("/health").await.status, 200);
}

#[tokio::test]
async fn streams_and_all_their_chunks_have_usage_if_the_server_says_so() {
    let app = TestApp::new().says("hello").requests(|requests| requests.force_include_usage = true);
    let (ids, messages) = (app.ids("hello"), json!([{ "role": "user", "content": "hello" }]));
    for (path, asked) in [
        ("/v1/completions", json!({ "prompt": "hello" })),
        ("/v1/chat/completions", json!({ "messages": messages })),
        ("/inference/v1/generate", json!({ "token_ids": ids, "sampling_params": {} })),
    ] {
        // What a request says is overruled, as in vLLM.
        for options in [json!(null), json!({}), json!({ "include_usage": false, "continuous_usage_stats": false })] {
            let mut body = asked.clone();
            (body["stream"], body["stream_options"]) = (json!(true), options);
            let events = app.post(path, body).await.events();
            let (last, chunks) = events.split_last().unwrap();
            assert_eq!((&last["choices"], &last["usage"]["completion_tokens"]), (&json!([]), &json!(2)), "{path}");
            assert!(!chunks.is_empty(), "{path}");
            for chunk in chunks {
                assert!(chunk["usage"]["total_tokens"].is_u64(), "{path}: {chunk}");
            }
        }
    }
}

#[tokio::test]
async fn tools_that_may_not_be_called_can_be_hidden() {
    let tools = json!([{ "type": "function", "function": { "name": "f" } }]);
    let messages = json!([{ "role": "user", "content": "hello" }]);
    let prompt_tokens = async |app: &TestApp, more: serde_json::Value| {
        let mut body = json!({ "messages": messages, "max_tokens": 1 });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        app.post("/v1/chat/completions", body).await.ok()["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    let shows = TestApp::new().reads_tool_calls();
    let hides =
        TestApp::new().reads_tool_calls().requests(|requests| requests.exclude_tools_when_tool_choice_none = true);
    let without = prompt_tokens(&shows, json!({})).await;
    let none = json!({ "tools": tools, "tool_choice": "none" });
    assert!(prompt_tokens(&shows, none.clone()).await > without);
    assert_eq!(prompt_tokens(&hides, none).await, without);
    assert!(prompt_tokens(&hides, json!({ "tools": tools, "tool_choice": null })).await > without);
}
