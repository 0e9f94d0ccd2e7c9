//! Python's `str` operations that Rust has under other rules.

use super::bounds;
use super::error::Error;

/// Whether Python's `str.isspace` accepts the character; Unicode's white space and four separators of ASCII.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Which ends of a string an operation works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    Both,
    Left,
    Right,
}

/// `str.strip`, `str.lstrip` and `str.rstrip`.
pub(super) fn strip<'t>(text: &'t str, chars: Option<&str>, ends: Ends) -> &'t str {
    let strips = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    let text = if ends == Ends::Right { text } else { text.trim_start_matches(strips) };
    if ends == Ends::Left { text } else { text.trim_end_matches(strips) }
}

/// `str.strip()`.
pub(in crate::prompt) fn strip_spaces(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// `str.rstrip()`.
pub(in crate::prompt) fn strip_spaces_at_end(text: &str) -> &str {
    text.trim_end_matches(is_space)
}

/// `str.split` without a separator, at most `limit` times from the left.
pub(super) fn split_spaces(text: &str, limit: usize) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        if words.len() == limit {
            words.push(rest);
            break;
        }
        let end = rest.find(is_space).unwrap_or(rest.len());
        words.push(&rest[..end]);
        rest = rest[end..].trim_start_matches(is_space);
    }
    words
}

/// `str.rsplit` without a separator, at most `limit` times from the right.
pub(super) fn rsplit_spaces(text: &str, limit: usize) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text.trim_end_matches(is_space);
    while !rest.is_empty() {
        if words.len() == limit {
            words.push(rest);
            break;
        }
        let start = rest.char_indices().rev().find(|&(_, c)| is_space(c)).map_or(0, |(at, c)| at + c.len_utf8());
        words.push(&rest[start..]);
        rest = rest[..start].trim_end_matches(is_space);
    }
    words.reverse();
    words
}

/// `str.splitlines`.
pub(super) fn split_lines(text: &str, keep_ends: bool) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(is_line_end) {
        let length =
            if rest[at..].starts_with("\r\n") { 2 } else { rest[at..].chars().next().map_or(1, char::len_utf8) };
        lines.push(&rest[..if keep_ends { at + length } else { at }]);
        rest = &rest[at + length..];
    }
    if !rest.is_empty() {
        lines.push(rest);
    }
    lines
}

fn is_line_end(c: char) -> bool {
    matches!(c, '\n'..='\r' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// `str.capitalize`.
pub(super) fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| title_case(first) + &chars.as_str().to_lowercase())
}

/// `str.title`: a capital at the start of each run of letters.
pub(super) fn title(text: &str) -> String {
    let mut titled = String::with_capacity(text.len());
    let mut within = false;
    for c in text.chars() {
        if within {
            titled.extend(c.to_lowercase());
        } else {
            titled.push_str(&title_case(c));
        }
        within = c.is_lowercase() || c.is_uppercase();
    }
    titled
}

// The digraphs have a title case of their own, and a ligature's first letter alone becomes a capital.
fn title_case(c: char) -> String {
    match c {
        '\u{1c4}'..='\u{1c6}' => "\u{1c5}".to_owned(),
        '\u{1c7}'..='\u{1c9}' => "\u{1c8}".to_owned(),
        '\u{1ca}'..='\u{1cc}' => "\u{1cb}".to_owned(),
        '\u{1f1}'..='\u{1f3}' => "\u{1f2}".to_owned(),
        _ => {
            let mut upper = c.to_uppercase();
            let first = upper.next().map_or_else(String::new, String::from);
            first + &upper.flat_map(char::to_lowercase).collect::<String>()
        }
    }
}

/// `str.replace`, at most `limit` times from the left; an error where the result would be too long.
pub(super) fn replace(text: &str, old: &str, new: &str, limit: Option<usize>) -> Result<String, Error> {
    bounds::look_through(text.len())?;
    if new.len() > old.len() {
        let most = text.matches(old).take(limit.unwrap_or(usize::MAX)).count();
        bounds::reserve(text.len().saturating_add(most.saturating_mul(new.len() - old.len())))?;
    }
    Ok(limit.map_or_else(|| text.replace(old, new), |limit| text.replacen(old, new, limit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripping_takes_spaces_or_the_given_characters() {
        assert_eq!(strip(" \u{1f}\u{a0}a b\n", None, Ends::Both), "a b");
        assert_eq!(strip("xyaxy", Some("xy"), Ends::Left), "axy");
        assert_eq!(strip("xyaxy", Some("yx"), Ends::Right), "xya");
        assert_eq!(strip(" a ", Some(""), Ends::Both), " a ");
    }

    #[test]
    fn splitting_at_spaces_keeps_the_rest_whole() {
        assert_eq!(split_spaces("  a  b c ", usize::MAX), ["a", "b", "c"]);
        assert_eq!(split_spaces("  a  b  c ", 1), ["a", "b  c "]);
        assert_eq!(split_spaces(" a ", 0), ["a "]);
        assert_eq!(rsplit_spaces("  a  b  c ", 1), ["  a  b", "c"]);
        assert_eq!(rsplit_spaces(" é ü", usize::MAX), ["é", "ü"]);
        assert!(split_spaces("  ", 3).is_empty());
    }

    #[test]
    fn lines_end_where_python_ends_them() {
        assert_eq!(split_lines("a\r\nb\u{2028}c\n\nd", false), ["a", "b", "c", "", "d"]);
        assert_eq!(split_lines("a\r\nb\n", true), ["a\r\n", "b\n"]);
    }

    #[test]
    fn case_follows_python() {
        assert_eq!(capitalize("éTUDE Ab"), "Étude ab");
        assert_eq!(title("they're bill's 3rd ß"), "They'Re Bill'S 3Rd Ss");
    }
}
