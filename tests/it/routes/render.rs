//! `POST /v1/chat/completions/render` and `/v1/completions/render`: the request in ids.

use expect_test::expect;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::it::app::{MODEL, TestApp};

const CHAT: &str = "/v1/chat/completions/render";
const TEXT: &str = "/v1/completions/render";
/// A template that writes what is said, and nothing else.
const PLAIN: &str = "{% for message in messages %}{{ message.content }}{% endfor %}";

fn messages() -> Value {
    json!([{ "role": "user", "content": "hello" }])
}

#[tokio::test]
async fn a_greedy_chat_is_rendered_as_vllm_renders_it() {
    let body = json!({
        "model": MODEL, "messages": messages(), "temperature": 0, "max_tokens": 24, "request_id": "1"
    });
    let answer = TestApp::new().post(CHAT, body).await.ok();
    let mut shown = answer.clone();
    shown["token_ids"] = json!([]);
    expect![[r#"
        {
          "request_id": "chatcmpl-1",
          "token_ids": [],
          "token_offsets": null,
          "features": null,
          "content_parts": null,
          "sampling_params": {
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "repetition_penalty": 1.0,
            "temperature": 0.0,
            "stop": [],
            "stop_token_ids": [],
            "max_tokens": 24,
            "output_kind": 2,
            "skip_clone": true,
            "bad_words": [],
            "skip_reading_prefix_cache": false
          },
          "model": "tiny",
          "reasoning_ended": null,
          "reasoning_parser_kwargs": null,
          "return_token_ids": null,
          "output_mode": "tokens",
          "parse_context": {
            "tools": null,
            "tool_choice": "none",
            "parallel_tool_calls": true,
            "include_reasoning": true,
            "chat_template_kwargs": {},
            "history_tool_call_cnt": 0
          },
          "stream": false,
          "stream_options": null,
          "cache_salt": null,
          "priority": 0,
          "kv_transfer_params": null,
          "ec_transfer_params": null
        }"#]]
    .assert_eq(&format!("{shown:#}"));
    let tokenized = TestApp::new().post("/tokenize", json!({ "messages": messages() })).await.ok();
    assert_eq!(answer["token_ids"], tokenized["tokens"]);
}

#[tokio::test]
async fn every_parameter_is_written_down_defaults_of_the_model_included() {
    let app = TestApp::new().policy(|policy| {
        policy.defaults.top_p = Some(0.5);
        policy.defaults.max_new_tokens = Some(9);
    });
    let body = json!({
        "messages": messages(), "stream": true, "stream_options": { "include_usage": true }, "priority": 3, "n": 2,
        "seed": 4, "top_k": 7, "min_p": 0.1, "stop": ["abc", "é"], "stop_token_ids": [5, 5, 6], "ignore_eos": true,
        "min_tokens": 2, "logprobs": true, "top_logprobs": 3, "skip_special_tokens": false,
        "include_stop_str_in_output": false, "logit_bias": { "7": 500 }, "allowed_token_ids": [7, 8],
        "bad_words": ["you", "you"], "cache_salt": "s",
        "repetition_detection": { "max_pattern_size": 3, "min_count": 4 }
    });
    let answer = app.post(CHAT, body).await.ok();
    expect![[r#"
        {
          "n": 2,
          "presence_penalty": 0.0,
          "frequency_penalty": 0.0,
          "repetition_penalty": 1.0,
          "temperature": 1.0,
          "top_p": 0.5,
          "top_k": 7,
          "min_p": 0.1,
          "seed": 4,
          "stop": [
            "abc",
            "é"
          ],
          "stop_token_ids": [
            5,
            6
          ],
          "ignore_eos": true,
          "max_tokens": 9,
          "min_tokens": 2,
          "repetition_detection": {
            "max_pattern_size": 3,
            "min_pattern_size": null,
            "min_count": 4
          },
          "logprobs": 3,
          "skip_special_tokens": false,
          "output_kind": 1,
          "skip_clone": true,
          "output_text_buffer_length": 2,
          "logit_bias": {
            "7": 100.0
          },
          "allowed_token_ids": [
            7,
            8
          ],
          "bad_words": [
            "you"
          ],
          "skip_reading_prefix_cache": false
        }"#]]
    .assert_eq(&format!("{:#}", answer["sampling_params"]));
    assert_eq!(answer["stream_options"], json!({ "include_usage": true, "continuous_usage_stats": false }));
    let told = [&answer["stream"], &answer["priority"], &answer["cache_salt"]];
    assert_eq!(told, [&json!(true), &json!(3), &json!("s")]);
}

#[tokio::test]
async fn the_room_is_the_limit_and_no_room_is_an_error() {
    let app = TestApp::new().max_model_len(60);
    let rendered = app.post(CHAT, json!({ "messages": messages() })).await.ok();
    let prompt = rendered["token_ids"].as_array().unwrap().len();
    assert_eq!(rendered["sampling_params"]["max_tokens"], 60 - prompt);
    let long = json!([{ "role": "user", "content": "hello ".repeat(99) }]);
    let error = app.post(CHAT, json!({ "messages": long })).await.error();
    assert_eq!(error["param"], "input_tokens");
}

#[tokio::test]
async fn offsets_say_where_each_token_stands() {
    let app = TestApp::new();
    let body = json!({ "prompt": "hello wörld", "return_token_offsets": true, "add_special_tokens": false });
    let answer = app.post(TEXT, body).await.ok();
    let offsets: Vec<(usize, usize)> = serde_json::from_value(answer[0]["token_offsets"].clone()).unwrap();
    assert_eq!(offsets.len(), answer[0]["token_ids"].as_array().unwrap().len());
    assert_eq!((offsets.first().unwrap().0, offsets.last().unwrap().1), (0, "hello wörld".chars().count()));
    assert!(offsets.windows(2).all(|pair| pair[0].0 <= pair[1].0));
    // Ids that the text would not encode to have no place in it.
    let split = [app.ids("hel"), app.ids("lo")].concat();
    assert_ne!(split, app.ids("hello"));
    let answer = app.post(TEXT, json!({ "prompt": split, "return_token_offsets": true })).await.ok();
    assert_eq!(answer[0]["token_offsets"], Value::Null);
}

/// Whether each of `offsets` spans, in `text`, what its token says; a token that is a part of a character spans all of it.
fn spans_its_tokens(app: &TestApp, text: &str, rendered: &Value) -> bool {
    let characters: Vec<char> = text.chars().collect();
    let ids: Vec<u32> = serde_json::from_value(rendered["token_ids"].clone()).unwrap();
    let offsets: Vec<(usize, usize)> = serde_json::from_value(rendered["token_offsets"].clone()).unwrap();
    let spans = |(id, (start, end)): (&u32, &(usize, usize))| {
        let said = app.tokenizer().decode(&[*id], false).unwrap();
        let span: String = characters[*start..*end].iter().collect();
        // The tokenizer takes white space off the ends of what a token spans.
        said.contains('\u{fffd}') || span.trim() == said.trim()
    };
    ids.len() == offsets.len() && ids.iter().zip(&offsets).all(spans)
}

/// A render with offsets of `text`, cut to `keep` tokens, by each endpoint that answers offsets.
async fn with_offsets(app: &TestApp, text: &str, keep: usize, side: Option<&str>) -> Vec<(String, Value)> {
    let fields = json!({
        "return_token_offsets": true, "truncate_prompt_tokens": keep, "truncation_side": side, "max_tokens": 1,
    });
    let messages = json!([{ "role": "user", "content": text }]);
    let ids = app.ids(text);
    let mut rendered = Vec::new();
    for (path, key, value) in [
        (TEXT, "prompt", json!(text)),
        (TEXT, "prompt", json!(ids)),
        (TEXT, "prompt", json!([text, text])),
        (CHAT, "messages", messages.clone()),
        ("/v1/messages/render", "messages", messages),
        ("/v1/responses/render", "input", json!(text)),
    ] {
        let mut body = fields.clone();
        body[key] = value;
        if path.starts_with("/v1/messages") {
            body["model"] = json!(MODEL);
        }
        if path.starts_with("/v1/responses") {
            // It has `truncation` instead, which keeps what the context holds.
            for own in ["truncate_prompt_tokens", "truncation_side", "max_tokens"] {
                body.as_object_mut().unwrap().remove(own);
            }
            body["truncation"] = json!("auto");
            body["max_output_tokens"] = json!(1);
        }
        let answer = app.post(path, body).await.ok();
        let answers = answer.as_array().cloned().unwrap_or_else(|| vec![answer]);
        rendered.extend(answers.into_iter().map(|answer| (path.to_owned(), answer)));
    }
    rendered
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn what_offsets_span_is_what_the_token_says_whatever_is_cut_off(
        words in prop::collection::vec("(hello|world|wörld|you|the| |<b>|[a-z]{1,4}|日本|[.,!?])", 1..12),
        keep in 1_usize..20,
        side in prop::option::of(prop::sample::select(vec!["left", "right"])),
    ) {
        let text = format!("a{}z", words.join(" "));
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            // So short a context that a response is cut too.
            let app = TestApp::new().chat_template(PLAIN).max_model_len(24);
            for (path, rendered) in with_offsets(&app, &text, keep, side).await {
                assert!(spans_its_tokens(&app, &text, &rendered), "{path}: {text:?}: {rendered}");
            }
        });
    }
}

#[tokio::test]
async fn offsets_of_the_last_tokens_are_those_in_the_whole_text() {
    let app = TestApp::new();
    let text = "The quick brown fox jumps over the lazy dog.";
    for side in [None, Some("left"), Some("right")] {
        let rendered = with_offsets(&app, text, 4, side).await.remove(0).1;
        let offsets: Vec<(usize, usize)> = serde_json::from_value(rendered["token_offsets"].clone()).unwrap();
        assert_eq!(offsets.len(), 4);
        match side {
            Some("right") => assert_eq!(offsets[0].0, 0),
            _ => assert!(offsets[0].0 > 0 && offsets[3].1 == text.len(), "{offsets:?}"),
        }
    }
}

#[tokio::test]
async fn each_prompt_is_a_request_of_its_own() {
    let app = TestApp::new();
    let body = json!({ "prompt": ["hello", "you"], "max_tokens": 300, "logprobs": 1, "request_id": "a", "echo": true });
    let answer = app.post(TEXT, body).await.ok();
    let ids: Vec<_> = answer.as_array().unwrap().iter().map(|request| request["request_id"].clone()).collect();
    assert_eq!(ids, ["cmpl-a-0", "cmpl-a-1"]);
    assert_eq!(answer[1]["token_ids"], json!(app.ids("you")));
    let params = &answer[0]["sampling_params"];
    assert_eq!([&params["logprobs"], &params["prompt_logprobs"], &params["max_tokens"]], [1, 1, 300]);
    assert_eq!(params["skip_reading_prefix_cache"], true);
    let one = app.post(TEXT, json!({ "prompt": "hello", "request_id": "a" })).await.ok();
    // vLLM leaves 16 out, which its generate then takes for no limit at all.
    assert_eq!((&one[0]["request_id"], &one[0]["sampling_params"]["max_tokens"]), (&json!("cmpl-a"), &json!(16)));
}

#[tokio::test]
async fn ids_on_messages_are_continued_as_in_chat() {
    let app = TestApp::new().says("you");
    let first =
        app.post("/v1/chat/completions", json!({ "messages": messages(), "return_token_ids": true })).await.ok();
    let mut history = messages().as_array().unwrap().clone();
    history.push(first["choices"][0]["message"].clone());
    history.push(json!({ "role": "user", "content": "world" }));
    let body = json!({ "messages": history, "return_token_ids": true, "max_tokens": 1 });
    let rendered = app.post(CHAT, body.clone()).await;
    assert!(rendered.headers["x-token-continuity"].to_str().unwrap().starts_with("message; outcome=exact"));
    let chat = app.post("/v1/chat/completions", body).await.ok();
    assert_eq!(rendered.ok()["token_ids"], chat["prompt_token_ids"]);
}

#[tokio::test]
async fn what_cannot_be_written_down_is_refused() {
    let app = TestApp::new().reads_tool_calls();
    let tools = json!([{ "type": "function", "function": { "name": "f" } }]);
    for choice in [json!("required"), json!({ "type": "function", "function": { "name": "f" } })] {
        let body = json!({ "messages": messages(), "tools": tools, "tool_choice": choice });
        let error = app.post(CHAT, body).await.error();
        assert_eq!((&error["code"], &error["param"]), (&json!(400), &json!("tool_choice")));
    }
    let error = app.post(CHAT, json!({ "messages": messages(), "use_beam_search": true })).await.error();
    assert_eq!(error["message"], "Beam search is not supported by the render endpoint");
    // Tool calls are read out of special tokens too.
    let auto = app.post(CHAT, json!({ "messages": messages(), "tools": tools })).await.ok();
    assert_eq!(auto["sampling_params"]["skip_special_tokens"], false);
}

#[tokio::test]
async fn a_chat_that_is_repeated_is_scored_as_without_a_render() {
    let body = json!({ "messages": messages(), "echo": true, "add_generation_prompt": false });
    for (more, scored) in [(json!({}), 0), (json!({ "logprobs": true, "top_logprobs": 2 }), 2)] {
        let mut body = body.clone();
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let rendered = TestApp::new().post(CHAT, body).await.ok();
        assert_eq!(rendered["sampling_params"]["prompt_logprobs"], scored, "{more}");
    }
}

/// A completion that is rendered, generated and derendered has the scores of its prompt.
#[tokio::test]
async fn scores_of_a_prompt_survive_a_derender() {
    let app = TestApp::new().says("you");
    let body = json!({ "prompt": "hello you", "prompt_logprobs": 1, "max_tokens": 2, "request_id": "1" });
    let direct = app.post("/v1/completions", body.clone()).await.ok();
    let rendered = app.post(TEXT, body.clone()).await.ok()[0].clone();
    let generated = app.post("/inference/v1/generate", rendered).await.ok();
    let given = json!({ "completion_request": body, "generate_responses": [generated] });
    let derendered = app.post("/v1/completions/derender", given).await.ok();
    let scores = |answer: &Value| answer["choices"][0]["prompt_logprobs"].clone();
    assert!(scores(&direct).is_array(), "{direct}");
    assert_eq!(scores(&derendered), scores(&direct));
}
