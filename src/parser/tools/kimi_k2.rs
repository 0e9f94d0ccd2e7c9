//! Kimi K2: `<|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>JSON<|tool_call_end|>`, all of them between
//! `<|tool_calls_section_begin|>` and its end (vLLM `parser/kimi_k2.py`, called `kimi_k2`).
//!
//! The model names its calls itself: `functions.NAME:0` is the id. Arguments stay as they were written, but for values
//! that the tool's schema wants to be of another type. Nothing is said after a section.
//!
//! What deviates on purpose: a call without such an id gets a random one. vLLM counts the calls of the conversation there
//! if the model is a Kimi.

use super::{
    call_format::{CallFormat, CallReader},
    forcing::{Demand, Forcing, Grammar as Written},
    machine::{self, Act, Draft, Grammar, Reading, State},
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

pub(super) const KIMI_K2: CallFormat =
    CallFormat { trims: false, ..CallFormat::engine("kimi_k2", reader, Forcing::Native(Written::new(grammar)), MARKS) };

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
    machine::reader::<KimiK2>(tools)
}

#[derive(Debug)]
struct KimiK2;

impl Grammar for KimiK2 {
    const MARKERS: &'static [&'static str] = MARKS;

    fn step(state: State, marker: &str) -> Option<(State, Act)> {
        Some(match (state, marker) {
            (State::Preamble | State::Between, CALL) => (State::Name, Act::Open),
            (State::Name, ARGUMENTS) => (State::Arguments, Act::Drop),
            (State::Arguments, CALL_END) => (State::Between, Act::Close),
            (State::Arguments, SECTION_END) => (State::Preamble, Act::Close),
            (State::Content, SECTION) | (State::Preamble | State::Between, SECTION_END) => (State::Preamble, Act::Drop),
            _ => return None,
        })
    }

    fn read(draft: Draft, tools: &Signatures) -> Reading {
        let Draft { name: header, arguments: body } = draft;
        let (id, name) = identity(&header, &body);
        let announced = !name.is_empty();
        let written = match (marker::trim(name), marker::trim(&body)) {
            ("", body) => machine::whole_call(body).filter(|(name, _)| !name.is_empty()),
            (name, "") => Some((name.to_owned(), "{}".to_owned())),
            (name, body) => Some((name.to_owned(), body.to_owned())),
        };
        let call = written.map(|(name, arguments)| {
            let arguments = tools.fit(&name, arguments);
            let call = ToolCall::new(name, arguments);
            ToolCall { id: id.map_or(call.id, str::to_owned), ..call }
        });
        Reading { announced, call }
    }
}

/// The id and the name of a call. Where the header is no id, vLLM looks for a name in the arguments, and where these
/// have none either, it takes the header for the name.
fn identity<'t>(header: &'t str, body: &'t str) -> (Option<&'t str>, &'t str) {
    if let Some((id, name)) = read_id(header) {
        return (Some(id), name);
    }
    if body.is_empty() {
        return (None, header);
    }
    let name = machine::name_within(body).unwrap_or_default();
    read_id(name).map_or((None, name), |(id, name)| (Some(id), name))
}

/// An id, `functions.NAME:0`, and the name in it. It ends after the last number of its line.
fn read_id(header: &str) -> Option<(&str, &str)> {
    let line = marker::trim(header).split('\n').next()?;
    let end = line.rmatch_indices(':').find_map(|(at, _)| {
        let digits = line[at + 1..].find(|c| number::digit(c).is_none()).unwrap_or(line.len() - at - 1);
        (at > 0 && digits > 0).then_some(at + 1 + digits)
    })?;
    let id = marker::trim(&line[..end]);
    let name = id.split(':').next()?;
    let name = name.strip_prefix("functions.").unwrap_or(name);
    (!name.is_empty()).then_some((id, name))
}

#[cfg(test)]
mod tests {
    use crate::parser::tools::tests::check;

    #[test]
    fn texts_give_what_vllm_gives() {
        check(
            "kimi_k2",
            &[
                (
                    "I look. \n<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"integer\":7,\"string\":\"é\"}<|tool_call_end|><|tool_call_begin|>g:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|> done",
                    "I look. \n",
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
                    &[],
                ),
                (
                    r#"<|tool_calls_section_begin|><|tool_call_begin|>x<|tool_call_argument_begin|>{"name": "f", "integer": "1"}<|tool_call_end|><|tool_calls_section_end|>"#,
                    "",
                    &[("f", r#"{"name": "f", "integer": 1}"#)],
                ),
                (
                    r#"<|tool_calls_section_begin|><|tool_call_begin|>x<|tool_call_argument_begin|>{"name": "functions.f:3"}<|tool_call_end|><|tool_calls_section_end|>"#,
                    "",
                    &[("f", r#"{"name": "functions.f:3"}"#)],
                ),
                ("so <|tool_calls_section_begin|> more", "so ", &[]),
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
                ("<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0", "", &[("f", "{}")]),
            ],
        );
    }
}
