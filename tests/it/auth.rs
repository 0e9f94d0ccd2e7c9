//! Keys on everything but health, metrics and docs.

use axum::{
    body::Body,
    http::{Method, Request, header},
};
use serde_json::json;

use crate::it::app::{Answer, TestApp, posted};

async fn models_with(app: &TestApp, authorization: Option<&str>) -> Answer {
    let mut request = Request::get("/v1/models").body(Body::empty()).unwrap();
    if let Some(authorization) = authorization {
        request.headers_mut().insert(header::AUTHORIZATION, authorization.parse().unwrap());
    }
    app.request(request).await
}

#[tokio::test]
async fn any_of_the_keys_opens_and_nothing_else_does() {
    let app = TestApp::new().keys(&["first", "second"]);
    for good in ["Bearer first", "Bearer second", "bearer first", "BEARER  second "] {
        assert_eq!(models_with(&app, Some(good)).await.status, 200, "{good}");
    }
    for bad in [
        None,
        Some("Bearer third"),
        Some("Bearer"),
        Some("Bearer "),
        Some("first"),
        Some("Basic first"),
        Some("Bearer firs"),
    ] {
        let answer = models_with(&app, bad).await;
        assert_eq!((answer.status, answer.json()), (401, json!({ "error": "Unauthorized" })), "{bad:?}");
    }
    let mut request = posted("/v1/completions", r#"{"prompt": "hello"}"#);
    request.headers_mut().insert("x-api-key", "first".parse().unwrap());
    assert_eq!(app.request(request).await.status, 401);
}

#[tokio::test]
async fn every_route_is_guarded_before_its_body_is_read() {
    let app = TestApp::new().keys(&["key"]);
    for path in ["/v1/chat/completions", "/v1/completions", "/v1/tokenize", "/tokenize", "/detokenize"] {
        assert_eq!(app.request(posted(path, "{oops")).await.status, 401, "{path}");
    }
    // Nobody without a key learns which paths there are.
    for path in
        ["/v1/models", "/v1/nope", "/v1/chat/completions", "/inference/v1/generate", "/version", "/nope", "/healthy"]
    {
        assert_eq!(app.get(path).await.status, 401, "{path}");
    }
}

#[tokio::test]
async fn health_metrics_and_docs_are_open() {
    let app = TestApp::new().keys(&["key"]);
    for path in ["/health", "/ping", "/metrics", "/openapi.json", "/docs/"] {
        assert_eq!(app.get(path).await.status, 200, "{path}");
    }
    assert_eq!(app.get("/redoc").await.status, 308);
}

#[tokio::test]
async fn preflight_requests_need_no_key() {
    let app = TestApp::new().keys(&["key"]);
    let request = Request::builder().method(Method::OPTIONS).uri("/v1/models").body(Body::empty()).unwrap();
    assert_ne!(app.request(request).await.status, 401);
}

#[tokio::test]
async fn without_keys_everything_is_open() {
    assert_eq!(models_with(&TestApp::new(), None).await.status, 200);
    assert_eq!(models_with(&TestApp::new(), Some("Bearer any")).await.status, 200);
}
