//! The functions that every template may call: those of jinja2's sandbox, and the two of transformers.

use super::arguments::Arguments;
use super::bounds;
use super::error::Error;
use super::key::Name;
use super::print;
use super::value::{self, Entries, Function, Joiner, Key, Value, error, items};

/// How long a range may be, in jinja2's sandbox.
const MAX_RANGE: usize = 100_000;

/// Returns the function of a name.
pub(super) fn find(name: &str) -> Option<Function> {
    match name {
        "range" => Some(Function::Range),
        "dict" => Some(Function::Dict),
        "namespace" => Some(Function::Namespace),
        "cycler" => Some(Function::Cycler),
        "joiner" => Some(Function::Joiner),
        "raise_exception" => Some(Function::RaiseException),
        "strftime_now" => Some(Function::StrftimeNow),
        _ => None,
    }
}

pub(super) fn range(arguments: &Arguments<'_>) -> Result<Value, Error> {
    let bounds: Option<Vec<i64>> = arguments.positional().iter().map(Value::as_i64).collect();
    let bounds = bounds.ok_or_else(|| error("range() takes integers"))?;
    arguments.end(3)?;
    let (start, end, step) = match bounds[..] {
        [end] => (0, end, 1),
        [start, end] => (start, end, 1),
        [start, end, step] => (start, end, step),
        _ => return Err(error("range expected at least 1 argument, got 0")),
    };
    if step == 0 {
        return Err(error("range() arg 3 must not be zero"));
    }
    let numbers = std::iter::successors(Some(start), |number| number.checked_add(step))
        .take_while(|&number| if step > 0 { number < end } else { number > end })
        .take(MAX_RANGE + 1);
    bounds::step()?;
    let numbers: Vec<Value> = numbers.map(Value::from).collect();
    if numbers.len() > MAX_RANGE {
        return Err(error(format!("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({MAX_RANGE}).")));
    }
    Ok(value::range(numbers, [start, end, step]))
}

/// The entries of what Python's `dict` makes of its arguments.
pub(super) fn entries(arguments: &Arguments<'_>) -> Result<Entries, Error> {
    if arguments.positional().len() > 1 {
        return Err(error(format!("dict expected at most 1 argument, got {}", arguments.positional().len())));
    }
    let mut entries = match arguments.positional().first() {
        None => Entries::default(),
        Some(given) => pairs(given)?,
    };
    for (name, value) in arguments.named() {
        match entries.get_mut(&Name(name)) {
            Some(place) => *place = value.clone(),
            None => drop(entries.insert(Key::from(&**name), value.clone())),
        }
    }
    Ok(entries)
}

fn pairs(given: &Value) -> Result<Entries, Error> {
    bounds::look_through(given.size())?;
    if let Value::Dict(dict) = given {
        bounds::reserve(given.size())?;
        return Ok(dict.entries.clone());
    }
    let pairs = items(given)?.into_iter().map(|pair| match &items(&pair)?[..] {
        [key, value] => Ok((Key::new(key.clone())?, value.clone())),
        _ => Err(error("a dict is made of pairs")),
    });
    pairs.collect()
}

pub(super) fn cycler(arguments: &Arguments<'_>) -> Result<Value, Error> {
    if arguments.positional().is_empty() {
        return Err(error("at least one item has to be provided"));
    }
    arguments.end(usize::MAX)?;
    Ok(value::cycler(arguments.positional().to_vec()))
}

pub(super) fn joiner(arguments: &Arguments<'_>) -> Result<Value, Error> {
    let separator = arguments.get(0, "sep")?.unwrap_or_else(|| Value::from(", "));
    arguments.end(1)?;
    Ok(Value::Joiner(std::sync::Arc::new(Joiner { separator, is_used: false.into() })))
}

pub(super) fn raise_exception(arguments: &Arguments<'_>) -> Result<Value, Error> {
    let message = print::to_str(&arguments.require(0, "message")?)?;
    arguments.end(1)?;
    Err(Error::raised(message))
}
