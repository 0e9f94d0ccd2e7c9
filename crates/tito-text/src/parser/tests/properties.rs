//! What holds for every format: any pieces of a text give what the whole gives, and nothing is given twice.
//!
//! `PROPTEST_CASES` says how many texts are tried; CONTRIBUTING.md has the command for 100,000.

use std::sync::Arc;

use proptest::prelude::*;

use super::{
    super::{
        OutputFormat, OutputParser, Piece, PromptReasoning, ReasoningParser, ToolFormat, ToolParser,
        told::{WORDS, shown, told, words},
    },
    marks::{KEYS, MARKS},
    reasoning_marks, reasoning_parser, tool_parser,
};
use crate::{
    chat::FunctionTool,
    json::{Document, Object, Value},
};

/// Texts that mean something to some format, and texts that nearly do.
const PARTS: &[&str] = &[
    "<think>",
    "</think>",
    "<think",
    "</",
    "<",
    ">",
    " ",
    "\n",
    "\u{1c}",
    "so",
    "é😀",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\",
    ",",
    r#"{"name": "f", "arguments": {"a": 1}}"#,
    r#"{"name": "f", "parameters": {"é": "😀"}}"#,
    r#"{"a": "x"}"#,
    "; ",
    "<tool_call>",
    "</tool_call>",
    "<tool_call",
    "<|python_tag|>",
    "<|python",
    "[TOOL_CALLS]",
    "[TOOL_",
    "[ARGS]",
    "f",
    "f{",
    "[{",
    "}]",
    "<|channel|>",
    "analysis",
    "final",
    "commentary",
    " to=functions.f",
    " json",
    "<|message|>",
    "<|constrain|>",
    "<|end|>",
    "<|start|>assistant",
    "<|call|>",
    "<|return|>",
    "<|channel|>final<|message|>",
    "<|channel|>commentary to=functions.f json<|message|>{\"a\": 1}<|call|>",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "functions.f:0",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    "<invoke name=\"f\">",
    "</invoke>",
    "<parameter name=\"a\">",
    "</parameter>",
    "<function=f>",
    "<parameter=a>",
    "</function>",
    "<arg_key>a</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<tool_calls:6e>",
    "<tool_call:6e>f",
    "<tool_sep:6e>",
    "</tool_call:6e>",
    "</think:6e>",
    "[f(a=1)]",
    "f(a='b', c=[1, None])",
    "[f(",
    ")",
    "<|python_start|>",
    "<|python_end|>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "function",
    "<｜tool▁sep｜>",
    "\n```json\n",
    "\n```",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    "<start_function_call>",
    "call:f{a:",
    "<escape>",
    "<end_function_call>",
];

fn tool() -> FunctionTool {
    let schema = r#"{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}"#;
    FunctionTool {
        name: "f".to_owned(),
        description: None,
        parameters: Some(Value::parse(schema).unwrap()),
        strict: None,
        defer_loading: None,
        outer_defer_loading: None,
    }
}

/// Formats with the suffix that the marks of some checkpoints have.
const SUFFIXED: [&str; 2] = ["hy_v3:6e", "hy_v4:6e"];

/// Every reader of calls, every reader of reasoning, and some of both.
fn formats() -> Vec<OutputFormat> {
    let thinking = Value::parse(r#"{"thinking": true, "force_nonempty_content": true}"#).unwrap();
    let thinking = thinking.as_object().unwrap();
    let reasoning = |name| Some(reasoning_parser(name).format(thinking));
    let tools = |name, first_only| {
        let parser = tool_parser(name);
        Some(ToolFormat { parser, tools: Arc::new([tool()]), forced: None, first_only, held: false })
    };
    let mut pairs: Vec<_> = ReasoningParser::names().chain(SUFFIXED).map(|name| (reasoning(name), None)).collect();
    pairs.push((Some(ReasoningParser::named("nemotron_v3").unwrap().format(&Object::default())), None));
    for name in ToolParser::names().chain(SUFFIXED) {
        let both = [(None, false), (None, true), (reasoning("glm45"), false)];
        pairs.extend(both.map(|(reasoning, first_only)| (reasoning, tools(name, first_only))));
    }
    let format = |(reasoning, tools): (_, Option<ToolFormat>)| {
        let parser = tools.as_ref().map(|tools| tools.parser);
        OutputFormat::new(reasoning, tools, parser)
    };
    pairs.into_iter().map(format).collect()
}

/// `text` cut where `cuts` say.
fn cut<'a>(text: &'a str, cuts: &[bool]) -> Vec<&'a str> {
    let mut pieces = Vec::new();
    let mut start = 0;
    for (number, (at, _)) in text.char_indices().enumerate() {
        if cuts[number % cuts.len()] {
            pieces.push(&text[start..at]);
            start = at;
        }
    }
    pieces.push(&text[start..]);
    pieces
}

fn texts() -> impl Strategy<Value = String> {
    prop::collection::vec(proptest::sample::select([PARTS, reasoning_marks::PARTS].concat()), 0..12)
        .prop_map(|parts| parts.concat())
}

fn prompts() -> impl Strategy<Value = PromptReasoning> {
    proptest::sample::select(vec![PromptReasoning::Unmarked, PromptReasoning::Begun(0), PromptReasoning::Ended])
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_pieces_of_a_text_give_what_the_whole_gives_in_every_format(
        text in texts(),
        cuts in prop::collection::vec(any::<bool>(), 64),
        prompt in prompts(),
    ) {
        for format in formats() {
            let whole = told(&format, prompt, [text.as_str()]);
            prop_assert_eq!(told(&format, prompt, cut(&text, &cuts)), whole.clone(), "{:?} {:?}", text, format);
            prop_assert_eq!(told(&format, prompt, cut(&text, &[true])), whole, "{:?} {:?}", text, format);
        }
    }

    #[test]
    fn plain_text_stays_as_it_is_in_every_format(words in "[a-z .,!?\n]{0,40}") {
        for format in formats().into_iter().filter(|format| format.reasoning.is_none()) {
            prop_assert_eq!(told(&format, PromptReasoning::Unmarked, [words.as_str()]), (None, words.clone(), Vec::new()), "{:?}", format);
        }
    }
}

/// The marks of calls and those of reasoning.
fn families() -> Vec<&'static [&'static str]> {
    [MARKS, reasoning_marks::MARKS].concat()
}

/// A part of a text of one family, or of another.
fn part(family: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    let select = |texts: Vec<&'static str>| proptest::sample::select(texts);
    let others = families().concat();
    prop_oneof![
        14 => select(family.to_vec()),
        8 => Just("W"),
        2 => select(vec!["<think>", "</think>", " "]),
        1 => select(others)
    ]
}

/// A text of marks, words and calls, which may be cut off. Each word is one character, and no two are the same.
fn marked() -> impl Strategy<Value = String> {
    let parts = proptest::sample::select(families()).prop_flat_map(|family| prop::collection::vec(part(family), 0..24));
    (parts, 0..200_usize).prop_map(|(parts, length)| {
        let mut keys = Vec::new();
        let fresh = parts.into_iter().filter(|part| {
            let again = keys.contains(part);
            keys.extend(Some(*part).filter(|part| KEYS.contains(part)));
            !again
        });
        let mut word = WORDS;
        let text: String = fresh.collect();
        let text = text.chars().map(|c| if c == 'W' { word.next().unwrap() } else { c });
        // Half of them are whole.
        if length < 100 { text.take(length).collect() } else { text.collect() }
    })
}

#[test]
fn every_word_is_shown_once_by_every_format() {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let formats = formats();
    let cuts = prop::collection::vec(any::<bool>(), 64);
    proptest!(config, |(text in marked(), cuts in cuts, prompt in prompts())| {
        let mut sampled = words(&text);
        sampled.sort_unstable();
        // What one asks for is lost on purpose: one call out of several.
        for format in formats.iter().filter(|format| format.tools.as_ref().is_none_or(|tools| !tools.first_only)) {
            let whole = told(format, prompt, [text.as_str()]);
            prop_assert_eq!(&told(format, prompt, cut(&text, &cuts)), &whole, "{:?} {:?} {:?}", text, prompt, format);
            let mut kept = words(&shown(whole));
            kept.sort_unstable();
            prop_assert_eq!(&kept, &sampled, "{:?} {:?} {:?}", text, prompt, format);
        }
    });
}

/// Formats whose arguments are what the model writes, to the letter, whether that is JSON or not.
const TO_THE_LETTER: [&str; 6] = ["deepseek_v3", "deepseek_v31", "kimi_k2", "mistral", "openai", "plamo3"];

/// Python writes and reads such numbers as if they were JSON.
#[test]
fn no_format_that_reads_arguments_hands_out_numbers_that_json_has_not() {
    let reads = |format: &&OutputFormat| {
        format.tools.as_ref().is_some_and(|tools| !TO_THE_LETTER.contains(&tools.parser.name()))
    };
    let formats = formats();
    let mut called = 0;
    for number in ["NaN", "Infinity", "-Infinity"] {
        for text in families().concat().into_iter().filter(|text| text.contains('W')) {
            let text = text.replace(": \"W\"", &format!(": {number}")).replace('W', number);
            for format in formats.iter().filter(reads) {
                for (_, arguments) in told(format, PromptReasoning::Unmarked, [text.as_str()]).2 {
                    // Those of a call that is cut off are cut off too.
                    let as_json = Document::parse(&arguments).is_ok_and(|read| !read.not_finite().is_empty());
                    assert!(!as_json, "{format:?} {text:?}: {arguments}");
                    called += usize::from(arguments.contains(number));
                }
            }
        }
    }
    assert!(called > 100, "only {called} calls were read");
}

#[test]
fn one_call_is_kept_where_one_is_wanted() {
    let text =
        r#"<tool_call>{"name": "f", "arguments": {}}</tool_call><tool_call>{"name": "g", "arguments": {}}</tool_call>"#;
    for (first_only, calls) in [(true, 1), (false, 2)] {
        let parser = ToolParser::named("hermes").unwrap();
        let tools = ToolFormat { parser, tools: Arc::new([]), forced: None, first_only, held: false };
        let format = OutputFormat::new(None, Some(tools), None);
        assert_eq!(told(&format, PromptReasoning::Unmarked, [text]).2.len(), calls);
    }
}

#[test]
fn reasoning_is_read_first_and_calls_out_of_what_it_leaves() {
    let call = r#"<tool_call>{"name": "f", "arguments": {}}</tool_call>"#;
    let parser = ToolParser::named("hermes").unwrap();
    let tools = ToolFormat { parser, tools: Arc::new([]), forced: None, first_only: false, held: false };
    let format = |name: &str| {
        let reasoning = ReasoningParser::named(name).unwrap().format(&Object::default());
        OutputFormat::new(Some(reasoning), Some(tools.clone()), None)
    };
    let f = vec![("f".to_owned(), "{}".to_owned())];
    let text = format!("<think>{call}</think>\n\n{call}");
    assert_eq!(
        told(&format("deepseek_r1"), PromptReasoning::Unmarked, [text.as_str()]),
        (Some(call.to_owned()), String::new(), f.clone())
    );
    let text = format!("<think>\na\n{call}");
    assert_eq!(
        told(&format("qwen3"), PromptReasoning::Unmarked, [text.as_str()]),
        (Some("\na\n".to_owned()), String::new(), f)
    );
}

#[test]
fn content_and_reasoning_go_out_as_soon_as_they_are_certain() {
    let parser = ToolParser::named("hermes").unwrap();
    let tools = ToolFormat { parser, tools: Arc::new([]), forced: None, first_only: false, held: false };
    let reasoning = ReasoningParser::named("qwen3").unwrap().format(&Object::default());
    let mut parser =
        OutputParser::new(&OutputFormat::new(Some(reasoning), Some(tools), None), PromptReasoning::Unmarked);
    let given: Vec<_> = ["a", "b<", "/thi", "nk>\n", "c", " ", "d<", "tool", "s> <", "<tool_call", ">{", "}"]
        .map(|piece| {
            let pieces = parser.push(piece).into_iter().map(|piece| match piece {
                Piece::Reasoning(text) => format!("({text})"),
                Piece::Content(text) => text,
                Piece::Call(call) => panic!("{call:?}"),
            });
            pieces.collect::<String>()
        })
        .to_vec();
    assert_eq!(given, ["(a)", "(b)", "", "", "\nc", " ", "d", "", "<tools> ", "<", "", ""]);
    assert_eq!(parser.finish(), [Piece::Content("<tool_call>{}".to_owned())]);
}
