//! Marks of reasoning in the arguments of calls, as coding agents write them that edit a template or a parser.

use std::sync::Arc;

use super::{
    super::{
        ForcedCall, OutputFormat, PromptReasoning, ToolFormat,
        told::{Told, told},
    },
    reasoning_parser, tool_parser,
};
use crate::json::Object;

/// What is read of a text, whole and character by character.
#[track_caller]
fn read(reasoning: &str, tools: &str, forced: Option<ForcedCall>, prompt: PromptReasoning, text: &str) -> Told {
    let parser = tool_parser(tools);
    let tools = ToolFormat { parser, tools: Arc::new([]), forced, first_only: false, held: false };
    let reasoning = reasoning_parser(reasoning).format(&Object::default());
    let format = OutputFormat::new(Some(reasoning), Some(tools), Some(parser));
    let whole = told(&format, prompt, [text]);
    let characters = text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()]);
    assert_eq!(told(&format, prompt, characters), whole, "{text:?}");
    whole
}

/// Ways of writing a call of `f` whose argument `a` is the text between them, and the marks of the reasoning beside it.
const CALLS: &[(&str, &str, &str, &str, &str, &str)] = &[
    (
        "qwen3",
        "hermes",
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"",
        "\"}}</tool_call>",
        "<think>",
        "</think>",
    ),
    (
        "qwen3",
        "qwen3_coder",
        "<tool_call><function=f><parameter=a>",
        "</parameter></function></tool_call>",
        "<think>",
        "</think>",
    ),
    ("qwen3", "xlam", "[{\"name\": \"f\", \"arguments\": {\"a\": \"", "\"}}]", "<think>", "</think>"),
    ("qwen3", "pythonic", "[f(a=\"", "\")]", "<think>", "</think>"),
    ("qwen3", "llama3_json", "{\"name\": \"f\", \"parameters\": {\"a\": \"", "\"}}", "<think>", "</think>"),
    (
        "glm45",
        "glm45",
        "<tool_call>f\n<arg_key>a</arg_key><arg_value>",
        "</arg_value></tool_call>",
        "<think>",
        "</think>",
    ),
    (
        "glm47",
        "glm47",
        "<tool_call>f<arg_key>a</arg_key><arg_value>",
        "</arg_value></tool_call>",
        "<think>",
        "</think>",
    ),
    ("mistral", "mistral", "[TOOL_CALLS]f[ARGS]{\"a\": \"", "\"}", "[THINK]", "[/THINK]"),
    ("mistral", "mistral", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": \"", "\"}}]", "[THINK]", "[/THINK]"),
    (
        "kimi_k2",
        "kimi_k2",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": \"",
        "\"}<|tool_call_end|><|tool_calls_section_end|>",
        "<think>",
        "</think>",
    ),
    (
        "minimax_m2",
        "minimax_m2",
        "<minimax:tool_call><invoke name=\"f\"><parameter name=\"a\">",
        "</parameter></invoke></minimax:tool_call>",
        "<think>",
        "</think>",
    ),
    (
        "deepseek_v4",
        "deepseek_v4",
        "<｜DSML｜tool_calls><｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"a\" string=\"true\">",
        "</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜tool_calls>",
        "<think>",
        "</think>",
    ),
];

#[test]
fn marks_in_arguments_are_text() {
    for &(reasoning, tools, before, after, start, end) in CALLS {
        for value in
            [format!("{start}x{end}y"), format!("x{end}"), format!("use {start} here"), format!("{end}{start}")]
        {
            let call = format!("{before}{value}{after}");
            let value = serde_json::Value::from(value);
            // After thoughts, and where the prompt has ended them.
            let said = format!("{start}W{end}{call}");
            let (thought, content, calls) = read(reasoning, tools, None, PromptReasoning::Unmarked, &said);
            assert_eq!((thought.as_deref(), content.as_str()), (Some("W"), ""), "{said}");
            let [(name, arguments)] = &calls[..] else { panic!("{said}: {calls:?}") };
            let arguments: serde_json::Value = serde_json::from_str(arguments).unwrap();
            assert_eq!((name.as_str(), &arguments["a"]), ("f", &value), "{said}");
            let ended = read(reasoning, tools, None, PromptReasoning::Ended, &call);
            assert_eq!((ended.0.as_deref().unwrap_or_default(), &ended.2), ("", &calls), "{call}");
        }
    }
}

#[test]
fn thoughts_go_on_after_a_call_where_they_may() {
    let text =
        "<think>a</think><tool_call>f<arg_key>a</arg_key><arg_value><think></arg_value></tool_call><think>b</think>c";
    let (reasoning, content, calls) = read("glm47", "glm47", None, PromptReasoning::Unmarked, text);
    assert_eq!((reasoning.as_deref(), content.as_str()), (Some("ab"), "c"));
    assert_eq!(calls, [("f".to_owned(), r#"{"a": "<think>"}"#.to_owned())]);
}

#[test]
fn a_start_in_the_arguments_of_a_call_that_ends_thoughts_is_text() {
    let text = r#"I call.
<tool_call>{"name": "f", "arguments": {"a": "<think>"}}</tool_call>"#;
    for reasoning in ["qwen3", "hy_v3"] {
        let told = read(reasoning, "hermes", None, PromptReasoning::Begun(0), text);
        assert_eq!(told.2, [("f".to_owned(), r#"{"a": "<think>"}"#.to_owned())], "{reasoning}");
        assert_eq!(told.0.as_deref(), Some("I call.\n"), "{reasoning}");
    }
}

#[test]
fn thoughts_that_mention_a_call_are_not_the_arguments_of_a_forced_one() {
    let text = "I should write ]<]minimax[>[<tool_call> and then";
    let forced = Some(ForcedCall::Named("f".to_owned()));
    let (reasoning, content, calls) = read("minimax_m3", "minimax_m3", forced, PromptReasoning::Begun(0), text);
    assert_eq!((reasoning.as_deref(), content.as_str(), calls), (Some(text), "", Vec::new()));
}
