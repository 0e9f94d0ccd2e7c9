//! Images that are too many, too large, elsewhere, or sent to a model that sees none.

use serde_json::{Value, json};
use tito::{engine::scripted::Gate, media::MediaPolicy};

use super::images::{CHAT, chat, checked, refusal, user};
use crate::it::app::{
    MODEL, TestApp,
    images::{data_url, image_part, png, policy},
};

#[tokio::test]
async fn images_of_requests_that_run_are_bounded_and_the_same_image_counts_once() {
    let gate = Gate::shut();
    // 56 x 84 pixels of three bytes are 14,112 bytes.
    let policy = MediaPolicy { cache_bytes: 0, held_bytes: 15_000, keeps_files: false, ..policy() };
    let app = TestApp::new().sees_images_by(policy).gate(&gate);
    let asked = |colour| {
        let mut body = chat(&json!([user(&[image_part(56, 84, colour)])]));
        body["stream"] = json!(true);
        body
    };
    let one = app.open(CHAT, asked(1)).await;
    let again = app.open(CHAT, asked(1)).await;
    let refused = app.post(CHAT, asked(2)).await;
    assert_eq!(refused.status, 503, "{}", refused.text);
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains("try again later"));
    gate.open();
    drop(one);
    assert_eq!(again.rest().await.last().map(|_| ()), Some(()));
    app.post(CHAT, chat(&json!([user(&[image_part(56, 84, 2)])]))).await.ok();
    let both = json!([user(&[image_part(56, 84, 1), image_part(56, 84, 2)])]);
    assert_eq!(app.post(CHAT, chat(&both)).await.status, 503);
}

#[tokio::test]
async fn a_conversation_that_is_too_long_is_refused_before_all_of_its_images_are_read() {
    let app = TestApp::new().sees_images().max_model_len(100);
    let parts = [
        image_part(280, 140, 1),
        image_part(280, 140, 2),
        image_part(280, 140, 3),
        json!({"type": "image_url",
        "image_url": {"url": "data:image/png;base64,AAAA"}}),
    ];
    let said = refusal(&app.post(CHAT, chat(&json!([user(&parts)]))).await);
    assert!(said.contains("maximum context length is 100 tokens"), "{said}");
}

#[tokio::test]
async fn files_are_read_below_the_allowed_directory() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("image.png");
    std::fs::write(&file, png(56, 84, 1)).unwrap();
    let policy = MediaPolicy { local_path: Some(directory.path().to_owned()), ..policy() };
    let app = TestApp::new().sees_images_by(policy);
    let part = |url: String| json!([user(&[json!({"type": "image_url", "image_url": {"url": url}})])]);
    let answer = app.post(CHAT, chat(&part(format!("file://{}", file.display())))).await.ok();
    checked(&app, &answer, &[6]);
    let by_file = app.prompt_images();
    app.post(CHAT, chat(&json!([user(&[image_part(56, 84, 1)])]))).await.ok();
    assert_eq!(app.prompt_images(), by_file);
    let said = refusal(&app.post(CHAT, chat(&part("file:///etc/hostname".to_owned()))).await);
    assert!(said.contains("no such file") && !said.contains("etc"), "{said}");
}

/// A request with an image in each dialect, and the field that names it.
fn with_an_image() -> [(&'static str, Value, &'static str); 4] {
    [
        (CHAT, chat(&json!([user(&[image_part(28, 28, 1)])])), "messages[0].content[0]"),
        (
            "/v1/responses",
            json!({"model": MODEL, "input": [{"role": "user", "content":
            [{"type": "input_image", "image_url": data_url(&png(28, 28, 1))}]}]}),
            "messages[0].content[0]",
        ),
        (
            "/v1/messages",
            json!({"model": MODEL, "max_tokens": 4, "messages": [user(&[json!({"type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}})])]}),
            "messages[0].content[0]",
        ),
        (
            "/inference/v1/generate",
            json!({"token_ids": [5], "sampling_params": {"max_tokens": 4},
            "content_parts": [{"type": "image_url", "url": data_url(&png(28, 28, 1))}]}),
            "content_parts",
        ),
    ]
}

#[tokio::test]
async fn a_model_that_sees_none_refuses_images() {
    let app = TestApp::new();
    for (path, body, _) in with_an_image() {
        let answer = app.post(path, body).await;
        assert_eq!(answer.status, 400, "{path}");
        assert!(answer.json().to_string().contains("image"), "{path}: {}", answer.json());
    }
}

#[tokio::test]
async fn a_model_whose_images_cannot_be_read_refuses_them_with_the_reason() {
    let reason = "preprocessor_config.json: do_normalize is false, but pixels are always normalised";
    let app = TestApp::new().refuses_images(reason);
    for (path, body, field) in with_an_image() {
        let answer = app.post(path, body).await;
        assert_eq!(answer.status, 400, "{path}");
        let said = answer.json()["error"].clone();
        let message = said["message"].as_str().unwrap();
        assert!(message.contains(&format!("images are refused: {reason}")), "{path}: {said}");
        // The other two have shapes of their own.
        if [CHAT, "/inference/v1/generate"].contains(&path) {
            assert_eq!(said["param"], field, "{path}");
        }
    }
    app.post(CHAT, chat(&json!([user(&[json!({"type": "text", "text": "hi"})])]))).await.ok();
}
