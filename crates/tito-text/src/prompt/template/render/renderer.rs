//! What a template can change while it runs: output, namespaces, macros, loops.

use std::rc::Rc;

use indexmap::IndexMap;
use time::OffsetDateTime;

use super::super::bounds::{self, Charge};
use super::super::error::Error;
use super::super::globals;
use super::super::print;
use super::super::syntax::{For, Macro};
use super::super::value::{Value, error};
use super::scope::Scope;
use crate::json::{KeyedHash, Members};

/// What a template is rendered with.
pub(in super::super) struct Context<'t> {
    pub(in super::super) variables: &'t Members<Value>,
    pub(in super::super) special_tokens: &'t Members<Value>,
    pub(in super::super) now: OffsetDateTime,
}

/// A template that runs.
pub(super) struct Renderer<'t> {
    pub(super) context: &'t Context<'t>,
    /// What is printed, and what is captured within it.
    pub(super) output: Vec<Output>,
    pub(super) namespaces: Vec<Namespace>,
    pub(super) macros: Vec<Defined<'t>>,
    /// The loops that run, the innermost last.
    pub(super) loops: Vec<Loop<'t>>,
    pub(super) loops_so_far: usize,
}

#[derive(Default)]
pub(super) struct Output {
    pub(super) text: String,
    pub(super) charge: Charge,
}

#[derive(Default)]
pub(super) struct Namespace {
    pub(super) entries: IndexMap<Box<str>, Value, KeyedHash>,
    pub(super) charge: Charge,
}

/// A macro and the scope that it was defined in.
pub(super) struct Defined<'t> {
    pub(super) definition: &'t Macro,
    pub(super) scope: Rc<Scope<'t>>,
    pub(super) _charge: Charge,
}

/// A loop that runs.
pub(super) struct Loop<'t> {
    /// By which its variable finds it.
    pub(super) number: usize,
    pub(super) definition: &'t For,
    /// Where it stands.
    pub(super) scope: Rc<Scope<'t>>,
    pub(super) items: Vec<Value>,
    pub(super) index: usize,
    pub(super) depth: usize,
    pub(super) changed: Option<Vec<Value>>,
    pub(super) _charge: Charge,
}

impl<'t> Renderer<'t> {
    pub(super) fn new(context: &'t Context<'t>) -> Self {
        Self {
            context,
            output: vec![Output::default()],
            namespaces: Vec::new(),
            macros: Vec::new(),
            loops: Vec::new(),
            loops_so_far: 0,
        }
    }

    pub(super) fn write(&mut self, text: &str) -> Result<(), Error> {
        bounds::reserve(text.len())?;
        if let Some(output) = self.output.last_mut() {
            output.charge.add(text.len());
            output.text.push_str(text);
        }
        Ok(())
    }

    pub(super) fn print(&mut self, value: &Value) -> Result<(), Error> {
        match value.as_str() {
            Some(text) => self.write(text),
            None => self.write(&print::to_str(value)?),
        }
    }

    pub(super) fn begin_capture(&mut self) {
        self.output.push(Output::default());
    }

    pub(super) fn end_capture(&mut self) -> Value {
        Value::from(self.output.pop().unwrap_or_default().text)
    }

    /// A variable, what the template was given, or a function that is always there.
    pub(super) fn lookup(&self, name: &str, scope: &Scope<'t>) -> Option<Value> {
        let given = || self.context.variables.get(name).or_else(|| self.context.special_tokens.get(name)).cloned();
        scope.get(name).or_else(given).or_else(|| globals::find(name).map(Value::Function))
    }

    pub(super) fn define(&mut self, definition: &'t Macro, scope: &Rc<Scope<'t>>) -> Value {
        self.macros.push(Defined {
            definition,
            scope: Rc::clone(scope),
            _charge: Charge::new(size_of::<Defined<'_>>() + size_of::<Scope<'_>>()),
        });
        Value::Macro(self.macros.len() - 1)
    }
}

impl Namespace {
    pub(super) fn set(&mut self, name: &str, value: Value) {
        if let Some(place) = self.entries.get_mut(name) {
            *place = value;
        } else {
            self.charge.add(2 * size_of::<Value>() + name.len());
            self.entries.insert(name.into(), value);
        }
    }
}

// In jinja2's sandbox nothing can be read whose name begins like that.
pub(super) fn check_attribute(name: &str) -> Result<(), Error> {
    if name.starts_with('_') {
        return Err(error(format!("namespaces cannot store the underscore-prefixed attribute '{name}'")));
    }
    Ok(())
}
