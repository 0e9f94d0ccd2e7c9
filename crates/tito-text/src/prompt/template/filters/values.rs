//! What several filters make of a value.

use super::super::{
    bounds,
    error::Error,
    lookups, print,
    value::{Value, as_integer, error},
};

/// Follows a path of keys and indices, as the `attribute` argument of filters names one.
pub(super) fn lookup(value: &Value, path: &Value) -> Result<Value, Error> {
    bounds::step()?;
    let Some(path) = path.as_str() else { return lookups::item(value, path) };
    path.split('.').try_fold(value.clone(), |value, part| {
        let index = part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse::<i64>().ok()).flatten();
        lookups::item(&value, &index.map_or_else(|| Value::from(part), Value::from))
    })
}

/// What an `indent` or `width` argument means: so many spaces, or the string itself.
pub(super) fn indentation(width: &Value) -> Result<String, Error> {
    const MAX_WIDTH: i128 = 1000;

    if let Some(text) = width.as_str() {
        return Ok(text.to_owned());
    }
    let width = as_integer(width).filter(|&width| width <= MAX_WIDTH);
    let width = width.ok_or_else(|| error("an indentation must be a string or an integer up to 1000"))?;
    Ok(" ".repeat(usize::try_from(width).unwrap_or(0)))
}

/// A value as a string, as Python's `str` makes it.
pub(super) fn to_str(value: &Value) -> Result<String, Error> {
    print::to_str(value)
}
