//! The methods of dicts, lists and tuples.

use indexmap::IndexMap;
use minijinja::{Error, Value};

use super::super::arguments::Arguments;
use super::super::print;
use super::super::value::{dict as new_dict, entries, error, is_view, tuple, view};
use super::unsafe_method;

pub(super) fn dict(receiver: &Value, name: &str, arguments: &Arguments<'_>) -> Result<Option<Value>, Error> {
    let Some(entries) = entries(receiver) else { return Ok(None) };
    let result = match name {
        "items" => view("dict_items", entries.into_iter().map(|(key, value)| tuple(vec![key, value])).collect()),
        "keys" => view("dict_keys", entries.into_iter().map(|(key, _)| key).collect()),
        "values" => view("dict_values", entries.into_iter().map(|(_, value)| value).collect()),
        "copy" => new_dict(entries.into_iter().collect::<IndexMap<_, _>>()),
        "get" => {
            let key = arguments.require(0, "key")?;
            let default = arguments.get(1, "default")?.unwrap_or_else(|| Value::from(()));
            arguments.end(2)?;
            let found = entries.into_iter().find(|(candidate, _)| *candidate == key);
            return Ok(Some(found.map_or(default, |(_, value)| value)));
        }
        "clear" | "pop" | "popitem" | "setdefault" | "update" => return Err(unsafe_method(receiver, name)),
        _ => return Ok(None),
    };
    arguments.end(0)?;
    Ok(Some(result))
}

pub(super) fn list(receiver: &Value, name: &str, arguments: &Arguments<'_>) -> Result<Option<Value>, Error> {
    match name {
        _ if is_view(receiver) => Ok(None),
        "count" => {
            let wanted = arguments.require(0, "value")?;
            arguments.end(1)?;
            Ok(Some(Value::from(receiver.try_iter()?.filter(|item| *item == wanted).count())))
        }
        "index" => {
            let wanted = arguments.require(0, "value")?;
            arguments.end(1)?;
            let found = receiver.try_iter()?.position(|item| item == wanted);
            found
                .map(|index| Some(Value::from(index)))
                .ok_or_else(|| error(format!("{} is not in list", print::repr(&wanted))))
        }
        "copy" => {
            arguments.end(0)?;
            Ok(Some(receiver.clone()))
        }
        "append" | "clear" | "extend" | "insert" | "pop" | "remove" | "reverse" | "sort" => {
            Err(unsafe_method(receiver, name))
        }
        _ => Ok(None),
    }
}
