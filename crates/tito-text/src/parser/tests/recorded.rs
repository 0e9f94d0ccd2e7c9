//! What vLLM's own parsers made of texts (`tests/golden/parser`), but for what differs on purpose.

use std::{fs, sync::Arc};

use super::{
    super::{OutputFormat, PromptReasoning, ReasoningParser, ToolFormat, ToolParser, marker, told::told},
    lost::lost,
};
use crate::json::Value;

const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/parser/vllm.jsonl");

const REASONING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/parser/reasoning.jsonl");

/// Reasoning, content, and names and arguments of the calls.
type Read = (Option<String>, Option<String>, Vec<(String, String)>);

fn text(value: &Value, key: &str) -> Option<String> {
    value.get(key).and_then(Value::as_str).map(str::to_owned)
}

fn format(case: &Value) -> OutputFormat {
    let variables = case.get("variables").and_then(Value::as_object).unwrap();
    let reasoning = text(case, "reasoning_parser");
    let reasoning = reasoning.map(|name| ReasoningParser::named(&name).unwrap().format(variables));
    let parser = text(case, "tool_parser").map(|name| ToolParser::named(&name).unwrap());
    let tools =
        parser.map(|parser| ToolFormat { parser, tools: Arc::new([]), forced: None, first_only: false, held: false });
    OutputFormat::new(reasoning, tools, parser)
}

fn recorded(case: &Value) -> Read {
    let call = |call: &Value| {
        let [name, arguments] = call.as_array().unwrap() else { panic!("{call:?}") };
        (name.as_str().unwrap().to_owned(), arguments.as_str().unwrap().to_owned())
    };
    let calls = case.get("calls").and_then(Value::as_array).unwrap().iter().map(call).collect();
    (text(case, "reasoning"), text(case, "content"), calls)
}

fn read(format: &OutputFormat, text: &str) -> Read {
    let (reasoning, content, calls) = told(format, PromptReasoning::Unmarked, [text]);
    let null = content.is_empty() && (!calls.is_empty() || format.silence_is_null());
    (reasoning, (!null).then_some(content), calls)
}

/// All that is shown of a text.
fn visible_text((reasoning, content, calls): &Read) -> String {
    let calls = calls.iter().map(|(name, arguments)| format!("{name}{arguments}"));
    reasoning.iter().chain(content).cloned().chain(calls).collect()
}

/// Whether a case is one of the deviations that the modules list.
fn deviates(case: &Value, (_, content, calls): &Read) -> bool {
    let text = text(case, "text").unwrap();
    let parser = |key, name| case.get(key).and_then(Value::as_str) == Some(name);
    // What stands before the start is kept, and a start after the end is none.
    let before = text.split("<think>").next().unwrap();
    if parser("reasoning_parser", "deepseek_r1") && text.contains("<think>") && !marker::is_blank(before) {
        return true;
    }
    // An answer that says nothing has thought nothing.
    if parser("reasoning_parser", "nemotron_v3") && marker::is_blank(&text) {
        return true;
    }
    // Content before a call is kept.
    if parser("tool_parser", "llama3_json") && !calls.is_empty() && content.is_some() {
        return true;
    }
    if parser("tool_parser", "mistral") {
        // Content keeps the white space in front of it, and the text of a list that makes no call is kept.
        let spaced = !calls.is_empty() && content.as_ref().is_some_and(|content| content.starts_with(marker::is_space));
        // A name ends at a marker.
        let marked = recorded(case).2.iter().any(|(name, _)| name.contains("[TOOL_CALLS]"));
        return spaced || marked || (calls.is_empty() && text.contains("[TOOL_CALLS]"));
    }
    false
}

#[test]
fn whole_texts_are_read_as_vllm_reads_them() {
    let record = fs::read_to_string(RECORD).unwrap();
    let (mut checked, mut kept_more, mut wrong) = (0, 0, Vec::new());
    for line in record.lines() {
        let case = Value::parse(line).unwrap();
        let ours = read(&format(&case), &text(&case, "text").unwrap());
        if deviates(&case, &ours) {
            continue;
        }
        checked += 1;
        let theirs = recorded(&case);
        // Whatever vLLM shows is shown.
        if ours != theirs && lost(&visible_text(&ours), &visible_text(&theirs)).is_empty() {
            kept_more += 1;
        } else if ours != theirs {
            wrong.push(format!("{line}\n    {ours:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {checked}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(kept_more * 6 < checked, "{kept_more} of {checked} are read otherwise than by vLLM");
    assert!(checked * 10 > record.lines().count() * 8, "only {checked} cases deviate not on purpose");
}

/// Who is read otherwise on purpose. All that vLLM shows is shown nevertheless.
const OTHERWISE: [&str; 9] = [
    // The white space in front of the answer is a part of it, and that of the marks around it is not.
    "ernie45",
    "granite_thinking_parser",
    "kimi_k3",
    // An end that ends nothing is only a mark.
    "gemma4",
    "minimax_m3",
    // Reasoning that nothing ends is reasoning.
    "granite",
    "hunyuan_a13b",
    "k2_horizon",
    "olmo3",
];

#[test]
fn reasoning_is_read_as_vllm_0_33_reads_it() {
    // Nothing is nothing, however it is said.
    let said = |text: Option<String>| text.filter(|text| !text.is_empty());
    let record = fs::read_to_string(REASONING).unwrap();
    let mut wrong = Vec::new();
    for line in record.lines() {
        let case = Value::parse(line).unwrap();
        let name = text(&case, "reasoning_parser").unwrap();
        let (reasoning, content, _) = read(&format(&case), &text(&case, "text").unwrap());
        let ours = (said(reasoning), said(content), Vec::new());
        let (mut reasoning, content, _) = recorded(&case);
        if name == "step3" {
            // vLLM leaves the mark that begins it.
            reasoning = reasoning.map(|text| text.strip_prefix("<think>").map_or(text.clone(), str::to_owned));
        }
        let theirs = (said(reasoning), said(content), Vec::new());
        let marks = ReasoningParser::named(&name).unwrap().spellings().into_iter().chain(["<answer>", "</answer>"]);
        let without_marks = marks.fold(visible_text(&theirs), |text, mark| text.replace(mark, ""));
        let listed = OTHERWISE.contains(&name.as_str()) && lost(&visible_text(&ours), &without_marks).is_empty();
        if ours != theirs && !listed {
            wrong.push(format!("{line}\n    {ours:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), record.lines().count(), wrong.join("\n"));
}
