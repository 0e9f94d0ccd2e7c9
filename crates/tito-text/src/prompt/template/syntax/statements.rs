//! Statements.

use std::sync::Arc;

use super::super::error::{TemplateError, source_excerpt};
use super::super::scan::{Piece, Scanned};
use super::parser::{Parser, TokenResult};
use super::{Block, Call, Expression, For, Macro, Statement, Step, Target, Uses};

/// Names that nothing can be assigned to.
const RESERVED: [&str; 8] = ["true", "True", "false", "False", "none", "None", "loop", "self"];

/// Reads what a source consists of.
pub(in super::super) fn parse(source: &str, scanned: &Scanned<'_>) -> Result<Block, TemplateError> {
    Parser::new(source, scanned).block(&[]).map(|(block, _)| block)
}

impl<'s> Parser<'_, 's> {
    /// Reads up to the tag that has one of the given names, and returns which one it was. Without any, to the end.
    fn block(&mut self, ends: &[&str]) -> TokenResult<(Block, &'s str)> {
        let mut block = Vec::new();
        while let Some((piece, rest)) = self.pieces.split_first() {
            self.pieces = rest;
            let index = match *piece {
                Piece::Text(text) => {
                    block.push(Statement::Text(text.into()));
                    continue;
                }
                Piece::Tag(index) => index,
            };
            let tag = &self.tags[index];
            (self.tokens, self.at, self.end) = (&tag.tokens, 0, tag.end);
            if !tag.is_block {
                let printed = self.tuple_until(&[], Self::expression, false)?;
                self.expect_end()?;
                block.push(Statement::Print(printed));
                continue;
            }
            if let Some(name) = tag.statement()
                && ends.contains(&name)
            {
                self.skip(1);
                return Ok((block, name));
            }
            let statement = self.nested(Self::statement)?;
            self.expect_end()?;
            block.extend(statement);
        }
        match ends {
            [] => Ok((block, "")),
            ends => {
                (self.tokens, self.at, self.end) = (&[], 0, self.source.len());
                Err(self.error(format!("unexpected end of template, expected '{}'", ends.join("' or '"))))
            }
        }
    }

    // Reads the rest of the tag and up to the tag that closes it, whose name is skipped.
    fn body(&mut self, ends: &[&str]) -> TokenResult<(Block, &'s str)> {
        // Python's way to open a block is allowed, and means nothing.
        self.skip_operator(":");
        self.expect_end()?;
        self.block(ends)
    }

    fn statement(&mut self) -> TokenResult<Option<Statement>> {
        let (found, at) = self.peek().map_or(("", None), |token| (token.text, Some(token)));
        self.skip(1);
        Ok(Some(match found {
            "for" => self.for_loop()?,
            "if" => self.condition()?,
            "set" => self.assignment()?,
            "with" => {
                let bindings = self.bindings()?;
                Statement::With(bindings, self.body(&["endwith"])?.0)
            }
            "filter" => {
                let filters = self.filters()?;
                Statement::Filter(filters, self.body(&["endfilter"])?.0)
            }
            "macro" => {
                let name = self.assigned_name()?;
                self.expect_operator("(")?;
                let parameters = self.parameters()?;
                Statement::Macro(self.callable(name, parameters, "endmacro")?)
            }
            "call" => self.call()?,
            "block" => self.named_block()?,
            "generation" => Statement::Scope(self.body(&["endgeneration"])?.0),
            "break" | "continue" if self.is_in_loop => {
                if found == "break" {
                    Statement::Break
                } else {
                    Statement::Continue
                }
            }
            "break" | "continue" => return Err(self.error(format!("'{found}' must be placed inside a loop"))),
            "include" | "import" | "from" | "extends" => {
                self.at = self.tokens.len();
                Statement::OtherTemplate(found.into())
            }
            _ => {
                let place = at.map_or(self.end, |token| token.start);
                return Err(TemplateError::syntax(
                    format!("Encountered unknown tag '{}'.", source_excerpt(found)),
                    self.source,
                    place,
                ));
            }
        }))
    }

    fn for_loop(&mut self) -> TokenResult<Statement> {
        let target = self.target(false, &["in"])?;
        if !self.skip_name("in") {
            return Err(self.unexpected("'in'"));
        }
        let iterated = self.tuple_until(&["recursive", "if"], Self::or, false)?;
        let condition = if self.skip_name("if") { Some(self.expression()?) } else { None };
        let is_recursive = self.skip_name("recursive");
        let was_in_loop = std::mem::replace(&mut self.is_in_loop, true);
        let (body, end) = self.body(&["endfor", "else"])?;
        self.is_in_loop = was_in_loop;
        let otherwise = if end == "else" { self.body(&["endfor"])?.0 } else { Vec::new() };
        Ok(Statement::For(Box::new(For { target, iterated, condition, is_recursive, body, otherwise })))
    }

    fn condition(&mut self) -> TokenResult<Statement> {
        let mut arms = Vec::new();
        loop {
            let test = self.tuple_until(&[], Self::or, false)?;
            let (body, end) = self.body(&["elif", "else", "endif"])?;
            arms.push((test, body));
            match end {
                "elif" => {}
                "else" => return Ok(Statement::If(arms, self.body(&["endif"])?.0)),
                _ => return Ok(Statement::If(arms, Vec::new())),
            }
        }
    }

    fn assignment(&mut self) -> TokenResult<Statement> {
        let target = self.target(true, &["="])?;
        if self.skip_operator("=") {
            return Ok(Statement::Set(target, self.tuple_until(&[], Self::expression, false)?));
        }
        let filters = if self.skip_operator("|") { self.filters()? } else { Vec::new() };
        Ok(Statement::SetBlock(target, filters, self.body(&["endset"])?.0))
    }

    fn filters(&mut self) -> TokenResult<Vec<super::Filtering>> {
        let mut filters = vec![self.filtering()?];
        while self.skip_operator("|") {
            filters.push(self.filtering()?);
        }
        Ok(filters)
    }

    fn bindings(&mut self) -> TokenResult<Vec<(Target, Expression)>> {
        let mut bindings = Vec::new();
        while self.peek().is_some() {
            if !bindings.is_empty() {
                self.expect_operator(",")?;
            }
            // A tuple needs brackets here, as a comma begins the next name.
            let target = if self.is_operator("(") { self.target_part(false)? } else { self.name_target()? };
            self.expect_operator("=")?;
            bindings.push((target, self.expression()?));
        }
        Ok(bindings)
    }

    fn call(&mut self) -> TokenResult<Statement> {
        let parameters = if self.skip_operator("(") { self.parameters()? } else { Vec::new() };
        let Expression::Postfix(called, mut steps) = self.expression()? else {
            return Err(self.error("a call block needs a call"));
        };
        let Some(Step::Call(arguments)) = steps.pop() else {
            return Err(self.error("a call block needs a call"));
        };
        let called = if steps.is_empty() { *called } else { Expression::Postfix(called, steps) };
        let body = self.callable("caller", parameters, "endcall")?;
        Ok(Statement::Call(Box::new(Call { called, arguments, body })))
    }

    fn named_block(&mut self) -> TokenResult<Statement> {
        let name = self.expect_name()?;
        if self.blocks.contains(&name) {
            return Err(self.error(format!("block '{name}' defined twice")));
        }
        self.blocks.push(name);
        while self.skip_name("scoped") || self.skip_name("required") {}
        let was_in_loop = std::mem::replace(&mut self.is_in_loop, false);
        let (body, _) = self.body(&["endblock"])?;
        self.is_in_loop = was_in_loop;
        self.skip_name(name);
        Ok(Statement::Scope(body))
    }

    // The parameters of a macro, from after the bracket that opens them to after the one that closes them.
    fn parameters(&mut self) -> TokenResult<Vec<(Box<str>, Option<Expression>)>> {
        let mut parameters: Vec<(Box<str>, Option<Expression>)> = Vec::new();
        while !self.skip_operator(")") {
            if !parameters.is_empty() {
                self.expect_operator(",")?;
                if self.skip_operator(")") {
                    break;
                }
            }
            let name = self.assigned_name()?;
            let default = if self.skip_operator("=") { Some(self.expression()?) } else { None };
            if default.is_none() && parameters.last().is_some_and(|(_, default)| default.is_some()) {
                return Err(self.error("non-default argument follows default argument"));
            }
            parameters.push((name.into(), default));
        }
        Ok(parameters)
    }

    fn callable(
        &mut self,
        name: &str,
        parameters: Vec<(Box<str>, Option<Expression>)>,
        end: &str,
    ) -> TokenResult<Arc<Macro>> {
        let was_in_loop = std::mem::replace(&mut self.is_in_loop, false);
        self.uses.push(Uses::default());
        let body = self.body(&[end]);
        self.is_in_loop = was_in_loop;
        let uses = self.uses.pop().unwrap_or_default();
        Ok(Arc::new(Macro { name: name.into(), parameters, body: body?.0, uses }))
    }

    fn assigned_name(&mut self) -> TokenResult<&'s str> {
        let name = self.expect_name()?;
        if RESERVED.contains(&name) {
            return Err(self.error(format!("cannot assign to reserved variable name '{name}'")));
        }
        Ok(name)
    }

    fn name_target(&mut self) -> TokenResult<Target> {
        Ok(Target::Name(self.assigned_name()?.into()))
    }

    // What is assigned to, up to one of the given tokens or the end of the tag.
    fn target(&mut self, takes_attributes: bool, ends: &[&str]) -> TokenResult<Target> {
        let mut parts = Vec::new();
        let mut is_tuple = false;
        loop {
            if self.peek().is_none_or(|token| ends.contains(&token.text) || matches!(token.text, ")" | "|")) {
                break;
            }
            parts.push(self.target_part(takes_attributes)?);
            if !self.skip_operator(",") {
                break;
            }
            is_tuple = true;
        }
        match parts.pop() {
            Some(only) if parts.is_empty() && !is_tuple => Ok(only),
            Some(last) => {
                parts.push(last);
                Ok(Target::Tuple(parts))
            }
            None => Err(self.unexpected("a name")),
        }
    }

    fn target_part(&mut self, takes_attributes: bool) -> TokenResult<Target> {
        if self.skip_operator("(") {
            let target = self.nested(|parser| parser.target(takes_attributes, &[]))?;
            self.expect_operator(")")?;
            return Ok(target);
        }
        let name = self.assigned_name()?;
        if takes_attributes && self.skip_operator(".") {
            return Ok(Target::Attribute(name.into(), self.expect_name()?.into()));
        }
        Ok(Target::Name(name.into()))
    }
}
