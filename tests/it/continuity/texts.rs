//! Prompts of `/v1/completions`: what can be said of the ids of a text that goes on from an answer.

use serde_json::{Value, json};
use tito::TokenId;

use super::ids;
use crate::it::app::{IM_END, TestApp};

const PATH: &str = "/v1/completions";

/// Answers " hello" letter by letter, which is not how the tokenizer writes it.
fn spells(app: &TestApp) -> Vec<TokenId> {
    [app.spelled(" hello"), vec![IM_END]].concat()
}

/// The verdict in the header, and the body.
async fn ask(app: &TestApp, prompt: &Value, more: &Value) -> (String, Value) {
    let mut body = json!({ "prompt": prompt, "return_token_ids": true });
    body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
    let answer = app.post(PATH, body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let verdict = answer.headers["x-token-continuity"].to_str().unwrap().to_owned();
    let is_streamed = more["stream"] == true;
    (verdict, if is_streamed { Value::from(answer.events()) } else { answer.json() })
}

#[tokio::test]
async fn a_text_whose_ids_are_others_than_were_sampled_is_told() {
    for stream in [false, true] {
        let app = TestApp::new();
        let scripts = [spells(&app), [app.ids(" hello"), vec![IM_END]].concat()];
        assert_ne!(scripts[0], scripts[1]);
        let app = app.scripts(scripts);
        let more = json!({ "stream": stream });
        let (first, _) = ask(&app, &json!("a"), &more).await;
        assert_eq!(first, "none; outcome=retokenized; reused=0; new=1; reason=unknown");
        let next = "a hello<|im_end|>you";
        let (drifted, _) = ask(&app, &json!(next), &more).await;
        let count = app.ids(next).len();
        assert_eq!(drifted, format!("cache; outcome=retokenized; reused=0; new={count}; reason=drifted"));
        // Its own answer was sampled as the tokenizer writes it.
        let longer = format!("{next} hello<|im_end|>world");
        let (exact, _) = ask(&app, &json!(longer), &more).await;
        let known = app.ids(&format!("{next} hello<|im_end|>")).len();
        let new = app.ids(&longer).len() - known;
        assert_eq!(exact, format!("cache; outcome=exact; reused={known}; new={new}"));
        // Without the end of the turn, which was sampled.
        let (cut, _) = ask(&app, &json!(format!("{next} hello world")), &more).await;
        assert!(cut.ends_with("reason=drifted"), "{cut}");
    }
}

#[tokio::test]
async fn ids_are_taken_at_the_clients_word() {
    let app = TestApp::new().says("hello");
    let (verdict, answer) = ask(&app, &json!([5, 6, 7]), &json!({})).await;
    assert_eq!(verdict, "prompt_override; outcome=exact; reused=3; new=0");
    assert_eq!(ids(&answer["choices"][0]["prompt_token_ids"]), [5, 6, 7]);
}

#[tokio::test]
async fn of_several_prompts_the_worst_verdict_is_told() {
    let app = TestApp::new();
    let script = spells(&app);
    let app = app.script(script);
    ask(&app, &json!("a"), &json!({})).await;
    let (verdict, _) = ask(&app, &json!(["you", "a hello<|im_end|>", "world"]), &json!({})).await;
    assert!(verdict.ends_with("reason=drifted"), "{verdict}");
}

#[tokio::test]
async fn two_answers_with_one_text_are_ambiguous_unless_a_session_tells_them_apart() {
    let app = TestApp::new();
    let scripts = [spells(&app), [app.ids(" hello"), vec![IM_END]].concat()];
    let app = app.scripts(scripts);
    let next = json!("a hello<|im_end|>you");
    for session in ["one", "two"] {
        ask(&app, &json!("a"), &json!({ "session_id": session })).await;
    }
    for (session, ends) in [("one", "reason=drifted"), ("two", "new=1")] {
        let (verdict, _) = ask(&app, &next, &json!({ "session_id": session })).await;
        assert!(verdict.ends_with(ends), "{session}: {verdict}");
    }
    let app = TestApp::new().scripts([spells(&app), [app.ids(" hello"), vec![IM_END]].concat()]);
    for _ in 0..2 {
        ask(&app, &json!("a"), &json!({})).await;
    }
    let (verdict, _) = ask(&app, &next, &json!({})).await;
    assert!(verdict.starts_with("cache; outcome=retokenized") && verdict.ends_with("reason=ambiguous"), "{verdict}");
}

#[tokio::test]
async fn strict_servers_refuse_a_text_that_drifted_and_servers_without_memory_say_so() {
    let script = spells(&TestApp::new());
    let next = json!("a hello<|im_end|>you");
    let strict = TestApp::new().script(script.clone()).continuity(|policy| policy.strict = true);
    ask(&strict, &json!("a"), &json!({})).await;
    let refused = strict.post(PATH, json!({ "prompt": next })).await;
    assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("prompt")), "{}", refused.text);
    assert!(refused.error()["message"].as_str().unwrap().contains("send token ids"), "{}", refused.text);
    let forgetful = TestApp::new().script(script).continuity(|policy| policy.memory = None);
    let (verdict, _) = ask(&forgetful, &next, &json!({})).await;
    assert!(verdict.starts_with("none; outcome=retokenized") && verdict.ends_with("reason=cache_off"), "{verdict}");
}
