//! `return_sampling_mask`: with each sampled token the ids that it was drawn from, on every endpoint that has a place for them.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, to_bytes},
    http::Request,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use parquet::{
    file::reader::{FileReader as _, SerializedFileReader},
    record::{ListAccessor as _, RowAccessor as _},
};
use serde_json::{Value, json};
use strum::VariantArray;
use tito::{
    TokenId,
    store::MemoryStore,
    trajectory::{CapturePolicy, Trajectories},
    turn::Capture,
};

use crate::{
    it::{
        app::{MODEL, TestApp},
        routes::trajectory_logprobs::named,
    },
    wire::trajectories::export::Format,
};

const ENDPOINTS: [&str; 3] = ["/v1/chat/completions", "/v1/completions", "/inference/v1/generate"];

/// A request of `path` whose sampling fields are these.
fn body(app: &TestApp, path: &str, fields: &Value, stream: bool) -> Value {
    let more = json!({ "return_token_ids": true, "stream": stream });
    let (mut body, fields) = match path {
        "/v1/chat/completions" => (json!({ "messages": [{ "role": "user", "content": "hello" }] }), fields.clone()),
        "/v1/completions" => (json!({ "prompt": "hello" }), fields.clone()),
        _ => (json!({ "token_ids": app.ids("hello") }), json!({ "sampling_params": fields })),
    };
    for part in [fields, more] {
        body.as_object_mut().unwrap().append(&mut part.as_object().unwrap().clone());
    }
    body
}

/// The ids and the rows of a choice, whole or put together from a stream.
#[derive(Debug, Default, PartialEq)]
struct Drawn {
    ids: Vec<TokenId>,
    rows: Vec<Vec<TokenId>>,
}

impl Drawn {
    fn add(&mut self, choice: &Value) {
        let list = |name: &str| choice[name].as_array().cloned().unwrap_or_default();
        self.ids.extend(list("token_ids").into_iter().map(|id| serde_json::from_value::<TokenId>(id).unwrap()));
        self.rows
            .extend(list("sampling_mask").into_iter().map(|row| serde_json::from_value::<Vec<TokenId>>(row).unwrap()));
    }
}

async fn whole(app: &TestApp, path: &str, fields: &Value) -> Drawn {
    let answer = app.post(path, body(app, path, fields, false)).await.ok();
    let mut drawn = Drawn::default();
    drawn.add(&answer["choices"][0]);
    drawn
}

async fn streamed(app: &TestApp, path: &str, fields: &Value) -> Drawn {
    let events = app.post(path, body(app, path, fields, true)).await.events();
    let mut drawn = Drawn::default();
    events.iter().filter(|event| event["choices"].as_array().is_some_and(|choices| !choices.is_empty())).for_each(
        |event| {
            drawn.add(&event["choices"][0]);
        },
    );
    drawn
}

#[tokio::test]
async fn every_token_comes_with_its_row_whole_and_streamed_on_each_endpoint() {
    let app = TestApp::new();
    for (fields, longest) in [
        (json!({ "top_k": 7 }), 7),
        (json!({ "top_p": 0.5, "logit_bias": { "5": 4.0 } }), 4096),
        (json!({ "allowed_token_ids": [4, 9, 11] }), 3),
        (json!({ "temperature": 0 }), 1),
        (json!({ "min_p": 0.1, "presence_penalty": 1.0 }), 4096),
    ] {
        let mut asked = json!({
            "seed": 3, "max_tokens": 20, "ignore_eos": true, "return_sampling_mask": true, "logprobs": null
        });
        asked.as_object_mut().unwrap().append(&mut fields.as_object().unwrap().clone());
        for path in ENDPOINTS {
            let drawn = whole(&app, path, &asked).await;
            assert_eq!((drawn.ids.len(), drawn.rows.len()), (20, 20), "{path} {fields}");
            for (id, row) in drawn.ids.iter().zip(&drawn.rows) {
                assert!(row.contains(id) && row.is_sorted() && row.len() <= longest, "{path} {fields} {id} {row:?}");
            }
            assert_eq!(streamed(&app, path, &asked).await, drawn, "{path} {fields}");
        }
    }
}

#[tokio::test]
async fn what_a_stop_string_cuts_loses_its_rows_too() {
    let app = TestApp::new().says("hello world you and me");
    let asked = json!({ "top_k": 3, "stop": ["you"], "return_sampling_mask": true, "max_tokens": 12 });
    for path in ENDPOINTS {
        let drawn = whole(&app, path, &asked).await;
        assert!(!drawn.ids.is_empty(), "{path}");
        assert_eq!(drawn.ids.len(), drawn.rows.len(), "{path}");
        assert_eq!(streamed(&app, path, &asked).await, drawn, "{path}");
    }
}

#[tokio::test]
async fn a_structured_output_leaves_only_what_its_grammar_takes() {
    let app = TestApp::new();
    let asked = json!({
        "structured_outputs": { "choice": ["hello", "you"] }, "return_sampling_mask": true, "max_tokens": 12
    });
    for path in ENDPOINTS {
        let drawn = whole(&app, path, &asked).await;
        assert_eq!(drawn.ids.len(), drawn.rows.len(), "{path}");
        assert!(drawn.rows.iter().zip(&drawn.ids).all(|(row, id)| row.contains(id) && row.len() < 20), "{drawn:?}");
    }
}

#[tokio::test]
async fn the_flag_is_for_generate_and_a_request_may_say_no() {
    let app = TestApp::new().policy(|policy| policy.sampling_mask.on_generate = true);
    let generate = "/inference/v1/generate";
    let quiet = json!({ "top_k": 3, "max_tokens": 4, "ignore_eos": true });
    assert_eq!(whole(&app, generate, &quiet).await.rows.len(), 4);
    for path in &ENDPOINTS[..2] {
        let answer = app.post(path, body(&app, path, &quiet, false)).await.ok();
        assert_eq!(answer["choices"][0].get("sampling_mask"), None, "{path}");
    }
    let refused = json!({ "top_k": 3, "max_tokens": 4, "ignore_eos": true, "return_sampling_mask": false });
    let answer = app.post(generate, body(&app, generate, &refused, false)).await.ok();
    assert_eq!(answer["choices"][0]["sampling_mask"], Value::Null);
}

#[tokio::test]
async fn a_row_that_would_be_too_long_ends_the_request_with_the_flag_that_bounds_it() {
    let app = TestApp::new().policy(|policy| policy.sampling_mask.most = 5);
    for path in ENDPOINTS {
        let asked = json!({ "max_tokens": 4, "return_sampling_mask": true });
        let answer = app.post(path, body(&app, path, &asked, false)).await;
        let message = answer.error()["message"].as_str().unwrap().to_owned();
        assert_eq!(answer.status, 400, "{path}");
        assert!(message.contains("--sampling-mask-max-tokens") && message.contains("than the 5 "), "{message}");
        let few = json!({ "max_tokens": 4, "return_sampling_mask": true, "top_k": 5, "ignore_eos": true });
        assert_eq!(whole(&app, path, &few).await.rows.len(), 4);
    }
}

#[tokio::test]
async fn endpoints_without_a_place_for_masks_refuse_them() {
    let app = TestApp::new();
    let message = json!([{ "role": "user", "content": "hello" }]);
    for (path, body) in [
        ("/v1/responses", json!({ "input": "hello", "return_sampling_mask": true })),
        ("/v1/messages", json!({ "model": MODEL, "messages": message, "max_tokens": 3, "return_sampling_mask": true })),
    ] {
        let answer = app.post(path, body).await;
        assert_eq!(answer.status, 400, "{path}");
        let message = answer.error()["message"].as_str().unwrap().to_owned();
        assert!(message.contains("`return_sampling_mask` has no place"), "{path} {message}");
    }
}

#[tokio::test]
async fn a_rendered_request_still_asks_for_its_mask() {
    let app = TestApp::new();
    let asked = json!({ "top_k": 4, "seed": 1, "max_tokens": 6, "ignore_eos": true, "return_sampling_mask": true });
    let chat = whole(&app, ENDPOINTS[0], &asked).await;
    let rendered = app.post("/v1/chat/completions/render", body(&app, ENDPOINTS[0], &asked, false)).await.ok();
    let answer = app.post("/inference/v1/generate", rendered).await.ok();
    let mut drawn = Drawn::default();
    drawn.add(&answer["choices"][0]);
    assert_eq!(drawn, chat);
}

fn capturing() -> TestApp {
    let store = Arc::new(MemoryStore::new(u64::MAX, Duration::MAX));
    let policy = CapturePolicy { bytes: 1 << 24, ttl: None, texts: true, images: true };
    let trajectories = Arc::new(Trajectories::open(store, policy).unwrap());
    TestApp::new().captures(Capture { trajectories, model: MODEL.into(), process: "test".into() })
}

/// The rows of a packed mask, an empty one for a token without.
fn unpacked(mask: &Value) -> Vec<Vec<TokenId>> {
    let counts: Vec<usize> = serde_json::from_value(mask["counts"].clone()).unwrap();
    let mut ids = serde_json::from_value::<Vec<TokenId>>(mask["ids"].clone()).unwrap().into_iter();
    let rows = counts.iter().map(|count| ids.by_ref().take(*count).collect()).collect();
    assert_eq!(ids.next(), None);
    rows
}

async fn lines(app: &TestApp, query: &str) -> Vec<Value> {
    let text = app.get(&format!("/v1/trajectories/export?{query}")).await.text;
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn a_captured_turn_has_the_rows_that_its_answer_had() {
    for path in ENDPOINTS {
        for stream in [false, true] {
            let app = capturing();
            let asked =
                json!({ "top_k": 7, "seed": 3, "max_tokens": 9, "ignore_eos": true, "return_sampling_mask": true });
            let drawn = if stream { streamed(&app, path, &asked).await } else { whole(&app, path, &asked).await };
            assert_eq!(drawn.rows.len(), 9, "{path}");
            whole(&app, path, &json!({ "top_k": 7, "seed": 4, "max_tokens": 4, "ignore_eos": true })).await;
            let lines = lines(&app, "unit=turn").await;
            let (line, bare) = (&lines[0], &lines[1]);
            assert_eq!(bare["sampling_mask"], Value::Null, "{path}");
            let (rows, start) = (unpacked(&line["sampling_mask"]), line["prompt_tokens"].as_u64().unwrap());
            let (prompt, own) = rows.split_at(usize::try_from(start).unwrap());
            assert!(prompt.iter().all(Vec::is_empty), "{path} {stream}");
            assert_eq!(own, drawn.rows, "{path} {stream}");
            let id = line["trajectory_id"].as_str().unwrap();
            let turns = app.get(&format!("/v1/trajectories/{id}")).await.ok()["turns"].clone();
            assert_eq!(unpacked(&turns[0]["sampling_mask"]), drawn.rows, "{path} {stream}");
        }
    }
}

#[tokio::test]
async fn exports_have_masks_packed_where_their_readers_take_them() {
    let app = capturing();
    let asked = json!({ "top_k": 5, "seed": 3, "max_tokens": 6, "ignore_eos": true, "return_sampling_mask": true });
    let rows = whole(&app, "/v1/completions", &asked).await.rows;
    let counts: Vec<u32> = rows.iter().map(|row| u32::try_from(row.len()).unwrap()).collect();
    let node = &lines(&app, "format=verifiers&allow_raw=true").await[0]["nodes"][1];
    for (name, expected) in [("counts", &counts), ("ids", &rows.concat())] {
        let array = &node["sampling_mask"][name];
        assert_eq!((&array["__nd__"], &array["dtype"]), (&json!(true), &json!("int32")));
        assert_eq!(array["shape"], json!([expected.len()]));
        let bytes = BASE64_STANDARD.decode(array["data"].as_str().unwrap()).unwrap();
        assert_eq!(bytes, expected.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>());
    }
    let prime = &lines(&app, "format=prime_rl&allow_raw=true").await[0];
    let before = prime["token_ids"].as_array().unwrap().len() - counts.len();
    for (name, expected) in [("counts", [vec![0; before], counts.clone()].concat()), ("ids", rows.concat())] {
        let bytes = BASE64_STANDARD.decode(prime["sampling_mask"][name].as_str().unwrap()).unwrap();
        assert_eq!(bytes, expected.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>(), "{name}");
    }
    // A row without masks stands beside the one with them.
    whole(&app, "/v1/completions", &json!({ "prompt": "you", "top_k": 5, "max_tokens": 3, "ignore_eos": true })).await;
    let request =
        Request::get("/v1/trajectories/export?format=parquet&allow_raw=true&unit=turn").body(Body::empty()).unwrap();
    let table = to_bytes(app.send(request).await.into_body(), usize::MAX).await.unwrap();
    let reader = SerializedFileReader::new(table).unwrap();
    let read: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    let column = |row: &parquet::record::Row, name: &str| {
        let names: Vec<_> = row.get_column_iter().map(|(name, _)| name.clone()).collect();
        let list = row.get_list(names.iter().position(|known| known == name).unwrap()).ok()?;
        Some((0..list.len()).map(|index| list.get_int(index).unwrap().cast_unsigned()).collect::<Vec<_>>())
    };
    let start = column(&read[0], "token_ids").unwrap().len() - counts.len();
    let expected = [vec![0; start], counts].concat();
    assert_eq!(column(&read[0], "sampling_mask_counts").unwrap(), expected);
    assert_eq!(column(&read[0], "sampling_mask_ids").unwrap(), rows.concat());
    assert_eq!([column(&read[1], "sampling_mask_counts"), column(&read[1], "sampling_mask_ids")], [None, None]);
}

#[tokio::test]
async fn a_format_without_a_field_for_masks_loses_none_unless_it_is_told_to() {
    let app = capturing();
    for asks in [false, true] {
        let body = json!({ "top_k": 5, "max_tokens": 3, "ignore_eos": true, "return_sampling_mask": asks });
        whole(&app, "/v1/completions", &body).await;
    }
    for kind in Format::VARIANTS.iter().copied().filter(|format| format.write_line().is_some()) {
        let format = named(kind);
        let asked = format!("format={format}&allow_raw=true&unit=turn");
        let exported = lines(&app, &asked).await;
        assert!(exported.len() == 2 && exported[0].get("error").is_none(), "{format} {exported:?}");
        assert!(!exported[0].to_string().contains("sampling_mask\":{"), "{format}");
        if kind.has_masks() {
            assert!(
                exported[1].get("error").is_none() && exported[1].to_string().contains("sampling_mask"),
                "{format}"
            );
        } else {
            let message = exported[1]["error"]["message"].as_str().unwrap();
            assert!(message.contains("has a sampling mask") && message.contains("allow_unmasked=true"), "{message}");
        }
        let allowed = lines(&app, &format!("{asked}&allow_unmasked=true")).await;
        assert!(allowed.iter().all(|line| line.get("error").is_none()), "{format} {allowed:?}");
    }
}
