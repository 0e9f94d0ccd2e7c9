//! Images whose rows have ends in prompts, as those of Mistral 3.

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
    TestApp::new().sees_images_as(Family::Mistral)
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
    let [breaks, part, ends] = [MARKS.opens, MARKS.placeholder, MARKS.closes];
    let cases = [
        (&[part][..], true),
        (&[ends], true),
        (&[breaks, ends], true),
        (&[part, breaks, part, breaks], true),
        (&[part, breaks, ends], true),
        (&[part, ends], false),
        (&shown(3, 2), false),
    ];
    samples(app, &cases, [9, 2]).await;
}

#[tokio::test]
async fn ids_come_with_one_placeholder_for_each_image_or_with_all_of_them() {
    let wrong = [shown(2, 3), shown(3, 2)[..8].to_vec(), [shown(3, 2), shown(3, 2)].concat(), Vec::new()];
    gives_back(app(), MARKS.placeholder, &shown(3, 2), &wrong).await;
}
