//! Calls: of functions, macros and methods, and the bodies of `call` blocks.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use super::super::arguments::{Arguments, CallArguments};
use super::super::bounds::{self, Charge, MAX_VALUE_DEPTH};
use super::super::error::{Error, Limit};
use super::super::globals;
use super::super::key::Name;
use super::super::methods;
use super::super::strftime;
use super::super::syntax::{self, Call, Macro};
use super::super::value::{self, DICT_METHODS, Function, Key, Value, error, type_name};
use super::language::Language;
use super::renderer::{Defined, Namespace, Renderer, check_attribute};
use super::scope::Scope;

impl<'t> Renderer<'t> {
    #[inline(never)]
    pub(super) fn call_name(
        &mut self,
        name: &str,
        arguments: &'t syntax::Arguments,
        scope: &Rc<Scope<'t>>,
    ) -> Result<Value, Error> {
        let Some(called) = self.lookup(name, scope) else { return Err(error(format!("'{name}' is undefined"))) };
        let given = self.evaluate_arguments(arguments, scope)?;
        self.call(&called, given)
    }

    #[inline(never)]
    pub(super) fn call_method(
        &mut self,
        receiver: &Value,
        name: &str,
        arguments: &'t syntax::Arguments,
        scope: &Rc<Scope<'t>>,
    ) -> Result<Value, Error> {
        let given = self.evaluate_arguments(arguments, scope)?;
        self.method(receiver, name, given)
    }

    fn method(&mut self, receiver: &Value, name: &str, given: CallArguments) -> Result<Value, Error> {
        match receiver {
            Value::Namespace(place) => {
                let called = self.namespaces[*place].entries.get(name).cloned();
                let called = called.ok_or_else(|| error(format!("'Namespace object' has no attribute '{name}'")))?;
                self.call(&called, given)
            }
            Value::Loop(number) => self.call_loop_method(*number, name, &Arguments::new(name, given)),
            Value::Dict(dict) if !DICT_METHODS.contains(&name) => match dict.entries.get(&Name(name)) {
                Some(called) => self.call(called, given),
                None => methods::call(receiver, name, &Arguments::new(name, given)),
            },
            _ => methods::call(receiver, name, &Arguments::new(name, given)),
        }
    }

    /// Calls a value.
    #[inline(never)]
    pub(super) fn call(&mut self, called: &Value, given: CallArguments) -> Result<Value, Error> {
        let _level = bounds::descend()?;
        match called {
            Value::Macro(place) => self.call_macro(*place, given),
            Value::Function(function) => self.function(*function, given),
            Value::Loop(number) => self.call_loop(*number, &Arguments::new("loop", given)),
            Value::Method(method) => self.method(&method.receiver, &method.name, given),
            Value::Joiner(joiner) => {
                Arguments::new("joiner", given).end(0)?;
                let is_used = joiner.is_used.swap(true, Ordering::Relaxed);
                Ok(if is_used { joiner.separator.clone() } else { Value::from("") })
            }
            Value::Undefined => Err(error("an undefined value cannot be called")),
            _ => Err(error(format!("'{}' object is not callable", type_name(called)))),
        }
    }

    fn function(&mut self, function: Function, given: CallArguments) -> Result<Value, Error> {
        match function {
            Function::Range => globals::range(&Arguments::new("range", given)),
            Function::Dict => globals::entries(&Arguments::new("dict", given)).map(value::dict),
            Function::Namespace => self.namespace(&Arguments::new("namespace", given)),
            Function::Cycler => globals::cycler(&Arguments::new("cycler", given)),
            Function::Joiner => globals::joiner(&Arguments::new("joiner", given)),
            Function::RaiseException => globals::raise_exception(&Arguments::new("raise_exception", given)),
            Function::StrftimeNow => {
                let arguments = Arguments::new("strftime_now", given);
                let format = arguments.require_string(0, "format")?;
                arguments.end(1)?;
                strftime::strftime(self.context.now, &format).map(Value::from).map_err(error)
            }
        }
    }

    fn namespace(&mut self, arguments: &Arguments<'_>) -> Result<Value, Error> {
        let mut namespace = Namespace { charge: Charge::new(size_of::<Namespace>()), ..Namespace::default() };
        for (name, value) in globals::entries(arguments)? {
            let name =
                name.value().as_str().ok_or_else(|| error("attributes of a namespace have strings for names"))?;
            check_attribute(name)?;
            namespace.set(name, value);
        }
        self.namespaces.push(namespace);
        Ok(Value::Namespace(self.namespaces.len() - 1))
    }

    pub(super) fn macro_attribute(&self, place: usize, name: &str) -> Value {
        let Macro { name: own, parameters, uses, .. } = self.macros[place].definition;
        match name {
            "name" => Value::from(&**own),
            "arguments" => value::tuple(parameters.iter().map(|(name, _)| Value::from(&**name)).collect()),
            "caller" => Value::from(uses.caller),
            _ => Value::UNDEFINED,
        }
    }

    #[inline(never)]
    fn call_macro(&mut self, place: usize, given: CallArguments) -> Result<Value, Error> {
        let _level = bounds::descend()?;
        let Defined { definition, scope, .. } = &self.macros[place];
        let (definition, scope) = (*definition, Scope::new(Some(scope)));
        self.bind(definition, given, &scope)?;
        self.begin_capture();
        self.block(&definition.body, &scope)?;
        Ok(self.end_capture())
    }

    // Makes arguments variables of the macro's scope.
    fn bind(&mut self, definition: &'t Macro, given: CallArguments, scope: &Rc<Scope<'t>>) -> Result<(), Error> {
        let Macro { name, parameters, uses, .. } = definition;
        let CallArguments { positional, mut named, charge: _charge } = given;
        let mut positional = positional.into_iter();
        for (parameter, default) in parameters {
            let by_name = named.iter().position(|(given, _)| given == parameter).map(|at| named.remove(at).1);
            let value = match (positional.next(), by_name) {
                (Some(_), Some(_)) => {
                    return Err(error(format!("macro '{name}' got multiple values for argument '{parameter}'")));
                }
                (Some(value), None) | (None, Some(value)) => value,
                (None, None) => match default {
                    // It sees the parameters before it.
                    Some(default) => self.evaluate(default, scope)?,
                    None => Value::UNDEFINED,
                },
            };
            scope.set(parameter, value);
        }
        if uses.caller {
            let caller = named.iter().position(|(given, _)| **given == *"caller").map(|at| named.remove(at).1);
            if !parameters.iter().any(|(parameter, _)| **parameter == *"caller") {
                scope.set("caller", caller.unwrap_or_default());
            }
        }
        if uses.varargs {
            scope.set("varargs", shallow(value::tuple(positional.by_ref().collect()))?);
        } else if positional.next().is_some() {
            let most = parameters.len();
            return Err(error(format!("macro '{name}' takes not more than {most} argument(s)")));
        }
        if uses.kwargs {
            let entries = named.drain(..).map(|(name, value)| (Key::from(&*name), value));
            scope.set("kwargs", shallow(value::dict(entries.collect()))?);
        } else if let Some((unknown, _)) = named.first() {
            return Err(error(format!("macro '{name}' takes no keyword argument '{unknown}'")));
        }
        Ok(())
    }

    #[inline(never)]
    pub(super) fn call_block(&mut self, call: &'t Call, scope: &Rc<Scope<'t>>) -> Result<(), Error> {
        let callee = self.evaluate(&call.called, scope)?;
        let mut given = self.evaluate_arguments(&call.arguments, scope)?;
        given.named.push(("caller".into(), self.define(&call.body, scope)));
        let value = self.call(&callee, given)?;
        self.print(&value)
    }
}

fn shallow(value: Value) -> Result<Value, Error> {
    if value.depth() > MAX_VALUE_DEPTH { Err(Error::exceeded(Limit::ValueDepth)) } else { Ok(value) }
}
