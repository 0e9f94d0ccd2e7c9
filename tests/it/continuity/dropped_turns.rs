//! Turns that a client drops beside ids which the server does not remember.

use serde_json::{Value, json};
use tito::{
    TokenId,
    parser::{ReasoningParser, ToolParser},
    turn::ToolPolicy,
};

use crate::it::app::{ENDOFTEXT, IM_END, TestApp};

const CHAT: &str = "/v1/chat/completions";
const TURNS: usize = 5;

/// How an answer is written, by the number of its turn.
type Answer = fn(usize) -> String;

const ANSWERS: [(&str, Answer); 3] = [
    ("plain", |turn| format!("This is what I say in turn {turn}.")),
    ("thoughts", |turn| format!("<think>\nhm {turn}\n</think>\n\nThis is what I say in turn {turn}.")),
    ("thoughts now and then", |turn| {
        let thoughts = if turn % 2 == 0 { "<think>\nhm\n</think>\n\n" } else { "" };
        format!("{thoughts}This is what I say in turn {turn}.")
    }),
];

/// An app that remembers nothing.
fn app() -> TestApp {
    let policy = ToolPolicy { reasoning: ReasoningParser::named("qwen3"), ..ToolPolicy::default() };
    TestApp::new()
        .tools(policy)
        .chat_template(include_str!("../../golden/template/hermes.jinja"))
        .max_model_len(1 << 20)
        .continuity(|policy| policy.memory = None)
}

/// The messages of a conversation, of which only the last answer carries its ids, and a new question.
async fn conversation(answer: Answer) -> Vec<Value> {
    let app = app();
    let script = |turn| -> Vec<TokenId> { app.spelled(&answer(turn)).into_iter().chain([IM_END]).collect() };
    let app = self::app().scripts((0..TURNS).map(script));
    let question = |turn: usize| json!({ "role": "user", "content": format!("and question {turn}?") });
    let mut messages = vec![question(0)];
    for turn in 0..TURNS {
        let body = json!({ "messages": messages, "return_token_ids": true, "max_tokens": 1000 });
        messages.push(app.post(CHAT, body).await.ok()["choices"][0]["message"].clone());
        messages.push(question(turn + 1));
    }
    for message in &mut messages[..2 * TURNS - 1] {
        for field in ["prompt_token_ids", "generation_token_ids", "generation_log_probs"] {
            message.as_object_mut().unwrap().shift_remove(field);
        }
    }
    messages
}

/// The warnings of the next turn.
async fn warnings(messages: &[Value]) -> Value {
    let body = json!({ "messages": messages, "return_token_continuity": true, "max_tokens": 1 });
    let app = app().scripts([vec![IM_END]]);
    let answer = app.post(CHAT, body).await.ok();
    assert_eq!(answer["token_continuity"]["outcome"], "exact");
    answer["token_continuity"]["warnings"].clone()
}

#[tokio::test]
async fn a_turn_that_a_client_drops_is_reported_whatever_answers_begin_with() {
    for (name, answer) in ANSWERS {
        let messages = conversation(answer).await;
        assert_eq!(warnings(&messages).await, json!([]), "{name}");
        for turn in 0..TURNS - 1 {
            let dropped = [&messages[..=2 * turn], &messages[2 * turn + 3..]].concat();
            assert_eq!(warnings(&dropped).await, json!(["history_edited"]), "{name}, turn {turn}");
            let question = [&messages[..2 * turn], &messages[2 * turn + 2..]].concat();
            assert_eq!(
                warnings(&question).await,
                json!(["history_edited"]),
                "{name}, turn {turn} from its question on"
            );
        }
    }
}

/// A reader leaves marks out of such a text.
#[tokio::test]
async fn answers_with_thoughts_in_a_row_are_not_taken_for_edited_ones() {
    let answer = |turn| format!("<think>hm</think><think>{turn}</think>This is what I say in turn {turn}.");
    assert_eq!(warnings(&conversation(answer).await).await, json!([]));
}

/// Each took a minute and more where every place was compared with all that follows it.
#[tokio::test]
async fn answers_with_very_many_places_to_look_at_are_compared_all_the_same() {
    const PLACES: usize = 30_000;
    let app = app();
    let ids = |text: &str| app.spelled(text);
    let prompt = ids("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    for (content, repeated, end) in [
        ("ab", "abx<", "> b b"),
        ("a", "a<|im_end|>", "and so on"),
        ("x", "<think></think>", "y"),
        ("a", "<think>a", "y"),
    ] {
        let sampled = [&ids(&repeated.repeat(PLACES))[..], &ids(end), &[IM_END]].concat();
        let answer = json!({
            "role": "assistant", "content": content, "prompt_token_ids": prompt, "generation_token_ids": sampled,
        });
        let messages =
            [json!({ "role": "user", "content": "hi" }), answer, json!({ "role": "user", "content": "more" })];
        assert_ne!(warnings(&messages).await, json!([]), "{repeated}");
    }
}

/// Nothing stands before a text in some templates (`DialoGPT`).
#[tokio::test]
async fn an_answer_without_a_text_or_an_end_is_not_taken_for_a_dropped_turn() {
    let template = "{% for m in messages %}{{ m.content or '' }}{{ '<|im_end|>' }}{% endfor %}";
    let app = TestApp::new().chat_template(template).max_model_len(8192).continuity(|policy| policy.memory = None);
    let prompt = app.ids("hi<|im_end|>");
    for sampled in [vec![], vec![IM_END], app.ids("STOP")] {
        let answer = json!({
            "role": "assistant", "content": "", "prompt_token_ids": prompt, "generation_token_ids": sampled,
        });
        let messages =
            [json!({ "role": "user", "content": "hi" }), answer, json!({ "role": "user", "content": "more please" })];
        let body = json!({ "messages": messages, "return_token_continuity": true, "max_tokens": 1 });
        let answer = app.post(CHAT, body).await.ok();
        assert_eq!(answer["token_continuity"]["warnings"], json!([]), "{sampled:?}: {answer}");
    }
}

/// Whoever sends a required prefix does not say where the last answer begins in it.
#[tokio::test]
async fn a_required_prefix_says_what_an_answer_with_thoughts_and_calls_says() {
    let policy = ToolPolicy {
        reasoning: ReasoningParser::named("qwen3"),
        parser: ToolParser::named("hermes"),
        auto: true,
        ..ToolPolicy::default()
    };
    let app = TestApp::new()
        .tools(policy)
        .chat_template(include_str!("../../golden/template/hermes.jinja"))
        .max_model_len(8192)
        .continuity(|policy| policy.memory = None);
    let call = |arguments: &str| json!([{ "id": "c", "type": "function", "function": { "name": "f", "arguments": arguments } }]);
    let called = "No way.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"x\"}}\n</tool_call>";
    for (sampled, message, is_edited) in [
        ("<think>\nI ponder\n</think>\n\nNo way.", json!({ "content": "No way.", "reasoning": "I ponder" }), false),
        ("<think>\nI ponder\n</think>\n\nNo way.", json!({ "content": "No way.", "reasoning": "I did not" }), true),
        ("<think>\nI ponder\n</think>\n\nNo way.", json!({ "content": "No", "reasoning": "I ponder" }), true),
        (called, json!({ "content": "No way.", "tool_calls": call("{\"a\": \"x\"}") }), false),
        (called, json!({ "content": "No way.", "tool_calls": call("{\"a\": \"elsewhere\"}") }), true),
    ] {
        let user = json!({ "role": "user", "content": "hi" });
        let tools = json!([{ "type": "function", "function": { "name": "f" } }]);
        let body = json!({ "messages": [user], "tools": tools });
        let mut known: Vec<TokenId> =
            serde_json::from_value(app.post("/tokenize", body).await.ok()["tokens"].clone()).unwrap();
        known.extend(app.spelled(sampled).into_iter().chain([IM_END]));
        let mut answer = message.clone();
        answer["role"] = json!("assistant");
        let last = if message.get("tool_calls").is_some() {
            json!({ "role": "tool", "tool_call_id": "c", "content": "done" })
        } else {
            json!({ "role": "user", "content": "more" })
        };
        let body = json!({ "messages": [user, answer, last], "tools": tools, "required_prefix_token_ids": known,
            "return_token_continuity": true, "max_tokens": 1 });
        let answer = app.post(CHAT, body).await.ok();
        let expected = if is_edited { json!(["message_edited"]) } else { json!([]) };
        assert_eq!(answer["token_continuity"]["warnings"], expected, "{message}");
    }
}

/// What the message calls has to stand in the answer, not in what stands before it.
#[tokio::test]
async fn a_required_prefix_of_calls_is_compared_with_its_answer_alone() {
    let called = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"x\"}}\n</tool_call>";
    let call = |argument: &str| {
        let function = json!({ "name": "f", "arguments": json!({ "a": argument }).to_string() });
        json!({ "role": "assistant", "content": null,
            "tool_calls": [{ "id": "c", "type": "function", "function": function }] })
    };
    let tools = json!([{ "type": "function", "function": { "name": "f" } }]);
    let system = json!({ "role": "system", "content": "For example: f of \"elsewhere\" <tool_call> {" });
    let user = json!({ "role": "user", "content": "hi" });
    let result = |text: &str| json!({ "role": "tool", "tool_call_id": "c", "content": text });
    for parser in [None, ToolParser::named("hermes")] {
        let app = || {
            let policy = ToolPolicy { parser, auto: true, ..ToolPolicy::default() };
            TestApp::new()
                .tools(policy)
                .chat_template(include_str!("../../golden/template/hermes.jinja"))
                .max_model_len(8192)
                .continuity(|policy| policy.memory = None)
        };
        for before in [
            vec![system.clone(), user.clone()],
            vec![system.clone(), user.clone(), call("elsewhere"), result("done")],
            vec![user.clone(), call("x"), result("elsewhere"), json!({ "role": "user", "content": "hi" })],
        ] {
            let app = app();
            let asked = app.post("/tokenize", json!({ "messages": before, "tools": tools })).await.ok();
            let mut known: Vec<TokenId> = serde_json::from_value(asked["tokens"].clone()).unwrap();
            known.extend(app.spelled(called).into_iter().chain([IM_END]));
            for (argument, expected) in [("x", json!([])), ("elsewhere", json!(["message_edited"]))] {
                let messages = [&before[..], &[call(argument), result("and so on")]].concat();
                let body = json!({ "messages": messages, "tools": tools, "required_prefix_token_ids": known,
                    "return_token_continuity": true });
                let answer = app.post("/tokenize", body).await.ok();
                assert_eq!(answer["token_continuity"]["warnings"], expected, "{argument} {before:?}");
            }
        }
    }
}

/// A stop string ended it behind an end that was ignored.
#[tokio::test]
async fn an_answer_that_goes_on_behind_an_end_is_not_taken_for_two_turns() {
    let app = app();
    let mut messages = vec![json!({ "role": "user", "content": "hi" })];
    let asked = app.post("/tokenize", json!({ "messages": messages })).await.ok();
    let mut known: Vec<TokenId> = serde_json::from_value(asked["tokens"].clone()).unwrap();
    let first = [&app.spelled("Some words of mine.")[..], &[ENDOFTEXT], &app.spelled("F")].concat();
    messages.push(json!({ "role": "assistant", "content": "Some words of mine." }));
    messages.push(json!({ "role": "user", "content": "and so on" }));
    known.extend(first);
    known.extend(app.ids("<|im_end|>\n<|im_start|>user\nand so on<|im_end|>\n<|im_start|>assistant\n"));
    let sampled = [&app.spelled("fine")[..], &[IM_END]].concat();
    messages.push(json!({
        "role": "assistant", "content": "fine", "prompt_token_ids": known, "generation_token_ids": sampled,
    }));
    messages.push(json!({ "role": "user", "content": "more" }));
    assert_eq!(warnings(&messages).await, json!([]));
}
