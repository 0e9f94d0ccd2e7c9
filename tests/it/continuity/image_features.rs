//! The same turns as trainers send them that keep ids themselves: all ids, and the images beside them, as TRL and prime-rl do.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::images::{CHAT, Shape, asked, edits, ids, second, shapes, user};
use crate::it::app::{Answer, MODEL, TestApp, images::Family};

/// What has the images: tensors of a prompt that was rendered for their sake, the names that this render gave, or the files.
const CARRIERS: [&str; 3] = ["tensors", "names", "files"];

/// The parts of messages that are images.
fn images(messages: &[Value]) -> Vec<Value> {
    let parts = messages.iter().filter_map(|message| message["content"].as_array()).flatten();
    parts.filter(|part| part["type"] == "image_url").cloned().collect()
}

/// What an honest second turn has: its ids, and where images are in them.
struct Honest {
    token_ids: Value,
    mm_placeholders: Value,
}

/// Sends the ids with the images of messages that may have been edited.
async fn sent(app: &TestApp, carrier: &str, honest: &Honest, messages: &[Value]) -> Answer {
    let mut body = json!({"model": MODEL, "token_ids": honest.token_ids, "sampling_params": {"max_tokens": 6}, "return_token_ids": true});
    let images = images(messages);
    if carrier == "files" {
        let urls = images.iter().map(|part| json!({"type": "image_url", "url": part["image_url"]["url"]}));
        body["content_parts"] = urls.collect();
    } else if !images.is_empty() {
        let rendered = app.post("/v1/chat/completions/render", asked(&[user(&images)])).await.ok();
        body["features"] = rendered["features"].clone();
        body["features"]["mm_placeholders"] = honest.mm_placeholders.clone();
        if carrier == "names" {
            body["features"]["kwargs_data"] = Value::Null;
            body["features"]["mm_metadata"] = Value::Null;
        }
    }
    app.post("/inference/v1/generate", body).await
}

#[tokio::test]
async fn every_turn_by_ids_and_images_is_exact_or_refused() {
    let mut counts: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for family in [Family::Qwen, Family::Gemma, Family::Mistral, Family::InternVl, Family::Glm] {
        let of_one_size = family == Family::Gemma;
        for Shape { name, before, after } in shapes() {
            for carrier in CARRIERS {
                for (edit, change) in edits() {
                    let Some(edited) = change(&before) else { continue };
                    let app = TestApp::new().sees_images_as(family);
                    let first = app.post(CHAT, asked(&before)).await.ok();
                    let honest = app.post(CHAT, second("messages", &first, &before, &after, &[])).await.ok();
                    let expected = (ids(&honest["prompt_token_ids"]), app.prompt_images());
                    let honest = Honest {
                        token_ids: honest["prompt_token_ids"].clone(),
                        mm_placeholders: honest["mm_placeholders"].clone(),
                    };
                    let answer = sent(&app, carrier, &honest, &[edited, after.clone()].concat()).await;
                    let verdict = match answer.status {
                        200 => {
                            let found = (ids(&answer.json()["prompt_token_ids"]), app.prompt_images());
                            let places = |images: &[(std::ops::Range<usize>, String)]| {
                                images.iter().map(|(range, _)| range.clone()).collect::<Vec<_>>()
                            };
                            if found == expected {
                                "exact"
                            } else if found.0 == expected.0 && places(&found.1) == places(&expected.1) {
                                "as given"
                            } else {
                                "silently wrong"
                            }
                        }
                        400 => "refused",
                        status => panic!("{name}, {carrier}, {edit}: {status} {}", answer.json()),
                    };
                    *counts.entry((edit, carrier, verdict)).or_default() += 1;
                    let is_right = match edit {
                        "nothing" => verdict == "exact",
                        // The ids are the client's word, and so are images that fit them.
                        "other pixels" | "swapped" => matches!(verdict, "as given" | "refused"),
                        "another size" if of_one_size => verdict == "as given",
                        _ => verdict == "refused",
                    };
                    if !is_right {
                        wrong.push(format!("{family:?}, {name}, {carrier}, {edit}: {verdict} {}", answer.json()));
                    }
                }
            }
        }
    }
    let table: Vec<String> = counts.iter().map(|(key, count)| format!("{key:?}: {count}")).collect();
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), table.join("\n"));
    let all: usize = counts.values().sum();
    assert!(all > 900, "{all} cases");
    println!("{all} turns by ids and images, 0 silently wrong\n{}", table.join("\n"));
}
