//! Runs a template. What a template can change (scopes, namespaces, macros, loops, output) is in the renderer's tables,
//! and ends with it.

mod calls;
mod expressions;
mod language;
mod loops;
mod renderer;
mod scope;
mod statements;
mod targets;

use std::rc::Rc;

use super::error::Error;
use super::syntax::{Block, Expression};
use super::value::Value;
use language::{Flow, Language};
pub(super) use renderer::Context;
use renderer::Renderer;
use scope::Scope;

impl<'t> Language<'t> for Renderer<'t> {
    #[inline]
    fn evaluate(&mut self, expression: &'t Expression, scope: &Rc<Scope<'t>>) -> Result<Value, Error> {
        self.expression(expression, scope)
    }

    #[inline]
    fn block(&mut self, block: &'t Block, scope: &Rc<Scope<'t>>) -> Result<Flow, Error> {
        self.statements(block, scope)
    }
}

/// Renders a template.
pub(super) fn render(template: &Block, context: &Context<'_>) -> Result<String, Error> {
    let mut renderer = Renderer::new(context);
    let scope = Scope::new(None);
    renderer.block(template, &scope)?;
    Ok(renderer.output.pop().unwrap_or_default().text)
}
