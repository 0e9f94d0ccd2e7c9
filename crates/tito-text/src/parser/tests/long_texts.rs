//! Texts of one part over and over: reading them takes as long as they are, and not the square of that, which would be minutes
//! here.

use std::sync::Arc;

use super::{
    super::{
        OutputFormat, PromptReasoning, ToolFormat,
        told::{Told, told},
    },
    reasoning_parser, tool_parser,
};
use crate::json::Object;

/// How often a part stands in a text.
const TIMES: usize = 100_000;

/// A format by the names of its parsers; the former may be missing.
fn format(reasoning: &str, tools: &str) -> OutputFormat {
    let reasoning = (!reasoning.is_empty()).then(|| reasoning_parser(reasoning).format(&Object::default()));
    let parser = tool_parser(tools);
    let tools = ToolFormat { parser, tools: Arc::new([]), forced: None, first_only: false, held: false };
    OutputFormat::new(reasoning, Some(tools), None)
}

/// Reads a text of ASCII at once, and in as many pieces as there are parts.
#[track_caller]
fn check((reasoning, tools): (&str, &str), prompt: PromptReasoning, text: &str, expected: &Told) {
    let format = format(reasoning, tools);
    let excerpt = |told: &Told| format!("{told:?}").chars().take(200).collect::<String>();
    let whole = told(&format, prompt, [text]);
    assert!(whole == *expected, "{tools}: {}", excerpt(&whole));
    let length = (text.len() / TIMES).max(1);
    let pieces = (0..text.len()).step_by(length).map(|at| &text[at..text.len().min(at + length)]);
    let pieces = told(&format, prompt, pieces);
    assert!(pieces == *expected, "{tools} in pieces: {}", excerpt(&pieces));
}

fn content(text: impl Into<String>) -> Told {
    (None, text.into(), Vec::new())
}

#[test]
fn marks_of_thoughts_over_and_over_are_read_once_each() {
    let text = "<think></think>".repeat(TIMES) + "y";
    check(("glm45", "hermes"), PromptReasoning::Unmarked, &text, &content("y"));
    // Only the first thoughts are some.
    let answer = "<think>".repeat(TIMES - 1) + "y";
    check(("qwen3", "hermes"), PromptReasoning::Unmarked, &text, &content(answer));
}

#[test]
fn blanks_over_and_over_are_looked_at_once_each() {
    let blanks = "\n".repeat(TIMES);
    let thought = |answer: &str| (Some("x".to_owned()), answer.to_owned(), Vec::new());
    check(("qwen3", "hermes"), PromptReasoning::Unmarked, &format!("x</think>{blanks}"), &thought(&blanks));
    check(("nemotron_v3", "hermes"), PromptReasoning::Unmarked, &format!("x{blanks}</think>a"), &thought("a"));
    check(("", "xlam"), PromptReasoning::Unmarked, &blanks, &content(blanks.clone()));
    check(("", "mistral"), PromptReasoning::Unmarked, &format!("a{blanks}"), &content(format!("a{blanks}")));
    let wrapped = format!("<think>x</think>{blanks}<answer>a");
    check(("hunyuan_a13b", "hunyuan_a13b"), PromptReasoning::Unmarked, &wrapped, &thought("a"));
    let arguments = format!("[TOOL_CALLS]f[ARGS]{blanks}{{}}");
    let f = vec![("f".to_owned(), "{}".to_owned())];
    check(("", "mistral"), PromptReasoning::Unmarked, &arguments, &(None, String::new(), f.clone()));
    let call = "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}\
                <|tool_call_end|>";
    check(("", "kimi_k2"), PromptReasoning::Unmarked, &format!("{call}{blanks}"), &(None, String::new(), f));
}

#[test]
fn messages_over_and_over_are_read_once_each() {
    let blanks = "\n".repeat(TIMES);
    let first = "<|channel|>final<|message|>a<|end|>";
    check(("", "openai"), PromptReasoning::Unmarked, &format!("{first}{blanks}"), &content("a"));
    let messages = format!("<|start|>assistant{first}").repeat(TIMES / 4);
    let lines = "\na".repeat(TIMES / 4);
    check(("", "openai"), PromptReasoning::Unmarked, &format!("{first}{messages}"), &content(format!("a{lines}")));
}

#[test]
fn marks_of_calls_over_and_over_are_read_once_each() {
    for (tools, mark) in [("xlam", "```"), ("olmo3", "<function_calls>"), ("granite", "<tool_call>")] {
        let marks = mark.repeat(TIMES);
        check(("", tools), PromptReasoning::Unmarked, &marks, &content(marks.clone()));
    }
    let marks = "[TOOL_CALLS]".repeat(TIMES / 4);
    let f = |arguments: String| (None, String::new(), vec![("f".to_owned(), arguments)]);
    check(("", "mistral"), PromptReasoning::Unmarked, &format!("{marks}f{{}}"), &f("{}".to_owned()));
    let arguments = format!(r#"{{"a": "{marks}"}}"#);
    check(("", "mistral"), PromptReasoning::Unmarked, &format!("[TOOL_CALLS]f[ARGS]{arguments}"), &f(arguments));
    let mentioned = "[TOOL_CALLS]f ".repeat(TIMES / 4);
    check(("", "mistral"), PromptReasoning::Unmarked, &mentioned, &content(mentioned.clone()));
}
