//! What an answer tells, for tests: the property tests of this crate, and the fuzz target `parser`.

use super::{OutputFormat, OutputParser, Piece, PromptReasoning};
use crate::json::Value;

/// Reasoning, content, and names and arguments of the calls.
pub type Told = (Option<String>, String, Vec<(String, String)>);

/// Words of a text that are looked for again are these characters, one after another.
pub const WORDS: std::ops::Range<char> = '\u{4e00}'..'\u{5000}';

/// Schemas of an argument `a`, and the types that they allow; none where they allow all.
pub const ARGUMENT_SCHEMAS: [(&str, &[&str]); 14] = [
    (r#"{"type": "string"}"#, &["string"]),
    (r#"{"type": "integer"}"#, &["integer"]),
    (r#"{"type": "number"}"#, &["integer", "number"]),
    (r#"{"type": "boolean"}"#, &["boolean"]),
    (r#"{"type": "null"}"#, &["null"]),
    (r#"{"type": "object"}"#, &["object"]),
    (r#"{"type": "array"}"#, &["array"]),
    (r#"{"enum": ["3", "true"]}"#, &["string"]),
    (r#"{"enum": [3, true]}"#, &["integer", "boolean"]),
    (r#"{"anyOf": [{"type": "integer"}, {"type": "array"}]}"#, &["integer", "array"]),
    (r##"{"$ref": "#/$defs/number"}"##, &["integer", "number"]),
    (r#"{"type": ["integer", "null"]}"#, &["integer", "null"]),
    (r#"{"anyOf": [{"type": "string"}, {"type": "null"}]}"#, &["string", "null"]),
    ("{}", &[]),
];

/// The parameters of a tool whose argument `a` has one of these schemas.
pub fn parameters_of_a(schema: &str) -> String {
    format!(r#"{{"type": "object", "properties": {{"a": {schema}}}, "$defs": {{"number": {{"type": "number"}}}}}}"#)
}

/// Reads the pieces of a text.
pub fn told<'t>(format: &OutputFormat, prompt: PromptReasoning, pieces: impl IntoIterator<Item = &'t str>) -> Told {
    let mut parser = OutputParser::new(format, prompt);
    let mut read: Vec<_> = pieces.into_iter().flat_map(|piece| parser.push(piece)).collect();
    read.extend(parser.finish());
    let (mut reasoning, mut content, mut calls) = (None, String::new(), Vec::new());
    for piece in read {
        match piece {
            Piece::Reasoning(text) => reasoning.get_or_insert_with(String::new).push_str(&text),
            Piece::Content(text) => content.push_str(&text),
            Piece::Call(call) => calls.push((call.name, call.arguments)),
        }
    }
    (reasoning, content, calls)
}

/// All that is shown, with the calls as their clients read them.
pub fn shown((reasoning, content, calls): Told) -> String {
    let unescaped = |arguments: String| Value::parse(&arguments).map_or(arguments, |value| value.to_json_string());
    let calls = calls.into_iter().map(|(name, arguments)| name + &unescaped(arguments));
    reasoning.into_iter().chain([content]).chain(calls).collect()
}

/// The words of a text, in their order.
pub fn words(text: &str) -> Vec<char> {
    text.chars().filter(|c| WORDS.contains(c)).collect()
}
