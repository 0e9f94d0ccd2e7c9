//! `/inspect`: the page, and the tokens that it draws.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{Request, header},
};
use serde_json::{Value, json};
use tito::{
    TokenId,
    store::MemoryStore,
    trajectory::{CapturePolicy, Trajectories},
    turn::Capture,
};

use crate::it::app::{Answer, IM_END, MODEL, TestApp, VOCAB_SIZE};

fn capturing(texts: bool) -> TestApp {
    let policy = CapturePolicy { bytes: 1 << 24, ttl: None, texts, images: true };
    let store = Arc::new(MemoryStore::new(u64::MAX, Duration::MAX));
    let trajectories = Arc::new(Trajectories::open(store, policy).unwrap());
    TestApp::new().captures(Capture { trajectories, model: MODEL.into(), process: "test".into() })
}

async fn chat(app: &TestApp, messages: Value) -> Value {
    let body = json!({ "model": MODEL, "messages": messages, "return_token_ids": true, "max_tokens": 40 });
    app.post("/v1/chat/completions", body).await.ok()
}

/// The tokens of the last turn of the first trajectory, and the tree.
async fn last_tokens(app: &TestApp) -> (Value, Value) {
    let id = app.get("/v1/trajectories").await.ok()["data"][0]["id"].as_str().unwrap().to_owned();
    let tree = app.get(&format!("/v1/trajectories/{id}")).await.ok();
    let turn = tree["turns"].as_array().unwrap().last().unwrap()["id"].as_str().unwrap().to_owned();
    (app.get(&format!("/v1/trajectories/{id}/turns/{turn}/tokens")).await.ok(), tree)
}

fn ids(value: &Value) -> Vec<TokenId> {
    serde_json::from_value(value.clone()).unwrap()
}

/// The text that the ids of a span stand for.
fn text(tokens: &Value, span: &Value) -> String {
    let at = |end: &str| usize::try_from(span[end].as_u64().unwrap()).unwrap();
    let range = at("start")..at("end");
    ids(&tokens["token_ids"])[range].iter().map(|id| tokens["texts"][id.to_string()].as_str().unwrap()).collect()
}

#[tokio::test]
async fn the_page_is_in_the_binary_and_runs_nothing_else() {
    let app = capturing(true).keys(&["key"]);
    let page = app.get("/inspect").await;
    assert_eq!((page.status, &page.headers[header::CONTENT_TYPE]), (200, &"text/html; charset=utf-8".parse().unwrap()));
    // Inline scripts, styles and handlers, which the policy would stop.
    for inline in ["<style", " style=", " onclick=", "javascript:", "//cdn", "https://"] {
        assert!(!page.text.contains(inline), "{inline}");
    }
    assert_eq!(page.text.matches("<script").count(), 1);
    let mut wanted: Vec<String> =
        page.text.split('"').filter_map(|part| part.strip_prefix("inspect/")).map(Into::into).collect();
    assert!(wanted.len() >= 3);
    let mut next = 0;
    while let Some(name) = wanted.get(next).cloned() {
        let file = app.get(&format!("/inspect/{name}")).await;
        assert_eq!(file.status, 200, "{name}");
        assert_eq!(file.headers["x-content-type-options"], "nosniff");
        let policy = file.headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'") && !policy.contains("unsafe")
        );
        if file.headers[header::CONTENT_TYPE].to_str().unwrap().starts_with("text/javascript") {
            assert!(!file.text.contains("innerHTML") && !file.text.contains("insertAdjacentHTML"), "{name}");
            let imports = file.text.lines().filter(|line| line.starts_with("import "));
            let names = imports.filter_map(|line| line.split('"').nth(1)?.strip_prefix("./"));
            let new: Vec<String> =
                names.filter(|name| !wanted.iter().any(|known| known == name)).map(Into::into).collect();
            wanted.extend(new);
        }
        next += 1;
    }
    assert!(next >= 10, "{wanted:?}");
    let about = app.get("/inspect/about.json").await.ok();
    assert_eq!(about, json!({ "read_only": false, "has_texts": true }));
    assert_eq!(app.get("/inspect/nothing.js").await.status, 404);
    // The page is open, and what it asks for is not.
    assert_eq!(app.get("/v1/trajectories").await.status, 401);
    assert_eq!(app.get("/v1/trajectories/traj_x/turns/turn_x/tokens").await.status, 401);
}

#[tokio::test]
async fn without_capture_there_is_no_page_and_the_flag_is_named() {
    let app = TestApp::new();
    for path in ["/inspect", "/inspect/main.js", "/inspect/about.json", "/v1/trajectories/traj_x/turns/turn_x/tokens"] {
        let answer = app.get(path).await;
        assert_eq!(answer.status, 404, "{path}");
        assert!(answer.error()["message"].as_str().unwrap().contains("--capture memory"), "{}", answer.text);
    }
}

#[tokio::test]
async fn every_id_has_its_origin() {
    let app = capturing(true).says("Good day");
    let messages = json!([{ "role": "system", "content": "Be kind." }, { "role": "user", "content": "Hi" }]);
    let first = chat(&app, messages).await;
    let messages = json!([
        { "role": "system", "content": "Be kind." },
        { "role": "user", "content": "Hi" },
        { "role": "assistant", "content": "Good day" },
        { "role": "user", "content": "Good day to you 🌋" },
    ]);
    let second = chat(&app, messages).await;
    let (tokens, tree) = last_tokens(&app).await;
    let whole = [ids(&second["prompt_token_ids"]), ids(&second["choices"][0]["token_ids"])].concat();
    assert_eq!(ids(&tokens["token_ids"]), whole);
    let [one, two] = [&tree["turns"][0]["id"], &tree["turns"][1]["id"]];
    let spans = tokens["spans"].as_array().unwrap();
    let told: Vec<_> = spans
        .iter()
        .map(|span| {
            (
                span["origin"].as_str().unwrap(),
                span["role"].as_str(),
                text(&tokens, span),
                span["source"].as_str(),
                &span["turn_id"],
            )
        })
        .collect();
    let known = Some("cache");
    let volcano = "Good day to you \\xF0\\x9F\\x8C\\x8B";
    let expected = [
        ("template", None, "<|im_start|>system\n".to_owned(), known, one),
        ("message", Some("system"), "Be kind.".to_owned(), known, one),
        ("template", None, "<|im_end|>\n<|im_start|>user\n".to_owned(), known, one),
        ("message", Some("user"), "Hi".to_owned(), known, one),
        ("template", None, "<|im_end|>\n<|im_start|>assistant\n".to_owned(), known, one),
        ("sampled", None, "Good day<|im_end|>".to_owned(), known, one),
        ("template", None, "\n<|im_start|>user\n".to_owned(), None, two),
        ("message", Some("user"), volcano.to_owned(), None, two),
        ("template", None, "<|im_end|>\n<|im_start|>assistant\n".to_owned(), None, two),
        ("sampled", None, "Good day<|im_end|>".to_owned(), None, two),
    ];
    assert_eq!(told, expected);
    assert_eq!(spans[0]["start"], 0);
    assert!(spans.windows(2).all(|pair| pair[0]["end"] == pair[1]["start"]));
    assert_eq!(spans[9]["end"], whole.len());
    assert_eq!(spans[5]["weight_version"], "default");
    let fragments = ids(&tokens["fragments"]);
    assert!(
        !fragments.is_empty()
            && fragments.iter().all(|id| tokens["texts"][id.to_string()].as_str().unwrap().contains("\\x"))
    );
    let sampled = first["prompt_token_ids"].as_array().unwrap().len();
    for (at, logprob) in tokens["logprobs"].as_array().unwrap().iter().enumerate() {
        let span = spans.iter().find(|span| span["end"].as_u64().unwrap() > at as u64).unwrap();
        assert_eq!(logprob.is_number(), span["origin"] == "sampled", "{at}");
    }
    assert!(tokens["logprobs"][sampled].is_number());
    assert!(tokens["ranks"][sampled].as_u64().is_some_and(|rank| rank >= 1) && tokens["ranks"][0].is_null());
    assert!(tokens["entropies"].is_null(), "no alternatives were asked for");
    assert_eq!(tokens["drift"], json!([]));
}

#[tokio::test]
async fn drift_is_found_where_the_text_has_other_ids() {
    let app = TestApp::new();
    let (whole, letters) = (app.ids("hello"), "hello".chars().flat_map(|letter| app.ids(&letter.to_string())));
    let letters: Vec<TokenId> = letters.collect();
    assert_ne!(whole, letters);
    // Two bytes of a character, and nothing behind them: encoded again, they are a replacement character.
    let half = app.ids("🌋")[..2].to_vec();
    let again = app.ids("\u{FFFD}");
    let sampled = [&app.ids("A ")[..], &letters, &app.ids(" b"), &half, &app.ids("!"), &[IM_END]].concat();
    let app = capturing(true).script(sampled.clone());
    chat(&app, json!([{ "role": "user", "content": "Hi" }])).await;
    let (tokens, _) = last_tokens(&app).await;
    let start = ids(&tokens["token_ids"]).len() - sampled.len();
    let first = start + app.ids("A ").len();
    let second = first + letters.len() + app.ids(" b").len();
    let drift = tokens["drift"].as_array().unwrap();
    assert_eq!(drift[0], json!({ "start": first, "end": first + letters.len(), "token_ids": whole }));
    assert_eq!(drift[1], json!({ "start": second, "end": second + 2, "token_ids": again }));
    assert_eq!(drift.len(), 2);
    assert!(
        whole.iter().chain(&again).all(|id| tokens["texts"][id.to_string()].is_string()),
        "the other ids have texts too"
    );
}

#[tokio::test]
async fn ids_that_came_as_ids_and_prompts_without_texts_are_named_so() {
    let app = capturing(true).says("Yes");
    // Nobody captured the turn that these ids are of.
    let known = app.ids("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    let answer = [app.ids("Yo"), vec![IM_END]].concat();
    let carried = json!({
        "role": "assistant", "content": "Yo", "prompt_token_ids": known, "generation_token_ids": answer,
        "generation_log_probs": vec![-0.5; answer.len()],
    });
    let user = |text: &str| json!({ "role": "user", "content": text });
    chat(&app, json!([user("Hi"), carried, user("Sure?")])).await;
    let (tokens, _) = last_tokens(&app).await;
    let first = &tokens["spans"][0];
    assert_eq!((&first["origin"], &first["source"]), (&json!("reused"), &json!("message")));
    assert_eq!(first["end"], known.len() + answer.len());
    assert_eq!(text(&tokens, &tokens["spans"][2]), "Sure?");

    let app = capturing(false).says("Yes");
    chat(&app, json!([user("Hi")])).await;
    let (tokens, _) = last_tokens(&app).await;
    let origins: Vec<_> = tokens["spans"].as_array().unwrap().iter().map(|span| span["origin"].clone()).collect();
    assert_eq!(origins, [json!("prompt"), json!("sampled")]);
}

#[tokio::test]
async fn tokens_of_another_key_are_like_tokens_that_never_were() {
    let app = capturing(true).keys(&["one", "two"]);
    let ask = async |key: &str, path: &str| -> Answer {
        let request = Request::get(path).header(header::AUTHORIZATION, format!("Bearer {key}"));
        app.request(request.body(Body::empty()).unwrap()).await
    };
    let chat = json!({ "messages": [{ "role": "user", "content": "Hi" }], "max_tokens": 2 });
    let request = Request::post("/v1/chat/completions").header(header::AUTHORIZATION, "Bearer one");
    let request = request.header(header::CONTENT_TYPE, "application/json").body(Body::from(chat.to_string())).unwrap();
    assert_eq!(app.request(request).await.status, 200);
    let id = ask("one", "/v1/trajectories").await.ok()["data"][0]["id"].as_str().unwrap().to_owned();
    let tree = ask("one", &format!("/v1/trajectories/{id}")).await.ok();
    let turn = tree["turns"][0]["id"].as_str().unwrap();
    let path = |id: &str, turn: &str| format!("/v1/trajectories/{id}/turns/{turn}/tokens");
    assert_eq!(ask("one", &path(&id, turn)).await.status, 200);
    let foreign = ask("two", &path(&id, turn)).await;
    let unknown = ask("two", &path("traj_x", turn)).await;
    assert_eq!((foreign.status, foreign.text.replace(&id, "traj_x")), (404, unknown.text));
    assert_eq!(ask("one", &path(&id, "turn_x")).await.status, 404);
}

#[tokio::test]
async fn lists_go_both_ways_and_an_export_may_be_of_one_trajectory() {
    let app = capturing(true);
    for number in 0..5 {
        chat(&app, json!([{ "role": "user", "content": format!("Hi {number}") }])).await;
    }
    let listed = async |query: &str| -> Vec<String> {
        let page = app.get(&format!("/v1/trajectories?{query}")).await.ok();
        page["data"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
    };
    let oldest_first = listed("").await;
    let newest_first: Vec<String> = oldest_first.iter().rev().cloned().collect();
    assert_eq!(listed("order=asc").await, oldest_first);
    assert_eq!(listed("order=desc&limit=2").await, newest_first[..2]);
    assert_eq!(listed(&format!("order=desc&after={}", newest_first[1])).await, newest_first[2..]);
    assert_eq!(listed(&format!("trajectory={}", oldest_first[3])).await, oldest_first[3..4]);
    assert!(listed("trajectory=traj_x").await.is_empty());
    assert_eq!(app.get("/v1/trajectories?order=down").await.status, 400);
    let one = app.get(&format!("/v1/trajectories/export?trajectory={}", oldest_first[3])).await;
    assert_eq!(one.json()["trajectory_id"], oldest_first[3]);
    let ids: Vec<TokenId> = ids(&one.json()["token_ids"]);
    assert!(ids.iter().all(|id| (*id as usize) < VOCAB_SIZE));
}
