//! Answers that were read wrongly, as users of several servers reported them.

use std::sync::Arc;

use super::{
    super::{OutputFormat, OutputParser, Piece, PromptReasoning, ReasoningParser, ToolFormat},
    reasoning_parser, tool_parser,
};
use crate::{chat::FunctionTool, json::Value};

/// How one answer is read: the parsers, and what the prompt and the template's variables say of thoughts.
struct Server {
    tool: Option<&'static str>,
    reasoning: Option<&'static str>,
    variables: &'static str,
    prompt: PromptReasoning,
}

const fn tools(name: &'static str) -> Server {
    Server { tool: Some(name), reasoning: None, variables: "{}", prompt: PromptReasoning::Unmarked }
}

const fn both(tool: &'static str, reasoning: &'static str) -> Server {
    Server { tool: Some(tool), reasoning: Some(reasoning), variables: "{}", prompt: PromptReasoning::Unmarked }
}

fn function(name: &str) -> FunctionTool {
    let properties = r#"{"a": {"type": "integer"}, "n": {"type": "number"}, "s": {"type": "string"}}"#;
    let schema = format!(r#"{{"type": "object", "properties": {properties}}}"#);
    FunctionTool {
        name: name.to_owned(),
        description: None,
        parameters: Some(Value::parse(&schema).unwrap()),
        strict: None,
        defer_loading: None,
        outer_defer_loading: None,
    }
}

/// What is read: thoughts in parentheses, calls in brackets.
fn read(server: &Server, text: &str) -> String {
    let variables = Value::parse(server.variables).unwrap();
    let reasoning = server.reasoning.map(reasoning_parser);
    let reasoning = reasoning.map(|parser| parser.format(variables.as_object().unwrap()));
    let parser = server.tool.map(tool_parser);
    let tools = parser.map(|parser| ToolFormat {
        parser,
        tools: Arc::new([function("f"), function("g")]),
        forced: None,
        first_only: false,
        held: false,
    });
    let mut parser = OutputParser::new(&OutputFormat::new(reasoning, tools, parser), server.prompt);
    let mut pieces = parser.push(text);
    pieces.extend(parser.finish());
    let (mut thoughts, mut content, mut calls) = (String::new(), String::new(), String::new());
    for piece in pieces {
        match piece {
            Piece::Reasoning(text) => thoughts.push_str(&text),
            Piece::Content(text) => content.push_str(&text),
            Piece::Call(call) => calls.extend(["[", &call.name, &call.arguments, "]"]),
        }
    }
    if thoughts.is_empty() { content + &calls } else { format!("({thoughts}){content}{calls}") }
}

#[track_caller]
fn check(server: &Server, rows: &[(&str, &str)]) {
    for (text, expected) in rows {
        assert_eq!(read(server, text), *expected, "{text}");
    }
}

#[test]
fn calls_of_several_lines_are_calls() {
    let (begin, end) = ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>", "<｜tool▁call▁end｜><｜tool▁calls▁end｜>");
    let text = format!("Hi{begin}function<｜tool▁sep｜>f\n```json\n{{\n  \"a\": 1\n}}\n```{end}Done.");
    check(&tools("deepseek_v3"), &[(&text, "HiDone.[f{\n  \"a\": 1\n}]")]);
    let text = format!("{begin}f<｜tool▁sep｜>{{\n  \"a\": 1\n}}{end}");
    check(&tools("deepseek_v31"), &[(&text, "[f{\n  \"a\": 1\n}]")]);
}

#[test]
fn a_call_that_nothing_ends_does_not_swallow_the_next() {
    let value = |key: &str, value: u8| format!("<parameter={key}>\n{value}\n</parameter>\n");
    let g = format!("<function=g>\n{}</function>\n</tool_call>", value("a", 2));
    for between in ["</tool_call>\n<tool_call>\n", "", "<tool_call>\n", "<tool_call>"] {
        let text = format!("<tool_call>\n<function=f>\n{}{between}{g}", value("a", 1));
        check(&tools("qwen3_coder"), &[(&text, r#"[f{"a": 1}][g{"a": 2}]"#)]);
    }
    check(
        &tools("qwen3_coder"),
        &[
            (&format!("<tool_call>\n<function=f>\n<parameter=a>\n1\n<tool_call>\n{g}"), r#"[f{"a": 1}][g{"a": 2}]"#),
            (&format!("<tool_call>\n<function=f<tool_call>\n{g}"), r#"[f{}][g{"a": 2}]"#),
            (
                "<tool_call>\n<function=f</tool_call>\n<tool_call>\n<function=g>\n</function>\n</tool_call>",
                "[f{}][g{}]",
            ),
        ],
    );
    let pair = |key: &str, value: u8| format!("<arg_key>{key}</arg_key><arg_value>{value}</arg_value>");
    let text = format!("<tool_call>f{}<tool_call>g{}</tool_call>", pair("a", 1), pair("a", 2));
    check(&tools("glm47"), &[(&text, r#"[f{"a": 1}][g{"a": 2}]"#)]);
    let text = "<minimax:tool_call><invoke name=\"f\"><parameter name=\"a\">1</parameter><invoke name=\"g\"></invoke>";
    check(&tools("minimax_m2"), &[(text, r#"[f{"a": 1}][g{}]"#)]);
    let kimi = "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": 1}\
                <|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>";
    check(&tools("kimi_k2"), &[(kimi, r#"[f{"a": 1}][g{}]"#)]);
    check(&tools("gemma4"), &[("<|tool_call>call:f{a:1}<|tool_call>call:g{}<tool_call|>", r#"[f{"a": 1}][g{}]"#)]);
}

#[test]
fn what_is_no_call_is_content() {
    check(&tools("glm47"), &[("<tool_call>forecast</tool_call>", "<tool_call>forecast</tool_call>")]);
    let (begin, end) =
        ("<|tool_calls_section_begin|><|tool_call_begin|>", "<|tool_call_end|><|tool_calls_section_end|>");
    let text = format!("{begin}functions.f<|tool_call_argument_begin|>{{\"a\": 1}}{end}");
    check(&tools("kimi_k2"), &[(&text, r#"[f{"a": 1}]"#)]);
    let text = format!("{begin}find<|tool_call_argument_begin|>{{\"a\": 1}}<|tool_call_end|>");
    check(&tools("kimi_k2"), &[(&text, &text)]);
    let foreign = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>";
    let gpt_oss = Server { tool: None, reasoning: Some("openai_gptoss"), ..tools("openai") };
    check(&gpt_oss, &[(foreign, foreign)]);
    let thinks = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>a";
    check(&tools("openai"), &[(thinks, "(hm)a")]);
}

#[test]
fn a_value_that_is_cut_off_is_cut_off_in_the_arguments() {
    for (format, text, expected) in [
        ("qwen3_coder", "<tool_call>\n<function=f>\n<parameter=s>\nSan Fr", r#"[f{"s": "San Fr]"#),
        ("qwen3_coder", "<function=f><parameter=a>1</parameter><parameter=n>7", r#"[f{"a": 1, "n": 7]"#),
        ("qwen3_coder", "<function=f><parameter=a>1</parameter>", r#"[f{"a": 1}]"#),
        ("qwen3_coder", "<function=f><parameter=a>1</parameter><parameter=lo", r#"[f{"a": 1, "lo]"#),
        ("qwen3_coder", "<function=f><parameter=", "[f{]"),
        ("glm47", "<tool_call>f<arg_key>s</arg_key><arg_value>San Fr", r#"[f{"s": "San Fr]"#),
        ("glm47", "<tool_call>f<arg_key>lo", r#"[f{"lo]"#),
        ("glm47", "<tool_call>f<arg_key>city</arg", r#"[f{"city]"#),
        ("minimax_m2", "<invoke name=\"f\"><parameter name=\"s\">San Fr", r#"[f{"s": "San Fr]"#),
        ("minimax_m2", "<invoke name=\"f\"><parameter name=\"lo", r#"[f{"lo]"#),
        ("minimax_m2", "<invoke name=\"f\"><parameter name=\"lo\"", r#"[f{"lo]"#),
        ("gemma4", "<|tool_call>call:f{s:<|\"|>San Fr", r#"[f{"s": "San Fr]"#),
        ("functiongemma", "<start_function_call>call:f{s:<escape>San Fr", r#"[f{"s": "San Fr]"#),
        // What is cut off in a name may have been another function.
        ("qwen3_coder", "<tool_call>\n<function=f", "<tool_call>\n<function=f"),
        ("glm47", "<tool_call>f", "<tool_call>f"),
        ("minimax_m2", "<invoke name=\"f", "<invoke name=\"f"),
    ] {
        check(&tools(format), &[(text, expected)]);
    }
}

#[test]
fn numbers_and_mistrals_arguments_are_typed_without_a_loss() {
    let text = "<tool_call>\n<function=f>\n<parameter=n>\n9007199254740993\n</parameter>\n</function>\n</tool_call>";
    check(&tools("qwen3_coder"), &[(text, r#"[f{"n": 9007199254740993}]"#)]);
    check(&tools("mistral"), &[(r#"[TOOL_CALLS]f[ARGS]{"a": "5", "s": 7}"#, r#"[f{"a": 5, "s": "7"}]"#)]);
}

#[test]
fn thoughts_end_at_their_end_whatever_they_mention() {
    let rows = |call: &str| {
        [
            (format!("<think>Shall I {call}? No.</think>Hi."), format!("(Shall I {call}? No.)Hi.")),
            (format!("<think>I {call}</think>{call}"), format!("(I {call})[f{{}}]")),
            (format!("<think>I do.{call}"), "(I do.)[f{}]".to_owned()),
            (format!("<think>Shall I {call}</think"), format!("(Shall I {call}</think)")),
        ]
    };
    let pairs = [
        ("glm47", "glm47", "<tool_call>f</tool_call>"),
        ("qwen3_coder", "qwen3", "<tool_call>\n<function=f>\n</function>\n</tool_call>"),
        ("hermes", "qwen3", r#"<tool_call>{"name": "f", "arguments": {}}</tool_call>"#),
        ("hermes", "deepseek_r1", r#"<tool_call>{"name": "f", "arguments": {}}</tool_call>"#),
        ("minimax_m2", "minimax_m2", "<minimax:tool_call><invoke name=\"f\"></invoke></minimax:tool_call>"),
    ];
    for (tool, reasoning, call) in pairs {
        let [mentioned, made, unended, cut] = rows(call);
        for (text, expected) in [mentioned, made, unended] {
            assert_eq!(read(&both(tool, reasoning), &text).replace("(I do. )", "(I do.)"), expected, "{tool} {text}");
        }
        // A call is there, and its thoughts have no end.
        let (text, _) = cut;
        assert!(read(&both(tool, reasoning), &text).ends_with("[f{}]"), "{tool} {text}");
        // A mark without a call is a part of the thoughts.
        let mark = &call[..=call.find('>').unwrap()];
        let text = format!("<think>I write {mark} then");
        assert_eq!(read(&both(tool, reasoning), &text), format!("(I write {mark} then)"), "{tool}");
    }
}

#[test]
fn what_the_prompt_says_of_thoughts_counts_before_what_the_template_is_told() {
    let off = r#"{"enable_thinking": false}"#;
    for (reasoning, variables, prompt, text, expected) in [
        ("glm47", off, PromptReasoning::Begun(0), "think</think>answer", "(think)answer"),
        ("qwen3", off, PromptReasoning::Begun(0), "think</think>answer", "(think)answer"),
        ("deepseek_v3", "{}", PromptReasoning::Begun(0), "think</think>answer", "(think)answer"),
        ("glm47", "{}", PromptReasoning::Ended, "<think>t</think>a", "(t)a"),
        ("qwen3", off, PromptReasoning::Ended, "\n<think>t</think>a", "(t)\na"),
        ("deepseek_r1", "{}", PromptReasoning::Ended, "<think>t</think>a", "(t)a"),
        ("qwen3", "{}", PromptReasoning::Ended, "abc</think>def", "abcdef"),
        ("nemotron_v3", "{}", PromptReasoning::Ended, "abc</think>def", "abcdef"),
        ("qwen3", "{}", PromptReasoning::Ended, "I write <think> here", "I write <think> here"),
        ("qwen3", off, PromptReasoning::Unmarked, "abc", "abc"),
    ] {
        let server = Server { tool: None, reasoning: Some(reasoning), variables, prompt };
        check(&server, &[(text, expected)]);
    }
}

#[test]
fn the_effort_says_whether_a_model_thinks_and_in_which_marks() {
    let plamo = "a<|plamo:end_think:plamo|>b<|plamo:tag|>";
    for (reasoning, variables, text, expected) in [
        ("hy_v3", "{}", "a</think>b", "a</think>b"),
        ("hy_v3", r#"{"reasoning_effort": "high"}"#, "a</think>b", "(a)b"),
        ("hy_v3", r#"{"reasoning_effort": "no_think"}"#, "a</think>b", "a</think>b"),
        ("hy_v4", "{}", "<think>a</think>b", "(a)b"),
        ("hy_v4", r#"{"reasoning_effort": "no_think"}"#, "a", "a"),
        ("hy_v3:6e", r#"{"reasoning_effort": "high"}"#, "<think:6e>a</think></think:6e>b", "(a</think>)b"),
        ("hy_v4:6e", "{}", "a<think>b</think:6e>c</think:6e", "(a<think>b)c</think:6e"),
        ("k2_horizon", "{}", "a</ifm|think>b", "(a)b"),
        ("k2_horizon", r#"{"reasoning_effort": "low"}"#, "<ifm|think_faster>a</ifm|think_faster>b", "(a)b"),
        ("plamo3", "{}", plamo, "(a)b"),
        ("plamo3", r#"{"enable_thinking": false}"#, "a", "a"),
    ] {
        let server = Server { tool: None, reasoning: Some(reasoning), variables, prompt: PromptReasoning::Unmarked };
        check(&server, &[(text, expected)]);
    }
    let marks = |variables: &str| {
        let variables = Value::parse(variables).unwrap();
        let format = ReasoningParser::named("k2_horizon").unwrap().format(variables.as_object().unwrap());
        format.marks().unwrap().end
    };
    assert_eq!(marks("{}"), "</ifm|think>");
    assert_eq!(marks(r#"{"reasoning_effort": "medium"}"#), "</ifm|think_fast>");
}

#[test]
fn calls_of_more_families_end_thoughts_that_have_no_end() {
    let calls = [
        (
            "hy_v3",
            "hy_v3",
            r#"{"reasoning_effort": "high"}"#,
            "<tool_calls><tool_call>f<tool_sep></tool_call></tool_calls>",
        ),
        ("hy_v4", "hy_v4:6e", "{}", "<tool_calls><tool_call>f</tool_call></tool_calls>"),
        ("hy_v4:6e", "hy_v4:6e", "{}", "<tool_calls:6e><tool_call:6e>f</tool_call:6e></tool_calls:6e>"),
        ("k2_horizon", "k2_horizon", "{}", "<ifm|tool_calls><ifm|tool_call>f</ifm|tool_call></ifm|tool_calls>"),
        (
            "step3",
            "step3",
            "{}",
            "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"f\"></steptml:invoke>",
        ),
        ("minicpm5", "qwen3", "{}", "<function name=\"f\"></function>"),
    ];
    for (tool, reasoning, variables, call) in calls {
        let prompt = PromptReasoning::Unmarked;
        let server = Server { tool: Some(tool), reasoning: Some(reasoning), variables, prompt };
        check(&server, &[(&format!("so {call}"), "(so )[f{}]")]);
    }
}
