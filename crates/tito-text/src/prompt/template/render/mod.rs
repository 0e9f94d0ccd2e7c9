//! Runs a template. What a template can change (scopes, namespaces, macros, loops, output) is in the renderer's tables,
//! and ends with it.

mod calls;
mod expressions;
mod loops;
mod scope;

use std::rc::Rc;

use indexmap::IndexMap;
use time::OffsetDateTime;

use super::arguments::Arguments;
use super::bounds::{self, Charge};
use super::error::Error;
use super::filters;
use super::print;
use super::syntax::{Block, Filtering, Macro, Statement, Target};
use super::value::{Value, error, items, type_name};
use loops::Loop;
use scope::Scope;

/// What a template is rendered with.
pub(super) struct Context<'t> {
    pub(super) variables: &'t IndexMap<String, Value>,
    pub(super) special_tokens: &'t IndexMap<String, Value>,
    pub(super) now: OffsetDateTime,
}

/// Renders a template.
pub(super) fn render(template: &Block, context: &Context<'_>) -> Result<String, Error> {
    let mut renderer = Renderer {
        context,
        output: vec![Output::default()],
        namespaces: Vec::new(),
        macros: Vec::new(),
        loops: Vec::new(),
        loops_so_far: 0,
    };
    let scope = Scope::new(None);
    renderer.block(template, &scope)?;
    Ok(renderer.output.pop().unwrap_or_default().text)
}

pub(super) struct Renderer<'t> {
    context: &'t Context<'t>,
    /// What is printed, and what is captured within it.
    output: Vec<Output>,
    namespaces: Vec<Namespace>,
    macros: Vec<Defined<'t>>,
    /// The loops that run, the innermost last.
    loops: Vec<Loop<'t>>,
    loops_so_far: usize,
}

#[derive(Default)]
struct Output {
    text: String,
    charge: Charge,
}

#[derive(Default)]
struct Namespace {
    entries: IndexMap<Box<str>, Value>,
    charge: Charge,
}

/// A macro and the scope that it was defined in.
struct Defined<'t> {
    definition: &'t Macro,
    scope: Rc<Scope<'t>>,
    _charge: Charge,
}

/// How a statement ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    On,
    Break,
    Continue,
}

impl<'t> Renderer<'t> {
    fn block(&mut self, block: &'t Block, scope: &Rc<Scope<'t>>) -> Result<Flow, Error> {
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

    fn write(&mut self, text: &str) -> Result<(), Error> {
        bounds::reserve(text.len())?;
        if let Some(output) = self.output.last_mut() {
            output.charge.add(text.len());
            output.text.push_str(text);
        }
        Ok(())
    }

    fn print(&mut self, value: &Value) -> Result<(), Error> {
        match value.as_str() {
            Some(text) => self.write(text),
            None => self.write(&print::to_str(value)?),
        }
    }

    fn begin_capture(&mut self) {
        self.output.push(Output::default());
    }

    fn end_capture(&mut self) -> Value {
        Value::from(self.output.pop().unwrap_or_default().text)
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
        filters.iter().try_fold(value, |value, filtering| self.filter(filtering, &value, scope))
    }

    #[inline(never)]
    fn filter(&mut self, filtering: &'t Filtering, value: &Value, scope: &Rc<Scope<'t>>) -> Result<Value, Error> {
        let given = self.evaluate_arguments(&filtering.arguments, scope)?;
        filters::apply(&filtering.name, filtering.filter, value, &Arguments::new(&filtering.name, given))
    }

    fn define(&mut self, definition: &'t Macro, scope: &Rc<Scope<'t>>) -> Value {
        self.macros.push(Defined {
            definition,
            scope: Rc::clone(scope),
            _charge: Charge::new(size_of::<Defined<'_>>() + size_of::<Scope<'_>>()),
        });
        Value::Macro(self.macros.len() - 1)
    }

    #[inline(never)]
    fn assign(&mut self, target: &'t Target, value: Value, scope: &Rc<Scope<'t>>) -> Result<(), Error> {
        match target {
            Target::Name(name) => scope.set(name, value),
            Target::Attribute(name, attribute) => {
                let Some(Value::Namespace(place)) = self.lookup(name, scope) else {
                    return Err(error(format!("can only assign to attributes of namespaces, and '{name}' is none")));
                };
                check_attribute(attribute)?;
                self.namespaces[place].set(attribute, value);
            }
            Target::Tuple(targets) => {
                let values = match &value {
                    Value::Undefined => return Err(error("cannot unpack an undefined value")),
                    value => items(value)?,
                };
                if values.len() != targets.len() {
                    let (wanted, found) = (targets.len(), values.len());
                    let name = type_name(&value);
                    return Err(error(format!("cannot unpack a {name} of {found} values into {wanted}")));
                }
                for (target, value) in targets.iter().zip(values) {
                    self.assign(target, value, scope)?;
                }
            }
        }
        Ok(())
    }
}

impl Namespace {
    fn set(&mut self, name: &str, value: Value) {
        if let Some(place) = self.entries.get_mut(name) {
            *place = value;
        } else {
            self.charge.add(2 * size_of::<Value>() + name.len());
            self.entries.insert(name.into(), value);
        }
    }
}

// In jinja2's sandbox nothing can be read whose name begins like that.
fn check_attribute(name: &str) -> Result<(), Error> {
    if name.starts_with('_') {
        return Err(error(format!("namespaces cannot store the underscore-prefixed attribute '{name}'")));
    }
    Ok(())
}
