//! Markers in a text that comes in pieces, and Python's white space.

/// Where the first of `markers` stands in `text`, and which one it is; of two that start together, the longer one.
pub(super) fn first<'m>(text: &str, markers: &[&'m str]) -> Option<(usize, &'m str)> {
    let found = markers.iter().filter_map(|marker| Some((text.find(marker)?, *marker)));
    found.min_by_key(|(at, marker)| (*at, usize::MAX - marker.len()))
}

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
    fn the_earliest_marker_is_found_and_a_begun_one_is_measured() {
        assert_eq!(first("a</t><t>", &["<t>", "</t>"]), Some((1, "</t>")));
        assert_eq!(first("a<t>b", &["<t>", "<t>b"]), Some((1, "<t>b")));
        assert_eq!(first("a<t", &["<t>"]), None);
        for (text, bytes) in [("a", 0), ("a<", 1), ("a<t", 2), ("a</", 2), ("<t>", 0), ("", 0)] {
            assert_eq!(begun(text, &["<t>", "</t>"]), bytes, "{text}");
        }
    }
}
