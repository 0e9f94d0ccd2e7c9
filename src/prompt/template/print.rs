//! Python's `str` and `repr` of template values, for templates that print them.

use indexmap::IndexMap;
use minijinja::value::ValueKind;
use minijinja::{Error, Output, State, Value};

use super::value::{self, SequenceKind, as_float, entries};
use crate::json::{float_repr, string_repr};

/// Writes what `{{ value }}` prints.
pub(super) fn format(out: &mut Output<'_>, _state: &State<'_, '_>, value: &Value) -> Result<(), Error> {
    let written = match value.as_str() {
        Some(text) => out.write_str(text),
        None => out.write_str(&to_str(value)?),
    };
    written.map_err(Error::from)
}

/// Returns Python's `str` of a value; an error for those that print as an address.
pub(super) fn to_str(value: &Value) -> Result<String, Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(String::new()),
        ValueKind::String => Ok(value.as_str().unwrap_or_default().to_owned()),
        ValueKind::Plain if !value::is_big(value) => {
            Err(value::error(format!("a value of type {} cannot be printed", value::type_name(value))))
        }
        ValueKind::Iterable if value::is_generator(value) => Err(value::error("a generator cannot be printed")),
        ValueKind::Invalid => value.try_iter().map(|_| String::new()),
        _ => Ok(repr(value)),
    }
}

/// Returns Python's `repr` of a value.
pub(super) fn repr(value: &Value) -> String {
    if let Some(text) = value.as_str() {
        return string_repr(text);
    }
    if let Some(float) = as_float(value) {
        return float_repr(float);
    }
    match value.kind() {
        ValueKind::Undefined => "Undefined".to_owned(),
        ValueKind::Map => mapping(&entries(value).unwrap_or_default().into_iter().collect()),
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter().into_iter().flatten().collect();
            sequence(&items, value::sequence_kind(value))
        }
        _ => value.to_string(),
    }
}

pub(super) fn mapping(entries: &IndexMap<Value, Value>) -> String {
    let entries: Vec<String> = entries.iter().map(|(key, value)| format!("{}: {}", repr(key), repr(value))).collect();
    format!("{{{}}}", entries.join(", "))
}

pub(super) fn sequence(items: &[Value], kind: SequenceKind) -> String {
    let inner = items.iter().map(repr).collect::<Vec<_>>().join(", ");
    match kind {
        SequenceKind::List => format!("[{inner}]"),
        SequenceKind::Tuple if items.len() == 1 => format!("({inner},)"),
        SequenceKind::Tuple => format!("({inner})"),
        SequenceKind::View(name) => format!("{name}([{inner}])"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn values_print_as_in_python() {
        let value = json::Value::parse(r#"{"a": [true, null, 1.0, 1e16, "it's", []], "b": {}}"#).unwrap();
        assert_eq!(
            to_str(&value::from_json(&value)).unwrap(),
            r#"{'a': [True, None, 1.0, 1e+16, "it's", []], 'b': {}}"#
        );
        assert_eq!(to_str(&Value::UNDEFINED).unwrap(), "");
        assert_eq!(to_str(&value::tuple(vec![Value::from(1)])).unwrap(), "(1,)");
        assert!(to_str(&value::generator(vec![])).is_err());
    }
}
