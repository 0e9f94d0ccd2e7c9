//! Images of squares, between marks that belong to them, as those of `InternVL`.

use std::slice;

use serde_json::{Value, json};
use tito::TokenId;

use super::images::{CHAT, chat, text, user};
use crate::it::app::{
    IM_END, MODEL, TestApp,
    images::{Family, MARKS, data_url, image_part, placeholders, png},
};

fn app() -> TestApp {
    TestApp::new().sees_images_as(Family::InternVl)
}

fn ids(value: &Value) -> Vec<TokenId> {
    serde_json::from_value(value.clone()).unwrap()
}

/// All that shows each image, marks included, as vLLM names it.
fn ranges(answer: &Value) -> Vec<(u64, u64)> {
    let ranges = answer["mm_placeholders"]["image"].as_array().cloned().unwrap_or_default();
    ranges.iter().map(|range| (range["offset"].as_u64().unwrap(), range["length"].as_u64().unwrap())).collect()
}

/// What shows an image of so many squares.
fn shown(squares: usize) -> Vec<TokenId> {
    [vec![MARKS.opens], vec![MARKS.placeholder; 4 * squares], vec![MARKS.closes]].concat()
}

#[tokio::test]
async fn a_range_names_the_squares_of_an_image_with_its_marks() {
    let app = app();
    let parts = [image_part(56, 84, 1), image_part(20, 20, 2), text("?")];
    let answer = app.post(CHAT, chat(&json!([user(&parts)]))).await.ok();
    let prompt = ids(&answer["prompt_token_ids"]);
    // 3 rows of 2 squares, and the whole image; one square alone. The template writes a newline after each.
    let start = prompt.windows(30).position(|window| window == shown(7)).unwrap();
    let second = prompt.windows(6).position(|window| window == shown(1)).unwrap();
    assert!(second > start + 30);
    assert_eq!(ranges(&answer), [(start as u64, 30), (second as u64, 6)]);
    assert_eq!(placeholders(&prompt), 28 + 4);
}

#[tokio::test]
async fn sampled_placeholders_and_marks_are_never_an_image() {
    let first_turn = [user(&[image_part(56, 84, 1)])];
    let more = [user(&[image_part(28, 28, 2)])];
    let letters = app().ids("hm");
    let [opens, part, closes] = [MARKS.opens, MARKS.placeholder, MARKS.closes];
    for (sampled, is_exact) in [
        (&[part][..], true),
        (&[opens], true),
        (&[closes], true),
        (&[opens, closes], true),
        (&[opens, part], true),
        (&[part, part, closes], true),
        (&[opens, part, closes], false),
        (&shown(7), false),
        (&shown(1), false),
    ] {
        let script: Vec<TokenId> = [&letters, sampled, &[IM_END]].concat();
        let app = app().script(script.clone());
        let mut body = chat(&json!(first_turn));
        body["max_tokens"] = json!(64);
        let first = app.post(CHAT, body).await.ok();
        let said = &first["choices"][0]["message"];
        assert_eq!(ids(&said["generation_token_ids"]), script);
        let known = [ids(&said["prompt_token_ids"]), script.clone()].concat();
        let messages = [&first_turn[..], slice::from_ref(said), &more].concat();
        let answer = app.post(CHAT, chat(&json!(messages))).await;
        if is_exact {
            let answer = answer.ok();
            let prompt = ids(&answer["prompt_token_ids"]);
            assert!(prompt.starts_with(&known), "{sampled:?}");
            assert_eq!(ranges(&answer).iter().map(|(_, length)| *length).collect::<Vec<_>>(), [30, 6], "{sampled:?}");
            assert_eq!(ranges(&answer)[0], ranges(&first)[0]);
        } else {
            let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
            assert!(answer.status == 400 && message.contains("placeholders of the images"), "{message}");
        }
    }
}

#[tokio::test]
async fn ids_come_with_one_placeholder_for_each_image_or_with_all_that_shows_it() {
    let app = app();
    let answer = app.post(CHAT, chat(&json!([user(&[image_part(56, 84, 1), text("?")])]))).await.ok();
    let prompt = ids(&answer["prompt_token_ids"]);
    let seen = app.prompt_images();
    let parts = json!([{"type": "image_url", "url": data_url(&png(56, 84, 1))}]);
    let generate = |ids: &[TokenId], parts: Option<&Value>| {
        let mut body =
            json!({"model": MODEL, "token_ids": ids, "sampling_params": {"max_tokens": 4}, "return_token_ids": true});
        body.as_object_mut().unwrap().extend(parts.map(|parts| ("content_parts".to_owned(), parts.clone())));
        app.post("/inference/v1/generate", body)
    };
    let start = prompt.iter().position(|&id| id == MARKS.opens).unwrap();
    let (head, tail) = (&prompt[..start], &prompt[start + 30..]);
    for given in [&prompt, &[head, &[MARKS.placeholder], tail].concat()] {
        let answer = generate(given, Some(&parts)).await.ok();
        assert_eq!(ids(&answer["prompt_token_ids"]), prompt);
        assert_eq!(app.prompt_images(), seen);
    }
    for given in [
        [head, &shown(6), tail].concat(),
        [head, &shown(7)[..29], tail].concat(),
        [head, &shown(7)[1..], tail].concat(),
        [head, &shown(7), &shown(7), tail].concat(),
        [head, tail].concat(),
    ] {
        let answer = generate(&given, Some(&parts)).await;
        assert!(answer.json().to_string().contains("placeholders of the images"), "{}", answer.json());
    }
    let answer = generate(&prompt, None).await;
    assert!(answer.json().to_string().contains("placeholders of images that the request does not have"));
}

#[tokio::test]
async fn videos_are_refused_by_name() {
    let app = app();
    for part in [
        json!({"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}),
        json!({"type": "video", "video": "data:video/mp4;base64,AAAA"}),
    ] {
        let answer = app.post(CHAT, chat(&json!([user(&[part])]))).await;
        assert!(answer.status == 400 && answer.json().to_string().contains("video"), "{}", answer.json());
    }
}
