//! The methods of dicts, lists and tuples.

use std::sync::atomic::Ordering;

use super::super::arguments::Arguments;
use super::super::bounds;
use super::super::error::Error;
use super::super::operators::equal;
use super::super::print;
use super::super::value::{Cycler, Dict, Key, Value, dict as new_dict, error, is_view, tuple, type_name, view};

pub(super) fn dict(
    receiver: &Value,
    dict: &Dict,
    name: &str,
    arguments: &Arguments<'_>,
) -> Result<Option<Value>, Error> {
    let entries = &dict.entries;
    if matches!(name, "items" | "keys" | "values" | "copy") {
        bounds::look_through(receiver.size())?;
        bounds::reserve(receiver.size().saturating_mul(4))?;
    }
    let result = match name {
        "items" => {
            let pairs = entries.iter().map(|(key, value)| tuple(vec![key.value().clone(), value.clone()]));
            view("dict_items", pairs.collect())
        }
        "keys" => view("dict_keys", entries.keys().map(|key| key.value().clone()).collect()),
        "values" => view("dict_values", entries.values().cloned().collect()),
        "copy" => new_dict(entries.clone()),
        "get" => {
            let key = Key::new(arguments.require(0, "key")?)?;
            let default = arguments.get(1, "default")?.unwrap_or(Value::None);
            arguments.end(2)?;
            return Ok(Some(entries.get(&key).cloned().unwrap_or(default)));
        }
        "clear" | "pop" | "popitem" | "setdefault" | "update" => return Err(unsafe_method(receiver, name)),
        _ => return Ok(None),
    };
    arguments.end(0)?;
    Ok(Some(result))
}

pub(super) fn list(
    receiver: &Value,
    items: &[Value],
    name: &str,
    arguments: &Arguments<'_>,
) -> Result<Option<Value>, Error> {
    match name {
        _ if is_view(receiver) => Ok(None),
        "count" => {
            let wanted = arguments.require(0, "value")?;
            arguments.end(1)?;
            let mut count = 0;
            for item in items {
                count += usize::from(equal(item, &wanted)?);
            }
            Ok(Some(Value::from(count)))
        }
        "index" => {
            let wanted = arguments.require(0, "value")?;
            arguments.end(1)?;
            for (index, item) in items.iter().enumerate() {
                if equal(item, &wanted)? {
                    return Ok(Some(Value::from(index)));
                }
            }
            Err(error(format!("{} is not in list", print::repr(&wanted)?)))
        }
        "copy" if type_name(receiver) == "list" => {
            arguments.end(0)?;
            Ok(Some(receiver.clone()))
        }
        "append" | "clear" | "extend" | "insert" | "pop" | "remove" | "reverse" | "sort" => {
            Err(unsafe_method(receiver, name))
        }
        _ => Ok(None),
    }
}

pub(super) fn cycler(cycler: &Cycler, name: &str, arguments: &Arguments<'_>) -> Result<Option<Value>, Error> {
    let at = cycler.at.load(Ordering::Relaxed);
    let (result, next) = match name {
        "next" => (cycler.items[at].clone(), (at + 1) % cycler.items.len()),
        "reset" => (Value::None, 0),
        _ => return Ok(None),
    };
    arguments.end(0)?;
    cycler.at.store(next, Ordering::Relaxed);
    Ok(Some(result))
}

/// A method that would change a list or a dict.
pub(super) fn unsafe_method(receiver: &Value, name: &str) -> Error {
    error(format!("access to attribute '{name}' of '{}' object is unsafe.", type_name(receiver)))
}
