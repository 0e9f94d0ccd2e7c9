//! Groups of regular expressions: their names and, where an expression is written with comments, these.
//!
//! Expressions are written on one line, so that a comment would take in all that follows it; and several are joined, whose
//! groups may have the same name. What a group matches is of no interest.

/// The expression without the names of its groups, and without comments.
pub(super) fn without_names(regex: &str) -> String {
    rewritten(regex, true)
}

/// The expression without its comments.
pub(super) fn without_comments(regex: &str) -> String {
    rewritten(regex, false)
}

fn rewritten(regex: &str, names: bool) -> String {
    let mut written = String::with_capacity(regex.len());
    // For each open group, whether blanks and comments say nothing in it.
    let mut verbose = vec![false];
    let mut rest = regex;
    let mut in_class = false;
    while let Some(c) = rest.chars().next() {
        let is_verbose = verbose.last().copied().unwrap_or(false);
        let length = match c {
            '\\' => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            '[' if !in_class => {
                in_class = true;
                // As the first character of a class, a `]` is no end.
                ["[^]", "[]"].iter().find(|begin| rest.starts_with(**begin)).map_or(1, |begin| begin.len())
            }
            ']' => {
                in_class = false;
                1
            }
            _ if in_class => c.len_utf8(),
            '#' if is_verbose => {
                rest = rest.find('\n').map_or("", |end| &rest[end..]);
                continue;
            }
            // A line break would be written as an escape, which is no blank.
            c if is_verbose && c.is_whitespace() => {
                written.push(' ');
                rest = &rest[c.len_utf8()..];
                continue;
            }
            '(' => {
                let Group { length, verbose: changed, kind } = group(rest);
                match kind {
                    Kind::Flags => {
                        if let Some(state) = verbose.last_mut() {
                            *state = changed.unwrap_or(*state);
                        }
                    }
                    Kind::Named | Kind::Other => verbose.push(changed.unwrap_or(is_verbose)),
                }
                if kind == Kind::Named && names {
                    written.push_str("(?:");
                    rest = &rest[length..];
                    continue;
                }
                length
            }
            ')' => {
                if verbose.len() > 1 {
                    verbose.pop();
                }
                1
            }
            c => c.len_utf8(),
        };
        written.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    written
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Named,
    /// Flags for what follows, and no group.
    Flags,
    Other,
}

/// What begins a group.
struct Group {
    length: usize,
    /// What it says of blanks and comments.
    verbose: Option<bool>,
    kind: Kind,
}

fn group(text: &str) -> Group {
    let other = Group { length: 1, verbose: None, kind: Kind::Other };
    let Some(inner) = text.strip_prefix("(?") else { return other };
    let name = inner.strip_prefix("P<").or_else(|| inner.strip_prefix('<'));
    if let Some((name, _)) = name.and_then(|name| name.split_once('>'))
        && name.starts_with(|c: char| c.is_alphabetic() || c == '_')
    {
        let before = if inner.starts_with('P') { "(?P<" } else { "(?<" };
        return Group { length: before.len() + name.len() + 1, verbose: None, kind: Kind::Named };
    }
    let flags = inner.len() - inner.trim_start_matches(|c: char| c.is_ascii_alphabetic() || c == '-').len();
    let (set, unset) = inner[..flags].split_once('-').unwrap_or((&inner[..flags], ""));
    let verbose = if unset.contains('x') { Some(false) } else { set.contains('x').then_some(true) };
    match inner[flags..].chars().next() {
        Some(')') => Group { length: 2 + flags + 1, verbose, kind: Kind::Flags },
        Some(':') => Group { length: 2 + flags + 1, verbose, kind: Kind::Other },
        _ => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_comments_are_left_out_and_nothing_else_is() {
        for (regex, written) in [
            (r"(?P<n>a)(?<m>b)", "(?:a)(?:b)"),
            (r"(?x) a # b) [", "(?x) a "),
            ("(?x)a # b\n c", "(?x)a   c"),
            (r"(?x:a # b", "(?x:a "),
            (r"(?x:a)#b", r"(?x:a)#b"),
            (r"(?x)(?-x)#b", r"(?x)(?-x)#b"),
            (r"(?x)\# [#] []#]#c", r"(?x)\# [#] []#]"),
            (r"\(?P<n>(a)[(?P<n>]#é", r"\(?P<n>(a)[(?P<n>]#é"),
            (r"(?<=a)(?<!b)(?:c)(?i)", r"(?<=a)(?<!b)(?:c)(?i)"),
        ] {
            assert_eq!(without_names(regex), written);
        }
        assert_eq!(without_comments("(?P<n>a)(?x)#b"), "(?P<n>a)(?x)");
    }
}
