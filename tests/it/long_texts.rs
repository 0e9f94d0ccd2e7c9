//! Long texts and large requests: refused before they cost anything where that is certain, else read and put into ids in
//! bounded memory, and only so many at a time.

use axum::{
    body::{Body, Bytes},
    http::header,
};
use futures::{StreamExt, channel::mpsc};
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle};
use tower::ServiceExt;

use crate::it::{
    app::{Answer, TestApp, posted},
    patience::until,
};

const MIB: usize = 1 << 20;

/// Every endpoint that continues a prompt, with a text in it.
fn generations(text: &str) -> Vec<(&'static str, Value)> {
    let messages = json!([{ "role": "user", "content": text }]);
    vec![
        ("/v1/completions", json!({ "prompt": text, "max_tokens": 1 })),
        ("/v1/completions", json!({ "prompt": ["hello", text], "max_tokens": 1 })),
        ("/v1/completions/render", json!({ "prompt": text, "max_tokens": 1 })),
        ("/v1/chat/completions", json!({ "messages": messages, "max_tokens": 1 })),
        ("/v1/chat/completions/render", json!({ "messages": messages, "max_tokens": 1 })),
        ("/v1/chat/completions/batch", json!({ "messages": [messages], "max_tokens": 1 })),
        ("/v1/messages", json!({ "model": "tiny", "messages": messages, "max_tokens": 1 })),
        ("/v1/responses", json!({ "input": text, "max_output_tokens": 1 })),
        ("/invocations", json!({ "prompt": text, "max_tokens": 1 })),
    ]
}

fn message(answer: &Answer) -> String {
    answer.error()["message"].as_str().unwrap_or_else(|| panic!("{}", answer.text)).to_owned()
}

#[tokio::test]
async fn a_text_that_cannot_fit_is_refused_by_its_length_alone() {
    let app = TestApp::new().max_model_len(64);
    // No token of the tiny model stands for more than the 16 bytes of `</tool_response>`.
    let text = "hello ".repeat(64 * 16);
    for (path, body) in generations(&text) {
        let answer = app.post(path, body).await;
        assert_eq!(answer.status, 400, "{path}: {}", answer.text);
        let message = message(&answer);
        assert!(
            message.starts_with("This model's maximum context length is 64 tokens. However, your prompt contains ")
        );
        let most = "characters (more than 1024 characters, which is the upper bound for 64 input tokens). Please";
        assert!(message.contains(most), "{path}: {message}");
    }
    let answer = app.post("/v1/completions", json!({ "prompt": text })).await;
    assert_eq!(answer.error()["param"], "input_text");
    assert!(message(&answer).contains("(parameter=input_text, value=6144)"));
    let bytes = app.post("/v1/completions", json!({ "prompt": "é".repeat(1024) })).await;
    assert!(message(&bytes).contains("contains 2048 bytes (more than 1024 bytes, which"), "{}", bytes.text);
}

#[tokio::test]
async fn a_text_that_may_fit_is_put_into_ids_before_it_is_refused() {
    let app = TestApp::new().max_model_len(64);
    for (path, body) in generations(&"</tool_response>".repeat(50)) {
        let answer = app.post(path, body).await;
        assert!(
            answer.status == 200 || message(&answer).contains("input tokens, which exceeds"),
            "{path}: {}",
            answer.text
        );
    }
    app.post("/v1/completions", json!({ "prompt": "</tool_response>".repeat(63), "max_tokens": 1 })).await.ok();
    for (path, body) in generations(&"x ".repeat(450)) {
        let answer = app.post(path, body).await;
        assert_eq!(answer.status, 400, "{path}");
        assert!(message(&answer).contains("your prompt contains at least 65 input tokens"), "{path}: {}", answer.text);
    }
}

#[tokio::test]
async fn tokenize_and_the_count_of_tokens_take_texts_longer_than_the_context() {
    let app = TestApp::new().max_model_len(64);
    let text = "hello world ".repeat(20_000);
    let tokens = app.ids(&text).len();
    let answer = app.post("/tokenize", json!({ "prompt": text })).await.ok();
    assert_eq!(
        (answer["count"].as_u64(), answer["tokens"].as_array().map(Vec::len)),
        (Some(tokens as u64), Some(tokens))
    );
    let messages = json!([{ "role": "user", "content": text }]);
    let whole = app.post("/tokenize", json!({ "messages": messages })).await.ok()["count"].clone();
    assert!(whole.as_u64() > Some(tokens as u64));
    let count = app.post("/v1/messages/count_tokens", json!({ "model": "tiny", "messages": messages })).await.ok();
    assert_eq!(count["input_tokens"], whole);
}

#[tokio::test]
async fn a_long_text_is_cut_to_the_ids_that_its_whole_would_be_cut_to() {
    let app = TestApp::new().max_model_len(64);
    let text = "hello world 123 ".repeat(20_000);
    let whole = app.ids(&text);
    for (side, kept) in [("left", &whole[whole.len() - 9..]), ("right", &whole[..9])] {
        let body = json!({ "prompt": text, "max_tokens": 1, "return_token_ids": true, "truncate_prompt_tokens": 9,
                           "truncation_side": side });
        let answer = app.post("/v1/completions", body).await.ok();
        assert_eq!(answer["choices"][0]["prompt_token_ids"], json!(kept), "{side}");
    }
    let messages = json!([{ "role": "user", "content": text }]);
    let ids = app.post("/tokenize", json!({ "messages": messages })).await.ok()["tokens"].clone();
    let ids = ids.as_array().unwrap();
    for (side, kept) in [("left", &ids[ids.len() - 9..]), ("right", &ids[..9])] {
        let body = json!({ "messages": messages, "max_tokens": 1, "return_token_ids": true,
                           "truncate_prompt_tokens": 9, "truncation_side": side });
        let answer = app.post("/v1/chat/completions", body).await.ok();
        assert_eq!(answer["prompt_token_ids"], json!(kept), "{side}");
    }
}

#[tokio::test]
async fn a_stretch_that_can_only_be_encoded_at_once_is_refused_with_the_reason() {
    let app = TestApp::new();
    let answer = app.post("/tokenize", json!({ "prompt": "x".repeat(5 * MIB) })).await;
    assert_eq!((answer.status, &answer.error()["type"]), (400, &json!("BadRequestError")));
    assert!(message(&answer).contains("can only encode as one piece"), "{}", answer.text);
}

/// A request whose body is sent bit by bit.
struct Slow {
    frames: mpsc::UnboundedSender<Bytes>,
    sent: usize,
    read: watch::Receiver<usize>,
    answer: JoinHandle<Answer>,
}

impl Slow {
    fn open(app: &TestApp) -> Self {
        let (sender, frames) = mpsc::unbounded::<Bytes>();
        let (count, read) = watch::channel(0);
        // Who asks for more has counted what was there before. It does so on a thread of its own.
        let frames = futures::stream::unfold((frames, count, 0), |(mut frames, count, taken)| async move {
            count.send_modify(|bytes| *bytes += taken);
            let frame = frames.next().await?;
            let taken = frame.len();
            Some((Ok::<_, std::io::Error>(frame), (frames, count, taken)))
        });
        let body = Body::from_stream(frames);
        let router = app.router();
        let answer = tokio::spawn(async move {
            let response = router.oneshot(posted("/v1/completions", body)).await.unwrap();
            let (parts, body) = response.into_parts();
            let text = axum::body::to_bytes(body, usize::MAX).await.unwrap();
            let text = String::from_utf8_lossy(&text).into_owned();
            Answer { status: parts.status.as_u16(), headers: parts.headers, text }
        });
        Self { frames: sender, sent: 0, read, answer }
    }

    fn push(&mut self, bytes: Bytes) {
        self.sent += bytes.len();
        self.frames.unbounded_send(bytes).unwrap();
    }

    /// Sends a bit, and waits until the server has read and counted it.
    async fn send(&mut self, bytes: Bytes) {
        self.push(bytes);
        self.read.wait_for(|read| *read >= self.sent).await.unwrap();
    }

    /// The answer to what was sent.
    async fn end(self) -> Answer {
        drop(self.frames);
        self.answer.await.unwrap()
    }
}

fn blanks(bytes: usize) -> Bytes {
    Bytes::from(vec![b' '; bytes])
}

fn assert_is_full(answer: &Answer) {
    assert_eq!((answer.status, &answer.error()["type"]), (503, &json!("Service Unavailable")), "{}", answer.text);
    assert_eq!(answer.headers[header::RETRY_AFTER], "1");
    assert!(message(answer).contains("--max-bytes-in-flight"), "{}", answer.text);
}

#[tokio::test]
async fn large_requests_beyond_the_bound_are_refused_while_small_ones_pass() {
    let app = TestApp::new().server(|server| server.max_bytes_in_flight = 8 * MIB);
    let small = json!({ "prompt": "hello", "max_tokens": 1 });
    let large = format!("{}{small}", " ".repeat(3 * MIB));
    let mut first = Slow::open(&app);
    first.send(blanks(5 * MIB)).await;
    assert_is_full(&app.request(posted("/v1/completions", large.clone())).await);
    // One that does not say its length is refused when it has grown too long.
    let mut second = Slow::open(&app);
    second.send(blanks(MIB)).await;
    second.push(blanks(2 * MIB));
    assert_is_full(&second.end().await);
    app.post("/v1/completions", small.clone()).await.ok();
    assert_eq!((app.get("/health").await.status, app.get("/metrics").await.status), (200, 200));

    first.send(Bytes::from(small.to_string())).await;
    first.end().await.ok();
    app.request(posted("/v1/completions", large)).await.ok();
}

#[tokio::test]
async fn a_request_that_its_client_gives_up_makes_room() {
    let app = TestApp::new().server(|server| server.max_bytes_in_flight = 8 * MIB);
    let body = format!("{}{}", " ".repeat(3 * MIB), json!({ "prompt": "hello", "max_tokens": 1 }));
    let mut slow = Slow::open(&app);
    slow.send(blanks(5 * MIB)).await;
    assert_is_full(&app.request(posted("/v1/completions", body.clone())).await);
    slow.answer.abort();
    assert!((&mut slow.answer).await.unwrap_err().is_cancelled());
    // A large body is worked on by other threads, where its work ends a moment later.
    let mut answer = None;
    until("there is room", async || {
        answer = Some(app.request(posted("/v1/completions", body.clone())).await);
        answer.as_ref().is_some_and(|answer| answer.status != 503)
    })
    .await;
    answer.unwrap().ok();
}

#[tokio::test]
async fn what_is_generated_takes_up_nothing_of_the_bound() {
    let gate = tito::engine::scripted::Gate::shut();
    let app = TestApp::new().says("hello").gate(&gate).server(|server| server.max_bytes_in_flight = 8 * MIB);
    let body = format!("{}{}", " ".repeat(5 * MIB), json!({ "prompt": "hello", "max_tokens": 1 }));
    let ask = || tokio::spawn(app.router().oneshot(posted("/v1/completions", body.clone())));
    let first = ask();
    app.until_load(1, 0).await;
    // There would be no room for it beside what the first one was read from.
    let second = ask();
    app.until_load(2, 0).await;
    gate.open();
    for answer in [first, second] {
        assert_eq!(answer.await.unwrap().unwrap().status(), 200);
    }
}

#[tokio::test]
async fn a_body_that_there_is_never_room_for_is_too_large() {
    let app = TestApp::new().server(|server| server.max_bytes_in_flight = 4 * MIB);
    let answer = app.request(posted("/v1/completions", " ".repeat(4 * MIB))).await;
    assert_eq!(answer.status, 413, "{}", answer.text);
    assert!(message(&answer).contains("longer than the 3670016 bytes of --max-bytes-in-flight"), "{}", answer.text);
}
