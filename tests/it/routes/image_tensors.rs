//! Images as tensors: what a render gives of them, and what is generated from them.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::images::{chat, checked, refusal, text, user};
use crate::it::app::{
    Answer, MODEL, TestApp,
    images::{data_url, image_part, png},
};

const RENDER: &str = "/v1/chat/completions/render";

/// A prompt with two images, of 6 and of 4 placeholders.
fn asked() -> Value {
    chat(&json!([user(&[text("see "), image_part(56, 84, 1), text(" and "), image_part(28, 28, 2)])]))
}

async fn rendered(app: &TestApp) -> Value {
    app.post(RENDER, asked()).await.ok()
}

async fn generated(app: &TestApp, token_ids: &Value, features: &Value) -> Answer {
    let sampling = json!({"max_tokens": 4});
    let body = json!({"model": MODEL, "token_ids": token_ids, "features": features, "sampling_params": sampling,
        "return_token_ids": true});
    app.post("/inference/v1/generate", body).await
}

/// Texts and numbers of an item, found where msgpack has them.
fn holds(item: &Value, part: &[u8]) -> bool {
    let bytes = STANDARD.decode(item.as_str().unwrap()).unwrap();
    bytes.windows(part.len()).any(|window| window == part)
}

#[tokio::test]
async fn a_render_gives_the_tensors_of_each_image() {
    let app = TestApp::new().sees_images();
    let features = rendered(&app).await["features"].clone();
    let [tensors, metadata] = ["kwargs_data", "mm_metadata"].map(|field| features[field]["image"].as_array().unwrap());
    assert_eq!((tensors.len(), metadata.len()), (2, 2));
    for (index, grid) in [[6_u8, 4], [4, 4]].into_iter().enumerate() {
        // 14 pixels a patch; both frames of three colours.
        let patches = grid[0] * grid[1];
        let shape = [b"pixel_values\x82\xa4data\x93\xa7float32\x92".as_slice(), &[patches, 0xcd, 0x04, 0x98]].concat();
        assert!(holds(&tensors[index], &shape), "{patches} patches of 1176 numbers");
        for items in [tensors, metadata] {
            assert!(holds(&items[index], b"image_grid_thw"));
            assert!(holds(&items[index], &[1, 0, 0, 0, 0, 0, 0, 0, grid[0], 0, 0, 0, 0, 0, 0, 0, grid[1], 0, 0, 0]));
        }
        assert!(!holds(&metadata[index], b"pixel_values"));
    }
    let text_alone = app.post(RENDER, chat(&json!([user(&[text("see")])]))).await.ok();
    assert_eq!(text_alone["features"], Value::Null);
}

#[tokio::test]
async fn a_render_gives_no_tensors_where_none_are_wanted() {
    let app = TestApp::new().sees_images();
    for (field, value, has) in [
        ("mm_payload", json!("none"), false),
        ("mm_payload", json!("tensors"), true),
        ("return_mm_kwargs", json!(false), false),
        ("return_mm_kwargs", json!(true), true),
    ] {
        let mut body = asked();
        body[field] = value;
        let features = app.post(RENDER, body).await.ok()["features"].clone();
        assert_eq!(features["mm_hashes"]["image"].as_array().unwrap().len(), 2);
        assert_eq!(!features["kwargs_data"].is_null(), has, "{field}");
        assert_eq!(!features["mm_metadata"].is_null(), has, "{field}");
    }
    let mut body = asked();
    body["mm_payload"] = json!("pixels");
    assert!(refusal(&app.post(RENDER, body).await).contains("mm_payload"));
    let dialects = [
        (
            "/v1/responses/render",
            json!({"model": MODEL, "input": [{"role": "user", "content":
            [{"type": "input_image", "image_url": data_url(&png(56, 84, 1))}]}]}),
        ),
        (
            "/v1/messages/render",
            json!({"model": MODEL, "max_tokens": 4, "messages": [{"role": "user", "content":
            [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": STANDARD.encode(png(56, 84, 1))}}]}]}),
        ),
    ];
    for (path, mut body) in dialects {
        assert!(app.post(path, body.clone()).await.ok()["features"]["kwargs_data"]["image"][0].is_string(), "{path}");
        body["mm_payload"] = json!("none");
        assert!(app.post(path, body).await.ok()["features"]["kwargs_data"].is_null(), "{path}");
    }
}

#[tokio::test]
async fn a_server_that_never_saw_an_image_computes_with_its_tensors() {
    let first = TestApp::new().sees_images();
    let rendered = rendered(&first).await;
    let answer = generated(&first, &rendered["token_ids"], &rendered["features"]).await.ok();
    let prompt = checked(&first, &answer, &[6, 4]);
    let seen = first.prompt_pixels();

    let second = TestApp::new().sees_images();
    let answer = generated(&second, &rendered["token_ids"], &rendered["features"]).await.ok();
    assert_eq!(checked(&second, &answer, &[6, 4]), prompt);
    assert_eq!(second.prompt_pixels(), seen, "the same numbers for the tower");
    // Here the image is called by what it shows, and the file of the first server is not known.
    let identities = |app: &TestApp| app.prompt_images().into_iter().map(|(_, identity)| identity).collect::<Vec<_>>();
    assert!(identities(&first).iter().all(|identity| !identities(&second).contains(identity)));
    let mut hashes = rendered["features"].clone();
    hashes["kwargs_data"] = Value::Null;
    hashes["mm_metadata"] = Value::Null;
    assert!(refusal(&generated(&second, &rendered["token_ids"], &hashes).await).contains("is not kept here"));
}

#[tokio::test]
async fn tensors_decide_what_an_image_is_and_not_its_name() {
    let app = TestApp::new().sees_images();
    let rendered = rendered(&app).await;
    let mut other = asked();
    other["messages"][0]["content"][1] = image_part(56, 84, 7);
    let other = app.post(RENDER, other).await.ok();
    let (own, theirs) = (&rendered["features"], &other["features"]);
    generated(&app, &rendered["token_ids"], own).await.ok();
    let seen = (app.prompt_images(), app.prompt_pixels());

    // Called by a name of the client's own, by none that could be one, and as another client's image is called.
    for name in [json!("0".repeat(64)), json!("screenshot"), theirs["mm_hashes"]["image"][0].clone()] {
        let mut features = own.clone();
        features["mm_hashes"]["image"][0] = name;
        generated(&app, &rendered["token_ids"], &features).await.ok();
        assert_eq!(app.prompt_pixels(), seen.1);
        assert_ne!(app.prompt_images()[0], seen.0[0], "it is no file that was sent");
        assert_eq!(app.prompt_images()[1], seen.0[1]);
    }
    // The name and the tensors of the same image: the one that was read from a file.
    generated(&app, &rendered["token_ids"], own).await.ok();
    assert_eq!(app.prompt_images(), seen.0);
}

#[tokio::test]
async fn items_that_are_no_images_of_this_model_are_refused_by_their_place() {
    let app = TestApp::new().sees_images();
    let rendered = rendered(&app).await;
    let features = |change: &dyn Fn(&mut Value)| {
        let mut features = rendered["features"].clone();
        change(&mut features);
        features
    };
    let [first, second] = [0, 1].map(|index| rendered["features"]["kwargs_data"]["image"][index].clone());
    let metadata = rendered["features"]["mm_metadata"]["image"][0].clone();
    let item = |item: &'static str| features(&move |features| features["kwargs_data"]["image"][1] = json!(item));
    let bytes = STANDARD.decode(second.as_str().unwrap()).unwrap();
    let mut two_frames = bytes.clone();
    let header = b"image_grid_thw\x82\xa4data\x93\xa5int64\x91\x03\xc7\x18\x03";
    let counts = bytes.windows(header.len()).position(|window| window == header).unwrap() + header.len();
    two_frames[counts] = 2;
    let with_two_frames = STANDARD.encode(two_frames);
    let short = STANDARD.encode(&bytes[..bytes.len() - 1]);
    let refused = [
        (item("no base64"), "features.kwargs_data.image[1]: the image cannot be read: it is not valid base64"),
        (item("AAAA"), "features.kwargs_data.image[1]: the image cannot be read: it is no item of vLLM's in msgpack"),
        (item("gA=="), "features.kwargs_data.image[1]: the image cannot be read: there is no `pixel_values`"),
        (
            features(&|features| features["kwargs_data"]["image"][1] = json!(short)),
            "it is no item of vLLM's in msgpack",
        ),
        // The placeholders are those of another image.
        (
            features(&|features| {
                features["kwargs_data"]["image"] = json!([second, first]);
                features["mm_metadata"] = Value::Null;
            }),
            "placeholders of the images",
        ),
        // Counts of another image.
        (
            features(&|features| features["mm_metadata"]["image"] = json!([null, metadata])),
            "features.kwargs_data.image[1]: the image cannot be read: `image_grid_thw` of `mm_metadata` is another one",
        ),
        (
            features(&|features| features["kwargs_data"]["image"][1] = json!(with_two_frames)),
            "features.kwargs_data.image[1]: the image cannot be read: `image_grid_thw` of `mm_metadata` is another one",
        ),
        (
            features(&|features| {
                features["kwargs_data"]["image"][1] = json!(with_two_frames);
                features["mm_metadata"] = Value::Null;
            }),
            "features.kwargs_data.image[1]: the image cannot be read: `image_grid_thw` is [2, ",
        ),
        (
            features(&|features| {
                features["kwargs_data"] = json!({"image": [null, null]});
                features["mm_metadata"]["image"] = json!([null, metadata]);
            }),
            "features.kwargs_data.image[1]: the image cannot be read: `image_grid_thw` is not that of the image",
        ),
        (
            features(&|features| features["kwargs_data"]["image"] = json!([first])),
            "mm_hashes and kwargs_data must have",
        ),
        (features(&|features| features["mm_metadata"]["image"] = json!([])), "mm_hashes and mm_metadata must have"),
        (features(&|features| features["kwargs_data"]["video"] = json!([])), "`features`"),
        (features(&|features| features["kwargs_data"] = json!("AAAA")), "`features`"),
    ];
    for (features, expected) in refused {
        let said = refusal(&generated(&app, &rendered["token_ids"], &features).await);
        assert!(said.contains(expected), "{said}, not {expected}");
    }
    // What is kept may be named, with its counts or without.
    for metadata in [json!({"image": [metadata, null]}), Value::Null] {
        let known = features(&|features| {
            features["kwargs_data"] = Value::Null;
            features["mm_metadata"] = metadata.clone();
        });
        generated(&app, &rendered["token_ids"], &known).await.ok();
    }
}
