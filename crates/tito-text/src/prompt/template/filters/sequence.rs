//! Filters that take sequences and mappings apart.

use super::super::arguments::Arguments;
use super::super::bounds;
use super::super::error::Error;
use super::super::lookups;
use super::super::print;
use super::super::value::{self, Value, error, generator, items, list, tuple, type_name};
use super::{lookup, to_str};

pub(super) fn length(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    arguments.end(0)?;
    if value.is_undefined() {
        return Ok(Value::Int(0));
    }
    let length = match value {
        Value::String(_) => value.as_str().map(|text| text.chars().count()),
        Value::Sequence(sequence) => Some(sequence.items.len()),
        Value::Dict(dict) => Some(dict.entries.len()),
        _ => None,
    };
    length.map(Value::from).ok_or_else(|| error(format!("object of type '{}' has no len()", type_name(value))))
}

pub(super) fn to_list(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    arguments.end(0)?;
    items(value).map(list)
}

pub(super) fn first(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    arguments.end(0)?;
    let first = match value {
        Value::Sequence(sequence) => sequence.items.first().cloned(),
        Value::String(_) => value.as_str().and_then(|text| text.chars().next()).map(|c| Value::from(String::from(c))),
        _ => items(value)?.into_iter().next(),
    };
    Ok(first.unwrap_or(Value::UNDEFINED))
}

pub(super) fn last(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    arguments.end(0)?;
    if value::is_generator(value) {
        return Err(error("'generator' object is not reversible"));
    }
    let last = match value {
        Value::Sequence(sequence) => sequence.items.last().cloned(),
        Value::String(_) => value.as_str().and_then(|text| text.chars().last()).map(|c| Value::from(String::from(c))),
        _ => items(value)?.into_iter().next_back(),
    };
    Ok(last.unwrap_or(Value::UNDEFINED))
}

pub(super) fn reverse(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    arguments.end(0)?;
    if let Some(text) = value.as_str() {
        return Ok(Value::from(text.chars().rev().collect::<String>()));
    }
    let mut items = items(value)?;
    items.reverse();
    // Python reverses lazily what it can, and copies a generator.
    Ok(if value::is_generator(value) { list(items) } else { generator(items) })
}

pub(super) fn entries(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    arguments.end(0)?;
    if value.is_undefined() {
        return Ok(generator(Vec::new()));
    }
    let Value::Dict(dict) = value else { return Err(error("Can only get item pairs from a mapping.")) };
    bounds::look_through(value.size())?;
    bounds::reserve(value.size().saturating_mul(4))?;
    let entries = dict.entries.iter().map(|(key, value)| tuple(vec![key.value().clone(), value.clone()]));
    Ok(generator(entries.collect()))
}

pub(super) fn join(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    let separator = arguments.get(0, "d")?.map_or_else(|| Ok(String::new()), |separator| to_str(&separator))?;
    let attribute = arguments.some(1, "attribute")?;
    arguments.end(2)?;
    let mut joined = String::new();
    for (index, item) in items(value)?.into_iter().enumerate() {
        let item = attribute.as_ref().map_or_else(|| Ok(item.clone()), |path| lookup(&item, path))?;
        if index > 0 {
            joined.push_str(&separator);
        }
        match item.as_str() {
            Some(text) => joined.push_str(text),
            None => joined.push_str(&print::to_str(&item)?),
        }
        bounds::look_through(item.size() + separator.len())?;
        bounds::reserve(joined.len())?;
    }
    Ok(Value::from(joined))
}

/// Looks for attributes only: dicts have none but their methods.
pub(super) fn attribute(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    let name = arguments.require_string(0, "name")?;
    arguments.end(1)?;
    match value {
        Value::Dict(_) if value::DICT_METHODS.contains(&name.as_str()) => Ok(value::method(value, &name)),
        Value::Dict(_) => Ok(Value::UNDEFINED),
        _ => lookups::attribute(value, &name),
    }
}
