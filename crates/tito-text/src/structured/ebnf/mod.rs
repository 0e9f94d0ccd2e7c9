//! Grammars in the EBNF that xgrammar and llama.cpp read (`root ::= "a" | [b-c]+`), as a grammar for `llguidance`.
//!
//! EBNF has no lexer: it is a grammar of characters. `llguidance` cuts text into lexemes first and takes the longest, so
//! a rule cannot be handed over as it stands. A grammar without recursion becomes one regular expression; one with
//! recursion is written out in single characters. Both accept exactly what the EBNF does.
//! Refuses what is not of the language: lookaheads and macros, by name.

mod ends;
mod parse;
mod write;

use super::error::StructuredError;

/// A part of a rule.
#[derive(Debug, Clone, PartialEq)]
enum Expr {
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
struct Rules {
    rules: Vec<Expr>,
    names: Vec<String>,
    root: usize,
}

/// Whether a grammar is Lark rather than EBNF, by vLLM's rule: no line defines a rule by `::=`.
pub(super) fn is_lark(grammar: &str) -> bool {
    let code = |line: &'_ str| line.find('#').into_iter().chain(line.find("//")).min().unwrap_or(line.len());
    !grammar.lines().any(|line| line[..code(line)].contains("::="))
}

/// The grammar in Lark.
pub(super) fn to_lark(grammar: &str) -> Result<String, StructuredError> {
    let invalid = |error| StructuredError::new(format!("Invalid grammar specification. {error}"));
    let rules = parse::rules(grammar).map_err(invalid)?;
    ends::check(&rules).map_err(invalid)?;
    write::lark(&rules).map_err(StructuredError::new)
}
