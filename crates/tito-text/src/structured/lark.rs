//! Pieces of Lark text, as `llguidance` reads it.

use super::{classes, groups};

/// Any text.
pub(super) const ANYTHING: &str = r"(.|\n)*";

/// A text that stands for itself.
pub(super) fn literal(text: &str) -> String {
    let quoted = serde_json::to_string(text).expect("a string is JSON");
    // The one character that JSON leaves alone and Lark does not.
    quoted.replace('\u{7f}', "\\u007f")
}

/// A text that stands for itself within a regular expression between slashes.
pub(super) fn escaped(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        escape(c, &mut pattern);
    }
    pattern
}

/// One character of a regular expression, in a class or out of it.
pub(super) fn escape(c: char, pattern: &mut String) {
    use std::fmt::Write as _;

    if r"\.+*?()|[]{}^$#&-~/".contains(c) {
        pattern.push('\\');
        pattern.push(c);
    } else if c.is_control() {
        let _ = write!(pattern, "\\x{{{:x}}}", u32::from(c));
    } else {
        pattern.push(c);
    }
}

/// A regular expression of a request between slashes; its classes are of ASCII, as xgrammar's are.
pub(super) fn pattern(regex: &str) -> String {
    llguidance::regex_to_lark(&classes::plain(&groups::without_comments(without_anchors(regex))), "dws")
}

/// A regular expression without the anchors at its ends, which say nothing of one that must match all of a text.
pub(super) fn without_anchors(regex: &str) -> &str {
    let regex = regex.strip_prefix('^').or_else(|| regex.strip_prefix("\\A")).unwrap_or(regex);
    let escapes = |text: &str| text.len() - text.trim_end_matches('\\').len();
    match regex.strip_suffix('$') {
        Some(rest) if escapes(rest).is_multiple_of(2) => rest,
        _ => regex,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_at_the_ends_are_left_out_and_escaped_ones_are_not() {
        assert_eq!(pattern("^a$"), "a");
        assert_eq!(pattern(r"\Aa\$"), r"a\$");
        assert_eq!(pattern(r"a\\$"), r"a\\");
        assert_eq!(pattern(r"a/\d"), r"a\/[0-9]");
    }

    #[test]
    fn what_is_written_for_a_character_is_that_character() {
        assert_eq!(escaped("a b\n/]é\u{7f}"), r"a b\x{a}\/\]é\x{7f}");
        assert_eq!(literal("\"\n\u{7f}"), r#""\"\n\u007f""#);
    }
}
