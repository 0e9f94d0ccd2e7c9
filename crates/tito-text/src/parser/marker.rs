//! Markers in a text that comes in pieces, and Python's white space.

/// Bytes at the end of `text` that may be the start of one of `markers`.
pub(super) fn begun(text: &str, markers: &[&str]) -> usize {
    markers.iter().map(|marker| begun_one(text, marker)).max().unwrap_or(0)
}

fn begun_one(text: &str, marker: &str) -> usize {
    let longest = text.len().min(marker.len() - 1);
    (1..=longest).rev().find(|&length| text.as_bytes().ends_with(&marker.as_bytes()[..length])).unwrap_or(0)
}

/// What Python's `str.isspace` says.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Whether nothing but white space stands in `text`.
pub(super) fn is_blank(text: &str) -> bool {
    text.chars().all(is_space)
}

/// What Python's `str.strip` leaves.
pub(super) fn trim(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// What Python's `str.rstrip` leaves.
pub(super) fn trim_end(text: &str) -> &str {
    text.trim_end_matches(is_space)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_that_is_begun_is_measured() {
        for (text, bytes) in [("a", 0), ("a<", 1), ("a<t", 2), ("a</", 2), ("<t>", 0), ("", 0)] {
            assert_eq!(begun(text, &["<t>", "</t>"]), bytes, "{text}");
        }
    }
}
