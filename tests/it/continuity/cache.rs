//! Conversations of clients that send no ids back: the continuity cache.

use std::time::Duration;

use axum::http::{Request, header};
use serde_json::{Value, json};
use tito::{TokenId, continuity::MemoryBounds};

use super::ids;
use crate::it::app::{ENDOFTEXT, IM_END, TestApp};

const CHAT: &str = "/v1/chat/completions";

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

/// An answer as a client library reads it: the message without unknown fields, the ids and the verdict.
struct Turn {
    message: Value,
    prompt: Vec<TokenId>,
    known: Vec<TokenId>,
    verdict: Value,
}

async fn ask_with(app: &TestApp, messages: &[Value], fields: Value) -> Turn {
    let mut body = json!({"messages": messages, "return_token_ids": true});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let answer = app.post(CHAT, body).await;
    let verdict = answer.ok()["token_continuity"].clone();
    let header = answer.headers["x-token-continuity"].to_str().unwrap();
    let source = verdict["source"].as_str().unwrap();
    assert!(header.starts_with(&format!("{source}; outcome=")), "{header}");
    let answer = answer.ok();
    let prompt = ids(&answer["prompt_token_ids"]);
    let known = [prompt.clone(), ids(&answer["choices"][0]["token_ids"])].concat();
    Turn { message: assistant(answer["choices"][0]["message"]["content"].as_str().unwrap()), prompt, known, verdict }
}

async fn ask(app: &TestApp, messages: &[Value]) -> Turn {
    ask_with(app, messages, json!({})).await
}

/// "hello" letter by letter, which is not how the tokenizer writes it.
fn spelt(app: &TestApp) -> Vec<TokenId> {
    "hello".chars().flat_map(|letter| app.ids(&letter.to_string())).collect()
}

/// Answers "hello" letter by letter, then "hello" as the tokenizer writes it, for ever.
fn app() -> TestApp {
    let app = TestApp::new();
    let script = [spelt(&app), vec![IM_END]].concat();
    assert_ne!(spelt(&app), app.ids("hello"));
    app.script(script).says("hello")
}

#[tokio::test]
async fn a_client_that_sends_no_ids_continues_from_exactly_its_own() {
    let app = app();
    let first = ask(&app, &[user("hi")]).await;
    assert_eq!(first.verdict["outcome"], "fresh");
    let messages = [user("hi"), first.message, user("more")];
    let tokenized = app.post("/tokenize", json!({"messages": messages})).await.ok();
    let second = ask(&app, &messages).await;
    assert!(second.prompt.starts_with(&first.known), "{:?} {:?}", second.prompt, first.known);
    assert_eq!(ids(&tokenized["tokens"]), second.prompt);
    assert_eq!(tokenized["token_continuity"], second.verdict);
    assert_eq!(
        second.verdict,
        json!({"source": "cache", "outcome": "exact", "reason": null, "anchor": 1, "reused_ids": first.known.len(),
            "new_ids": second.prompt.len() - first.known.len(), "proof": "anchored_tail", "matched_by": "messages",
            "weight_version": "default", "warnings": [], "drift": null})
    );
    let third = ask(&app, &[messages.to_vec(), vec![second.message, user("and more")]].concat()).await;
    assert!(third.prompt.starts_with(&second.known));
    assert_eq!(third.verdict["anchor"], 3);
}

#[tokio::test]
async fn a_streamed_answer_is_remembered_before_its_end_is_sent() {
    let app = app();
    let mut events = app.open(CHAT, json!({"messages": [user("hi")], "stream": true, "return_token_ids": true})).await;
    let mut known: Vec<TokenId> = Vec::new();
    while let Some(event) = events.next().await {
        if let Some(prompt) = event.get("prompt_token_ids") {
            known.extend(ids(prompt));
        }
        known.extend(event["choices"][0].get("token_ids").map(ids).unwrap_or_default());
        if event["choices"][0]["finish_reason"] == "stop" {
            let next = ask(&app, &[user("hi"), assistant("hello"), user("more")]).await;
            assert!(next.prompt.starts_with(&known), "{known:?} {:?}", next.prompt);
        }
    }
}

#[tokio::test]
async fn without_the_cache_the_verdict_says_that_ids_were_not_kept() {
    let app = app().continuity(|policy| policy.memory = None);
    let first = ask(&app, &[user("hi")]).await;
    let second =
        ask_with(&app, &[user("hi"), first.message, user("more")], json!({"return_token_continuity": true})).await;
    assert!(!second.prompt.starts_with(&first.known));
    assert_eq!(second.verdict["outcome"], "retokenized");
    assert_eq!(second.verdict["reason"], "cache_off");
    assert_eq!(second.verdict["drift"], json!({"differs": false, "position": null}));
}

#[tokio::test]
async fn drift_says_where_encoding_again_would_have_changed_an_id() {
    let app = app();
    let first = ask(&app, &[user("hi")]).await;
    let messages = [user("hi"), first.message, user("more")];
    let second = ask_with(&app, &messages, json!({"return_token_continuity": true})).await;
    let place = first.known.len() - spelt(&app).len() - 1;
    assert_eq!(second.verdict["drift"], json!({"differs": true, "position": place}));
    let all = app.continuity(|policy| policy.check_drift = true);
    let fresh = ask(&all, &[user("hi")]).await;
    assert_eq!(fresh.verdict["drift"], json!({"differs": false, "position": null}));
}

#[tokio::test]
async fn an_edit_anywhere_is_seen() {
    let app = app();
    let tool = |name: &str| json!([{"type": "function", "function": {"name": name}}]);
    let fields = json!({"tools": tool("f"), "tool_choice": "none", "chat_template_kwargs": {"a": 1}});
    let system = json!({"role": "system", "content": "be kind"});
    let first = ask_with(&app, &[system.clone(), user("hi")], fields.clone()).await;
    let messages = [system, user("hi"), first.message.clone(), user("more")];
    let ask_edited = async |messages: &[Value], edits: Value| {
        let mut fields = fields.clone();
        fields.as_object_mut().unwrap().extend(edits.as_object().unwrap().clone());
        ask_with(&app, messages, fields).await
    };
    let same = ask_edited(&messages, json!({})).await;
    assert_eq!(same.verdict["outcome"], "exact");
    for (index, text) in [(0, "be rude"), (1, "hi "), (2, "hello ")] {
        let mut edited = messages.clone();
        edited[index]["content"] = json!(text);
        let turn = ask_edited(&edited, json!({})).await;
        assert_eq!((&turn.verdict["outcome"], &turn.verdict["reason"]), (&json!("retokenized"), &json!("unknown")));
    }
    for edits in
        [json!({"tools": tool("g")}), json!({"chat_template_kwargs": {"a": 2}}), json!({"reasoning_effort": "low"})]
    {
        let turn = ask_edited(&messages, edits).await;
        assert_eq!(turn.verdict["reason"], "context_changed");
    }
    let mut session = json!({"session_id": "s"});
    let first = ask_edited(&messages[..2], session.clone()).await;
    let edited = [messages[0].clone(), user("hi!"), first.message, user("more")];
    assert_eq!(ask_edited(&edited, session.clone()).await.verdict["reason"], "history_edited");
    session["session_id"] = json!("other");
    assert_eq!(ask_edited(&edited, session).await.verdict["reason"], "unknown");
}

/// One branch samples "hello" letter by letter, its sibling in one piece: their texts cannot tell them apart.
#[tokio::test]
async fn siblings_with_the_same_text_are_ambiguous_and_never_guessed() {
    let app = app();
    let branches = [ask(&app, &[user("hi")]).await, ask(&app, &[user("hi")]).await];
    assert_eq!(branches[0].message, branches[1].message);
    assert_ne!(branches[0].known, branches[1].known);
    let messages = [user("hi"), assistant("hello"), user("more")];
    let turn = ask(&app, &messages).await;
    assert_eq!((&turn.verdict["source"], &turn.verdict["reason"]), (&json!("none"), &json!("ambiguous")));
    // What follows it is a conversation of its own.
    let next = ask(&app, &[messages.to_vec(), vec![turn.message, user("and more")]].concat()).await;
    assert_eq!(next.verdict["outcome"], "exact");
    assert!(next.prompt.starts_with(&turn.known));
}

#[tokio::test]
async fn strict_servers_refuse_an_ambiguous_turn() {
    let app = app().continuity(|policy| policy.strict = true);
    for _ in 0..2 {
        ask(&app, &[user("hi")]).await;
    }
    let body = json!({"messages": [user("hi"), assistant("hello"), user("more")]});
    for path in [CHAT, "/tokenize"] {
        let refused = app.post(path, body.clone()).await;
        assert_eq!(refused.status, 400);
        assert_eq!(refused.error()["param"], "messages");
        assert!(refused.error()["message"].as_str().unwrap().contains("session id"), "{}", refused.text);
    }
}

#[tokio::test]
async fn sessions_tell_siblings_apart() {
    let app = app();
    let names = [json!({"session_id": "a"}), json!({"prompt_cache_key": "b"})];
    let mut branches = Vec::new();
    for name in &names {
        branches.push(ask_with(&app, &[user("hi")], name.clone()).await);
    }
    assert_ne!(branches[0].known, branches[1].known);
    let messages = [user("hi"), assistant("hello"), user("more")];
    for (name, branch) in names.iter().zip(&branches) {
        let turn = ask_with(&app, &messages, name.clone()).await;
        assert!(turn.prompt.starts_with(&branch.known));
        assert_eq!(turn.verdict["matched_by"], "session");
    }
    // Whoever names no session, or another one, gets nobody's ids.
    for other in [json!({}), json!({"session_id": "c"})] {
        let turn = ask_with(&app, &messages, other).await;
        assert_eq!(turn.verdict["outcome"], "retokenized");
    }
}

/// The ids of calls are the server's own, so that a turn which makes some is recognised in any session.
#[tokio::test]
async fn the_id_of_a_call_tells_its_turn_apart() {
    let text = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\": 1.0, \"a\": 2}}\n</tool_call>";
    let app = TestApp::new().reads_tool_calls();
    let spelt: Vec<TokenId> = text.chars().flat_map(|letter| app.ids(&letter.to_string())).collect();
    assert_ne!(spelt, app.ids(text));
    let app = app.script([spelt, vec![IM_END]].concat()).says(text);
    let tools = json!({"tools": [{"type": "function", "function": {"name": "f"}}], "return_token_ids": true});
    let with = |messages: Value, session: Option<&str>| {
        let mut body = tools.clone();
        body["messages"] = messages;
        body["session_id"] = json!(session);
        body
    };
    let mut branches = Vec::new();
    for session in [Some("a"), None] {
        let answer = app.post(CHAT, with(json!([user("hi")]), session)).await.ok();
        let choice = &answer["choices"][0];
        let known = [ids(&answer["prompt_token_ids"]), ids(&choice["token_ids"])].concat();
        branches.push((choice["message"]["tool_calls"][0]["id"].clone(), known));
    }
    assert_ne!(branches[0], branches[1]);
    for (id, known) in &branches {
        // Libraries write the arguments anew.
        let call = json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{\"a\":2,\"b\":1}"}});
        let assistant = json!({"role": "assistant", "content": null, "tool_calls": [call]});
        let messages = json!([user("hi"), assistant, {"role": "tool", "tool_call_id": id, "content": "3"}]);
        for session in [None, Some("b")] {
            let answer = app.post(CHAT, with(messages.clone(), session)).await.ok();
            assert!(ids(&answer["prompt_token_ids"]).starts_with(known));
            assert_eq!(answer["token_continuity"]["matched_by"], "tool_call");
        }
    }
}

#[tokio::test]
async fn the_header_names_the_session_before_the_body_does() {
    let app = app();
    let post = async |messages: Value| {
        let body = json!({"messages": messages, "session_id": "body", "return_token_ids": true});
        let request = Request::post(CHAT).header(header::CONTENT_TYPE, "application/json");
        let request = request.header("X-Session-ID", "header").body(body.to_string().into()).unwrap();
        app.request(request).await.ok()
    };
    post(json!([user("hi")])).await;
    let messages = [user("hi"), assistant("hello"), user("more")];
    let turn = post(json!(messages)).await;
    assert_eq!(turn["token_continuity"]["matched_by"], "session");
    let turn = ask_with(&app, &messages, json!({"session_id": "body"})).await;
    assert_eq!(turn.verdict["outcome"], "retokenized");
}

#[tokio::test]
async fn ids_of_a_message_win_over_those_that_are_remembered() {
    let app = app();
    let first = ask(&app, &[user("hi")]).await;
    let carried = |generation: Vec<TokenId>| {
        let mut message = first.message.clone();
        message["prompt_token_ids"] = json!(first.prompt);
        message["generation_token_ids"] = json!(generation);
        [user("hi"), message, user("more")]
    };
    let own = first.known[first.prompt.len()..].to_vec();
    let trusted = ask(&app, &carried(own)).await;
    let turn = &trusted;
    assert_eq!((&turn.verdict["source"], &turn.verdict["warnings"]), (&json!("message"), &json!([])));
    let other = [app.ids("hello"), vec![IM_END]].concat();
    let turn = ask(&app, &carried(other.clone())).await;
    assert!(turn.prompt.starts_with(&[first.prompt.clone(), other.clone()].concat()));
    assert_eq!(turn.verdict["warnings"], json!(["cache_conflict"]));
    // What one client claims is remembered for nobody else.
    let messages = [user("hi"), first.message.clone(), user("more"), turn.message, user("and more")];
    let next = ask(&app, &messages).await;
    assert!(next.prompt.starts_with(&trusted.known));
    assert_eq!(next.verdict["outcome"], "exact");

    let strict = app.continuity(|policy| policy.strict = true);
    ask(&strict, &[user("hi")]).await;
    let refused = strict.post(CHAT, json!({"messages": carried(other)})).await;
    assert_eq!(refused.status, 400);
    assert!(refused.error()["message"].as_str().unwrap().contains("sampled for these messages"), "{}", refused.text);
}

/// Neither by a session of its own nor by sending back what was remembered there.
#[tokio::test]
async fn ids_that_a_client_made_up_never_reach_another() {
    let app = app();
    let made_up = json!({"required_prefix_token_ids": [1, 50, 51, 52, 2], "session_id": "mine"});
    let messages = [user("hi"), assistant("hello"), user("more")];
    let first = ask_with(&app, &messages, made_up).await;
    assert!(first.prompt.starts_with(&[1, 50, 51, 52, 2]));
    let mut message = first.message.clone();
    message["prompt_token_ids"] = json!(first.prompt);
    message["generation_token_ids"] = json!(first.known[first.prompt.len()..]);
    let with = |message: &Value| [messages.to_vec(), vec![message.clone(), user("and more")]].concat();
    let laundered = ask(&app, &with(&message)).await;
    assert!(laundered.prompt.starts_with(&first.known));
    let next = ask_with(&app, &with(&first.message), json!({"session_id": "mine"})).await;
    assert_eq!(next.verdict["outcome"], "exact");
    for (history, answer) in [(messages.to_vec(), &first), (with(&first.message), &laundered)] {
        let other = ask(&app, &[history, vec![answer.message.clone(), user("so?")]].concat()).await;
        assert_eq!(other.verdict["outcome"], "retokenized", "{}", other.verdict);
    }
}

#[tokio::test]
async fn a_message_that_was_continued_is_remembered_whole() {
    let app = app();
    let fields = json!({"continue_final_message": true, "add_generation_prompt": false});
    let turn = ask_with(&app, &[user("hi"), assistant("well, ")], fields).await;
    let next = ask(&app, &[user("hi"), assistant("well, hello"), user("more")]).await;
    assert!(next.prompt.starts_with(&turn.known), "{:?} {:?}", next.prompt, turn.known);
    assert_eq!(next.verdict["outcome"], "exact");
}

#[tokio::test]
async fn every_choice_of_several_is_remembered() {
    let app = TestApp::new();
    let body = json!({"messages": [user("hi")], "n": 6, "temperature": 1.0, "max_tokens": 6, "return_token_ids": true});
    let choices = app.post(CHAT, body).await.ok();
    let prompt = ids(&choices["prompt_token_ids"]);
    let mut exact = 0;
    for choice in choices["choices"].as_array().unwrap() {
        let text = choice["message"]["content"].as_str().unwrap();
        let next = ask(&app, &[user("hi"), assistant(text), user("more")]).await;
        if next.verdict["outcome"] == "exact" {
            assert!(next.prompt.starts_with(&[prompt.clone(), ids(&choice["token_ids"])].concat()));
            exact += 1;
        } else {
            assert_eq!(next.verdict["reason"], "ambiguous");
        }
    }
    assert!(exact > 3, "{exact}");
}

#[tokio::test]
async fn an_answer_that_was_cut_off_or_ended_otherwise_is_closed_by_the_template() {
    let app = TestApp::new();
    let hello = app.ids("hello");
    let app = app.script(hello.clone()).script([hello, vec![ENDOFTEXT]].concat());
    let cut = ask_with(&app, &[user("cut")], json!({"max_tokens": 1})).await;
    let next = ask(&app, &[user("cut"), cut.message, user("more")]).await;
    assert!(next.prompt.starts_with(&[cut.known.clone(), vec![IM_END]].concat()));
    let foreign = ask(&app, &[user("foreign")]).await;
    let next = ask(&app, &[user("foreign"), foreign.message, user("more")]).await;
    assert!(next.prompt.starts_with(&[foreign.known.clone(), vec![IM_END]].concat()));
    assert_eq!(next.verdict["warnings"], json!(["foreign_stop"]));
}

#[tokio::test]
async fn what_was_evicted_is_encoded_again_and_says_so() {
    let app = app().continuity(|policy| {
        policy.memory = Some(MemoryBounds { bytes: 1 << 18, ttl: Duration::from_hours(1) });
    });
    let first = ask(&app, &[user("hi")]).await;
    // More ids than there is room for, of few answers: those that were used least are evicted when the cache is measured.
    for number in 0..30 {
        ask(&app, &[user(&format!("{number} {}", "so? ".repeat(700)))]).await;
    }
    app.get("/metrics").await;
    let next = ask(&app, &[user("hi"), first.message, user("more")]).await;
    assert_eq!(next.verdict["reason"], "forgotten");
    // The sibling is not mistaken for the branch whose ids were forgotten.
    let sibling = ask(&app, &[user("hi")]).await;
    assert_ne!(sibling.known, first.known);
    let next = ask(&app, &[user("hi"), sibling.message, user("more")]).await;
    assert_eq!(next.verdict["reason"], "ambiguous");
}

/// A template that cannot be continued exactly is no fault of a client that never asked for it.
#[tokio::test]
async fn a_turn_that_cannot_be_continued_is_rendered_for_clients_that_sent_no_ids() {
    let messages = |developer: bool| {
        let more = if developer { json!({"role": "developer", "content": "be brief"}) } else { user("more") };
        json!([user("hi"), assistant("hello"), more, user("so?")])
    };
    let app = app();
    ask(&app, &[user("hi")]).await;
    let moved = app.post(CHAT, json!({"messages": messages(true), "return_token_continuity": true})).await.ok();
    let verdict = &moved["token_continuity"];
    assert_eq!((&verdict["outcome"], &verdict["reason"]), (&json!("retokenized"), &json!("messages_moved")));
    let strict = app.continuity(|policy| policy.strict = true);
    ask(&strict, &[user("hi")]).await;
    assert_eq!(strict.post(CHAT, json!({"messages": messages(true)})).await.status, 400);
    assert_eq!(strict.post(CHAT, json!({"messages": messages(false)})).await.status, 200);
}

/// Ids that were joined without a proof are remembered for those who asked for it, and for nobody else.
#[tokio::test]
async fn what_follows_an_unproven_join_reaches_nobody_else() {
    let app = app().on_unprovable(tito::prompt::OnUnprovable::EosCount);
    let first = ask(&app, &[user("hi")]).await;
    let mut message = first.message.clone();
    message["prompt_token_ids"] = json!(first.prompt);
    message["generation_token_ids"] = json!(first.known[first.prompt.len()..]);
    let developer = json!({"role": "developer", "content": "be brief"});
    let with = |message: &Value| vec![user("hi"), message.clone(), developer.clone(), user("so?")];
    let joined = ask(&app, &with(&message)).await;
    assert_eq!(joined.verdict["outcome"], "unproven");
    let next = [with(&first.message), vec![joined.message.clone(), user("more")]].concat();
    let other = ask(&app, &next).await;
    assert_eq!(other.verdict["outcome"], "retokenized", "{}", other.verdict);
}

/// A thought that was added to a message is not a change of tools or template variables.
#[tokio::test]
async fn the_reason_for_a_thought_that_was_added_is_not_the_context() {
    let app = app();
    for (session, reason) in [(json!({}), "unknown"), (json!({"session_id": "s"}), "history_edited")] {
        let first = ask_with(&app, &[user("hi")], session.clone()).await;
        let mut message = first.message;
        message["reasoning"] = json!("hm");
        let turn = ask_with(&app, &[user("hi"), message, user("more")], session).await;
        assert_eq!(turn.verdict["reason"], reason);
    }
}

/// A client's own word for a whole prompt does not vouch for the messages beside it.
#[tokio::test]
async fn a_whole_prompt_that_says_something_else_is_told_once_its_ids_come_back() {
    for strict in [false, true] {
        let app = app().continuity(|policy| policy.strict = strict);
        let whole = json!({"prompt_token_ids": [1, 40, 41, 42]});
        let first = ask_with(&app, &[user("hi")], whole).await;
        let mut message = first.message;
        message["prompt_token_ids"] = json!(first.prompt);
        message["generation_token_ids"] = json!(first.known[first.prompt.len()..]);
        let body = json!({"messages": [user("hi"), message, user("more")], "return_token_continuity": true});
        let answer = app.post("/tokenize", body).await;
        if strict {
            assert_eq!(answer.status, 400);
        } else {
            assert_eq!(answer.ok()["token_continuity"]["warnings"], json!(["history_edited"]));
        }
    }
}
