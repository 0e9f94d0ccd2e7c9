//! Grammars in the EBNF that xgrammar and llama.cpp read (`root ::= "a" | [b-c]+`), as a grammar for `llguidance`.
//!
//! EBNF has no lexer: it is a grammar of characters. `llguidance` cuts text into lexemes first and takes the longest, so
//! a rule cannot be handed over as it stands. A grammar without recursion becomes one regular expression; one with
//! recursion is written out in single characters. Both accept exactly what the EBNF does.
//! Refuses what is not of the language: lookaheads and macros, by name.

mod ends;
mod grammar;
mod parse;
mod write;

use self::grammar::{Expr, Rules};
use super::error::StructuredError;

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
