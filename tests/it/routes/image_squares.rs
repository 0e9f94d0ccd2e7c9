//! Images of squares, between marks that belong to them, as those of `InternVL`.

use serde_json::json;
use tito::TokenId;

use super::{
    image_runs::{gives_back, ids, ranges, samples},
    images::{CHAT, chat, text, user},
};
use crate::it::app::{
    TestApp,
    images::{Family, MARKS, image_part, placeholders},
};

fn app() -> TestApp {
    TestApp::new().sees_images_as(Family::InternVl)
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
    let [opens, part, closes] = [MARKS.opens, MARKS.placeholder, MARKS.closes];
    let cases = [
        (&[part][..], true),
        (&[opens], true),
        (&[closes], true),
        (&[opens, closes], true),
        (&[opens, part], true),
        (&[part, part, closes], true),
        (&[opens, part, closes], false),
        (&shown(7), false),
        (&shown(1), false),
    ];
    samples(app, &cases, [30, 6]).await;
}

#[tokio::test]
async fn ids_come_with_one_placeholder_for_each_image_or_with_all_that_shows_it() {
    let wrong = [shown(6), shown(7)[..29].to_vec(), shown(7)[1..].to_vec(), [shown(7), shown(7)].concat(), Vec::new()];
    gives_back(app(), MARKS.placeholder, &shown(7), &wrong).await;
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
