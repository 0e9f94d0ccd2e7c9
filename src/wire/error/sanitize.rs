//! Removes what vLLM strips from every error's text: addresses of objects and paths of files
//! (`entrypoints/serve/exception_handling/utils.py`). A text may repeat what a client sent, so clients see the
//! difference.

use std::borrow::Cow;

const PLACEHOLDER: &str = "<path>";
/// The directories at the root of a system in which its files are.
const ROOTS: [&str; 9] = ["home", "usr", "opt", "var", "tmp", "root", "lib", "mnt", "srv"];

/// Returns the text without addresses and paths.
pub(crate) fn sanitized(text: &str) -> String {
    let text = without_addresses(text);
    let text = replaced(&text, system_path);
    replaced(&text, file_path).trim().to_owned()
}

/// Replaces ` at 0x7f…>` by `>`.
fn without_addresses(text: &str) -> Cow<'_, str> {
    const START: &str = " at 0x";
    if !text.contains(START) {
        return Cow::Borrowed(text);
    }
    let mut parts = text.split(START);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let after = part.trim_start_matches(|c: char| c.is_ascii_hexdigit());
        if after.len() == part.len() || !after.starts_with('>') {
            out.push_str(START);
            out.push_str(part);
        } else {
            out.push_str(after);
        }
    }
    Cow::Owned(out)
}

/// Replaces every path by the placeholder; `path` returns the length of the path that a text starts with.
fn replaced(text: &str, path: fn(&str) -> Option<usize>) -> Cow<'_, str> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('/') {
        let (before, found) = rest.split_at(at);
        out.push_str(before);
        let (shown, length) = path(found).map_or(("/", 1), |length| (PLACEHOLDER, length));
        out.push_str(shown);
        rest = &found[length..];
    }
    if out.is_empty() {
        return Cow::Borrowed(text);
    }
    out.push_str(rest);
    Cow::Owned(out)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the length of `/name` at the start of a text, for names of these characters; 0 if there is none.
fn step(text: &str, of_name: fn(char) -> bool) -> usize {
    let Some(name) = text.strip_prefix('/') else { return 0 };
    let length = name.find(|c| !of_name(c)).unwrap_or(name.len());
    if length == 0 { 0 } else { length + 1 }
}

/// Returns the length and the number of all such steps at the start of a text.
fn steps(text: &str, of_name: fn(char) -> bool) -> (usize, usize) {
    let (mut length, mut count) = (0, 0);
    loop {
        match step(&text[length..], of_name) {
            0 => return (length, count),
            more => {
                length += more;
                count += 1;
            }
        }
    }
}

/// Returns the length of a path below one of the roots.
fn system_path(text: &str) -> Option<usize> {
    let after = text.strip_prefix('/')?;
    let root = ROOTS.iter().find(|root| after.strip_prefix(**root).is_some_and(|rest| rest.starts_with('/')))?;
    let start = root.len() + 1;
    let (length, count) = steps(&text[start..], |c| is_word(c) || c == '.' || c == '-');
    (count > 0).then_some(start + length)
}

/// Returns the length of a path of two steps or more whose last one has a file name's ending.
fn file_path(text: &str) -> Option<usize> {
    let (length, count) = steps(text, |c| is_word(c) || c == '-');
    let ending = text[length..].strip_prefix('.').filter(|_| count > 1)?;
    let size = ending.find(|c| !is_word(c)).unwrap_or(ending.len());
    (size > 0).then_some(length + 1 + size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_addresses_are_left_out() {
        for (text, clean) in [
            ("The model `/root/models/x-1.5` does not exist.", "The model `<path>` does not exist."),
            ("/home/me", "<path>"),
            ("/home", "/home"),
            ("/home/", "/home/"),
            ("see src/api/error.rs.", "see src<path>."),
            ("a/b/c.txt and d/e.f", "a<path> and d/e.f"),
            ("/library/x and /a/b", "/library/x and /a/b"),
            ("https://x.org/y/z.html", "https://x.org<path>"),
            ("/a/b.c/d/e.f", "<path><path>"),
            ("<obj at 0x7f3a> at 0x at 0xzz>", "<obj> at 0x at 0xzz>"),
            (" 1/2 ", "1/2"),
            ("/ü/é.ß", "<path>"),
        ] {
            assert_eq!(sanitized(text), clean, "{text}");
        }
    }
}
