//! Responses that are generated in the background: exactly one task ends each, and nothing of it is left behind.

use serde_json::{Value, json};
use tito::{
    engine::{Engine, EngineLoad, scripted::Gate},
    generation::Door,
};

use super::responses::{PATH, call, create, events, events_from, streamed};
use crate::it::{app::TestApp, patience::until};

/// The response when it does not change any more.
async fn ended(app: &TestApp, path: &str) -> Value {
    let mut response = Value::Null;
    until("the response ends", async || {
        response = app.get(path).await.ok();
        !matches!(response["status"].as_str(), Some("queued" | "in_progress"))
    })
    .await;
    response
}

fn path_of(response: &Value) -> String {
    format!("{PATH}/{}", response["id"].as_str().unwrap())
}

#[tokio::test]
async fn a_background_response_is_streamed_to_its_end() {
    let app = TestApp::new().says("Hello there");
    let events = streamed(&app, &json!({ "input": "Hi", "background": true })).await;
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["response"]["status"]), (&json!("response.completed"), &json!("completed")));
    let path = format!("{PATH}/{}", last["response"]["id"].as_str().unwrap());
    assert_eq!(app.get(&path).await.ok(), last["response"]);
}

/// When a response is to be done, and which others it belongs to, decides no token.
#[tokio::test]
async fn options_of_background_responses_are_ignored() {
    let app = TestApp::new().says("Hello there");
    for options in [json!({ "completion_window": "8h", "continuation_id": "a" }), json!({}), Value::Null] {
        let asked = json!({ "input": "Hi", "background": true, "background_options": options });
        let begun = create(&app, asked).await;
        let response = ended(&app, &path_of(&begun)).await;
        assert_eq!((&response["status"], &response["background"]), (&json!("completed"), &json!(true)), "{response}");
    }
}

#[tokio::test]
async fn a_background_response_that_has_ended_can_be_streamed_again_from_any_event_on() {
    let app = TestApp::new().says("Hello there");
    let first = streamed(&app, &json!({ "input": "Hi", "background": true })).await;
    let path = path_of(&first[0]["response"]);
    ended(&app, &path).await;
    assert_eq!(events(&app.get(&format!("{path}?stream=true")).await), first);
    for last in [0, first.len() - 2, first.len() - 1, 1_000_000, usize::MAX] {
        let rest = app.get(&format!("{path}?stream=true&starting_after={last}")).await;
        let expected = first.get(last.saturating_add(1)..).unwrap_or_default();
        assert_eq!(events_from(&rest, last.saturating_add(1)), expected, "{last}");
    }
    // What is gone, or belongs to a new response of the same id, is not replayed.
    assert_eq!(call(&app, "DELETE", &path).await.status, 200);
    assert_eq!(app.get(&format!("{path}?stream=true")).await.status, 404);
    let id = first[0]["response"]["id"].as_str().unwrap();
    create(&app, with_id(&json!({ "input": "Hi" }), id)).await;
    let refused = app.get(&format!("{path}?stream=true")).await;
    assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("stream")));
}

#[tokio::test]
async fn background_responses_that_were_cancelled_failed_or_never_streamed_say_so_when_they_are_streamed() {
    let app = TestApp::new().says("Hello there");
    let whole = create(&app, json!({ "input": "Hi", "background": true })).await;
    ended(&app, &path_of(&whole)).await;
    let refused = app.get(&format!("{}?stream=true", path_of(&whole))).await;
    assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("stream")));

    let app = TestApp::new().says("Hello there").gate(&Gate::failing_after(2));
    let failed = streamed(&app, &json!({ "input": "Hi", "background": true })).await;
    let path = path_of(&failed[0]["response"]);
    ended(&app, &path).await;
    let again = events(&app.get(&format!("{path}?stream=true")).await);
    assert_eq!((again.last().unwrap()["type"].as_str(), &again), (Some("error"), &failed));
}

#[tokio::test]
async fn a_background_response_can_be_cancelled_once() {
    let gate = Gate::shut();
    let app = TestApp::new().says("Hello there").gate(&gate);
    let queued = create(&app, json!({ "input": "Hi", "background": true })).await;
    assert_eq!((&queued["status"], &queued["output"]), (&json!("queued"), &json!([])));
    let path = format!("{PATH}/{}", queued["id"].as_str().unwrap());
    let early = app.post(PATH, json!({ "input": "x", "previous_response_id": queued["id"] })).await;
    assert_eq!((early.status, &early.error()["param"]), (400, &json!("previous_response_id")));
    assert_eq!(call(&app, "POST", &format!("{path}/cancel")).await.ok()["status"], "cancelled");
    assert_eq!(app.get(&path).await.ok()["status"], "cancelled");
    assert_eq!(call(&app, "POST", &format!("{path}/cancel")).await.status, 400);
}

#[tokio::test]
async fn a_background_response_that_waits_for_a_pause_to_end_can_be_cancelled_or_deleted() {
    for (method, suffix, after) in [("POST", "/cancel", 200), ("DELETE", "", 404)] {
        let app = TestApp::new();
        app.running().set_door(Door::Queueing);
        let queued = create(&app, json!({ "input": "Hi", "background": true })).await;
        app.until_load(0, 1).await;
        let path = path_of(&queued);
        let answer = call(&app, method, &format!("{path}{suffix}")).await.ok();
        assert!(after == 404 || answer["status"] == "cancelled", "{answer}");
        assert_eq!(app.get(&path).await.status, after);
        assert_eq!(app.engine().load(), EngineLoad::default());
    }
}

#[tokio::test]
async fn a_background_response_that_fails_says_so_for_good() {
    let gate = Gate::failing_after(2);
    let app = TestApp::new().says("Hello there").gate(&gate);
    let body = json!({ "input": "Hi", "background": true });
    let events = streamed(&app, &body).await;
    assert_eq!(events.last().unwrap()["type"], "error");
    let path = format!("{PATH}/{}", events[0]["response"]["id"].as_str().unwrap());
    let failed = app.get(&path).await.ok();
    assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("failed"), &json!("server_error")));
    let next = app.post(PATH, json!({ "input": "x", "previous_response_id": failed["id"] })).await;
    assert_eq!((next.status, &next.error()["param"]), (400, &json!("previous_response_id")));
    assert_eq!(call(&app, "DELETE", &path).await.status, 200);
}

#[tokio::test]
async fn what_was_said_before_it_was_cancelled_is_kept_and_continued() {
    let gate = Gate::shut();
    let app = TestApp::new().says("Hello there, my friend").gate(&gate);
    let ask = json!({ "input": "Hi", "background": true, "stream": true, "include": ["token_ids"] });
    let (asked, cancelled) = tokio::join!(app.post(PATH, with_id(&ask, "r")), async {
        until("the response is kept", async || app.get(&format!("{PATH}/r")).await.status == 200).await;
        gate.pass(2);
        until("two tokens are sampled", async || gate.is_used_up()).await;
        call(&app, "POST", &format!("{PATH}/r/cancel")).await.ok()
    });
    assert_eq!(cancelled["status"], "cancelled");
    let events = events(&asked);
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["response"]), (&json!("response.completed"), &cancelled));
    assert_eq!(app.get(&format!("{PATH}/r")).await.ok(), cancelled);
    gate.open();
    let more = json!({ "input": "Go on", "previous_response_id": "r", "include": ["token_ids"] });
    let item = &cancelled["output"][0];
    // The second token is asked for when the first is in the answer.
    assert!(item["generation_token_ids"].as_array().is_some_and(|ids| !ids.is_empty()), "{cancelled}");
    assert_eq!(app.post(PATH, more).await.ok()["token_continuity"]["outcome"], "exact");
}

fn with_id(body: &Value, id: &str) -> Value {
    let mut body = body.clone();
    body["request_id"] = json!(id);
    body
}

#[tokio::test]
async fn an_id_is_taken_until_its_response_is_deleted() {
    let gate = Gate::shut();
    let app = TestApp::new().says("Hello there").gate(&gate);
    let body = with_id(&json!({ "input": "Hi" }), "same");
    let background = with_id(&json!({ "input": "Hi", "background": true }), "same");
    create(&app, background.clone()).await;
    for other in [&body, &background] {
        let refused = app.post(PATH, other.clone()).await;
        assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("request_id")));
    }
    gate.open();
    ended(&app, &format!("{PATH}/same")).await;
    assert_eq!(app.post(PATH, body.clone()).await.status, 400);
    assert_eq!(call(&app, "DELETE", &format!("{PATH}/same")).await.status, 200);
    assert_eq!(app.post(PATH, body).await.status, 200);
}

#[tokio::test]
async fn two_that_are_waited_for_cannot_have_one_id() {
    let gate = Gate::shut();
    let app = TestApp::new().says("Hello there").gate(&gate);
    let body = with_id(&json!({ "input": "Hi" }), "same");
    let (first, second) = tokio::join!(app.post(PATH, body.clone()), async {
        let second = app.post(PATH, body.clone()).await;
        gate.open();
        second
    });
    assert_eq!([first.status, second.status], [200, 400]);
}

#[tokio::test]
async fn one_that_is_said_to_have_ended_can_be_continued_at_once() {
    let app = TestApp::new().says("Hello there");
    for _ in 0..50 {
        let queued = create(&app, json!({ "input": "Hi", "background": true })).await;
        ended(&app, &path_of(&queued)).await;
        let next = app.post(PATH, json!({ "input": "x", "previous_response_id": queued["id"] })).await;
        assert_eq!(next.status, 200, "{}", next.text);
    }
}

#[tokio::test]
async fn what_was_deleted_while_it_was_generated_stays_away() {
    for round in 0..50 {
        let gate = Gate::shut();
        let app = TestApp::new().says("Hello there").gate(&gate);
        let queued = create(&app, json!({ "input": "Hi", "background": true })).await;
        let path = path_of(&queued);
        gate.pass(round % 5);
        let cancel = format!("{path}/cancel");
        let (deleted, _) = tokio::join!(call(&app, "DELETE", &path), call(&app, "POST", &cancel));
        assert_eq!(deleted.status, 200);
        gate.open();
        assert_eq!(app.get(&path).await.status, 404, "round {round}");
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_at_once_leaves_a_response_that_ends() {
    let app = TestApp::new().says("Hello there");
    for polls in 0..30 {
        let id = format!("r{polls}");
        let body = with_id(&json!({ "input": "Hi", "background": true }), &id);
        let mut request = Box::pin(app.post(PATH, body));
        for _ in 0..polls {
            if futures::poll!(&mut request).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(request);
        let path = format!("{PATH}/{id}");
        if app.get(&path).await.status == 200 {
            assert_eq!(ended(&app, &path).await["status"], "completed");
        }
    }
}
