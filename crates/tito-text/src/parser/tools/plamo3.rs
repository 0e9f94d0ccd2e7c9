//! `PLaMo` 3: a name and JSON, each between marks of its own, both between those of a call, and all calls between those of
//! the turn (vLLM `parser/plamo3.py`, called `plamo3`). Arguments stay as they were written, but for values that the tool's
//! schema wants to be of another type.
//!
//! What deviates on purpose: a mark that the end of the text cuts off is text where it is not certain that it is one.

use super::{
    call_format::{CallFormat, CallReader},
    forcing::{Demand, Forcing, Grammar as Written},
    machine::{self, Act, Draft, Grammar, Reading, ToolCallState},
    pairs::is_name,
    schema::Signatures,
};
use crate::{
    chat::FunctionTool,
    parser::{ToolCall, marker},
    structured::{Format, Tag},
};

const CALLS: &str = "<|plamo:begin_tool_requests:plamo|>";
const CALLS_END: &str = "<|plamo:end_tool_requests:plamo|>";
const CALL: &str = "<|plamo:begin_tool_request:plamo|>";
const CALL_END: &str = "<|plamo:end_tool_request:plamo|>";
const NAME: &str = "<|plamo:begin_tool_name:plamo|>";
const NAME_END: &str = "<|plamo:end_tool_name:plamo|>";
const ARGUMENTS: &str = "<|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>";
const ARGUMENTS_END: &str = "<|plamo:end_tool_arguments:plamo|>";
const TURN_END: &str = "<|plamo:tag|>";

pub(super) const PLAMO3: CallFormat = CallFormat {
    begins_call: &[CALLS],
    begins_each: &[CALL],
    marks: &["<|plamo:begin_", "<|plamo:end_", ":plamo|>", "<|plamo:constrain|>", "<|plamo:msg|>", TURN_END],
    silence_is_null: true,
    ..CallFormat::new("plamo3", reader, Forcing::Native(Written::new(grammar)))
};

fn grammar(demand: &Demand<'_>) -> Format {
    let begin = |name: &str| format!("{CALL}{NAME}{name}{NAME_END}{ARGUMENTS}");
    let end = format!("{ARGUMENTS_END}{CALL_END}");
    let tags = demand.each(|tool| Tag::new(begin(tool.name), tool.json(), &*end));
    demand.section(CALLS, tags, "", CALLS_END)
}

fn reader(tools: &[FunctionTool]) -> Box<dyn CallReader> {
    machine::reader(Plamo3, tools)
}

#[derive(Debug)]
struct Plamo3;

impl Grammar for Plamo3 {
    const MARKERS: &'static [&'static str] =
        &[CALLS, CALLS_END, CALL, CALL_END, NAME, NAME_END, ARGUMENTS, ARGUMENTS_END, TURN_END];

    fn step(&self, state: ToolCallState, marker: &str) -> Option<(ToolCallState, Act)> {
        Some(match (state, marker) {
            (ToolCallState::Content | ToolCallState::Preamble | ToolCallState::Between, CALLS)
            | (ToolCallState::Preamble | ToolCallState::Between, CALL) => (ToolCallState::Preamble, Act::Drop),
            (ToolCallState::Preamble | ToolCallState::Between, NAME) => (ToolCallState::Name, Act::Open),
            (ToolCallState::Name, NAME_END) => (ToolCallState::Arguments, Act::Drop),
            (ToolCallState::Arguments, ARGUMENTS) => (ToolCallState::Value, Act::Drop),
            (ToolCallState::Arguments | ToolCallState::Value, NAME) => (ToolCallState::Name, Act::Next),
            (ToolCallState::Name | ToolCallState::Arguments | ToolCallState::Value, ARGUMENTS_END | CALL_END) => {
                (ToolCallState::Between, Act::Close)
            }
            (ToolCallState::Name | ToolCallState::Arguments | ToolCallState::Value, CALLS_END | TURN_END) => {
                (ToolCallState::Content, Act::Close)
            }
            (ToolCallState::Preamble | ToolCallState::Between, CALL_END) => (ToolCallState::Between, Act::Drop),
            (ToolCallState::Preamble | ToolCallState::Between, CALLS_END)
            | (ToolCallState::Content | ToolCallState::Preamble | ToolCallState::Between, TURN_END) => {
                (ToolCallState::Content, Act::Drop)
            }
            _ => return None,
        })
    }

    fn json_start(&self, state: ToolCallState, _arguments: &str) -> Option<usize> {
        (state == ToolCallState::Value).then_some(0)
    }

    fn read(&self, draft: Draft, tools: &Signatures) -> Reading {
        let name = marker::trim(&draft.name);
        if name.is_empty() || !is_name(name) {
            return Reading::default();
        }
        let body = marker::trim(&draft.arguments);
        let arguments = tools.fit(name, draft.json_or_empty(body).to_owned());
        Reading { call: Some(ToolCall::new(name.to_owned(), arguments)), unread: String::new() }
    }
}

#[cfg(test)]
mod tests {
    use crate::parser::tools::tests::check;

    use super::*;

    #[test]
    fn texts_are_read_so() {
        let call = |name: &str, arguments: &str| {
            format!("{CALL}{NAME}{name}{NAME_END}{ARGUMENTS}{arguments}{ARGUMENTS_END}{CALL_END}")
        };
        let calls = call("f", r#"{"integer": "7"}"#) + &call("h", "{\"a\":1}");
        check(
            "plamo3",
            &[
                (
                    &format!("so {CALLS}{calls}{CALLS_END}{TURN_END}"),
                    "so ",
                    &[("f", r#"{"integer": 7}"#), ("h", r#"{"a":1}"#)],
                ),
                (&call("g", "{}"), &call("g", "{}"), &[]),
                (&format!("{CALLS}{CALL}{NAME}f"), &format!("{CALLS}{CALL}{NAME}f"), &[]),
                (
                    &format!("{CALLS}{CALL}{NAME}f{NAME_END}{ARGUMENTS}{{\"string\": \"San Fr"),
                    "",
                    &[("f", r#"{"string": "San Fr"#)],
                ),
                (&format!("so{TURN_END}"), "so", &[]),
            ],
        );
    }
}
