//! DeepSeek V3 and V3.1: `<｜tool▁call▁begin｜>…<｜tool▁sep｜>…<｜tool▁call▁end｜>` after `<｜tool▁calls▁begin｜>` (vLLM
//! `tool_parsers/deepseekv3_tool_parser.py` and `deepseekv31_tool_parser.py`, called `deepseek_v3` and `deepseek_v31`).
//!
//! V3 writes `function<sep>NAME`, a fence of JSON on three lines, and V3.1 `NAME<sep>JSON` on one. Arguments are passed on
//! to the letter. After the first `<｜tool▁calls▁begin｜>` nothing is content, whether there are calls or not.

use super::{
    call_format::{CallFormat, CallReader},
    forcing::{Demand, Forcing, Grammar},
};
use crate::{
    chat::FunctionTool,
    parser::{Piece, ToolCall, marker},
    structured::{Format, MOST_WHITESPACE, Tag},
};

const CALLS: &str = "<｜tool▁calls▁begin｜>";
const CALLS_END: &str = "<｜tool▁calls▁end｜>";
const CALL: &str = "<｜tool▁call▁begin｜>";
const SEPARATOR: &str = "<｜tool▁sep｜>";
const CALL_END: &str = "<｜tool▁call▁end｜>";

const MARKS: &[&str] = &[CALLS, CALLS_END, CALL, SEPARATOR, CALL_END];
/// What the tokenizer has to have.
const NEEDS: &[&str] = &[CALLS, CALLS_END];

pub(super) const V3: CallFormat = CallFormat {
    keeps_special_tokens: false,
    marks: MARKS,
    needs: NEEDS,
    ..CallFormat::new("deepseek_v3", v3_reader, on_one_line(v3_grammar))
};
pub(super) const V31: CallFormat = CallFormat {
    keeps_special_tokens: false,
    marks: MARKS,
    needs: NEEDS,
    ..CallFormat::new("deepseek_v31", v31_reader, on_one_line(v31_grammar))
};

/// The readers, as vLLM's, find arguments on one line only.
const fn on_one_line(grammar: fn(&Demand<'_>) -> Format) -> Forcing {
    Forcing::Native(Grammar { whitespace: Some(|| format!(" {{1,{MOST_WHITESPACE}}}")), ..Grammar::new(grammar) })
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

fn v3_reader(_tools: &[FunctionTool]) -> Box<dyn CallReader> {
    Box::new(Reader::new(Version::V3))
}

fn v31_reader(_tools: &[FunctionTool]) -> Box<dyn CallReader> {
    Box::new(Reader::new(Version::V31))
}

/// Which of the two ways to write a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V3,
    V31,
}

#[derive(Debug)]
struct Reader {
    version: Version,
    text: String,
    /// How many bytes of the text were given out as content.
    given: usize,
    /// Whether calls may come.
    marked: bool,
    /// How many bytes of the text were searched for calls.
    read: usize,
}

impl Reader {
    fn new(version: Version) -> Self {
        Self { version, text: String::new(), given: 0, marked: false, read: 0 }
    }

    fn content(&mut self, out: &mut Vec<Piece>) {
        let end = match self.text[self.given..].find(CALLS) {
            Some(at) => {
                self.marked = true;
                self.given + at
            }
            None => self.text.len() - marker::begun(&self.text[self.given..], &[CALLS]),
        };
        let content = &self.text[self.given..end];
        // White space alone is no content where calls may come.
        if self.given > 0 || !marker::is_blank(content) {
            give(content, out);
            self.given = end;
        }
    }

    /// Calls of V3.1 are what they are once they have ended.
    fn calls(&mut self, out: &mut Vec<Piece>) {
        while let Some(start) = self.text[self.read..].find(CALL) {
            let start = self.read + start + CALL.len();
            let line = self.text[start..].split_once('\n').map_or(&self.text[start..], |(line, _)| line);
            let written =
                line.split_once(SEPARATOR).and_then(|(name, rest)| Some((name, rest.split_once(CALL_END)?.0)));
            self.read = match written {
                Some((name, arguments)) => {
                    out.push(Piece::Call(ToolCall::new(name.to_owned(), arguments.to_owned())));
                    start + name.len() + SEPARATOR.len() + arguments.len() + CALL_END.len()
                }
                None if start + line.len() < self.text.len() => start + line.len(),
                None => return,
            };
        }
    }
}

impl CallReader for Reader {
    fn push(&mut self, text: &str, out: &mut Vec<Piece>) {
        self.text.push_str(text);
        if !self.marked {
            self.content(out);
        }
        if self.marked && self.version == Version::V31 && text.contains(['>', '\n']) {
            self.calls(out);
        }
    }

    fn finish(&mut self, out: &mut Vec<Piece>) {
        match (self.marked, self.version) {
            (true, Version::V31) => {}
            // In V3, a call that is not of the type `function` spoils all calls.
            (true, Version::V3) => match v3_calls(&self.text) {
                Some(calls) => out.extend(calls.into_iter().map(Piece::Call)),
                None => give(&self.text[self.given..], out),
            },
            (false, _) => give(&self.text[self.given..], out),
        }
    }
}

fn give(content: &str, out: &mut Vec<Piece>) {
    if !content.is_empty() {
        out.push(Piece::Content(content.to_owned()));
    }
}

/// All calls of V3; none where one has another type than `function`.
fn v3_calls(text: &str) -> Option<Vec<ToolCall>> {
    let mut calls = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once(CALL) {
        rest = after;
        let Some((kind, name, arguments, next)) = v3_call(after) else { continue };
        if kind != "function" {
            return None;
        }
        calls.push(ToolCall::new(name.to_owned(), arguments.to_owned()));
        rest = next;
    }
    Some(calls)
}

/// The type, the name, the arguments, and what comes then.
fn v3_call(text: &str) -> Option<(&str, &str, &str, &str)> {
    let (head, rest) = text.split_once('\n')?;
    let (kind, name) = head.rsplit_once(SEPARATOR)?;
    let (arguments, rest) = rest.strip_prefix("```json\n")?.split_once('\n')?;
    let next = rest.strip_prefix("```")?.strip_prefix(CALL_END)?;
    Some((kind, name, arguments, next))
}

#[cfg(test)]
mod tests {
    use crate::parser::tools::tests::check;

    #[test]
    fn v3_calls_are_fences_of_json_on_three_lines() {
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
                    "I look. ",
                    &[("f", "{}"), ("g", "not json")],
                ),
                (
                    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\n\"a\": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
                    "",
                    &[],
                ),
                (
                    " \n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
                    "",
                    &[("f", "{}")],
                ),
                (
                    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tool<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
                    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tool<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
                    &[],
                ),
                (
                    "so <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tool<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜> x",
                    "so <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tool<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜> x",
                    &[],
                ),
                ("so <｜tool▁calls▁begin｜> x", "so ", &[]),
                (
                    "so <｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜>",
                    "so <｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜>",
                    &[],
                ),
                ("so <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```", "so ", &[]),
                (" <｜tool▁calls", " <｜tool▁calls", &[]),
            ],
        );
    }

    #[test]
    fn v31_calls_are_json_on_one_line() {
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
                    "I look. ",
                    &[("f", "{}"), ("g", "not json")],
                ),
                (
                    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\n\"a\": 1}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
                    "",
                    &[("g", "{}")],
                ),
                (
                    " \n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
                    "",
                    &[("f", "{}")],
                ),
                ("so <｜tool▁calls▁begin｜> x", "so ", &[]),
                (
                    "so <｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>",
                    "so <｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>",
                    &[],
                ),
                (
                    "so <｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜> <｜tool▁calls▁begin｜>",
                    "so <｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜> ",
                    &[("f", "{}")],
                ),
                ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}", "", &[]),
            ],
        );
    }
}
