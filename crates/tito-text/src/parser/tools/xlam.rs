//! xLAM: `[{"name", "arguments"}, …]`, alone or in a fence, after `[TOOL_CALLS]`, or between `<tool_call>` and its end (vLLM
//! `tool_parsers/xlam_tool_parser.py`, called `xlam`).
//!
//! A list without marks is one of calls where it is all of the answer.
//!
//! What deviates on purpose: all lists after marks are read, and a list with an entry that is no call is content. vLLM reads
//! the lists after one kind of marks only, and drops the entry. It looks for calls after `</think>` too, which is up to the
//! reasoning parser here.

use super::{
    call_format::{CallFormat, CallReader},
    forcing::Forcing,
    json_blocks::{Blocks, Call, Keys, Shape},
};
use crate::{
    chat::FunctionTool,
    parser::{Piece, marker},
};

const MARKS: &[&str] = &["[TOOL_CALLS]", "<tool_call>", "</tool_call>"];

/// A fence may stand in thoughts too.
pub(super) const XLAM: CallFormat = CallFormat {
    keeps_special_tokens: false,
    marks: MARKS,
    begins_call: &[MARKS[0], MARKS[1]],
    ..CallFormat::new("xlam", reader, Forcing::BareJson)
};

/// What stands before a list.
const BEGINS: &[&str] = &["```json", "```", MARKS[0], MARKS[1]];
const CALL: Call = Call::Keyed(Keys { takes_text: true, ..Keys::NAMED });
const BLOCKS: Blocks =
    Blocks { call: CALL, spoils: false, ..Blocks::new(BEGINS, &["```", "</tool_call>"], Shape::List) };
const ALONE: Blocks = Blocks { call: CALL, ..Blocks::new(&["["], &[], Shape::List) };

fn reader(tools: &[FunctionTool]) -> Box<dyn CallReader> {
    Box::new(Xlam { tools: tools.to_vec(), start: String::new(), blank: 0, reader: None })
}

/// Holds a text back that begins as a list does.
#[derive(Debug)]
struct Xlam {
    tools: Vec<FunctionTool>,
    start: String,
    /// Bytes at its beginning that are certain to be white space.
    blank: usize,
    /// Reads a text that begins otherwise.
    reader: Option<Box<dyn CallReader>>,
}

impl CallReader for Xlam {
    fn push(&mut self, text: &str, out: &mut Vec<Piece>) {
        if let Some(reader) = &mut self.reader {
            return reader.push(text, out);
        }
        self.start.push_str(text);
        let start = self.start[self.blank..].trim_start_matches(marker::is_space);
        self.blank = self.start.len() - start.len();
        let is_list = start.starts_with('[') && !start.starts_with(MARKS[0]);
        if !(is_list || MARKS[0].starts_with(start)) {
            let mut reader = BLOCKS.reader(&self.tools);
            reader.push(&std::mem::take(&mut self.start), out);
            self.reader = Some(reader);
        }
    }

    fn finish(&mut self, out: &mut Vec<Piece>) {
        if let Some(reader) = &mut self.reader {
            return reader.finish(out);
        }
        if let Some(calls) = ALONE.only(&self.start) {
            return out.extend(calls);
        }
        let mut reader = BLOCKS.reader(&self.tools);
        reader.push(&std::mem::take(&mut self.start), out);
        reader.finish(out);
    }

    fn is_in_call(&self) -> bool {
        self.reader.as_ref().map_or(self.blank < self.start.len(), |reader| reader.is_in_call())
    }
}

#[cfg(test)]
mod tests {
    use crate::parser::tools::tests::check;

    #[test]
    fn texts_are_read_so() {
        let f = r#"[{"name": "f", "arguments": {"string": "[é]"}}]"#;
        let called: &[_] = &[("f", r#"{"string": "[é]"}"#)];
        check(
            "xlam",
            &[
                (f, "", called),
                (&format!("\n{f}\n"), "", called),
                (&format!("{f} so"), &format!("{f} so"), &[]),
                (&format!("so {f}"), &format!("so {f}"), &[]),
                (&format!("so\n```json\n{f}\n``` on"), "so\n on", called),
                (&format!("```\n{f}\n```"), "", called),
                (&format!("[TOOL_CALLS]{f}\nso"), "\nso", called),
                (&format!("<tool_call>{f}</tool_call>"), "", called),
                (
                    &format!("```python\nf([1])\n```\n```\ng\n``` <tool_call>{f}</tool_call>"),
                    "```python\nf([1])\n```\n```\ng\n``` ",
                    called,
                ),
                (&format!("[1] <tool_call>{f}"), "[1] ", called),
                (
                    r#"[{"name": "f", "arguments": "{}"}, {"name": "g", "arguments": {}, "x": 1}]"#,
                    r#"{"x": 1}"#,
                    &[("f", "{}"), ("g", "{}")],
                ),
                (r#"[{"name": "f", "arguments": {}}, 1]"#, r#"[{"name": "f", "arguments": {}}, 1]"#, &[]),
                (r#"[{"name": "f", "argu"#, r#"[{"name": "f", "argu"#, &[]),
                ("[TOOL_", "[TOOL_", &[]),
                ("[1, 2]", "[1, 2]", &[]),
                (" ", " ", &[]),
            ],
        );
    }
}
