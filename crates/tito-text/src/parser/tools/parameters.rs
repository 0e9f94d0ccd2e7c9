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

/// So many marks are looked at to tell whether one is text. Each value looks at those after it.
const MOST_MARKS: usize = 1000;

/// A mark in a value, or after it.
enum Mark<'t> {
    /// The end of a value, with the text after it.
    End(&'t str),
    /// The beginning of an argument, or what looks like one, with the key if it is one.
    Begin(Option<&'t str>),
}

/// Where a value ends, and what comes then: after its end mark, or at the next argument.
///
/// Marks begin with `<`. `end` gives the text after an end mark at the start of a text. `opens` says whether an argument may
/// begin there, and `key` gives its key, which may be cut off, if nothing but an argument can. `has` says whether a key is
/// that of the value itself, or of one before it.
///
/// Of several end marks before the next argument, the one counts behind which that follows, or nothing: a value may hold such
/// marks, as a file in XML does. Where more follows each of them, the first one counts. An argument that begins before any end
/// mark ends the value, whose own end is missing then, unless something says that it is text of the value: more values end
/// than begin after it, or the call has an argument of that key besides.
pub(super) fn value_end<'t>(
    text: &'t str,
    end: impl Fn(&'t str) -> Option<&'t str>,
    opens: impl Fn(&'t str) -> bool,
    key: impl Fn(&'t str) -> Option<&'t str>,
    has: impl Fn(&str) -> bool,
) -> Option<(usize, &'t str)> {
    Marks { end, opens, key, has }.value_end(text)
}

/// What is a mark in values.
struct Marks<E, O, K, H> {
    end: E,
    opens: O,
    key: K,
    has: H,
}

impl<'t, E, O, K, H> Marks<E, O, K, H>
where
    E: Fn(&'t str) -> Option<&'t str>,
    O: Fn(&'t str) -> bool,
    K: Fn(&'t str) -> Option<&'t str>,
    H: Fn(&str) -> bool,
{
    fn value_end(&self, text: &'t str) -> Option<(usize, &'t str)> {
        let mut first = None;
        let mut depth = 0_usize;
        for (at, mark) in self.of(text) {
            match mark {
                Mark::End(_) if depth > 0 => depth -= 1,
                Mark::End(next) => {
                    let behind = next.trim_start();
                    if behind.is_empty() || (self.opens)(behind) {
                        return Some((at, next));
                    }
                    first.get_or_insert((at, next));
                }
                Mark::Begin(_) if depth > 0 => depth += 1,
                Mark::Begin(_) if first.is_some() => return first,
                Mark::Begin(None) => {}
                Mark::Begin(Some(key)) => {
                    let rest = &text[at + 1..];
                    if self.is_nested(rest) {
                        depth = 1;
                    } else if !(self.has)(key) && !self.follows(rest, key) {
                        return Some((at, &text[at..]));
                    }
                }
            }
        }
        first
    }

    /// Whether more values end than begin in `rest`, which follows the beginning of an argument: the value that this stands in
    /// has an end of its own.
    fn is_nested(&self, rest: &'t str) -> bool {
        let mut depth = 1_usize;
        for (_, mark) in self.of(rest).take(MOST_MARKS) {
            match mark {
                Mark::Begin(_) => depth += 1,
                Mark::End(_) if depth == 0 => return true,
                Mark::End(_) => depth -= 1,
            }
        }
        false
    }

    /// Whether an argument of this key begins right behind the end of another.
    fn follows(&self, rest: &'t str, key: &str) -> bool {
        let mut behind = None;
        self.of(rest).take(MOST_MARKS).any(|(at, mark)| match mark {
            Mark::Begin(other) => behind == Some(at) && other == Some(key),
            Mark::End(next) => {
                behind = Some(rest.len() - next.trim_start().len());
                false
            }
        })
    }

    fn of(&self, text: &'t str) -> impl Iterator<Item = (usize, Mark<'t>)> {
        text.match_indices('<').filter_map(move |(at, _)| {
            let rest = &text[at..];
            if let Some(next) = (self.end)(rest) {
                return Some((at, Mark::End(next)));
            }
            (self.opens)(rest).then(|| (at, Mark::Begin((self.key)(rest))))
        })
    }
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
    fn an_argument_that_begins_in_a_value_is_text_if_something_says_so() {
        let opens = |text| tag(text, &["p="]).is_some();
        let key = |text| tag(text, &["p="])?.split_once('>').map(|(key, _)| key).filter(|key| !key.contains('<'));
        let value_end = |text| super::value_end(text, |text| tag(text, &["/p>"]), opens, key, |key| key == "a");
        for (text, value) in [
            ("x <p=b>y</p>", "x "),
            ("x <p=b>y</p><p=c>z</p>", "x "),
            // The value has an end of its own.
            ("x <p=b>1</p> y</p>", "x <p=b>1</p> y"),
            ("x <p=b>1</p><p=c>2</p> y</p>\n<p=b>w</p>", "x <p=b>1</p><p=c>2</p> y"),
            ("x <p=b><p=c>1</p></p></p>", "x <p=b><p=c>1</p></p>"),
            ("x <p= y</p>", "x <p= y"),
            // The argument comes later, or was there before.
            ("x <p=b> y</p>\n<p=b>w</p>", "x <p=b> y"),
            ("x <p=a> y</p>\n<p=b>w</p>", "x <p=a> y"),
            ("x <p=a> y</p>", "x <p=a> y"),
        ] {
            assert_eq!(value_end(text).map(|(end, _)| &text[..end]), Some(value), "{text}");
        }
        assert_eq!(value_end("x <p=a> y"), None);
    }

    #[test]
    fn a_value_ends_at_its_end_tag_or_at_the_next_parameter() {
        let opens = |text| tag(text, &["parameter", "="]).is_some();
        let key = |text| tag(text, &["parameter", "="])?.split_once('>').map(|(key, _)| key);
        let end = |text| tag(text, &["/", "parameter", ">"]);
        let value_end = |text| super::value_end(text, end, opens, key, |key| key == "a");
        assert_eq!(value_end("a<b</ parameter >c"), Some((3, "c")));
        assert_eq!(value_end("a<parameter=x>"), Some((1, "<parameter=x>")));
        assert_eq!(value_end("a</parameter"), None);
        let value = "a</parameter>b</parameter>\n<parameter=x>";
        assert_eq!(value_end(value), Some((14, "\n<parameter=x>")));
        assert_eq!(value_end("a</parameter>b</parameter>\n"), Some((14, "\n")));
        assert_eq!(value_end("a</parameter>b</parameter>c"), Some((1, "b</parameter>c")));
        assert_eq!(value_end("a</parameter>b<parameter=x>"), Some((1, "b<parameter=x>")));
    }
}
