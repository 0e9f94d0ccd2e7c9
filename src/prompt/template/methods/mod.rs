//! The methods that Python's values have. Those that would change a list or a dict are refused, as in jinja2's
//! immutable sandbox.

mod container;
mod string;

use minijinja::value::ValueKind;
use minijinja::{Error, State, Value};

use super::arguments::Arguments;
use super::rewrite::{ATTRIBUTE, ITEM, SLICE};
use super::slice;
use super::value::{DICT_METHODS, Dict, Method, error, type_name};

/// Calls a method that minijinja does not know.
pub(super) fn call(_state: &State<'_, '_>, receiver: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    match name {
        SLICE => return slice::slice(receiver, args),
        ATTRIBUTE => return attribute(receiver, args),
        ITEM => return item(receiver, args),
        _ => {}
    }
    let arguments = Arguments::new(name, args)?;
    let found = match receiver.kind() {
        ValueKind::Undefined => return Err(error("value is undefined")),
        ValueKind::String => string::call(receiver.as_str().unwrap_or_default(), name, &arguments)?,
        ValueKind::Map => container::dict(receiver, name, &arguments)?,
        ValueKind::Seq | ValueKind::Iterable => container::list(receiver, name, &arguments)?,
        _ => None,
    };
    if let Some(result) = found {
        return Ok(result);
    }
    if receiver.downcast_object_ref::<Dict>().is_none()
        && let Ok(member) = receiver.get_attr(name)
        && !member.is_undefined()
    {
        return Err(minijinja::ErrorKind::UnknownMethod.into());
    }
    match receiver.kind() {
        ValueKind::None => Err(error(format!("'None' has no attribute '{name}'"))),
        _ => Err(error(format!("'{} object' has no attribute '{name}'", type_name(receiver)))),
    }
}

// `x.items` where no call follows: of a dict always the method, of anything else the attribute.
fn attribute(receiver: &Value, args: &[Value]) -> Result<Value, Error> {
    let name = args.first().and_then(Value::as_str).unwrap_or_default();
    if receiver.downcast_object_ref::<Dict>().is_some() && DICT_METHODS.contains(&name) {
        return Ok(Value::from_object(Method));
    }
    receiver.get_attr(name)
}

// `x['items']`: of a dict the key, or the method where there is none.
fn item(receiver: &Value, args: &[Value]) -> Result<Value, Error> {
    let name = args.first().cloned().unwrap_or_default();
    let found = receiver.get_item(&name)?;
    let is_dict = receiver.downcast_object_ref::<Dict>().is_some();
    Ok(if is_dict && found.is_undefined() { Value::from_object(Method) } else { found })
}

fn unsafe_method(receiver: &Value, name: &str) -> Error {
    error(format!("access to attribute '{name}' of '{}' object is unsafe.", type_name(receiver)))
}
