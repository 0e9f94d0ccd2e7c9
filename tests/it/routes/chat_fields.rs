//! Fields of a chat that decide who speaks, what is repeated, how much of the prompt is kept and when it ends.

use serde_json::{Value, json};
use tito::TokenId;

use crate::it::app::{Answer, ENDOFTEXT, IM_END, TestApp};

const PATH: &str = "/v1/chat/completions";

async fn ask(app: &TestApp, more: Value) -> Answer {
    let mut body = json!({ "messages": [{ "role": "user", "content": "hello" }], "return_token_ids": true });
    body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
    app.post(PATH, body).await
}

async fn prompt(app: &TestApp, more: Value) -> String {
    let answer = ask(app, more).await.ok();
    let ids: Vec<TokenId> = serde_json::from_value(answer["prompt_token_ids"].clone()).unwrap();
    app.tokenizer().decode(&ids, false).unwrap()
}

/// An answer that was begun and is to be continued.
fn begun() -> Value {
    json!({
        "messages": [{ "role": "user", "content": "hello" }, { "role": "assistant", "content": "you" }],
        "add_generation_prompt": false, "continue_final_message": true,
    })
}

fn with(mut body: Value, mut more: Value) -> Value {
    body.as_object_mut().unwrap().append(more.as_object_mut().unwrap());
    body
}

fn message(choice: &Value) -> (&str, &str) {
    (choice["message"]["role"].as_str().unwrap(), choice["message"]["content"].as_str().unwrap())
}

/// The streamed deltas of choice 0, without the rest of their chunks.
fn deltas(events: &[Value]) -> Vec<Value> {
    let choices = events.iter().filter_map(|event| event["choices"].get(0));
    choices.filter(|choice| choice["index"] == 0).map(|choice| choice["delta"].clone()).collect()
}

#[tokio::test]
async fn the_answer_to_a_prompt_without_the_start_of_one_is_by_who_spoke_last() {
    let app = TestApp::new().says(" world");
    let answer = ask(&app, json!({ "add_generation_prompt": false })).await.ok();
    assert_eq!(message(&answer["choices"][0]), ("user", " world"));
    let events = ask(&app, json!({ "add_generation_prompt": false, "stream": true })).await.events();
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "user");
    let answer = ask(&app, json!({ "add_generation_prompt": true })).await.ok();
    assert_eq!(message(&answer["choices"][0]), ("assistant", " world"));
}

#[tokio::test]
async fn the_server_says_who_answers() {
    let app = TestApp::new().says(" world").requests(|policy| policy.response_role = "model".to_owned());
    let answer = ask(&app, json!({})).await.ok();
    assert_eq!(message(&answer["choices"][0]), ("model", " world"));
    let events = ask(&app, json!({ "stream": true })).await.events();
    assert_eq!(events[0]["choices"][0]["delta"], json!({ "role": "model", "content": "" }));
}

#[tokio::test]
async fn echo_puts_the_message_that_is_continued_in_front_and_scores_the_prompt() {
    let app = TestApp::new().says(" world");
    let answer = ask(&app, with(begun(), json!({ "echo": true }))).await.ok();
    assert_eq!(message(&answer["choices"][0]), ("assistant", "you world"));
    let scores = answer["prompt_logprobs"].as_array().unwrap();
    assert_eq!(scores.len(), answer["prompt_token_ids"].as_array().unwrap().len());
    assert_eq!((&scores[0], scores[1].as_object().unwrap().len()), (&Value::Null, 1));
    let more = json!({ "echo": true, "logprobs": true, "top_logprobs": 3 });
    let answer = ask(&app, with(begun(), more)).await.ok();
    assert!(answer["prompt_logprobs"][1].as_object().unwrap().len() >= 3);
    let own = ask(&app, with(begun(), json!({ "echo": true, "prompt_logprobs": 2 }))).await.ok();
    assert!((2..=3).contains(&own["prompt_logprobs"][1].as_object().unwrap().len()));
}

#[tokio::test]
async fn echo_repeats_nothing_that_another_role_said() {
    let app = TestApp::new().says(" world");
    let answer = ask(&app, json!({ "echo": true })).await.ok();
    assert_eq!(message(&answer["choices"][0]), ("assistant", " world"));
    let answer = ask(&app, json!({ "echo": true, "add_generation_prompt": false })).await.ok();
    assert_eq!(message(&answer["choices"][0]), ("user", "hello world"));
}

#[tokio::test]
async fn parts_are_repeated_on_a_line_each() {
    let app = TestApp::new().says("!");
    let parts = json!([{ "type": "text", "text": "hello" }, { "type": "text", "text": "you" }]);
    let body =
        json!({ "messages": [{ "role": "user", "content": parts }], "add_generation_prompt": false, "echo": true });
    assert_eq!(message(&app.post(PATH, body).await.ok()["choices"][0]).1, "hello\nyou!");
}

#[tokio::test]
async fn a_stream_repeats_behind_the_first_chunk_of_every_choice() {
    let app = TestApp::new().says(" world");
    let more = json!({ "echo": true, "stream": true, "n": 2, "seed": 1 });
    let events = ask(&app, with(begun(), more)).await.events();
    let heads: Vec<_> =
        events[..4].iter().map(|event| (&event["choices"][0]["index"], &event["choices"][0]["delta"])).collect();
    let (role, echo) = (json!({ "role": "assistant", "content": "" }), json!({ "content": "you" }));
    assert_eq!(heads, [(&json!(0), &role), (&json!(1), &role), (&json!(0), &echo), (&json!(1), &echo)]);
    let said: String = deltas(&events).iter().filter_map(|delta| delta["content"].as_str()).collect();
    assert_eq!(said, "you world");
    assert!(events[2]["choices"][0].get("token_ids").is_none() && events[2].get("prompt_token_ids").is_none());
}

#[tokio::test]
async fn the_prompt_is_told_as_text_where_that_is_asked_for() {
    let app = TestApp::new().says(" world");
    let text = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(ask(&app, json!({ "return_prompt_text": true })).await.ok()["prompt_text"], text);
    assert_eq!(ask(&app, json!({})).await.ok()["prompt_text"], Value::Null);
    let events = ask(&app, json!({ "return_prompt_text": true, "stream": true })).await.events();
    assert_eq!(events[0]["prompt_text"], text);
    assert!(events[1].get("prompt_text").is_none());
    let given = json!({ "return_prompt_text": true, "kv_transfer_params": { "prompt_token_ids": [5, 6] } });
    assert_eq!(ask(&app, given).await.ok()["prompt_text"], Value::Null, "there never was a text");
}

#[tokio::test]
async fn the_text_of_a_prompt_that_continues_ids_is_what_the_ids_say() {
    let app = TestApp::new().says(" world");
    let ids = app.ids("<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n");
    // Not how the tokenizer would write it.
    let generated: Vec<TokenId> = ["y", "o", "u"].iter().flat_map(|letter| app.ids(letter)).chain([IM_END]).collect();
    let body = json!({
        "messages": [
            { "role": "user", "content": "hello" },
            { "role": "assistant", "content": "you", "prompt_token_ids": ids, "generation_token_ids": generated },
            { "role": "user", "content": "the" },
        ],
        "return_prompt_text": true, "return_token_ids": true,
    });
    let answer = app.post(PATH, body).await.ok();
    let ids: Vec<TokenId> = serde_json::from_value(answer["prompt_token_ids"].clone()).unwrap();
    assert_eq!(answer["prompt_text"], app.tokenizer().decode(&ids, false).unwrap());
    assert_eq!(answer["token_continuity"]["outcome"], "exact");
}

#[tokio::test]
async fn a_prompt_is_cut_at_its_start_or_where_the_request_says() {
    let app = TestApp::new().says(" world");
    let whole = app.ids("<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n");
    let cut = |more: Value| async { ask(&app, more).await.ok()["prompt_token_ids"].clone() };
    assert_eq!(cut(json!({ "truncate_prompt_tokens": 3 })).await, json!(whole[whole.len() - 3..]));
    let left = json!({ "truncate_prompt_tokens": 3, "truncation_side": "left" });
    assert_eq!(cut(left).await, json!(whole[whole.len() - 3..]));
    let right = json!({ "truncate_prompt_tokens": 3, "truncation_side": "right" });
    assert_eq!(cut(right).await, json!(whole[..3]));
    for enough in [json!({ "truncate_prompt_tokens": 4096 }), json!({ "truncate_prompt_tokens": -1, "max_tokens": 2 })]
    {
        assert_eq!(cut(enough).await, json!(whole));
    }
}

#[tokio::test]
async fn minus_one_keeps_what_the_context_holds_with_room_for_a_token() {
    let app = TestApp::new().says(" world").max_model_len(8);
    let answer = ask(&app, json!({ "truncate_prompt_tokens": -1, "max_tokens": 5 })).await.ok();
    assert_eq!(
        answer["usage"],
        json!({ "prompt_tokens": 7, "total_tokens": 8, "completion_tokens": 1,
                                        "prompt_tokens_details": null, "completion_tokens_details": null })
    );
}

#[tokio::test]
async fn a_limit_over_the_context_is_refused() {
    let refused = ask(&TestApp::new(), json!({ "truncate_prompt_tokens": 5000 })).await;
    let message = "truncate_prompt_tokens=5000 cannot be greater than max_model_len = 4096. Please request a smaller \
                   truncation size. (parameter=truncate_prompt_tokens, value=5000)";
    assert_eq!((refused.status, &refused.error()["message"]), (400, &json!(message)));
    assert_eq!(refused.error()["param"], "truncate_prompt_tokens");
}

#[tokio::test]
async fn ids_that_the_prompt_has_to_start_with_are_never_cut() {
    let app = TestApp::new().says(" world");
    let bundle = |ids: Vec<TokenId>| {
        json!({
            "messages": [
                { "role": "user", "content": "hello" },
                { "role": "assistant", "content": "you", "prompt_token_ids": ids, "generation_token_ids": [5, IM_END] },
                { "role": "user", "content": "the" },
            ],
        })
    };
    let ids = app.ids("<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n");
    let spliced = with(bundle(ids), json!({ "truncate_prompt_tokens": 5 }));
    let given = json!({ "prompt_token_ids": [5, 6, 7, 8], "truncate_prompt_tokens": 2 });
    for body in [spliced.clone(), given] {
        let refused = ask(&app, body).await;
        assert_eq!(
            (refused.status, &refused.error()["param"]),
            (400, &json!("truncate_prompt_tokens")),
            "{}",
            refused.text
        );
    }
    assert_eq!(ask(&app, with(spliced, json!({ "truncate_prompt_tokens": 500 }))).await.status, 200);
}

#[tokio::test]
async fn a_turn_after_a_cut_one_is_not_continued_from_what_was_left() {
    let app = TestApp::new().says("you");
    let cut = ask(&app, json!({ "truncate_prompt_tokens": 3, "session_id": "a" })).await.ok();
    assert_eq!(cut["usage"]["prompt_tokens"], 3);
    let messages = json!([
        { "role": "user", "content": "hello" }, { "role": "assistant", "content": "you" },
        { "role": "user", "content": "the" },
    ]);
    let shown = prompt(&app, json!({ "messages": messages, "session_id": "a" })).await;
    assert!(shown.starts_with("<|im_start|>user\nhello<|im_end|>"), "{shown}");
}

/// The ids of a message are its whole conversation, which those of a cut prompt are not.
#[tokio::test]
async fn a_message_after_a_cut_prompt_carries_no_ids() {
    let app = TestApp::new().says("you");
    let answer = ask(&app, json!({ "truncate_prompt_tokens": 3 })).await.ok();
    let choice = &answer["choices"][0];
    assert_eq!(answer["prompt_token_ids"].as_array().unwrap().len(), 3);
    assert!(choice["token_ids"].is_array() && choice["message"].get("prompt_token_ids").is_none(), "{choice}");
    let whole = ask(&app, json!({ "truncate_prompt_tokens": 500 })).await.ok();
    assert!(whole["choices"][0]["message"]["prompt_token_ids"].is_array());
    let messages = json!([{ "role": "user", "content": "hello" }]);
    let body = json!({
        "model": "tiny", "messages": messages, "max_tokens": 5, "truncate_prompt_tokens": 3, "return_token_ids": true
    });
    // Elsewhere they stand nowhere else.
    let refused = app.post("/v1/messages", body.clone()).await;
    assert!(refused.status == 400 && refused.text.contains("`truncate_prompt_tokens`"), "{}", refused.text);
    let mut without = body;
    without["return_token_ids"] = json!(false);
    assert_eq!(app.post("/v1/messages", without).await.status, 200);
}

#[tokio::test]
async fn a_generation_that_loops_is_ended_where_that_is_asked_for() {
    let script = [5, 7, 8, 7, 8, 7, 8, 9, IM_END];
    let app = TestApp::new().script(script);
    let looping = json!({ "max_pattern_size": 2, "min_count": 3 });
    let answer = ask(&app, json!({ "repetition_detection": looping, "ignore_eos": true })).await.ok();
    let choice = &answer["choices"][0];
    assert_eq!(choice["token_ids"], json!(script[..7]));
    assert_eq!(
        (&choice["finish_reason"], &choice["stop_reason"]),
        (&json!("repetition"), &json!("repetition_detected"))
    );
    let events = ask(&app, json!({ "repetition_detection": looping, "stream": true })).await.events();
    let last = &events.last().unwrap()["choices"][0];
    assert_eq!((&last["finish_reason"], &last["stop_reason"]), (&json!("repetition"), &json!("repetition_detected")));
    for off in
        [json!(null), json!({}), json!({ "max_pattern_size": 0 }), json!({ "max_pattern_size": 1, "min_count": 3 })]
    {
        let answer = ask(&app, json!({ "repetition_detection": off })).await.ok();
        assert_eq!(answer["choices"][0]["finish_reason"], "stop", "{off}");
    }
}

#[tokio::test]
async fn a_loop_counts_behind_the_least_tokens_and_behind_every_other_end() {
    let app = TestApp::new().script([7; 9]);
    let looping = json!({ "max_pattern_size": 1, "min_count": 2 });
    let choice = |more: Value| async {
        let body = with(json!({ "repetition_detection": looping }), more);
        ask(&app, body).await.ok()["choices"][0].clone()
    };
    let held = choice(json!({ "min_tokens": 5 })).await;
    assert_eq!((held["token_ids"].as_array().unwrap().len(), &held["finish_reason"]), (5, &json!("repetition")));
    assert_eq!(choice(json!({ "max_tokens": 2 })).await["finish_reason"], "length");
    assert_eq!(choice(json!({ "stop_token_ids": [7] })).await["stop_reason"], 7);
    let twice = app.tokenizer().decode(&[7, 7], false).unwrap();
    let stopped = choice(json!({ "stop": twice })).await;
    assert_eq!((&stopped["finish_reason"], &stopped["stop_reason"]), (&json!("stop"), &json!(twice)));
}

#[tokio::test]
async fn loops_that_make_no_sense_and_budgets_for_thinking_are_refused() {
    let app = TestApp::new();
    let cases = [
        (json!({ "repetition_detection": { "max_pattern_size": 3 } }), "min_count must be >= 2 to detect repetitive"),
        (
            json!({ "repetition_detection": { "max_pattern_size": 1, "min_pattern_size": 2, "min_count": 2 } }),
            "max_pattern_size, min_pattern_size must be >=0, with min_pattern_size <= max_pattern_size.",
        ),
        (
            json!({ "thinking_token_budget": 10 }),
            "thinking_token_budget (thinking.budget_tokens) is set but no reasoning parser is",
        ),
        (json!({ "thinking_token_budget": -2 }), "`thinking_token_budget` must be a non-negative integer or -1"),
        (
            json!({ "mm_processor_kwargs": { "a": 1 } }),
            "Per-request mm_processor_kwargs are disabled by default because they can change multimodal preprocessing",
        ),
    ];
    for (more, message) in cases {
        let refused = ask(&app, more.clone()).await;
        assert_eq!(refused.status, 400, "{more}");
        assert!(refused.error()["message"].as_str().unwrap().starts_with(message), "{}", refused.text);
    }
    assert_eq!(ask(&app, json!({ "thinking_token_budget": -1 })).await.status, 200);
}

#[tokio::test]
async fn fields_that_change_nothing_here_are_taken() {
    let app = TestApp::new().says("hello");
    let plain = ask(&app, json!({ "seed": 1 })).await.ok()["choices"].clone();
    let fields = [
        json!({ "user": "a", "metadata": { "a": "b" }, "store": true, "service_tier": "auto" }),
        json!({ "priority": 5, "length_penalty": 2.0, "use_beam_search": false, "watermarking": true }),
        json!({ "vllm_xargs": { "a": 1 }, "ec_transfer_params": {}, "mm_processor_kwargs": {}, "media_io_kwargs": null }),
        json!({ "spaces_between_special_tokens": false, "routed_experts_prompt_start": 3 }),
    ];
    for more in fields {
        assert_eq!(ask(&app, with(more.clone(), json!({ "seed": 1 }))).await.ok()["choices"], plain, "{more}");
    }
}

#[tokio::test]
async fn functions_of_the_time_before_tools_are_refused_by_name() {
    let app = TestApp::new().says("hello");
    let function = json!({ "name": "f", "parameters": { "type": "object" } });
    for (field, value) in [("functions", json!([function])), ("function_call", json!({ "name": "f" }))] {
        let refused = ask(&app, json!({ field: value })).await;
        assert_eq!((refused.status, &refused.error()["param"]), (400, &json!(field)), "{}", refused.text);
    }
    ask(&app, json!({ "functions": [], "function_call": null })).await.ok();
}

#[tokio::test]
async fn chosen_tokens_are_shown_behind_the_sampled_one_in_the_order_of_the_request() {
    let app = TestApp::new().script([9, IM_END]);
    let more = json!({ "logprobs": true, "logprob_token_ids": [30, 9, 4, 30], "return_tokens_as_token_ids": true });
    let answer = ask(&app, more).await.ok();
    let names = |place: usize| -> Vec<Value> {
        let shown = &answer["choices"][0]["logprobs"]["content"][place]["top_logprobs"];
        shown.as_array().unwrap().iter().map(|other| other["token"].clone()).collect()
    };
    assert_eq!(names(0), ["token_id:9", "token_id:30", "token_id:4"]);
    assert_eq!(names(1), ["token_id:2", "token_id:30", "token_id:9", "token_id:4"]);
    let none = ask(&app, json!({ "logprob_token_ids": [], "logprobs": true, "top_logprobs": 2 })).await.ok();
    assert_eq!(none["choices"][0]["logprobs"]["content"][0]["top_logprobs"].as_array().unwrap().len(), 2);
    let unasked = ask(&app, json!({ "logprob_token_ids": [] })).await.ok();
    assert_eq!(unasked["choices"][0]["logprobs"], Value::Null);
}

#[tokio::test]
async fn chunks_in_the_middle_have_as_many_tokens_as_asked_for_and_those_at_the_ends_go_at_once() {
    let app = TestApp::new().script([5, 6, 7, 8, 9, 10, ENDOFTEXT]);
    let widths = |app: TestApp, more: Value| async move {
        let events = ask(&app, with(more, json!({ "stream": true }))).await.events();
        let ids = events.iter().filter_map(|event| event["choices"][0]["token_ids"].as_array().map(Vec::len));
        ids.collect::<Vec<_>>()
    };
    assert_eq!(widths(app, json!({ "stream_interval": 4 })).await, [1, 4, 2]);
    let app = TestApp::new().script([5, 6, 7, 8, 9, ENDOFTEXT]).requests(|policy| policy.stream_interval = 2);
    assert_eq!(widths(app, json!({ "stream_interval": 1 })).await, [1, 2, 2, 1], "the server's own is the least");
    let refused = ask(&TestApp::new(), json!({ "stream_interval": 0 })).await;
    assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("body.stream_interval")));
}

#[tokio::test]
async fn usage_so_far_has_a_place_for_details_and_the_last_chunk_has_none() {
    let app = TestApp::new().says("hello");
    let options = json!({ "include_usage": true, "continuous_usage_stats": true });
    let events = ask(&app, json!({ "stream": true, "stream_options": options })).await.events();
    let (last, others) = events.split_last().unwrap();
    for event in others {
        assert_eq!(event["usage"]["completion_tokens_details"], Value::Null);
        assert_eq!(event["usage"].as_object().unwrap().len(), 4, "{event}");
    }
    assert_eq!(last["usage"].as_object().unwrap().len(), 3);
}

#[tokio::test]
async fn the_server_may_limit_every_answer() {
    let app = TestApp::new().policy(|policy| policy.most_tokens = Some(3));
    for more in [json!({}), json!({ "max_tokens": 10 })] {
        let answer = ask(&app, with(more, json!({ "ignore_eos": true }))).await.ok();
        assert_eq!(answer["usage"]["completion_tokens"], 3);
    }
    let answer = ask(&app, json!({ "ignore_eos": true, "max_tokens": 2 })).await.ok();
    assert_eq!(answer["usage"]["completion_tokens"], 2);
}

#[tokio::test]
async fn the_session_may_be_among_the_arguments_of_extensions() {
    let app = TestApp::new().says("you");
    let session = json!({ "vllm_xargs": { "session_id": "a" } });
    ask(&app, session.clone()).await.ok();
    let messages = json!([
        { "role": "user", "content": "hello" }, { "role": "assistant", "content": "you" },
        { "role": "user", "content": "the" },
    ]);
    let answer = ask(&app, with(session, json!({ "messages": messages }))).await.ok();
    assert_eq!(answer["token_continuity"]["matched_by"], "session", "{}", answer["token_continuity"]);
}

#[tokio::test]
async fn a_prompt_in_ids_is_used_with_echo_too() {
    let app = TestApp::new().says(" world");
    let ids = json!({ "echo": true, "kv_transfer_params": { "prompt_token_ids": [5, 6] } });
    let answer = ask(&app, with(begun(), ids)).await.ok();
    assert_eq!(answer["prompt_token_ids"], json!([5, 6]));
    assert_eq!(message(&answer["choices"][0]).1, "you world");
}
