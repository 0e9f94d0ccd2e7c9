//! Classes of characters, as ECMAScript and Python read them.
//!
//! The compiler takes `--`, `&&`, `~~` and a `[` within a class for operations on sets. Elsewhere these are characters, and the
//! ends of ranges.

use std::{iter::Peekable, str::Chars};

/// Writes the classes of a regular expression so that the compiler reads them as others do. Names of classes between `[:` and
/// `:]` stay what whoever writes them means.
pub(super) fn plain(regex: &str) -> String {
    let mut spelled = String::with_capacity(regex.len());
    let mut rest = regex.chars().peekable();
    while let Some(c) = rest.next() {
        spelled.push(c);
        match c {
            '\\' => spelled.extend(rest.next()),
            '[' => class(&mut rest, &mut spelled),
            _ => {}
        }
    }
    spelled
}

/// What stands before a `-`.
#[derive(Clone, Copy, PartialEq)]
enum Before {
    /// A character, with which a range may begin.
    Character,
    /// A class of its own such as `\w`, with which none may: it, the `-` and what comes next stand for themselves.
    Class,
    /// The beginning of the class, or a range.
    Other,
}

/// The rest of a class, its end included.
fn class(rest: &mut Peekable<Chars<'_>>, spelled: &mut String) {
    spelled.extend(rest.next_if_eq(&'^'));
    // As the first character it is no end.
    spelled.extend(rest.next_if_eq(&']'));
    let mut before = Before::Other;
    while let Some(c) = rest.next() {
        match c {
            ']' => return spelled.push(c),
            '[' if rest.peek() == Some(&':') => {
                spelled.push(c);
                named(rest, spelled);
                before = Before::Other;
            }
            '-' if before != Before::Other && rest.peek().is_some_and(|next| *next != ']') => {
                spelled.push_str(if before == Before::Class { r"\-" } else { "-" });
                let end = rest.next().unwrap_or(']');
                character(end, rest, spelled);
                before = Before::Other;
            }
            c => before = character(c, rest, spelled),
        }
    }
}

/// One character of a class, or an escape.
fn character(c: char, rest: &mut Peekable<Chars<'_>>, spelled: &mut String) -> Before {
    match c {
        '\\' => {
            let escaped = rest.next();
            spelled.extend(Some(c).into_iter().chain(escaped));
            if escaped.is_some_and(|escaped| "dDwWsSpP".contains(escaped)) { Before::Class } else { Before::Character }
        }
        '[' | '-' | '&' | '~' => {
            spelled.extend(['\\', c]);
            Before::Character
        }
        c => {
            spelled.push(c);
            Before::Character
        }
    }
}

/// The rest of `[:alpha:]`.
fn named(rest: &mut Peekable<Chars<'_>>, spelled: &mut String) {
    for c in rest.by_ref() {
        spelled.push(c);
        if c == ']' {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_of_classes_are_no_operations_on_sets() {
        for (regex, spelled) in [
            (r"a--b&&c[a-c]", r"a--b&&c[a-c]"),
            (r"[+--]", r"[+-\-]"),
            (r"[!--]", r"[!-\-]"),
            (r"[--/]", r"[\--/]"),
            (r"[a-c&&b-d]", r"[a-c\&\&b-d]"),
            (r"[a~~b]", r"[a\~\~b]"),
            (r"[[a]", r"[\[a]"),
            (r"[^[\]-]x", r"[^\[\]\-]x"),
            (r"[\w--_]", r"[\w\-\-_]"),
            (r"[\w-a]", r"[\w\-a]"),
            (r"[a-c-e]", r"[a-c\-e]"),
            (r"[a-]", r"[a\-]"),
            (r"[]a-b]", r"[]a-b]"),
            (r"\[--]", r"\[--]"),
            (r"[\]--a]", r"[\]-\-a]"),
            (r"[[:alpha:]-]", r"[[:alpha:]\-]"),
            (r"[a", r"[a"),
            (r"[a-", r"[a\-"),
        ] {
            assert_eq!(plain(regex), spelled, "{regex}");
        }
    }
}
