//! Clients that did nothing wrong: they are continued, and nothing is said against their ids.

use serde_json::{Value, json};
use tito::{TokenId, model::EosTokens, tokenizer::Tokenizer};

use super::{Model, ids};
use crate::it::app::{IM_END, TestApp};

const CHAT: &str = "/v1/chat/completions";

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// The message of an answer as NeMo Gym keeps it, with its ids.
fn tracked(answer: &Value) -> Value {
    let message = &answer["choices"][0]["message"];
    let mut tracked = json!({"role": "assistant", "content": message["content"],
        "prompt_token_ids": message["prompt_token_ids"], "generation_token_ids": message["generation_token_ids"]});
    if !message["tool_calls"].as_array().is_none_or(Vec::is_empty) {
        tracked["tool_calls"] = message["tool_calls"].clone();
    }
    tracked
}

fn known(message: &Value) -> Vec<TokenId> {
    [ids(&message["prompt_token_ids"]), ids(&message["generation_token_ids"])].concat()
}

async fn ask(app: &TestApp, body: Value) -> Value {
    let mut body = body;
    body["return_token_ids"] = json!(true);
    app.post(CHAT, body).await.ok()
}

/// "hello" letter by letter, which is not how the tokenizer writes it.
fn spelt(app: &TestApp) -> Vec<TokenId> {
    "hello".chars().flat_map(|letter| app.ids(&letter.to_string())).chain([IM_END]).collect()
}

/// The same ids are sampled again and again, but calls have ids of their own, which templates do not show.
#[tokio::test]
async fn rollouts_that_sampled_the_same_calls_are_not_suspected() {
    let call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
    let app = TestApp::new().reads_tool_calls().says(call).continuity(|policy| policy.strict = true);
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let mut rollouts = vec![vec![user("hi")]; 2];
    for _ in 0..3 {
        for messages in &mut rollouts {
            let answer = ask(&app, json!({"messages": messages, "tools": tools})).await;
            messages.push(tracked(&answer));
        }
        for messages in &mut rollouts {
            let last = messages.last().unwrap().clone();
            let call = &last["tool_calls"][0]["id"];
            messages.push(json!({"role": "tool", "tool_call_id": call, "content": "3"}));
            let body = json!({"messages": messages, "tools": tools, "return_token_continuity": true});
            let answer = app.post("/tokenize", body).await.ok();
            assert_eq!(answer["token_continuity"]["warnings"], json!([]), "{answer}");
            // Ids beside the messages find their message too.
            let strip = |message: &Value| {
                let mut message = message.clone();
                for key in ["prompt_token_ids", "generation_token_ids"] {
                    message.as_object_mut().unwrap().remove(key);
                }
                message
            };
            let stripped: Vec<Value> = messages.iter().map(strip).collect();
            let body = json!({"messages": stripped, "tools": tools, "required_prefix_token_ids": known(&last)});
            let answer = app.post("/tokenize", body).await.ok();
            assert_eq!(answer["token_continuity"]["warnings"], json!([]), "{answer}");
            assert_eq!(answer["token_continuity"]["anchor"], messages.len() - 2);
        }
    }
}

/// The server sampled both for the same messages, and remembers only the other's for those who send none.
#[tokio::test]
async fn ids_that_were_sampled_here_do_not_conflict_with_a_siblings() {
    let app = TestApp::new().continuity(|policy| policy.strict = true);
    let script = spelt(&app);
    let app = app.script(script).says("hello");
    let prompt = app.post("/tokenize", json!({"messages": [user("hi")]})).await.ok()["tokens"].clone();
    let first = tracked(&ask(&app, json!({"messages": [user("hi")], "prompt_token_ids": prompt})).await);
    let sibling = tracked(&ask(&app, json!({"messages": [user("hi")]})).await);
    assert_eq!(first["content"], sibling["content"]);
    assert_ne!(known(&first), known(&sibling));
    for message in [first, sibling] {
        let answer = ask(&app, json!({"messages": [user("hi"), message, user("more")]})).await;
        assert!(ids(&answer["prompt_token_ids"]).starts_with(&known(&message)));
        assert_eq!(answer["token_continuity"]["warnings"], json!([]));
    }
}

/// Claude Code puts a line before its system prompt that is another one in every request. No template shows it.
#[tokio::test]
async fn a_billing_header_that_changes_is_no_edit() {
    let app = TestApp::new();
    let script = spelt(&app);
    let app = app.script(script);
    let system = |number: usize, alone: bool| {
        let header = format!("x-anthropic-billing-header: cc_version=2; cch={number};");
        let content = if alone { json!([header, "be kind"]) } else { json!(format!("{header}\nbe kind")) };
        json!({"role": "system", "content": content})
    };
    for (alone, name) in [(true, "alone"), (false, "in front")] {
        let first = ask(&app, json!({"messages": [system(1, alone), user(name)]})).await;
        let text = json!({"role": "assistant", "content": "hello"});
        let next = ask(&app, json!({"messages": [system(2, alone), user(name), text, user("more")]})).await;
        assert_eq!(next["token_continuity"]["outcome"], "exact", "{name}: {}", next["token_continuity"]);
        assert!(ids(&next["prompt_token_ids"]).starts_with(&known(&tracked(&first))));
    }
    // Anywhere else it is a text like any other.
    let header = |number: usize| user(&format!("x-anthropic-billing-header: {number}"));
    ask(&app, json!({"messages": [header(1)]})).await;
    let text = json!({"role": "assistant", "content": "hello"});
    let edited = ask(&app, json!({"messages": [header(2), text, user("more")]})).await;
    assert_eq!(edited["token_continuity"]["outcome"], "retokenized");
}

/// The tokenizer of Qwen composes characters, which decoding cannot undo.
#[tokio::test]
async fn a_text_that_the_tokenizer_normalizes_is_no_edit() {
    let mut json: Value = serde_json::from_str(&super::tiny_tokenizer().to_json().unwrap()).unwrap();
    json["normalizer"] = json!({"type": "NFC"});
    let tokenizer = Tokenizer::from_bytes(json.to_string().as_bytes()).unwrap();
    let template = "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + \
                    '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
    let model = Model::new(tokenizer, template, EosTokens { primary: Some(IM_END), others: vec![] });
    let server = model.serve(vec![[model.ids("hello"), vec![IM_END]].concat()]);
    let question = |text: &str| vec![user("so"), user(text)];
    let mut messages = question("cafe\u{301}.txt");
    let body = json!({"messages": messages, "return_token_ids": true});
    let (_, answer) = server.post(CHAT, body).await;
    messages.extend([tracked(&answer), user("more")]);
    server.tokenize(&json!({"messages": messages})).await;
    messages.splice(..2, question("cafe.txt"));
    let body = json!({"messages": messages, "return_token_continuity": true});
    let (_, answer) = server.post("/tokenize", body).await;
    assert_eq!(answer["token_continuity"]["warnings"], json!(["history_edited"]));
}

/// The ids of a continued message begin in its prompt.
#[tokio::test]
async fn a_message_that_was_continued_says_what_its_ids_say() {
    for remembers in [true, false] {
        let app = TestApp::new().says("hello").continuity(|policy| {
            policy.memory = policy.memory.filter(|_| remembers);
        });
        let begun = json!({"role": "assistant", "content": "well, "});
        let body = json!({"messages": [user("hi"), begun], "continue_final_message": true,
            "add_generation_prompt": false});
        let mut message = tracked(&ask(&app, body).await);
        for (content, warnings) in [("well, hello", json!([])), ("bad, hello", json!(["message_edited"]))] {
            message["content"] = json!(content);
            let body = json!({"messages": [user("hi"), message, user("more")], "return_token_continuity": true});
            let answer = app.post("/tokenize", body).await.ok();
            assert_eq!(answer["token_continuity"]["warnings"], warnings, "{content}, remembers: {remembers}");
        }
    }
}

/// Whatever else stands in the message that was begun, stands in the one that is remembered.
#[tokio::test]
async fn a_message_that_was_continued_keeps_its_name_and_its_thoughts() {
    let template = "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + (message.name or '') + \
                    (message.reasoning or '') + message.content + '<|im_end|>\\n' }}{% endfor %}\
                    {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
    let app = TestApp::new().chat_template(template);
    let script = spelt(&app);
    let app = app.script(script);
    for extra in [json!({"name": "bob"}), json!({"reasoning": "hm"})] {
        let message = |content: &str, extra: &Value| {
            let mut message = json!({"role": "assistant", "content": content});
            message.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            message
        };
        let body = json!({"messages": [user("hi"), message("well, ", &extra)], "continue_final_message": true,
            "add_generation_prompt": false});
        let turn = tracked(&ask(&app, body).await);
        let messages = |extra: &Value| json!([user("hi"), message("well, hello", extra), user("more")]);
        let next = ask(&app, json!({"messages": messages(&extra)})).await;
        assert_eq!(next["token_continuity"]["outcome"], "exact", "{extra}");
        assert!(ids(&next["prompt_token_ids"]).starts_with(&known(&turn)));
    }
    let unnamed = json!([user("hi"), {"role": "assistant", "content": "well, hello"}, user("more")]);
    let other = ask(&app, json!({"messages": unnamed})).await;
    let text = app.tokenizer().decode(&ids(&other["prompt_token_ids"]), false).unwrap();
    assert!(!text.contains("bob"), "{text}");
}

/// Proxies set headers to nothing.
#[tokio::test]
async fn an_empty_header_does_not_hide_the_session_of_the_body() {
    let app = TestApp::new().says("hello");
    let post = async |messages: Value| {
        let body = json!({"messages": messages, "session_id": "", "prompt_cache_key": "s", "return_token_ids": true});
        let request = crate::it::app::posted(CHAT, body.to_string());
        let (mut parts, body) = request.into_parts();
        parts.headers.insert("x-session-id", "".parse().unwrap());
        app.request(axum::http::Request::from_parts(parts, body)).await.ok()
    };
    post(json!([user("hi")])).await;
    let turn = post(json!([user("hi"), {"role": "assistant", "content": "hello"}, user("more")])).await;
    assert_eq!(turn["token_continuity"]["matched_by"], "session");
}
