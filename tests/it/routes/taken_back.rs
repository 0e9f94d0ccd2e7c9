//! What the server answered is taken back as it was answered, and continues from exactly its ids, whatever the model
//! wrote for the arguments of its calls.

use std::collections::HashMap;

use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use serde_json::{Value, json};
use tito::{parser::ToolParser, turn::ToolPolicy};

use crate::it::app::{IM_END, MODEL, TestApp};

/// How each format writes a call of `f`, before and after its arguments or the value of one.
const FORMS: &[(&str, &str, &str)] = &[
    ("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": ", "}</tool_call>"),
    (
        "kimi_k2",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>",
        "<|tool_call_end|><|tool_calls_section_end|>",
    ),
    ("mistral", "[TOOL_CALLS]f[ARGS]", ""),
    ("mistral", "[TOOL_CALLS]f", ""),
    ("mistral", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": ", "}]"),
    ("openai", "<|channel|>commentary to=functions.f json<|message|>", "<|call|>"),
    ("llama3_json", "{\"name\": \"f\", \"parameters\": ", "}"),
    ("pythonic", "[f(a=", ")]"),
    ("qwen3_coder", "<tool_call><function=f><parameter=a>", "</parameter></function></tool_call>"),
    ("qwen3_xml", "<tool_call><function=f><parameter=a>", "</parameter></function></tool_call>"),
    ("step5", "<tool_call><function=f><parameter=a>", "</parameter></function></tool_call>"),
    ("qwen3_json", "<tool_call>{\"name\": \"f\", \"arguments\": ", "}</tool_call>"),
    ("llama4_json", "{\"name\": \"f\", \"parameters\": ", "}"),
    ("glm45", "<tool_call>f\n<arg_key>a</arg_key><arg_value>", "</arg_value></tool_call>"),
    ("glm47", "<tool_call>f<arg_key>a</arg_key><arg_value>", "</arg_value></tool_call>"),
    (
        "cohere_command3",
        "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": ",
        "}]<|END_ACTION|>",
    ),
    (
        "cohere_command4",
        "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": ",
        "}]<|END_ACTION|>",
    ),
    (
        "deepseek_v41",
        "<｜DSML｜ calls><｜DSML｜ invoke name=\"f\"><｜DSML｜ parameter name=\"a\" string=\"true\">",
        "</｜DSML｜ parameter></｜DSML｜ invoke></｜DSML｜ calls>",
    ),
    (
        "kimi_k3",
        "<|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|><|open|>argument key=\"a\" type=\"string\"<|sep|>",
        "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
    ),
    (
        "minimax_m3",
        "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<a>",
        "]<]minimax[>[</a>]<]minimax[>[</invoke>]<]minimax[>[</tool_call>",
    ),
    (
        "hy_v3:6e",
        "<tool_calls:6e>\n<tool_call:6e>f<tool_sep:6e>\n<arg_key:6e>a</arg_key:6e>\n<arg_value:6e>",
        "</arg_value:6e>\n</tool_call:6e>\n</tool_calls:6e>",
    ),
    (
        "hy_v4:6e",
        "<tool_calls:6e><tool_call:6e>f<arg_key:6e>a</arg_key:6e><arg_value:6e>",
        "</arg_value:6e></tool_call:6e></tool_calls:6e>",
    ),
    ("xlam", "[{\"name\": \"f\", \"arguments\": ", "}]"),
    (
        "minimax_m2",
        "<minimax:tool_call><invoke name=\"f\"><parameter name=\"a\">",
        "</parameter></invoke></minimax:tool_call>",
    ),
];

/// Arguments that are an object, that nearly are one, or that no reader of JSON could keep.
fn arguments() -> Vec<String> {
    let deep = |levels: usize| format!("{{\"a\": {}{}}}", "[".repeat(levels), "]".repeat(levels));
    let texts = [
        "{\"a\": 1}",
        "{\"a\": \"\\ud83d\"}",
        "{\"a\": \"\\ud83d",
        "{\"a\": \"\\ud83d\"} ",
        "\"\\ud83d\"",
        "{\"a\": \"\\ud83d\\ude00\"}",
        "{\"a\": ",
        "{\"a\": 1} and so on",
        "no json",
        "",
        " ",
        "[1]",
        "null",
        "\"{}\"",
        "{\"a\": NaN}",
        "{\"a\": 1e999}",
        "{\"a\": 1, \"a\": 2}",
        "{\"INVALID_JSON\": \"x\"}",
        "{\"INVALID_JSON\": 1}",
        "{\"é\": \"\\u0000\"}",
    ];
    let whole = texts.into_iter().map(str::to_owned);
    whole.chain([100, 125, 130, 250, 254, 300].map(deep)).chain([format!("{{\"a\": {}}}", "1".repeat(4301))]).collect()
}

/// A format by its name, behind which the suffix of its marks may stand.
pub(super) fn parser(format: &str) -> ToolParser {
    let (name, suffix) = format.split_once(':').unzip();
    let marks = suffix.map(|suffix| ["<tool_calls", "</tool_calls"].map(|mark| format!("{mark}:{suffix}>")));
    let parser = ToolParser::named(name.unwrap_or(format)).unwrap();
    parser.of_vocabulary(&mut marks.into_iter().flatten(), None).unwrap()
}

/// A server that reads the calls of a format, and whose model says each of `texts` letter by letter.
fn saying(format: &str, texts: &[String]) -> TestApp {
    let parser = Some(parser(format));
    let app = TestApp::new()
        .tools(ToolPolicy { parser, auto: true, reasoning: None, ..ToolPolicy::default() })
        .max_model_len(16_384);
    let script = |text: &String| {
        let letters = text.chars().flat_map(|letter| app.ids(&letter.to_string()));
        letters.chain([IM_END]).collect()
    };
    let scripts: Vec<_> = texts.iter().map(script).collect();
    app.scripts(scripts)
}

#[derive(Debug, Clone, Copy)]
enum Dialect {
    Chat,
    Messages,
    Responses,
}

impl Dialect {
    /// A conversation that begins with a question of its own, and goes on with `items`.
    async fn ask(self, app: &TestApp, number: usize, items: &[Value]) -> Value {
        let mut history = vec![json!({ "role": "user", "content": format!("hello {number}") })];
        history.extend_from_slice(items);
        let schema = json!({ "type": "object" });
        let (path, body) = match self {
            Self::Chat => {
                let tool = json!({ "type": "function", "function": { "name": "f", "parameters": schema } });
                ("/v1/chat/completions", json!({ "messages": history, "tools": [tool], "return_token_ids": true }))
            }
            Self::Messages => {
                let tool = json!({ "name": "f", "input_schema": schema });
                let body = json!({ "model": MODEL, "max_tokens": 8000, "messages": history, "tools": [tool],
                    "return_token_ids": true });
                ("/v1/messages", body)
            }
            Self::Responses => {
                let tool = json!({ "type": "function", "name": "f", "parameters": schema });
                ("/v1/responses", json!({ "input": history, "tools": [tool], "include": ["token_ids"] }))
            }
        };
        let answer = app.post(path, body).await;
        assert_eq!(answer.status, 200, "{self:?} {}: {}", history.last().unwrap(), answer.text);
        answer.ok()
    }

    /// What a client keeps of an answer, and which call it makes.
    fn said(self, answer: &Value) -> (Vec<Value>, Option<Value>) {
        match self {
            Self::Chat => {
                let message = answer["choices"][0]["message"].clone();
                let call = message["tool_calls"][0]["id"].clone();
                (vec![message], Some(call).filter(Value::is_string))
            }
            Self::Messages => {
                let calls = answer["content"].as_array().unwrap().iter().filter(|block| block["type"] == "tool_use");
                let call = calls.inspect(|call| assert!(call["input"].is_object(), "{call}")).next();
                (vec![answer.clone()], call.map(|call| call["id"].clone()))
            }
            Self::Responses => {
                let items = answer["output"].as_array().unwrap().clone();
                let call = items.iter().find_map(|item| item.get("call_id").cloned());
                (items, call)
            }
        }
    }

    fn result(self, call: &Value) -> Value {
        match self {
            Self::Chat => json!({ "role": "tool", "tool_call_id": call, "content": "123" }),
            Self::Messages => {
                let result = json!({ "type": "tool_result", "tool_use_id": call, "content": "123" });
                json!({ "role": "user", "content": [result] })
            }
            Self::Responses => json!({ "type": "function_call_output", "call_id": call, "output": "123" }),
        }
    }

    fn ids(self, answer: &Value) -> [Vec<Value>; 2] {
        let carrier = match self {
            Self::Chat => &answer["choices"][0]["message"],
            Self::Messages => answer,
            Self::Responses => answer["output"].as_array().unwrap().last().unwrap(),
        };
        ["prompt_token_ids", "generation_token_ids"].map(|field| carrier[field].as_array().unwrap().clone())
    }
}

/// Texts of each format that vLLM's readers were recorded on.
const RECORDED: [&str; 2] =
    [include_str!("../../golden/parser/more_tools.jsonl"), include_str!("../../golden/parser/tools.jsonl")];
/// Of one format, so many at the most: each is asked twelve times.
const MOST_RECORDED: usize = 12;

/// The recorded texts of each format.
fn recorded() -> HashMap<String, Vec<String>> {
    let mut texts: HashMap<String, Vec<String>> = HashMap::new();
    for line in RECORDED.iter().flat_map(|lines| lines.lines()) {
        let record: Value = serde_json::from_str(line).unwrap();
        let [format, text] = ["tool_parser", "text"].map(|key| record[key].as_str().unwrap().to_owned());
        let of_format = texts.entry(format).or_default();
        if of_format.len() < MOST_RECORDED {
            of_format.push(text);
        }
    }
    texts
}

fn forget_ids(items: &mut [Value]) {
    for item in items {
        let fields = ["prompt_token_ids", "generation_token_ids", "generation_log_probs"];
        item.as_object_mut().unwrap().retain(|field, _| !fields.contains(&field.as_str()));
    }
}

/// Takes back what was answered with these texts, with its ids and without.
async fn take_back(format: &str, texts: &[String]) {
    take_back_through(None, format, texts).await;
}

/// The same with another chat template than the tiny model's.
async fn take_back_through(template: Option<&str>, format: &str, texts: &[String]) {
    for dialect in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
        for carries_ids in [true, false] {
            let app =
                saying(format, &texts.iter().flat_map(|text| [text.clone(), "ok".to_owned()]).collect::<Vec<_>>());
            let app = match template {
                Some(template) => app.chat_template(template),
                None => app,
            };
            for (number, text) in texts.iter().enumerate() {
                let answer = dialect.ask(&app, number, &[]).await;
                let known = dialect.ids(&answer).concat();
                let (mut items, call) = dialect.said(&answer);
                if !carries_ids {
                    forget_ids(&mut items);
                }
                let next = call.map_or(json!({ "role": "user", "content": "you" }), |call| dialect.result(&call));
                items.push(next);
                let [prompt, _] = dialect.ids(&dialect.ask(&app, number, &items).await);
                assert!(prompt.starts_with(&known), "{format} {dialect:?} {carries_ids} {text}");
            }
        }
    }
}

#[tokio::test]
async fn every_answer_is_taken_back_whatever_its_arguments_are() {
    for (format, before, after) in FORMS {
        let texts: Vec<String> = arguments().iter().map(|arguments| format!("{before}{arguments}{after}")).collect();
        take_back(format, &texts).await;
    }
}

/// Shows arguments as they were written, as those of DeepSeek do; it fails where they are an object.
const TEXT_TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message.role + '\n' + (message.content or '') }}\
    {% for call in message.tool_calls or [] %}{{ '<tool_call>' + call.function.name + '\n' + call.function.arguments \
    + '\n' }}</tool_call>{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

#[tokio::test]
async fn arguments_that_a_template_shows_to_the_letter_are_taken_back_too() {
    let format = "openai";
    let (_, before, after) = FORMS.iter().find(|(named, ..)| *named == format).unwrap();
    let texts: Vec<String> = arguments().iter().map(|arguments| format!("{before}{arguments}{after}")).collect();
    take_back_through(Some(TEXT_TEMPLATE), format, &texts).await;
}

#[tokio::test]
async fn recorded_answers_of_all_other_formats_are_taken_back() {
    let mut recorded = recorded();
    for format in ToolParser::names() {
        let texts = recorded.remove(format).unwrap_or_default();
        let is_written_here = FORMS.iter().any(|(named, ..)| *named == format);
        assert!(is_written_here || texts.len() > 8, "{format} is in no table: give it a row of FORMS");
        take_back(format, &texts).await;
    }
}

#[tokio::test]
async fn random_answers_are_taken_back() {
    // `PROPTEST_CASES` says how many texts there are over all formats.
    let cases = ProptestConfig::default().cases as usize / FORMS.len() + 4;
    let mut runner = TestRunner::deterministic();
    for (format, before, after) in FORMS {
        let pieces = [*before, *after, "{\"a\": ", "\"b\"", "}", "\"", "\\ud83d", " so ", "f", "<|", "\n", "[1]", "é"];
        let text = prop::collection::vec(prop::sample::select(pieces.to_vec()), 1..8);
        let texts = (0..cases).map(|_| text.new_tree(&mut runner).unwrap().current().concat());
        take_back(format, &texts.collect::<Vec<_>>()).await;
    }
}

#[tokio::test]
async fn an_answer_that_was_cut_off_anywhere_in_its_call_is_taken_back() {
    for (format, before, after) in FORMS {
        let text = format!("{before}{{\"a\": \"b\"}}{after}");
        let cuts = (0..=text.len()).step_by(3).map(|end| text[..text.floor_char_boundary(end)].to_owned());
        take_back(format, &cuts.collect::<Vec<_>>()).await;
    }
}

#[tokio::test]
async fn input_that_is_no_object_is_told_from_other_calls() {
    for (arguments, input) in [
        ("{\"a\": \"\\ud83d\"}", json!({ "INVALID_JSON": "{\"a\": \"\\ud83d\"}" })),
        ("{\"a\": ", json!({ "INVALID_JSON": "{\"a\": " })),
        ("[1]", json!({ "INVALID_JSON": "[1]" })),
    ] {
        let text = format!("<|channel|>commentary to=functions.f json<|message|>{arguments}<|call|>");
        let answer = Dialect::Messages.ask(&saying("openai", &[text]), 0, &[]).await;
        assert_eq!(answer["content"][0]["input"], input);
    }
}
