//! The tokens of a tag, one after another.

use super::super::bounds::MAX_NESTING;
use super::super::error::{TemplateError, source_excerpt};
use super::super::scan::{Piece, Scanned, Tag};
use super::super::tokens::{Token, TokenKind};
use super::Uses;

pub(super) type TokenResult<T> = Result<T, TemplateError>;

pub(super) struct Parser<'t, 's> {
    pub(super) source: &'s str,
    /// What is still to be read.
    pub(super) pieces: &'t [Piece<'s>],
    pub(super) tags: &'t [Tag<'s>],
    /// The tag that is read, how far, and where it ends.
    pub(super) tokens: &'t [Token<'s>],
    pub(super) at: usize,
    pub(super) end: usize,
    /// How many brackets and statements are open.
    pub(super) depth: usize,
    pub(super) is_in_loop: bool,
    /// What the macros that are open speak of, the innermost last.
    pub(super) uses: Vec<Uses>,
    pub(super) blocks: Vec<&'s str>,
}

impl<'t, 's> Parser<'t, 's> {
    /// Before the first piece of a source.
    pub(super) fn new(source: &'s str, scanned: &'t Scanned<'s>) -> Self {
        Self {
            source,
            pieces: &scanned.pieces,
            tags: &scanned.tags,
            tokens: &[],
            at: 0,
            end: source.len(),
            depth: 0,
            is_in_loop: false,
            uses: Vec::new(),
            blocks: Vec::new(),
        }
    }

    pub(super) fn peek(&self) -> Option<Token<'s>> {
        self.peek_at(0)
    }

    pub(super) fn peek_at(&self, ahead: usize) -> Option<Token<'s>> {
        self.tokens.get(self.at + ahead).copied()
    }

    pub(super) fn skip(&mut self, count: usize) {
        self.at += count;
    }

    pub(super) fn is_name(&self, name: &str) -> bool {
        self.peek().is_some_and(|token| token.is_name(name))
    }

    pub(super) fn is_operator(&self, operator: &str) -> bool {
        self.peek().is_some_and(|token| token.is_operator(operator))
    }

    pub(super) fn skip_name(&mut self, name: &str) -> bool {
        let found = self.is_name(name);
        self.at += usize::from(found);
        found
    }

    pub(super) fn skip_operator(&mut self, operator: &str) -> bool {
        let found = self.is_operator(operator);
        self.at += usize::from(found);
        found
    }

    pub(super) fn skip_any<T: Copy>(&mut self, operators: &[(&str, T)]) -> Option<T> {
        let token = self.peek().filter(|token| token.kind == TokenKind::Operator)?;
        let (_, found) = operators.iter().find(|(operator, _)| *operator == token.text)?;
        self.at += 1;
        Some(*found)
    }

    pub(super) fn expect_operator(&mut self, operator: &str) -> TokenResult<()> {
        if self.skip_operator(operator) { Ok(()) } else { Err(self.unexpected(&format!("'{operator}'"))) }
    }

    pub(super) fn expect_name(&mut self) -> TokenResult<&'s str> {
        let Some(token) = self.peek().filter(|token| token.kind == TokenKind::Name) else {
            return Err(self.unexpected("a name"));
        };
        self.at += 1;
        Ok(token.text)
    }

    pub(super) fn expect_end(&self) -> TokenResult<()> {
        if self.peek().is_none() { Ok(()) } else { Err(self.unexpected("the end of the tag")) }
    }

    pub(super) fn error(&self, message: impl Into<String>) -> TemplateError {
        TemplateError::syntax(message, self.source, self.peek().map_or(self.end, |token| token.start))
    }

    pub(super) fn error_at(&self, token: &Token<'_>, message: impl Into<String>) -> TemplateError {
        TemplateError::syntax(message, self.source, token.start)
    }

    pub(super) fn unexpected(&self, expected: &str) -> TemplateError {
        let found = self
            .peek()
            .map_or_else(|| "the end of the tag".to_owned(), |token| format!("'{}'", source_excerpt(token.text)));
        self.error(format!("unexpected {found}, expected {expected}"))
    }

    /// Notes that the macros that are open speak of a name.
    pub(super) fn note_use(&mut self, name: &str) {
        for uses in &mut self.uses {
            match name {
                "caller" => uses.caller = true,
                "varargs" => uses.varargs = true,
                "kwargs" => uses.kwargs = true,
                _ => {}
            }
        }
    }

    /// Reads what is nested in a bracket or a statement.
    pub(super) fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> TokenResult<T>) -> TokenResult<T> {
        if self.depth == MAX_NESTING {
            return Err(self.error(format!(
                "brackets and statements are nested more than {MAX_NESTING} levels deep, so simplify the template"
            )));
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }
}
