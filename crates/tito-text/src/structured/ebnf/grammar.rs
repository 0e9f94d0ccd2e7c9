//! A grammar as it was read.

/// A part of a rule.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expr {
    /// A text.
    Text(String),
    /// One character of a class.
    Class { negated: bool, ranges: Vec<(char, char)> },
    /// A rule, by its index.
    Rule(usize),
    /// Expressions that follow each other; an empty list is the empty text.
    Sequence(Vec<Expr>),
    /// One of several expressions.
    Choice(Vec<Expr>),
    /// At least and at most so often.
    Repeat(Box<Expr>, u32, Option<u32>),
}

/// The rules by index.
#[derive(Debug)]
#[expect(clippy::struct_field_names, reason = "they are the rules")]
pub(super) struct Rules {
    pub(super) rules: Vec<Expr>,
    pub(super) names: Vec<String>,
    pub(super) root: usize,
}
