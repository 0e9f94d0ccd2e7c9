//! JSON as Python reads and writes it. Prompt ids depend on the spelling of numbers and the order of keys, so tool
//! schemas, tool arguments and template variables are read, kept and written back as Python's `json` module would:
//! integers exact at any size, `1.0` stays a float, keys in order of first appearance, `NaN` and `Infinity` accepted.
//! What cannot be kept (a lone surrogate has no UTF-8 form) or is unsafe (endless nesting) is refused, never changed.

mod ids;
mod integer;
mod keyed_hash;
mod node;
mod not_finite;
mod parse;
mod path;
mod python;
mod reader;
mod rewrites;
mod tree;
mod value;
mod wire;
mod write;

use tree::Literally;

pub use ids::read_ids;
pub use integer::Integer;
pub use keyed_hash::KeyedHash;
pub use node::{Document, Items, Node, NodeKind};
pub use not_finite::read_python;
pub use parse::{MAX_DEPTH, ParseError};
pub use path::{Path, Segment};
pub use python::{float_repr, string_repr};
pub use reader::Reader;
pub use rewrites::{Rewrite, Rewrites};
pub use value::{Members, Object, Value, member};
pub use write::Format;

impl Value {
    /// Reads a document as Python's `json.loads` does.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        parse::parse(text)
    }

    /// Reads the document that `text` begins with, and says where it ends, as Python's `raw_decode` does.
    pub fn parse_start(text: &str) -> Result<(Self, usize), ParseError> {
        parse::parse_start(text)
    }

    /// Reads a document as [`Value::parse`] does, but keeps every number as it was written, and refuses `NaN` and
    /// infinities: what it returns is written as JSON.
    pub fn parse_literally(text: &str) -> Result<Self, ParseError> {
        parse::parse_finite(text).map(|Literally(value)| value)
    }

    /// Reads the document that `text` begins with, as [`Value::parse_start`] does, and keeps its numbers as they were
    /// written.
    pub fn parse_start_literally(text: &str) -> Result<(Self, usize), ParseError> {
        parse::parse_start_finite(text).map(|(Literally(value), end)| (value, end))
    }

    /// Writes the value as Python's `json.dumps(value, ensure_ascii=False)` does.
    pub fn to_json_string(&self) -> String {
        self.to_json_string_with(&Format::default())
    }

    /// Writes the value as Python's `json.dumps` does with the given options.
    pub fn to_json_string_with(&self, format: &Format) -> String {
        write::to_string(self, format)
    }
}

#[cfg(test)]
mod tests {
    use super::Value;

    fn round_trip(text: &str) -> String {
        Value::parse(text).unwrap().to_json_string()
    }

    #[test]
    fn numbers_keep_their_python_spelling() {
        let big = "123456789012345678901234567890123456789012345678901234567890";
        for (text, written) in [
            ("1", "1"),
            ("-0", "0"),
            ("-0.0", "-0.0"),
            ("1.0", "1.0"),
            ("1.50", "1.5"),
            ("1e5", "100000.0"),
            ("0.00001", "1e-05"),
            ("1E16", "1e+16"),
            ("NaN", "NaN"),
            ("-Infinity", "-Infinity"),
            ("1e999", "Infinity"),
            (big, big),
        ] {
            assert_eq!(round_trip(text), written, "{text}");
        }
    }

    #[test]
    fn numbers_that_are_read_literally_keep_every_letter() {
        let text = r#"[1.0, 1e+21, 2.50, 1E5, -0, -0.0, {"a": 0.1000000000000000055}, 1e999, 7]"#;
        assert_eq!(Value::parse_literally(text).unwrap().to_json_string(), text);
        let (value, end) = Value::parse_start_literally("3.0, 4").unwrap();
        assert_eq!((value, end), (Value::Literal("3.0".into()), 3));
        // An integer is no number that has to be kept.
        assert_eq!(Value::parse_literally("[7]").unwrap(), vec![Value::from(7)].into());
        for text in ["1.", "01", "+1", ".5", "1_0"] {
            assert_eq!(Value::parse_literally(text).is_err(), Value::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_without_a_form_in_json_are_refused_where_numbers_are_read_literally() {
        for word in ["NaN", "Infinity", "-Infinity"] {
            let text = format!("[1, {word}]");
            let error = Value::parse_literally(&text).unwrap_err();
            assert_eq!((error.message(), error.position()), ("JSON has no form for this number", 4));
            assert!(error.is_limit() && Value::parse(&text).is_ok());
            assert!(Value::parse_start_literally(&text).is_err());
            assert_eq!(
                Value::parse_start_literally(&format!("[1] {text}")).unwrap().1,
                3,
                "what follows does not matter"
            );
        }
    }

    #[test]
    fn a_repeated_key_keeps_its_first_place_and_its_last_value() {
        assert_eq!(round_trip(r#"{"b": 1, "a": 2, "b": 3}"#), r#"{"b": 3, "a": 2}"#);
    }
}
