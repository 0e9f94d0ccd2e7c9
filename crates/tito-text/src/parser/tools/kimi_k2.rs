//! Kimi K2: `<|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>JSON<|tool_call_end|>`, all of them between
//! `<|tool_calls_section_begin|>` and its end (vLLM `parser/kimi_k2.py`, called `kimi_k2`).
//!
//! The model names its calls itself: `functions.NAME:0` is the id. Arguments stay as they were written, but for values
//! that the tool's schema wants to be of another type.
//!
//! What deviates on purpose: a call without such an id is one if a tool of the request is called so, and gets a random id.
//! vLLM loses it.

use super::{
    call_format::{CallFormat, CallReader},
    forcing::{Demand, Forcing, Grammar as Written},
    machine::{self, Act, Draft, Grammar, Reading, ToolCallState},
    number,
    schema::Signatures,
};
use crate::{
    chat::FunctionTool,
    parser::{ToolCall, marker},
    structured::{Format, Tag},
};

const SECTION: &str = "<|tool_calls_section_begin|>";
const SECTION_END: &str = "<|tool_calls_section_end|>";
const CALL: &str = "<|tool_call_begin|>";
const CALL_END: &str = "<|tool_call_end|>";
const ARGUMENTS: &str = "<|tool_call_argument_begin|>";

/// All that may be special tokens.
const MARKS: &[&str] = &[SECTION, SECTION_END, CALL, CALL_END, ARGUMENTS, "<think>", "</think>"];

pub(super) const KIMI_K2: CallFormat = CallFormat {
    trims: false,
    begins_call: &[SECTION],
    begins_each: &[CALL],
    ..CallFormat::engine("kimi_k2", reader, Forcing::Native(Written::new(grammar)), MARKS)
};

fn grammar(demand: &Demand<'_>) -> Format {
    let tags = demand.each(|tool| {
        let numbered = Format::Sequence {
            elements: vec![
                Format::Regex { pattern: "[0-9]+".to_owned(), excludes: Vec::new() },
                Format::text(ARGUMENTS),
                tool.json(),
            ],
        };
        Tag::new(format!("{CALL}functions.{}:", tool.name), numbered, CALL_END)
    });
    demand.section(SECTION, tags, "", SECTION_END)
}

fn reader(tools: &[FunctionTool]) -> Box<dyn CallReader> {
    machine::reader(KimiK2, tools)
}

#[derive(Debug)]
struct KimiK2;

impl Grammar for KimiK2 {
    const MARKERS: &'static [&'static str] = MARKS;

    fn step(&self, state: ToolCallState, marker: &str) -> Option<(ToolCallState, Act)> {
        Some(match (state, marker) {
            (ToolCallState::Content | ToolCallState::Preamble, SECTION) => (ToolCallState::Preamble, Act::Drop),
            (ToolCallState::Preamble | ToolCallState::Between, CALL) => (ToolCallState::Name, Act::Open),
            (ToolCallState::Name, ARGUMENTS) => (ToolCallState::Arguments, Act::Drop),
            (ToolCallState::Name | ToolCallState::Arguments, CALL) => (ToolCallState::Name, Act::Next),
            (ToolCallState::Name | ToolCallState::Arguments, CALL_END | SECTION_END) => {
                (ToolCallState::Between, Act::Close)
            }
            (ToolCallState::Preamble | ToolCallState::Between, SECTION_END) | (ToolCallState::Between, SECTION) => {
                (ToolCallState::Between, Act::Drop)
            }
            _ => return None,
        })
    }

    fn json_start(&self, state: ToolCallState, _arguments: &str) -> Option<usize> {
        (state == ToolCallState::Arguments).then_some(0)
    }

    fn read(&self, draft: Draft, tools: &Signatures) -> Reading {
        let body = marker::trim(&draft.arguments);
        let Some((id, name)) = identity(&draft.name, tools) else { return nameless(&draft.name, body, tools) };
        let arguments = tools.fit(name, draft.json_or_empty(body).to_owned());
        let call = ToolCall::new(name.to_owned(), arguments);
        let call = ToolCall { id: id.map_or(call.id, str::to_owned), ..call };
        Reading { call: Some(call), unread: String::new() }
    }
}

/// The id and the name of a call. A header without a number is no id, but may be the name of a tool.
fn identity<'t>(header: &'t str, tools: &Signatures) -> Option<(Option<&'t str>, &'t str)> {
    if let Some((id, name)) = read_id(header) {
        return Some((Some(id), name));
    }
    let header = marker::trim(header);
    let name = header.strip_prefix("functions.").unwrap_or(header);
    tools.know(name).then_some((None, name))
}

/// A call whose arguments are the whole call. What stands in its header is no name.
fn nameless(header: &str, body: &str, tools: &Signatures) -> Reading {
    let Reading { call, unread } = machine::whole_call(body, tools);
    let call = call.map(|call| match read_id(&call.name) {
        Some((id, name)) => ToolCall { id: id.to_owned(), name: name.to_owned(), ..call },
        None => call,
    });
    Reading { call, unread: header.to_owned() + &unread }
}

/// An id, `functions.NAME:0`, and the name in it.
fn read_id(header: &str) -> Option<(&str, &str)> {
    let id = marker::trim(header);
    let (name, number) = id.split_once(':')?;
    let name = name.strip_prefix("functions.").unwrap_or(name);
    let is_number = !number.is_empty() && number.chars().all(|c| number::digit(c).is_some());
    let is_name = !name.is_empty() && !name.contains(|c: char| marker::is_space(c) || matches!(c, '<' | '"'));
    (is_number && is_name).then_some((id, name))
}

#[cfg(test)]
mod tests {
    use crate::parser::tools::tests::check;

    #[test]
    fn texts_are_read_so() {
        check(
            "kimi_k2",
            &[
                (
                    "I look. \n<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"integer\":7,\"string\":\"é\"}<|tool_call_end|><|tool_call_begin|>g:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|> done",
                    "I look. \n done",
                    &[("f", r#"{"integer":7,"string":"é"}"#), ("g", "{}")],
                ),
                (
                    r#"<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"integer":"7","string":5}<|tool_call_end|><|tool_calls_section_end|>"#,
                    "",
                    &[("f", r#"{"integer": 7, "string": "5"}"#)],
                ),
                (
                    "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|><|tool_call_end|><|tool_calls_section_end|>",
                    "",
                    &[("f", "{}")],
                ),
                (
                    "<|tool_calls_section_begin|><|tool_call_begin|>functions.h.i:12<|tool_call_argument_begin|> not json <|tool_call_end|><|tool_calls_section_end|>",
                    "",
                    &[("h.i", "not json")],
                ),
                (
                    " <|tool_calls_section_begin|><|tool_call_begin|>f<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
                    "",
                    &[("f", "{}")],
                ),
                (
                    r#"<|tool_calls_section_begin|><|tool_call_begin|>x<|tool_call_argument_begin|>{"name": "f", "integer": "1"}<|tool_call_end|><|tool_calls_section_end|>"#,
                    "x",
                    &[("f", r#"{"integer": 1}"#)],
                ),
                (
                    r#"<|tool_calls_section_begin|><|tool_call_begin|>x<|tool_call_argument_begin|>{"name": "functions.f:3"}<|tool_call_end|><|tool_calls_section_end|>"#,
                    "x",
                    &[("f", "{}")],
                ),
                ("so <|tool_calls_section_begin|> more", "so <|tool_calls_section_begin|> more", &[]),
                (
                    "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
                    "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
                    &[],
                ),
                (
                    r#"<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"integer": "1"}<|tool_calls_section_end|>"#,
                    "",
                    &[("f", r#"{"integer": 1}"#)],
                ),
                (
                    r#"<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"integer": 1"#,
                    "",
                    &[("f", r#"{"integer": 1"#)],
                ),
                (
                    "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0",
                    "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0",
                    &[],
                ),
            ],
        );
    }
}
