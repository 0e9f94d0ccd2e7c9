//! Cuts a template's source into text and tags, and these into tokens, as jinja2's lexer does with `trim_blocks` and
//! `lstrip_blocks`. Comments are left out, raw blocks are text; what the tokens mean is left to `syntax` and
//! `content_format`.

use super::TemplateError;
use super::text::{is_space, strip_spaces_at_end};
use super::tokens::{Token, TokenKind};

/// A `{% … %}` or `{{ … }}` of the source.
#[derive(Debug)]
pub(super) struct Tag<'s> {
    pub(super) is_block: bool,
    pub(super) tokens: Vec<Token<'s>>,
    /// Where it ends in the source.
    pub(super) end: usize,
}

impl<'s> Tag<'s> {
    /// The statement's name, for a block.
    pub(super) fn statement(&self) -> Option<&'s str> {
        self.tokens.first().filter(|token| self.is_block && token.kind == TokenKind::Name).map(|token| token.text)
    }
}

/// What a source consists of, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece<'s> {
    /// Text to print, never empty.
    Text(&'s str),
    /// A tag, by its index.
    Tag(usize),
}

/// A source in pieces.
#[derive(Debug, Default)]
pub(super) struct Scanned<'s> {
    pub(super) tags: Vec<Tag<'s>>,
    pub(super) pieces: Vec<Piece<'s>>,
}

impl<'s> Scanned<'s> {
    fn text(&mut self, text: &'s str) {
        if !text.is_empty() {
            self.pieces.push(Piece::Text(text));
        }
    }
}

/// Scans a source whose line ends are all `\n`. Its last one is not printed.
pub(super) fn scan(source: &str) -> Result<Scanned<'_>, TemplateError> {
    let source = source.strip_suffix('\n').unwrap_or(source);
    let mut scanner = Scanner { source, at: 0 };
    let mut found = Scanned::default();
    while let Some(open) = scanner.next_open() {
        let is_variable = &source[open..open + 2] == "{{";
        found.text(scanner.text_before(open, is_variable));
        match &source[open..open + 2] {
            "{#" => scanner.comment(open)?,
            delimiter => {
                let is_block = delimiter == "{%";
                let (tokens, mark) = scanner.tag(open, if is_block { "%}" } else { "}}" })?;
                if is_block && tokens.len() == 1 && tokens[0].is_name("raw") {
                    if mark == Some('-') {
                        scanner.skip_spaces();
                    }
                    found.text(scanner.raw(open)?);
                } else {
                    scanner.skip_after(mark, is_block);
                    found.pieces.push(Piece::Tag(found.tags.len()));
                    found.tags.push(Tag { is_block, tokens, end: scanner.at });
                }
            }
        }
    }
    found.text(&source[scanner.at..]);
    Ok(found)
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

    // The text up to the tag that opens at `open`, as far as the tag's mark and the place of the tag let it print.
    fn text_before(&self, open: usize, is_variable: bool) -> &'s str {
        let text = &self.source[self.at..open];
        match self.source[open + 2..].chars().next() {
            Some('-') => return strip_spaces_at_end(text),
            Some('+') => return text,
            _ if is_variable => return text,
            _ => {}
        }
        let line = text.rfind('\n').map_or(0, |newline| newline + 1);
        let starts_line = line > 0 || self.at == 0 || self.source[..self.at].ends_with('\n');
        if starts_line && text[line..].chars().all(is_space) { &text[..line] } else { text }
    }

    fn skip_spaces(&mut self) {
        let rest = &self.source[self.at..];
        self.at += rest.len() - rest.trim_start_matches(is_space).len();
    }

    // What a tag's mark, or else its kind, takes from the text after it.
    fn skip_after(&mut self, mark: Option<char>, takes_newline: bool) {
        match mark {
            Some('-') => self.skip_spaces(),
            None if takes_newline && self.source[self.at..].starts_with('\n') => self.at += 1,
            _ => {}
        }
    }

    fn comment(&mut self, open: usize) -> Result<(), TemplateError> {
        let start = open + 2 + usize::from(self.source[open + 2..].starts_with(['-', '+']));
        let close = self.find("#}", start).ok_or_else(|| self.error("Missing end of comment tag", open))?;
        let mark = self.source[start..close].chars().next_back().filter(|mark| matches!(mark, '-' | '+'));
        self.at = close + 2;
        self.skip_after(mark, true);
        Ok(())
    }

    // Reads from after `raw` to after `endraw`, and returns what is between them.
    fn raw(&mut self, open: usize) -> Result<&'s str, TemplateError> {
        let mut from = self.at;
        while let Some(start) = self.find("{%", from) {
            let tag = self.source[start + 2..].trim_start_matches(['-', '+']).trim_start();
            if let Some(tail) = tag.strip_prefix("endraw").map(str::trim_start) {
                let mark = tail.chars().next().filter(|mark| matches!(mark, '-' | '+'));
                if let Some(rest) = tail[usize::from(mark.is_some())..].strip_prefix("%}") {
                    let text = self.text_before(start, false);
                    self.at = self.source.len() - rest.len();
                    self.skip_after(mark, true);
                    return Ok(text);
                }
            }
            from = start + 2;
        }
        Err(self.error("Missing end of raw directive", open))
    }

    // Reads from after the opening delimiter to after the closing one, and returns that one's mark, too.
    fn tag(&mut self, open: usize, close: &str) -> Result<(Vec<Token<'s>>, Option<char>), TemplateError> {
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
                return Ok((tokens, marked.and_then(|_| rest.chars().next())));
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

    fn token(&self, rest: &str, previous: Option<&Token<'_>>) -> Result<(TokenKind, usize), TemplateError> {
        let bytes = rest.as_bytes();
        let first = bytes[0];
        if first.is_ascii_alphabetic() || first == b'_' {
            return Ok((TokenKind::Name, count(bytes, |byte| byte.is_ascii_alphanumeric() || byte == b'_')));
        }
        if first.is_ascii_digit() {
            // After a dot stands an index: in `a.0.1` there are two of them, not one fraction.
            let is_index = previous.is_some_and(|token| token.is_operator("."));
            return Ok((
                TokenKind::Number,
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
                .map(|inner| (TokenKind::String, inner + 2))
                .ok_or_else(|| self.error("unexpected end of string", self.at));
        }
        if DOUBLE_OPERATORS.iter().any(|operator| rest.starts_with(operator)) {
            return Ok((TokenKind::Operator, 2));
        }
        if b"+-*/%~[](){}<>=.:|,;".contains(&first) {
            return Ok((TokenKind::Operator, 1));
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
        let tags = scan(source).unwrap().tags;
        tags.iter().map(|tag| tag.tokens.iter().map(|token| token.text).collect()).collect()
    }

    #[test]
    fn tags_are_found_between_text_comments_and_raw_blocks() {
        let source = "a {# {{ no }} #}{%- raw -%}{{ no }}{% no %}{%+ endraw +%} {{- 'x' ~ y -}} {%+ if a+%}{";
        assert_eq!(texts(source), [vec!["'x'", "~", "y"], vec!["if", "a"]]);
        let pieces =
            [Piece::Text("a "), Piece::Text("{{ no }}{% no %}"), Piece::Tag(0), Piece::Tag(1), Piece::Text("{")];
        assert_eq!(scan(source).unwrap().pieces, pieces);
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
