//! `<parameter…>VALUE</parameter>` in the spellings that vLLM's regular expressions allow: white space between the parts
//! of a tag.

/// The text after a tag at the start of `text`: `<`, then the words, with white space before each.
pub(super) fn tag<'t>(text: &'t str, words: &[&str]) -> Option<&'t str> {
    let mut rest = text.strip_prefix('<')?;
    for word in words {
        rest = rest.trim_start().strip_prefix(word)?;
    }
    Some(rest)
}

/// Where the first tag begins, and the text after it.
pub(super) fn first<'t>(text: &'t str, tag: impl Fn(&'t str) -> Option<&'t str>) -> Option<(usize, &'t str)> {
    let mut starts = text.match_indices('<');
    starts.find_map(|(at, _)| Some((at, tag(&text[at..])?)))
}

/// Where a value ends, and what comes then: after `</parameter>`, or at the next parameter.
pub(super) fn value_end<'t>(text: &'t str, open: impl Fn(&'t str) -> Option<&'t str>) -> Option<(usize, &'t str)> {
    value_end_of("parameter", text, open)
}

/// The same of tags that are called otherwise.
pub(super) fn value_end_of<'t>(
    word: &str,
    text: &'t str,
    open: impl Fn(&'t str) -> Option<&'t str>,
) -> Option<(usize, &'t str)> {
    let mut starts = text.match_indices('<');
    starts.find_map(|(at, _)| {
        let end = tag(&text[at..], &["/", word, ">"]);
        let next = end.or_else(|| open(&text[at..]).map(|_| &text[at..]))?;
        Some((at, next))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_may_have_white_space_between_their_parts() {
        assert_eq!(tag("<\n parameter\u{a0}= x", &["parameter", "="]), Some(" x"));
        assert_eq!(tag("<parameter", &["parameter", "="]), None);
        assert_eq!(first("a<b<p>c", |text| tag(text, &["p", ">"])), Some((3, "c")));
    }

    #[test]
    fn a_value_ends_at_its_end_tag_or_at_the_next_parameter() {
        let open = |text| tag(text, &["parameter", "="]);
        assert_eq!(value_end("a<b</ parameter >c", open), Some((3, "c")));
        assert_eq!(value_end("a<parameter=x>", open), Some((1, "<parameter=x>")));
        assert_eq!(value_end("a</parameter", open), None);
    }
}
