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
    value_end_at(text, |rest| tag(rest, &["/", word, ">"]), |rest| open(rest).is_some())
}

/// The same of any marks that begin with `<`: `end` gives the text after an end mark at the start of a text, `opens` says
/// whether the next argument begins there.
///
/// Of several end marks before the next argument, the one counts behind which that follows, or nothing: a value may hold such
/// marks, as a file in XML does. Where more follows each of them, the first one counts.
pub(super) fn value_end_at<'t>(
    text: &'t str,
    end: impl Fn(&'t str) -> Option<&'t str>,
    opens: impl Fn(&'t str) -> bool,
) -> Option<(usize, &'t str)> {
    let mut first = None;
    for (at, _) in text.match_indices('<') {
        let rest = &text[at..];
        if let Some(next) = end(rest) {
            let behind = next.trim_start();
            if behind.is_empty() || opens(behind) {
                return Some((at, next));
            }
            first.get_or_insert((at, next));
        } else if opens(rest) {
            return first.or(Some((at, rest)));
        }
    }
    first
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
        let value = "a</parameter>b</parameter>\n<parameter=x>";
        assert_eq!(value_end(value, open), Some((14, "\n<parameter=x>")));
        assert_eq!(value_end("a</parameter>b</parameter>\n", open), Some((14, "\n")));
        assert_eq!(value_end("a</parameter>b</parameter>c", open), Some((1, "b</parameter>c")));
        assert_eq!(value_end("a</parameter>b<parameter=x>", open), Some((1, "b<parameter=x>")));
    }
}
