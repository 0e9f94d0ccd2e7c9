//! Runs a template. What a template can change (scopes, namespaces, macros, loops, output) is in the renderer's tables,
//! and ends with it.

mod calls;
mod expressions;
mod loops;
mod renderer;
mod scope;
mod statements;

use super::error::Error;
use super::syntax::Block;
pub(super) use renderer::Context;
use renderer::Renderer;
use scope::Scope;

/// Renders a template.
pub(super) fn render(template: &Block, context: &Context<'_>) -> Result<String, Error> {
    let mut renderer = Renderer::new(context);
    let scope = Scope::new(None);
    renderer.block(template, &scope)?;
    Ok(renderer.output.pop().unwrap_or_default().text)
}
