//! Holds what every recorded text is read as. It is what vLLM recorded, or it is in `read_otherwise.jsonl`, word for word:
//! whatever changes a reader adds a line there, changes one, or takes one away. `UPDATE_EXPECT=1` writes the file.
//!
//! `recorded` and `tools::tests` say why texts are read otherwise, and that nothing is lost. They count; this one names.

use std::{fmt::Write as _, fs, sync::Arc};

use expect_test::expect_file;

use super::{
    super::{
        OutputFormat, PromptReasoning, ReasoningParser, ToolFormat, ToolParser,
        told::{Told, told},
        tools::tests::tools,
    },
    tool_parser,
};
use crate::json::{Object, Value};

const RECORDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/parser");

/// The recordings, and whether their tools are those of `tools()`; the others have none.
const FILES: [(&str, bool); 4] =
    [("vllm.jsonl", false), ("tools.jsonl", true), ("more_tools.jsonl", true), ("reasoning.jsonl", false)];

fn text<'a>(case: &'a Value, key: &str) -> Option<&'a str> {
    case.get(key).and_then(Value::as_str)
}

fn format(case: &Value, has_tools: bool) -> OutputFormat {
    let none = Object::default();
    let variables = case.get("variables").and_then(Value::as_object).unwrap_or(&none);
    let reasoning = text(case, "reasoning_parser").map(|name| ReasoningParser::named(name).unwrap().format(variables));
    let parser: Option<ToolParser> = text(case, "tool_parser").map(tool_parser);
    let tools: Arc<[_]> = if has_tools { tools().into() } else { Arc::new([]) };
    let tools = parser.map(|parser| ToolFormat { parser, tools, forced: None, first_only: false, held: false });
    OutputFormat::new(reasoning, tools, parser)
}

/// What vLLM read. Nothing is nothing, however it is said.
fn recorded(case: &Value) -> Told {
    let said = |key| text(case, key).filter(|said| !said.is_empty()).map(str::to_owned);
    let call = |call: &Value| match call.as_array() {
        Some([Value::String(name), Value::String(arguments)]) => (name.clone(), arguments.clone()),
        _ => panic!("{call:?} is no name with arguments"),
    };
    let calls = case.get("calls").and_then(Value::as_array).unwrap().iter().map(call).collect();
    (said("reasoning"), said("content").unwrap_or_default(), calls)
}

/// What tito reads, of the whole text and of each character by itself.
fn read(format: &OutputFormat, text: &str) -> Told {
    let whole = told(format, PromptReasoning::Unmarked, [text]);
    let characters = text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()]);
    assert_eq!(told(format, PromptReasoning::Unmarked, characters), whole, "{text:?} {format:?}");
    let (reasoning, content, calls) = whole;
    (reasoning.filter(|said| !said.is_empty()), content, calls)
}

fn line(place: &str, number: usize, (reasoning, content, calls): &Told) -> String {
    serde_json::json!({ "of": place, "line": number, "reasoning": reasoning, "content": content, "calls": calls })
        .to_string()
}

#[test]
fn every_recorded_text_is_read_as_before() {
    let mut otherwise = String::new();
    for (file, has_tools) in FILES {
        let record = fs::read_to_string(format!("{RECORDS}/{file}")).unwrap();
        for (number, case) in record.lines().enumerate() {
            let case = Value::parse(case).unwrap();
            let ours = read(&format(&case, has_tools), text(&case, "text").unwrap());
            if ours != recorded(&case) {
                writeln!(otherwise, "{}", line(file, number + 1, &ours)).unwrap();
            }
        }
    }
    expect_file!["../../../../../tests/golden/parser/read_otherwise.jsonl"].assert_eq(&otherwise);
}
