//! Filters that take sequences and mappings apart.

use minijinja::value::ValueKind;
use minijinja::{Error, Value};

use super::super::arguments::Arguments;
use super::super::value::{self, error, generator, items, list, tuple, type_name};
use super::{has_length, lookup, to_str};

pub(super) fn length(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    arguments.end(0)?;
    if value.is_undefined() {
        return Ok(Value::from(0));
    }
    let length = if has_length(value) { value.len() } else { None };
    length.map(Value::from).ok_or_else(|| error(format!("object of type '{}' has no len()", type_name(value))))
}

pub(super) fn to_list(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    arguments.end(0)?;
    items(value).map(list)
}

pub(super) fn first(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    arguments.end(0)?;
    Ok(items(value)?.into_iter().next().unwrap_or(Value::UNDEFINED))
}

pub(super) fn last(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    arguments.end(0)?;
    if value::is_generator(value) {
        return Err(error("'generator' object is not reversible"));
    }
    Ok(items(value)?.into_iter().next_back().unwrap_or(Value::UNDEFINED))
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
    let entries = value::entries(value).ok_or_else(|| error("Can only get item pairs from a mapping."))?;
    Ok(generator(entries.into_iter().map(|(key, value)| tuple(vec![key, value])).collect()))
}

pub(super) fn join(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    let separator = arguments.get(0, "d")?.map_or_else(|| Ok(String::new()), |separator| to_str(&separator))?;
    let attribute = arguments.some(1, "attribute")?;
    arguments.end(2)?;
    let texts = items(value)?.into_iter().map(|item| match &attribute {
        Some(path) => to_str(&lookup(&item, path)?),
        None => to_str(&item),
    });
    Ok(Value::from(texts.collect::<Result<Vec<_>, Error>>()?.join(&separator)))
}

/// Looks for attributes only: dicts have none but their methods.
pub(super) fn attribute(value: &Value, arguments: &Arguments<'_>) -> Result<Value, Error> {
    let name = arguments.require_string(0, "name")?;
    arguments.end(1)?;
    match value.kind() {
        ValueKind::Map if value.downcast_object_ref::<value::Dict>().is_some() => {
            let is_method = value::DICT_METHODS.contains(&name.as_str());
            Ok(if is_method { Value::from_object(value::Method) } else { Value::UNDEFINED })
        }
        _ => value.get_attr(&name),
    }
}
