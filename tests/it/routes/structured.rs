//! `response_format`, `structured_outputs` and calls that are forced: random logits, and answers that keep to what was
//! asked of them.

use serde_json::{Value, json};
use tito::{
    parser::{ReasoningParser, ToolParser},
    turn::{ToolPolicy, ToolStrictLevel},
};

use super::taken_back::parser;
use crate::it::app::{MODEL, TestApp};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
/// Formats of which no grammar is known.
const UNKNOWN: [&str; 2] = ["gemma4", "kimi_k3"];

async fn chat(app: &TestApp, seed: u64, more: &Value) -> Value {
    let mut body = json!({ "model": MODEL, "messages": [{ "role": "user", "content": "hello" }], "seed": seed,
        "max_tokens": 3000 });
    body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
    app.post(CHAT, body).await.ok()["choices"][0].take()
}

/// The text of a choice that ended by itself.
fn said(choice: &Value) -> &str {
    assert_eq!(choice["finish_reason"], "stop", "{choice}");
    choice["message"]["content"].as_str().or(choice["text"].as_str()).unwrap()
}

fn person() -> Value {
    json!({ "type": "object", "properties": {
        "unit": { "type": "string", "enum": ["C", "F"] }, "days": { "type": "integer", "minimum": 0, "maximum": 9 } },
        "required": ["unit", "days"] })
}

fn is_person(value: &Value) -> bool {
    value.as_object().is_some_and(|fields| fields.len() == 2)
        && ["C", "F"].map(Value::from).contains(&value["unit"])
        && value["days"].as_u64().is_some_and(|days| days < 10)
}

#[tokio::test]
async fn random_logits_give_what_was_asked_for() {
    let app = TestApp::new();
    for seed in 0..12 {
        let schema = json!({ "type": "json_schema", "json_schema": { "name": "p", "schema": person() } });
        let choice = chat(&app, seed, &json!({ "response_format": schema })).await;
        assert!(is_person(&serde_json::from_str(said(&choice)).unwrap()), "{choice}");
        let outputs = |outputs: Value| json!({ "structured_outputs": outputs });
        let choice = chat(&app, seed, &outputs(json!({ "regex": "(yes|no), [0-9]{2}" }))).await;
        let (word, number) = said(&choice).split_once(", ").unwrap();
        assert!(["yes", "no"].contains(&word) && number.len() == 2 && number.parse::<u8>().is_ok(), "{choice}");
        let choice = chat(&app, seed, &outputs(json!({ "choice": ["Paris", "Par", "Rome"] }))).await;
        assert!(["Paris", "Par", "Rome"].contains(&said(&choice)), "{choice}");
        let grammar = "root ::= \"(\" root \")\" | \"x\"";
        let choice = chat(&app, seed, &outputs(json!({ "grammar": grammar }))).await;
        let (open, close) = said(&choice).split_once('x').unwrap();
        assert!(open.chars().all(|c| c == '(') && close == ")".repeat(open.len()), "{choice}");
    }
}

#[tokio::test]
async fn text_completions_are_constrained_each_for_itself_and_streams_too() {
    let app = TestApp::new();
    let body = json!({ "prompt": ["a", "b"], "n": 3, "seed": 5, "max_tokens": 40,
        "structured_outputs": { "regex": "[0-9]{3}-[0-9]{4}" } });
    let answer = app.post(COMPLETIONS, body.clone()).await.ok();
    let texts: Vec<&str> = answer["choices"].as_array().unwrap().iter().map(said).collect();
    assert_eq!(texts.len(), 6);
    for text in &texts {
        assert!(text.len() == 8 && text[..3].parse::<u16>().is_ok() && text[4..].parse::<u16>().is_ok(), "{text}");
    }
    assert!(texts.iter().any(|text| text != &texts[0]), "{texts:?}");
    let mut streamed = body;
    streamed["stream"] = json!(true);
    let mut folded = vec![String::new(); 6];
    for event in app.post(COMPLETIONS, streamed).await.events() {
        for choice in event["choices"].as_array().unwrap() {
            let index = usize::try_from(choice["index"].as_u64().unwrap()).unwrap();
            folded[index].push_str(choice["text"].as_str().unwrap());
        }
    }
    assert_eq!(folded, texts);
}

#[tokio::test]
async fn an_answer_that_runs_out_of_tokens_is_the_beginning_of_one() {
    let app = TestApp::new();
    let more = json!({ "max_tokens": 3, "structured_outputs": { "regex": "[0-9]{30}" } });
    let choice = chat(&app, 1, &more).await;
    assert_eq!(choice["finish_reason"], "length");
    let text = choice["message"]["content"].as_str().unwrap();
    assert!(text.bytes().all(|byte| byte.is_ascii_digit()), "{text}");
}

#[tokio::test]
async fn other_fields_hold_beside_a_constraint() {
    let app = TestApp::new();
    let ignoring = json!({ "ignore_eos": true, "max_tokens": 12, "structured_outputs": { "choice": ["a"] } });
    let choice = chat(&app, 1, &ignoring).await;
    assert_eq!((choice["message"]["content"].as_str(), choice["finish_reason"].as_str()), (Some("a"), Some("length")));
    let unwanted = json!({ "bad_words": ["b"], "structured_outputs": { "choice": ["a", "b"] } });
    for seed in 0..8 {
        assert_eq!(said(&chat(&app, seed, &unwanted).await), "a");
    }
    let impossible = json!({ "messages": [{ "role": "user", "content": "hello" }], "bad_words": ["a"],
        "structured_outputs": { "choice": ["a"] } });
    let answer = app.post(CHAT, impossible).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    assert!(answer.text.contains("no token is left to sample"), "{}", answer.text);
}

#[tokio::test]
async fn what_cannot_be_had_is_refused_by_name() {
    let app = TestApp::new();
    for (more, said) in [
        (json!({ "structured_outputs": { "regex": "[0-9" } }), "Grammar error: at 1(8): invalid regex"),
        (json!({ "structured_outputs": { "json": { "type": "sausage" } } }), "sausage"),
        (json!({ "structured_outputs": { "choice": [] } }), "Choice '[]' cannot be an empty list"),
        (json!({ "structured_outputs": { "grammar": " " } }), "cannot be an empty string"),
        (json!({ "structured_outputs": { "sausage": 1 } }), "sausage"),
        (json!({ "structured_outputs": {} }), "none are specified"),
        (json!({ "response_format": { "type": "json_schema" } }), "the 'json_schema' field must be provided"),
        (json!({ "response_format": { "type": "sausage" } }), "sausage"),
        (json!({ "response_format": { "type": "json_object", "schema": person() } }), "the type `json_schema`"),
        (
            json!({ "structured_outputs": { "json": { "oneOf": [{ "type": "string" }, { "type": "string", "maxLength": 3 }] } } }),
            "oneOf",
        ),
    ] {
        let mut body = json!({ "messages": [{ "role": "user", "content": "hello" }], "prompt": "hello" });
        body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        for path in [CHAT, COMPLETIONS] {
            let answer = app.post(path, body.clone()).await;
            assert_eq!(answer.status, 400, "{more}: {}", answer.text);
            assert!(answer.json()["error"]["message"].as_str().unwrap().contains(said), "{more}: {}", answer.text);
        }
    }
}

/// Other servers take a schema so. An answer that may be any object would pass for one of the schema.
#[tokio::test]
async fn a_schema_beside_json_object_is_refused_wherever_a_form_is_given() {
    let app = TestApp::new();
    let format = |schema: Value| json!({ "type": "json_object", "schema": schema });
    let body = |schema: Value| {
        json!({ "messages": [{ "role": "user", "content": "hello" }], "prompt": "hello", "max_tokens": 4,
            "response_format": format(schema) })
    };
    let response =
        |schema: Value| json!({ "input": "hello", "max_output_tokens": 4, "text": { "format": format(schema) } });
    for (path, field) in [
        (CHAT, "response_format.schema"),
        (COMPLETIONS, "response_format.schema"),
        ("/v1/chat/completions/render", "response_format.schema"),
        ("/v1/completions/render", "response_format.schema"),
        ("/v1/responses", "text.format.schema"),
        ("/v1/responses/render", "text.format.schema"),
    ] {
        let of = |schema: Value| if field.starts_with("text") { response(schema) } else { body(schema) };
        let refused = app.post(path, of(person())).await;
        assert_eq!(refused.status, 400, "{path}: {}", refused.text);
        assert_eq!(refused.json()["error"]["param"], field, "{path}: {}", refused.text);
        for nothing in [json!({}), Value::Null] {
            let answer = app.post(path, of(nothing)).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        }
    }
}

fn tools(strict: bool) -> Value {
    let tool =
        |name| json!({ "type": "function", "function": { "name": name, "parameters": person(), "strict": strict } });
    json!([tool("weather"), tool("forecast")])
}

/// Asserts what a forced answer's calls are; `None` where it ran out of tokens.
fn forced_calls(name: &str, choice: &Value) -> Option<Vec<String>> {
    // Thoughts, which random logits may never end: the tiny vocabulary has no token for their end.
    if name == "openai" && choice["finish_reason"] == "length" {
        return None;
    }
    let calls = choice["message"]["tool_calls"].as_array().unwrap_or_else(|| panic!("{name}: {choice}"));
    assert!(!calls.is_empty(), "{name}: {choice}");
    let names = calls.iter().map(|call| {
        let arguments = call["function"]["arguments"].as_str().unwrap();
        assert!(is_person(&serde_json::from_str(arguments).unwrap()), "{name}: {call}");
        call["function"]["name"].as_str().unwrap().to_owned()
    });
    Some(names.collect())
}

#[tokio::test]
async fn every_format_can_be_forced_to_call_and_is_read_back() {
    let named = json!({ "type": "function", "function": { "name": "forecast" } });
    for name in ToolParser::names().chain(["hy_v3:6e", "hy_v4:6e"]) {
        let app = TestApp::new().tools(ToolPolicy {
            parser: Some(parser(name)),
            auto: true,
            reasoning: None,
            ..ToolPolicy::default()
        });
        if UNKNOWN.contains(&name) {
            let body = json!({ "messages": [{ "role": "user", "content": "hello" }], "tools": tools(true),
                "tool_choice": "required" });
            let answer = app.post(CHAT, body).await;
            assert_eq!((answer.status, &answer.error()["param"]), (400, &json!("tool_choice")), "{name}");
            continue;
        }
        let mut read = 0;
        for seed in 0..3 {
            let required = json!({ "tools": tools(true), "tool_choice": "required" });
            if let Some(names) = forced_calls(name, &chat(&app, seed, &required).await) {
                assert!(names.iter().all(|name| ["weather", "forecast"].contains(&name.as_str())), "{names:?}");
                read += 1;
            }
            let required = json!({ "tools": tools(true), "tool_choice": named });
            if let Some(names) = forced_calls(name, &chat(&app, seed, &required).await) {
                assert_eq!(names, ["forecast"], "{name}");
                read += 1;
            }
        }
        assert!(read > 0, "{name}");
    }
}

#[tokio::test]
async fn arguments_of_forced_calls_follow_their_schema_whether_or_not_the_tool_is_strict() {
    let named = json!({ "type": "function", "function": { "name": "forecast" } });
    for name in ToolParser::names().filter(|name| !UNKNOWN.contains(name)) {
        let app = TestApp::new().tools(ToolPolicy {
            parser: ToolParser::named(name),
            auto: true,
            reasoning: None,
            ..ToolPolicy::default()
        });
        for choice in [json!("required"), named.clone()] {
            let forced = json!({ "tools": tools(false), "tool_choice": choice });
            forced_calls(name, &chat(&app, 3, &forced).await);
        }
    }
}

/// A tool as programs describe theirs, with what no grammar can force.
fn real_tool(strict: bool) -> Value {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "additionalProperties": false,
        "properties": {
            "unit": { "$ref": "#/$defs/Unit%5Bstr%5D" },
            "tags": { "type": "array", "maxItems": 2, "uniqueItems": true, "items": { "enum": ["a"] } },
            "secret": { "enum": ["x"], "type": "string", "format": "password" },
            "map": { "type": "object", "maxProperties": 0, "propertyNames": { "type": "string" },
                "additionalProperties": {} },
        },
        "required": ["unit", "tags", "secret", "map"], "$defs": { "Unit[str]": { "enum": ["C", "F"] } },
    });
    json!([{ "type": "function", "function": { "name": "f", "parameters": schema, "strict": strict } }])
}

#[tokio::test]
async fn what_cannot_be_forced_of_a_real_tool_is_named_and_the_rest_is_forced() {
    let app = TestApp::new().reads_tool_calls();
    let named = json!({ "type": "function", "function": { "name": "f" } });
    let (forced, auto) = (Some(&named), None);
    for (strict, choice, is_held) in
        [(true, forced, true), (false, forced, true), (true, auto, true), (false, auto, false)]
    {
        let body = json!({
            "model": MODEL, "messages": [{ "role": "user", "content": "hello" }], "seed": 1, "max_tokens": 3000,
            "tools": real_tool(strict), "tool_choice": choice,
        });
        let answer = app.post(CHAT, body).await;
        let said = answer.headers.get("x-unforced-tools").map(|value| value.to_str().unwrap());
        let wanted = "f: format \"password\", f: uniqueItems";
        assert_eq!(said, is_held.then_some(wanted), "{strict} {choice:?}: {}", answer.text);
        let message = answer.ok()["choices"][0]["message"].take();
        if choice.is_some() {
            let arguments = message["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
            let arguments: Value = serde_json::from_str(arguments).unwrap();
            assert!(["C", "F"].map(Value::from).contains(&arguments["unit"]), "{arguments}");
            assert_eq!((&arguments["secret"], &arguments["map"]), (&json!("x"), &json!({})), "{arguments}");
        }
    }
    let mut schema = real_tool(true)[0]["function"]["parameters"].take();
    let tool = json!({ "name": "f", "strict": true, "input_schema": schema });
    let body = json!({
        "model": MODEL, "max_tokens": 9, "messages": [{ "role": "user", "content": "hello" }], "tools": [tool],
    });
    let answer = app.post("/v1/messages", body).await;
    let named = json!(["f: format \"password\"", "f: uniqueItems"]);
    assert_eq!(answer.ok()["unforced_tools"], named);
    let tool = json!({ "type": "function", "name": "f", "strict": true, "parameters": schema });
    let body = json!({ "max_output_tokens": 9, "input": "hello", "tools": [tool] });
    assert_eq!(app.post("/v1/responses", body).await.ok()["unforced_tools"], named);
    // A form of the answer that the request itself asks for is exact, or refused.
    let body = json!({ "messages": [{ "role": "user", "content": "hello" }],
        "structured_outputs": { "json": schema } });
    assert_eq!(app.post(CHAT, body).await.status, 400);
    schema["properties"] = json!({ "unit": { "$ref": "#/$defs/Unit%5Bstr%5D" } });
    schema["required"] = json!(["unit"]);
    let choice = chat(&app, 1, &json!({ "structured_outputs": { "json": schema } })).await;
    assert!(said(&choice).contains('C') || said(&choice).contains('F'), "{choice}");
}

#[tokio::test]
async fn a_model_that_wants_nothing_but_blanks_finishes_its_call_in_every_format() {
    let named = json!({ "type": "function", "function": { "name": "forecast" } });
    for name in ToolParser::names().filter(|name| !UNKNOWN.contains(name)) {
        let app = TestApp::new().tools(ToolPolicy {
            parser: ToolParser::named(name),
            auto: true,
            reasoning: None,
            ..ToolPolicy::default()
        });
        let mut bias = serde_json::Map::new();
        for blank in [" ", "\n", "\t"] {
            let body = json!({ "prompt": blank, "add_special_tokens": false });
            let ids = app.post("/tokenize", body).await.ok()["tokens"].take();
            bias.insert(ids[0].to_string(), json!(100));
        }
        let more = json!({ "tools": tools(true), "tool_choice": named, "logit_bias": bias });
        let choice = chat(&app, 1, &more).await;
        if let Some(names) = forced_calls(name, &choice) {
            assert_ne!(choice["finish_reason"], "length", "{name}: {choice}");
            assert_eq!(names, ["forecast"], "{name}");
        }
    }
}

#[tokio::test]
async fn what_no_output_could_keep_to_is_refused_with_the_reason_before_anything_is_generated() {
    let app = TestApp::new();
    let endless = json!({ "$ref": "#" });
    let tool = json!({ "type": "function", "function": { "name": "f", "parameters": endless, "strict": true } });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "n", "schema": endless } });
    let hermes = TestApp::new().reads_tool_calls();
    for (app, more) in [
        (&app, json!({ "response_format": format })),
        (&app, json!({ "structured_outputs": { "json": endless } })),
        (&app, json!({ "structured_outputs": { "json": endless.to_string() } })),
        (&hermes, json!({ "tools": [tool], "tool_choice": "required" })),
        (&hermes, json!({ "tools": [tool] })),
    ] {
        for stream in [false, true] {
            let mut body = json!({ "messages": [{ "role": "user", "content": "hello" }], "stream": stream });
            body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
            let answer = app.post(CHAT, body).await;
            assert_eq!(answer.status, 400, "{more}: {}", answer.text);
            assert!(answer.text.contains("leads back to itself without an end"), "{more}: {}", answer.text);
        }
    }
}

#[tokio::test]
async fn a_reference_to_all_of_a_schema_is_refused_where_calls_have_only_parts_of_it() {
    let tree = json!({ "type": "object", "properties": {
        "next": { "anyOf": [{ "$ref": "#" }, { "type": "null" }] } }, "required": ["next"] });
    let tool = json!({ "type": "function", "function": { "name": "f", "parameters": tree, "strict": true } });
    for (parser, status) in [("hermes", 200), ("qwen3_coder", 400), ("glm45", 400), ("pythonic", 400)] {
        let policy =
            ToolPolicy { parser: ToolParser::named(parser), auto: true, reasoning: None, ..ToolPolicy::default() };
        let body = json!({ "messages": [{ "role": "user", "content": "hello" }], "tools": [tool], "max_tokens": 200,
            "tool_choice": "required" });
        let answer = TestApp::new().tools(policy).post(CHAT, body).await;
        assert_eq!(answer.status, status, "{parser}: {}", answer.text);
        if status == 400 {
            assert_eq!(answer.error()["param"], "tools", "{parser}: {}", answer.text);
        }
    }
}

#[tokio::test]
async fn a_request_with_a_large_body_is_answered_as_a_small_one_is() {
    let app = TestApp::new();
    let large = |field: &str, value: Value| {
        let mut body = json!({ "prompt": "hello", "seed": 1, "max_tokens": 5 });
        body[field] = value;
        assert!(body.to_string().len() > 1 << 16);
        body
    };
    let answer = |body: Value| async { app.post(COMPLETIONS, body).await };
    let small = answer(json!({ "prompt": "hello", "seed": 1, "max_tokens": 5 })).await.ok();
    // One id over and over: as if it were said once.
    let repeated = answer(large("stop_token_ids", json!(vec![7; 50_000]))).await.ok();
    let once = answer(json!({ "prompt": "hello", "seed": 1, "max_tokens": 5, "stop_token_ids": [7] })).await.ok();
    assert_eq!(repeated["choices"], once["choices"]);
    let padded = answer(large("user", json!("x".repeat(1 << 17)))).await.ok();
    assert_eq!(padded["choices"], small["choices"]);
    let unknown: serde_json::Map<String, Value> = (0..20_000).map(|id| (id.to_string(), json!(1))).collect();
    let refused = answer(large("logit_bias", json!(unknown))).await;
    assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("logit_bias")), "{}", refused.text);
    let words: Vec<String> = (0..20_000).map(|index| format!("w{index}")).collect();
    let refused = answer(large("bad_words", json!(words))).await;
    assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("bad_words")), "{}", refused.text);
    assert_eq!(answer(Value::String("{".repeat(1 << 17))).await.status, 400);
}

#[tokio::test]
async fn a_strict_tool_holds_a_call_that_the_model_begins_by_itself() {
    // The script wants another argument than the schema has, and then talks on.
    let text = "Well. <tool_call>\n{\"name\": \"weather\", \"arguments\": {\"unit\": \"K\"}}\n</tool_call>";
    let app = |strict| {
        let app = TestApp::new().reads_tool_calls().says(text);
        (app, json!({ "tools": tools(strict), "temperature": 0, "max_tokens": 400 }))
    };
    let (free, more) = app(false);
    let choice = chat(&free, 1, &more).await;
    assert_eq!(choice["message"]["tool_calls"][0]["function"]["arguments"], "{\"unit\": \"K\"}", "{choice}");
    let (held, more) = app(true);
    let choice = chat(&held, 1, &more).await;
    let shown = choice.to_string();
    assert!(shown.contains("Well.") && !shown.contains("\"K") && !shown.contains("\\\"K"), "{choice}");
}

#[tokio::test]
async fn a_servers_strict_level_holds_the_calls_of_tools_that_do_not_say_so() {
    let call = |name: &str| {
        format!("Well. <tool_call>\n{{\"name\": \"{name}\", \"arguments\": {{\"unit\": \"K\"}}}}\n</tool_call>")
    };
    let app = |strict_level, name| {
        let parser = ToolParser::named("hermes");
        let policy = ToolPolicy { parser, auto: true, reasoning: None, strict_level };
        TestApp::new().tools(policy).says(&call(name))
    };
    let body = json!({ "tools": tools(false), "temperature": 0, "max_tokens": 400 });
    // The level, what the script calls, whether its name may be said, and whether its argument may.
    for (level, name, names, argues) in [
        (ToolStrictLevel::Auto, "other", true, true),
        (ToolStrictLevel::Function, "other", false, false),
        (ToolStrictLevel::Function, "weather", true, true),
        (ToolStrictLevel::Parameter, "weather", true, false),
    ] {
        let choice = chat(&app(level, name), 1, &body).await;
        let shown = choice.to_string();
        assert!(shown.contains("Well."), "{choice}");
        assert_eq!(shown.contains(name), names, "{level:?} {name}: {choice}");
        assert_eq!(shown.contains("K\\\""), argues, "{level:?} {name}: {choice}");
    }
}

#[tokio::test]
async fn a_servers_strict_level_is_named_where_it_cannot_hold_and_gives_way_to_a_form_of_the_answer() {
    let policy = ToolPolicy {
        parser: ToolParser::named("hermes"),
        auto: true,
        strict_level: ToolStrictLevel::Parameter,
        ..ToolPolicy::default()
    };
    let app = TestApp::new().tools(policy);
    let more = |more: Value| {
        let mut body = json!({ "model": MODEL, "messages": [{ "role": "user", "content": "hello" }], "seed": 1,
            "max_tokens": 3000, "tools": real_tool(false) });
        body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        body
    };
    let answer = app.post(CHAT, more(json!({}))).await;
    assert_eq!(answer.headers["x-unforced-tools"], "f: format \"password\", f: uniqueItems", "{}", answer.text);
    // A grammar cannot be told from a call, so no call is free.
    let form = json!({ "structured_outputs": { "grammar": "root ::= \"a\" | \"b\"" } });
    let choice = app.post(CHAT, more(form.clone())).await.ok()["choices"][0].take();
    assert!(["a", "b"].contains(&said(&choice)), "{choice}");
    let mut body = more(form.clone());
    body["tools"] = json!([{ "name": "f", "input_schema": person() }]);
    let message = app.post("/v1/messages", body).await.ok();
    assert!(["a", "b"].map(Value::from).contains(&message["content"][0]["text"]), "{message}");
    // What only this server would keep is not passed on as if any would.
    let refused = app.post("/v1/chat/completions/render", more(json!({}))).await;
    assert_eq!(refused.status, 400, "{}", refused.text);
    assert!(refused.error()["message"].as_str().unwrap().contains("--tool-strict-level"), "{}", refused.text);
    let context = json!({ "tools": tools(false), "tool_choice": "auto" });
    let body = json!({ "token_ids": app.ids("hello"), "sampling_params": {}, "output_mode": "derender",
        "parse_context": context });
    let refused = app.post("/inference/v1/generate", body).await;
    assert!(refused.error()["message"].as_str().unwrap().contains("--tool-strict-level"), "{}", refused.text);
}

#[tokio::test]
async fn reasoning_is_free_and_the_answer_behind_it_is_constrained() {
    let policy =
        ToolPolicy { parser: None, auto: false, reasoning: ReasoningParser::named("qwen3"), ..ToolPolicy::default() };
    let app = TestApp::new().tools(policy).says("hello world</think>zzzzzz");
    let choice = chat(&app, 1, &json!({ "structured_outputs": { "choice": ["a", "b"] } })).await;
    assert_eq!(choice["message"]["reasoning"], "hello world", "{choice}");
    assert!(["a", "b"].contains(&said(&choice)), "{choice}");
}
