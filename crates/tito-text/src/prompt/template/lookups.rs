//! Attributes and items of values, as jinja2's sandbox finds them: each where the other is not, and undefined where
//! neither is.

use super::bounds;
use super::error::Error;
use super::key::Name;
use super::methods::{LIST_METHODS, STRING_METHODS};
use super::value::{DICT_METHODS, Key, SequenceKind, Value, as_integer, error, method, type_name};

/// `value.name`.
pub(super) fn attribute(value: &Value, name: &str) -> Result<Value, Error> {
    Ok(match value {
        Value::Undefined => return Err(error(format!("undefined value has no attribute '{name}'"))),
        Value::Dict(dict) => {
            if DICT_METHODS.contains(&name) {
                return Ok(if is_safe(name) { method(value, name) } else { Value::UNDEFINED });
            }
            dict.entries.get(&Name(name)).cloned().unwrap_or_default()
        }
        Value::Cycler(cycler) if name == "current" => {
            cycler.items[cycler.at.load(std::sync::atomic::Ordering::Relaxed)].clone()
        }
        _ if has_method(value, name) => method(value, name),
        _ => refuse_tables(value)?,
    })
}

/// `value[key]`.
pub(super) fn item(value: &Value, key: &Value) -> Result<Value, Error> {
    let found = match value {
        Value::Undefined => return Err(error("undefined value has no items")),
        Value::Dict(dict) => match key.as_str() {
            Some(name) => dict.entries.get(&Name(name)).cloned(),
            None => Key::new(key.clone()).ok().and_then(|key| dict.entries.get(&key).cloned()),
        },
        Value::Sequence(sequence) if !matches!(sequence.kind, SequenceKind::View(_)) => {
            let length = sequence.items.len();
            as_integer(key).and_then(|index| place(index, length)).map(|place| sequence.items[place].clone())
        }
        Value::String(_) => match as_integer(key) {
            Some(index) => {
                bounds::look_through(value.size())?;
                character(value.as_str().unwrap_or_default(), index).map(|c| Value::from(String::from(c)))
            }
            None => None,
        },
        _ => Some(refuse_tables(value)?).filter(|value| !value.is_undefined()),
    };
    match (found, key.as_str()) {
        (Some(found), _) => Ok(found),
        (None, Some(name)) if has_method(value, name) => Ok(method(value, name)),
        (None, _) => Ok(Value::UNDEFINED),
    }
}

fn place(index: i128, length: usize) -> Option<usize> {
    let index = if index < 0 { index + i128::try_from(length).ok()? } else { index };
    usize::try_from(index).ok().filter(|&place| place < length)
}

fn character(text: &str, index: i128) -> Option<char> {
    if index < 0 {
        text.chars().rev().nth(usize::try_from(-(index + 1)).ok()?)
    } else {
        text.chars().nth(usize::try_from(index).ok()?)
    }
}

// Whether a dict's method changes nothing: the sandbox shows no others.
fn is_safe(name: &str) -> bool {
    !matches!(name, "clear" | "pop" | "popitem" | "setdefault" | "update")
}

fn has_method(value: &Value, name: &str) -> bool {
    match value {
        Value::String(_) => STRING_METHODS.contains(&name),
        Value::Dict(_) => DICT_METHODS.contains(&name) && is_safe(name),
        Value::Sequence(sequence) => match sequence.kind {
            SequenceKind::List => LIST_METHODS.contains(&name),
            SequenceKind::Tuple | SequenceKind::Range(..) => matches!(name, "count" | "index"),
            SequenceKind::View(_) => false,
        },
        Value::Cycler(_) => matches!(name, "next" | "reset"),
        _ => false,
    }
}

// What these have stands in the render's tables, which filters do not see.
fn refuse_tables(value: &Value) -> Result<Value, Error> {
    match value {
        Value::Namespace(_) | Value::Loop(_) | Value::Macro(_) => {
            Err(error(format!("attributes of a value of type {} cannot be looked up by a filter", type_name(value))))
        }
        _ => Ok(Value::UNDEFINED),
    }
}
