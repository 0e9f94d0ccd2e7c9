//! Several servers that share what they remember by a store: exact wherever the next turn goes, or a reason with a name.

mod redis;

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tito::{
    TokenId,
    continuity::Namespace,
    continuity_store::{ContinuityStore, StoreAddress, StoreSettings},
};

use self::redis::{Redis, Wire};
use crate::it::{
    app::{IM_END, TestApp},
    patience::{PATIENCE, until},
};

const CHAT: &str = "/v1/chat/completions";

async fn store(url: &str, timeout: Duration) -> Arc<ContinuityStore> {
    let address = StoreAddress::parse(url).unwrap();
    Arc::new(ContinuityStore::connect(StoreSettings { address, timeout, ttl: Duration::from_hours(1) }).await)
}

fn namespace() -> Namespace {
    Namespace::of([&b"a model"[..]])
}

/// A server of its own memory.
async fn server(url: &str, app: TestApp) -> TestApp {
    app.shares(store(url, PATIENCE).await, namespace())
}

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

/// What a client has of a turn that keeps texts only.
struct Turn {
    messages: Vec<Value>,
    prompt: Vec<TokenId>,
    known: Vec<TokenId>,
    source: String,
    outcome: String,
    reason: Option<String>,
}

impl Turn {
    fn verdict(&self) -> (&str, &str, Option<&str>) {
        (&self.source, &self.outcome, self.reason.as_deref())
    }

    fn continues(&self, earlier: &Self) -> bool {
        self.prompt.starts_with(&earlier.known)
    }
}

async fn ask_with(app: &TestApp, messages: &[Value], text: &str, fields: Value) -> Turn {
    let messages = [messages, &[user(text)]].concat();
    let mut body = json!({ "messages": messages, "return_token_ids": true, "max_tokens": 12 });
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let answer = app.post(CHAT, body).await.ok();
    let choice = &answer["choices"][0];
    let prompt = super::continuity::ids(&answer["prompt_token_ids"]);
    let known = [prompt.clone(), super::continuity::ids(&choice["token_ids"])].concat();
    let said = |field: &str| answer["token_continuity"][field].as_str().map(str::to_owned);
    let message = json!({ "role": "assistant", "content": choice["message"]["content"] });
    let messages = [messages, vec![message]].concat();
    let (source, outcome) = (said("source").unwrap(), said("outcome").unwrap());
    Turn { messages, prompt, known, source, outcome, reason: said("reason") }
}

async fn ask(app: &TestApp, messages: &[Value], text: &str) -> Turn {
    ask_with(app, messages, text, json!({})).await
}

/// "hello" letter by letter, which is not how the tokenizer writes it.
fn spelt(app: &TestApp) -> Vec<TokenId> {
    "hello".chars().flat_map(|letter| app.ids(&letter.to_string())).collect()
}

/// A server that answers "hello" letter by letter.
async fn spelling(url: &str) -> TestApp {
    let app = TestApp::new();
    let script = [spelt(&app), vec![IM_END]].concat();
    server(url, app.script(script)).await
}

#[tokio::test]
async fn a_conversation_goes_on_from_its_ids_wherever_its_next_turn_goes() {
    let Some(redis) = Redis::start().await else { return };
    let servers = [spelling(&redis.url()).await, spelling(&redis.url()).await, spelling(&redis.url()).await];
    for fields in [json!({}), json!({ "session_id": "s" })] {
        let mut last = ask_with(&servers[0], &[], "What?", fields.clone()).await;
        assert_eq!(last.verdict(), ("none", "fresh", None));
        for (turn, expected) in [(1, "store"), (1, "cache"), (2, "store"), (0, "store"), (2, "store")] {
            let next = ask_with(&servers[turn], &last.messages, "And?", fields.clone()).await;
            assert_eq!(next.verdict(), (expected, "exact", None), "{fields} {turn}");
            assert!(next.continues(&last), "{fields} {turn}");
            last = next;
        }
    }
}

#[tokio::test]
async fn a_streamed_turn_is_there_before_its_end() {
    let Some(redis) = Redis::start().await else { return };
    let (here, there) = (spelling(&redis.url()).await, spelling(&redis.url()).await);
    let mut stream = here.open(CHAT, json!({ "messages": [user("What?")], "stream": true, "max_tokens": 12 })).await;
    while let Some(event) = stream.next().await {
        if event["choices"][0]["finish_reason"].is_string() {
            break;
        }
    }
    let messages = [user("What?"), json!({ "role": "assistant", "content": "hello" })];
    assert_eq!(ask(&there, &messages, "And?").await.verdict(), ("store", "exact", None));
}

#[tokio::test]
async fn servers_of_other_models_and_clients_of_other_salts_have_conversations_of_their_own() {
    let Some(redis) = Redis::start().await else { return };
    let here = spelling(&redis.url()).await;
    let first = ask(&here, &[], "What?").await;
    let other = TestApp::new().says("hello");
    let other = other.shares(store(&redis.url(), PATIENCE).await, Namespace::of([&b"another model"[..]]));
    assert_eq!(ask(&other, &first.messages, "And?").await.verdict(), ("none", "retokenized", Some("unknown")));
    let there = spelling(&redis.url()).await;
    for fields in [json!({ "cache_salt": "salt" }), json!({ "session_id": "another" })] {
        let next = ask_with(&there, &first.messages, "And?", fields).await;
        assert_eq!(next.verdict(), ("none", "retokenized", Some("unknown")));
    }
    assert_eq!(ask(&there, &first.messages, "And?").await.verdict(), ("store", "exact", None));
}

#[tokio::test]
async fn the_same_text_with_other_ids_on_two_servers_is_ambiguous_on_both() {
    let Some(redis) = Redis::start().await else { return };
    let here = spelling(&redis.url()).await;
    let there = server(&redis.url(), TestApp::new().says("hello")).await;
    let (first, second) = (ask(&here, &[], "What?").await, ask(&there, &[], "What?").await);
    assert_eq!(first.messages, second.messages);
    assert_ne!(first.known, second.known);
    let third = spelling(&redis.url()).await;
    for app in [&here, &there, &third] {
        let next = ask(app, &first.messages, "And?").await;
        assert_eq!(next.verdict(), ("none", "retokenized", Some("ambiguous")));
    }
}

#[tokio::test]
async fn a_server_without_its_store_goes_on_by_its_own_memory() {
    let Some(mut redis) = Redis::start().await else { return };
    let (here, there) = (spelling(&redis.url()).await, spelling(&redis.url()).await);
    let first = ask(&here, &[], "What?").await;
    redis.kill();
    let next = ask(&here, &first.messages, "And?").await;
    assert_eq!((next.verdict(), next.continues(&first)), (("cache", "exact", None), true));
    for _ in 0..2 {
        let elsewhere = ask(&there, &first.messages, "And?").await;
        assert_eq!(elsewhere.verdict(), ("none", "retokenized", Some("store_unavailable")));
    }
    // A server that starts without it serves too.
    let late = spelling(&redis.url()).await;
    let elsewhere = ask(&late, &first.messages, "And?").await;
    assert_eq!(elsewhere.verdict(), ("none", "retokenized", Some("store_unavailable")));
}

/// The store takes everything and never answers: a turn that waited for it would never end.
#[tokio::test]
async fn a_store_that_does_not_answer_holds_one_turn_for_its_time_and_no_other() {
    let Some(redis) = Redis::start().await else { return };
    let wire = Wire::to(&redis);
    let here = spelling(&redis.url()).await;
    let there = TestApp::new().says("hello").shares(store(&wire.url(), Duration::from_secs(1)).await, namespace());
    let (before, first) = (ask(&here, &[], "Before?").await, ask(&here, &[], "What?").await);
    // On a busy machine, it may be connected only later, and lost again.
    let connected = async || ask(&there, &before.messages, "And?").await.verdict() == ("store", "exact", None);
    until("the store is connected", connected).await;
    wire.cut();
    let cut_off = ask(&there, &first.messages, "And?").await;
    assert_eq!(cut_off.verdict(), ("none", "retokenized", Some("store_timeout")));
    let cut_off = ask(&there, &first.messages, "And so?").await;
    assert_eq!(cut_off.verdict(), ("none", "retokenized", Some("store_unavailable")));
    wire.mend();
    let again = async || ask(&there, &first.messages, "And now?").await.verdict() == ("store", "exact", None);
    until("the store is connected again", again).await;
}

#[tokio::test]
async fn a_store_that_is_full_loses_turns_and_no_answer() {
    let Some(redis) = Redis::start().await else { return };
    let (here, there) = (spelling(&redis.url()).await, spelling(&redis.url()).await);
    let before = ask(&here, &[], "Before?").await;
    redis.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await.unwrap();
    redis.ask(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    let first = ask(&here, &[], "What?").await;
    assert_eq!(ask(&there, &first.messages, "And?").await.verdict(), ("none", "retokenized", Some("unknown")));
    // What was there before is read, and the own memory has the rest.
    assert_eq!(ask(&there, &before.messages, "And?").await.verdict(), ("store", "exact", None));
    assert_eq!(ask(&here, &first.messages, "And?").await.verdict(), ("cache", "exact", None));
}

#[tokio::test]
async fn what_strangers_write_is_refused_by_name_and_never_used() {
    let Some(redis) = Redis::start().await else { return };
    let here = spelling(&redis.url()).await;
    let first = ask(&here, &[], "What?").await;
    let honest = redis.entries().await;
    let is_answer = |value: &[u8]| value.len() == 32;
    // An answer of another length, also of one that takes memory; a record that is none, or was cut.
    for (answers, value) in [
        (true, b"no fingerprint".to_vec()),
        (true, vec![0; 1 << 24]),
        (false, vec![7; 100]),
        (false, honest.iter().find(|(_, value)| !is_answer(value)).unwrap().1[..60].to_vec()),
        (false, vec![0; 1 << 24]),
    ] {
        for (key, kept) in &honest {
            redis.set(key, if is_answer(kept) == answers { &value } else { kept }).await;
        }
        let there = spelling(&redis.url()).await;
        let next = ask(&there, &first.messages, "And?").await;
        assert_eq!(next.verdict(), ("none", "retokenized", Some("store_refused")), "{answers} {}", value.len());
    }
    // Nothing is kept under a fingerprint that leads nowhere.
    for (key, kept) in &honest {
        redis.set(key, if is_answer(kept) { &[7; 32] } else { kept }).await;
    }
    let there = spelling(&redis.url()).await;
    let next = ask(&there, &first.messages, "And?").await;
    assert_eq!(next.verdict(), ("none", "retokenized", Some("forgotten")));
}

/// The answer of one conversation leads to the record of another: a whole record, with the fingerprint that it should have.
#[tokio::test]
async fn a_record_of_another_conversation_is_no_record_of_this_one() {
    let Some(redis) = Redis::start().await else { return };
    let here = server(&redis.url(), TestApp::new().says("hello").says("world")).await;
    let first = ask(&here, &[], "What?").await;
    let key = redis.entries().await.into_iter().find(|(_, value)| value.len() == 32).unwrap().0;
    let second = ask(&here, &[], "Which?").await;
    assert_ne!(first.messages[1], second.messages[1]);
    let entries = redis.entries().await;
    let foreign = entries.iter().find(|(other, value)| *other != key && value.len() == 32).unwrap().1.clone();
    redis.set(&key, &foreign).await;
    let there = spelling(&redis.url()).await;
    let next = ask(&there, &first.messages, "And?").await;
    assert_eq!(next.verdict(), ("none", "retokenized", Some("store_refused")));
    assert!(!next.prompt.starts_with(&second.known));
}
