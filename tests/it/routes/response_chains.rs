//! `previous_response_id`: what stays, what begins anew, and what is refused rather than mixed; and items that would have
//! to be dropped.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tito::{
    TokenId,
    parser::{ReasoningParser, ToolParser},
    store::{BatchStore, DiskStore, MemoryStore, ResponseStore},
    turn::ToolPolicy,
};

use super::responses::{PATH, call, create, streamed, with};
use crate::it::app::{IM_END, TestApp};

fn ids(response: &Value) -> Value {
    response["output"].as_array().unwrap().last().unwrap()["prompt_token_ids"].clone()
}

pub(super) async fn text(app: &TestApp, response: &Value) -> String {
    let text = app.post("/detokenize", json!({ "tokens": ids(response) })).await.ok();
    text["prompt"].as_str().unwrap().to_owned()
}

/// A server without a cache, whose model spells letter by letter.
pub(super) fn spelling(said: &str) -> TestApp {
    let app = TestApp::new().continuity(|policy| policy.memory = None);
    let letters: Vec<TokenId> = said.chars().flat_map(|letter| app.ids(&letter.to_string())).chain([IM_END]).collect();
    app.script(letters)
}

pub(super) fn continuing(previous: &Value, more: &Value) -> Value {
    with(json!({ "previous_response_id": previous["id"], "include": ["token_ids"] }), more)
}

pub(super) fn tool(name: &str) -> Value {
    json!([{ "type": "function", "name": name, "parameters": { "type": "object" } }])
}

#[tokio::test]
async fn tools_stay_and_others_begin_the_ids_anew() {
    let app = spelling("Hello Bob").reads_tool_calls();
    let first = create(&app, json!({ "input": "I am Bob.", "tools": tool("alpha") })).await;
    let same = [json!({ "input": "Go on" }), json!({ "input": "Go on", "tools": tool("alpha") })];
    for more in same {
        let next = create(&app, continuing(&first, &more)).await;
        assert_eq!(next["token_continuity"]["outcome"], "exact", "{more}");
        assert_eq!(next["tools"][0]["name"], "alpha");
    }
    for more in [tool("beta"), json!([])] {
        let next = create(&app, continuing(&first, &json!({ "input": "Go on", "tools": more }))).await;
        assert_eq!(next["token_continuity"]["outcome"], "retokenized", "{more}");
        let prompt = text(&app, &next).await;
        assert!(!prompt.contains("alpha") && prompt.contains("Hello Bob"), "{prompt}");
        assert_eq!(prompt.contains("beta"), more != json!([]), "{prompt}");
    }
}

#[tokio::test]
async fn ids_of_new_items_are_those_of_the_stored_conversation_or_refused() {
    let app = spelling("Hello Bob");
    let ask = |input: &str| json!({ "input": input, "include": ["token_ids"] });
    let (one, other) = (create(&app, ask("one")).await, create(&app, ask("another")).await);
    let user = json!({ "role": "user", "content": "Go on" });
    for previous in [&other, &one] {
        // Its own item again would stand in the prompt twice.
        let refused = app.post(PATH, continuing(previous, &json!({ "input": [one["output"][0], user] }))).await;
        assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("input[0].prompt_token_ids")));
    }
    let later = create(&app, continuing(&one, &with(ask("two"), &json!({ "store": false })))).await;
    let input = json!([{ "role": "user", "content": "two" }, later["output"][0], user]);
    let next = create(&app, continuing(&one, &json!({ "input": input }))).await;
    assert_eq!(
        (&next["token_continuity"]["outcome"], &next["token_continuity"]["warnings"]),
        (&json!("exact"), &json!([]))
    );
}

#[tokio::test]
async fn a_turn_ends_where_it_ended_however_often_it_was_stored() {
    let app = spelling("Hello Bob").continuity(|policy| policy.strict = true);
    let first = create(&app, json!({ "input": "one" })).await;
    let harness =
        json!([{ "role": "assistant", "content": "Said by a harness." }, { "role": "user", "content": "two" }]);
    let second = create(&app, json!({ "previous_response_id": first["id"], "input": harness })).await;
    let third = create(&app, continuing(&second, &json!({ "input": "three" }))).await;
    assert_eq!(third["token_continuity"]["warnings"], json!([]));
    let anew = create(&app, continuing(&third, &json!({ "input": "four", "instructions": "Be long." }))).await;
    let prompt = text(&app, &anew).await;
    assert!(prompt.contains("Hello Bob") && !prompt.contains("BobSaid"), "{prompt}");
}

#[tokio::test]
async fn a_conversation_that_was_cut_is_continued_whole() {
    let app = spelling("Hello Bob").max_model_len(200);
    let long = json!({ "input": "hello ".repeat(300), "truncation": "auto", "max_output_tokens": 1 });
    let first = create(&app, long).await;
    let more = json!({ "input": "Go on", "truncation": "auto", "return_token_continuity": true, "include": [] });
    let next = app.post(PATH, continuing(&first, &more)).await;
    assert_eq!(next.ok()["token_continuity"]["outcome"], "retokenized");
    let plain = app.post(PATH, continuing(&first, &json!({ "input": "Go on" }))).await;
    assert!(plain.error()["message"].as_str().unwrap().contains("maximum context length"), "{}", plain.text);
}

#[tokio::test]
async fn log_probs_of_a_text_begin_behind_the_reasoning() {
    let policy = ToolPolicy { reasoning: ReasoningParser::named("deepseek_r1"), ..ToolPolicy::default() };
    for interval in [1, 3, 1000] {
        let app = TestApp::new().tools(policy);
        let letters: Vec<TokenId> =
            "hm</think>The answer".chars().flat_map(|letter| app.ids(&letter.to_string())).chain([IM_END]).collect();
        let app = app.script(letters);
        let body = json!({ "input": "Hi", "include": ["message.output_text.logprobs"], "stream_interval": interval });
        let whole = create(&app, body.clone()).await;
        let names = |logprobs: &Value| {
            logprobs.as_array().unwrap().iter().map(|one| one["token"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let of_whole = names(&whole["output"][1]["content"][0]["logprobs"]);
        assert_eq!(of_whole[..10].concat(), "The answer", "{of_whole:?}");
        let events = streamed(&app, &body).await;
        let deltas = events.iter().filter(|event| event["type"] == "response.output_text.delta");
        let of_deltas: Vec<_> = deltas.flat_map(|event| names(&event["logprobs"])).collect();
        assert_eq!(of_whole[..of_deltas.len()], of_deltas[..], "every {interval}");
        assert!(of_deltas.len() >= 10, "every {interval}: {of_deltas:?}");
        let done = events.iter().find(|event| event["type"] == "response.output_text.done").unwrap();
        assert_eq!(names(&done["logprobs"]), of_whole);
    }
}

#[tokio::test]
async fn log_probs_of_chosen_ids_are_all_shown() {
    let app = TestApp::new().says("Hello there");
    for top in [json!(null), json!(2)] {
        let body = json!({ "input": "Hi", "include": ["message.output_text.logprobs"], "top_logprobs": top,
                           "logprob_token_ids": [5, 9, 12] });
        let response = create(&app, body).await;
        let logprobs = response["output"][0]["content"][0]["logprobs"].as_array().unwrap().clone();
        assert!(!logprobs.is_empty());
        for token in logprobs {
            // The sampled token is the first.
            assert_eq!(token["top_logprobs"].as_array().unwrap().len(), 4, "{token}");
        }
    }
}

#[tokio::test]
async fn what_would_have_to_be_dropped_is_refused_by_name() {
    let app = TestApp::new().says("Hello");
    let reasoning = |more: Value| with(json!({ "type": "reasoning", "id": "rs_1" }), &more);
    let items = [
        reasoning(json!({ "content": "LOST" })),
        reasoning(json!({ "summary": "LOST" })),
        reasoning(json!({ "content": ["LOST"] })),
        reasoning(json!({ "content": [{ "type": "reasoning_text", "text": 5 }] })),
        json!({ "type": "function_call_output", "call_id": "c", "output": "5", "prompt_token_ids": [1] }),
        json!({ "role": "user", "content": [{ "type": "input_file", "file_id": "x" }] }),
        json!({ "type": "item_reference", "id": "x" }),
    ];
    for item in items {
        let refused = app.post(PATH, json!({ "input": [{ "role": "user", "content": "Hi" }, item] })).await;
        assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("input[1]")), "{item}");
    }
    let list = app.post(PATH, json!({ "input": [["message", "user", "hi"]] })).await;
    assert_eq!((list.status, &list.error()["param"]), (400, &json!("body.input.0")));
    let half = json!({ "role": "assistant", "content": "x", "prompt_token_ids": [1] });
    let input = json!([{ "role": "user", "content": "Hi" }, half, { "role": "user", "content": "Go on" }]);
    let refused = app.post(PATH, json!({ "input": input, "instructions": "Be brief." })).await;
    assert_eq!(refused.error()["param"], "input[1].generation_token_ids", "{}", refused.text);
}

#[tokio::test]
async fn fields_that_cannot_hold_are_refused_by_their_own_names() {
    let app = TestApp::new().reads_tool_calls();
    let custom = json!([{ "type": "custom", "name": "f" }, { "type": "function", "name": "f" }]);
    let cases = [
        (json!({ "n": 3 }), "n"),
        (json!({ "prompt_logprobs": 1 }), "prompt_logprobs"),
        (json!({ "truncate_prompt_tokens": 5 }), "truncate_prompt_tokens"),
        (json!({ "max_output_tokens": 0 }), "max_output_tokens"),
        (json!({ "context_management": [{ "type": "compaction" }] }), "context_management"),
        (json!({ "tools": tool("f"), "tool_choice": { "type": "custom", "name": "f" } }), "tool_choice"),
        (json!({ "tool_choice": "other" }), "tool_choice"),
        (json!({ "tools": custom }), "tools[1]"),
        (json!({ "request_id": "x".repeat(5_000) }), "request_id"),
    ];
    for (more, param) in cases {
        let refused = app.post(PATH, with(json!({ "input": "Hi" }), &more)).await;
        assert_eq!((refused.status, &refused.error()["param"]), (400, &json!(param)), "{more}: {}", refused.text);
    }
}

#[tokio::test]
async fn listed_items_have_ids_of_their_own() {
    let app = TestApp::new().says("Hello");
    let twin = json!({ "role": "user", "id": "dup", "content": "Hi" });
    let response = create(&app, json!({ "input": [twin, twin, twin] })).await;
    let path = format!("{PATH}/{}", response["id"].as_str().unwrap());
    let (mut after, mut seen) = (String::new(), Vec::new());
    loop {
        let list = app.get(&format!("{path}/input_items?order=asc&limit=1{after}")).await.ok();
        seen.push(list["last_id"].clone());
        if list["has_more"] == json!(false) {
            break;
        }
        after = format!("&after={}", list["last_id"].as_str().unwrap());
        assert!(seen.len() <= 3, "{seen:?}");
    }
    assert_eq!(seen.len(), 3);
    assert_eq!(app.get(&format!("{PATH}/%ff")).await.error()["param"], "path.response_id");
}

/// Each record has the conversation before it with its ids, so that whole records would take its square.
#[tokio::test]
async fn a_long_conversation_takes_what_its_last_turn_takes_a_few_times() {
    let directory = tempfile::tempdir().unwrap();
    let room = 2 << 20;
    let stores: [Arc<dyn ResponseStore>; 2] = [
        Arc::new(MemoryStore::new(room, Duration::from_hours(1))),
        Arc::new(DiskStore::open(&directory.path().join("responses.redb"), room).unwrap()),
    ];
    for store in stores {
        let app = spelling("Hello Bob").max_model_len(100_000).response_store(Arc::clone(&store));
        let first = create(&app, json!({ "input": "one" })).await;
        let mut chain = vec![first];
        for turn in 0..40 {
            let lines: Vec<_> = (0..60).map(|line| format!("In turn {turn} the tool said {}.", turn * line)).collect();
            let input = lines.join("\n");
            chain.push(create(&app, continuing(&chain[turn], &json!({ "input": input }))).await);
        }
        let lengths: Vec<usize> = chain
            .iter()
            .map(|response| store.get(response["id"].as_str().unwrap()).unwrap().expect("nothing had to leave").1.len())
            .collect();
        let whole: u64 = lengths.iter().map(|length| *length as u64).sum();
        assert!(whole > 4 * room, "{whole} bytes, which nearly have room");
        assert!(lengths[40] > 10 * lengths[3], "{lengths:?}");
        for response in &chain {
            let path = format!("{PATH}/{}?include[]=token_ids", response["id"].as_str().unwrap());
            let read = call(&app, "GET", &path).await.ok();
            assert_eq!(read["output"][0]["id"], response["output"][0]["id"]);
            if response != &chain[0] {
                assert_eq!(ids(&read), ids(response));
            }
        }
    }
}

/// The bytes that are kept of 50 turns, in memory and in a file: far fewer than those of their records, growing with the turns and
/// not with their square, and none that a deleted turn alone had.
#[tokio::test]
async fn fifty_turns_are_kept_once_and_each_goes_without_the_others() {
    let directory = tempfile::tempdir().unwrap();
    kept_once(Arc::new(MemoryStore::new(1 << 30, Duration::from_hours(1)))).await;
    kept_once(Arc::new(DiskStore::open(&directory.path().join("responses.redb"), 1 << 30).unwrap())).await;
}

async fn kept_once<S: ResponseStore + BatchStore + 'static>(store: Arc<S>) {
    let app = spelling("Hello Bob").max_model_len(100_000).response_store(Arc::clone(&store) as _);
    let (mut chain, mut whole, mut taken): (Vec<Value>, Vec<usize>, Vec<u64>) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..50 {
        let said: Vec<_> = (0..10).map(|line| format!("In turn {turn} the tool said {}.", turn * line)).collect();
        let more = json!({ "input": said.join("\n"), "include": ["token_ids"] });
        let response = create(&app, chain.last().map_or(more.clone(), |last| continuing(last, &more))).await;
        whole.push(store.get(response["id"].as_str().unwrap()).unwrap().unwrap().1.len());
        taken.push(store.kept_bytes().unwrap());
        chain.push(response);
    }
    let (all, last, kept) = (whole.iter().sum::<usize>() as u64, whole[49] as u64, taken[49]);
    println!("50 turns: {all} bytes of records, {last} of the last one, {kept} kept, {} of the first 25", taken[24]);
    // A file counts more of each part than memory does.
    assert!(kept < all / 2 && kept < 12 * last, "{kept} of {all}, the last one has {last}");
    // Twice the turns take twice the room; whole records would take four times as much.
    let (first, second) = (whole[..25].iter().sum::<usize>(), whole[25..].iter().sum::<usize>());
    assert!(second > 5 * first / 2, "whole records: {first} and {second}");
    assert!(2 * (kept - taken[24]) < 3 * taken[24], "{kept} of 50, {} of 25", taken[24]);
    // All but the last one go, and it is whole and goes on.
    for response in &chain[..49] {
        call(&app, "DELETE", &format!("{PATH}/{}", response["id"].as_str().unwrap())).await.ok();
    }
    assert!(store.kept_bytes().unwrap() < 3 * last, "{} for a record of {last}", store.kept_bytes().unwrap());
    let path = format!("{PATH}/{}", chain[49]["id"].as_str().unwrap());
    assert_eq!(ids(&call(&app, "GET", &format!("{path}?include[]=token_ids")).await.ok()), ids(&chain[49]));
    let next = create(&app, continuing(&chain[49], &json!({ "input": "Go on" }))).await;
    assert_eq!(next["token_continuity"]["outcome"], "exact");
    for response in [&chain[49], &next] {
        call(&app, "DELETE", &format!("{PATH}/{}", response["id"].as_str().unwrap())).await.ok();
    }
    assert_eq!(store.kept_bytes().unwrap(), 0);
}

/// The ids of a prompt and of the answer to it, as the last item of a response has them.
fn known(item: &Value) -> Vec<Value> {
    let of = |field: &str| item[field].as_array().unwrap().clone();
    [of("prompt_token_ids"), of("generation_token_ids")].concat()
}

#[tokio::test]
async fn an_answer_that_was_cut_off_is_continued_where_it_is_the_last_item() {
    let app = TestApp::new().says("Hello there, my friend").continuity(|policy| policy.memory = None);
    let user = json!({ "role": "user", "content": "Hi" });
    let short = json!({ "input": [user], "max_output_tokens": 2, "include": ["token_ids"] });
    let cut = create(&app, short).await["output"][0].clone();
    let prompt = async |items: Value| {
        let next = create(&app, json!({ "input": items, "return_token_ids": true, "max_output_tokens": 2 })).await;
        (next["output"][0]["prompt_token_ids"].as_array().unwrap().clone(), next["token_continuity"]["outcome"].clone())
    };
    assert_eq!(cut["status"], "incomplete");
    assert_eq!(prompt(json!([user, cut])).await, (known(&cut), json!("exact")));
    let mut other = cut.clone();
    other["status"] = json!("in_progress");
    assert_eq!(prompt(json!([user, other])).await.0, known(&cut));
    // Neither of these is an answer that was cut off.
    other["status"] = json!("completed");
    let (finished, _) = prompt(json!([user, other])).await;
    assert!(finished.starts_with(&known(&cut)) && finished.len() > known(&cut).len(), "{finished:?}");
    other["status"] = json!("incomplete");
    other["content"] = other["content"][0]["text"].take();
    assert_eq!(prompt(json!([user, other])).await.0, finished);
    let (behind, _) = prompt(json!([user, cut, user])).await;
    assert!(behind.starts_with(&known(&cut)) && behind.len() > finished.len(), "{behind:?}");
    let thought = json!({ "type": "reasoning", "id": "rs_1", "status": "incomplete", "summary": [],
        "content": [{ "type": "reasoning_text", "text": "I th" }] });
    let refused = app.post(PATH, json!({ "input": [user, thought] })).await;
    assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("input[1]")), "{}", refused.text);
}

/// Both together are the answer: with their ids, in a chain of stored responses, and where it is put into ids anew.
#[tokio::test]
async fn an_answer_that_two_responses_gave_is_one_message() {
    let app = TestApp::new().says("Hello there, my friend").continuity(|policy| {
        policy.memory = None;
        policy.strict = true;
    });
    let (user, more) = (json!({ "role": "user", "content": "Hi" }), json!({ "role": "user", "content": "Go on" }));
    let short = json!({ "input": [user], "max_output_tokens": 2, "include": ["token_ids"] });
    let cut = create(&app, short).await["output"][0].clone();
    let second = create(&app, json!({ "input": [user, cut], "include": ["token_ids"] })).await;
    let rest = &second["output"][0];
    assert_eq!(rest["prompt_token_ids"], json!(known(&cut)));
    let sent = json!({ "input": [user, cut, rest, more], "include": ["token_ids"] });
    for body in [sent, continuing(&second, &json!({ "input": [more] }))] {
        let next = create(&app, body).await;
        let continuity = &next["token_continuity"];
        assert_eq!((&continuity["outcome"], &continuity["warnings"]), (&json!("exact"), &json!([])), "{next}");
        assert!(known(&next["output"][0]).starts_with(&known(rest)), "{next}");
        let later = create(&app, continuing(&next, &json!({ "input": [more] }))).await;
        assert_eq!(later["token_continuity"]["outcome"], "exact", "{later}");
        let anew = continuing(&later, &json!({ "input": "Go on", "instructions": "Be long." }));
        let prompt = text(&app, &create(&app, anew).await).await;
        let texts = [&cut, rest].map(|item| item["content"][0]["text"].as_str().unwrap());
        assert!(prompt.contains(&texts.concat()), "{prompt}");
    }
    // What only looks like it has its own ids.
    let mut other = rest.clone();
    other["prompt_token_ids"].as_array_mut().unwrap().pop();
    let refused = app.post(PATH, json!({ "input": [user, cut, other, more] })).await;
    assert_eq!(refused.status, 400, "{}", refused.text);
}

#[tokio::test]
async fn messages_of_roles_that_nobody_shows_and_without_content_are_refused() {
    let app = TestApp::new().says("x");
    for (item, said) in [
        (json!({ "role": "alien", "content": "Hi" }), "the role \"alien\""),
        (json!({ "role": "user" }), "needs a `content`"),
        (json!({ "role": "user", "contents": "Hi" }), "needs a `content`"),
        (json!({ "id": "msg_1", "role": "system", "content": null }), "needs a `content`"),
    ] {
        let refused = app.post(PATH, json!({ "input": [{ "role": "user", "content": "Hi" }, item] })).await;
        assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("input[1]")), "{}", refused.text);
        assert!(refused.error()["message"].as_str().unwrap().contains(said), "{}", refused.text);
    }
    for role in ["user", "system", "developer", "assistant", "tool"] {
        create(&app, json!({ "input": [{ "role": role, "content": [], "tool_call_id": "c" }] })).await;
    }
}

#[tokio::test]
async fn what_a_response_would_leave_out_is_refused() {
    let app = TestApp::new().says("x");
    for (field, value) in [
        ("routed_experts", json!([[[0, 1]]])),
        ("include_reasoning", json!(false)),
        ("media_io_kwargs", json!({ "image": { "a": 1 } })),
    ] {
        let refused = app.post(PATH, json!({ "input": "Hi", field: value })).await;
        assert_eq!((refused.status, &refused.error()["param"]), (400, &json!(field)), "{}", refused.text);
    }
    create(&app, json!({ "input": "Hi", "routed_experts": null, "include_reasoning": true, "media_io_kwargs": null }))
        .await;
}

#[tokio::test]
async fn a_custom_tool_that_is_called_with_more_than_a_text_is_called_as_a_function() {
    let cases = [
        (r#"{"input": "ls"}"#, "custom_tool_call", "input", "ls"),
        (r#"{"input": "ls", "cwd": "/tmp"}"#, "function_call", "arguments", r#"{"input": "ls", "cwd": "/tmp"}"#),
        (r#"{"cmd": "ls"}"#, "function_call", "arguments", r#"{"cmd": "ls"}"#),
        (r#"{"input": 3}"#, "function_call", "arguments", r#"{"input": 3}"#),
    ];
    for (arguments, kind, field, said) in cases {
        // A format that holds no calls to their schema.
        let policy = ToolPolicy { parser: ToolParser::named("xlam"), auto: true, ..ToolPolicy::default() };
        let text = format!("[{{\"name\": \"c\", \"arguments\": {arguments}}}]");
        let app = TestApp::new().tools(policy).says(&text);
        let tools = json!([{ "type": "custom", "name": "c" }]);
        let body = json!({ "input": "hello", "tools": tools, "include": ["token_ids"] });
        let first = app.post("/v1/responses", body).await.ok();
        let item = &first["output"][0];
        assert_eq!((&item["type"], &item["name"], &item[field]), (&json!(kind), &json!("c"), &json!(said)), "{item}");
        // What comes back is what the model said, and so its ids are.
        let output = json!({ "type": format!("{kind}_output"), "call_id": item["call_id"], "output": "x" });
        let body = json!({ "input": [{ "role": "user", "content": "hello" }, item, output], "tools": tools });
        let next = app.post("/v1/responses", body).await;
        let told = next.headers["x-token-continuity"].to_str().unwrap();
        assert!(told.contains("exact") && !told.contains("warnings"), "{arguments}: {told}");
    }
}
