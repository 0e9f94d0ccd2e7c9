//! System messages that are not the first, where the template wants one at the start: they are gathered there, or refused
//! where known ids stand for the start of the conversation already.

use serde_json::{Value, json};

use crate::it::app::{
    IM_END, MODEL, TestApp,
    images::{data_url, png},
};

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";

/// Refuses system messages that are not the first.
const STRICT: &str = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('first!') }}\
                      {% endif %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
                      {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
/// Does the same, and shows images.
const STRICT_PARTS: &str = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}\
                            {{ raise_exception('first!') }}{% endif %}<|im_start|>{{ m.role }}\n\
                            {% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}\
                            {% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>\
                            {% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}\
                            {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

fn says(role: &str, text: &str) -> Value {
    json!({ "role": role, "content": text })
}

/// A model that spells letter by letter, which is not how the text encodes; with a cache or without.
fn app(remembers: bool) -> TestApp {
    let app = TestApp::new().chat_template(STRICT);
    let app = if remembers { app } else { app.continuity(|policy| policy.memory = None) };
    let ids = app.spelled("hello");
    app.script(ids.into_iter().chain([IM_END]))
}

fn response(more: &Value) -> Value {
    let mut body = json!({ "model": MODEL, "return_token_ids": true });
    body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
    body
}

fn message(messages: &[Value]) -> Value {
    json!({ "model": MODEL, "max_tokens": 40, "messages": messages, "return_token_ids": true })
}

async fn refused(app: &TestApp, path: &str, body: Value) {
    let answer = app.post(path, body).await;
    assert_eq!(answer.status, 400, "{path}: {}", answer.text);
    assert!(answer.text.contains("moves messages that follow the known ids"), "{path}: {}", answer.text);
}

#[tokio::test]
async fn a_late_system_message_is_refused_behind_ids_that_it_would_stand_before() {
    for remembers in [true, false] {
        let app = app(remembers);
        let first = app.post(RESPONSES, response(&json!({ "input": "hello" }))).await.ok();
        let more = [says("system", "Not."), says("user", "and")];
        let chained = response(&json!({ "previous_response_id": first["id"], "input": more }));
        refused(&app, RESPONSES, chained).await;
        let items = [&[says("user", "hello"), first["output"][0].clone()], &more[..]].concat();
        refused(&app, RESPONSES, response(&json!({ "input": items }))).await;

        let first = app.post(MESSAGES, message(&[says("user", "hello")])).await.ok();
        let known: Vec<Value> = ["prompt_token_ids", "generation_token_ids"]
            .iter()
            .flat_map(|field| first[field].as_array().unwrap().clone())
            .collect();
        let mut said = json!({ "role": "assistant", "content": first["content"] });
        let messages = |said: Value| [&[says("user", "hello"), said], &more[..]].concat();
        let mut required = message(&messages(said.clone()));
        required["required_prefix_token_ids"] = json!(known);
        refused(&app, MESSAGES, required).await;
        for field in ["prompt_token_ids", "generation_token_ids"] {
            said[field] = first[field].clone();
        }
        refused(&app, MESSAGES, message(&messages(said))).await;
    }
}

#[tokio::test]
async fn a_late_system_message_is_shown_first_where_no_ids_were_sent() {
    for remembers in [true, false] {
        let app = app(remembers);
        app.post(MESSAGES, message(&[says("user", "hello")])).await.ok();
        let turns = [says("user", "hello"), says("assistant", "hello"), says("user", "and")];
        let late = [&turns[..2], &[says("system", "Not.")], &turns[2..]].concat();
        let first = [&[says("system", "Not.")], &turns[..]].concat();
        let chat = json!({ "messages": first, "return_token_ids": true, "required_prefix_token_ids": [] });
        let shown = app.post(CHAT, chat).await.ok()["prompt_token_ids"].clone();
        assert_eq!(app.post(MESSAGES, message(&late)).await.ok()["prompt_token_ids"], shown, "{remembers}");
        let answer = app.post(RESPONSES, response(&json!({ "input": late }))).await.ok();
        assert_eq!(answer["output"][0]["prompt_token_ids"], shown, "{remembers}");
    }
}

#[tokio::test]
async fn a_conversation_with_a_gathered_message_goes_on_after_its_ids() {
    let app = app(false);
    let early = [says("user", "hello"), says("system", "Not.")];
    let first = app.post(RESPONSES, response(&json!({ "input": early }))).await.ok();
    let item = &first["output"][0];
    let known =
        ["prompt_token_ids", "generation_token_ids"].map(|field| item[field].as_array().unwrap().clone()).concat();
    let next = json!({ "previous_response_id": first["id"], "input": [says("user", "and")] });
    let next = app.post(RESPONSES, response(&next)).await.ok();
    let prompt = next["output"][0]["prompt_token_ids"].as_array().unwrap().clone();
    assert!(prompt.starts_with(&known), "{prompt:?} {known:?}");
}

#[tokio::test]
async fn an_image_of_a_message_that_is_moved_is_refused() {
    let url = data_url(&png(56, 84, 1));
    let look = json!([{ "type": "input_text", "text": "look" }, { "type": "input_image", "image_url": url }]);
    let look = json!({ "role": "system", "content": look });
    let late = json!({ "model": MODEL, "input": [says("user", "a"), look, says("user", "b")] });
    for app in [TestApp::new().chat_template(STRICT), TestApp::new().sees_images().chat_template(STRICT_PARTS)] {
        let answer = app.post(RESPONSES, late.clone()).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert!(answer.text.contains("image"), "{}", answer.text);
    }
    // One that stays is shown.
    let app = TestApp::new().sees_images().chat_template(STRICT_PARTS);
    app.post(RESPONSES, json!({ "model": MODEL, "input": [look, says("user", "b")] })).await.ok();
    assert_eq!(app.prompt_images().len(), 1);
}

/// Developers' messages are gathered too, where the template does not know the role.
#[tokio::test]
async fn an_image_of_a_message_that_a_developers_joins_is_refused() {
    let image = json!({ "type": "image_url", "image_url": { "url": data_url(&png(56, 84, 1)) } });
    let look = json!({ "role": "system", "content": [{ "type": "text", "text": "look" }, image] });
    let app = TestApp::new().sees_images().chat_template(STRICT_PARTS);
    let messages = [look, says("user", "a"), says("developer", "b")];
    let answer = app.post(CHAT, json!({ "messages": messages })).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    assert!(answer.text.contains("image"), "{}", answer.text);
}
