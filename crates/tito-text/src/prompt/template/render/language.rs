//! What the parts of the language are made of: each of them has expressions and blocks in it, whatever these are.

use std::rc::Rc;

use super::super::arguments::CallArguments;
use super::super::bounds;
use super::super::error::Error;
use super::super::syntax::{Arguments, Block, Expression};
use super::super::value::{Value, error, items};
use super::scope::Scope;

/// How a statement ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    On,
    Break,
    Continue,
}

/// Runs what may stand in any part of a template: an expression calls a macro, whose body has statements, one of which loops
/// over an expression. So the parts know of each other only that they can be run.
pub(super) trait Language<'t> {
    /// The value of an expression.
    fn evaluate(&mut self, expression: &'t Expression, scope: &Rc<Scope<'t>>) -> Result<Value, Error>;

    /// Runs the statements of a block.
    fn block(&mut self, block: &'t Block, scope: &Rc<Scope<'t>>) -> Result<Flow, Error>;

    /// The values of expressions.
    fn all(&mut self, expressions: &'t [Expression], scope: &Rc<Scope<'t>>) -> Result<Vec<Value>, Error> {
        expressions.iter().map(|expression| self.evaluate(expression, scope)).collect()
    }

    /// The values of a call's arguments.
    #[inline(never)]
    fn evaluate_arguments(&mut self, arguments: &'t Arguments, scope: &Rc<Scope<'t>>) -> Result<CallArguments, Error> {
        let mut given =
            CallArguments { positional: self.all(&arguments.positional, scope)?, ..CallArguments::default() };
        if let Some(more) = &arguments.items {
            let more = self.evaluate(more, scope)?;
            given.positional.append(&mut items(&more)?);
            given.charge.add(given.positional.capacity() * size_of::<Value>());
        }
        for (name, argument) in &arguments.named {
            given.named.push((name.clone(), self.evaluate(argument, scope)?));
        }
        if let Some(more) = &arguments.entries {
            let more = self.evaluate(more, scope)?;
            let Value::Dict(dict) = &more else { return Err(error("argument after ** must be a mapping")) };
            bounds::look_through(more.size())?;
            bounds::reserve(more.size())?;
            given.charge.add(more.size());
            for (name, value) in &dict.entries {
                let name = name.value().as_str().ok_or_else(|| error("keywords must be strings"))?;
                if arguments.named.iter().any(|(known, _)| **known == *name) {
                    return Err(error(format!("got multiple values for keyword argument '{name}'")));
                }
                given.named.push((name.into(), value.clone()));
            }
        }
        Ok(given)
    }
}
