//! Tokens of a template's tags, and the brackets that structure them. The scanner has balanced the brackets.

/// One token and where it starts in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'s> {
    pub(super) kind: TokenKind,
    pub(super) text: &'s str,
    pub(super) start: usize,
}

impl Token<'_> {
    pub(super) fn is_name(&self, name: &str) -> bool {
        self.kind == TokenKind::Name && self.text == name
    }

    pub(super) fn is_operator(&self, operator: &str) -> bool {
        self.kind == TokenKind::Operator && self.text == operator
    }
}

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    Name,
    Number,
    String,
    Operator,
}

/// Returns the index of the first accepted token outside of all brackets.
pub(super) fn find_at_depth_zero(tokens: &[Token<'_>], accepts: impl Fn(&Token<'_>) -> bool) -> Option<usize> {
    let mut depth = 0_usize;
    tokens.iter().position(|token| {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && accepts(token)
    })
}

/// Returns the bracket that closes the one at `open`.
pub(super) fn closing<'t, 's>(tokens: &'t [Token<'s>], open: usize) -> &'t Token<'s> {
    let inner = find_at_depth_zero(&tokens[open..], |token| matches!(token.text, ")" | "]" | "}"));
    &tokens[open + inner.expect("the scanner has balanced the brackets")]
}

/// Returns the tokens between the bracket at `open` and the one that closes it.
pub(super) fn inside<'t, 's>(tokens: &'t [Token<'s>], open: usize) -> &'t [Token<'s>] {
    let end = closing(tokens, open).start;
    let length = tokens[open + 1..].iter().take_while(|token| token.start < end).count();
    &tokens[open + 1..open + 1 + length]
}

/// Returns the arguments between the bracket that the tokens begin with and the one that closes it.
pub(super) fn arguments<'t, 's>(tokens: &'t [Token<'s>]) -> Vec<&'t [Token<'s>]> {
    if !tokens.first().is_some_and(|token| token.is_operator("(")) {
        return Vec::new();
    }
    let mut rest = inside(tokens, 0);
    let mut arguments = Vec::new();
    while !rest.is_empty() {
        let comma = find_at_depth_zero(rest, |token| token.is_operator(","));
        arguments.push(&rest[..comma.unwrap_or(rest.len())]);
        rest = comma.map_or(&[], |comma| &rest[comma + 1..]);
    }
    arguments
}
