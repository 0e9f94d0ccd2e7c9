//! Conversations with images, by every shape, carrier and edit: each second turn is exact or refused, and never silently wrong.

use std::{collections::BTreeMap, slice};

use serde_json::{Value, json};
use tito::TokenId;

use crate::it::app::{
    MODEL, TestApp,
    images::{
        Family, MARKS, MarkIds, NAMES_OF_GEMMA, NAMES_OF_INTERNVL, NAMES_OF_MISTRAL, NEWLINES, image_part, placeholders,
    },
};

pub(super) const CHAT: &str = "/v1/chat/completions";

pub(super) fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

pub(super) fn user(parts: &[Value]) -> Value {
    json!({"role": "user", "content": parts})
}

fn result(parts: &[Value]) -> Value {
    json!({"role": "tool", "tool_call_id": "c", "content": parts})
}

/// What stands before the first answer, and after it.
pub(super) struct Shape {
    pub(super) name: &'static str,
    pub(super) before: Vec<Value>,
    pub(super) after: Vec<Value>,
}

pub(super) fn shapes() -> Vec<Shape> {
    let (wide, tall) = (|colour| image_part(84, 56, colour), |colour| image_part(28, 140, colour));
    let shape =
        |name, before: &[Value], after: &[Value]| Shape { name, before: before.to_vec(), after: after.to_vec() };
    let more = user(&[text("more")]);
    vec![
        shape("one", &[user(&[wide(1), text("?")])], slice::from_ref(&more)),
        shape("alone", &[user(&[wide(1)])], slice::from_ref(&more)),
        shape("two of one size", &[user(&[wide(1), wide(2), text("?")])], slice::from_ref(&more)),
        shape("two sizes", &[user(&[wide(1), text("and"), tall(2)])], slice::from_ref(&more)),
        shape("the same twice", &[user(&[wide(1), wide(1)])], slice::from_ref(&more)),
        shape("two messages", &[user(&[wide(1)]), user(&[tall(2), text("?")])], slice::from_ref(&more)),
        shape(
            "system",
            &[json!({"role": "system", "content": [wide(3), text("x")]}), user(&[wide(1)])],
            slice::from_ref(&more),
        ),
        shape("a tool", &[user(&[text("look")]), result(&[wide(1), text("seen")])], &[more]),
        shape("later too", &[user(&[wide(1)])], &[user(&[tall(2), text("?"), wide(3)])]),
        shape("a tool later", &[user(&[wide(1)])], &[result(&[wide(2)]), user(&[text("?")])]),
    ]
}

/// A change of what stands before the first answer; `None` where the shape has nothing to change so.
pub(super) type Edit = fn(&[Value]) -> Option<Vec<Value>>;

pub(super) fn edits() -> [(&'static str, Edit); 8] {
    [
        ("nothing", |before| Some(before.to_vec())),
        ("other pixels", |before| replaced(before, |_| image_part(84, 56, 99))),
        ("another size", |before| replaced(before, |_| image_part(112, 112, 1))),
        ("an image less", |before| {
            let mut edited = before.to_vec();
            let (message, part) = *places(before).first()?;
            edited[message]["content"].as_array_mut()?.remove(part);
            let is_empty = edited[message]["content"].as_array()?.is_empty();
            if is_empty {
                edited[message]["content"] = json!([text("gone")]);
            }
            Some(edited)
        }),
        ("an image more", |before| {
            let mut edited = before.to_vec();
            let (message, part) = *places(before).last()?;
            edited[message]["content"].as_array_mut()?.insert(part, image_part(84, 56, 1));
            Some(edited)
        }),
        ("swapped", |before| {
            let found = places(before);
            let [(first, one), .., (last, other)] = found[..] else { return None };
            let mut edited = before.to_vec();
            let image = edited[first]["content"][one].take();
            edited[first]["content"][one] = edited[last]["content"][other].take();
            edited[last]["content"][other] = image;
            (edited != before).then_some(edited)
        }),
        ("text for an image", |before| replaced(before, |_| text("an image"))),
        ("an image for text", |before| {
            let mut edited = before.to_vec();
            let parts = edited.iter_mut().filter_map(|message| message["content"].as_array_mut()).flatten();
            let part = parts.into_iter().find(|part| part["type"] == "text")?;
            *part = image_part(84, 56, 7);
            Some(edited)
        }),
    ]
}

/// Messages with another part in the place of their first image.
fn replaced(before: &[Value], with: impl Fn(&Value) -> Value) -> Option<Vec<Value>> {
    let mut edited = before.to_vec();
    let (message, part) = *places(before).first()?;
    let image = &mut edited[message]["content"][part];
    *image = with(image);
    Some(edited)
}

/// Where images are.
fn places(messages: &[Value]) -> Vec<(usize, usize)> {
    let parts = |message: &Value| message["content"].as_array().cloned().unwrap_or_default();
    let images = messages.iter().enumerate().flat_map(|(index, message)| {
        let parts = parts(message).into_iter().enumerate();
        parts.filter(|(_, part)| part["type"] == "image_url").map(move |(place, _)| (index, place))
    });
    images.collect()
}

const CARRIERS: [&str; 4] = ["messages", "required prefix", "whole prompt", "cache"];

pub(super) fn ids(value: &Value) -> Vec<TokenId> {
    serde_json::from_value(value.clone()).unwrap()
}

pub(super) fn asked(messages: &[Value]) -> Value {
    json!({"model": MODEL, "messages": messages, "max_tokens": 6, "return_token_ids": true})
}

/// The second turn: the ids of `first` by a carrier, after messages that may have been edited.
pub(super) fn second(carrier: &str, first: &Value, messages: &[Value], after: &[Value], honest: &[TokenId]) -> Value {
    let mut answer = first["choices"][0]["message"].clone();
    let known = [ids(&answer["prompt_token_ids"]), ids(&answer["generation_token_ids"])].concat();
    if carrier != "messages" {
        answer = json!({"role": "assistant", "content": answer["content"]});
    }
    let mut body = asked(&[messages, &[answer], after].concat());
    match carrier {
        "required prefix" => body["required_prefix_token_ids"] = json!(known),
        "whole prompt" => body["prompt_token_ids"] = json!(honest),
        _ => {}
    }
    body
}

/// What became of a second turn.
fn judged(
    (app, family): (&TestApp, Family),
    carrier: &str,
    seen: &[(usize, String)],
    [shown, sampled]: [&[TokenId]; 2],
    answer: &Value,
) -> &'static str {
    let prompt = ids(&answer["prompt_token_ids"]);
    let images = app.prompt_images();
    let is_placed = images.iter().all(|(range, _)| family.shows(&prompt, range));
    let known = [shown, sampled].concat();
    // What was sampled is no image.
    let ordinary = if prompt.starts_with(&known) { placeholders(sampled) } else { 0 };
    let of_images: usize = images.iter().map(|(range, _)| placeholders(&prompt[range.clone()])).sum();
    if !is_placed || of_images + ordinary != placeholders(&prompt) {
        return "silently wrong";
    }
    let again: Vec<_> = images.iter().take(seen.len()).map(|(range, image)| (range.start, image.clone())).collect();
    match answer["token_continuity"]["outcome"].as_str() {
        Some("exact") if prompt.starts_with(&known) && again == seen => "exact",
        // The client keeps ids itself: they are its word for what the model is to see, with these images.
        Some("exact") if carrier == "whole prompt" => "as given",
        Some("retokenized") => "said to be retokenized",
        _ => "silently wrong",
    }
}

#[tokio::test]
async fn every_second_turn_with_images_is_exact_or_refused() {
    every_second_turn(Family::Qwen).await;
}

#[tokio::test]
async fn every_second_turn_is_where_templates_write_less_than_models_read() {
    every_second_turn(Family::Gemma).await;
}

#[tokio::test]
async fn every_second_turn_is_where_rows_of_images_have_ends() {
    every_second_turn(Family::Mistral).await;
}

#[tokio::test]
async fn every_second_turn_is_where_marks_belong_to_images_of_squares() {
    every_second_turn(Family::InternVl).await;
}

#[tokio::test]
async fn every_second_turn_is_where_limits_are_those_of_two_images() {
    every_second_turn(Family::Glm).await;
}

async fn every_second_turn(family: Family) {
    // Where all images have as many placeholders, another size is nothing but other pixels.
    let of_one_size = family == Family::Gemma;
    let mut counts: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for Shape { name, before, after } in shapes() {
        for carrier in CARRIERS {
            for (edit, change) in edits() {
                let Some(messages) = change(&before) else { continue };
                // A server of its own: nothing is known from another edit.
                let app = TestApp::new().sees_images_as(family);
                let first = app.post(CHAT, asked(&before)).await.ok();
                let seen: Vec<_> = app.prompt_images().into_iter().map(|(range, image)| (range.start, image)).collect();
                let said = &first["choices"][0]["message"];
                let known = [&said["prompt_token_ids"], &said["generation_token_ids"]].map(ids);
                let honest = app.post(CHAT, second("messages", &first, &before, &after, &[])).await.ok();
                let honest = ids(&honest["prompt_token_ids"]);
                let answer = app.post(CHAT, second(carrier, &first, &messages, &after, &honest)).await;
                let verdict = match answer.status {
                    200 => judged((&app, family), carrier, &seen, known.each_ref().map(Vec::as_slice), &answer.json()),
                    400 => "refused",
                    status => panic!("{name}, {carrier}, {edit}: {status} {}", answer.json()),
                };
                *counts.entry((edit, carrier, verdict)).or_default() += 1;
                let is_right = match (edit, carrier) {
                    ("nothing", _) => verdict == "exact",
                    (_, "cache") => verdict == "said to be retokenized",
                    // Its ids are the client's word; images of other sizes do not fit them.
                    ("other pixels" | "swapped", "whole prompt") => matches!(verdict, "as given" | "refused"),
                    ("another size", "whole prompt") if of_one_size => verdict == "as given",
                    _ => verdict == "refused",
                };
                if !is_right {
                    wrong.push(format!("{name}, {carrier}, {edit}: {verdict} {}", answer.json()));
                }
            }
        }
    }
    let table: Vec<String> = counts.iter().map(|(key, count)| format!("{key:?}: {count}")).collect();
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), table.join("\n"));
    let all: usize = counts.values().sum();
    assert!(all > 250, "{all} cases");
    println!("{all} second turns with images, 0 silently wrong\n{}", table.join("\n"));
}

/// The ids of a first turn by a model as Gemma 3, and where its images are.
async fn gemma(parts: &[Value]) -> (Vec<TokenId>, Vec<(usize, usize)>) {
    let app = TestApp::new().sees_images_as(Family::Gemma);
    let answer = app.post(CHAT, asked(&[user(parts)])).await.ok();
    let places = app.prompt_images().into_iter().map(|(range, _)| (range.start, range.len())).collect();
    (ids(&answer["prompt_token_ids"]), places)
}

#[tokio::test]
async fn newlines_beside_an_image_are_encoded_with_its_own() {
    let image = |colour| image_part(84, 56, colour);
    let MarkIds { opens, placeholder, closes } = MARKS;
    let shown = [vec![opens], vec![placeholder; 4], vec![closes]].concat();
    let run = |length: TokenId| NEWLINES - 2 + length;
    // After the role there is a newline, and nothing else where a text follows.
    let (plain, _) = gemma(&[text("x")]).await;
    let newline = plain.iter().position(|&id| plain.iter().filter(|&&other| other == id).count() == 3).unwrap();
    let before = plain[..newline].to_vec();
    for (parts, middle) in [(vec![image(1)], vec![run(3)]), (vec![text("\n"), image(1)], vec![run(4)])] {
        let (found, places) = gemma(&parts).await;
        let start = [before.clone(), middle, shown.clone()].concat();
        assert!(found.starts_with(&start), "{found:?} does not begin with {start:?}");
        assert_eq!(places, [(before.len() + 2, 4)]);
    }
    let (two, places) = gemma(&[image(1), image(2), text("\n\nso")]).await;
    let both = [vec![run(3)], shown.clone(), vec![run(4)], shown.clone(), vec![run(4)]].concat();
    assert!(two.starts_with(&[before.clone(), both].concat()), "{two:?}");
    assert_eq!(places, [(before.len() + 2, 4), (before.len() + 9, 4)]);
}

#[tokio::test]
async fn no_text_is_taken_for_an_image_that_templates_write_by_one_mark() {
    for (family, names) in [
        (Family::Gemma, &NAMES_OF_GEMMA[..2]),
        (Family::Mistral, &NAMES_OF_MISTRAL),
        (Family::InternVl, &NAMES_OF_INTERNVL),
    ] {
        let app = TestApp::new().sees_images_as(family);
        for name in names {
            let spelled = text(&format!("see {name}"));
            for messages in [
                vec![user(slice::from_ref(&spelled))],
                vec![user(&[spelled.clone(), image_part(84, 56, 1)])],
                vec![
                    user(&[image_part(84, 56, 1)]),
                    json!({"role": "assistant", "content": format!("a {name}")}),
                    user(&[text("?")]),
                ],
            ] {
                let answer = app.post(CHAT, asked(&messages)).await;
                assert_eq!(answer.status, 400);
                let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
                assert!(message.contains("which stands for an image") && message.contains(name), "{message}");
            }
        }
    }
    // In pieces that the template joins, it is one more than the images that there are.
    for (family, [start, end]) in [
        (Family::Gemma, ["<start_of_", "image>"]),
        (Family::Mistral, ["[IM", "G]"]),
        (Family::InternVl, ["<IMG_", "CONTEXT>"]),
    ] {
        let app = TestApp::new().sees_images_as(family);
        let pieces = [text(start), text(end), image_part(84, 56, 1)];
        let answer = app.post(CHAT, asked(&[user(&pieces)])).await;
        assert_eq!(answer.status, 400, "{}", answer.json());
    }
}
