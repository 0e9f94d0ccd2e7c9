//! `json.dumps`: Python's separators, number spelling, indentation and escaping.

use std::{borrow::Cow, fmt::Write as _};

use super::{Object, Value, python};

/// The options of Python's `json.dumps`; the default is `ensure_ascii=False` and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// What goes before each element, once per level; none writes everything on one line.
    pub indent: Option<String>,
    /// What goes between elements.
    pub item_separator: Cow<'static, str>,
    /// What goes between a key and its value.
    pub key_separator: Cow<'static, str>,
    /// Whether keys are written in order of their code points.
    pub sort_keys: bool,
    /// Whether everything beyond ASCII is escaped.
    pub ensure_ascii: bool,
}

impl Default for Format {
    fn default() -> Self {
        Self {
            indent: None,
            item_separator: ", ".into(),
            key_separator: ": ".into(),
            sort_keys: false,
            ensure_ascii: false,
        }
    }
}

impl Format {
    /// Returns the format with the fewest bytes: no spaces at all.
    pub fn compact() -> Self {
        Self { item_separator: ",".into(), key_separator: ":".into(), ..Self::default() }
    }
}

pub(super) fn to_string(value: &Value, format: &Format) -> String {
    let mut writer = Writer { out: String::new(), format };
    writer.value(value, 0);
    writer.out
}

struct Writer<'a> {
    out: String,
    format: &'a Format,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value, level: usize) {
        match value {
            Value::Null => self.out.push_str("null"),
            Value::Bool(true) => self.out.push_str("true"),
            Value::Bool(false) => self.out.push_str("false"),
            Value::Int(integer) => self.out.push_str(&integer.to_string()),
            Value::Float(float) => self.float(*float),
            Value::Literal(text) => self.out.push_str(text),
            Value::String(text) => self.string(text),
            Value::Array(items) if items.is_empty() => self.out.push_str("[]"),
            Value::Array(items) => {
                self.out.push('[');
                for (index, item) in items.iter().enumerate() {
                    self.begin_element(index, level + 1);
                    self.value(item, level + 1);
                }
                self.new_line(level);
                self.out.push(']');
            }
            Value::Object(object) => self.object(object, level),
        }
    }

    fn object(&mut self, object: &Object, level: usize) {
        if object.is_empty() {
            self.out.push_str("{}");
            return;
        }
        let mut entries: Vec<_> = object.iter().collect();
        if self.format.sort_keys {
            // UTF-8 sorts like code points, which is how Python compares strings.
            entries.sort_by_key(|&(key, _)| key);
        }
        self.out.push('{');
        for (index, (key, value)) in entries.into_iter().enumerate() {
            self.begin_element(index, level + 1);
            self.string(key);
            self.out.push_str(&self.format.key_separator);
            self.value(value, level + 1);
        }
        self.new_line(level);
        self.out.push('}');
    }

    fn begin_element(&mut self, index: usize, level: usize) {
        if index > 0 {
            self.out.push_str(&self.format.item_separator);
        }
        self.new_line(level);
    }

    fn new_line(&mut self, level: usize) {
        if let Some(indent) = &self.format.indent {
            self.out.push('\n');
            for _ in 0..level {
                self.out.push_str(indent);
            }
        }
    }

    fn float(&mut self, value: f64) {
        match value {
            _ if value.is_nan() => self.out.push_str("NaN"),
            f64::INFINITY => self.out.push_str("Infinity"),
            f64::NEG_INFINITY => self.out.push_str("-Infinity"),
            _ => self.out.push_str(&python::float_repr(value)),
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                '\0'..='\u{1f}' => self.escape(c),
                '\u{7f}' if self.format.ensure_ascii => self.out.push(c),
                _ if self.format.ensure_ascii && !c.is_ascii() => self.escape(c),
                _ => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    fn escape(&mut self, c: char) {
        for unit in c.encode_utf16(&mut [0; 2]) {
            let written = write!(self.out, "\\u{unit:04x}");
            debug_assert!(written.is_ok(), "writing to a string cannot fail");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Value {
        Value::parse(r#"{"b": [1, {"x": []}], "a": "é😀\u0001\u007f\n<&>", "c": {}}"#).unwrap()
    }

    #[test]
    fn the_default_is_python_s_with_the_text_left_readable() {
        assert_eq!(
            sample().to_json_string(),
            "{\"b\": [1, {\"x\": []}], \"a\": \"é😀\\u0001\u{7f}\\n<&>\", \"c\": {}}"
        );
    }

    #[test]
    fn keys_are_sorted_and_text_escaped_on_request() {
        let format = Format { sort_keys: true, ensure_ascii: true, ..Format::compact() };
        assert_eq!(
            sample().to_json_string_with(&format),
            "{\"a\":\"\\u00e9\\ud83d\\ude00\\u0001\u{7f}\\n<&>\",\"b\":[1,{\"x\":[]}],\"c\":{}}"
        );
    }

    #[test]
    fn indentation_breaks_lines_except_in_what_is_empty() {
        let format = Format { indent: Some("  ".to_owned()), item_separator: ",".into(), ..Format::default() };
        let value = Value::parse(r#"{"b": [1, {"x": []}], "c": {}}"#).unwrap();
        assert_eq!(
            value.to_json_string_with(&format),
            "{\n  \"b\": [\n    1,\n    {\n      \"x\": []\n    }\n  ],\n  \"c\": {}\n}"
        );
    }
}
