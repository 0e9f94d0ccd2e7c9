//! Text as XML writes it: in `<![CDATA[…]]>`, or with references such as `&lt;`.

use crate::parser::marker;

/// What begins a text that is written to the letter.
pub(super) const CDATA: &str = "<![CDATA[";
/// What ends it.
pub(super) const CDATA_END: &str = "]]>";

/// The text that a value is written for; one whose references are not all known is text to the letter.
pub(super) fn plain(value: &str) -> String {
    let quoted = marker::trim(value).strip_prefix(CDATA).and_then(|text| text.strip_suffix(CDATA_END));
    if let Some(text) = quoted {
        return text.to_owned();
    }
    if value.contains('<') {
        return value.to_owned();
    }
    dereferenced(value).unwrap_or_else(|| value.to_owned())
}

/// The text with its references resolved; `None` where one of them is not known.
fn dereferenced(value: &str) -> Option<String> {
    let (first, rest) = value.split_once('&').unwrap_or((value, ""));
    let mut plain = first.to_owned();
    if first.len() == value.len() {
        return Some(plain);
    }
    for part in rest.split('&') {
        let (name, text) = part.split_once(';')?;
        plain.push(referred(name)?);
        plain.push_str(text);
    }
    Some(plain)
}

fn referred(name: &str) -> Option<char> {
    let number = |digits: &str, radix| u32::from_str_radix(digits, radix).ok().and_then(char::from_u32);
    match name {
        "lt" => Some('<'),
        "gt" => Some('>'),
        "amp" => Some('&'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        name => match name.strip_prefix('#')? {
            digits if digits.starts_with('x') => number(&digits[1..], 16),
            digits => number(digits, 10),
        },
    }
}
