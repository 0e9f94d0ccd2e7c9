//! Statements.

use std::rc::Rc;

use super::super::bounds;
use super::super::error::Error;
use super::super::syntax::{Block, Filtering, Statement, Target};
use super::super::value::{Value, error};
use super::language::{Flow, Language};
use super::renderer::Renderer;
use super::scope::Scope;

impl<'t> Renderer<'t> {
    pub(super) fn statements(&mut self, block: &'t Block, scope: &Rc<Scope<'t>>) -> Result<Flow, Error> {
        for statement in block {
            let flow = self.statement(statement, scope)?;
            if flow != Flow::On {
                return Ok(flow);
            }
        }
        Ok(Flow::On)
    }

    fn statement(&mut self, statement: &'t Statement, scope: &Rc<Scope<'t>>) -> Result<Flow, Error> {
        let _level = bounds::descend()?;
        match statement {
            Statement::Text(text) => self.write(text)?,
            Statement::Print(expression) => {
                let value = self.evaluate(expression, scope)?;
                self.print(&value)?;
            }
            Statement::For(each) => return self.for_loop(each, scope),
            Statement::If(arms, otherwise) => {
                for (test, body) in arms {
                    if self.evaluate(test, scope)?.is_true() {
                        return self.block(body, scope);
                    }
                }
                return self.block(otherwise, scope);
            }
            Statement::Set(target, expression) => {
                let value = self.evaluate(expression, scope)?;
                self.assign(target, value, scope)?;
            }
            Statement::SetBlock(target, filters, body) => return self.set_block(target, filters, body, scope),
            Statement::With(bindings, body) => {
                let inner = Scope::new(Some(scope));
                for (target, expression) in bindings {
                    // Each sees what is outside of the block, not those before it.
                    let value = self.evaluate(expression, scope)?;
                    self.assign(target, value, &inner)?;
                }
                return self.block(body, &inner);
            }
            Statement::Filter(filters, body) => {
                let value = match self.captured(body, scope)? {
                    Ok(value) => self.filtered(filters, value, scope)?,
                    Err(flow) => return Ok(flow),
                };
                self.print(&value)?;
            }
            Statement::Macro(definition) => {
                let value = self.define(definition, scope);
                scope.set(&definition.name, value);
            }
            Statement::Call(call) => self.call_block(call, scope)?,
            Statement::Scope(body) => return self.block(body, &Scope::new(Some(scope))),
            Statement::Break => return Ok(Flow::Break),
            Statement::Continue => return Ok(Flow::Continue),
            Statement::OtherTemplate(name) => {
                return Err(error(format!("'{name}' needs other templates, and there are none")));
            }
        }
        Ok(Flow::On)
    }

    // What a block prints, in a scope of its own; what it has printed is lost where it leaves a loop.
    #[inline(never)]
    fn captured(&mut self, body: &'t Block, scope: &Rc<Scope<'t>>) -> Result<Result<Value, Flow>, Error> {
        self.begin_capture();
        let flow = self.block(body, &Scope::new(Some(scope)))?;
        let value = self.end_capture();
        Ok(if flow == Flow::On { Ok(value) } else { Err(flow) })
    }

    #[inline(never)]
    fn set_block(
        &mut self,
        target: &'t Target,
        filters: &'t [Filtering],
        body: &'t Block,
        scope: &Rc<Scope<'t>>,
    ) -> Result<Flow, Error> {
        let value = match self.captured(body, scope)? {
            Ok(value) => self.filtered(filters, value, scope)?,
            Err(flow) => return Ok(flow),
        };
        self.assign(target, value, scope).map(|()| Flow::On)
    }

    #[inline(never)]
    fn filtered(&mut self, filters: &'t [Filtering], value: Value, scope: &Rc<Scope<'t>>) -> Result<Value, Error> {
        filters.iter().try_fold(value, |value, filtering| self.apply_filter(filtering, &value, scope))
    }
}
