//! Cuts a template's source into its tags and their tokens, as jinja2's lexer does. Text, comments and raw blocks are
//! passed over; what the tokens mean is left to `rewrite` and `content_format`.

use super::TemplateError;
use super::tokens::{Kind, Token};

/// A `{% … %}` or `{{ … }}` of the source.
#[derive(Debug)]
pub(super) struct Tag<'s> {
    pub(super) is_block: bool,
    pub(super) tokens: Vec<Token<'s>>,
}

impl<'s> Tag<'s> {
    /// The statement's name, for a block.
    pub(super) fn statement(&self) -> Option<&'s str> {
        self.tokens.first().filter(|token| self.is_block && token.kind == Kind::Name).map(|token| token.text)
    }
}

/// Returns the tags of a source whose line ends are all `\n`.
pub(super) fn scan(source: &str) -> Result<Vec<Tag<'_>>, TemplateError> {
    let mut scanner = Scanner { source, at: 0 };
    let mut tags = Vec::new();
    while let Some(open) = scanner.next_open() {
        match &source[open..open + 2] {
            "{#" => {
                let close = scanner.find("#}", open + 2);
                scanner.at = close.ok_or_else(|| scanner.error("Missing end of comment tag", open))? + 2;
            }
            delimiter => {
                let is_block = delimiter == "{%";
                let tokens = scanner.tag(open, if is_block { "%}" } else { "}}" })?;
                if is_block && tokens.len() == 1 && tokens[0].is_name("raw") {
                    scanner.skip_raw(open)?;
                } else {
                    tags.push(Tag { is_block, tokens });
                }
            }
        }
    }
    Ok(tags)
}

const DOUBLE_OPERATORS: [&str; 6] = ["//", "**", "==", "!=", ">=", "<="];

struct Scanner<'s> {
    source: &'s str,
    at: usize,
}

impl<'s> Scanner<'s> {
    fn error(&self, message: impl Into<String>, at: usize) -> TemplateError {
        TemplateError::syntax(message, self.source, at)
    }

    fn find(&self, needle: &str, from: usize) -> Option<usize> {
        self.source[from..].find(needle).map(|found| from + found)
    }

    fn next_open(&self) -> Option<usize> {
        let rest = &self.source.as_bytes()[self.at..];
        let found = rest.windows(2).position(|pair| pair[0] == b'{' && matches!(pair[1], b'%' | b'{' | b'#'))?;
        Some(self.at + found)
    }

    fn skip_raw(&mut self, open: usize) -> Result<(), TemplateError> {
        while let Some(start) = self.find("{%", self.at) {
            let tag = self.source[start + 2..].trim_start_matches(['-', '+']).trim_start();
            let tail = tag.strip_prefix("endraw").map(|tail| tail.trim_start().trim_start_matches(['-', '+']));
            if let Some(rest) = tail.and_then(|tail| tail.strip_prefix("%}")) {
                self.at = self.source.len() - rest.len();
                return Ok(());
            }
            self.at = start + 2;
        }
        Err(self.error("Missing end of raw directive", open))
    }

    // Reads from behind the opening delimiter to behind the closing one.
    fn tag(&mut self, open: usize, close: &str) -> Result<Vec<Token<'s>>, TemplateError> {
        let mut tokens: Vec<Token<'s>> = Vec::new();
        let mut depth = 0_usize;
        self.at = open + 2;
        if self.source[self.at..].starts_with(['-', '+']) {
            self.at += 1;
        }
        loop {
            let rest = &self.source[self.at..];
            let Some(first) = rest.chars().next() else {
                return Err(self.error(format!("unexpected end of template, expected '{close}'"), open));
            };
            let marked = rest.strip_prefix(['-', '+']).filter(|rest| rest.starts_with(close));
            if depth == 0 && (marked.is_some() || rest.starts_with(close)) {
                self.at += close.len() + usize::from(marked.is_some());
                return Ok(tokens);
            }
            if first.is_whitespace() {
                self.at += first.len_utf8();
                continue;
            }
            let (kind, length) = self.token(rest, tokens.last())?;
            let text = &rest[..length];
            match text {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => {
                    depth = depth.checked_sub(1).ok_or_else(|| self.error(format!("unexpected '{text}'"), self.at))?;
                }
                _ => {}
            }
            tokens.push(Token { kind, text, start: self.at });
            self.at += length;
        }
    }

    fn token(&self, rest: &str, previous: Option<&Token<'_>>) -> Result<(Kind, usize), TemplateError> {
        let bytes = rest.as_bytes();
        let first = bytes[0];
        if first.is_ascii_alphabetic() || first == b'_' {
            return Ok((Kind::Name, count(bytes, |byte| byte.is_ascii_alphanumeric() || byte == b'_')));
        }
        if first.is_ascii_digit() {
            // Behind a dot stands an index: in `a.0.1` there are two of them, not one fraction.
            let is_index = previous.is_some_and(|token| token.is_operator("."));
            return Ok((
                Kind::Number,
                if is_index { count(bytes, |byte| byte.is_ascii_digit()) } else { number(bytes) },
            ));
        }
        if first == b'"' || first == b'\'' {
            let mut escaped = false;
            let closing = bytes[1..].iter().position(|&byte| {
                let closes = byte == first && !escaped;
                escaped = byte == b'\\' && !escaped;
                closes
            });
            return closing
                .map(|inner| (Kind::String, inner + 2))
                .ok_or_else(|| self.error("unexpected end of string", self.at));
        }
        if DOUBLE_OPERATORS.iter().any(|operator| rest.starts_with(operator)) {
            return Ok((Kind::Operator, 2));
        }
        if b"+-*/%~[](){}<>=.:|,;".contains(&first) {
            return Ok((Kind::Operator, 1));
        }
        let found = rest.chars().next().unwrap_or_default();
        Err(self.error(format!("unexpected char '{found}' at {}", self.at), self.at))
    }
}

fn count(bytes: &[u8], accepts: impl Fn(u8) -> bool) -> usize {
    bytes.iter().take_while(|&&byte| accepts(byte)).count()
}

fn number(bytes: &[u8]) -> usize {
    let mut length = count(bytes, |byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let is_radix = bytes[0] == b'0' && bytes.get(1).is_some_and(u8::is_ascii_alphabetic);
    if is_radix {
        return length;
    }
    let digit_follows = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    if bytes.get(length) == Some(&b'.') && digit_follows(length + 1) {
        length += 1 + count(&bytes[length + 1..], |byte| byte.is_ascii_alphanumeric() || byte == b'_');
    }
    let ends_in_exponent = matches!(bytes[length - 1], b'e' | b'E');
    if ends_in_exponent && matches!(bytes.get(length), Some(b'+' | b'-')) && digit_follows(length + 1) {
        length += 1 + count(&bytes[length + 1..], |byte| byte.is_ascii_digit());
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<Vec<&str>> {
        let tags = scan(source).unwrap();
        tags.iter().map(|tag| tag.tokens.iter().map(|token| token.text).collect()).collect()
    }

    #[test]
    fn tags_are_found_between_text_comments_and_raw_blocks() {
        let source = "a {# {{ no }} #}{%- raw -%}{{ no }}{% no %}{%+ endraw +%} {{- 'x' ~ y -}} {%+ if a+%}{";
        assert_eq!(texts(source), [vec!["'x'", "~", "y"], vec!["if", "a"]]);
    }

    #[test]
    fn delimiters_within_strings_and_braces_do_not_end_a_tag() {
        assert_eq!(texts(r#"{{ '}}' + "\"%}" }}"#), [vec!["'}}'", "+", r#""\"%}""#]]);
        assert_eq!(texts("{{ {'a': {}} }}"), [vec!["{", "'a'", ":", "{", "}", "}"]]);
    }

    #[test]
    fn numbers_operators_and_indices_are_told_apart() {
        assert_eq!(
            texts("{{ 1.5e-3 // a.0.1 ** 0x1f-2 != 1_000 }}"),
            [vec!["1.5e-3", "//", "a", ".", "0", ".", "1", "**", "0x1f", "-", "2", "!=", "1_000"]]
        );
    }

    #[test]
    fn what_does_not_end_is_refused() {
        for source in ["{{ a", "{% if a }}", "{# a", "{% raw %}{% endra %}", "{{ 'a }}", "{{ a) }}", "{{ ? }}"] {
            assert!(matches!(scan(source), Err(TemplateError::Syntax { line: 1, .. })), "{source}");
        }
    }
}
