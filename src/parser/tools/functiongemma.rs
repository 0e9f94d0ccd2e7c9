//! FunctionGemma: `<start_function_call>call:NAME{KEY:<escape>VALUE<escape>,…}<end_function_call>` (vLLM
//! `tool_parsers/functiongemma_tool_parser.py`, called `functiongemma`).
//!
//! A value is JSON where it can be read as such, and text otherwise. The last call may lack its end. After a call nothing
//! is content.
//!
//! What deviates on purpose: JSON that has no form here (an integer of more than 4300 digits, half of a surrogate pair) is
//! text. vLLM finds no call in such an answer, or cannot send it.

use super::{
    call_format::{CallFormat, CallReader},
    forcing::Forcing,
};
use crate::{
    chat::FunctionTool,
    json::{Object, Value},
    parser::{Piece, ToolCall, marker},
};

const START: &str = "<start_function_call>";
const CALL: &str = "<start_function_call>call:";
const END: &str = "}<end_function_call>";
const ESCAPE: &str = "<escape>";
const MARKS: &[&str] = &[START, "<end_function_call>", ESCAPE];

pub(super) const FUNCTIONGEMMA: CallFormat =
    CallFormat { marks: MARKS, trims: true, ..CallFormat::new("functiongemma", reader, Forcing::BareJson) };

fn reader(_tools: &[FunctionTool]) -> Box<dyn CallReader> {
    Box::new(Reader { text: String::new(), given: 0, marked: false, called: false, read: 0 })
}

#[derive(Debug)]
struct Reader {
    text: String,
    /// Bytes of the text that were given out as content.
    given: usize,
    /// Whether calls may come.
    marked: bool,
    called: bool,
    /// Bytes of the text that were searched for calls.
    read: usize,
}

impl Reader {
    fn content(&mut self, out: &mut Vec<Piece>) {
        let end = match self.text[self.given..].find(START) {
            Some(at) => {
                self.marked = true;
                self.given + at
            }
            None => self.text.len() - marker::begun(&self.text[self.given..], &[START]),
        };
        self.give(end, out);
    }

    fn give(&mut self, end: usize, out: &mut Vec<Piece>) {
        if end > self.given {
            out.push(Piece::Content(self.text[self.given..end].to_owned()));
            self.given = end;
        }
    }

    fn calls(&mut self, ended: bool, out: &mut Vec<Piece>) {
        self.read = self.read.max(self.given);
        while let Some(at) = self.text[self.read..].find(CALL) {
            let start = self.read + at + CALL.len();
            let rest = &self.text[start..];
            let name = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            if name == rest.len() {
                // The name may go on.
                return;
            }
            let Some(body) = rest[name..].strip_prefix('{').filter(|_| name > 0) else {
                self.read = start;
                continue;
            };
            let (body, length) = match body.find(END) {
                Some(end) => (&body[..end], name + 1 + end + END.len()),
                None if ended => (body, rest.len()),
                None => return,
            };
            let arguments = arguments(body).to_json_string();
            out.push(Piece::Call(ToolCall::new(rest[..name].to_owned(), arguments)));
            self.called = true;
            self.read = start + length;
        }
    }
}

impl CallReader for Reader {
    fn push(&mut self, text: &str, out: &mut Vec<Piece>) {
        self.text.push_str(text);
        if !self.marked {
            self.content(out);
        }
        if self.marked && text.contains('>') {
            self.calls(false, out);
        }
    }

    fn finish(&mut self, out: &mut Vec<Piece>) {
        if self.marked {
            self.calls(true, out);
        }
        if !self.called {
            self.give(self.text.len(), out);
        }
    }
}

fn arguments(body: &str) -> Value {
    let mut arguments = Object::new();
    let mut rest = body;
    while let Some(colon) = rest.find(":<escape>") {
        let (before, after) = (&rest[..colon], &rest[colon + 1..]);
        let key = before.rfind(|c| !is_word(c)).map_or(before, |at| {
            let other = before[at..].chars().next().map_or(0, char::len_utf8);
            &before[at + other..]
        });
        if key.is_empty() {
            rest = after;
            continue;
        }
        let Some((value, next)) = after[ESCAPE.len()..].split_once(ESCAPE) else { break };
        arguments.insert(key.to_owned(), Value::parse(value).unwrap_or_else(|_| Value::from(value)));
        rest = next;
    }
    Value::from(arguments)
}

/// What a name is made of.
fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use crate::parser::tools::tests::check;

    #[test]
    fn texts_give_what_vllm_gives() {
        check(
            "functiongemma",
            &[
                (
                    r#"<start_function_call>call:f{a:<escape>1<escape>,b:<escape>é {x}<escape>,c:<escape>{"d": [1.0]}<escape>}<end_function_call>"#,
                    "",
                    &[("f", r#"{"a": 1, "b": "é {x}", "c": {"d": [1.0]}}"#)],
                ),
                (
                    "I look. <start_function_call>call:f{}<end_function_call> and <start_function_call>call:g{a:<escape>true<escape>}<end_function_call> done",
                    "I look.",
                    &[("f", "{}"), ("g", r#"{"a": true}"#)],
                ),
                ("<start_function_call>call:f{a:<escape>x<escape>,b:<escape>y", "", &[("f", r#"{"a": "x"}"#)]),
                (
                    "so <start_function_call>f{}<end_function_call>",
                    "so <start_function_call>f{}<end_function_call>",
                    &[],
                ),
                ("so <start_function_call>call:f", "so <start_function_call>call:f", &[]),
                (
                    "<start_function_call>call:{}<end_function_call>",
                    "<start_function_call>call:{}<end_function_call>",
                    &[],
                ),
                ("so <start_function_call>x <start_function_call>call:f{}<end_function_call>", "so", &[("f", "{}")]),
                (
                    r#"<start_function_call>call:f{a:<escape>"q"<escape>,a:<escape>z<escape>}<end_function_call>"#,
                    "",
                    &[("f", r#"{"a": "z"}"#)],
                ),
                ("<start_function_call>call:f{a:1,b:<escape>2<escape>", "", &[("f", r#"{"b": 2}"#)]),
            ],
        );
    }
}
