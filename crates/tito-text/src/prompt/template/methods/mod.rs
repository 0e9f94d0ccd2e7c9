//! The methods that Python's values have. Those that would change a list or a dict are refused, as in jinja2's
//! immutable sandbox.

mod container;
mod string;

use super::arguments::Arguments;
use super::bounds;
use super::error::Error;
use super::value::{Value, error, type_name};

/// The methods of strings, as far as they are known here; of all others there is no attribute.
#[rustfmt::skip]
pub(super) const STRING_METHODS: [&str; 37] = [
    "capitalize", "center", "count", "endswith", "find", "format", "index", "isalnum", "isalpha", "isascii",
    "isdecimal", "isdigit", "islower", "isnumeric", "isspace", "isupper", "join", "ljust", "lower", "lstrip",
    "partition", "removeprefix", "removesuffix", "replace", "rfind", "rindex", "rjust", "rpartition", "rsplit",
    "rstrip", "split", "splitlines", "startswith", "strip", "title", "upper", "zfill",
];

/// The methods of lists that change nothing; the sandbox shows no others.
pub(super) const LIST_METHODS: [&str; 3] = ["copy", "count", "index"];

/// Calls a method of a value that is not the render's own.
pub(super) fn call(receiver: &Value, name: &str, arguments: &Arguments<'_>) -> Result<Value, Error> {
    let found = match receiver {
        Value::Undefined => return Err(error("value is undefined")),
        Value::String(_) => {
            bounds::look_through(receiver.size())?;
            bounds::reserve(receiver.size().saturating_mul(2))?;
            string::call(receiver.as_str().unwrap_or_default(), name, arguments)?
        }
        Value::Dict(dict) => container::dict(receiver, dict, name, arguments)?,
        Value::Sequence(sequence) => container::list(receiver, &sequence.items, name, arguments)?,
        Value::Cycler(cycler) => container::cycler(cycler, name, arguments)?,
        _ => None,
    };
    found.ok_or_else(|| match receiver {
        Value::None => error(format!("'None' has no attribute '{name}'")),
        _ => error(format!("'{} object' has no attribute '{name}'", type_name(receiver))),
    })
}
