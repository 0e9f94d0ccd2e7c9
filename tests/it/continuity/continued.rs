//! Requests that continue their own final message, asked again and again: trainers send the prompts of a group one by one.

use serde_json::{Value, json};
use tito::{
    TokenId,
    parser::{ReasoningParser, ToolParser},
    turn::ToolPolicy,
};

use super::ids;
use crate::it::app::{IM_END, MODEL, TestApp};

const CHAT: &str = "/v1/chat/completions";

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// A conversation that ends with a text of the assistant, which is to be continued.
fn begun(text: &str) -> Value {
    json!({"messages": [user("hi"), {"role": "assistant", "content": text}], "continue_final_message": true,
        "add_generation_prompt": false, "max_tokens": 3, "temperature": 0, "return_token_ids": true})
}

fn strict() -> TestApp {
    TestApp::new().continuity(|policy| policy.strict = true)
}

/// The prompt of an answer in any dialect, or of any of its items.
fn prompt(answer: &Value) -> Vec<TokenId> {
    let places = [&answer["prompt_token_ids"], &answer["output"][0]["prompt_token_ids"], &answer["tokens"]];
    ids(places.into_iter().find(|place| place.is_array()).unwrap_or_else(|| panic!("{answer}")))
}

/// Asks three times, and expects the same prompt.
async fn ask_thrice(app: &TestApp, path: &str, body: &Value) -> Vec<TokenId> {
    let mut prompts = Vec::new();
    for _ in 0..3 {
        let answer = app.post(path, body.clone()).await;
        assert_eq!(answer.status, 200, "{path} {body}: {}", answer.text);
        prompts.push(prompt(&answer.ok()));
    }
    assert!(prompts.iter().all(|other| *other == prompts[0]), "{path} {body}: {prompts:?}");
    prompts.remove(0)
}

#[tokio::test]
async fn the_same_request_has_the_same_prompt_where_its_answer_adds_nothing() {
    let thinks = ToolPolicy { reasoning: ReasoningParser::named("deepseek_r1"), ..ToolPolicy::default() };
    let half = |app: &TestApp| app.ids("\u{1F600}")[..1].to_vec();
    let mut stopped = begun("I say");
    stopped["stop"] = json!(["hello"]);
    let mut cut = begun("I say");
    cut["max_tokens"] = json!(1);
    for is_strict in [true, false] {
        let app = || TestApp::new().continuity(|policy| policy.strict = is_strict);
        let cases = [
            (app().script([IM_END]), begun("I say")),
            (app().script(half(&app())), cut.clone()),
            (app().says("hello"), stopped.clone()),
            (app().tools(thinks).says("hello world you hello world"), begun("<think>\nI think")),
        ];
        for (app, body) in cases {
            let known = ask_thrice(&app, CHAT, &body).await;
            let mut streamed = body.clone();
            streamed["stream"] = json!(true);
            let events = app.post(CHAT, streamed).await.events();
            assert_eq!(prompt(&events[0]), known, "{body}");
            assert_eq!(ask_thrice(&app, CHAT, &body).await, known, "{body}");
            assert_eq!(ask_thrice(&app, "/tokenize", &body).await, known, "{body}");
        }
    }
}

#[tokio::test]
async fn the_other_dialects_continue_their_last_message_the_same_way() {
    let app = strict().script([IM_END]);
    let mut body = begun("I say");
    body["model"] = json!(MODEL);
    let known = ask_thrice(&app, CHAT, &body).await;
    assert_eq!(ask_thrice(&app, "/v1/messages", &body).await, known);
    let text = json!({"type": "output_text", "text": "I say", "annotations": []});
    let said = json!({"type": "message", "id": "m", "role": "assistant", "status": "incomplete", "content": [text]});
    let item = json!({"input": [user("hi"), said], "max_output_tokens": 3, "include": ["token_ids"], "temperature": 0});
    assert_eq!(ask_thrice(&app, "/v1/responses", &item).await, known);
}

#[tokio::test]
async fn the_ids_of_an_answer_that_adds_nothing_are_known_to_be_the_servers() {
    let app = strict().script([IM_END]).says("hello");
    let answer = app.post(CHAT, begun("I say")).await.ok();
    let sampled = ids(&answer["choices"][0]["token_ids"]);
    let said = json!({"role": "assistant", "content": "I say", "prompt_token_ids": answer["prompt_token_ids"],
        "generation_token_ids": sampled});
    let next = json!({"messages": [user("hi"), said, user("more")], "return_token_ids": true});
    let next = app.post(CHAT, next).await.ok();
    assert_eq!(next["token_continuity"]["outcome"], "exact");
    assert_eq!(next["token_continuity"]["warnings"], json!([]));
    assert!(prompt(&next).starts_with(&[prompt(&answer), sampled].concat()));
}

/// What the next turn is warned of, by a server that does not remember the answer.
async fn warnings(app: &TestApp, said: &Value) -> Value {
    let next = json!({"messages": [user("hi"), said, user("more")], "return_token_continuity": true});
    let next = app.post("/tokenize", next).await.ok();
    assert_eq!(next["token_continuity"]["outcome"], "exact", "{said}");
    next["token_continuity"]["warnings"].clone()
}

#[tokio::test]
async fn a_message_that_its_answer_added_nothing_to_is_no_edit() {
    let forgetful = || TestApp::new().continuity(|policy| policy.memory = None);
    let half = forgetful().ids("\u{1F600}")[..1].to_vec();
    let thinks = ToolPolicy { reasoning: ReasoningParser::named("deepseek_r1"), ..ToolPolicy::default() };
    let mut stopped = begun("I say");
    stopped["stop"] = json!(["hello"]);
    let mut cut = begun("I say");
    cut["max_tokens"] = json!(1);
    let parts = json!([{"type": "text", "text": "I say"}, {"type": "text", "text": "this"}]);
    let mut in_parts = begun("");
    in_parts["messages"][1]["content"] = parts.clone();
    let cases = [
        (forgetful().script([IM_END]), begun("I say")),
        (forgetful().script(half), cut),
        (forgetful().says("hello"), stopped),
        (forgetful().tools(thinks).script([IM_END]), begun("<think>\nI think\n</think>\n\nI say")),
        (forgetful().script([IM_END]), in_parts),
    ];
    for (app, body) in cases {
        let answer = app.post(CHAT, body.clone()).await.ok();
        let mut said = body["messages"][1].clone();
        said["prompt_token_ids"] = answer["prompt_token_ids"].clone();
        said["generation_token_ids"] = answer["choices"][0]["token_ids"].clone();
        assert_eq!(warnings(&app, &said).await, json!([]), "{said}");
        for edited in ["say", "say I say", "I say I", "assistant", "You say"] {
            said["content"] = json!(edited);
            assert_eq!(warnings(&app, &said).await, json!(["message_edited"]), "{said}");
        }
    }
}

/// The role stands in the prompt as a text of its own would.
#[tokio::test]
async fn what_the_template_writes_before_an_answer_is_not_what_it_says() {
    let app = TestApp::new().continuity(|policy| policy.memory = None).script([IM_END]);
    let answer = app.post(CHAT, json!({"messages": [user("hi")], "return_token_ids": true})).await.ok();
    for edited in ["assistant", "hi", "<|im_start|>assistant"] {
        let said = json!({"role": "assistant", "content": edited, "prompt_token_ids": answer["prompt_token_ids"],
            "generation_token_ids": answer["choices"][0]["token_ids"]});
        assert_eq!(warnings(&app, &said).await, json!(["message_edited"]), "{said}");
    }
}

/// The calls follow a text that begins in the prompt.
#[tokio::test]
async fn a_message_that_was_continued_with_a_call_is_no_edit() {
    let policy = ToolPolicy { parser: ToolParser::named("hermes"), auto: true, ..ToolPolicy::default() };
    let app = || {
        TestApp::new()
            .tools(policy)
            .chat_template(include_str!("../../golden/template/hermes.jinja"))
            .max_model_len(8192)
            .continuity(|policy| policy.memory = None)
    };
    let call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
    for more in ["", " and do"] {
        let script: Vec<TokenId> = app().spelled(&format!("{more}\n{call}")).into_iter().chain([IM_END]).collect();
        let app = app().script(script);
        let mut body = begun("I say");
        body["max_tokens"] = json!(500);
        body["tools"] = json!([{"type": "function", "function": {"name": "f"}}]);
        let answer = app.post(CHAT, body.clone()).await.ok();
        let mut said = answer["choices"][0]["message"].clone();
        assert_eq!(said["tool_calls"][0]["function"]["name"], "f", "{answer}");
        said["prompt_token_ids"] = answer["prompt_token_ids"].clone();
        said["generation_token_ids"] = answer["choices"][0]["token_ids"].clone();
        let result = json!({"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "done"});
        for (content, expected) in [
            (format!("I say{more}"), json!([])),
            (format!("You say{more}"), json!(["message_edited"])),
            ("I".to_owned(), json!(["message_edited"])),
        ] {
            said["content"] = json!(content);
            body["messages"] = json!([user("hi"), said, result]);
            let next = json!({"messages": body["messages"], "tools": body["tools"], "return_token_continuity": true});
            let next = app.post("/tokenize", next).await.ok();
            assert_eq!(next["token_continuity"]["warnings"], expected, "{said}");
        }
    }
}
