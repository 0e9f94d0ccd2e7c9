//! Variables: those of a block, and around them those of the blocks that it is in.

use std::cell::RefCell;
use std::rc::Rc;

use super::super::value::Value;

pub(super) struct Scope<'t> {
    variables: RefCell<Vec<(&'t str, Value)>>,
    outer: Option<Rc<Scope<'t>>>,
}

impl<'t> Scope<'t> {
    pub(super) fn new(outer: Option<&Rc<Self>>) -> Rc<Self> {
        Rc::new(Self { variables: RefCell::default(), outer: outer.cloned() })
    }

    /// Sets a variable of this scope.
    pub(super) fn set(&self, name: &'t str, value: Value) {
        let mut variables = self.variables.borrow_mut();
        match variables.iter_mut().find(|(known, _)| *known == name) {
            Some((_, place)) => *place = value,
            None => variables.push((name, value)),
        }
    }

    /// Looks a variable up, here and outside.
    pub(super) fn get(&self, name: &str) -> Option<Value> {
        let mut scope = self;
        loop {
            if let Some((_, value)) = scope.variables.borrow().iter().find(|(known, _)| *known == name) {
                return Some(value.clone());
            }
            scope = scope.outer.as_deref()?;
        }
    }

    /// Forgets the variables of this scope.
    pub(super) fn clear(&self) {
        self.variables.borrow_mut().clear();
    }
}
