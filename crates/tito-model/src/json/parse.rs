//! `json.loads`: the grammar Python accepts, with its messages and positions.

use std::borrow::Cow;

use super::{Members, tree::Tree};

/// How deeply arrays and objects may be nested. Python gives up near its recursion limit; this is well within a
/// thread's stack.
pub const MAX_DEPTH: usize = 256;

/// How many digits Python's `int` reads before it refuses a literal.
const MAX_INTEGER_DIGITS: usize = 4300;

/// A document that `json.loads` would refuse, or that has no exact form here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}: line {line} column {column} (char {position})")]
pub struct ParseError {
    message: &'static str,
    line: usize,
    column: usize,
    position: usize,
    is_limit: bool,
}

impl ParseError {
    /// What is wrong, in Python's words where Python refuses it too.
    pub fn message(&self) -> &'static str {
        self.message
    }

    /// Characters before the place.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Whether the document may be well-formed, and has something that cannot be kept: a lone surrogate, too many
    /// digits, too deep nesting. Python raises no `JSONDecodeError` for those.
    pub fn is_limit(&self) -> bool {
        self.is_limit
    }

    fn at(message: &'static str, text: &str, offset: usize) -> Self {
        let before = &text[..offset];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            message,
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            position: before.chars().count(),
            is_limit: false,
        }
    }
}

pub(super) fn parse<'a, T: Tree<'a>>(text: &'a str) -> Result<T, ParseError> {
    parse_noting(text).map(|(tree, _)| tree)
}

/// What a document has that a strict reader stumbles over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Oddities {
    /// A key stands twice in one object.
    pub(super) repeated_keys: bool,
    /// Where `NaN` and `Infinity` stand.
    pub(super) not_finite: Vec<usize>,
}

pub(super) fn parse_noting<'a, T: Tree<'a>>(text: &'a str) -> Result<(T, Oddities), ParseError> {
    let mut parser = Parser { text, at: 0, oddities: Oddities::default() };
    parser.skip_space();
    let value = parser.value(0)?;
    parser.skip_space();
    if parser.at < text.len() {
        return Err(parser.error("Extra data", parser.at));
    }
    Ok((value, parser.oddities))
}

pub(super) fn parse_start<'a, T: Tree<'a>>(text: &'a str) -> Result<(T, usize), ParseError> {
    parse_start_noting(text).map(|(tree, end, _)| (tree, end))
}

fn parse_start_noting<'a, T: Tree<'a>>(text: &'a str) -> Result<(T, usize, Oddities), ParseError> {
    let mut parser = Parser { text, at: 0, oddities: Oddities::default() };
    let value = parser.value(0)?;
    Ok((value, parser.at, parser.oddities))
}

/// As [`parse`], but what JSON has no form for is refused.
pub(super) fn parse_finite<'a, T: Tree<'a>>(text: &'a str) -> Result<T, ParseError> {
    let (tree, oddities) = parse_noting(text)?;
    oddities.refuse_not_finite(text).map(|()| tree)
}

/// As [`parse_start`], but what JSON has no form for is refused.
pub(super) fn parse_start_finite<'a, T: Tree<'a>>(text: &'a str) -> Result<(T, usize), ParseError> {
    let (tree, end, oddities) = parse_start_noting(text)?;
    oddities.refuse_not_finite(text).map(|()| (tree, end))
}

impl Oddities {
    fn refuse_not_finite(&self, text: &str) -> Result<(), ParseError> {
        self.not_finite.first().map_or(Ok(()), |&place| {
            Err(ParseError { is_limit: true, ..ParseError::at("JSON has no form for this number", text, place) })
        })
    }
}

struct Parser<'a> {
    text: &'a str,
    /// Bytes read so far; never within a character.
    at: usize,
    oddities: Oddities,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn error(&self, message: &'static str, offset: usize) -> ParseError {
        ParseError::at(message, self.text, offset)
    }

    fn limit(&self, message: &'static str, offset: usize) -> ParseError {
        ParseError { is_limit: true, ..self.error(message, offset) }
    }

    fn take(&mut self, wanted: u8) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn value<T: Tree<'a>>(&mut self, depth: usize) -> Result<T, ParseError> {
        let start = self.at;
        if depth > MAX_DEPTH {
            return Err(self.limit("nesting is too deep", start));
        }
        if self.take(b'"') {
            let string = self.string(start)?;
            Ok(T::string(string, &self.text[start..self.at]))
        } else if self.take(b'{') {
            let entries = self.object(depth)?;
            Ok(T::object(entries, &self.text[start..self.at]))
        } else if let Some((list, length)) = T::whole_list(&self.text[start..]) {
            self.at += length;
            Ok(list)
        } else if self.take(b'[') {
            let items = self.array(depth)?;
            Ok(T::array(items, &self.text[start..self.at]))
        } else {
            self.word(start)
        }
    }

    fn word<T: Tree<'a>>(&mut self, start: usize) -> Result<T, ParseError> {
        const WORDS: [(&str, Option<bool>); 3] = [("null", None), ("true", Some(true)), ("false", Some(false))];
        const NUMBERS: [(&str, f64); 3] =
            [("NaN", f64::NAN), ("Infinity", f64::INFINITY), ("-Infinity", f64::NEG_INFINITY)];
        let rest = &self.text[start..];
        for (word, value) in WORDS {
            if rest.starts_with(word) {
                self.at += word.len();
                return Ok(T::word(value, &rest[..word.len()]));
            }
        }
        for (word, value) in NUMBERS {
            if rest.starts_with(word) {
                self.at += word.len();
                self.oddities.not_finite.push(start);
                return Ok(T::float(value, &rest[..word.len()]));
            }
        }
        self.number(start)
    }

    fn number<T: Tree<'a>>(&mut self, start: usize) -> Result<T, ParseError> {
        let rest = &self.text.as_bytes()[start..];
        let digits = |from: usize| rest[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();

        let sign = usize::from(rest.first() == Some(&b'-'));
        let whole = if rest.get(sign) == Some(&b'0') { 1 } else { digits(sign) };
        if whole == 0 {
            return Err(self.error("Expecting value", start));
        }
        let integer_end = sign + whole;
        let mut end = integer_end;
        if rest.get(end) == Some(&b'.') && digits(end + 1) > 0 {
            end += 1 + digits(end + 1);
        }
        if matches!(rest.get(end), Some(b'e' | b'E')) {
            let exponent = end + 1 + usize::from(matches!(rest.get(end + 1), Some(b'+' | b'-')));
            if rest.len() > exponent && digits(exponent) > 0 {
                end = exponent + digits(exponent);
            }
        }
        self.at += end;

        let literal = &self.text[start..start + end];
        if end == integer_end {
            if whole > MAX_INTEGER_DIGITS {
                return Err(self.limit("Exceeds the limit (4300 digits) for integer string conversion", start));
            }
            return T::integer(literal).ok_or_else(|| self.error("Expecting value", start));
        }
        let value = literal.parse::<f64>().map_err(|_| self.error("Expecting value", start))?;
        Ok(T::float(value, literal))
    }

    fn array<T: Tree<'a>>(&mut self, depth: usize) -> Result<Vec<T>, ParseError> {
        let mut items = Vec::new();
        self.skip_space();
        if self.take(b']') {
            return Ok(items);
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.skip_space();
            if self.take(b']') {
                return Ok(items);
            }
            let at = self.at;
            if !self.take(b',') {
                return Err(self.error("Expecting ',' delimiter", at));
            }
            self.skip_space();
        }
    }

    fn object<T: Tree<'a>>(&mut self, depth: usize) -> Result<Members<T>, ParseError> {
        const NO_KEY: &str = "Expecting property name enclosed in double quotes";

        let mut object = Members::default();
        self.skip_space();
        if self.take(b'}') {
            return Ok(object);
        }
        loop {
            let at = self.at;
            if !self.take(b'"') {
                return Err(self.error(NO_KEY, at));
            }
            let key = self.string(at)?.into_owned();
            self.skip_space();
            let at = self.at;
            if !self.take(b':') {
                return Err(self.error("Expecting ':' delimiter", at));
            }
            self.skip_space();
            let value = self.value(depth + 1)?;
            self.oddities.repeated_keys |= object.insert(key, value).is_some();
            self.skip_space();
            if self.take(b'}') {
                return Ok(object);
            }
            let at = self.at;
            if !self.take(b',') {
                return Err(self.error("Expecting ',' delimiter", at));
            }
            self.skip_space();
        }
    }

    // The opening quote, at `start`, has been read.
    fn string(&mut self, start: usize) -> Result<Cow<'a, str>, ParseError> {
        const UNTERMINATED: &str = "Unterminated string starting at";

        let mut read = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = plain_prefix(rest.as_bytes());
            let plain = plain.ok_or_else(|| self.error(UNTERMINATED, start))?;
            self.at += plain;
            if self.take(b'"') {
                if read.is_empty() {
                    return Ok(Cow::Borrowed(&rest[..plain]));
                }
                read.push_str(&rest[..plain]);
                return Ok(Cow::Owned(read));
            }
            read.push_str(&rest[..plain]);
            let at = self.at;
            if !self.take(b'\\') {
                return Err(self.error("Invalid control character at", at));
            }
            let escape = self.text[self.at..].chars().next().ok_or_else(|| self.error(UNTERMINATED, start))?;
            self.at += escape.len_utf8();
            read.push(self.escape(escape, at)?);
        }
    }

    fn escape(&mut self, escape: char, at: usize) -> Result<char, ParseError> {
        Ok(match escape {
            '"' | '\\' | '/' => escape,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => return self.unicode_escape(at),
            _ => return Err(self.error("Invalid \\escape", at)),
        })
    }

    fn unicode_escape(&mut self, at: usize) -> Result<char, ParseError> {
        let lone = |parser: &Self| parser.limit("lone surrogate escapes cannot be represented", at);
        let high = self.hex4()?;
        if !(0xd800..0xdc00).contains(&high) {
            return char::from_u32(high).ok_or_else(|| lone(self));
        }
        if !(self.take(b'\\') && self.take(b'u')) {
            return Err(lone(self));
        }
        let low = self.hex4()?;
        if !(0xdc00..0xe000).contains(&low) {
            return Err(lone(self));
        }
        char::from_u32(0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00)).ok_or_else(|| lone(self))
    }

    // Python points at the `u`, which has been read.
    fn hex4(&mut self) -> Result<u32, ParseError> {
        let at = self.at - 1;
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            code = code * 16 + digit.ok_or_else(|| self.error("Invalid \\uXXXX escape", at))?;
            self.at += 1;
        }
        Ok(code)
    }
}

/// How many bytes of a string need no thought; `None` if it does not end. Contents are long, so they are looked at in
/// pieces that fit vector registers.
fn plain_prefix(text: &[u8]) -> Option<usize> {
    const PIECE: usize = 32;
    let stops = |byte: u8| u8::from(byte == b'"') | u8::from(byte == b'\\') | u8::from(byte < 0x20);
    let plain = |piece: &&[u8; PIECE]| piece.iter().fold(0, |found, &byte| found | stops(byte)) == 0;
    let (pieces, _) = text.as_chunks();
    let start = pieces.iter().take_while(plain).count() * PIECE;
    text[start..].iter().position(|&byte| stops(byte) != 0).map(|place| start + place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Value;

    fn read(text: &str) -> Result<Value, ParseError> {
        parse(text)
    }

    #[test]
    fn refuses_what_python_refuses_with_its_words() {
        for (text, message) in [
            ("", "Expecting value: line 1 column 1 (char 0)"),
            ("{\"a\": 1,\n}", "Expecting property name enclosed in double quotes: line 2 column 1 (char 9)"),
            ("[1,]", "Expecting value: line 1 column 4 (char 3)"),
            ("[1 2]", "Expecting ',' delimiter: line 1 column 4 (char 3)"),
            ("{\"a\" 1}", "Expecting ':' delimiter: line 1 column 6 (char 5)"),
            ("01", "Extra data: line 1 column 2 (char 1)"),
            ("1.", "Extra data: line 1 column 2 (char 1)"),
            ("+1", "Expecting value: line 1 column 1 (char 0)"),
            ("\"a", "Unterminated string starting at: line 1 column 1 (char 0)"),
            ("\"\n\"", "Invalid control character at: line 1 column 2 (char 1)"),
            ("\"\\x\"", "Invalid \\escape: line 1 column 2 (char 1)"),
            ("\"\\u12\"", "Invalid \\uXXXX escape: line 1 column 3 (char 2)"),
            ("\"\\ud83d\\uZ\"", "Invalid \\uXXXX escape: line 1 column 9 (char 8)"),
            ("é", "Expecting value: line 1 column 1 (char 0)"),
            ("nul", "Expecting value: line 1 column 1 (char 0)"),
        ] {
            assert_eq!(read(text).unwrap_err().to_string(), message, "{text}");
        }
    }

    #[test]
    fn escapes_are_read_and_surrogate_pairs_joined() {
        let text = r#""\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00""#;
        assert_eq!(read(text).unwrap(), Value::from("\"\\/\u{8}\u{c}\n\r\té😀"));
    }

    #[test]
    fn strings_of_every_length_end_where_they_should() {
        for length in 0..100 {
            let text = "é".repeat(length);
            for (end, rest) in [("", ""), ("\\n", "\n"), ("\\\"", "\"")] {
                let value = read(&format!("\"{text}{end}{text}\"")).unwrap();
                assert_eq!(value, Value::from(format!("{text}{rest}{text}")));
            }
            assert!(read(&format!("\"{text}")).is_err());
            assert!(read(&format!("\"{text}\u{1f}\"")).is_err());
        }
    }

    #[test]
    fn lone_surrogates_are_refused() {
        for text in [r#""\ud83d""#, r#""\ude00""#, r#""\ud83dx""#, r#""\ud83d\ud83d""#, r#""\ud83d\n""#] {
            assert_eq!(read(text).unwrap_err().message(), "lone surrogate escapes cannot be represented", "{text}");
        }
    }

    #[test]
    fn nesting_has_a_limit_instead_of_a_stack_overflow() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(read(&nested(MAX_DEPTH)).is_ok());
        assert_eq!(read(&nested(100_000)).unwrap_err().message(), "nesting is too deep");
    }

    #[test]
    fn endless_integers_are_refused_as_in_python() {
        assert!(read(&"1".repeat(4300)).is_ok());
        assert!(read(&"1".repeat(4301)).is_err());
    }

    #[test]
    fn what_cannot_be_kept_is_told_from_what_is_not_json() {
        let (deep, long) = ("[".repeat(300), "1".repeat(4301));
        for text in [r#""\ud83d""#, &deep, &long] {
            assert!(read(text).unwrap_err().is_limit(), "{text}");
        }
        for text in ["", "nul", "[1", r#""\ud8""#] {
            assert!(!read(text).unwrap_err().is_limit(), "{text}");
        }
    }
}
