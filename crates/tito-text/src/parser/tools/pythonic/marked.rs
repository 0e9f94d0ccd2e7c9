//! Calls in Python between marks (vLLM `tool_parsers/lfm2_tool_parser.py` and `olmo3_tool_parser.py`):
//!
//! - LFM 2 (`lfm2`): `<|tool_call_start|>[NAME(KEY=VALUE, …), …]<|tool_call_end|>`.
//! - OLMo 3 (`olmo3`): `<function_calls>`, a call on each line, `</function_calls>`.
//!
//! Keys may be words that Python keeps for itself, and strings may have several lines, whose ends stay as they are written.
//! Comments are not read: they would be
//! lost.
//!
//! What stands between the marks and is no calls is content to the letter, with its marks. A block that nothing ends is
//! ended by the next.
//!
//! What deviates on purpose:
//! - Any number of blocks may come. vLLM reads the first.
//! - `lfm2`: text after the calls stays, also where the model repeats them and ends them again. vLLM drops that. It also
//!   mends strings with quotes in them and integers with zeros in front, which make content here.
//! - `olmo3`: calls without the marks are content. vLLM reads them in JSON answers, and not in streams.

use super::{
    super::{
        call_format::{CallFormat, CallReader},
        forcing::Forcing,
        json_call,
        until_end::UntilEnd,
    },
    call, list,
    source::Source,
};
use crate::{
    chat::FunctionTool,
    parser::{Piece, ToolCall, marker, unread::Unread},
};

const LFM2_MARKS: &[&str] = &["<|tool_call_start|>", "<|tool_call_end|>"];
const OLMO3_MARKS: &[&str] = &["<function_calls>", "</function_calls>"];

pub(in super::super) const LFM2: CallFormat = CallFormat {
    trims: true,
    marks: LFM2_MARKS,
    begins_call: &[LFM2_MARKS[0]],
    needs: LFM2_MARKS,
    ..CallFormat::new("lfm2", lfm2_reader, Forcing::BareJson)
};
pub(in super::super) const OLMO3: CallFormat = CallFormat {
    keeps_special_tokens: false,
    marks: OLMO3_MARKS,
    begins_call: &[OLMO3_MARKS[0]],
    ..CallFormat::new("olmo3", olmo3_reader, Forcing::BareJson)
};

fn lfm2_reader(_tools: &[FunctionTool]) -> Box<dyn CallReader> {
    Box::new(UntilEnd::new(&LFM2_MARKS[..1], |text| blocks(text, LFM2_MARKS, one_list)))
}

fn olmo3_reader(_tools: &[FunctionTool]) -> Box<dyn CallReader> {
    Box::new(UntilEnd::new(&OLMO3_MARKS[..1], |text| blocks(text, OLMO3_MARKS, lines)))
}

/// The calls of a text that begins with a mark, and what stands between them; `None` where there are none.
fn blocks(
    text: &str,
    marks: &'static [&'static str],
    read: impl Fn(&str) -> Option<Vec<ToolCall>>,
) -> Option<Vec<Piece>> {
    let [begin, end] = marks else { return None };
    let mut pieces = Vec::new();
    let mut called = false;
    // What stands before `from` was read, and before `at` there is no call.
    let (mut from, mut at) = (0, 0);
    let mut unread = Unread::whole(text);
    while let Some((offset, _)) = unread.first(&marks[..1]) {
        let block = at + offset;
        let body = block + begin.len();
        unread.skip(body - at);
        let (body_end, next) = match unread.first(marks) {
            Some((length, mark)) if mark == *end => (body + length, body + length + end.len()),
            Some((length, _)) => (body + length, body + length),
            None => (text.len(), text.len()),
        };
        unread.skip(next - body);
        at = next;
        let written = Some(&text[body..body_end]).filter(|written| !written.contains('\0'));
        let calls = written.and_then(&read).unwrap_or_default();
        if !calls.is_empty() {
            called = true;
            outside(&text[from..block], end, &mut pieces);
            pieces.extend(calls.into_iter().map(Piece::Call));
            from = next;
        }
    }
    outside(&text[from..], end, &mut pieces);
    called.then_some(pieces)
}

/// What stands beside blocks; ends that end nothing are only marks.
fn outside(text: &str, end: &str, pieces: &mut Vec<Piece>) {
    if !marker::is_blank(&text.replace(end, "")) {
        json_call::outside(text, pieces);
    }
}

/// A list, and nothing else.
fn one_list(text: &str) -> Option<Vec<ToolCall>> {
    list(&mut Source::lenient(text)).filter(|(_, rest)| marker::is_blank(rest)).map(|(calls, _)| calls)
}

/// Calls on lines of their own.
fn lines(text: &str) -> Option<Vec<ToolCall>> {
    let mut source = Source::lenient(text);
    let mut calls = Vec::new();
    while !marker::is_blank(source.rest()) {
        let rest = source.rest();
        let space = &rest[..rest.len() - rest.trim_start().len()];
        if !calls.is_empty() && !space.contains(['\n', '\r']) {
            return None;
        }
        source.advance(space.len());
        calls.push(call(&mut source)?);
    }
    Some(calls)
}

#[cfg(test)]
mod tests {
    use crate::parser::tools::tests::check;

    #[test]
    fn lfm2_writes_a_list() {
        check(
            "lfm2",
            &[
                (
                    "I look. <|tool_call_start|>[f(integer=1, string=\"é\"), g()]<|tool_call_end|> done",
                    "I look. done",
                    &[("f", r#"{"integer": 1, "string": "é"}"#), ("g", "{}")],
                ),
                (
                    "<|tool_call_start|>[f(from='a\nb', class=None)]<|tool_call_end|>\n<|tool_call_start|>[h(a=True)]",
                    "",
                    &[("f", r#"{"from": "a\nb", "class": null}"#), ("h", r#"{"a": true}"#)],
                ),
                (
                    "<|tool_call_start|>[f(string='x\r\ny\rz',\r\n integer=1)]<|tool_call_end|>",
                    "",
                    &[("f", r#"{"string": "x\r\ny\rz", "integer": 1}"#)],
                ),
                ("<|tool_call_start|>[f()]<|tool_call_start|>[g()]<|tool_call_end|>", "", &[("f", "{}"), ("g", "{}")]),
                (
                    "so <|tool_call_start|>[f(1)]<|tool_call_end|>\n<|tool_call_start|>[f(2)]\n <|tool_call_start|>[g()]",
                    "so <|tool_call_start|>[f(1)]<|tool_call_end|>\n<|tool_call_start|>[f(2)]",
                    &[("g", "{}")],
                ),
                (
                    "<|tool_call_start|>[g()]<|tool_call_end|>[g()]<|tool_call_end|>",
                    "[g()]<|tool_call_end|>",
                    &[("g", "{}")],
                ),
                ("so <|tool_call_start|>[]<|tool_call_end|>", "so <|tool_call_start|>[]<|tool_call_end|>", &[]),
                (
                    "<|tool_call_start|>[f()] # so<|tool_call_end|>",
                    "<|tool_call_start|>[f()] # so<|tool_call_end|>",
                    &[],
                ),
                ("so <|tool_call_start|>[f(a=1", "so <|tool_call_start|>[f(a=1", &[]),
                ("[f()]", "[f()]", &[]),
            ],
        );
    }

    #[test]
    fn olmo3_writes_a_call_on_each_line() {
        check(
            "olmo3",
            &[
                (
                    "I look. <function_calls>\nf(integer=1, string=\"é\")\ng()\n</function_calls> done",
                    "I look.  done",
                    &[("f", r#"{"integer": 1, "string": "é"}"#), ("g", "{}")],
                ),
                (
                    "<function_calls>f(a=null, b=true,\n c=[1])</function_calls>",
                    "",
                    &[("f", r#"{"a": null, "b": true, "c": [1]}"#)],
                ),
                ("<function_calls>g()\r\ng()\r</function_calls>", "", &[("g", "{}"), ("g", "{}")]),
                ("<function_calls>f() g()</function_calls>", "<function_calls>f() g()</function_calls>", &[]),
                ("<function_calls>f(a=</function_calls>", "<function_calls>f(a=</function_calls>", &[]),
                ("<function_calls>\n</function_calls>", "<function_calls>\n</function_calls>", &[]),
                ("<function_calls>g()", "", &[("g", "{}")]),
                ("g()", "g()", &[]),
            ],
        );
    }
}
