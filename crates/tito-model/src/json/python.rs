//! Python's `repr` of the scalars that JSON and printed lists and dicts contain.

use std::fmt::Write as _;

/// Returns Python's `repr` of a float: the shortest digits that read back, an exponent below 1e-4 and from 1e16 on.
pub fn float_repr(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let Ok(exponent) = exponent.parse::<i32>() else { return scientific };
    if (-4..16).contains(&exponent) {
        // `{:?}` never uses an exponent in this range and keeps the `.0` of whole numbers.
        return format!("{value:?}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// Returns Python's `repr` of a string.
pub fn string_repr(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut repr = String::with_capacity(text.len() + 2);
    repr.push(quote);
    for c in text.chars() {
        match c {
            '\\' => repr.push_str("\\\\"),
            '\n' => repr.push_str("\\n"),
            '\r' => repr.push_str("\\r"),
            '\t' => repr.push_str("\\t"),
            _ if c == quote => repr.extend(['\\', c]),
            _ if is_printable(c) => repr.push(c),
            _ => push_code_point(&mut repr, c),
        }
    }
    repr.push(quote);
    repr
}

fn push_code_point(repr: &mut String, c: char) {
    let code = u32::from(c);
    let written = match code {
        0..=0xff => write!(repr, "\\x{code:02x}"),
        0x100..=0xffff => write!(repr, "\\u{code:04x}"),
        _ => write!(repr, "\\U{code:08x}"),
    };
    debug_assert!(written.is_ok(), "writing to a string cannot fail");
}

// `str::escape_debug` escapes what Unicode calls unprintable, by the categories of Python's `str.isprintable`, but also
// a combining mark in first place; hence the letter before.
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return matches!(c, ' '..='~');
    }
    !String::from_iter(['a', c]).escape_debug().any(|escaped| escaped == '\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_python_writes_them() {
        for (value, repr) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (9_999_999_999_999_998.0, "9999999999999998.0"),
            (1e16, "1e+16"),
            (1.234e22, "1.234e+22"),
            (1e100, "1e+100"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(float_repr(value), repr);
        }
    }

    #[test]
    fn strings_are_quoted_as_python_quotes_them() {
        for (text, repr) in [
            ("a", "'a'"),
            ("it's", "\"it's\""),
            ("it's \"x\"", "'it\\'s \"x\"'"),
            ("a\\b\n\t\r", "'a\\\\b\\n\\t\\r'"),
            ("\0\u{7f}\u{a0}\u{ad}", "'\\x00\\x7f\\xa0\\xad'"),
            ("\u{200b}\u{2028}\u{feff}", "'\\u200b\\u2028\\ufeff'"),
            ("\u{e0001}", "'\\U000e0001'"),
            ("é\u{301}😀漢", "'é\u{301}😀漢'"),
        ] {
            assert_eq!(string_repr(text), repr);
        }
    }
}
