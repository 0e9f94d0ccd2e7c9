//! Images in requests: the ids that they become in each dialect, over several turns, and what is refused.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tito::TokenId;

use crate::it::app::{
    Answer, IM_END, MODEL, TestApp,
    images::{MARKS, NAMES, data_url, image_part, placeholders, png},
};

pub(super) const CHAT: &str = "/v1/chat/completions";

pub(super) fn chat(messages: &Value) -> Value {
    json!({"model": MODEL, "messages": messages, "max_tokens": 8, "return_token_ids": true})
}

pub(super) fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

pub(super) fn user(parts: &[Value]) -> Value {
    json!({"role": "user", "content": parts})
}

fn ids(value: &Value) -> Vec<TokenId> {
    serde_json::from_value(value.clone()).unwrap()
}

/// `(offset, length)` of each image.
fn ranges(answer: &Value) -> Vec<(usize, usize)> {
    let ranges = answer["mm_placeholders"]["image"].as_array().cloned().unwrap_or_default();
    ranges.iter().map(|range| (number(&range["offset"]), number(&range["length"]))).collect()
}

fn number(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap()).unwrap()
}

/// The prompt of an answer, checked against what it says of its images and what the engine got.
pub(super) fn checked(app: &TestApp, answer: &Value, lengths: &[usize]) -> Vec<TokenId> {
    let prompt = ids(&answer["prompt_token_ids"]);
    let ranges = ranges(answer);
    assert_eq!(ranges.iter().map(|(_, length)| *length).collect::<Vec<_>>(), lengths);
    assert_eq!(placeholders(&prompt), lengths.iter().sum::<usize>());
    for &(offset, length) in &ranges {
        assert_eq!(prompt[offset - 1], MARKS.opens);
        assert!(prompt[offset..offset + length].iter().all(|&id| id == MARKS.placeholder));
        assert_eq!(prompt[offset + length], MARKS.closes);
    }
    let given: Vec<_> = app.prompt_images().into_iter().map(|(range, _)| (range.start, range.len())).collect();
    assert_eq!(given, ranges);
    prompt
}

/// The message that an answer is in the next request.
fn said(answer: &Value) -> Value {
    answer["choices"][0]["message"].clone()
}

/// The refusal of a request, by its field and sentence.
pub(super) fn refusal(answer: &Answer) -> String {
    assert_eq!(answer.status, 400, "{:?}", answer.json());
    let error = &answer.json()["error"];
    format!("{}: {}", error["param"].as_str().unwrap_or("-"), error["message"].as_str().unwrap())
}

#[tokio::test]
async fn an_image_takes_as_many_placeholders_as_it_has_parts() {
    let app = TestApp::new().sees_images();
    // 56 x 84 pixels are 2 x 3 parts, and 28 x 28 are scaled up to 2 x 2.
    let parts = [text("two: "), image_part(56, 84, 1), text(" and "), image_part(28, 28, 2), text("?")];
    let answer = app.post(CHAT, chat(&json!([user(&parts)]))).await.ok();
    let prompt = checked(&app, &answer, &[6, 4]);
    let pads = |count: usize| format!("{}{}{}", NAMES[0], NAMES[1].repeat(count), NAMES[2]);
    let shown = format!("<|im_start|>user\ntwo: {} and {}?<|im_end|>\n<|im_start|>assistant\n", pads(6), pads(4));
    assert_eq!(prompt, app.ids(&shown));
    assert_eq!(answer["usage"]["prompt_tokens"], prompt.len());
}

#[tokio::test]
async fn every_dialect_has_the_same_ids() {
    let app = TestApp::new().sees_images();
    let url = data_url(&png(56, 84, 1));
    let data = STANDARD.encode(png(56, 84, 1));
    let answer = app.post(CHAT, chat(&json!([user(&[text("see "), image_part(56, 84, 1)])]))).await.ok();
    let prompt = checked(&app, &answer, &[6]);
    let identity = app.prompt_images();

    let messages = json!([user(&[text("see "), json!({"type": "image_url", "image_url": url})])]);
    let tokenized = app.post("/tokenize", json!({"model": MODEL, "messages": messages})).await.ok();
    assert_eq!(ids(&tokenized["tokens"]), prompt);
    assert_eq!(ranges(&tokenized), ranges(&answer));

    let rendered = app.post("/v1/chat/completions/render", chat(&messages)).await.ok();
    assert_eq!(ids(&rendered["token_ids"]), prompt);
    assert_eq!(ranges(&rendered["features"]), ranges(&answer));
    assert_eq!(rendered["features"]["mm_hashes"]["image"], json!([identity[0].1]));

    let input = json!([{"role": "user", "content": [
        {"type": "input_text", "text": "see "}, {"type": "input_image", "image_url": url, "detail": "auto"},
    ]}]);
    let body = json!({"model": MODEL, "input": input, "max_output_tokens": 8});
    app.post("/v1/responses", body).await.ok();
    assert_eq!(app.prompt_images(), identity);

    let source = json!({"type": "base64", "media_type": "image/png", "data": data});
    let messages = json!([user(&[text("see "), json!({"type": "image", "source": source})])]);
    let body = json!({"model": MODEL, "messages": messages, "max_tokens": 8, "return_token_ids": true});
    let answer = app.post("/v1/messages", body).await.ok();
    assert_eq!(ids(&answer["prompt_token_ids"]), prompt);
    assert_eq!(app.prompt_images(), identity);
}

#[tokio::test]
async fn images_of_results_are_shown_in_the_result_and_by_anthropics_clients_after_it() {
    let app = TestApp::new().sees_images();
    let call = json!({"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}});
    let result = json!([text("a screen: "), image_part(56, 56, 3)]);
    let messages = json!([
        {"role": "user", "content": "look"}, {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": result},
    ]);
    let answer = app.post(CHAT, chat(&messages)).await.ok();
    let prompt = app.tokenizer().decode(&checked(&app, &answer, &[4]), false).unwrap();
    let pads = NAMES[1].repeat(4);
    assert!(prompt.contains(&format!("<tool_response>\na screen: {}{pads}{}\n</tool_response>", NAMES[0], NAMES[2])));

    let source = json!({"type": "base64", "media_type": "image/png", "data": STANDARD.encode(png(56, 56, 3))});
    let result = json!([text("a screen: "), {"type": "image", "source": source}]);
    let messages = json!([
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "look", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": result}]},
    ]);
    let body = json!({"model": MODEL, "messages": messages, "max_tokens": 8, "return_token_ids": true});
    let answer = app.post("/v1/messages", body).await.ok();
    let prompt = app.tokenizer().decode(&ids(&answer["prompt_token_ids"]), false).unwrap();
    let shown =
        format!("a screen: \n</tool_response><|im_end|>\n<|im_start|>user\n{}{pads}{}<|im_end|>\n", NAMES[0], NAMES[2]);
    assert!(prompt.contains(&shown), "{prompt}");
}

/// Four ways in which a client may bring the ids of the first turn.
#[derive(Debug, Clone, Copy)]
enum Carrier {
    Messages,
    RequiredPrefix,
    Cache,
    WholePrompt,
}

/// The second turn of a conversation, with the first answer as this carrier brings it.
fn second(carrier: Carrier, first: &Value, messages: &[Value], more: &[Value]) -> Value {
    let mut answer = said(first);
    let known: Vec<TokenId> = [ids(&answer["prompt_token_ids"]), ids(&answer["generation_token_ids"])].concat();
    if !matches!(carrier, Carrier::Messages) {
        answer = json!({"role": "assistant", "content": answer["content"]});
    }
    let messages = [messages, &[answer], more].concat();
    let mut body = chat(&json!(messages));
    if matches!(carrier, Carrier::RequiredPrefix) {
        body["required_prefix_token_ids"] = json!(known);
    }
    body
}

#[tokio::test]
async fn a_second_turn_starts_with_the_ids_of_the_first_and_expands_the_rest_only() {
    let first_turn = [user(&[image_part(56, 84, 1), text("and "), image_part(28, 28, 2)])];
    let more = [user(&[text("now "), image_part(84, 84, 3)])];
    for carrier in [Carrier::Messages, Carrier::RequiredPrefix, Carrier::Cache] {
        let app = TestApp::new().sees_images();
        let first = app.post(CHAT, chat(&json!(first_turn))).await.ok();
        let known = [ids(&first["prompt_token_ids"]), ids(&said(&first)["generation_token_ids"])].concat();
        let second = app.post(CHAT, second(carrier, &first, &first_turn, &more)).await.ok();
        let prompt = checked(&app, &second, &[6, 4, 9]);
        assert_eq!(prompt[..known.len()], known, "{carrier:?}");
        assert_eq!(second["token_continuity"]["outcome"], "exact", "{carrier:?}");
        assert_eq!(second["token_continuity"]["reused_ids"], known.len(), "{carrier:?}");
        assert_eq!(second["token_continuity"]["new_ids"], prompt.len() - known.len(), "{carrier:?}");

        // The whole prompt, as a client that keeps ids itself sends it.
        let mut whole = self::second(Carrier::WholePrompt, &first, &first_turn, &more);
        whole["prompt_token_ids"] = json!(prompt);
        let whole = app.post(CHAT, whole).await.ok();
        assert_eq!(checked(&app, &whole, &[6, 4, 9]), prompt);
    }
}

#[tokio::test]
async fn an_earlier_image_that_changed_went_or_came_is_refused_or_another_conversation() {
    let (first_image, other) = (image_part(56, 84, 1), image_part(56, 84, 9));
    let first_turn = [user(&[first_image.clone(), text("?")])];
    let more = [user(&[text("more")])];
    let edited = [
        ("changed", vec![user(&[other.clone(), text("?")])]),
        ("of another size", vec![user(&[image_part(84, 84, 1), text("?")])]),
        ("gone", vec![user(&[text("?")])]),
        ("one more", vec![user(&[first_image.clone(), other, text("?")])]),
    ];
    for (edit, messages) in &edited {
        for carrier in [Carrier::Messages, Carrier::RequiredPrefix] {
            let app = TestApp::new().sees_images();
            let first = app.post(CHAT, chat(&json!(first_turn))).await.ok();
            let said = refusal(&app.post(CHAT, second(carrier, &first, messages, &more)).await);
            let expected = if *edit == "changed" { "were sampled with other images" } else { "images" };
            assert!(said.contains(expected), "{edit}, {carrier:?}: {said}");
        }
        // The cache knows no such conversation.
        let app = TestApp::new().sees_images();
        let first = app.post(CHAT, chat(&json!(first_turn))).await.ok();
        let answer = app.post(CHAT, second(Carrier::Cache, &first, messages, &more)).await.ok();
        assert_eq!(answer["token_continuity"]["outcome"], "retokenized", "{edit}");
    }
    // The same pixels by another URL are the same image.
    let app = TestApp::new().sees_images();
    let first = app.post(CHAT, chat(&json!(first_turn))).await.ok();
    let url = data_url(&png(56, 84, 1)).replace("image/png", "application/octet-stream");
    let same = [user(&[json!({"type": "input_image", "image_url": url, "uuid": "mine"}), text("?")])];
    let answer = app.post(CHAT, second(Carrier::Cache, &first, &same, &more)).await.ok();
    assert_eq!(answer["token_continuity"]["outcome"], "exact");
}

#[tokio::test]
async fn a_sampled_or_written_placeholder_is_never_an_image() {
    let first_turn = [user(&[image_part(56, 84, 1)])];
    let more = [user(&[image_part(28, 28, 2)])];
    let letters = TestApp::new().sees_images().ids("hm");
    // A bare placeholder, one that is only opened, and whole images, which nobody can tell from the real ones.
    let sampled: [(&[TokenId], bool); 4] = [
        (&[MARKS.placeholder], true),
        (&[MARKS.opens, MARKS.placeholder], true),
        (&[MARKS.opens, MARKS.placeholder, MARKS.closes], false),
        (
            &[MARKS.opens, MARKS.placeholder, MARKS.placeholder, MARKS.placeholder, MARKS.placeholder, MARKS.closes],
            false,
        ),
    ];
    for (script, is_exact) in sampled {
        let script: Vec<TokenId> = [&letters, script, &[IM_END]].concat();
        let app = TestApp::new().sees_images().script(script.clone());
        let mut body = chat(&json!(first_turn));
        body["max_tokens"] = json!(64);
        let first = app.post(CHAT, body).await.ok();
        assert_eq!(ids(&said(&first)["generation_token_ids"]), script);
        let answer = app.post(CHAT, second(Carrier::Messages, &first, &first_turn, &more)).await;
        if is_exact {
            let answer = answer.ok();
            let prompt = ids(&answer["prompt_token_ids"]);
            let real: Vec<usize> = ranges(&answer).iter().map(|(_, length)| *length).collect();
            assert_eq!(real, [6, 4]);
            assert_eq!(placeholders(&prompt), 10 + 1);
        } else {
            assert!(refusal(&answer).contains("placeholders of the images"));
        }
    }
    let app = TestApp::new().sees_images();
    let written = format!("look: {}{}{}", NAMES[0], NAMES[1], NAMES[2]);
    for messages in [
        json!([{"role": "user", "content": written}]),
        json!([user(&[image_part(28, 28, 1), text(&written)])]),
        json!([{"role": "system", "content": written}, user(&[image_part(28, 28, 1)])]),
        json!([{"role": "user", "content": "q"}, {"role": "assistant", "content": written}, user(&[text("?")])]),
        json!([{"role": "user", "content": "q"}, {"role": "tool", "tool_call_id": "c", "content": written}]),
    ] {
        let said = refusal(&app.post(CHAT, chat(&messages)).await);
        assert!(said.starts_with("messages["), "{said}");
        assert!(said.contains("which stands for an image"), "{said}");
    }
    let tool = json!({"type": "function", "function": {"name": "f", "description": written}});
    let mut body = chat(&json!([{"role": "user", "content": "q"}]));
    body["tools"] = json!([tool]);
    let app = app.reads_tool_calls();
    let said = refusal(&app.post(CHAT, body).await);
    assert!(said.starts_with("tools: "), "{said}");
}

#[tokio::test]
async fn what_is_rendered_is_continued_by_its_features_or_by_its_parts() {
    let app = TestApp::new().sees_images();
    let messages = json!([user(&[text("see "), image_part(56, 84, 1)])]);
    let mut asked = chat(&messages);
    asked["mm_payload"] = json!("none");
    let rendered = app.post("/v1/chat/completions/render", asked).await.ok();
    let prompt = ids(&rendered["token_ids"]);
    let generate = |extra: Value| {
        let mut body = json!({"model": MODEL, "token_ids": prompt, "sampling_params": {"max_tokens": 4},
            "return_token_ids": true});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        app.post("/inference/v1/generate", body)
    };
    let answer = generate(json!({"features": rendered["features"]})).await.ok();
    assert_eq!(checked(&app, &answer, &[6]), prompt);
    let identity = app.prompt_images();

    let parts = json!([{"type": "image_url", "url": data_url(&png(56, 84, 1))}]);
    let answer = generate(json!({"content_parts": parts})).await.ok();
    assert_eq!(checked(&app, &answer, &[6]), prompt);
    // One placeholder for each image is enough.
    let mut collapsed = prompt.clone();
    collapsed.dedup_by(|id, before| *id == MARKS.placeholder && id == before);
    assert_eq!(placeholders(&collapsed), 1);
    let answer = generate(json!({"token_ids": collapsed, "content_parts": parts})).await.ok();
    assert_eq!(checked(&app, &answer, &[6]), prompt);
    assert_eq!(app.prompt_images(), identity);

    let features = |change: &dyn Fn(&mut Value)| {
        let mut features = rendered["features"].clone();
        change(&mut features);
        json!({"features": features})
    };
    let refused = [
        (json!({}), "placeholders of images that the request does not have"),
        (json!({"features": rendered["features"], "content_parts": parts}), "mutually exclusive"),
        (json!({"content_parts": [parts[0], parts[0]]}), "placeholders of the images"),
        (json!({"content_parts": [{"type": "image_url"}]}), "`content_parts` must be"),
        (json!({"content_parts": [{"type": "video_url", "url": "data:"}]}), "`content_parts` must be"),
        (features(&|features| features["mm_hashes"]["image"][0] = json!("0".repeat(64))), "is not kept here"),
        (features(&|features| features["mm_hashes"]["image"][0] = json!("abc")), "is not kept here"),
        (
            features(&|features| features["mm_placeholders"]["image"][0]["offset"] = json!(1)),
            "placeholders of the images",
        ),
        (features(&|features| features["mm_placeholders"]["image"] = json!([])), "same length"),
        (features(&|features| features["mm_hashes"]["video"] = json!([])), "`features`"),
    ];
    for (extra, expected) in refused {
        let said = refusal(&generate(extra).await);
        assert!(said.contains(expected), "{said}");
    }
}

#[tokio::test]
async fn ids_of_images_without_images_are_refused_wherever_they_come() {
    let app = TestApp::new().sees_images();
    let ids = [1, MARKS.opens, MARKS.placeholder, MARKS.placeholder, MARKS.closes];
    let known = json!([{"role": "user", "content": "q"}]);
    let mut whole = chat(&known);
    whole["prompt_token_ids"] = json!(ids);
    for (path, body) in [
        (CHAT, whole),
        ("/v1/completions", json!({"model": MODEL, "prompt": ids, "max_tokens": 4})),
        ("/inference/v1/generate", json!({"token_ids": ids, "sampling_params": {"max_tokens": 4}})),
        ("/generate", json!({"input_ids": ids, "sampling_params": {"max_new_tokens": 4}})),
    ] {
        let answer = app.post(path, body).await;
        assert_eq!(answer.status, 400, "{path}");
        assert!(answer.json().to_string().contains("images"), "{path}: {}", answer.json());
    }
}

#[tokio::test]
async fn bad_images_are_refused_by_name() {
    let app = TestApp::new().sees_images();
    let url = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
    let file = png(28, 28, 1);
    let refused = [
        (json!({"type": "image_url"}), "`image_url` must be a URL"),
        (json!({"type": "image_url", "image_url": null, "uuid": "known"}), "`image_url` must be a URL"),
        (url("https://example.org/cat.png"), "images come as `data:` URLs"),
        (url("file:///etc/passwd"), "--allowed-local-media-path"),
        (url("data:image/png;base64,AAAA====="), "not valid base64"),
        (url("data:image/png;base64,aGVsbG8="), "cannot be read"),
        (url(&data_url(&file[..file.len() / 2])), "cannot be read"),
        (url(&data_url(&png(2_000, 1, 1))), "aspect ratio"),
    ];
    for (part, expected) in refused {
        let said = refusal(&app.post(CHAT, chat(&json!([user(&[text("?"), part])]))).await);
        assert!(said.starts_with("messages[0].content[1]"), "{said}");
        assert!(said.contains(expected), "{said}");
    }
    let answer = app.post(CHAT, chat(&json!([user(&[url("data:image/png,hello")])]))).await;
    assert_eq!(answer.status, 501);
    let parts = vec![image_part(28, 28, 1); 9];
    let said = refusal(&app.post(CHAT, chat(&json!([user(&parts)]))).await);
    assert!(said.contains("At most 8 image(s) may be provided in one prompt."), "{said}");
    let assistant = json!([{"role": "user", "content": "q"}, {"role": "assistant", "content": [image_part(28, 28, 1)]},
        {"role": "user", "content": "q"}]);
    assert!(refusal(&app.post(CHAT, chat(&assistant)).await).contains("cannot have images"));
    let mut cut = chat(&json!([user(&[image_part(280, 28, 1)])]));
    cut["truncate_prompt_tokens"] = json!(4);
    assert!(refusal(&app.post(CHAT, cut).await).contains("would cut a prompt with images"));
    let plain =
        TestApp::new().sees_images().chat_template("{% for message in messages %}{{ message.content }}{% endfor %}");
    let said = refusal(&plain.post(CHAT, chat(&json!([user(&[image_part(28, 28, 1)])]))).await);
    assert!(said.contains("cannot show an image"), "{said}");
    let silent = TestApp::new().sees_images().chat_template(
        "{% for message in messages %}{% for part in message.content %}{{ part.text or '' }}{% endfor %}{% endfor %}",
    );
    let said = refusal(&silent.post(CHAT, chat(&json!([user(&[text("x"), image_part(28, 28, 1)])]))).await);
    assert!(said.contains("shows 0 of the 1 images"), "{said}");
}

#[tokio::test]
async fn a_request_cannot_say_how_images_are_read() {
    let app = TestApp::new().sees_images();
    let with = |mut body: Value| {
        body["mm_processor_kwargs"] = json!({"max_pixels": 784});
        body
    };
    let input = json!({"model": MODEL, "input": "hi"});
    let tokenized = json!({"model": MODEL, "messages": [user(&[image_part(28, 28, 1)])]});
    let asked = chat(&json!([user(&[image_part(28, 28, 1)])]));
    for (path, body) in [(CHAT, asked), ("/tokenize", tokenized), ("/v1/responses", input)] {
        let said = refusal(&app.post(path, with(body)).await);
        assert!(
            said.starts_with("mm_processor_kwargs: Per-request mm_processor_kwargs are disabled"),
            "{path}: {said}"
        );
    }
}

#[tokio::test]
async fn a_stream_says_where_images_are_in_its_first_chunk() {
    let app = TestApp::new().sees_images();
    let mut body = chat(&json!([user(&[image_part(56, 84, 1)])]));
    body["stream"] = json!(true);
    let chunks = app.post(CHAT, body).await.events();
    let with: Vec<usize> = (0..chunks.len()).filter(|&index| chunks[index].get("mm_placeholders").is_some()).collect();
    assert_eq!(with, [0]);
    assert_eq!(ranges(&chunks[0]), [(1 + app.ids("user\n").len() + 1, 6)]);
}
