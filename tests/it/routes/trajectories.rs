//! `/v1/trajectories`: what is captured, shown, noted, exported and deleted.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{Method, Request, header},
};
use serde_json::{Value, json};
use tito::{
    TokenId,
    engine::scripted::Gate,
    store::{BatchStore, DiskStore, MemoryStore, Purpose},
    trajectory::{CapturePolicy, Trajectories},
    turn::Capture,
};

use crate::it::{
    app::{Answer, MODEL, TestApp, VOCAB_SIZE},
    patience::until,
};

const PATH: &str = "/v1/trajectories";
pub(in crate::it) const POLICY: CapturePolicy = CapturePolicy { bytes: 1 << 24, ttl: None, texts: true, images: true };

pub(in crate::it) fn capture(store: Arc<dyn BatchStore>, policy: CapturePolicy) -> Capture {
    Capture {
        trajectories: Arc::new(Trajectories::open(store, policy).unwrap()),
        model: MODEL.into(),
        process: "test".into(),
    }
}

fn in_memory(policy: CapturePolicy) -> Capture {
    capture(Arc::new(MemoryStore::new(u64::MAX, Duration::MAX)), policy)
}

fn capturing() -> TestApp {
    TestApp::new().captures(in_memory(POLICY))
}

fn ids(value: &Value) -> Vec<TokenId> {
    serde_json::from_value(value.clone()).unwrap()
}

/// The ids that an answer shows of itself.
struct Shown {
    prompt: Vec<TokenId>,
    sampled: Vec<TokenId>,
}

impl Shown {
    fn whole(&self) -> Vec<TokenId> {
        [&self.prompt[..], &self.sampled].concat()
    }
}

/// Asks for a completion of a chat, with its ids; the messages become those of the next turn.
async fn chat(app: &TestApp, messages: &mut Vec<Value>, more: &Value) -> Shown {
    let mut body = json!({ "model": MODEL, "messages": messages, "return_token_ids": true, "max_tokens": 5 });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let answer = app.post("/v1/chat/completions", body).await.ok();
    let choice = &answer["choices"][0];
    messages.push(json!({ "role": "assistant", "content": choice["message"]["content"] }));
    Shown { prompt: ids(&answer["prompt_token_ids"]), sampled: ids(&choice["token_ids"]) }
}

pub(super) fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

async fn listed(app: &TestApp, query: &str) -> Vec<Value> {
    app.get(&format!("{PATH}?{query}")).await.ok()["data"].as_array().unwrap().clone()
}

async fn exported(app: &TestApp, query: &str) -> Vec<Value> {
    let answer = app.get(&format!("{PATH}/export?{query}")).await;
    assert_eq!((answer.status, &answer.headers[header::CONTENT_TYPE]), (200, &"application/jsonl".parse().unwrap()));
    answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn a_server_that_captures_nothing_says_which_flag_would() {
    let app = TestApp::new();
    for path in [PATH.to_owned(), format!("{PATH}/export"), format!("{PATH}/traj_x")] {
        let answer = app.get(&path).await;
        assert_eq!(answer.status, 404);
        assert!(answer.error()["message"].as_str().unwrap().contains("--capture memory"), "{}", answer.text);
    }
}

#[tokio::test]
async fn turns_are_joined_by_ids_and_two_answers_to_one_turn_are_branches() {
    let app = capturing();
    let mut messages = vec![user("Hi")];
    let first = chat(&app, &mut messages, &json!({})).await;
    let (mut one, mut other) = (messages.clone(), messages);
    one.push(user("One"));
    other.push(user("Other"));
    let one = chat(&app, &mut one, &json!({})).await;
    let other = chat(&app, &mut other, &json!({})).await;
    // Nobody has said this before.
    chat(&app, &mut vec![user("Another conversation")], &json!({})).await;
    let all = listed(&app, "").await;
    assert_eq!(all.len(), 2);
    let id = all[0]["id"].as_str().unwrap();
    let tree = app.get(&format!("{PATH}/{id}")).await.ok();
    assert_eq!((&tree["turn_count"], &tree["leaf_count"], &tree["root_count"]), (&json!(3), &json!(2), &json!(1)));
    let turns = tree["turns"].as_array().unwrap();
    let root = &turns[0];
    assert_eq!(ids(&root["added_token_ids"]), first.prompt);
    assert_eq!(ids(&root["sampled_token_ids"]), first.sampled);
    for (turn, shown) in turns[1..].iter().zip([&one, &other]) {
        assert_eq!(turn["parent_id"], root["id"]);
        assert_eq!([first.whole(), ids(&turn["added_token_ids"])].concat(), shown.prompt);
        assert_eq!(ids(&turn["sampled_token_ids"]), shown.sampled);
        assert_eq!(turn["logprobs"].as_array().unwrap().len(), shown.sampled.len());
        assert_eq!(turn["token_continuity"]["outcome"], "exact");
        assert_eq!((turn["messages_before"].as_u64(), turn["messages"].as_array().unwrap().len()), (Some(1), 2));
    }
    // Both leaves share the first turn, whose ids are learnt from in both.
    let lines = exported(&app, "").await;
    assert_eq!(lines.len(), 3);
    for (line, shown) in lines.iter().zip([&one, &other]) {
        assert_eq!(ids(&line["token_ids"]), shown.whole());
        let mask: Vec<u64> = serde_json::from_value(line["loss_mask"].clone()).unwrap();
        let sampled = first.sampled.len() + shown.sampled.len();
        assert_eq!(mask.iter().sum::<u64>(), sampled as u64);
        assert_eq!(&mask[first.prompt.len()..first.whole().len()], vec![1; first.sampled.len()]);
        assert_eq!(line["prompt_tokens"], first.prompt.len());
        let logprobs = line["logprobs"].as_array().unwrap();
        assert!(logprobs.iter().zip(&mask).all(|(logprob, learnt)| logprob.is_number() == (*learnt == 1)));
    }
    let turns = exported(&app, "unit=turn").await;
    assert_eq!(turns.len(), 4);
    assert_eq!(turns[1]["prompt_tokens"], one.prompt.len());
}

#[tokio::test]
async fn a_session_is_one_trajectory_with_a_root_for_what_was_compacted() {
    let app = capturing();
    let session = json!({ "session_id": "rollout 7" });
    let mut messages = vec![user("Hi")];
    chat(&app, &mut messages, &session).await;
    messages.push(user("More"));
    chat(&app, &mut messages, &session).await;
    // Compaction: the conversation so far is replaced by a summary.
    let mut summary = vec![user("We greeted each other. Go on.")];
    chat(&app, &mut summary, &session).await;
    summary.push(user("More"));
    chat(&app, &mut summary, &session).await;
    let all = listed(&app, "session=rollout%207").await;
    assert_eq!(all.len(), 1);
    assert_eq!(
        (&all[0]["turn_count"], &all[0]["root_count"], &all[0]["leaf_count"]),
        (&json!(4), &json!(2), &json!(2))
    );
    assert!(listed(&app, "session=rollout").await.is_empty());
}

#[tokio::test]
async fn every_dialect_streamed_or_not_is_captured() {
    let app = capturing();
    for stream in [false, true] {
        let message = json!([user("Hi")]);
        for (path, body) in [
            ("/v1/chat/completions", json!({ "messages": message, "max_tokens": 3, "stream": stream, "n": 2 })),
            ("/v1/completions", json!({ "prompt": "Hi", "max_tokens": 3, "stream": stream })),
            ("/v1/messages", json!({ "model": MODEL, "messages": message, "max_tokens": 3, "stream": stream })),
            ("/v1/responses", json!({ "input": "Hi", "max_output_tokens": 3, "stream": stream })),
            (
                "/inference/v1/generate",
                json!({ "token_ids": [5, 6], "sampling_params": { "max_tokens": 3 }, "stream": stream }),
            ),
        ] {
            let before = exported(&app, "unit=turn").await.len();
            let answer = app.post(path, body.clone()).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            let sequences = body["n"].as_u64().unwrap_or(1);
            let turns = exported(&app, "unit=turn").await;
            assert_eq!(turns.len() as u64, before as u64 + sequences, "{path} {stream}");
            let turn = &turns[turns.len() - 1]["turns"][0];
            assert_eq!(turn["model"], MODEL);
            assert_eq!(turn["sampling"]["max_tokens"], 3, "{turn}");
        }
    }
}

#[tokio::test]
async fn a_response_that_names_an_earlier_one_continues_it_though_others_have_its_ids() {
    let app = capturing().says("Hello there");
    let ask = async |input: &str, previous: Option<&str>, id: &str| {
        let body = json!({ "input": input, "previous_response_id": previous, "request_id": id });
        app.post("/v1/responses", body).await.ok();
    };
    for id in ["resp_a", "resp_b"] {
        ask("Hi", None, id).await;
    }
    ask("And?", Some("resp_b"), "resp_c").await;
    let all = listed(&app, "").await;
    let counts: Vec<_> = all.iter().map(|one| one["turn_count"].as_u64().unwrap()).collect();
    assert_eq!(counts, [1, 2]);
    assert_eq!(all[1]["ambiguous"], false);
}

#[tokio::test]
async fn turns_with_the_same_ids_are_not_guessed_in_silence() {
    let app = capturing().says("Hello");
    let mut messages = vec![user("Hi")];
    chat(&app, &mut messages, &json!({})).await;
    chat(&app, &mut vec![user("Hi")], &json!({})).await;
    messages.push(user("And?"));
    chat(&app, &mut messages, &json!({})).await;
    let all = listed(&app, "").await;
    let told: Vec<_> = all.iter().map(|one| (one["turn_count"].as_u64().unwrap(), one["ambiguous"] == true)).collect();
    assert_eq!(told, [(2, true), (1, false)]);
}

#[tokio::test]
async fn rewards_and_tags_are_attached_and_found() {
    let app = capturing();
    let mut messages = vec![user("Hi")];
    chat(&app, &mut messages, &json!({})).await;
    chat(&app, &mut vec![user("Other")], &json!({})).await;
    let all = listed(&app, "").await;
    let id = all[1]["id"].as_str().unwrap();
    let post = async |what: &str, body: Value| app.post(&format!("{PATH}/{id}/{what}"), body).await;
    assert_eq!(post("reward", json!({ "reward": 0.5 })).await.ok()["reward"], 0.5);
    let noted = post("tags", json!({ "add": ["math", "step 3"], "remove": ["none"] })).await.ok();
    assert_eq!(noted["tags"], json!(["math", "step 3"]));
    assert_eq!(listed(&app, "tag=step%203").await[0]["id"], id);
    assert!(listed(&app, "tag=step").await.is_empty());
    assert_eq!(exported(&app, "tag=math").await[0]["sequence_reward"], 0.5);
    let tree = app.get(&format!("{PATH}/{id}")).await.ok();
    let turn = tree["turns"][0]["id"].as_str().unwrap();
    assert_eq!(post("reward", json!({ "reward": 2, "turn_id": turn })).await.ok()["turn_rewards"][turn], 2.0);
    assert_eq!(exported(&app, "tag=math").await[0]["sequence_reward"], 2.0);
    assert_eq!(post("reward", json!({ "reward": null })).await.ok()["reward"], Value::Null);
    for (what, body, param, status) in [
        ("reward", json!({}), "body.reward", 400),
        ("reward", json!({ "reward": "high" }), "body.reward", 400),
        ("reward", json!({ "reward": 1, "turn_id": "turn_x" }), "turn_id", 404),
        ("reward", json!({ "reward": 1, "rewards": 1 }), "body.rewards", 400),
        ("tags", json!({ "add": [""] }), "add", 400),
        ("tags", json!({ "add": (0..65).map(|tag| tag.to_string()).collect::<Vec<_>>() }), "add", 400),
        ("tags", json!({ "add": "a" }), "body.add", 400),
        ("tags", json!({ "add": ["a"], "remove": ["b", "a"] }), "remove", 400),
        ("tags", json!([["a"], []]), "body", 400),
        ("reward", json!([1]), "body", 400),
    ] {
        let answer = post(what, body.clone()).await;
        assert_eq!((answer.status, &answer.error()["param"]), (status, &json!(param)), "{body} {}", answer.text);
    }
    assert_eq!(app.post(&format!("{PATH}/traj_x/reward"), json!({ "reward": 1 })).await.status, 404);
}

#[tokio::test]
async fn lists_are_filtered_and_paged_and_no_filter_is_ignored() {
    let app = capturing();
    for number in 0..5 {
        chat(&app, &mut vec![user(&format!("Hi {number}"))], &json!({ "max_tokens": 1 })).await;
    }
    let page = app.get(&format!("{PATH}?limit=2")).await.ok();
    assert_eq!((page["data"].as_array().unwrap().len(), &page["has_more"]), (2, &json!(true)));
    let last = page["last_id"].as_str().unwrap();
    let rest = app.get(&format!("{PATH}?limit=3&after={last}")).await.ok();
    assert_eq!((rest["data"].as_array().unwrap().len(), &rest["has_more"]), (3, &json!(false)));
    assert_eq!(exported(&app, &format!("after={last}")).await.len(), 3);
    for (query, count) in [
        ("complete=false", 5),
        ("complete=true", 0),
        ("since=0", 5),
        ("until=0", 0),
        ("model=tiny", 5),
        ("model=other", 0),
        ("version=default", 5),
        ("version=1", 0),
    ] {
        assert_eq!(listed(&app, query).await.len(), count, "{query}");
    }
    for (query, param, status) in [
        ("sessions=a", "sessions", 400),
        ("limit=0", "limit", 400),
        ("since=today", "since", 400),
        ("complete=yes", "complete", 400),
        ("after=traj_x", "after", 404),
        ("format=trl", "format", 400),
    ] {
        let answer = app.get(&format!("{PATH}?{query}")).await;
        assert_eq!((answer.status, &answer.error()["param"]), (status, &json!(param)), "{query}");
    }
    let twice = app.get(&format!("{PATH}?tag=a&tag=b")).await;
    assert_eq!((twice.status, &twice.error()["param"]), (400, &json!("query")));
    assert!(twice.error()["message"].as_str().unwrap().contains("duplicate field `tag`"), "{}", twice.error());
    for (query, param) in [("format=csv", "format"), ("unit=token", "unit"), ("limit=3", "limit")] {
        let answer = app.get(&format!("{PATH}/export?{query}")).await;
        assert_eq!((answer.status, &answer.error()["param"]), (400, &json!(param)), "{query}");
    }
}

#[tokio::test]
async fn log_probs_are_computed_again_and_nothing_of_that_is_captured() {
    let app = capturing();
    let mut messages = vec![user("Hi")];
    let sampling =
        json!({ "max_tokens": 9, "temperature": 0.7, "top_k": 5, "repetition_penalty": 1.2, "ignore_eos": true });
    chat(&app, &mut messages, &sampling).await;
    messages.push(user("On"));
    chat(&app, &mut messages, &sampling).await;
    let before = exported(&app, "unit=turn").await;
    let lines = exported(&app, "unit=turn&rescore=true").await;
    assert_eq!(lines.len(), 2);
    for (line, before) in lines.iter().zip(&before) {
        let expected = json!({
            "weight_version": "default", "tokens": 9, "equal_tokens": 9, "token_mult_prob_error": 1.0,
            "mean_difference": 0.0, "median": 0.0, "p90": 0.0, "p99": 0.0, "greatest": 0.0,
        });
        assert_eq!(line["rescored"], expected);
        assert_eq!((&line["token_ids"], before.get("rescored")), (&before["token_ids"], None));
    }
    assert_eq!(listed(&app, "").await.len(), 1);
    for (query, param) in [("rescore=yes", "rescore"), ("rescore=true&format=trl", "rescore")] {
        let answer = app.get(&format!("{PATH}/export?{query}")).await;
        assert_eq!((answer.status, &answer.error()["param"]), (400, &json!(param)), "{query}");
    }
}

#[tokio::test]
async fn a_trajectory_of_another_key_is_like_one_that_never_was() {
    let app = TestApp::new().keys(&["one", "two"]).captures(in_memory(POLICY));
    let ask = async |key: &str, method: Method, path: &str, body: Option<Value>| -> Answer {
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
        let request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
        app.request(request.body(body.map_or_else(Body::empty, |body| Body::from(body.to_string()))).unwrap()).await
    };
    let chat = json!({ "messages": [user("Hi")], "max_tokens": 2, "session_id": "s" });
    for key in ["one", "two"] {
        assert_eq!(ask(key, Method::POST, "/v1/chat/completions", Some(chat.clone())).await.status, 200);
    }
    let id = ask("one", Method::GET, PATH, None).await.ok()["data"][0]["id"].as_str().unwrap().to_owned();
    assert_ne!(ask("two", Method::GET, PATH, None).await.ok()["data"][0]["id"], *id);
    assert_eq!(ask("two", Method::GET, &format!("{PATH}/export"), None).await.text.lines().count(), 1);
    let tree = ask("one", Method::GET, &format!("{PATH}/{id}"), None).await.ok();
    let turn = tree["turns"][0]["id"].as_str().unwrap();
    let everything = async |key: &str, id: &str| {
        let mut told = Vec::new();
        for (method, path, body) in [
            (Method::GET, format!("{PATH}/{id}"), None),
            (Method::GET, format!("{PATH}?after={id}"), None),
            (Method::GET, format!("{PATH}/export?after={id}"), None),
            (Method::GET, format!("{PATH}/{id}/turns/{turn}/tokens"), None),
            (Method::POST, format!("{PATH}/{id}/turns/{turn}/replay"), Some(json!({}))),
            (Method::POST, format!("{PATH}/{id}/turns/{turn}/rescore"), Some(json!({}))),
            (Method::POST, format!("{PATH}/{id}/reward"), Some(json!({ "reward": 1 }))),
            (Method::POST, format!("{PATH}/{id}/tags"), Some(json!({ "add": ["a"] }))),
            (Method::DELETE, format!("{PATH}/{id}"), None),
        ] {
            let answer = ask(key, method, &path, body).await;
            told.push((answer.status, answer.text.replace(id, "ID")));
        }
        told
    };
    let unknown = everything("two", "traj_x").await;
    assert!(unknown.iter().all(|(status, _)| *status == 404), "{unknown:?}");
    assert_eq!(everything("two", &id).await, unknown);
    assert!(everything("one", &id).await.iter().all(|(status, _)| *status == 200));
    assert_eq!(everything("one", &id).await, unknown, "it is deleted now, by its owner");
}

#[tokio::test]
async fn what_was_sampled_for_a_client_that_hung_up_is_captured() {
    let gate = Gate::shut();
    let app = capturing().gate(&gate);
    let body = json!({ "messages": [user("Hi")], "max_tokens": 50, "stream": true, "ignore_eos": true });
    let mut events = app.open("/v1/chat/completions", body).await;
    gate.pass(3);
    for _ in 0..3 {
        events.next().await;
    }
    drop(events);
    // The turn is kept by another thread, for which nobody waits.
    until("the turn is kept", async || !listed(&app, "").await.is_empty()).await;
    let lines = exported(&app, "").await;
    assert_eq!(lines[0]["turns"][0]["finish_reason"], "disconnect");
    let learnt = lines[0]["loss_mask"].as_array().unwrap().iter().filter(|mask| **mask == 1).count();
    assert!((1..=3).contains(&learnt), "{learnt}");
}

#[tokio::test]
async fn without_texts_only_ids_are_kept() {
    let app = TestApp::new().captures(in_memory(CapturePolicy { texts: false, ..POLICY }));
    let body = json!({ "stop": ["secret stop"] });
    chat(&app, &mut vec![user("secret message")], &body).await;
    let id = listed(&app, "").await[0]["id"].as_str().unwrap().to_owned();
    let tree = app.get(&format!("{PATH}/{id}")).await;
    assert!(!tree.text.contains("secret"), "{}", tree.text);
    let with = capturing();
    chat(&with, &mut vec![user("secret message")], &body).await;
    let id = listed(&with, "").await[0]["id"].as_str().unwrap().to_owned();
    let tree = with.get(&format!("{PATH}/{id}")).await;
    assert!(tree.text.contains("secret message") && tree.text.contains("secret stop"));
}

#[tokio::test]
async fn a_file_has_what_was_acknowledged_and_is_no_response_store() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("capture");
    let open = || DiskStore::open_for(Purpose::Trajectories, &path, u64::MAX).map(Arc::new);
    let store = open().unwrap();
    let app = TestApp::new().captures(capture(store, POLICY));
    let mut messages = vec![user("Hi")];
    let first = chat(&app, &mut messages, &json!({})).await;
    let before = exported(&app, "").await;
    drop(app);
    let app = TestApp::new().captures(capture(open().unwrap(), POLICY));
    assert_eq!(exported(&app, "").await, before);
    // The cache of the first process is gone, so the client brings the ids.
    messages[1]["prompt_token_ids"] = json!(first.prompt);
    messages[1]["generation_token_ids"] = json!(first.sampled);
    messages.push(user("More"));
    chat(&app, &mut messages, &json!({})).await;
    assert_eq!(listed(&app, "").await[0]["turn_count"], 2, "the second process joins what the first one captured");
    drop(app);
    let refused = DiskStore::open(&path, 1 << 20).err().unwrap().to_string();
    assert_eq!(refused, format!("{} is not a response store", path.display()));
}

#[tokio::test]
async fn every_trainers_shape_says_the_same() {
    let app = capturing();
    let mut messages = vec![user("Hi")];
    let first = chat(&app, &mut messages, &json!({ "temperature": 0.7 })).await;
    messages.push(user("More"));
    let second = chat(&app, &mut messages, &json!({ "temperature": 0.5 })).await;
    let id = listed(&app, "").await[0]["id"].as_str().unwrap().to_owned();
    app.post(&format!("{PATH}/{id}/reward"), json!({ "reward": 1 })).await.ok();
    let line = async |format: &str| exported(&app, &format!("format={format}&allow_raw=true")).await.remove(0);
    let own = line("jsonl").await;
    let (whole, start) = (second.whole(), first.prompt.len());
    let learnt: Vec<u64> = serde_json::from_value(own["loss_mask"].clone()).unwrap();
    let logprobs: Vec<f64> =
        own["logprobs"].as_array().unwrap().iter().map(|one| one.as_f64().unwrap_or(0.0)).collect();
    let trl = line("trl").await;
    assert_eq!((ids(&trl["prompt_ids"]), ids(&trl["completion_ids"])), (first.prompt.clone(), whole[start..].to_vec()));
    assert_eq!((&trl["env_mask"], &trl["logprobs"]), (&json!(learnt[start..]), &json!(logprobs[start..])));
    let verl = line("verl").await;
    assert_eq!((&verl["prompt_ids"], &verl["response_ids"]), (&trl["prompt_ids"], &trl["completion_ids"]));
    assert_eq!((&verl["response_mask"], &verl["response_logprobs"]), (&trl["env_mask"], &trl["logprobs"]));
    assert_eq!(verl["reward_score"], 1.0);
    let prime = line("prime_rl").await;
    assert_eq!((ids(&prime["token_ids"]), &prime["logprobs"]), (whole.clone(), &json!(logprobs)));
    let end = first.whole().len();
    assert_eq!((&prime["temperatures"][end - 1], &prime["temperatures"][whole.len() - 1]), (&json!(0.7), &json!(0.5)));
    let mask: Vec<bool> = serde_json::from_value(prime["mask"].clone()).unwrap();
    assert_eq!(mask, learnt.iter().map(|learnt| *learnt == 1).collect::<Vec<_>>());
    let log = line("nemo_rl").await["message_log"].as_array().unwrap().clone();
    let roles: Vec<_> = log.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
    assert_eq!(log.iter().flat_map(|message| ids(&message["token_ids"])).collect::<Vec<_>>(), whole);
    assert_eq!(log[1]["generation_logprobs"], json!(logprobs[start..end]));
    let lightning = line("agent_lightning").await;
    let triplets = lightning["triplets"].as_array().unwrap();
    for (triplet, shown) in triplets.iter().zip([&first, &second]) {
        assert_eq!(ids(&triplet["prompt"]["token_ids"]), shown.prompt);
        assert_eq!(ids(&triplet["response"]["token_ids"]), shown.sampled);
    }
    let rewards: Vec<_> = triplets.iter().map(|triplet| triplet["reward"].clone()).collect();
    assert_eq!((rewards, &lightning["final_reward"]), (vec![json!(null), json!(1.0)], &json!(1.0)));
    assert!(whole.iter().all(|id| (*id as usize) < VOCAB_SIZE));
}
