//! Reasoning that is read out of an answer's text, ahead of its calls, and the ids, which know nothing of it.

use expect_test::expect;
use serde_json::{Value, json};
use tito::{
    parser::{ReasoningParser, ToolParser},
    turn::ToolPolicy,
};

use crate::it::{
    app::{IM_END, TestApp, redacted},
    streaming::adds_up,
};

const PATH: &str = "/v1/chat/completions";
const THOUGHT: &str = "<think>\nhello you\n</think>\n\n";
const CALL: &str = r#"<tool_call>{"name": "weather", "arguments": {"city": "Køge"}}</tool_call>"#;

fn asking(more: &Value) -> Value {
    let mut body = json!({ "messages": [{ "role": "user", "content": "hello" }] });
    body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
    body
}

fn with_tools(more: &Value) -> Value {
    let tool = |name| json!({ "type": "function", "function": { "name": name, "parameters": { "type": "object" } } });
    let mut body = asking(more);
    body["tools"] = json!([tool("weather"), tool("time")]);
    body
}

/// A server with these parsers, whose model writes one token for each character of `text`, and those of `marks` whole.
fn spelled(reasoning: Option<&str>, tools: Option<&str>, text: &str) -> TestApp {
    let policy = ToolPolicy {
        parser: tools.map(|name| ToolParser::named(name).unwrap()),
        auto: tools.is_some(),
        reasoning: reasoning.map(|name| ReasoningParser::named(name).unwrap()),
        ..ToolPolicy::default()
    };
    let app = TestApp::new().tools(policy);
    let ids = app.spelled(text);
    app.script(ids.into_iter().chain([IM_END]))
}

fn thinking(name: &str, text: &str) -> TestApp {
    spelled(Some(name), None, text)
}

#[tokio::test]
async fn tokens_of_thoughts_that_begin_unasked_are_counted() {
    let off = json!({ "chat_template_kwargs": { "enable_thinking": false } });
    for (name, text, thoughts) in
        [("deepseek_v4", "hi<think>abc</think>d", 3), ("glm45", "hi<think>abc</think>d", 0), ("deepseek_v4", "hi", 0)]
    {
        let answer = answer(&thinking(name, text), asking(&off)).await;
        let counted = &answer["usage"]["completion_tokens_details"]["reasoning_tokens"];
        assert_eq!(counted.as_u64().unwrap_or_default(), thoughts, "{name} {text}: {answer}");
    }
}

async fn answer(app: &TestApp, body: Value) -> Value {
    app.post(PATH, body).await.ok()
}

async fn streamed(app: &TestApp, mut body: Value) -> Vec<Value> {
    body["stream"] = json!(true);
    app.post(PATH, body).await.events()
}

/// What the events say, in a line each.
fn deltas(events: &[Value]) -> String {
    let deltas = events.iter().filter_map(|event| Some(event["choices"].as_array()?.first()?["delta"].to_string()));
    deltas.collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn reasoning_stands_where_vllm_puts_it() {
    let mut answer = answer(&thinking("qwen3", &format!("{THOUGHT}hi")), asking(&json!({}))).await;
    expect![[r#"
        {
          "role": "assistant",
          "content": "\n\nhi",
          "refusal": null,
          "annotations": null,
          "audio": null,
          "function_call": null,
          "reasoning": "\nhello you\n"
        }"#]]
    .assert_eq(&format!("{:#}", answer["choices"][0]["message"].take()));
    let details = json!({ "reasoning_tokens": "\nhello you\n".len() });
    assert_eq!(answer["usage"]["completion_tokens_details"], details);
    let plain = TestApp::new().says("hi").post(PATH, asking(&json!({}))).await.ok();
    assert_eq!(plain["usage"]["completion_tokens_details"], Value::Null);
    assert_eq!(plain["choices"][0]["message"]["reasoning"], Value::Null);
}

/// Marks of a checkpoint that have a suffix, whole and in a stream of single characters.
#[tokio::test]
async fn marks_with_a_suffix_are_read_in_streams_too() {
    let marks = ["<think:6e>", "</think:6e>", "<tool_calls:6e>", "</tool_calls:6e>"].map(str::to_owned);
    let call = "<tool_calls:6e><tool_call:6e>weather<tool_sep:6e><arg_key:6e>city</arg_key:6e>\
                <arg_value:6e>K<b></arg_value:6e></tool_call:6e></tool_calls:6e>";
    for (name, call) in [("hy_v3", call.to_owned()), ("hy_v4", call.replace("<tool_sep:6e>", ""))] {
        let parser = ToolParser::named(name).unwrap().of_vocabulary(&mut marks.clone().into_iter(), None).unwrap();
        let reasoning =
            ReasoningParser::named(name).unwrap().of_vocabulary(&mut marks.clone().into_iter(), None).unwrap();
        let policy =
            ToolPolicy { parser: Some(parser), auto: true, reasoning: Some(reasoning), ..ToolPolicy::default() };
        let app = TestApp::new().tools(policy);
        let text = format!("<think:6e>a</think></think:6e>b<tool_calls>{call}");
        let ids: Vec<_> = app.spelled(&text).into_iter().chain([IM_END]).collect();
        let app = app.scripts(vec![ids.clone(), ids]);
        let body = with_tools(&json!({ "reasoning_effort": "high" }));
        let whole = answer(&app, body.clone()).await["choices"][0]["message"].take();
        assert_eq!([&whole["reasoning"], &whole["content"]], ["a</think>", "b<tool_calls>"], "{name}");
        let [called] = &whole["tool_calls"].as_array().unwrap()[..] else { panic!("{whole}") };
        assert_eq!(called["function"], json!({ "name": "weather", "arguments": "{\"city\": \"K<b>\"}" }));
        let events = streamed(&app, body).await;
        let said = |of: &dyn Fn(&Value) -> Value| {
            let deltas = events.iter().filter_map(|event| event["choices"].as_array()?.first());
            deltas.filter_map(|choice| of(&choice["delta"]).as_str().map(str::to_owned)).collect::<String>()
        };
        assert_eq!(said(&|delta| delta["reasoning"].clone()), whole["reasoning"], "{name}");
        assert_eq!(said(&|delta| delta["content"].clone()), whole["content"], "{name}");
        let function = |field: &str| said(&|delta| delta["tool_calls"][0]["function"][field].clone());
        assert_eq!(json!({ "name": function("name"), "arguments": function("arguments") }), called["function"]);
    }
}

#[tokio::test]
async fn a_stream_gives_reasoning_then_content_then_calls() {
    let app = spelled(Some("qwen3"), Some("hermes"), &format!("<think>ab</think>c{CALL}"));
    let events: Vec<_> = streamed(&app, with_tools(&json!({}))).await.into_iter().map(redacted).collect();
    expect![[r#"
        {"role":"assistant","content":""}
        {"reasoning":"a"}
        {"reasoning":"b"}
        {"content":"c"}
        {"content":null,"tool_calls":[{"id":"chatcmpl-tool-","type":"function","index":0,"function":{"name":"weather"}}]}
        {"content":null,"tool_calls":[{"index":0,"function":{"arguments":"{\"city\": \"Køge\"}"}}]}
        {}"#]]
    .assert_eq(&deltas(&events));
    let body = asking(&json!({ "stream_options": { "include_usage": true, "continuous_usage_stats": true } }));
    let events = streamed(&thinking("qwen3", "<think>ab</think>c"), body).await;
    let counted: Vec<_> =
        events.iter().map(|event| &event["usage"]["completion_tokens_details"]["reasoning_tokens"]).collect();
    assert_eq!(json!(counted), json!([0, 1, 2, 2, 2, 2]));
}

#[tokio::test]
async fn an_answer_that_only_thinks_or_says_nothing_has_no_content() {
    for (name, text, reasoning) in [
        ("qwen3", "<think>ab", json!("ab")),
        ("qwen3", "<think>ab</think>", json!("ab")),
        ("qwen3", "", Value::Null),
        ("qwen3", "<think></think>", Value::Null),
        ("deepseek_r1", "<think>ab", json!("ab")),
        ("deepseek_r1", "<think></think>", json!("")),
        ("glm45", "ab \n", json!("ab")),
    ] {
        let message = answer(&thinking(name, text), asking(&json!({}))).await["choices"][0]["message"].take();
        assert_eq!((&message["reasoning"], &message["content"]), (&reasoning, &Value::Null), "{name}: {text}");
    }
}

#[tokio::test]
async fn reasoning_that_is_not_wanted_is_left_out_and_its_tokens_are_not() {
    let app = thinking("qwen3", "<think>ab</think>c");
    let body = asking(&json!({ "include_reasoning": false, "return_token_ids": true, "logprobs": true }));
    let choice = answer(&app, body.clone()).await["choices"][0].take();
    assert_eq!((&choice["message"]["reasoning"], &choice["message"]["content"]), (&Value::Null, &json!("c")));
    assert_eq!(choice["token_ids"].as_array().unwrap().len(), 6);
    assert_eq!(choice["logprobs"]["content"].as_array().unwrap().len(), 6);
    let events = streamed(&app, body).await;
    assert!(events.iter().all(|event| event["choices"][0]["delta"]["reasoning"].is_null()), "{events:?}");
    let ids = events.iter().filter_map(|event| event["choices"][0]["token_ids"].as_array()).flatten().count();
    assert_eq!(ids, 6);
    let events = streamed(&app, asking(&json!({ "include_reasoning": false }))).await;
    assert_eq!(deltas(&events), "{\"role\":\"assistant\",\"content\":\"\"}\n{\"content\":\"c\"}\n{}");
}

#[tokio::test]
async fn the_prompt_says_whether_the_model_still_thinks() {
    let template = |end: &str| {
        format!(
            "{{{{ '<think>x</think>' }}}}{{% for m in messages %}}{{{{ '<|im_start|>' + m.content }}}}{{% endfor %}}{end}"
        )
    };
    for (end, text, reasoning, content, tokens) in [
        ("<|im_start|>", "<think>ab</think>c", json!("ab"), json!("c"), 2),
        ("<|im_start|><think>\n", "ab</think>c", json!("ab"), json!("c"), 2),
        ("<|im_start|><think>\n\n</think>\n\n", "abc", Value::Null, json!("abc"), 0),
        ("<|im_start|><think>\n\n</think>\n\n", "ab</think>c", Value::Null, json!("abc"), 0),
        ("<|im_start|><think>\n\n</think>\n\n", "<think>ab</think>c", json!("ab"), json!("c"), 2),
    ] {
        for name in ["qwen3", "deepseek_r1", "nemotron_v3"] {
            // To this one a mark is text where no thoughts are.
            let content = if name == "deepseek_r1" && content == "abc" { json!(text) } else { content.clone() };
            let app = thinking(name, text).chat_template(&template(end));
            let mut answer = answer(&app, asking(&json!({}))).await;
            let message = answer["choices"][0]["message"].take();
            assert_eq!(
                (&message["reasoning"], &message["content"]),
                (&reasoning, &content),
                "{name}: {end:?} {text:?}"
            );
            assert_eq!(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], tokens, "{name}: {end:?}");
        }
    }
}

#[tokio::test]
async fn the_templates_variables_say_whether_the_model_thinks() {
    for (more, thinks) in [
        (json!({}), true),
        (json!({ "chat_template_kwargs": { "enable_thinking": false } }), false),
        (json!({ "reasoning_effort": "none" }), false),
        (json!({ "reasoning_effort": "low" }), true),
        (json!({ "reasoning_effort": "none", "chat_template_kwargs": { "enable_thinking": true } }), true),
    ] {
        let message = answer(&thinking("qwen3", "a</think>b"), asking(&more)).await["choices"][0]["message"].take();
        assert_eq!(message["content"], if thinks { "b" } else { "a</think>b" }, "{more}");
    }
}

#[tokio::test]
async fn whatever_is_read_streams_add_up_and_every_id_is_told_once() {
    let texts = [
        format!("{THOUGHT}hello {CALL}{CALL} so"),
        format!("ab{CALL}"),
        format!("{THOUGHT} {{\"name\": \"f\", \"parameters\": {{}}}}; {{"),
        "hm</think> [TOOL_CALLS]f{\"a\": 1} so[TOOL_CALLS][ARGS]".to_owned(),
        "[TOOL_CALLS] [{\"name\": \"f\"}]".to_owned(),
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}"
            .to_owned(),
    ];
    let reasoning: Vec<_> = std::iter::once(None).chain(ReasoningParser::names().map(Some)).collect();
    let tools: Vec<_> = std::iter::once(None).chain(ToolParser::names().map(Some)).collect();
    let pairs = reasoning.iter().map(|reasoning| (*reasoning, None));
    let pairs = pairs.chain(tools.iter().flat_map(|tools| [(None, *tools), (Some("qwen3"), *tools)]));
    for (at, (reasoning, tools)) in pairs.enumerate() {
        // Each pair of parsers meets two of the texts.
        for text in texts.iter().skip(at % 3).step_by(3) {
            let more = json!({ "return_token_ids": true, "logprobs": true });
            let body = if tools.is_some() { with_tools(&more) } else { asking(&more) };
            adds_up(|| spelled(reasoning, tools, text), PATH, body.clone()).await;
            let choice = answer(&spelled(reasoning, tools, text), body).await["choices"][0].take();
            let scored = choice["logprobs"]["content"].as_array().unwrap().len();
            assert_eq!(choice["token_ids"].as_array().unwrap().len(), scored, "{reasoning:?} {tools:?} {text}");
        }
    }
}

#[tokio::test]
async fn special_tokens_that_mark_nothing_have_no_text_where_reasoning_is_read() {
    for (name, tools, content) in [
        ("qwen3", None, "b"),
        ("qwen3", Some("hermes"), "b"),
        ("deepseek_r1", None, "b"),
        ("deepseek_r1", Some("hermes"), "<|im_start|>b"),
    ] {
        let app = spelled(Some(name), tools, "");
        let ids = [app.ids("<think>a</think>"), vec![1], app.ids("b"), vec![IM_END]].concat();
        let body = if tools.is_some() { with_tools(&json!({})) } else { asking(&json!({})) };
        let app = spelled(Some(name), tools, "").script(ids.clone());
        // The first script is that of no text.
        answer(&app, body.clone()).await;
        let message = answer(&app, body).await["choices"][0]["message"].take();
        assert_eq!((&message["reasoning"], &message["content"]), (&json!("a"), &json!(content)), "{name} {tools:?}");
    }
}

#[tokio::test]
async fn a_conversation_goes_on_from_the_ids_whether_or_not_reasoning_comes_back() {
    for keeps in [true, false] {
        let app = thinking("qwen3", &format!("{THOUGHT}hi")).says("hello world");
        let mut first = answer(&app, asking(&json!({ "return_token_ids": true }))).await;
        let known = [first["prompt_token_ids"].take(), first["choices"][0]["token_ids"].take()];
        let known: Vec<_> = known.iter().flat_map(|ids| ids.as_array().unwrap().clone()).collect();
        let message = first["choices"][0]["message"].take();
        let mut sent = json!({ "role": "assistant", "content": message["content"] });
        if keeps {
            sent["reasoning"] = message["reasoning"].clone();
        }
        let user = |content: &str| json!({ "role": "user", "content": content });
        let body = json!({ "messages": [user("hello"), sent, user("you")], "return_token_ids": true });
        let second = answer(&app, body).await;
        let prompt = second["prompt_token_ids"].as_array().unwrap();
        assert!(prompt.starts_with(&known), "{keeps}: {:?}", second["token_continuity"]);
    }
}

/// The message and the reasons of an answer to a request with stop strings, which the stream gives, too.
async fn stopped(reasoning: Option<&str>, tools: Option<&str>, text: &str, more: Value) -> [Value; 4] {
    let body = if tools.is_some() { with_tools(&more) } else { asking(&more) };
    let app = || spelled(reasoning, tools, text);
    adds_up(app, PATH, body.clone()).await;
    let mut choice = answer(&app(), body).await["choices"][0].take();
    let [reasoning, content] = ["reasoning", "content"].map(|field| choice["message"][field].take());
    [reasoning, content, choice["finish_reason"].take(), choice["stop_reason"].take()]
}

#[tokio::test]
async fn stop_strings_do_not_count_in_thoughts() {
    let text = "<think>Question: 1?</think>It is 2. Question: 3?";
    let stop = json!({ "stop": ["Question:"] });
    for name in ["qwen3", "deepseek_r1", "kimi_k2", "minimax_m2", "glm45"] {
        let found = stopped(Some(name), None, text, stop.clone()).await;
        assert_eq!(found, [json!("Question: 1?"), json!("It is 2. "), json!("stop"), json!("Question:")], "{name}");
    }
    let kept = stopped(Some("qwen3"), None, text, json!({ "stop": "Question:", "include_stop_str_in_output": true }));
    assert_eq!(kept.await[1], "It is 2. Question:");
    // Nobody reads thoughts here.
    let [reasoning, content, ..] = stopped(None, None, text, stop.clone()).await;
    assert_eq!((reasoning, content), (Value::Null, json!("<think>")));
    let thought = stopped(Some("qwen3"), None, "<think>Question: 1?", stop.clone()).await;
    assert_eq!(thought, [json!("Question: 1?"), Value::Null, json!("stop"), Value::Null]);
}

/// Such a call counts where the thoughts never end, and so does what stands after it.
#[tokio::test]
async fn after_the_mark_of_a_call_in_thoughts_without_an_end_stop_strings_count() {
    let call = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {}}\n</tool_call>";
    let text = format!("Question: so.\n{call}\nQuestion: more");
    for stop in ["Question:", "</tool_call>"] {
        let [reasoning, content, finish, found] =
            stopped(Some("qwen3"), Some("hermes"), &text, json!({ "stop": [stop] })).await;
        assert_eq!(reasoning.as_str().unwrap().trim(), "Question: so.", "{stop}");
        assert_eq!((content, found), (Value::Null, json!(stop)), "{finish}");
    }
}

#[tokio::test]
async fn a_stop_string_must_begin_after_the_end_of_thoughts() {
    for (text, stop, content, reason) in [
        // It would begin in the thoughts, or in the mark that ends them.
        ("<think>ab</think>cd", "b</think>c", json!("cd"), Value::Null),
        ("<think>ab</think>cd", "</think>", json!("cd"), Value::Null),
        ("<think>ab</think>cd", "k>c", json!("cd"), Value::Null),
        ("<think>ab</think>cd", "c", json!(""), json!("c")),
        ("<think>ab</think>abc", "abc", json!(""), json!("abc")),
        ("<think>a\n\n</think>\n\nb\n\nc", "\n\n", json!(""), json!("\n\n")),
        ("<think>aa</think>aaab", "aab", json!("a"), json!("aab")),
    ] {
        for name in ["qwen3", "deepseek_r1"] {
            let [_, said, _, found] = stopped(Some(name), None, text, json!({ "stop": stop })).await;
            let said = if said.is_null() { json!("") } else { said };
            assert_eq!((&said, &found), (&content, &reason), "{name} {text:?} {stop:?}");
        }
    }
}

#[tokio::test]
async fn stop_strings_count_in_calls_and_in_the_mark_that_begins_them_after_thoughts() {
    let call = CALL.replace('\n', "");
    let text = format!("<think>Køge {{ }}</think>hi {call}");
    let [_, content, _, reason] = stopped(Some("qwen3"), Some("hermes"), &text, json!({ "stop": "Køge" })).await;
    assert_eq!((content.as_str().unwrap().starts_with("hi <tool_call>"), reason), (true, json!("Køge")));
    for stop in ["<tool_call>", "tool_", ">{\"name"] {
        let text = format!("<think>tool_ >{{\"name</think>hi {call}");
        let [reasoning, content, _, reason] =
            stopped(Some("qwen3"), Some("hermes"), &text, json!({ "stop": stop })).await;
        assert_eq!((reasoning, reason), (json!("tool_ >{\"name"), json!(stop)));
        assert!(content.as_str().unwrap().starts_with("hi "), "{content}");
        // Whether thoughts go on after a call is known at the end only: if they do not, it counts, and so it does here.
        let text = format!("<think>tool_ {call}");
        let [reasoning, content, _, reason] =
            stopped(Some("qwen3"), Some("hermes"), &text, json!({ "stop": stop })).await;
        assert!(reasoning.as_str().unwrap().starts_with("tool_ "), "{stop}: {reasoning}");
        assert_eq!((content, reason), (Value::Null, json!(stop)));
    }
}

#[tokio::test]
async fn stop_strings_do_not_count_in_the_analysis_channel() {
    let text =
        "<|channel|>analysis<|message|>Question: 1?<|end|><|start|>assistant<|channel|>final<|message|>2. Question:";
    let found = stopped(Some("openai_gptoss"), None, text, json!({ "stop": "Question:" })).await;
    assert_eq!(found, [json!("Question: 1?"), json!("2. "), json!("stop"), json!("Question:")]);
}

/// Who continues what the answer says has done thinking.
#[tokio::test]
async fn content_that_is_continued_has_ended_its_thoughts_unless_it_opens_some() {
    let cases = [
        (json!({ "content": "I say" }), "yes", None, Some("yes")),
        (json!({ "content": [{ "type": "text", "text": "I say" }] }), "yes", None, Some("yes")),
        (json!({ "content": "I say", "reasoning": "hm" }), "yes", None, Some("yes")),
        (json!({ "content": "<think>hm</think>I say" }), "yes", None, Some("yes")),
        (json!({ "content": "<think>I" }), "hm</think>yes", Some("hm"), Some("yes")),
    ];
    for name in ["qwen3", "deepseek_r1", "glm45", "olmo3", "kimi_k2"] {
        for (part, text, reasoning, content) in &cases {
            for form in [json!({}), json!({ "structured_outputs": { "choice": ["yes", "no"] } })] {
                let mut message = part.clone();
                message["role"] = json!("assistant");
                let mut body = form.clone();
                body["messages"] = json!([{ "role": "user", "content": "hello" }, message]);
                (body["continue_final_message"], body["add_generation_prompt"]) = (json!(true), json!(false));
                body["temperature"] = json!(0);
                let answer = thinking(name, text).post(PATH, body.clone()).await.ok();
                let told = &answer["choices"][0]["message"];
                assert_eq!(
                    (told["reasoning"].as_str(), told["content"].as_str()),
                    (*reasoning, *content),
                    "{name} {body}"
                );
                // The three steps know it as well.
                let app = thinking(name, text);
                let mut rendered = app.post(&format!("{PATH}/render"), body.clone()).await.ok();
                rendered["output_mode"] = json!("derender");
                let steps = app.post("/inference/v1/generate", rendered).await.ok();
                let steps = &steps["choices"][0]["message"];
                assert_eq!(
                    (&steps["reasoning"], &steps["content"]),
                    (&told["reasoning"], &told["content"]),
                    "{name} {body}"
                );
            }
        }
    }
}
