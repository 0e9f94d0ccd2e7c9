//! `int(text)` and `float(text)` as Python reads them: white space around, underscores between digits, digits of any
//! script. Refuses Python's literals, which have other rules.

use crate::{json::Integer, parser::marker};

/// How many digits Python's `int` reads.
const MAX_DIGITS: usize = 4300;

/// The zeros of the scripts that have decimal digits (Unicode 15, category Nd); nine digits follow each.
const ZEROS: [u32; 66] = [
    0x30, 0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xde6, 0xe50, 0xed0,
    0xf20, 0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90, 0x1b50, 0x1bb0, 0x1c40, 0x1c50, 0xa620,
    0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0xff10, 0x104a0, 0x10d30, 0x11066, 0x110f0, 0x11136, 0x111d0,
    0x112f0, 0x11450, 0x114d0, 0x11650, 0x116c0, 0x11730, 0x118e0, 0x11950, 0x11c50, 0x11d50, 0x11da0, 0x16a60,
    0x16ac0, 0x16b50, 0x1d7ce, 0x1d7d8, 0x1d7e2, 0x1d7ec, 0x1d7f6, 0x1e140, 0x1e2f0, 0x1e950, 0x1fbf0,
];

/// Which decimal digit a character is.
pub(super) fn digit(c: char) -> Option<u32> {
    let below = ZEROS.partition_point(|zero| *zero <= u32::from(c)).checked_sub(1)?;
    let digit = u32::from(c) - ZEROS[below];
    (digit < 10).then_some(digit)
}

/// What Python's `int(text)` gives.
pub(super) fn int(text: &str) -> Option<Integer> {
    let text = plain(text)?;
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(&text);
    let written = unsigned.bytes().all(|byte| byte.is_ascii_digit()) && (1..=MAX_DIGITS).contains(&unsigned.len());
    if !written {
        return None;
    }
    let digits = match unsigned.trim_start_matches('0') {
        "" => "0",
        digits => digits,
    };
    let sign = if text.starts_with('-') && digits != "0" { "-" } else { "" };
    Integer::from_decimal(&format!("{sign}{digits}"))
}

/// What Python's `float(text)` gives.
pub(super) fn float(text: &str) -> Option<f64> {
    // Rust reads what Python reads, once the spelling is plain.
    plain(text)?.parse().ok()
}

/// The text without white space around it and without underscores between digits, its digits those of ASCII.
fn plain(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut chars =
        marker::trim(text).chars().map(|c| digit(c).and_then(|digit| char::from_digit(digit, 10)).unwrap_or(c));
    let mut before = None;
    while let Some(c) = chars.next() {
        if c != '_' {
            plain.push(c);
            before = Some(c);
            continue;
        }
        let after = chars.next().filter(char::is_ascii_digit)?;
        before.filter(char::is_ascii_digit)?;
        plain.push(after);
        before = Some(after);
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_those_that_python_reads() {
        let big = "9".repeat(MAX_DIGITS);
        for (text, number) in [
            ("0", "0"),
            ("-0", "0"),
            (" +42\n", "42"),
            ("-007", "-7"),
            ("1_000", "1000"),
            ("\u{661}\u{662}", "12"),
            ("１２", "12"),
            ("123456789012345678901234567890123456789012345", "123456789012345678901234567890123456789012345"),
            (&big, &big),
        ] {
            assert_eq!(int(text).map(|number| number.to_string()).as_deref(), Some(number), "{text}");
        }
        for text in
            ["", " ", "-", "+-1", "- 1", "1.0", "1e3", "_1", "1_", "1__0", "0x1", "true", "1 2", &format!("{big}9")]
        {
            assert_eq!(int(text), None, "{text}");
        }
    }

    #[test]
    fn floats_are_those_that_python_reads() {
        for (text, number) in [
            ("1", 1.0),
            (" -1.50\t", -1.5),
            (".5", 0.5),
            ("5.", 5.0),
            ("1e-3", 0.001),
            ("1_0.0_1E+0_2", 1001.0),
            ("１.５", 1.5),
            ("-inf", f64::NEG_INFINITY),
            ("Infinity", f64::INFINITY),
        ] {
            assert_eq!(float(text), Some(number), "{text}");
        }
        assert!(float("NaN").is_some_and(f64::is_nan));
        for text in ["", ".", "e5", "1e", "1_.0", "1._0", "0x1", "1,5", "in f", "1__0"] {
            assert_eq!(float(text), None, "{text}");
        }
    }

    #[test]
    fn digits_are_known_in_every_script_and_nothing_else_is_one() {
        assert_eq!(digit('7'), Some(7));
        assert_eq!(digit('\u{1fbf9}'), Some(9));
        assert_eq!(digit('\u{1d7ff}'), Some(9));
        for c in ['/', ':', '\u{0}', '²', '½', 'Ⅷ', '\u{10ffff}'] {
            assert_eq!(digit(c), None, "{c}");
        }
    }
}
