//! Python's string literals: prefixes, both kinds of quotes, escapes, and several one after another as one.
//!
//! Refuses bytes, f-strings with values in them, and characters by name.

use super::source::Source;

/// Which prefixes a string has.
#[derive(Debug, Clone, Copy, Default)]
struct Prefix {
    raw: bool,
    formatted: bool,
    bytes: bool,
}

/// Whether a string begins here.
pub(super) fn is_string(text: &str) -> bool {
    prefix(text).is_some()
}

/// The prefix of a string, and how many bytes it has.
fn prefix(text: &str) -> Option<(Prefix, usize)> {
    // Of a text that goes on for long, no more is looked at.
    let length = text.bytes().take(3).position(|byte| matches!(byte, b'"' | b'\''))?;
    let prefix = match text[..length].to_ascii_lowercase().as_str() {
        "" | "u" => Prefix::default(),
        "r" => Prefix { raw: true, ..Prefix::default() },
        "f" => Prefix { formatted: true, ..Prefix::default() },
        "fr" | "rf" => Prefix { raw: true, formatted: true, bytes: false },
        "b" | "br" | "rb" => Prefix { bytes: true, ..Prefix::default() },
        _ => return None,
    };
    Some((prefix, length))
}

/// The strings that come, as one.
pub(super) fn strings(source: &mut Source<'_>) -> Option<String> {
    let mut text = String::new();
    while source.peek().is_some() && is_string(source.rest()) {
        let (prefix, length) = prefix(source.rest())?;
        source.advance(length);
        let body = body(source, prefix.raw)?;
        text.push_str(&if prefix.formatted { without_braces(&body)? } else { body.text });
        if prefix.bytes {
            return None;
        }
    }
    Some(text)
}

/// What stands between quotes.
struct Body {
    text: String,
    /// Bytes of the text that are braces of the source, not of escapes.
    braces: Vec<usize>,
}

fn body(source: &mut Source<'_>, raw: bool) -> Option<Body> {
    let rest = source.rest();
    let quote = if rest.starts_with("\"\"\"") || rest.starts_with("'''") { &rest[..3] } else { &rest[..1] };
    let mut body = Body { text: String::new(), braces: Vec::new() };
    let mut at = quote.len();
    loop {
        let left = &rest[at..];
        if left.starts_with(quote) {
            source.advance(at + quote.len());
            return Some(body);
        }
        let c = left.chars().next()?;
        if c == '\n' && quote.len() == 1 && !source.is_lenient() {
            return None;
        }
        let length = match c {
            '\\' if raw => raw_escape(left, &mut body.text)?,
            '\\' => escape(left, &mut body.text)?,
            _ => {
                if matches!(c, '{' | '}') {
                    body.braces.push(body.text.len());
                }
                body.text.push(c);
                c.len_utf8()
            }
        };
        at += length;
    }
}

/// A backslash and what it guards, both part of the string; how many bytes that were.
fn raw_escape(text: &str, out: &mut String) -> Option<usize> {
    let guarded = text[1..].chars().next()?;
    if matches!(guarded, '{' | '}') {
        // A brace counts in an f-string, guarded or not.
        out.push('\\');
        return Some(1);
    }
    out.extend(['\\', guarded]);
    Some(1 + guarded.len_utf8())
}

/// What an escape stands for; how many bytes it has.
fn escape(text: &str, out: &mut String) -> Option<usize> {
    let c = text[1..].chars().next()?;
    let simple = match c {
        '\n' => return Some(2),
        '\r' => return Some(if text[1..].starts_with("\r\n") { 3 } else { 2 }),
        '\\' | '\'' | '"' => c,
        'a' => '\u{7}',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        'x' => return coded(text, 2, out),
        'u' => return coded(text, 4, out),
        'U' => return coded(text, 8, out),
        'N' => return None,
        '0'..='7' => {
            let digits = text[1..].bytes().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
            out.push(char::from_u32(u32::from_str_radix(&text[1..=digits], 8).ok()?)?);
            return Some(1 + digits);
        }
        // Python leaves what is no escape as it is.
        _ => return raw_escape(text, out),
    };
    out.push(simple);
    Some(2)
}

/// A character by its number in hexadecimal digits.
fn coded(text: &str, digits: usize, out: &mut String) -> Option<usize> {
    let code = text.get(2..2 + digits).filter(|code| code.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    out.push(char::from_u32(u32::from_str_radix(code, 16).ok()?)?);
    Some(2 + digits)
}

/// The text of an f-string without values: its braces come in pairs.
fn without_braces(body: &Body) -> Option<String> {
    let mut text = String::new();
    let mut from = 0;
    let mut braces = body.braces.iter();
    while let Some(&first) = braces.next() {
        let brace = body.text.as_bytes()[first];
        let second = *braces.next()?;
        if second != first + 1 || body.text.as_bytes()[second] != brace {
            return None;
        }
        text.push_str(&body.text[from..=first]);
        from = second + 1;
    }
    text.push_str(&body.text[from..]);
    Some(text)
}
