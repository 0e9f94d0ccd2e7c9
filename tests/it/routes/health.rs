//! `/health`, `/ping`, `/version`, the document and its page, and paths that do not exist.

use std::time::Duration;

use axum::{
    body::Body,
    http::{Method, Request},
};
use serde_json::json;
use tito::engine::Engine;

use crate::it::app::{Answer, TestApp};

async fn call(app: &TestApp, method: Method, path: &str) -> Answer {
    app.request(Request::builder().method(method).uri(path).body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn a_live_engine_is_healthy_and_says_nothing_else() {
    let app = TestApp::new();
    for (method, path) in [(Method::GET, "/health"), (Method::GET, "/ping"), (Method::POST, "/ping")] {
        let answer = call(&app, method, path).await;
        assert_eq!((answer.status, answer.text.as_str()), (200, ""), "{path}");
    }
}

#[tokio::test]
async fn a_stopped_engine_is_unhealthy() {
    let app = TestApp::new();
    app.engine().shutdown(Duration::ZERO).await;
    for (method, path) in [(Method::GET, "/health"), (Method::GET, "/ping"), (Method::POST, "/ping")] {
        assert_eq!(call(&app, method, path).await.status, 503, "{path}");
    }
}

#[tokio::test]
async fn the_version_is_the_crates() {
    assert_eq!(TestApp::new().get("/version").await.ok(), json!({ "version": env!("CARGO_PKG_VERSION") }));
}

#[tokio::test]
async fn unknown_paths_and_methods_are_answered_as_fastapi_does() {
    let app = TestApp::new();
    for path in ["/", "/v1", "/v1/nope", "/v1/nope/", "/tokenize/x"] {
        let answer = app.get(path).await;
        assert_eq!((answer.status, answer.json()), (404, json!({ "detail": "Not Found" })), "{path}");
    }
    let wrong = [
        (Method::GET, "/v1/chat/completions"),
        (Method::GET, "/tokenize"),
        (Method::PUT, "/v1/completions"),
        (Method::POST, "/v1/models"),
        (Method::DELETE, "/health"),
    ];
    for (method, path) in wrong {
        let answer = call(&app, method, path).await;
        assert_eq!((answer.status, answer.json()), (405, json!({ "detail": "Method Not Allowed" })), "{path}");
    }
}

#[tokio::test]
async fn the_document_is_served_and_its_page_needs_no_other_host() {
    let app = TestApp::new();
    assert_eq!(app.get("/openapi.json").await.ok()["info"]["title"], "tito");
    let page = app.get("/docs/").await;
    assert_eq!(page.status, 200);
    assert!(page.headers["content-type"].to_str().unwrap().starts_with("text/html"));
    let mut loaded = Vec::new();
    for attribute in ["src=\"", "href=\""] {
        loaded.extend(page.text.split(attribute).skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()));
    }
    assert!(!loaded.is_empty());
    for reference in loaded {
        assert!(!reference.contains("//"), "the page loads {reference}");
        let path = format!("/docs/{}", reference.trim_start_matches("./"));
        assert_eq!(app.get(&path).await.status, 200, "{path}");
    }
    let script = app.get("/docs/swagger-initializer.js").await;
    assert!(!script.text.contains("http://") && !script.text.contains("https://"), "{}", script.text);
    assert!(script.text.contains("/openapi.json"), "{}", script.text);
}

#[tokio::test]
async fn the_usual_spellings_of_the_page_lead_to_it() {
    let app = TestApp::new();
    for path in ["/docs", "/redoc"] {
        let answer = app.get(path).await;
        assert!((300..400).contains(&answer.status), "{path}: {}", answer.status);
        assert!(answer.headers["location"].to_str().unwrap().starts_with("/docs"), "{path}");
    }
}
