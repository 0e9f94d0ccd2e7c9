//! Who hangs up frees the engine; who is told to stop keeps what it has.

use std::{io::Read, net::TcpStream, time::Duration};

use serde_json::{Value, json};
use tito::{
    engine::{Engine, EngineLoad, scripted::Gate},
    generation::Door,
    server::ServerConfig,
};
use tokio::task::JoinHandle;

use crate::it::{
    app::{IM_END, TestApp},
    patience::until,
    served::{Served, connect},
};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

fn endless(stream: bool) -> Value {
    json!({ "prompt": "hello", "max_tokens": 1000, "ignore_eos": true, "stream": stream, "return_token_ids": true })
}

/// Sends a JSON request from a task that can be dropped.
fn spawned(app: &TestApp, path: &'static str, body: &Value) -> JoinHandle<axum::response::Response> {
    let (router, body) = (app.router(), body.to_string());
    tokio::spawn(async move {
        let mut router = router;
        tower::Service::call(&mut router, crate::it::app::posted(path, body)).await.unwrap()
    })
}

async fn read(response: axum::response::Response) -> Value {
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

#[tokio::test]
async fn dropping_a_live_stream_aborts_the_generation() {
    let gate = Gate::shut();
    let app = TestApp::new().gate(&gate).seats(1);
    for path in [CHAT, COMPLETIONS] {
        let mut body = endless(true);
        body["messages"] = json!([{ "role": "user", "content": "hello" }]);
        let mut stream = app.open(path, body).await;
        gate.pass(2);
        stream.next().await.unwrap();
        stream.next().await.unwrap();
        assert_eq!(app.engine().load(), EngineLoad { running: 1, ..EngineLoad::default() }, "{path}");
        drop(stream);
        assert_eq!(app.engine().load(), EngineLoad::default(), "{path}");
    }
    gate.open();
    assert_eq!(app.post(COMPLETIONS, json!({ "prompt": "hello" })).await.status, 200);
}

#[tokio::test]
async fn dropping_a_stream_that_was_never_read_aborts_it_too() {
    let app = TestApp::new().gate(&Gate::shut());
    let stream = app.open(COMPLETIONS, endless(true)).await;
    assert_eq!(app.engine().load(), EngineLoad { running: 1, ..EngineLoad::default() });
    drop(stream);
    assert_eq!(app.engine().load(), EngineLoad::default());
}

#[tokio::test]
async fn dropping_a_request_for_json_aborts_every_one_of_its_sequences() {
    let app = TestApp::new().gate(&Gate::shut()).seats(2);
    let mut body = endless(false);
    body["n"] = json!(3);
    let request = spawned(&app, COMPLETIONS, &body);
    app.until_load(2, 1).await;
    request.abort();
    assert!(request.await.unwrap_err().is_cancelled());
    assert_eq!(app.engine().load(), EngineLoad::default());
}

#[tokio::test]
async fn a_hundred_dropped_requests_leave_nothing_behind() {
    let gate = Gate::shut();
    let app = TestApp::new().gate(&gate).seats(4);
    for round in 0..100 {
        if round % 2 == 0 {
            let mut stream = app.open(COMPLETIONS, endless(true)).await;
            gate.pass(1);
            stream.next().await.unwrap();
        } else {
            let request = spawned(&app, COMPLETIONS, &endless(false));
            app.until_load(1, 0).await;
            request.abort();
            assert!(request.await.unwrap_err().is_cancelled());
        }
        assert_eq!(app.engine().load(), EngineLoad::default(), "round {round}");
    }
    gate.open();
    assert_eq!(app.post(COMPLETIONS, json!({ "prompt": "hello" })).await.status, 200);
}

#[tokio::test]
async fn a_request_that_waits_leaves_the_queue_when_it_is_dropped() {
    let gate = Gate::shut();
    let app = TestApp::new().gate(&gate).seats(1);
    let running = app.open(COMPLETIONS, endless(true)).await;
    let waiting = spawned(&app, COMPLETIONS, &endless(false));
    app.until_load(1, 1).await;
    let after = spawned(&app, COMPLETIONS, &json!({ "prompt": "hello", "max_tokens": 3, "ignore_eos": true }));
    app.until_load(1, 2).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    assert_eq!(app.engine().load(), EngineLoad { running: 1, waiting: 1, ..EngineLoad::default() });
    drop(running);
    gate.open();
    let served = read(after.await.unwrap()).await;
    assert_eq!(served["usage"]["completion_tokens"], 3);
    assert_eq!(app.engine().load(), EngineLoad::default());
}

#[tokio::test]
async fn stopping_the_engine_ends_a_stream_with_the_ids_that_it_has() {
    let gate = Gate::shut();
    let app = TestApp::new();
    let script = app.ids("hello world you the weather");
    let app = app.script(script.clone()).gate(&gate);
    let body =
        json!({ "messages": [{ "role": "user", "content": "hello" }], "stream": true, "return_token_ids": true });
    let mut stream = app.open(CHAT, body).await;
    gate.pass(2);
    let mut ids = Vec::new();
    // The role, then two tokens.
    for _ in 0..3 {
        let event = stream.next().await.unwrap();
        ids.extend(event["choices"][0]["token_ids"].as_array().into_iter().flatten().cloned());
    }
    let engine = app.engine();
    let ((), rest) = tokio::join!(engine.shutdown(Duration::MAX), stream.rest());
    let [end] = rest.as_slice() else { panic!("{rest:?}") };
    assert_eq!(end["choices"][0]["finish_reason"], "abort");
    assert_eq!(end["choices"][0]["token_ids"], json!([]));
    assert_eq!(json!(ids), json!(script[..2]));
}

#[tokio::test]
async fn stopping_the_engine_ends_json_answers_running_or_waiting_and_refuses_new_ones() {
    let gate = Gate::shut();
    let app = TestApp::new();
    let script = app.ids("hello world you the weather");
    let app = app.script(script.clone()).gate(&gate).seats(1);
    let running = spawned(&app, COMPLETIONS, &endless(false));
    app.until_load(1, 0).await;
    let waiting = spawned(&app, COMPLETIONS, &endless(false));
    app.until_load(1, 1).await;
    let engine = app.engine();
    let (running, waiting, ()) = tokio::join!(running, waiting, engine.shutdown(Duration::MAX));
    for response in [running, waiting] {
        let choice = read(response.unwrap()).await["choices"][0].take();
        assert_eq!((&choice["finish_reason"], &choice["token_ids"]), (&json!("abort"), &json!([])));
    }
    let late = app.post(COMPLETIONS, endless(false)).await;
    assert_eq!((late.status, &late.error()["message"]), (503, &json!("the server is stopping")));
    assert_eq!(late.headers["x-retry"], "anywhere; done=nothing");
}

#[tokio::test]
async fn stopping_the_engine_ends_the_sequences_that_never_had_a_seat_too() {
    let many = |stream: bool| {
        let mut body = endless(stream);
        body["n"] = json!(16);
        body["temperature"] = json!(1);
        body
    };
    let app = TestApp::new().gate(&Gate::shut()).seats(2);
    let whole = spawned(&app, COMPLETIONS, &many(false));
    app.until_load(2, 14).await;
    let stream = app.open(COMPLETIONS, many(true)).await;
    app.until_load(2, 30).await;
    let engine = app.engine();
    let ((), whole, events) = tokio::join!(engine.shutdown(Duration::MAX), whole, stream.rest());
    let whole = whole.unwrap();
    assert_eq!(whole.status(), 200);
    let whole = read(whole).await;
    let ends = |choices: Vec<&Value>| choices.iter().filter(|choice| choice["finish_reason"] == "abort").count();
    assert_eq!(ends(whole["choices"].as_array().unwrap().iter().collect()), 16, "{whole}");
    assert_eq!(ends(events.iter().map(|event| &event["choices"][0]).collect()), 16, "{events:?}");
    assert!(events.iter().all(|event| event["error"].is_null()), "{events:?}");
    assert_eq!(app.engine().load(), EngineLoad::default());
}

/// A server that gives running requests as long once it is stopped.
fn giving(shutdown_timeout: Duration) -> ServerConfig {
    ServerConfig { shutdown_timeout, ..ServerConfig::default() }
}

/// All that a connection still has to say.
async fn read_all(mut connection: TcpStream) -> String {
    let read = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        connection.read_to_string(&mut text).map(|_| text)
    });
    read.await.unwrap().unwrap()
}

#[tokio::test]
async fn a_client_that_hangs_up_frees_its_seat() {
    let app = TestApp::new().gate(&Gate::shut()).seats(1);
    let served = Served::new(&app, &giving(Duration::ZERO)).await;
    for stream in [false, true] {
        let connection = served.connect(COMPLETIONS, &endless(stream));
        app.until_load(1, 0).await;
        drop(connection);
        app.until_load(0, 0).await;
    }
    served.stop.send(()).unwrap();
    served.ended.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_request_that_waits_for_a_pause_to_end_is_turned_away_when_the_server_is_stopped() {
    let app = TestApp::new();
    app.running().set_door(Door::Queueing);
    let served = Served::new(&app, &giving(Duration::from_hours(1))).await;
    let connection = served.connect(COMPLETIONS, &json!({ "prompt": "you" }));
    app.until_load(0, 1).await;
    served.stop.send(()).unwrap();
    let text = read_all(connection).await;
    assert!(text.starts_with("HTTP/1.1 503 ") && text.contains("x-retry: anywhere; done=nothing\r\n"), "{text}");
    served.ended.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_request_that_runs_when_the_server_is_stopped_is_served_to_its_end() {
    let gate = Gate::shut();
    let app = TestApp::new();
    let script = [app.ids("hello world"), vec![IM_END]].concat();
    let app = app.script(script).gate(&gate);
    let served = Served::new(&app, &giving(Duration::from_hours(1))).await;
    let connection = served.connect(COMPLETIONS, &json!({ "prompt": "you", "return_token_ids": true }));
    app.until_load(1, 0).await;
    served.stop.send(()).unwrap();
    // No new connection is taken once the server knows.
    until("connections are refused", async || TcpStream::connect(served.address).is_err()).await;
    gate.open();
    let text = read_all(connection).await;
    assert!(text.starts_with("HTTP/1.1 200") && text.contains(r#""text":"hello world""#), "{text}");
    served.ended.await.unwrap().unwrap();
    assert!(app.engine().health().is_err());
}

#[tokio::test]
async fn a_server_that_will_stop_says_so_and_answers_until_it_does() {
    let app = TestApp::new().says("hello world");
    let late = ServerConfig { shutdown_delay: Duration::from_hours(1), ..ServerConfig::default() };
    let served = Served::new(&app, &late).await;
    let statuses = async || {
        let mut found = Vec::new();
        for path in ["/health", "/readyz", "/livez"] {
            found.push(app.get(path).await.status);
        }
        found
    };
    assert_eq!(statuses().await, [200; 3]);
    let Served { stop, ended, address } = served;
    stop.send(()).unwrap();
    until("routers are told", async || app.get("/readyz").await.status == 503).await;
    assert_eq!(statuses().await, [503, 503, 200]);
    let text = read_all(connect(address, COMPLETIONS, &json!({ "prompt": "you" }))).await;
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("hello world"), "{text}");
    ended.abort();

    let soon = ServerConfig { shutdown_delay: Duration::from_millis(1), ..ServerConfig::default() };
    let served = Served::new(&app, &soon).await;
    served.stop.send(()).unwrap();
    served.ended.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_request_that_outlasts_the_timeout_ends_with_what_it_has() {
    let gate = Gate::shut();
    let app = TestApp::new().gate(&gate);
    let served = Served::new(&app, &giving(Duration::ZERO)).await;
    let connections = [served.connect(COMPLETIONS, &endless(false)), served.connect(COMPLETIONS, &endless(true))];
    app.until_load(2, 0).await;
    served.stop.send(()).unwrap();
    for connection in connections {
        let text = read_all(connection).await;
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        assert!(text.contains(r#""finish_reason":"abort""#), "{text}");
    }
    served.ended.await.unwrap().unwrap();
    assert_eq!(app.engine().load(), EngineLoad::default());
}
