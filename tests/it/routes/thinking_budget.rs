//! `thinking_token_budget` and `thinking.budget_tokens`: after so many tokens of thoughts, their end is sampled.

use serde_json::{Value, json};
use tito::{TokenId, parser::ReasoningParser, turn::ToolPolicy};

use crate::it::{
    app::{IM_END, MODEL, TestApp},
    streaming::adds_up,
};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";
const GENERATE: &str = "/inference/v1/generate";
const START: TokenId = 324;
const END: TokenId = 325;

fn reading(parser: &str) -> TestApp {
    TestApp::new().tools(ToolPolicy { reasoning: ReasoningParser::named(parser), ..ToolPolicy::default() })
}

/// A model that would write `text`, and puts what it is forced to in the place of what it would write.
fn writing(parser: &str, text: &str) -> TestApp {
    let app = reading(parser);
    let ids = app.spelled(text);
    app.script(ids.into_iter().chain([IM_END]))
}

fn asking(budget: i64, more: &Value) -> Value {
    let mut body = json!({
        "messages": [{ "role": "user", "content": "hello" }], "thinking_token_budget": budget, "return_token_ids": true,
    });
    body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
    body
}

async fn choice(app: &TestApp, body: Value) -> Value {
    app.post(CHAT, body).await.ok()["choices"][0].clone()
}

/// What a chat's answer thinks and says.
async fn said(app: &TestApp, budget: i64, more: Value) -> (Value, Value) {
    let choice = choice(app, asking(budget, &more)).await;
    (choice["message"]["reasoning"].clone(), choice["message"]["content"].clone())
}

#[tokio::test]
async fn thoughts_end_after_their_budget_and_the_answer_follows() {
    // The letter `x` stands where the end is forced.
    let app = || writing("qwen3", "<think>abcxhi");
    let answer = choice(&app(), asking(3, &json!({ "temperature": 0 }))).await;
    assert_eq!(answer["message"]["reasoning"], "abc", "{answer}");
    assert_eq!(answer["message"]["content"], "hi");
    assert_eq!((&answer["token_ids"][0], &answer["token_ids"][4]), (&json!(START), &json!(END)));
    adds_up(app, CHAT, asking(3, &json!({ "temperature": 0 }))).await;
}

#[tokio::test]
async fn thoughts_that_end_in_time_and_budgets_of_no_size_change_nothing() {
    let text = "<think>abc</think>hi";
    for budget in [-1, 3, 4, 1_000_000, i64::MAX] {
        assert_eq!(said(&writing("qwen3", text), budget, json!({})).await, (json!("abc"), json!("hi")), "{budget}");
    }
    // A sequence whose odds are the model's, with everything that sampling has.
    let more = json!({
        "seed": 7, "temperature": 0.9, "top_p": 0.9, "repetition_penalty": 1.2, "max_tokens": 60, "logprobs": true,
    });
    let with = |budget| asking(budget, &more);
    let app = reading("qwen3");
    let (free, bounded) = (choice(&app, with(-1)).await, choice(&app, with(60)).await);
    assert_eq!(free, bounded);
    assert!(free["token_ids"].as_array().unwrap().len() > 2, "{free}");
}

#[tokio::test]
async fn a_budget_of_nothing_leaves_the_marks() {
    assert_eq!(said(&writing("qwen3", "<think>xhi"), 0, json!({})).await, (Value::Null, json!("hi")));
    // Where the model does not begin with the mark, it is one of the two that it samples.
    let answer = choice(&writing("qwen3", "abhi"), asking(0, &json!({}))).await;
    let first = answer["token_ids"][0].as_u64().unwrap();
    assert!([START, END].map(u64::from).contains(&first), "{answer}");
    assert_eq!(answer["message"]["reasoning"], Value::Null, "{answer}");
}

#[tokio::test]
async fn thoughts_without_the_mark_that_begins_them_are_counted_where_the_answer_is_read_so() {
    for parser in ["deepseek_r1", "qwen3", "kimi_k2"] {
        assert_eq!(said(&writing(parser, "abxhi"), 2, json!({})).await, (json!("ab"), json!("hi")), "{parser}");
    }
}

#[tokio::test]
async fn a_start_within_thoughts_does_not_begin_them_anew() {
    assert_eq!(said(&writing("qwen3", "<think>a<think>bxhi"), 2, json!({})).await, (json!("ab"), json!("hi")));
}

#[tokio::test]
async fn thoughts_that_begin_again_have_the_budget_again() {
    let text = "<think>ab</think>c<think>dexf";
    assert_eq!(said(&writing("glm45", text), 2, json!({})).await, (json!("abde"), json!("cf")));
    // Elsewhere, a start after the end is text of the answer.
    let text = "<think>ab</think>c<think>defg";
    assert_eq!(said(&writing("qwen3", text), 2, json!({})).await, (json!("ab"), json!("c<think>defg")));
}

#[tokio::test]
async fn thoughts_that_a_model_begins_unasked_have_the_budget_where_they_are_read() {
    let off = json!({ "chat_template_kwargs": { "enable_thinking": false }, "stop": ["b"] });
    let text = "hi<think>abxc";
    assert_eq!(said(&writing("deepseek_v4", text), 2, off.clone()).await, (json!("ab"), json!("hic")));
    let read = choice(&writing("deepseek_v4", text), asking(2, &off)).await;
    assert_eq!((&read["finish_reason"], &read["token_ids"][5]), (&json!("stop"), &json!(END)), "{read}");
    assert_eq!(said(&writing("glm45", "hi<think>acxc"), 2, off).await, (Value::Null, json!("hi<think>acxc")));
}

#[tokio::test]
async fn a_call_ends_thoughts_too() {
    let text = "<think>ab<tool_call>cdef";
    assert_eq!(said(&writing("qwen3", text), 3, json!({})).await, (json!("ab"), json!("<tool_call>cdef")));
}

#[tokio::test]
async fn a_template_that_turns_thinking_off_leaves_nothing_to_bound() {
    let more = json!({ "chat_template_kwargs": { "enable_thinking": false } });
    assert_eq!(said(&writing("qwen3", "abcd"), 2, more).await, (Value::Null, json!("abcd")));
}

#[tokio::test]
async fn log_probs_of_a_forced_token_are_those_of_the_models_own_distribution_or_of_the_one_sampled_from() {
    use tito::sampling::LogprobsMode;

    let forced = async |mode| {
        let app = writing("qwen3", "<think>abcxhi").policy(|policy| policy.logprobs_mode = mode);
        let ids = choice(&app, asking(3, &json!({ "logprobs": true }))).await;
        ids["logprobs"]["content"][4]["logprob"].as_f64().unwrap()
    };
    assert!(forced(LogprobsMode::Raw).await < -20.0);
    assert!(forced(LogprobsMode::Processed).await.abs() < 1e-9);
}

#[tokio::test]
async fn every_sequence_has_the_whole_budget() {
    let app = writing("qwen3", "<think>abcxhi");
    let answer = app.post(CHAT, asking(3, &json!({ "n": 3, "seed": 1 }))).await.ok();
    for choice in answer["choices"].as_array().unwrap() {
        assert_eq!((&choice["message"]["reasoning"], &choice["token_ids"][4]), (&json!("abc"), &json!(END)));
    }
}

#[tokio::test]
async fn a_structured_output_follows_the_forced_end() {
    let more = json!({ "structured_outputs": { "choice": ["ab", "ba"] } });
    let (reasoning, content) = said(&writing("qwen3", "<think>abczzzzz"), 3, more).await;
    assert_eq!(reasoning, "abc");
    assert!(["ab", "ba"].contains(&content.as_str().unwrap()), "{content}");
}

#[tokio::test]
async fn a_forced_call_follows_the_forced_end() {
    use tito::parser::ToolParser;

    let app = writing("qwen3", &format!("<think>abc{}", "z".repeat(200)));
    let policy = ToolPolicy {
        parser: ToolParser::named("hermes"),
        auto: true,
        reasoning: ReasoningParser::named("qwen3"),
        ..ToolPolicy::default()
    };
    let parameters = json!({ "type": "object", "properties": { "a": { "enum": ["b"] } }, "required": ["a"] });
    let tool = json!({ "type": "function", "function": { "name": "f", "parameters": parameters, "strict": true } });
    let more = json!({ "tools": [tool], "tool_choice": "required", "parallel_tool_calls": false, "temperature": 0 });
    let choice = choice(&app.tools(policy), asking(3, &more)).await;
    assert_eq!(choice["message"]["reasoning"], "abc", "{choice}");
    assert_eq!(choice["message"]["tool_calls"][0]["function"]["arguments"], "{\"a\": \"b\"}", "{choice}");
}

#[tokio::test]
async fn thoughts_that_the_prompt_leaves_open_count_and_those_of_earlier_turns_do_not() {
    let app = writing("qwen3", "abcdefgh");
    // The ids that a prompt of these ends with, and the number of letters after which the end is forced.
    let turn = |text: &str| [vec![1], app.spelled(text)].concat();
    let cases = [
        (turn("<think>"), Some(4)),
        (turn("<think>xy"), Some(2)),
        (turn("<think>wxyz"), Some(0)),
        (turn("<think>vwxyz"), Some(0)),
        (turn("<think>wxyz</think>"), None),
        (turn("wxyz"), None),
        ([turn("<think>wxyz"), vec![2], turn("a")].concat(), None),
        ([turn("<think>wxyz"), vec![2], turn("<think>")].concat(), Some(4)),
    ];
    for (prompt, forced) in cases {
        let params = json!({ "thinking_token_budget": 4, "max_tokens": 7, "temperature": 0 });
        let generate = json!({ "token_ids": prompt, "sampling_params": params });
        let ids = app.post(GENERATE, generate).await.ok()["choices"][0]["token_ids"].clone();
        let mut expected = app.spelled("abcdefg");
        if let Some(at) = forced {
            expected[at] = END;
        }
        assert_eq!(ids, json!(expected), "{prompt:?}");
        let completion = json!({
            "prompt": prompt, "thinking_token_budget": 4, "max_tokens": 7, "temperature": 0, "return_token_ids": true,
        });
        assert_eq!(app.post(COMPLETIONS, completion).await.ok()["choices"][0]["token_ids"], ids, "{prompt:?}");
    }
    // Several prompts of one request each have their own count.
    let prompts = [turn("<think>wxyz"), turn("<think>xy")];
    let body = json!({ "prompt": prompts, "thinking_token_budget": 4, "max_tokens": 3, "return_token_ids": true });
    let answer = app.post(COMPLETIONS, body).await.ok();
    assert_eq!(
        (&answer["choices"][0]["token_ids"][0], &answer["choices"][1]["token_ids"][2]),
        (&json!(END), &json!(END))
    );
}

#[tokio::test]
async fn a_continued_turn_has_a_budget_of_its_own_and_the_known_ids_stay() {
    let app = writing("qwen3", "<think>abcxhi");
    let first = choice(&app, asking(3, &json!({}))).await;
    let mut messages = json!([{ "role": "user", "content": "hello" }]);
    let list = messages.as_array_mut().unwrap();
    list.push(first["message"].clone());
    list.push(json!({ "role": "user", "content": "you" }));
    let answer = app.post(CHAT, asking(3, &json!({ "messages": messages }))).await.ok();
    let known = [&first["message"]["prompt_token_ids"], &first["message"]["generation_token_ids"]];
    let known: Vec<_> = known.iter().flat_map(|ids| ids.as_array().unwrap().clone()).collect();
    let prompt = answer["prompt_token_ids"].as_array().unwrap();
    assert_eq!(prompt[..known.len()], known);
    assert_eq!(answer["choices"][0]["token_ids"], first["token_ids"]);
}

#[tokio::test]
async fn a_rendered_chat_keeps_its_budget() {
    let app = writing("qwen3", "<think>abcxhi");
    let body = asking(3, &json!({ "temperature": 0 }));
    let rendered = app.post("/v1/chat/completions/render", body.clone()).await.ok();
    assert_eq!(rendered["sampling_params"]["thinking_token_budget"], 3);
    let generated = app.post(GENERATE, rendered).await.ok();
    assert_eq!(generated["choices"][0]["token_ids"], choice(&app, body).await["token_ids"]);
}

#[tokio::test]
async fn messages_and_responses_keep_budgets() {
    let thoughts = "a".repeat(1024);
    let app = || writing("qwen3", &format!("<think>{thoughts}xhi"));
    let body = json!({
        "model": MODEL, "max_tokens": 2000, "messages": [{ "role": "user", "content": "hello" }],
        "thinking": { "type": "enabled", "budget_tokens": 1024 },
    });
    let answer = app().post(MESSAGES, body.clone()).await.ok();
    assert_eq!(answer["content"][0]["thinking"], thoughts.as_str(), "{answer}");
    assert_eq!(answer["content"][1]["text"], "hi");
    let mut twice = body;
    twice["thinking_token_budget"] = json!(5);
    assert_eq!(app().post(MESSAGES, twice).await.status, 400);

    let body = json!({ "model": MODEL, "input": "hello", "thinking_token_budget": 3 });
    let answer = writing("qwen3", "<think>abcxhi").post(RESPONSES, body).await.ok();
    assert_eq!(answer["output"][0]["content"][0]["text"], "abc", "{answer}");
    assert_eq!(answer["output"][1]["content"][0]["text"], "hi");
}

#[tokio::test]
async fn budgets_that_could_not_be_kept_are_refused_with_the_reason() {
    let unread = || TestApp::new().says("hello");
    let parser = |name| writing(name, "hello");
    let cases = [
        (unread(), json!({}), "no reasoning parser is: start the server with --reasoning-parser"),
        (parser("openai_gptoss"), json!({}), "no mark ends the thoughts of this server's --reasoning-parser"),
        (parser("minimax_m2_append_think"), json!({}), "no mark ends the thoughts"),
        (parser("qwen3"), json!({ "allowed_token_ids": [5, START] }), "`allowed_token_ids` or `bad_words` forbid"),
        (parser("qwen3"), json!({ "bad_words": ["</think>"] }), "`allowed_token_ids` or `bad_words` forbid"),
    ];
    for (app, more, reason) in cases {
        let refused = app.post(CHAT, asking(3, &more)).await;
        let error = refused.error();
        let message = error["message"].as_str().unwrap();
        assert_eq!((refused.status, &error["param"]), (400, &json!("thinking_token_budget")), "{message}");
        assert!(message.starts_with("thinking_token_budget (thinking.budget_tokens) is set but "), "{message}");
        assert!(message.contains(reason), "{message}");
        assert_eq!(app.post(CHAT, asking(-1, &json!({}))).await.status, 200);
    }
    let ids = json!({ "token_ids": [5], "sampling_params": { "thinking_token_budget": 3 } });
    assert_eq!(unread().post(GENERATE, ids).await.status, 400);
    let completion = json!({ "prompt": "hello", "thinking_token_budget": 3 });
    assert_eq!(unread().post(COMPLETIONS, completion).await.status, 400);
    let message = json!({
        "model": MODEL, "max_tokens": 2000, "messages": [{ "role": "user", "content": "hello" }],
        "thinking": { "type": "enabled", "budget_tokens": 1024 },
    });
    for path in [MESSAGES, "/v1/messages/count_tokens"] {
        let refused = unread().post(path, message.clone()).await;
        assert_eq!(refused.status, 400);
        assert!(refused.text.contains("thinking.budget_tokens"), "{}", refused.text);
    }
}
