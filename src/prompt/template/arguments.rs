//! Arguments of filters and methods, taken by position or by name as a Python signature allows.

use minijinja::value::{Kwargs, Rest, ValueKind, from_args};
use minijinja::{Error, Value};

use super::value::{as_integer, error, type_name};

/// The arguments of one call.
pub(super) struct Arguments<'c> {
    callee: &'c str,
    positional: Vec<Value>,
    named: Kwargs,
}

impl<'c> Arguments<'c> {
    pub(super) fn new(callee: &'c str, args: &[Value]) -> Result<Self, Error> {
        let (Rest(positional), named) = from_args::<(Rest<Value>, Kwargs)>(args)?;
        Ok(Self { callee, positional, named })
    }

    /// Refuses more arguments than the signature has, and names that it has not. To be called after all were taken.
    pub(super) fn end(&self, most: usize) -> Result<(), Error> {
        if self.positional.len() > most {
            let given = self.positional.len();
            return Err(error(format!("{}() takes at most {most} arguments ({given} given)", self.callee)));
        }
        self.named.assert_all_used().map_err(|_| error(format!("{}() got an unexpected keyword argument", self.callee)))
    }

    /// Returns an argument, if given; an undefined one counts as given.
    pub(super) fn get(&self, index: usize, name: &str) -> Result<Option<Value>, Error> {
        let named = if self.named.has(name) { Some(self.named.get::<Value>(name)?) } else { None };
        match (self.positional.get(index), named) {
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
        match value.kind() {
            ValueKind::String => Ok(value.as_str().unwrap_or_default().to_owned()),
            _ => Err(error(format!("{}() argument must be str, not {}", self.callee, type_name(value)))),
        }
    }

    fn as_integer(&self, value: &Value) -> Result<i64, Error> {
        as_integer(value)
            .and_then(|integer| i64::try_from(integer).ok())
            .ok_or_else(|| error(format!("{}() argument must be an integer, not {}", self.callee, type_name(value))))
    }
}
