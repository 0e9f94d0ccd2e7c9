//! Hermes, Qwen 2.5 and Qwen 3: `<tool_call>` JSON `</tool_call>` (vLLM `tool_parsers/hermes_tool_parser.py`).
//!
//! What deviates on purpose: the JSON of a call says where it ends, so that marks within its text are text; vLLM's regular
//! expression stops at the first, and there is no call then. And arguments that nest deeper than our JSON parser goes, or that hold half of a surrogate
//! pair, `NaN` or an infinity, are no call. Python reads the latter. vLLM then cannot send half of a pair, and sends
//! arguments with `NaN` that are no JSON.

use super::{
    call_format::{CallFormat, CallReader},
    forcing::{Demand, Forcing, Grammar},
    json_call,
    until_end::UntilEnd,
};
use crate::{
    chat::FunctionTool,
    json::Value,
    parser::{Piece, ToolCall, marker},
    structured::{Format, Tag},
};

const MARKER: &str = "<tool_call>";
const END: &str = "</tool_call>";
const MARKS: &[&str] = &[MARKER, END];

pub(super) const HERMES: CallFormat = call_format("hermes");
pub(super) const QWEN3_JSON: CallFormat = call_format("qwen3_json");

const fn call_format(name: &'static str) -> CallFormat {
    CallFormat {
        marks: MARKS,
        begins_call: &[MARKER],
        ..CallFormat::new(name, reader, Forcing::Native(Grammar::new(grammar)))
    }
}

/// Calls on one line, or with their JSON on a line of its own.
fn grammar(demand: &Demand<'_>) -> Format {
    let tags = demand.tools.iter().flat_map(|tool| {
        [("\n", "\n"), ("", "")].map(|(begin, end)| {
            let begin = format!("{MARKER}{begin}{{\"name\": \"{}\", \"arguments\": ", tool.name);
            Tag::new(begin, tool.json(), format!("}}{end}{END}"))
        })
    });
    demand.list(tags.collect(), "", MARKER)
}

fn reader(_tools: &[FunctionTool]) -> Box<dyn CallReader> {
    Box::new(UntilEnd::new(&[MARKER], calls))
}

/// The calls of a text that begins with [`MARKER`], with what stands between them; `None` where one of them cannot be
/// read. The last one may lack its end.
fn calls(text: &str) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(MARKER) {
        outside(before, &mut pieces);
        let (body, after) = body(after);
        call(body, &mut pieces)?;
        rest = after;
    }
    outside(rest, &mut pieces);
    Some(pieces)
}

/// What is before the end of a call, and what is after it. In the call's JSON the mark is text.
fn body(text: &str) -> (&str, &str) {
    let space = text.len() - text.trim_start_matches(marker::is_space).len();
    let json = Value::parse_start_literally(&text[space..]).map_or(0, |(_, length)| space + length);
    if let Some(end) = text[json..].find(END) {
        return (&text[..json + end], &text[json + end + END.len()..]);
    }
    // The end of the text may have cut the mark off.
    (&text[..text.len() - marker::begun(text, &[END])], "")
}

/// What stands beside calls; ends that end nothing are only marks.
fn outside(text: &str, pieces: &mut Vec<Piece>) {
    if !marker::is_blank(&text.replace(END, "")) {
        json_call::outside(text, pieces);
    }
}

fn call(body: &str, pieces: &mut Vec<Piece>) -> Option<()> {
    let Value::Object(mut call) = Value::parse_literally(body).ok()? else { return None };
    let Some(Value::String(name)) = call.shift_remove("name") else { return None };
    let arguments = call.shift_remove("arguments")?.to_json_string();
    pieces.push(Piece::Call(ToolCall::new(name, arguments)));
    json_call::outside(&json_call::unread(call), pieces);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Vec<(String, String)>> {
        let calls = calls(text)?.into_iter().filter_map(|piece| match piece {
            Piece::Call(call) => Some((call.name, call.arguments)),
            _ => None,
        });
        Some(calls.collect())
    }

    /// One call of `f`.
    fn f(arguments: &str) -> Vec<(String, String)> {
        vec![("f".to_owned(), arguments.to_owned())]
    }

    #[test]
    fn arguments_are_spelled_as_python_spells_them_but_for_numbers() {
        for (arguments, spelled) in [
            (r#"{"a":1,"b":[1.0,1e5,-0]}"#, r#"{"a": 1, "b": [1.0, 1e5, -0]}"#),
            (r#"{"b": 1, "a": 2, "b": 3}"#, r#"{"b": 3, "a": 2}"#),
            (r#"{"city": "K\u00f8ge \ud83d\ude00 é"}"#, r#"{"city": "Køge 😀 é"}"#),
            (r#"{"a": 123456789012345678901234567890}"#, r#"{"a": 123456789012345678901234567890}"#),
            ("{}", "{}"),
            ("null", "null"),
            (r#""{\"a\": 1}""#, r#""{\"a\": 1}""#),
        ] {
            let text = format!("<tool_call>\n{{\"name\": \"f\", \"arguments\": {arguments}}}\n</tool_call>");
            assert_eq!(read(&text), Some(f(spelled)), "{text}");
        }
    }

    #[test]
    fn the_last_call_may_lack_its_end_and_what_stands_between_calls_is_content() {
        assert_eq!(read(r#"<tool_call>{"name": "f", "arguments": {}}"#), Some(f("{}")));
        assert_eq!(read(r#"<tool_call>{"name": "f", "arguments": {}}</tool_"#), Some(f("{}")));
        assert_eq!(
            read(r#"<tool_call>{"arguments": {}, "x": 1, "name": "f"}</tool_call> so </tool_call>"#),
            Some(f("{}"))
        );
        let text = "<tool_call>{\"name\": \"f\", \"arguments\": 1}</tool_call> and\n\
                    <tool_call>\n{\"name\": \"g\", \"arguments\": 2}\n";
        let two = [("f", "1"), ("g", "2")].map(|(name, arguments)| (name.to_owned(), arguments.to_owned()));
        assert_eq!(read(text), Some(two.to_vec()));
        let content = calls(text).unwrap().into_iter().filter(|piece| matches!(piece, Piece::Content(_)));
        assert_eq!(content.collect::<Vec<_>>(), [Piece::Content(" and\n".to_owned())]);
    }

    #[test]
    fn marks_within_the_json_of_a_call_are_text() {
        for value in ["</tool_call>", "a </tool_call>\\n<tool_call>{} b", "\\\"</tool_call>", "<tool_call>"] {
            let call = format!("{{\"name\": \"f\", \"arguments\": {{\"a\": \"{value}\"}}}}");
            let [one] = &f(&format!("{{\"a\": \"{value}\"}}"))[..] else { panic!() };
            for (text, calls) in [
                (format!("<tool_call>{call}</tool_call>"), 1),
                (format!("<tool_call>\n{call}\n</tool_call>\n<tool_call>\n{call}\n</tool_call>"), 2),
                (format!("<tool_call>{call}"), 1),
                (format!("<tool_call>{call}</tool_"), 1),
            ] {
                assert_eq!(read(&text), Some(vec![one.clone(); calls]), "{text}");
            }
        }
        assert_eq!(read(r#"<tool_call>{"name": "f", "arguments": {"a": "</tool_call>"#), None);
    }

    #[test]
    fn one_call_that_cannot_be_read_spoils_all() {
        let good = r#"<tool_call>{"name": "f", "arguments": {}}</tool_call>"#;
        for bad in [
            "",
            " ",
            "{",
            r#"{"name": "f"}"#,
            r#"{"arguments": {}}"#,
            r#"{"name": 1, "arguments": {}}"#,
            r#"{"name": null, "arguments": {}}"#,
            r#"{"name": "f", "arguments": {},}"#,
            r#"{"name": "f", "arguments": {}} {}"#,
            r#"{"name": "f", "arguments": {"a": "\ud83d"}}"#,
            r#"{"name": "f", "arguments": {"a": NaN}}"#,
            r#"{"name": "f", "arguments": {"a": [-Infinity]}}"#,
            r"{'name': 'f', 'arguments': {}}",
            r#"[{"name": "f", "arguments": {}}]"#,
            r#""name""#,
            "null",
            r#"{"name": "f", "arguments": {}}<tool_call>{"name": "f", "arguments": {}}"#,
        ] {
            for text in [
                format!("<tool_call>{bad}</tool_call>"),
                format!("{good}<tool_call>{bad}</tool_call>"),
                format!("<tool_call>{bad}</tool_call>{good}"),
                format!("{good}<tool_call>{bad}"),
            ] {
                assert_eq!(read(&text), None, "{text}");
            }
        }
    }
}
