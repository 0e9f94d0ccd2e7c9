//! Where in an object of JSON a text that is being written stands: marks within its strings are text.
//!
//! Judges the structure only: what stands between punctuation may be no number and no word of JSON.

use crate::parser::marker;

/// What may come next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Place {
    /// The object.
    #[default]
    Start,
    /// A value.
    Value,
    /// A value, or the end of a list.
    FirstItem,
    /// A key.
    Key,
    /// A key, or the end of an object.
    FirstKey,
    /// The rest of a string.
    Text { is_key: bool, escaped: bool },
    /// The rest of a number or a word.
    Word,
    /// A colon.
    Colon,
    /// A comma, or the end of an object or a list.
    Separator,
    /// Nothing: the object is closed.
    Closed,
    /// Nothing: this is no JSON.
    Broken,
}

/// Reads an object of JSON as it comes, each byte once.
#[derive(Debug, Clone, Default)]
pub(super) struct JsonScan {
    place: Place,
    /// What closes the objects and lists that are open.
    open: Vec<u8>,
    /// The bytes that were read.
    looked: usize,
}

impl JsonScan {
    /// Reads on in `text`, which only grows from one call to the next, up to the end of the object.
    pub(super) fn advance(&mut self, text: &str) {
        if self.place == Place::Start {
            self.looked = text.len() - text[self.looked..].trim_start_matches(marker::is_space).len();
        }
        for byte in text.bytes().skip(self.looked) {
            if matches!(self.place, Place::Closed | Place::Broken) {
                return;
            }
            self.step(byte);
            self.looked += 1;
        }
    }

    /// Whether the text so far ends within a string.
    pub(super) fn is_in_string(&self) -> bool {
        matches!(self.place, Place::Text { .. })
    }

    /// Reads on in `text` to the end of the string that the text so far ends within, and returns where that is.
    pub(super) fn end_string(&mut self, text: &str) -> usize {
        for byte in text.bytes().skip(self.looked) {
            if !self.is_in_string() {
                break;
            }
            self.step(byte);
            self.looked += 1;
        }
        self.looked
    }

    /// Where the object ends, if it does.
    pub(super) fn end(&self) -> Option<usize> {
        (self.place == Place::Closed).then_some(self.looked)
    }

    /// Gives the text up as no JSON.
    pub(super) fn give_up(&mut self) {
        self.place = Place::Broken;
    }

    /// Reads the next piece after a place within a string, and says whether that place was one: `Some(true)` where the
    /// string ends and JSON goes on, `Some(false)` where something else follows, and `None` where neither is known yet.
    pub(super) fn goes_on(&mut self, piece: &str) -> Option<bool> {
        for byte in piece.bytes() {
            let was_in_string = self.is_in_string();
            self.step(byte);
            match self.place {
                Place::Broken => return Some(false),
                _ if !was_in_string && !is_space(byte) => return Some(true),
                _ => {}
            }
        }
        None
    }

    fn step(&mut self, byte: u8) {
        self.place = match (self.place, byte) {
            (Place::Text { is_key, escaped: true }, _) => Place::Text { is_key, escaped: false },
            (Place::Text { is_key, .. }, b'\\') => Place::Text { is_key, escaped: true },
            (Place::Text { is_key: true, .. }, b'"') => Place::Colon,
            (Place::Text { .. }, b'"') => Place::Separator,
            (Place::Word, _) if is_space(byte) => Place::Separator,
            (place @ (Place::Text { .. } | Place::Closed | Place::Broken), _) => place,
            (place, _) if is_space(byte) => place,
            (Place::Start | Place::Value | Place::FirstItem, b'{') => self.opened(b'}', Place::FirstKey),
            (Place::Value | Place::FirstItem, b'[') => self.opened(b']', Place::FirstItem),
            (Place::Value | Place::FirstItem, b'"') => Place::Text { is_key: false, escaped: false },
            (Place::Key | Place::FirstKey, b'"') => Place::Text { is_key: true, escaped: false },
            (Place::Value | Place::FirstItem | Place::Word, b'+' | b'-' | b'.') => Place::Word,
            (Place::Value | Place::FirstItem | Place::Word, _) if byte.is_ascii_alphanumeric() => Place::Word,
            (Place::Word | Place::Separator, b',') if self.open.last() == Some(&b'}') => Place::Key,
            (Place::Colon, b':') | (Place::Word | Place::Separator, b',') => Place::Value,
            (Place::Word | Place::Separator, b'}' | b']') | (Place::FirstItem, b']') | (Place::FirstKey, b'}') => {
                self.closed(byte)
            }
            _ => Place::Broken,
        };
    }

    fn opened(&mut self, closer: u8, place: Place) -> Place {
        self.open.push(closer);
        place
    }

    fn closed(&mut self, closer: u8) -> Place {
        match self.open.pop() {
            Some(open) if open != closer => Place::Broken,
            _ if self.open.is_empty() => Place::Closed,
            _ => Place::Separator,
        }
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_object_is_found() {
        for (text, end) in [
            (r#" {"a": "}", "b": [1, {"c": []}, -1.5e+3, null]} x"#, Some(47)),
            ("{}", Some(2)),
            (r#"{"\"}": "\\"}"#, Some(13)),
            (r#"{"a": 1,}"#, None),
            (r#"{"a": 1]"#, None),
            (r#"{"a" 1}"#, None),
            (r#"{"a": 1"#, None),
            ("[1]", None),
            ("x", None),
            ("", None),
        ] {
            let mut whole = JsonScan::default();
            whole.advance(text);
            let mut pieces = JsonScan::default();
            for (at, c) in text.char_indices() {
                pieces.advance(&text[..at + c.len_utf8()]);
            }
            assert_eq!((whole.end(), pieces.end()), (end, end), "{text}");
        }
    }

    #[test]
    fn a_place_is_in_a_string_if_json_goes_on_after_it() {
        let mut scan = JsonScan::default();
        scan.advance(r#"{"a": "x "#);
        assert!(scan.is_in_string());
        for (rest, goes_on) in [
            (r#" y", "b"#, Some(true)),
            (r#" \" y" }"#, Some(true)),
            (r#" y""#, None),
            (r#" y" "#, None),
            (r#" {"b": 1}"#, Some(false)),
            (" {} ", None),
        ] {
            assert_eq!(scan.clone().goes_on(rest), goes_on, "{rest}");
        }
    }
}
