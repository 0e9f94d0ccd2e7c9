//! Expressions.

use std::rc::Rc;

use super::super::arguments::Arguments;
use super::super::bounds::{self, Charge, MAX_VALUE_DEPTH};
use super::super::error::{Error, Limit};
use super::super::filters;
use super::super::lookups;
use super::super::operators::{self, Operator};
use super::super::predicates;
use super::super::print;
use super::super::slice;
use super::super::syntax::{Arm, Comparison, Expression, Filtering, Step};
use super::super::value::{self, Entries, Key, Value};
use super::language::Language;
use super::renderer::Renderer;
use super::scope::Scope;
use crate::json::KeyedHash;

impl<'t> Renderer<'t> {
    pub(super) fn expression(&mut self, expression: &'t Expression, scope: &Rc<Scope<'t>>) -> Result<Value, Error> {
        let value = match expression {
            // These neither wait for others nor make anything.
            Expression::Constant(value) => {
                bounds::step()?;
                return Ok(value.clone());
            }
            Expression::Name(name) => {
                bounds::step()?;
                return Ok(self.lookup(name, scope).unwrap_or_default());
            }
            composed => {
                let _level = bounds::descend()?;
                self.composed(composed, scope)?
            }
        };
        if value.depth() > MAX_VALUE_DEPTH {
            return Err(Error::exceeded(Limit::ValueDepth));
        }
        Ok(value)
    }

    fn composed(&mut self, expression: &'t Expression, scope: &Rc<Scope<'t>>) -> Result<Value, Error> {
        match expression {
            Expression::List(items) => Ok(value::list(self.all(items, scope)?)),
            Expression::Tuple(items) => Ok(value::tuple(self.all(items, scope)?)),
            Expression::Dict(entries) => self.dict(entries, scope),
            Expression::Not(count, operand) => {
                let is_true = self.evaluate(operand, scope)?.is_true();
                Ok(Value::Bool(is_true == count.is_multiple_of(2)))
            }
            Expression::Signed(signs, operand) => {
                let value = self.evaluate(operand, scope)?;
                signs.iter().rev().try_fold(value, |value, &is_minus| {
                    bounds::step()?;
                    operators::signed(&value, is_minus)
                })
            }
            Expression::Arithmetic(first, rest) => self.arithmetic(first, rest, scope),
            Expression::Concatenation(operands) => self.concatenation(operands, scope),
            Expression::Comparison(first, rest) => self.comparison(first, rest, scope),
            Expression::And(operands) => self.first_that(false, operands, scope),
            Expression::Or(operands) => self.first_that(true, operands, scope),
            Expression::Conditional(arms) => self.conditional(arms, scope),
            Expression::Postfix(operand, steps) => self.postfix(operand, steps, scope),
            Expression::Constant(value) => Ok(value.clone()),
            Expression::Name(name) => Ok(self.lookup(name, scope).unwrap_or_default()),
        }
    }

    #[inline(never)]
    fn dict(&mut self, entries: &'t [(Expression, Expression)], scope: &Rc<Scope<'t>>) -> Result<Value, Error> {
        let mut dict = Entries::with_capacity_and_hasher(entries.len(), KeyedHash);
        for (key, value) in entries {
            let key = Key::new(self.evaluate(key, scope)?)?;
            let value = self.evaluate(value, scope)?;
            match dict.get_mut(&key) {
                Some(place) => *place = value,
                None => drop(dict.insert(key, value)),
            }
        }
        Ok(value::dict(dict))
    }

    #[inline(never)]
    fn arithmetic(
        &mut self,
        first: &'t Expression,
        rest: &'t [(Operator, Expression)],
        scope: &Rc<Scope<'t>>,
    ) -> Result<Value, Error> {
        let mut value = self.evaluate(first, scope)?;
        for (operator, operand) in rest {
            let operand = self.evaluate(operand, scope)?;
            value = operators::calculate(&value, *operator, &operand)?;
        }
        Ok(value)
    }

    #[inline(never)]
    fn concatenation(&mut self, operands: &'t [Expression], scope: &Rc<Scope<'t>>) -> Result<Value, Error> {
        let mut text = String::new();
        // Operands may be concatenations, too, while this one is held.
        let mut charge = Charge::default();
        for operand in operands {
            let value = self.evaluate(operand, scope)?;
            bounds::reserve(text.len().saturating_add(value.size()))?;
            let length = text.len();
            match value.as_str() {
                Some(part) => text.push_str(part),
                None => text.push_str(&print::to_str(&value)?),
            }
            charge.add(text.len() - length);
        }
        Ok(Value::from(text))
    }

    #[inline(never)]
    fn comparison(
        &mut self,
        first: &'t Expression,
        rest: &'t [(Comparison, Expression)],
        scope: &Rc<Scope<'t>>,
    ) -> Result<Value, Error> {
        let mut left = self.evaluate(first, scope)?;
        for (comparison, operand) in rest {
            let right = self.evaluate(operand, scope)?;
            let holds = match comparison {
                Comparison::Equal => operators::equal(&left, &right)?,
                Comparison::Unequal => !operators::equal(&left, &right)?,
                Comparison::Less => operators::compare(&left, &right)?.is_some_and(std::cmp::Ordering::is_lt),
                Comparison::AtMost => operators::compare(&left, &right)?.is_some_and(std::cmp::Ordering::is_le),
                Comparison::Greater => operators::compare(&left, &right)?.is_some_and(std::cmp::Ordering::is_gt),
                Comparison::AtLeast => operators::compare(&left, &right)?.is_some_and(std::cmp::Ordering::is_ge),
                Comparison::In => operators::contains(&right, &left)?,
                Comparison::NotIn => !operators::contains(&right, &left)?,
            };
            if !holds {
                return Ok(Value::from(false));
            }
            left = right;
        }
        Ok(Value::from(true))
    }

    // The first operand that is as true as said, or else the last one.
    #[inline(never)]
    fn first_that(&mut self, is_true: bool, operands: &'t [Expression], scope: &Rc<Scope<'t>>) -> Result<Value, Error> {
        let mut value = Value::UNDEFINED;
        for operand in operands {
            value = self.evaluate(operand, scope)?;
            if value.is_true() == is_true {
                break;
            }
        }
        Ok(value)
    }

    #[inline(never)]
    fn conditional(&mut self, arms: &'t [Arm], scope: &Rc<Scope<'t>>) -> Result<Value, Error> {
        for Arm { value, tests } in arms {
            let Some((last, before)) = tests.split_last() else { return self.evaluate(value, scope) };
            if !self.evaluate(last, scope)?.is_true() {
                continue;
            }
            // Those before it have no `else`.
            for test in before.iter().rev() {
                if !self.evaluate(test, scope)?.is_true() {
                    return Ok(Value::UNDEFINED);
                }
            }
            return self.evaluate(value, scope);
        }
        Ok(Value::UNDEFINED)
    }

    #[inline(never)]
    fn postfix(&mut self, operand: &'t Expression, steps: &'t [Step], scope: &Rc<Scope<'t>>) -> Result<Value, Error> {
        let mut rest = steps;
        let mut value = match (operand, steps) {
            (Expression::Name(name), [Step::Call(arguments), after @ ..]) => {
                rest = after;
                self.call_name(name, arguments, scope)?
            }
            _ => self.evaluate(operand, scope)?,
        };
        while let [step, after @ ..] = rest {
            bounds::step()?;
            rest = after;
            value = match (step, after) {
                (Step::Attribute(name), [Step::Call(arguments), after @ ..]) => {
                    rest = after;
                    self.call_method(&value, name, arguments, scope)?
                }
                (Step::Attribute(name), _) => self.attribute(&value, name)?,
                (step, _) => self.step(&value, step, scope)?,
            };
            if value.depth() > MAX_VALUE_DEPTH {
                return Err(Error::exceeded(Limit::ValueDepth));
            }
        }
        Ok(value)
    }

    #[inline(never)]
    fn step(&mut self, value: &Value, step: &'t Step, scope: &Rc<Scope<'t>>) -> Result<Value, Error> {
        match step {
            Step::Attribute(name) => self.attribute(value, name),
            Step::Item(key) => {
                let key = self.evaluate(key, scope)?;
                self.item(value, &key)
            }
            Step::Slice(bounds) => {
                let mut values = Vec::with_capacity(3);
                for bound in bounds.iter() {
                    values.push(bound.as_ref().map_or(Ok(Value::None), |bound| self.evaluate(bound, scope))?);
                }
                slice::slice(value, &values)
            }
            Step::Call(arguments) => {
                let given = self.evaluate_arguments(arguments, scope)?;
                self.call(value, given)
            }
            Step::Filter(filtering) => self.apply_filter(filtering, value, scope),
            Step::Test(name, predicate, arguments, is_negated) => {
                let given = self.evaluate_arguments(arguments, scope)?;
                let holds = predicates::ask(name, *predicate, value, &Arguments::new(name, given))?;
                Ok(Value::from(holds != *is_negated))
            }
        }
    }

    fn attribute(&mut self, value: &Value, name: &str) -> Result<Value, Error> {
        match value {
            Value::Namespace(place) => Ok(self.namespaces[*place].entries.get(name).cloned().unwrap_or_default()),
            Value::Loop(number) => self.loop_attribute(*number, name),
            Value::Macro(place) => Ok(self.macro_attribute(*place, name)),
            _ => lookups::attribute(value, name),
        }
    }

    fn item(&mut self, value: &Value, key: &Value) -> Result<Value, Error> {
        match (value, key.as_str()) {
            (Value::Namespace(_) | Value::Loop(_) | Value::Macro(_), Some(name)) => self.attribute(value, name),
            (Value::Namespace(_) | Value::Loop(_) | Value::Macro(_), None) => Ok(Value::UNDEFINED),
            _ => lookups::item(value, key),
        }
    }

    /// What a filter makes of a value.
    #[inline(never)]
    pub(super) fn apply_filter(
        &mut self,
        filtering: &'t Filtering,
        value: &Value,
        scope: &Rc<Scope<'t>>,
    ) -> Result<Value, Error> {
        let given = self.evaluate_arguments(&filtering.arguments, scope)?;
        filters::apply(&filtering.name, filtering.filter, value, &Arguments::new(&filtering.name, given))
    }
}
