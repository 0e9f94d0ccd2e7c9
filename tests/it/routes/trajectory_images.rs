//! Captured turns with images: their files once, nothing of them in what was said, and the same images when a turn is
//! computed again.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{Request, header},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use parquet::{
    file::reader::{FileReader, SerializedFileReader},
    record::{ListAccessor as _, RowAccessor as _},
};
use serde_json::{Value, json};
use tito::{
    store::{BatchStore, MemoryStore},
    trajectory::{CapturePolicy, Trajectories},
    turn::Capture,
};

use crate::it::app::{
    MODEL, TestApp,
    images::{MARKS, data_url, image_part, png},
};

fn capturing(images: bool) -> (TestApp, Arc<MemoryStore>) {
    let policy = CapturePolicy { bytes: 1 << 26, ttl: None, texts: true, images };
    let store = Arc::new(MemoryStore::new(u64::MAX, Duration::MAX));
    let trajectories = Trajectories::open(Arc::clone(&store) as Arc<dyn BatchStore>, policy).unwrap();
    let capture = Capture { trajectories: Arc::new(trajectories), model: MODEL.into(), process: "test".into() };
    (TestApp::new().sees_images().captures(capture), store)
}

fn chat(messages: &Value) -> Value {
    json!({ "model": MODEL, "messages": messages, "max_tokens": 4, "temperature": 0, "ignore_eos": true })
}

fn user(content: &Value) -> Value {
    json!({ "role": "user", "content": content })
}

/// The tree of each trajectory.
async fn trees(app: &TestApp) -> Vec<Value> {
    let list = app.get("/v1/trajectories").await.ok();
    let mut trees = Vec::new();
    for trajectory in list["data"].as_array().unwrap() {
        trees.push(app.get(&format!("/v1/trajectories/{}", trajectory["id"].as_str().unwrap())).await.ok());
    }
    trees
}

/// What comes of the last turn of a tree.
async fn checked(app: &TestApp, tree: &Value, what: &str) -> Value {
    let (id, turn) = (tree["id"].as_str().unwrap(), tree["turns"].as_array().unwrap().last().unwrap()["id"].clone());
    app.post(&format!("/v1/trajectories/{id}/turns/{}/{what}", turn.as_str().unwrap()), json!({})).await.ok()
}

#[tokio::test]
async fn turns_keep_an_image_once_and_are_computed_again_with_it() {
    let (app, store) = capturing(true);
    let first = user(&json!([{ "type": "text", "text": "see" }, image_part(56, 84, 1)]));
    let answer = app.post("/v1/chat/completions", chat(&json!([first]))).await.ok();
    let identity = app.prompt_images();
    let next = user(&json!([{ "type": "text", "text": "and" }, image_part(28, 28, 2), image_part(56, 84, 1)]));
    let messages = json!([first, answer["choices"][0]["message"], next]);
    app.post("/v1/chat/completions", chat(&messages)).await.ok();
    let given = app.prompt_images();
    let files = store.ids().unwrap().into_iter().filter(|id| id.starts_with("image ")).count();
    assert_eq!((given.len(), files), (3, 2));

    let [tree] = &trees(&app).await[..] else { panic!("one trajectory") };
    let turns = tree["turns"].as_array().unwrap();
    let shown = |(range, identity): &(std::ops::Range<usize>, String), grid: Value| json!({ "identity": identity, "offset": range.start, "length": range.len(), "grid_thw": grid, "file_kept": true });
    let all =
        [shown(&given[0], json!([1, 6, 4])), shown(&given[1], json!([1, 4, 4])), shown(&given[2], json!([1, 6, 4]))];
    assert_eq!(given[0], identity[0]);
    assert_eq!((&turns[0]["images"], &turns[1]["images"]), (&json!(all[..1]), &json!(all[1..])));
    assert_eq!(turns[0]["messages"][0]["content"][1], json!({ "type": "image", "identity": identity[0].1 }));
    let named = format!("tito-image:{}", identity[0].1);
    assert_eq!(turns[0]["said"]["items"][0]["content"][1]["image_url"]["url"], named);
    assert!(!tree.to_string().contains("base64"), "{tree}");

    for what in ["replay", "rescore"] {
        app.post("/v1/chat/completions", chat(&json!([user(&json!("text"))]))).await.ok();
        let found = checked(&app, tree, what).await;
        assert_eq!(found["verdict"], "equal", "{what}: {found}");
        assert_eq!(app.prompt_images(), given, "{what}");
    }
    let line = app.get("/v1/trajectories/export?format=jsonl").await;
    let line: Value = serde_json::from_str(line.text.lines().next().unwrap()).unwrap();
    assert_eq!(line["images"], json!(all));
}

#[tokio::test]
async fn the_file_of_no_dialect_is_kept_in_what_was_said() {
    let file = png(56, 84, 1);
    let (url, data) = (data_url(&file), STANDARD.encode(&file));
    let source = json!({ "type": "base64", "media_type": "image/png", "data": data });
    let requests = [
        ("/v1/chat/completions", chat(&json!([user(&json!([{ "type": "image_url", "image_url": url }]))]))),
        (
            "/v1/messages",
            json!({ "model": MODEL, "max_tokens": 4, "messages": [user(&json!([{ "type": "image", "source": source }]))] }),
        ),
        (
            "/v1/responses",
            json!({ "model": MODEL, "max_output_tokens": 4, "input": [user(&json!([{ "type": "input_image", "image_url": url }]))] }),
        ),
    ];
    for (path, body) in requests {
        let (app, _) = capturing(true);
        app.post(path, body).await.ok();
        let [tree] = &trees(&app).await[..] else { panic!("one trajectory") };
        let said = tree["turns"][0]["said"].to_string();
        assert!(said.contains(&format!("\"tito-image:{}\"", app.prompt_images()[0].1)), "{said}");
        assert!(!tree.to_string().contains(&data), "{path}");
    }
}

#[tokio::test]
async fn another_image_of_the_same_size_is_another_trajectory() {
    let (app, _) = capturing(true);
    for colour in [1, 2, 1] {
        app.post("/v1/chat/completions", chat(&json!([user(&json!([image_part(56, 84, colour)]))]))).await.ok();
    }
    let trees = trees(&app).await;
    let identities: Vec<_> = trees.iter().map(|tree| &tree["turns"][0]["images"][0]["identity"]).collect();
    assert_eq!(trees.len(), 3);
    assert!(identities[0] == identities[2] && identities[0] != identities[1]);
    assert_eq!(trees[0]["turns"][0]["added_token_ids"], trees[1]["turns"][0]["added_token_ids"]);
}

#[tokio::test]
async fn without_files_a_turn_has_hashes_and_cannot_be_computed_again() {
    let (app, store) = capturing(false);
    app.post("/v1/chat/completions", chat(&json!([user(&json!([image_part(56, 84, 1)]))]))).await.ok();
    assert!(store.ids().unwrap().iter().all(|id| !id.starts_with("image ")));
    let [tree] = &trees(&app).await[..] else { panic!("one trajectory") };
    let image = &tree["turns"][0]["images"][0];
    assert_eq!((&image["identity"], &image["file_kept"]), (&json!(app.prompt_images()[0].1), &json!(false)));
    assert!(!tree.to_string().contains("base64"), "{tree}");
    for what in ["replay", "rescore"] {
        let found = checked(&app, tree, what).await;
        assert_eq!(found["verdict"], "not_comparable", "{what}");
        let message = found["message"].as_str().unwrap();
        assert!(message.contains("files were not kept (--capture-images false, or they came as tensors)"), "{message}");
    }
}

#[tokio::test]
async fn a_format_without_a_field_for_images_gets_an_error_in_the_place_of_such_a_sequence() {
    let (app, _) = capturing(true);
    app.post("/v1/chat/completions", chat(&json!([user(&json!([image_part(56, 84, 1)]))]))).await.ok();
    app.post("/v1/chat/completions", chat(&json!([user(&json!("text"))]))).await.ok();
    for format in ["trl", "verifiers", "agent_lightning"] {
        let export = app.get(&format!("/v1/trajectories/export?format={format}&allow_raw=true")).await;
        let lines: Vec<Value> = export.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2, "{format}");
        let message = lines[0]["error"]["message"].as_str().unwrap();
        let says = "has images, and this format has no field for them; jsonl, parquet, nemo_rl, prime_rl and verl have";
        assert!(message.contains(says), "{format}: {message}");
        assert!(lines[1].get("error").is_none(), "{format}");
    }
    for format in ["jsonl", "nemo_rl", "prime_rl", "verl"] {
        let export = app.get(&format!("/v1/trajectories/export?format={format}&allow_raw=true")).await;
        assert!(!export.text.contains("no field for them"), "{format}: {}", export.text);
    }
}

/// The lines of an export.
async fn lines(app: &TestApp, format: &str) -> Vec<Value> {
    let export = app.get(&format!("/v1/trajectories/export?format={format}&allow_raw=true")).await;
    export.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn trainers_get_the_images_with_their_places() {
    let (app, _) = capturing(true);
    let parts = json!([image_part(56, 84, 1), image_part(28, 28, 2)]);
    app.post("/v1/chat/completions", chat(&json!([user(&parts)]))).await.ok();
    let given = app.prompt_images();
    let urls = [&parts[0], &parts[1]].map(|part| part["image_url"]["url"].clone());
    let [prime] = &lines(&app, "prime_rl").await[..] else { panic!("one line") };
    let refs = given
        .iter()
        .zip(&urls)
        .map(|((range, _), url)| json!({ "url": url, "offset": range.start, "length": range.len() }));
    assert_eq!(prime["mm_refs"]["images"], refs.collect::<Value>());
    let ids = prime["token_ids"].as_array().unwrap();
    let types = (0..ids.len()).map(|at| u8::from(given.iter().any(|(range, _)| range.contains(&at))));
    assert_eq!(prime["mm_token_type_ids"], types.collect::<Value>());
    let [verl] = &lines(&app, "verl").await[..] else { panic!("one line") };
    assert_eq!(verl["multi_modal_data"], json!({ "images": urls }));

    app.post("/v1/chat/completions", chat(&json!([user(&json!("text"))]))).await.ok();
    for format in ["prime_rl", "verl"] {
        let text = &lines(&app, format).await[1];
        for field in ["mm_refs", "mm_token_type_ids", "multi_modal_data"] {
            assert!(text.get(field).is_none(), "{format}: {text}");
        }
    }
    let (app, _) = capturing(false);
    app.post("/v1/chat/completions", chat(&json!([user(&parts)]))).await.ok();
    for format in ["prime_rl", "verl", "nemo_rl"] {
        let message = lines(&app, format).await[0]["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("files of its images were not kept"), "{format}: {message}");
    }
}

#[tokio::test]
async fn a_message_log_has_each_image_at_its_message() {
    let (app, _) = capturing(true);
    let (first, later) = (json!([image_part(56, 84, 1), image_part(28, 28, 2)]), json!([image_part(84, 84, 3)]));
    let answer = app.post("/v1/chat/completions", chat(&json!([user(&first)]))).await.ok();
    let said = answer["choices"][0]["message"].clone();
    app.post("/v1/chat/completions", chat(&json!([user(&first), said, user(&later)]))).await.ok();
    let [line] = &lines(&app, "nemo_rl").await[..] else { panic!("one line") };
    let log = line["message_log"].as_array().unwrap();
    let roles: Vec<_> = log.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
    for (message, parts) in [(0, &first), (2, &later)] {
        let images = log[message]["images"].as_array().unwrap();
        let ids = log[message]["token_ids"].as_array().unwrap();
        let urls: Vec<_> = parts.as_array().unwrap().iter().map(|part| &part["image_url"]["url"]).collect();
        assert_eq!(images.iter().map(|image| &image["url"]).collect::<Vec<_>>(), urls);
        let mut shown = 0;
        for image in images {
            let [offset, length] =
                ["offset", "length"].map(|key| usize::try_from(image[key].as_u64().unwrap()).unwrap());
            assert!(ids[offset..offset + length].iter().all(|id| *id == json!(MARKS.placeholder)));
            shown += length;
        }
        assert_eq!(ids.iter().filter(|id| **id == json!(MARKS.placeholder)).count(), shown);
    }
    assert!(log.iter().skip(1).step_by(2).all(|message| message.get("images").is_none()));
}

/// The images of each row of a table: what `jsonl` says of them, and the file of each.
async fn table(app: &TestApp) -> Vec<(Vec<Value>, Vec<Option<Vec<u8>>>)> {
    const IMAGES: usize = 23;
    let request = Request::get("/v1/trajectories/export?format=parquet&allow_raw=true").body(Body::empty()).unwrap();
    let table = axum::body::to_bytes(app.send(request).await.into_body(), usize::MAX).await.unwrap();
    let reader = SerializedFileReader::new(table).unwrap();
    let rows = reader.get_row_iter(None).unwrap().map(|row| {
        let row = row.unwrap();
        assert!(row.is_null(2).unwrap(), "{row}");
        let images = row.get_list(IMAGES).unwrap();
        let of_image = |number: usize| {
            let image = images.get_group(number).unwrap();
            let grid = image.get_list(3).unwrap();
            let grid: Vec<i32> = (0..grid.len()).map(|place| grid.get_int(place).unwrap()).collect();
            let shown = json!({
                "identity": image.get_string(0).unwrap(), "offset": image.get_long(1).unwrap(),
                "length": image.get_long(2).unwrap(), "grid_thw": grid, "file_kept": image.get_bool(4).unwrap(),
            });
            (shown, image.get_bytes(5).ok().map(|bytes| bytes.data().to_vec()))
        };
        (0..images.len()).map(of_image).unzip()
    });
    rows.collect()
}

#[tokio::test]
async fn a_row_of_a_table_has_the_images_of_its_line_and_their_files() {
    let (first, second) = (image_part(56, 84, 1), image_part(28, 28, 2));
    for keeps_files in [true, false] {
        let (app, _) = capturing(keeps_files);
        for parts in [json!([first, second, first]), json!("text"), json!([second])] {
            app.post("/v1/chat/completions", chat(&json!([user(&parts)]))).await.ok();
        }
        let (rows, lines) = (table(&app).await, lines(&app, "jsonl").await);
        let [one, other] = [png(56, 84, 1), png(28, 28, 2)];
        let files = [vec![one.clone(), other.clone(), one], vec![], vec![other]];
        assert_eq!((rows.len(), lines.len()), (3, 3));
        for (((images, bytes), line), files) in rows.into_iter().zip(lines).zip(files) {
            assert_eq!(line["images"], json!(images));
            let expected: Vec<Option<Vec<u8>>> = files.into_iter().map(|file| keeps_files.then_some(file)).collect();
            assert_eq!(bytes, expected);
        }
    }
}

#[tokio::test]
async fn only_who_sent_an_image_gets_its_file_and_only_as_an_image() {
    let (app, _) = capturing(true);
    let app = app.keys(&["one", "two"]);
    let as_key = |key: &str, method: &str, path: &str, body: Value| {
        Request::builder()
            .method(method)
            .uri(path)
            .header(header::AUTHORIZATION, format!("Bearer {key}"))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body.to_string()))
            .unwrap()
    };
    let body = chat(&json!([user(&json!([image_part(56, 84, 1)]))]));
    app.request(as_key("one", "POST", "/v1/chat/completions", body)).await.ok();
    let list = app.request(as_key("one", "GET", "/v1/trajectories", Value::Null)).await.ok();
    let id = list["data"][0]["id"].as_str().unwrap().to_owned();
    let tree = app.request(as_key("one", "GET", &format!("/v1/trajectories/{id}"), Value::Null)).await.ok();
    let turn = &tree["turns"][0];
    let at = |turn: &str, identity: &str| format!("/v1/trajectories/{id}/turns/{turn}/images/{identity}");
    let (turn_id, identity) = (turn["id"].as_str().unwrap(), turn["images"][0]["identity"].as_str().unwrap());
    let file = app.request(as_key("one", "GET", &at(turn_id, identity), Value::Null)).await;
    assert_eq!((file.status, &file.headers["content-type"]), (200, &"image/png".parse().unwrap()));
    assert_eq!(file.headers["x-content-type-options"], "nosniff");
    assert!(file.headers["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'; sandbox"));
    assert_eq!(file.headers["content-length"], png(56, 84, 1).len().to_string().as_str());
    for (key, turn, identity) in [
        ("two", turn_id, identity),
        ("one", "turn_none", identity),
        ("one", turn_id, &identity.replace(&identity[..1], if identity.starts_with('0') { "1" } else { "0" })),
    ] {
        let refused = app.request(as_key(key, "GET", &at(turn, identity), Value::Null)).await;
        assert_eq!(refused.status, 404, "{key} {turn} {identity}");
    }
    let path = format!("/v1/trajectories/{id}/turns/{turn_id}/tokens");
    let tokens = app.request(as_key("one", "GET", &path, Value::Null)).await.ok();
    assert_eq!(tokens["images"], turn["images"]);
}
