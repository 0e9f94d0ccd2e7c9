//! What is tried with images whose runs have more than placeholders, whatever that is.

use std::slice;

use serde_json::{Value, json};
use tito::TokenId;

use super::images::{CHAT, chat, text, user};
use crate::it::app::{
    IM_END, MODEL, TestApp,
    images::{data_url, image_part, png},
};

pub(super) fn ids(value: &Value) -> Vec<TokenId> {
    serde_json::from_value(value.clone()).unwrap()
}

/// The runs of an answer's images, as vLLM names them: offsets and lengths.
pub(super) fn ranges(answer: &Value) -> Vec<(u64, u64)> {
    let ranges = answer["mm_placeholders"]["image"].as_array().cloned().unwrap_or_default();
    ranges.iter().map(|range| (range["offset"].as_u64().unwrap(), range["length"].as_u64().unwrap())).collect()
}

/// Has a model that sees an image sample these ids, and shows it another image. The next turn begins with all ids of the first,
/// or is refused, if what was sampled might be a third image. The runs of the two images are so long.
pub(super) async fn samples(app: fn() -> TestApp, cases: &[(&[TokenId], bool)], lengths: [u64; 2]) {
    let first_turn = [user(&[image_part(56, 84, 1)])];
    let more = [user(&[image_part(28, 28, 2)])];
    let letters = app().ids("hm");
    for &(sampled, is_exact) in cases {
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
            assert_eq!(ranges(&answer).iter().map(|(_, length)| *length).collect::<Vec<_>>(), lengths, "{sampled:?}");
            assert_eq!(ranges(&answer)[0], ranges(&first)[0]);
        } else {
            let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
            assert!(answer.status == 400 && message.contains("placeholders of the images"), "{message}");
        }
    }
}

/// Gives the ids of a prompt back, in which a run shows its image: whole, with one placeholder for the run, and with what is
/// `wrong` in its place.
pub(super) async fn gives_back(app: TestApp, placeholder: TokenId, run: &[TokenId], wrong: &[Vec<TokenId>]) {
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
    let start = prompt.windows(run.len()).position(|window| window == run).unwrap();
    let (head, tail) = (&prompt[..start], &prompt[start + run.len()..]);
    for given in [&prompt, &[head, &[placeholder], tail].concat()] {
        let answer = generate(given, Some(&parts)).await.ok();
        assert_eq!(ids(&answer["prompt_token_ids"]), prompt);
        assert_eq!(app.prompt_images(), seen);
    }
    for wrong in wrong {
        let answer = generate(&[head, wrong, tail].concat(), Some(&parts)).await;
        assert!(answer.json().to_string().contains("placeholders of the images"), "{}", answer.json());
    }
    let answer = generate(&prompt, None).await;
    assert!(answer.json().to_string().contains("placeholders of images that the request does not have"));
}
