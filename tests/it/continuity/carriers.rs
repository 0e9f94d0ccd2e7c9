//! The carriers of ids side by side, and what speaks against them.

use serde_json::{Value, json};
use tito::{TokenId, parser::ReasoningParser, turn::ToolPolicy};

use super::ids;
use crate::it::app::{Answer, IM_END, TestApp};

const CHAT: &str = "/v1/chat/completions";
const TOKENS: &str = "/v1/chat/completions/tokens";
const PROMPT: [TokenId; 4] = [1, 40, 41, 42];

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn with(body: &Value, fields: &Value) -> Value {
    let mut body = body.clone();
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

/// A tracked conversation of two turns without another message, and the same without ids.
async fn conversation(app: &TestApp) -> Vec<Value> {
    let mut messages = Vec::new();
    for text in ["hi", "more"] {
        messages.push(user(text));
        let answer = app.post(CHAT, json!({"messages": messages, "return_token_ids": true})).await.ok();
        let message = &answer["choices"][0]["message"];
        messages.push(json!({"role": "assistant", "content": message["content"],
            "prompt_token_ids": message["prompt_token_ids"], "generation_token_ids": message["generation_token_ids"]}));
    }
    messages
}

fn known(message: &Value) -> Vec<TokenId> {
    [ids(&message["prompt_token_ids"]), ids(&message["generation_token_ids"])].concat()
}

#[tokio::test]
async fn a_whole_prompt_is_taken_as_it_is_wherever_it_stands() {
    let app = TestApp::new().says("hello");
    let body = json!({"messages": [user("hi")], "return_token_ids": true});
    for (path, fields) in [
        (CHAT, json!({"prompt_token_ids": PROMPT})),
        (CHAT, json!({"kv_transfer_params": {"prompt_token_ids": PROMPT, "other": 1}})),
        (TOKENS, json!({"tokens": PROMPT})),
        (TOKENS, json!({"tokens": PROMPT, "prompt_token_ids": PROMPT, "required_prefix_token_ids": [7]})),
    ] {
        let answer = app.post(path, with(&body, &fields)).await.ok();
        assert_eq!(ids(&answer["prompt_token_ids"]), PROMPT, "{fields}");
        let verdict = &answer["token_continuity"];
        assert_eq!((&verdict["source"], &verdict["proof"]), (&json!("prompt_override"), &json!("whole_prompt")));
        assert_eq!((&verdict["reused_ids"], &verdict["new_ids"]), (&json!(4), &json!(0)));
    }
    let tokenized = app.post("/tokenize", json!({"messages": [user("hi")], "prompt_token_ids": PROMPT})).await.ok();
    assert_eq!(ids(&tokenized["tokens"]), PROMPT);
    // Elsewhere the messages would be rendered instead.
    for path in [CHAT, "/v1/chat/completions/render", "/invocations"] {
        let refused = app.post(path, with(&body, &json!({"tokens": PROMPT}))).await;
        assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("tokens")), "{path} {}", refused.text);
    }
}

#[tokio::test]
async fn a_whole_prompt_that_is_none_is_refused_by_its_name() {
    let app = TestApp::new();
    let list = "must be a non-empty list of non-negative integers.";
    let kv = "kv_transfer_params.prompt_token_ids";
    for (fields, param, text) in [
        (json!({"prompt_token_ids": []}), "prompt_token_ids", list),
        (json!({"prompt_token_ids": "x"}), "prompt_token_ids", list),
        (json!({"kv_transfer_params": {"prompt_token_ids": [-1]}}), kv, list),
        (json!({"kv_transfer_params": {"prompt_token_ids": 5}}), kv, "`kv_transfer_params['prompt_token_ids']` must"),
        (json!({"prompt_token_ids": [9999]}), "prompt_token_ids", "Token id 9999 is out of vocabulary"),
        (json!({"prompt_token_ids": [1], "tokens": [2]}), "tokens", "another field"),
    ] {
        let refused = app.post(TOKENS, with(&json!({"messages": [user("hi")], "tokens": [1]}), &fields)).await;
        assert_eq!(refused.status, 400, "{fields}");
        assert_eq!(refused.error()["param"], param, "{fields}");
        assert!(refused.error()["message"].as_str().unwrap().contains(text), "{}", refused.text);
    }
    let missing = app.post(TOKENS, json!({"messages": [user("hi")]})).await;
    assert_eq!((missing.status, missing.error()["param"].as_str()), (400, Some("body.tokens")));
    let nothing_said = app.post(CHAT, json!({"messages": [], "prompt_token_ids": PROMPT})).await;
    assert_eq!(nothing_said.status, 400);
}

#[tokio::test]
async fn nemo_rl_learns_what_the_server_can_do() {
    let answer = TestApp::new().get("/v1/nemo-rl/prefix-token-capability").await.ok();
    assert_eq!((&answer["active"], &answer["required_prefix_token_ids"]), (&json!(true), &json!(true)));
    assert!(answer["stock_chat_routes_replaced"].as_u64() >= Some(1));
    // What it cannot do, it does not claim.
    assert_eq!((&answer["ng_capture"], &answer["external_staging"]), (&json!(false), &json!(false)));
}

/// What a client does to a conversation with ids.
type Change = fn(&mut Value);

/// Name, what a client does, and what is said against it where the server remembers the ids and where it does not.
type Edit = (&'static str, Change, &'static str, &'static str);

/// Texts and turns that the client has changed, or has less of than the ids.
fn edited_texts() -> Vec<Edit> {
    vec![
        ("nothing", |_| {}, "", ""),
        ("another question", |body| body["messages"][2]["content"] = json!("less"), "history_edited", "history_edited"),
        (
            "another first question",
            |body| body["messages"][0]["content"] = json!("ha"),
            "history_edited",
            "history_edited",
        ),
        (
            "a new system prompt",
            |body| {
                body["messages"].as_array_mut().unwrap().insert(0, json!({"role": "system", "content": "be kind"}));
            },
            "history_edited",
            "history_edited",
        ),
        ("another answer", |body| body["messages"][3]["content"] = json!("bye"), "message_edited", "message_edited"),
        (
            "another earlier answer",
            |body| body["messages"][1]["content"] = json!("bye"),
            "history_edited",
            "history_edited",
        ),
        (
            "a part of the answer",
            |body| body["messages"][3]["content"] = json!("hel"),
            "message_edited",
            "message_edited",
        ),
        ("an empty answer", |body| body["messages"][3]["content"] = json!(""), "message_edited", "message_edited"),
        (
            "a part of a question",
            |body| body["messages"][2]["content"] = json!("mo"),
            "history_edited",
            "history_edited",
        ),
        (
            "a turn less",
            |body| {
                body["messages"].as_array_mut().unwrap().drain(..2);
            },
            "history_edited",
            "history_edited",
        ),
    ]
}

fn edits() -> Vec<Edit> {
    let others: Vec<Edit> = vec![
        (
            "a call",
            |body| {
                let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
                body["messages"][3]["tool_calls"] = json!([call]);
            },
            "message_edited",
            "message_edited",
        ),
        (
            "tools",
            |body| {
                body["tools"] = json!([{"type": "function", "function": {"name": "f"}}]);
                body["tool_choice"] = json!("none");
            },
            "context_changed",
            "context_changed",
        ),
        ("template variables", |body| body["chat_template_kwargs"] = json!({"x": 1}), "context_changed", ""),
        (
            "other earlier ids",
            |body| body["messages"][1]["generation_token_ids"] = json!([5]),
            "chain_broken",
            "chain_broken",
        ),
        (
            "ids of another message",
            |body| {
                body["required_prefix_token_ids"] = json!(known(&body["messages"][1]));
            },
            "",
            "",
        ),
        (
            "ids of no message",
            |body| body["required_prefix_token_ids"] = json!([1, 9, 2]),
            "carriers_disagree",
            "carriers_disagree",
        ),
    ];
    edited_texts().into_iter().chain(others).collect()
}

#[tokio::test]
async fn what_speaks_against_ids_is_told_or_refused() {
    for remembers in [true, false] {
        for strict in [false, true] {
            let app = TestApp::new().says("hello").continuity(|policy| {
                policy.strict = strict;
                policy.memory = policy.memory.filter(|_| remembers);
            });
            let messages = conversation(&app).await;
            for (name, edit, when_remembered, otherwise) in edits() {
                let asked = [messages.as_slice(), &[user("so?")]].concat();
                let mut body = json!({"messages": asked, "return_token_continuity": true});
                edit(&mut body);
                let expected = if remembers { when_remembered } else { otherwise };
                let answer = app.post("/tokenize", body.clone()).await;
                if strict && !expected.is_empty() {
                    assert_eq!(answer.status, 400, "{name}: {}", answer.text);
                    assert!(answer.error()["message"].as_str().unwrap().contains("cannot be trusted"), "{name}");
                    continue;
                }
                if name == "ids of no message" {
                    // They end with no assistant message that is there.
                    assert_eq!(answer.status, 400, "{}", answer.text);
                    continue;
                }
                let warnings = answer.ok()["token_continuity"]["warnings"].clone();
                let expected = if expected.is_empty() { json!([]) } else { json!([expected]) };
                assert_eq!(warnings, expected, "{name}, remembers: {remembers}, strict: {strict}");
            }
        }
    }
}

/// The prompt of this very turn is no prefix of it that ends with an answer, nor is one with a turn more.
#[tokio::test]
async fn a_required_prefix_with_more_than_the_conversation_is_told_or_refused() {
    for strict in [false, true] {
        let app = TestApp::new().says("hello").continuity(|policy| policy.strict = strict);
        let first = json!([user("hi")]);
        let second = json!([user("hi"), {"role": "assistant", "content": "hello"}, user("so?")]);
        let tokens =
            async |messages: &Value| ids(&app.post("/tokenize", json!({"messages": messages})).await.ok()["tokens"]);
        let [one, two] = [tokens(&first).await, tokens(&second).await];
        let three = [&*two, &app.spelled("well"), &[IM_END]].concat();
        for (messages, prefix) in [(&first, one), (&second, two), (&second, three)] {
            let body = json!({"messages": messages, "required_prefix_token_ids": prefix});
            let told = warned(&app.post(CHAT, body).await);
            assert_eq!(told, (!strict).then(|| "message_edited".to_owned()), "{messages} {prefix:?}");
        }
    }
}

/// Ids beside the messages come without an index; a server that sampled them knows it.
#[tokio::test]
async fn ids_that_are_remembered_need_no_index() {
    let app = TestApp::new().says("hello");
    let messages = conversation(&app).await;
    let known = known(&messages[1]);
    // The texts of both answers are the same, and neither carries ids.
    let strip = |message: &Value| json!({"role": message["role"], "content": message["content"]});
    let mut stripped: Vec<Value> = messages.iter().map(strip).collect();
    stripped.push(user("so?"));
    let body = json!({"messages": stripped, "required_prefix_token_ids": known});
    let answer = app.post("/tokenize", body).await.ok();
    assert_eq!(answer["token_continuity"]["anchor"], 1);
    assert_eq!(answer["token_continuity"]["outcome"], "partial");
    let tokens = ids(&answer["tokens"]);
    assert!(tokens.starts_with(&known));
    assert_eq!(tokens.iter().filter(|&&id| id == IM_END).count(), 5);
}

/// The header's warnings of an answer; `None` if it was refused.
fn warned(answer: &Answer) -> Option<String> {
    if answer.status == 400 {
        return None;
    }
    assert_eq!(answer.status, 200, "{}", answer.text);
    let header = answer.headers["x-token-continuity"].to_str().unwrap();
    assert!(header.starts_with("required_prefix; "), "{header}");
    Some(header.split("warnings=").nth(1).unwrap_or_default().to_owned())
}

/// Ids that end within an answer are what an answer has that was cut off. Whether this one was, only its text or the
/// server's memory can tell.
#[tokio::test]
async fn a_required_prefix_that_ends_within_an_answer_is_told_or_refused() {
    // How many of the last ids are missing, and what is told of the only answer, with and without memory; then whether
    // the ids of the second of two answers are refused.
    let cases = [
        (0, "", "", false),
        // Only the end of the turn, which the template writes.
        (1, "cache_conflict", "", false),
        (5, "cache_conflict,message_edited", "message_edited", true),
    ];
    for remembers in [true, false] {
        for strict in [false, true] {
            let app = TestApp::new().says("a long answer").continuity(|policy| {
                policy.strict = strict;
                policy.memory = policy.memory.filter(|_| remembers);
            });
            let tracked = conversation(&app).await;
            for (cut, remembered, otherwise, is_refused) in cases {
                for end in [1, 3] {
                    let strip = |message: &Value| json!({"role": message["role"], "content": message["content"]});
                    let mut messages: Vec<Value> = tracked[..=end].iter().map(strip).collect();
                    messages.push(user("so?"));
                    let known = known(&tracked[end]);
                    let known = &known[..known.len() - cut];
                    let told = if remembers { remembered } else { otherwise };
                    let refused = (strict && !told.is_empty()) || (end == 3 && is_refused);
                    let expected = (!refused).then(|| told.to_owned());
                    for (path, list) in [(CHAT, "messages"), ("/v1/responses", "input"), ("/tokenize", "messages")] {
                        let body = json!({list: messages, "required_prefix_token_ids": known});
                        let answer = app.post(path, body).await;
                        let case = format!("{path}, -{cut}, turn {end}, remembers: {remembers}, strict: {strict}");
                        assert_eq!(warned(&answer), expected, "{case}: {}", answer.text);
                    }
                }
            }
        }
    }
}

/// A conversation of two turns with thoughts and ids, and a question after it.
async fn thoughtful(app: &TestApp) -> Value {
    let mut messages = Vec::new();
    for text in ["hi", "more"] {
        messages.push(user(text));
        let answer = app.post(CHAT, json!({"messages": messages, "return_token_ids": true})).await.ok();
        let mut message = answer["choices"][0]["message"].clone();
        assert_eq!(message["reasoning"], "hm", "{answer}");
        message.as_object_mut().unwrap().remove("generation_log_probs");
        messages.push(message);
    }
    messages.push(user("so?"));
    json!({ "messages": messages })
}

/// A thought in Anthropic's form, as `LiteLLM` sends it.
fn in_blocks(thought: &Value) -> Value {
    json!([{ "type": "thinking", "thinking": thought, "signature": "s" }])
}

/// A thought in `OpenRouter`'s form.
fn in_details(thought: &Value) -> Value {
    json!([{ "type": "reasoning.text", "text": thought }, { "type": "reasoning.encrypted", "data": "x" }])
}

#[tokio::test]
async fn an_edited_thought_beside_ids_is_an_edit() {
    let edits: [(Change, &str); 10] = [
        (|_| {}, ""),
        // Most clients leave thoughts out.
        (|body| body["messages"][3]["reasoning"] = Value::Null, ""),
        (|body| body["messages"][1]["reasoning"] = json!(""), ""),
        (|body| body["messages"][3]["reasoning"] = json!("zz"), "message_edited"),
        (|body| body["messages"][1]["reasoning"] = json!("zz"), "history_edited"),
        (|body| body["messages"][3]["reasoning_content"] = body["messages"][3]["reasoning"].take(), ""),
        (|body| body["messages"][3]["thinking"] = body["messages"][3]["reasoning"].take(), ""),
        (|body| body["messages"][3]["thinking_blocks"] = in_blocks(&body["messages"][3]["reasoning"].take()), ""),
        (|body| body["messages"][1]["reasoning_details"] = in_details(&body["messages"][1]["reasoning"].take()), ""),
        (
            |body| {
                body["messages"][3]["reasoning"] = Value::Null;
                body["messages"][3]["thinking_blocks"] = in_blocks(&json!("zz"));
            },
            "message_edited",
        ),
    ];
    for strict in [false, true] {
        let policy = ToolPolicy { reasoning: ReasoningParser::named("qwen3"), ..ToolPolicy::default() };
        let app = TestApp::new().tools(policy).continuity(|policy| policy.strict = strict);
        let script = app.spelled("<think>hm</think>yes").into_iter().chain([IM_END]);
        let app = app.script(script);
        let conversation = thoughtful(&app).await;
        for (edit, told) in edits {
            let mut body = conversation.clone();
            edit(&mut body);
            let answer = app.post(CHAT, body.clone()).await;
            if strict && !told.is_empty() {
                assert_eq!(answer.status, 400, "{body}: {}", answer.text);
                assert!(answer.text.contains("token ids that cannot be trusted"), "{}", answer.text);
                continue;
            }
            assert_eq!(answer.status, 200, "{}", answer.text);
            let header = answer.headers["x-token-continuity"].to_str().unwrap();
            assert!(header.starts_with("message; "), "{header}");
            assert_eq!(header.split("warnings=").nth(1).unwrap_or_default(), told, "{body}: {header}");
        }
    }
}
