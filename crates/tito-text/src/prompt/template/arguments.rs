//! Arguments of filters, tests, functions and methods, taken by position or by name as a Python signature allows.

use std::cell::RefCell;

use super::bounds::Charge;
use super::error::Error;
use super::value::{Value, as_integer, error, type_name};

/// The values that a call gives.
#[derive(Debug, Default)]
pub(super) struct CallArguments {
    pub(super) positional: Vec<Value>,
    pub(super) named: Vec<(Box<str>, Value)>,
    /// What they take where a list or a dict was given for many of them.
    pub(super) charge: Charge,
}

/// The arguments of one call.
#[derive(Debug)]
pub(super) struct Arguments<'c> {
    callee: &'c str,
    given: CallArguments,
    /// The places of the named ones that were asked for.
    used: RefCell<Vec<usize>>,
}

impl<'c> Arguments<'c> {
    pub(super) fn new(callee: &'c str, given: CallArguments) -> Self {
        Self { callee, given, used: RefCell::default() }
    }

    /// The arguments without a name.
    pub(super) fn positional(&self) -> &[Value] {
        &self.given.positional
    }

    /// The arguments with a name.
    pub(super) fn named(&self) -> &[(Box<str>, Value)] {
        &self.given.named
    }

    /// Refuses more arguments than the signature has, and names that it has not. To be called after all were taken.
    pub(super) fn end(&self, most: usize) -> Result<(), Error> {
        if self.given.positional.len() > most {
            let given = self.given.positional.len();
            return Err(error(format!("{}() takes at most {most} arguments ({given} given)", self.callee)));
        }
        let used = self.used.borrow();
        if (0..self.given.named.len()).any(|place| !used.contains(&place)) {
            return Err(error(format!("{}() got an unexpected keyword argument", self.callee)));
        }
        Ok(())
    }

    fn by_name(&self, name: &str) -> Option<Value> {
        let place = self.given.named.iter().position(|(given, _)| **given == *name)?;
        self.used.borrow_mut().push(place);
        Some(self.given.named[place].1.clone())
    }

    /// Returns an argument, if given; an undefined one counts as given.
    pub(super) fn get(&self, index: usize, name: &str) -> Result<Option<Value>, Error> {
        match (self.given.positional.get(index), self.by_name(name)) {
            (Some(_), Some(_)) => Err(error(format!("{}() got multiple values for argument '{name}'", self.callee))),
            (Some(value), None) => Ok(Some(value.clone())),
            (None, named) => Ok(named),
        }
    }

    /// Returns an argument that must be given.
    pub(super) fn require(&self, index: usize, name: &str) -> Result<Value, Error> {
        self.get(index, name)?.ok_or_else(|| error(format!("{}() missing required argument '{name}'", self.callee)))
    }

    /// Returns an argument, if given and not `None`.
    pub(super) fn some(&self, index: usize, name: &str) -> Result<Option<Value>, Error> {
        Ok(self.get(index, name)?.filter(|value| !value.is_none()))
    }

    /// Returns a string, if given and not `None`.
    pub(super) fn string(&self, index: usize, name: &str) -> Result<Option<String>, Error> {
        self.some(index, name)?.map(|value| self.as_string(&value)).transpose()
    }

    /// Returns a string that must be given.
    pub(super) fn require_string(&self, index: usize, name: &str) -> Result<String, Error> {
        self.as_string(&self.require(index, name)?)
    }

    /// Returns an integer, if given and not `None`.
    pub(super) fn integer(&self, index: usize, name: &str) -> Result<Option<i64>, Error> {
        self.some(index, name)?.map(|value| self.as_integer(&value)).transpose()
    }

    /// Returns whether an argument was given and is true.
    pub(super) fn flag(&self, index: usize, name: &str) -> Result<bool, Error> {
        Ok(self.get(index, name)?.is_some_and(|value| value.is_true()))
    }

    fn as_string(&self, value: &Value) -> Result<String, Error> {
        let text = value.as_str().map(ToOwned::to_owned);
        text.ok_or_else(|| error(format!("{}() argument must be str, not {}", self.callee, type_name(value))))
    }

    fn as_integer(&self, value: &Value) -> Result<i64, Error> {
        as_integer(value)
            .and_then(|integer| i64::try_from(integer).ok())
            .ok_or_else(|| error(format!("{}() argument must be an integer, not {}", self.callee, type_name(value))))
    }
}
