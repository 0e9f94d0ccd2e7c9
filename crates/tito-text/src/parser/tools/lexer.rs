//! Text to markers and what stands between them, whatever the pieces are.
//!
//! The longest marker wins where several begin at one place, and the first place wins over later ones. Refuses to know
//! what a marker means.

/// A part of the text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// One of the markers.
    Marker(&'static str),
    /// What is no marker.
    Text(String),
}

impl Token {
    /// What was written.
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Marker(marker) => marker,
            Self::Text(text) => text,
        }
    }
}

/// Splits a text at markers.
#[derive(Debug)]
pub(super) struct Lexer {
    markers: &'static [&'static str],
    /// Text that may be the start of a marker, or of a longer marker.
    held: String,
}

impl Lexer {
    pub(super) fn new(markers: &'static [&'static str]) -> Self {
        Self { markers, held: String::new() }
    }

    /// Takes the next piece, and returns the tokens that became certain.
    pub(super) fn push(&mut self, text: &str) -> Vec<Token> {
        self.held.push_str(text);
        self.tokens(false)
    }

    /// Takes the end of the text, and returns the tokens that are left.
    pub(super) fn finish(&mut self) -> Vec<Token> {
        self.tokens(true)
    }

    fn tokens(&mut self, ended: bool) -> Vec<Token> {
        let held = std::mem::take(&mut self.held);
        let mut tokens = Vec::new();
        let mut text = 0;
        let mut at = 0;
        while let Some(start) = self.candidate(&held, at) {
            let rest = &held[start..];
            if !ended && self.may_grow(rest) {
                text_token(&held[text..start], &mut tokens);
                rest.clone_into(&mut self.held);
                return tokens;
            }
            at = start + first_char(rest);
            if let Some(marker) = self.longest(rest) {
                text_token(&held[text..start], &mut tokens);
                tokens.push(Token::Marker(marker));
                at = start + marker.len();
                text = at;
            }
        }
        text_token(&held[text..], &mut tokens);
        tokens
    }

    /// Where the next character stands with which a marker begins.
    fn candidate(&self, text: &str, from: usize) -> Option<usize> {
        let begins = |byte: &u8| self.markers.iter().any(|marker| marker.as_bytes()[0] == *byte);
        text.as_bytes()[from..].iter().position(begins).map(|at| from + at)
    }

    fn may_grow(&self, rest: &str) -> bool {
        self.markers.iter().any(|marker| marker.len() > rest.len() && marker.starts_with(rest))
    }

    fn longest(&self, rest: &str) -> Option<&'static str> {
        let found = self.markers.iter().filter(|marker| rest.starts_with(**marker));
        found.max_by_key(|marker| marker.len()).copied()
    }
}

fn text_token(text: &str, tokens: &mut Vec<Token>) {
    if !text.is_empty() {
        tokens.push(Token::Text(text.to_owned()));
    }
}

fn first_char(text: &str) -> usize {
    text.chars().next().map_or(1, char::len_utf8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKERS: &[&str] = &["<a>", "<a>b", "\">", ">", "｜"];

    fn written(tokens: Vec<Token>) -> String {
        let write = |token| match token {
            Token::Marker(marker) => format!("[{marker}]"),
            Token::Text(text) => text,
        };
        tokens.into_iter().map(write).collect()
    }

    #[test]
    fn the_longest_marker_wins_at_the_first_place() {
        for (text, tokens) in [
            ("", ""),
            ("x<a>y", "x[<a>]y"),
            ("<a>b", "[<a>b]"),
            ("<a><a>b>", "[<a>][<a>b][>]"),
            ("n\">\"x>", "n[\">]\"x[>]"),
            ("<a", "<a"),
            ("é｜\u{ff5d}<<a>", "é[｜]\u{ff5d}<[<a>]"),
        ] {
            let mut lexer = Lexer::new(MARKERS);
            let mut tokens_read = lexer.push(text);
            tokens_read.extend(lexer.finish());
            assert_eq!(written(tokens_read), tokens, "{text}");
        }
    }

    #[test]
    fn only_what_may_become_a_longer_marker_is_held_back() {
        let mut lexer = Lexer::new(MARKERS);
        let given = ["x<", "a", ">", "c<a>", "b\"", "y"].map(|piece| written(lexer.push(piece)));
        assert_eq!(given, ["x", "", "", "[<a>]c", "[<a>b]", "\"y"]);
        assert_eq!(written(lexer.finish()), "");
    }
}
