//! Images whose rows have ends in prompts, as those of Mistral 3.

use std::slice;

use serde_json::{Value, json};
use tito::TokenId;

use super::images::{CHAT, chat, text, user};
use crate::it::app::{
    IM_END, MODEL, TestApp,
    images::{Family, MARKS, data_url, image_part, placeholders, png},
};

fn app() -> TestApp {
    TestApp::new().sees_images_as(Family::Mistral)
}

fn ids(value: &Value) -> Vec<TokenId> {
    serde_json::from_value(value.clone()).unwrap()
}

/// The whole run of each image, breaks and end included, as vLLM names it.
fn ranges(answer: &Value) -> Vec<(u64, u64)> {
    let ranges = answer["mm_placeholders"]["image"].as_array().cloned().unwrap_or_default();
    ranges.iter().map(|range| (range["offset"].as_u64().unwrap(), range["length"].as_u64().unwrap())).collect()
}

/// What shows an image of so many rows and columns.
fn shown(rows: usize, columns: usize) -> Vec<TokenId> {
    let row = [vec![MARKS.placeholder; columns], vec![MARKS.opens]].concat();
    let mut whole = row.repeat(rows);
    *whole.last_mut().unwrap() = MARKS.closes;
    whole
}

#[tokio::test]
async fn a_range_names_the_rows_of_an_image_with_their_ends() {
    let app = app();
    let parts = [image_part(56, 84, 1), image_part(500, 20, 2), text("?")];
    let answer = app.post(CHAT, chat(&json!([user(&parts)]))).await.ok();
    let prompt = ids(&answer["prompt_token_ids"]);
    // 3 rows of 2; 8 by 10 pixels of 28 after the longest edge was made 224.
    let both = [shown(3, 2), shown(1, 8)].concat();
    let start = prompt.windows(both.len()).position(|window| window == both).unwrap() as u64;
    assert_eq!(ranges(&answer), [(start, 9), (start + 9, 9)]);
    assert_eq!(placeholders(&prompt), 6 + 8);
}

#[tokio::test]
async fn sampled_placeholders_breaks_and_ends_are_never_an_image() {
    let first_turn = [user(&[image_part(56, 84, 1)])];
    let more = [user(&[image_part(28, 28, 2)])];
    let letters = app().ids("hm");
    let [breaks, part, ends] = [MARKS.opens, MARKS.placeholder, MARKS.closes];
    for (sampled, is_exact) in [
        (&[part][..], true),
        (&[ends], true),
        (&[breaks, ends], true),
        (&[part, breaks, part, breaks], true),
        (&[part, breaks, ends], true),
        (&[part, ends], false),
        (&shown(3, 2), false),
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
            assert_eq!(ranges(&answer).iter().map(|(_, length)| *length).collect::<Vec<_>>(), [9, 2], "{sampled:?}");
            assert_eq!(ranges(&answer)[0], ranges(&first)[0]);
        } else {
            let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
            assert!(answer.status == 400 && message.contains("placeholders of the images"), "{message}");
        }
    }
}

#[tokio::test]
async fn ids_come_with_one_placeholder_for_each_image_or_with_all_of_them() {
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
    let start = prompt.iter().position(|&id| id == MARKS.placeholder).unwrap();
    let (head, tail) = (&prompt[..start], &prompt[start + 9..]);
    for given in [&prompt, &[head, &[MARKS.placeholder], tail].concat()] {
        let answer = generate(given, Some(&parts)).await.ok();
        assert_eq!(ids(&answer["prompt_token_ids"]), prompt);
        assert_eq!(app.prompt_images(), seen);
    }
    for given in [
        [head, &shown(2, 3), tail].concat(),
        [head, &shown(3, 2)[..8], tail].concat(),
        [head, &shown(3, 2), &shown(3, 2), tail].concat(),
        [head, tail].concat(),
    ] {
        let answer = generate(&given, Some(&parts)).await;
        assert!(answer.json().to_string().contains("placeholders of the images"), "{}", answer.json());
    }
    let answer = generate(&prompt, None).await;
    assert!(answer.json().to_string().contains("placeholders of images that the request does not have"));
}
