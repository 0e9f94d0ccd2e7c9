//! Two clients with the same messages: what one was answered, the other is told nothing of, unless key and salt are the
//! same.

use std::collections::HashMap;

use axum::http::header;
use serde_json::{Value, json};
use tito::{TokenId, parser::ToolParser, turn::ToolPolicy};

use super::ids;
use crate::it::app::{Answer, IM_END, TestApp, posted};

const CHAT: &str = "/v1/chat/completions";

/// Who asks.
#[derive(Debug, Clone, Copy)]
struct Client {
    key: Option<&'static str>,
    salt: Option<&'static str>,
}

const fn client(key: Option<&'static str>, salt: Option<&'static str>) -> Client {
    Client { key, salt }
}

impl Client {
    async fn post(self, app: &TestApp, path: &str, mut body: Value) -> Answer {
        if let Some(salt) = self.salt {
            body["cache_salt"] = json!(salt);
        }
        let mut request = posted(path, body.to_string());
        if let Some(key) = self.key {
            request.headers_mut().insert(header::AUTHORIZATION, format!("Bearer {key}").parse().unwrap());
        }
        app.request(request).await
    }

    async fn ask(self, app: &TestApp, body: Value) -> Value {
        self.post(app, CHAT, body).await.ok()
    }
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

/// "hello" letter by letter, which is not how the tokenizer writes it.
fn spelt(app: &TestApp) -> Vec<TokenId> {
    "hello".chars().flat_map(|letter| app.ids(&letter.to_string())).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keys {
    None,
    Separate,
    Shared,
}

/// Answers "hello" letter by letter, then "hello" as the tokenizer writes it, for ever.
fn app(keys: Keys) -> TestApp {
    let app = match keys {
        Keys::None => TestApp::new(),
        Keys::Separate => TestApp::new().keys(&["one", "two"]),
        Keys::Shared => TestApp::new()
            .keys(&["one", "two"])
            .server(|server| server.api_keys = std::mem::take(&mut server.api_keys).shared(true)),
    };
    let script = [spelt(&app), vec![IM_END]].concat();
    app.script(script).says("hello")
}

/// Who was answered, who asks next, and whether the latter is given what the former was.
fn pairs(keys: Keys) -> Vec<(Client, Client, bool)> {
    let names: &[Option<&'static str>] = if keys == Keys::None { &[None] } else { &[Some("one"), Some("two")] };
    let mut pairs = Vec::new();
    for second in names {
        for salts in
            [(None, None), (Some("a"), Some("a")), (None, Some("a")), (Some("a"), None), (Some("a"), Some("b"))]
        {
            let shares = salts.0 == salts.1 && (keys != Keys::Separate || *second == names[0]);
            pairs.push((client(names[0], salts.0), client(*second, salts.1), shares));
        }
    }
    pairs
}

fn every_pair() -> impl Iterator<Item = (Keys, (Client, Client, bool))> {
    let every = [Keys::None, Keys::Separate, Keys::Shared].into_iter();
    every.flat_map(|keys| pairs(keys).into_iter().map(move |pair| (keys, pair)))
}

/// Those that the pairs have.
const SALTS: [Option<&str>; 3] = [None, Some("a"), Some("b")];

/// What a body of every dialect, and of every route that makes ids of a conversation, says of its prompt: nothing but the
/// ids or their number, the verdict, and what was sampled.
fn second_turns(session: Option<&str>) -> Vec<(&'static str, Value)> {
    let turn = json!([user("hi"), assistant("hello"), user("more")]);
    let chat = json!({"messages": turn, "session_id": session, "return_token_ids": true});
    let tokenize = json!({"messages": turn, "session_id": session, "return_token_continuity": true});
    let messages = json!({"model": "tiny", "messages": turn, "session_id": session, "max_tokens": 4});
    let counted = json!({"model": "tiny", "messages": turn, "session_id": session});
    let responses = json!({"input": turn, "session_id": session, "include": ["token_ids"], "store": false});
    let mut all = vec![
        (CHAT, chat.clone()),
        ("/v1/chat/completions/render", chat),
        ("/tokenize", tokenize.clone()),
        ("/v1/tokenize", tokenize),
        ("/v1/messages", messages),
        ("/v1/messages/count_tokens", counted),
        ("/v1/responses", responses),
    ];
    if session.is_none() {
        all.push(("/v1/chat/completions/batch", json!({"messages": [turn]})));
        all.push(("/invocations", json!({"messages": turn})));
    }
    all
}

/// An answer without what is other in each.
fn constant(mut answer: Value) -> Value {
    for name in ["id", "created", "created_at", "request_id"] {
        if let Some(field) = answer.get_mut(name) {
            *field = Value::Null;
        }
    }
    for item in answer.get_mut("output").and_then(Value::as_array_mut).into_iter().flatten() {
        item["id"] = Value::Null;
    }
    answer
}

/// The verdict in short, if the route has one, and the whole answer.
async fn told(app: &TestApp, client: Client, path: &str, body: Value) -> (Option<String>, Value) {
    let answer = client.post(app, path, body).await;
    let verdict = answer.headers.get("x-token-continuity").map(|verdict| verdict.to_str().unwrap().to_owned());
    (verdict, constant(answer.ok()))
}

#[tokio::test]
async fn an_answer_is_given_only_to_the_same_key_and_salt() {
    for (session, streams) in [(None, false), (None, true), (Some("s"), false), (Some("s"), true)] {
        // What is told where nobody was before.
        let mut unknown = HashMap::new();
        for salt in SALTS {
            let untouched = TestApp::new().says("hello");
            for (path, body) in second_turns(session) {
                unknown.insert((salt, path), told(&untouched, client(None, salt), path, body).await);
            }
        }
        for (keys, (first, second, shares)) in every_pair() {
            let app = app(keys);
            let body = json!({"messages": [user("hi")], "session_id": session, "stream": streams});
            assert_eq!(first.post(&app, CHAT, body).await.status, 200);
            for (path, body) in second_turns(session) {
                let (verdict, answer) = told(&app, second, path, body).await;
                let case = format!("{keys:?} {first:?} {second:?} {session:?} {path}: {verdict:?} {answer}");
                let unknown = &unknown[&(second.salt, path)];
                if shares {
                    assert!(verdict.is_none_or(|text| text.starts_with("cache; outcome=exact")), "{case}");
                    assert_ne!(answer, unknown.1, "{case}");
                } else {
                    assert_eq!((&verdict, &answer), (&unknown.0, &unknown.1), "{case}");
                }
            }
        }
    }
}

/// A stranger's siblings, answered with other ids, make nobody's turn ambiguous.
#[tokio::test]
async fn only_ones_own_siblings_make_a_turn_ambiguous() {
    for (keys, first, second) in [
        (Keys::Separate, client(Some("one"), None), client(Some("two"), None)),
        (Keys::Separate, client(Some("one"), Some("a")), client(Some("one"), Some("b"))),
        (Keys::None, client(None, Some("a")), client(None, None)),
    ] {
        let app = app(keys);
        let mut known = Vec::new();
        for client in [first, second] {
            let answer = client.ask(&app, json!({"messages": [user("hi")], "return_token_ids": true})).await;
            known.push([ids(&answer["prompt_token_ids"]), ids(&answer["choices"][0]["token_ids"])].concat());
        }
        assert_ne!(known[0], known[1]);
        let turn = json!({"messages": [user("hi"), assistant("hello"), user("more")], "return_token_ids": true});
        for (client, known) in [first, second].into_iter().zip(&known) {
            let answer = client.ask(&app, turn.clone()).await;
            assert_eq!(answer["token_continuity"]["outcome"], "exact", "{client:?}");
            assert!(ids(&answer["prompt_token_ids"]).starts_with(known), "{client:?}");
        }
        // One's own are still told from each other.
        first.ask(&app, json!({"messages": [user("hi")]})).await;
        let answer = first.ask(&app, turn.clone()).await;
        assert_eq!(answer["token_continuity"]["reason"], "ambiguous");
        assert_eq!(second.ask(&app, turn).await["token_continuity"]["outcome"], "exact");
    }
}

/// Reasons, too, would tell that there was a conversation: an edit is only seen by those whose session it is.
#[tokio::test]
async fn a_session_of_another_key_or_salt_is_unknown() {
    let owner = client(Some("one"), Some("a"));
    let edited = json!({"messages": [user("hi!"), assistant("hello"), user("more")], "session_id": "s",
        "return_token_ids": true});
    let with_tools = json!({"messages": [user("hi"), assistant("hello"), user("more")], "session_id": "s",
        "chat_template_kwargs": {"a": 1}, "return_token_ids": true});
    for (body, reason) in [(edited, "history_edited"), (with_tools, "context_changed")] {
        for (client, reason) in [
            (client(Some("two"), Some("a")), "unknown"),
            (client(Some("one"), None), "unknown"),
            (client(Some("one"), Some("b")), "unknown"),
            (owner, reason),
        ] {
            let app = app(Keys::Separate);
            owner.ask(&app, json!({"messages": [user("hi")], "session_id": "s"})).await;
            let answer = client.ask(&app, body.clone()).await;
            assert_eq!(answer["token_continuity"]["reason"], reason, "{client:?}");
        }
    }
}

#[tokio::test]
async fn the_id_of_a_call_opens_nothing_to_another_key() {
    let text = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 2}}\n</tool_call>";
    let app = TestApp::new().reads_tool_calls().keys(&["one", "two"]);
    let spelt: Vec<TokenId> = text.chars().flat_map(|letter| app.ids(&letter.to_string())).collect();
    let app = app.script([spelt, vec![IM_END]].concat()).says(text);
    let [one, two] = ["one", "two"].map(|key| client(Some(key), None));
    let body = |messages: Value| {
        let tools = json!([{"type": "function", "function": {"name": "f"}}]);
        json!({"messages": messages, "tools": tools, "return_token_ids": true})
    };
    let answer = one.ask(&app, body(json!([user("hi")]))).await;
    let call = &answer["choices"][0]["message"]["tool_calls"][0];
    let turn = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    let messages = json!([user("hi"), turn, {"role": "tool", "tool_call_id": call["id"], "content": "3"}]);
    for session in [None, Some("s")] {
        let mut asked = body(messages.clone());
        asked["session_id"] = json!(session);
        let stranger = two.ask(&app, asked.clone()).await["token_continuity"].clone();
        assert_eq!((&stranger["outcome"], &stranger["reason"]), (&json!("retokenized"), &json!("unknown")));
        assert_eq!(one.ask(&app, asked).await["token_continuity"]["matched_by"], "tool_call");
    }
}

/// Kimi K2 writes the ids of its calls itself, and the first one of every conversation alike. Two rollouts of a group make the same call
/// in other ids; neither gets those of the other.
#[tokio::test]
async fn a_call_whose_id_the_model_wrote_opens_nothing_to_another_session() {
    let text = "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": 2}<|tool_call_end|>\
                <|tool_calls_section_end|>";
    let parser = Some(ToolParser::named("kimi_k2").unwrap());
    let app = TestApp::new().tools(ToolPolicy { parser, auto: true, reasoning: None, ..ToolPolicy::default() });
    let spelt: Vec<TokenId> = text.chars().flat_map(|letter| app.ids(&letter.to_string())).collect();
    let app = app.script([spelt, vec![IM_END]].concat());
    let anybody = client(None, None);
    let body = |messages: Value, session: Option<&str>| {
        let tools = json!([{"type": "function", "function": {"name": "f"}}]);
        json!({"messages": messages, "tools": tools, "return_token_ids": true, "session_id": session})
    };
    let answer = anybody.ask(&app, body(json!([user("hi")]), Some("a"))).await;
    let call = &answer["choices"][0]["message"]["tool_calls"][0];
    assert_eq!(call["id"], "functions.f:0");
    let turn = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    let messages = json!([user("hi"), turn, {"role": "tool", "tool_call_id": call["id"], "content": "3"}]);
    for session in [Some("b"), None] {
        let other = anybody.ask(&app, body(messages.clone(), session)).await["token_continuity"].clone();
        assert_eq!((&other["outcome"], &other["reason"]), (&json!("retokenized"), &json!("unknown")), "{session:?}");
    }
    let own = anybody.ask(&app, body(messages, Some("a"))).await["token_continuity"].clone();
    assert_eq!((&own["outcome"], &own["matched_by"]), (&json!("exact"), &json!("session")));
}

/// Who brings ids that another client was answered learns nothing of where they come from.
#[tokio::test]
async fn ids_that_are_brought_are_strange_to_whom_they_were_not_given() {
    let app = app(Keys::Separate);
    let owner = client(Some("one"), None);
    let first = owner.ask(&app, json!({"messages": [user("hi")], "return_token_ids": true})).await;
    let choice = &first["choices"][0];
    let brought = json!({"role": "assistant", "content": "hello", "prompt_token_ids": first["prompt_token_ids"],
        "generation_token_ids": choice["token_ids"]});
    let edited = json!({"messages": [user("hi!"), brought, user("more")], "return_token_ids": true});
    for (client, warnings) in [
        (client(Some("two"), None), json!([])),
        (client(Some("one"), Some("a")), json!([])),
        (owner, json!(["history_edited"])),
    ] {
        let answer = client.ask(&app, edited.clone()).await;
        assert_eq!(answer["token_continuity"]["warnings"], warnings, "{client:?}");
    }
}

/// The number of cached tokens and the time to the first one would tell who shares a prefix with whom.
#[tokio::test]
async fn blocks_of_the_kv_cache_are_shared_by_the_same_key_and_salt_only() {
    let bodies = [
        (CHAT, json!({"messages": [user("hi")]})),
        ("/v1/chat/completions/batch", json!({"messages": [[user("hi")]]})),
        ("/v1/messages", json!({"model": "tiny", "messages": [user("hi")], "max_tokens": 4})),
        ("/v1/responses", json!({"input": "hi"})),
        ("/v1/completions", json!({"prompt": "hi"})),
        ("/inference/v1/generate", json!({"token_ids": [5], "sampling_params": {}})),
        ("/invocations", json!({"prompt": "hi"})),
    ];
    for keys in [Keys::None, Keys::Separate, Keys::Shared] {
        let app = app(keys);
        for (first, second, shares) in pairs(keys) {
            let mut salts = Vec::new();
            for client in [first, second] {
                for (path, body) in &bodies {
                    assert_eq!(client.post(&app, path, body.clone()).await.status, 200, "{path}");
                    salts.push(app.engine().latest_cache_salt());
                }
            }
            let (of_first, of_second) = salts.split_at(bodies.len());
            assert!([of_first, of_second].iter().all(|salts| salts.iter().all(|salt| *salt == salts[0])), "{salts:?}");
            assert_eq!(of_first[0] == of_second[0], shares, "{keys:?} {first:?} {second:?}");
            let is_plain = of_second[0].as_deref() == second.salt;
            assert_eq!(is_plain, keys != Keys::Separate, "{keys:?} {second:?}");
        }
    }
}

/// Anthropic's clients have a header of their own for the key.
#[tokio::test]
async fn a_key_is_the_same_client_in_whichever_header() {
    let app = app(Keys::Separate);
    let body = json!({"model": "tiny", "messages": [user("hi")], "max_tokens": 9});
    let mut request = posted("/v1/messages", body.to_string());
    request.headers_mut().insert("x-api-key", "one".parse().unwrap());
    app.request(request).await.ok();
    let turn = json!({"messages": [user("hi"), assistant("hello"), user("more")], "return_token_ids": true});
    for (key, source) in [("two", "none"), ("one", "cache")] {
        let answer = client(Some(key), None).ask(&app, turn.clone()).await;
        assert_eq!(answer["token_continuity"]["source"], source, "{key}");
    }
}

#[tokio::test]
async fn a_salt_that_chat_refuses_is_refused_for_the_ids_of_a_chat() {
    for path in [CHAT, "/tokenize"] {
        let answer = client(None, Some("a@b")).post(&app(Keys::None), path, json!({"messages": [user("hi")]})).await;
        assert_eq!((answer.status, &answer.error()["param"]), (400, &json!("cache_salt")), "{path}");
    }
}
