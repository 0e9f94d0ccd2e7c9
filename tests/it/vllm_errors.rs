//! Errors as vLLM 0.32 answers them: recorded ones, and what its request models say to bodies of every kind
//! (tests/golden/vllm/README.md says how both were made).

use std::fmt::Write as _;

use axum::{
    body::Body,
    http::{Request, header},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::it::app::{Answer, TestApp, VOCAB_SIZE, posted};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/vllm");

/// A refused request of the recordings.
#[derive(Deserialize)]
struct Recorded {
    name: String,
    method: String,
    path: String,
    headers: std::collections::BTreeMap<String, String>,
    body: Option<String>,
    status: u16,
    answer: Value,
}

/// A body, and what vLLM's request model says to it; nothing if it takes it.
#[derive(Deserialize)]
struct Judged {
    path: String,
    body: String,
    status: u16,
    answer: Value,
}

fn read<T: for<'de> Deserialize<'de>>(file: &str) -> Vec<T> {
    let text = std::fs::read_to_string(format!("{GOLDEN}/{file}")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Recorded answers that tito does not give, and why.
const DEVIATIONS: [(&str, &str); 2] = [
    ("plain/chat_err_bad_regex", "structured outputs are not there yet"),
    ("plain/options_chat", "a router of one origin has no CORS yet"),
];

/// What tito writes for vLLM's words wherever no context overflows: NeMo Gym looks for them.
fn without_overflow_words(text: &str) -> String {
    text.replace("max_tokens", "max_completion_tokens")
        .replace("max_completion_completion_tokens", "max_completion_tokens")
        .replace("context length", "context size")
}

/// The recorded answer as tito words it, with its own vocabulary.
fn expected(answer: &Value) -> Value {
    let mut answer = answer.clone();
    let overflows = answer["error"]["message"].as_str().is_some_and(|message| message.contains("Please reduce"));
    if answer["error"].is_object() && !overflows {
        for key in ["message", "param"] {
            if let Some(text) = answer["error"][key].as_str() {
                answer["error"][key] = json!(without_overflow_words(text));
            }
        }
    }
    let text = answer.to_string().replace("Vocabulary size: 49152", &format!("Vocabulary size: {VOCAB_SIZE}"));
    // tito names the flag besides.
    let text = text.replace("max allowed: 20", "max allowed: 20; --max-logprobs sets the limit");
    serde_json::from_str(&text).unwrap()
}

fn shown(answer: &Answer) -> Value {
    serde_json::from_str(&answer.text).unwrap_or_else(|_| match answer.text.as_str() {
        "" => Value::Null,
        text => json!(text),
    })
}

/// A line for each difference.
#[derive(Default)]
struct Differences {
    count: usize,
    text: String,
}

impl Differences {
    fn compare(&mut self, name: &str, answer: &Answer, status: u16, wanted: &Value) {
        let got = shown(answer);
        if (answer.status, &got) != (status, wanted) {
            self.count += 1;
            if self.count <= 40 {
                writeln!(self.text, "{name}\n  vllm {status} {wanted}\n  tito {} {got}", answer.status).unwrap();
            }
        }
    }

    fn assert_none(&self) {
        assert_eq!(self.count, 0, "{}", self.text);
    }
}

fn request(recorded: &Recorded) -> Request<Body> {
    let mut request = Request::builder().method(recorded.method.as_str()).uri(&recorded.path);
    for (name, value) in &recorded.headers {
        request = request.header(name, value);
    }
    request.body(recorded.body.clone().map_or_else(Body::empty, Body::from)).unwrap()
}

#[tokio::test]
async fn recorded_errors_are_answered_as_vllm_answered_them() {
    let open = TestApp::new().names(&["smollm2"]).says("hello");
    let keyed = TestApp::new().names(&["smollm2"]).keys(&["sekret"]);
    let with_parser = TestApp::new().names(&["smollm2"]).reads_tool_calls();
    let mut differences = Differences::default();
    for recorded in read::<Recorded>("errors.jsonl") {
        if DEVIATIONS.iter().any(|(name, _)| *name == recorded.name) {
            continue;
        }
        let app = match recorded.name.split('/').next() {
            Some("auth") => &keyed,
            Some("tools") => &with_parser,
            _ => &open,
        };
        let answer = app.request(request(&recorded)).await;
        differences.compare(&recorded.name, &answer, recorded.status, &expected(&recorded.answer));
    }
    differences.assert_none();
}

/// Answers of the request models only; what the engine would say after them is not known.
#[tokio::test]
async fn bodies_of_every_kind_are_judged_as_vllms_request_models_judge_them() {
    let app = TestApp::new().names(&["smollm2"]).says("hello");
    let mut differences = Differences::default();
    for judged in read::<Judged>("validation.jsonl") {
        let answer = app.request(posted(&judged.path, judged.body.clone())).await;
        let name = format!("{} {}", judged.path, judged.body.chars().take(300).collect::<String>());
        if judged.status != 200 {
            differences.compare(&name, &answer, judged.status, &in_dialect(&judged.path, expected(&judged.answer)));
        } else if shown(&answer)["error"]["type"] == "Bad Request" && !only_here(&answer) {
            differences.compare(&name, &answer, 200, &Value::Null);
        }
    }
    differences.assert_none();
}

/// The error as the endpoint words its errors, all of which are about the request; vLLM has Anthropic's shape for those
/// after its request models only.
fn in_dialect(path: &str, answer: Value) -> Value {
    if !path.starts_with("/v1/messages") {
        return answer;
    }
    let error = &answer["error"];
    json!({ "type": "error", "error": { "type": "invalid_request_error", "message": error["message"] } })
}

/// Whether tito's reader refuses what vLLM's model takes; it says so with a type that pydantic keeps for such cases.
fn only_here(answer: &Answer) -> bool {
    answer.text.contains("'type': 'value_error'")
}

#[tokio::test]
async fn a_wrong_method_is_told_which_one_is_right() {
    let app = TestApp::new();
    for (method, path, right) in [("GET", "/v1/chat/completions", "POST"), ("HEAD", "/health", "GET")] {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let answer = app.request(request).await;
        assert_eq!((answer.status, answer.headers[header::ALLOW].to_str().unwrap()), (405, right), "{method} {path}");
    }
}

#[tokio::test]
async fn what_is_not_utf_8_is_answered_as_fastapi_does() {
    let request = posted("/v1/completions", vec![b'{', 0xff, b'}']);
    let answer = TestApp::new().request(request).await;
    assert_eq!((answer.status, shown(&answer)), (400, json!({ "detail": "There was an error parsing the body" })));
    assert_eq!(answer.headers[header::CONTENT_TYPE], "application/json");
}

#[tokio::test]
async fn a_compressed_body_is_refused_with_the_reason() {
    let mut request = posted("/v1/completions", vec![0x1f, 0x8b, 8, 0]);
    request.headers_mut().insert(header::CONTENT_ENCODING, "gzip".parse().unwrap());
    let answer = TestApp::new().request(request).await;
    let said = "There was an error parsing the body: its Content-Encoding is gzip, and bodies are not decoded; send it without one";
    assert_eq!((answer.status, shown(&answer)), (400, json!({ "detail": said })));
    let mut request = posted("/v1/completions", r#"{"prompt":"hello"}"#);
    request.headers_mut().insert(header::CONTENT_ENCODING, "identity".parse().unwrap());
    assert_eq!(TestApp::new().request(request).await.status, 200);
}
