//! DeepSeek V3 and V3.1: `<｜tool▁call▁begin｜>…<｜tool▁sep｜>…<｜tool▁call▁end｜>` after `<｜tool▁calls▁begin｜>` (vLLM
//! `tool_parsers/deepseekv3_tool_parser.py` and `deepseekv31_tool_parser.py`, called `deepseek_v3` and `deepseek_v31`).
//!
//! V3 writes `function<sep>NAME` and a fence of JSON, and V3.1 `NAME<sep>JSON`. Arguments are passed on to the letter.
//!
//! What deviates on purpose: arguments may have several lines. vLLM's regular expressions stop at the first, and the call
//! is lost.

use super::{
    call_format::{CallFormat, CallReader},
    forcing::{Demand, Forcing, Grammar as Written},
    machine::{self, Act, Draft, Grammar, Reading, ToolCallState},
    schema::Signatures,
};
use crate::{
    chat::FunctionTool,
    parser::{ToolCall, marker},
    structured::{Format, MOST_WHITESPACE, Tag},
};

const CALLS: &str = "<｜tool▁calls▁begin｜>";
const CALLS_END: &str = "<｜tool▁calls▁end｜>";
const CALL: &str = "<｜tool▁call▁begin｜>";
const SEPARATOR: &str = "<｜tool▁sep｜>";
const CALL_END: &str = "<｜tool▁call▁end｜>";
/// Before the arguments of V3.
const FENCE: &str = "\n```json\n";

const MARKS: &[&str] = &[CALLS, CALLS_END, CALL, SEPARATOR, CALL_END];
/// What the tokenizer has to have.
const NEEDS: &[&str] = &[CALLS, CALLS_END];

pub(super) const V3: CallFormat = CallFormat {
    keeps_special_tokens: false,
    marks: MARKS,
    begins_call: &[CALLS],
    begins_each: &[CALL],
    needs: NEEDS,
    ..CallFormat::new("deepseek_v3", v3_reader, on_one_line(v3_grammar))
};
pub(super) const V31: CallFormat = CallFormat {
    keeps_special_tokens: false,
    marks: MARKS,
    begins_call: &[CALLS],
    begins_each: &[CALL],
    needs: NEEDS,
    ..CallFormat::new("deepseek_v31", v31_reader, on_one_line(v31_grammar))
};

/// vLLM's readers find arguments on one line only, so that the model is held to that.
const fn on_one_line(grammar: fn(&Demand<'_>) -> Format) -> Forcing {
    Forcing::Native(Written { whitespace: Some(|| format!(" {{1,{MOST_WHITESPACE}}}")), ..Written::new(grammar) })
}

fn v3_grammar(demand: &Demand<'_>) -> Format {
    let begin = |name: &str| format!("{CALL}function{SEPARATOR}{name}\n```json\n");
    let tags = demand.each(|tool| Tag::new(begin(tool.name), tool.json(), format!("\n```{CALL_END}")));
    demand.section(CALLS, tags, "\n", CALLS_END)
}

fn v31_grammar(demand: &Demand<'_>) -> Format {
    let begin = |name: &str| format!("{CALL}{name}{SEPARATOR}");
    let tags = demand.each(|tool| Tag::new(begin(tool.name), tool.json(), CALL_END));
    demand.section(CALLS, tags, "", CALLS_END)
}

fn v3_reader(tools: &[FunctionTool]) -> Box<dyn CallReader> {
    machine::reader(V3Calls, tools)
}

fn v31_reader(tools: &[FunctionTool]) -> Box<dyn CallReader> {
    machine::reader(V31Calls, tools)
}

/// What leads where in both. What V3 has for a name is the type of the call.
fn step(state: ToolCallState, marker: &str) -> Option<(ToolCallState, Act)> {
    Some(match (state, marker) {
        (ToolCallState::Content | ToolCallState::Preamble | ToolCallState::Between, CALLS) => {
            (ToolCallState::Preamble, Act::Drop)
        }
        (ToolCallState::Preamble | ToolCallState::Between, CALL) => (ToolCallState::Name, Act::Open),
        // Kept, since without it there is no call.
        (ToolCallState::Name, SEPARATOR) => (ToolCallState::Arguments, Act::Keep),
        (ToolCallState::Name | ToolCallState::Arguments, CALL) => (ToolCallState::Name, Act::Next),
        (ToolCallState::Name | ToolCallState::Arguments, CALL_END) => (ToolCallState::Between, Act::Close),
        (ToolCallState::Name | ToolCallState::Arguments, CALLS_END) => (ToolCallState::Content, Act::Close),
        (ToolCallState::Preamble | ToolCallState::Between, CALLS_END) => (ToolCallState::Content, Act::Drop),
        _ => return None,
    })
}

fn arguments(draft: &Draft) -> Option<&str> {
    draft.arguments.strip_prefix(SEPARATOR)
}

fn called(draft: &Draft, name: &str, arguments: &str, unread: &str) -> Reading {
    let name = marker::trim(name);
    let arguments = if draft.cut { draft.json_or_empty(arguments) } else { arguments };
    let call = (!name.is_empty()).then(|| ToolCall::new(name.to_owned(), arguments.to_owned()));
    Reading { call, unread: unread.to_owned() }
}

#[derive(Debug)]
struct V3Calls;

impl Grammar for V3Calls {
    const MARKERS: &'static [&'static str] = MARKS;

    fn step(&self, state: ToolCallState, marker: &str) -> Option<(ToolCallState, Act)> {
        step(state, marker)
    }

    fn json_start(&self, state: ToolCallState, arguments: &str) -> Option<usize> {
        let fence = if state == ToolCallState::Arguments { arguments.find(FENCE) } else { None };
        fence.map(|at| at + FENCE.len())
    }

    fn read(&self, draft: Draft, _tools: &Signatures) -> Reading {
        let fenced = arguments(&draft).and_then(|call| call.split_once(FENCE));
        let Some((name, fenced)) = fenced.filter(|_| marker::trim(&draft.name) == "function") else {
            return Reading::default();
        };
        match fenced.rsplit_once("\n```") {
            Some((arguments, after)) if !after.contains('\n') => called(&draft, name, arguments, after),
            _ => called(&draft, name, &fenced[..fenced.len() - marker::begun(fenced, &["\n```"])], ""),
        }
    }
}

#[derive(Debug)]
struct V31Calls;

impl Grammar for V31Calls {
    const MARKERS: &'static [&'static str] = MARKS;

    fn step(&self, state: ToolCallState, marker: &str) -> Option<(ToolCallState, Act)> {
        step(state, marker)
    }

    fn json_start(&self, state: ToolCallState, _arguments: &str) -> Option<usize> {
        (state == ToolCallState::Arguments).then_some(SEPARATOR.len())
    }

    fn read(&self, draft: Draft, _tools: &Signatures) -> Reading {
        arguments(&draft).map_or_else(Reading::default, |arguments| called(&draft, &draft.name, arguments, ""))
    }
}

#[cfg(test)]
mod tests {
    use crate::parser::tools::tests::check;

    #[test]
    fn v3_calls_are_fences_of_json() {
        check(
            "deepseek_v3",
            &[
                (
                    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\":1,  \"b\": \"é\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
                    "",
                    &[("f", r#"{"a":1,  "b": "é"}"#)],
                ),
                (
                    "I look. <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\nnot json\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜> done",
                    "I look.  done",
                    &[("f", "{}"), ("g", "not json")],
                ),
                (
                    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\n\"a\": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
                    "",
                    &[("f", "{\n\"a\": 1}")],
                ),
                (
                    " \n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
                    "",
                    &[("f", "{}")],
                ),
                (
                    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tool<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
                    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tool<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜>",
                    &[],
                ),
                (
                    "so <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tool<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜> x",
                    "so <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tool<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜> x",
                    &[],
                ),
                ("so <｜tool▁calls▁begin｜> x", "so <｜tool▁calls▁begin｜> x", &[]),
                (
                    "so <｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜>",
                    "so <｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜>",
                    &[],
                ),
                (
                    "so <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```",
                    "so ",
                    &[("f", "{}")],
                ),
                (" <｜tool▁calls", " <｜tool▁calls", &[]),
            ],
        );
    }

    #[test]
    fn v31_calls_are_json() {
        check(
            "deepseek_v31",
            &[
                (
                    r#"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a":1,  "b": "é"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"#,
                    "",
                    &[("f", r#"{"a":1,  "b": "é"}"#)],
                ),
                (
                    "I look. <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>not json<｜tool▁call▁end｜><｜tool▁calls▁end｜> done",
                    "I look.  done",
                    &[("f", "{}"), ("g", "not json")],
                ),
                (
                    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\n\"a\": 1}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
                    "",
                    &[("f", "{\n\"a\": 1}"), ("g", "{}")],
                ),
                (
                    " \n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
                    "",
                    &[("f", "{}")],
                ),
                ("so <｜tool▁calls▁begin｜> x", "so <｜tool▁calls▁begin｜> x", &[]),
                (
                    "so <｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>",
                    "so <｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>",
                    &[],
                ),
                (
                    "so <｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜> <｜tool▁calls▁begin｜>",
                    "so <｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜> ",
                    &[],
                ),
                (
                    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f{}<｜tool▁call▁end｜>",
                    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f{}<｜tool▁call▁end｜>",
                    &[],
                ),
                ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}", "", &[("f", "{}")]),
            ],
        );
    }
}
