//! Python's lists, tuples, dicts and generators as minijinja values, and the way there from JSON and back.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use indexmap::IndexMap;
use minijinja::value::{DynObject, Enumerator, Object, ObjectExt, ObjectRepr, ValueKind};
use minijinja::{Error, ErrorKind, Value};
use parking_lot::Mutex;

use super::print;
use crate::json;

/// The methods of a dict; each hides a key of its name from attribute access.
pub(super) const DICT_METHODS: [&str; 11] =
    ["clear", "copy", "fromkeys", "get", "items", "keys", "pop", "popitem", "setdefault", "update", "values"];

/// A Python dict.
#[derive(Debug, Default)]
pub(super) struct Dict(pub(super) IndexMap<Value, Value>);

impl Object for Dict {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.0.get(key).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.mapped_enumerator(|dict| Box::new(dict.0.keys().cloned()))
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.0.len())
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print::mapping(&self.0))
    }
}

/// A Python list or tuple, or a view of a dict.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) items: Vec<Value>,
    pub(super) kind: SequenceKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SequenceKind {
    List,
    Tuple,
    /// A view, by the name of its type: it has a length, but no subscripts.
    View(&'static str),
}

impl Object for Sequence {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.items.get(key.as_usize()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.items.len())
    }

    // Neither does minijinja tell lists from tuples by itself, nor may a view equal anything.
    fn custom_cmp(self: &Arc<Self>, other: &DynObject) -> Option<Ordering> {
        let other = other.downcast_ref::<Self>()?;
        (self.kind != other.kind).then_some(Ordering::Less)
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print::sequence(&self.items, self.kind))
    }
}

/// What Python's lazy filters return: always true, without length, without subscripts, and used up by one run.
#[derive(Debug)]
pub(super) struct Generator(Mutex<Vec<Value>>);

impl Object for Generator {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn get_value(self: &Arc<Self>, _key: &Value) -> Option<Value> {
        Some(Value::UNDEFINED)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(std::mem::take(&mut self.0.lock()))
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        None
    }

    fn is_true(self: &Arc<Self>) -> bool {
        true
    }
}

/// A method that is not called: true, and without any attribute.
#[derive(Debug)]
pub(super) struct Method;

impl Object for Method {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
}

/// Returns a Python list.
pub(super) fn list(items: Vec<Value>) -> Value {
    Value::from_object(Sequence { items, kind: SequenceKind::List })
}

/// Returns a Python tuple.
pub(super) fn tuple(items: Vec<Value>) -> Value {
    Value::from_object(Sequence { items, kind: SequenceKind::Tuple })
}

/// Returns a view of a dict.
pub(super) fn view(type_name: &'static str, items: Vec<Value>) -> Value {
    Value::from_object(Sequence { items, kind: SequenceKind::View(type_name) })
}

/// Returns what kind of sequence a value is; whatever is none of ours is a list.
pub(super) fn sequence_kind(value: &Value) -> SequenceKind {
    value.downcast_object_ref::<Sequence>().map_or(SequenceKind::List, |sequence| sequence.kind)
}

/// Returns a Python dict.
pub(super) fn dict(entries: IndexMap<Value, Value>) -> Value {
    Value::from_object(Dict(entries))
}

/// Returns a Python generator.
pub(super) fn generator(items: Vec<Value>) -> Value {
    Value::from_object(Generator(Mutex::new(items)))
}

/// Returns an error with a message of its own.
pub(super) fn error(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// Returns the entries of a mapping; none if it is not one.
pub(super) fn entries(value: &Value) -> Option<Vec<(Value, Value)>> {
    if let Some(Dict(entries)) = value.downcast_object_ref() {
        return Some(entries.iter().map(|(key, value)| (key.clone(), value.clone())).collect());
    }
    if value.kind() != ValueKind::Map {
        return None;
    }
    let object = value.as_object()?;
    Some(object.try_iter_pairs()?.collect())
}

/// Returns the items that Python would iterate over.
pub(super) fn items(value: &Value) -> Result<Vec<Value>, Error> {
    iterable(value)?;
    Ok(value.try_iter()?.collect())
}

/// Refuses what Python does not iterate over.
pub(super) fn iterable(value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::None | ValueKind::Bool | ValueKind::Number | ValueKind::Plain => {
            Err(error(format!("'{}' object is not iterable", type_name(value))))
        }
        _ => Ok(()),
    }
}

/// Returns the float a value holds; none for every other type.
pub(super) fn as_float(value: &Value) -> Option<f64> {
    (value.kind() == ValueKind::Number && !value.is_integer()).then(|| f64::try_from(value.clone()).ok())?
}

/// Returns the integer a value holds, a boolean being one; none for every other type.
pub(super) fn as_integer(value: &Value) -> Option<i128> {
    match value.kind() {
        ValueKind::Bool => Some(i128::from(value.is_true())),
        ValueKind::Number if value.is_integer() => i128::try_from(value.clone()).ok(),
        _ => None,
    }
}

/// Returns what Python calls a value's type.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value.kind() {
        ValueKind::Undefined => "Undefined",
        ValueKind::None => "NoneType",
        ValueKind::Bool => "bool",
        ValueKind::Number if value.is_integer() => "int",
        ValueKind::Number => "float",
        ValueKind::String => "str",
        ValueKind::Bytes => "bytes",
        ValueKind::Map => "dict",
        ValueKind::Iterable if is_generator(value) => "generator",
        ValueKind::Seq | ValueKind::Iterable => match sequence_kind(value) {
            SequenceKind::List => "list",
            SequenceKind::Tuple => "tuple",
            SequenceKind::View(name) => name,
        },
        _ if is_big(value) => "int",
        _ => "object",
    }
}

/// Whether a value is an integer beyond 128 bits.
pub(super) fn is_big(value: &Value) -> bool {
    value.downcast_object_ref::<BigInteger>().is_some()
}

/// Whether a value is a view of a dict.
pub(super) fn is_view(value: &Value) -> bool {
    matches!(sequence_kind(value), SequenceKind::View(_))
}

/// Whether a value is what a lazy filter returned.
pub(super) fn is_generator(value: &Value) -> bool {
    value.downcast_object_ref::<Generator>().is_some()
}

/// Returns the value as a template sees it.
pub(super) fn from_json(value: &json::Value) -> Value {
    match value {
        json::Value::Null => Value::from(()),
        json::Value::Bool(flag) => Value::from(*flag),
        json::Value::Int(integer) => match integer.to_i128() {
            Some(small) => i64::try_from(small).map_or_else(|_| Value::from(small), Value::from),
            None => Value::from_object(BigInteger(integer.clone())),
        },
        json::Value::Float(float) => Value::from(*float),
        json::Value::String(text) => Value::from(text.as_str()),
        json::Value::Array(values) => list(values.iter().map(from_json).collect()),
        json::Value::Object(object) => from_object(object),
    }
}

/// Returns the object as a template sees it.
pub(super) fn from_object(object: &json::Object) -> Value {
    dict(object.iter().map(|(key, value)| (Value::from(key.as_str()), from_json(value))).collect())
}

/// An integer beyond 128 bits: it can be printed and written as JSON, but not calculated with.
#[derive(Debug)]
pub(super) struct BigInteger(pub(super) json::Integer);

impl Object for BigInteger {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Returns the JSON that Python's `json.dumps` makes of a template's value.
pub(super) fn to_json(value: &Value) -> Result<json::Value, Error> {
    if let Some(BigInteger(integer)) = value.downcast_object_ref() {
        return Ok(json::Value::Int(integer.clone()));
    }
    match value.kind() {
        ValueKind::None => Ok(json::Value::Null),
        ValueKind::Bool => Ok(json::Value::Bool(value.is_true())),
        ValueKind::Number => as_float(value)
            .map(json::Value::Float)
            .or_else(|| as_integer(value).map(|integer| json::Value::Int(integer.into())))
            .ok_or_else(|| error(format!("integer {value} is too large"))),
        ValueKind::String => Ok(json::Value::from(value.as_str().unwrap_or_default())),
        ValueKind::Map => {
            let mut object = json::Object::new();
            for (key, value) in entries(value).unwrap_or_default() {
                if object.insert(json_key(&key)?, to_json(&value)?).is_some() {
                    return Err(error(format!("key '{key}' occurs twice")));
                }
            }
            Ok(json::Value::Object(object))
        }
        ValueKind::Seq | ValueKind::Iterable if !is_generator(value) && !is_view(value) => {
            value.try_iter()?.map(|item| to_json(&item)).collect::<Result<_, _>>().map(json::Value::Array)
        }
        _ => Err(error(format!("Object of type {} is not JSON serializable", type_name(value)))),
    }
}

fn json_key(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::None | ValueKind::Bool | ValueKind::Number => Ok(to_json(key)?.to_json_string()),
        _ => Err(error(format!("keys must be str, int, float, bool or None, not {}", type_name(key)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_survives_the_way_through_a_template() {
        let big = "123456789012345678901234567890123456789012345";
        let text = format!(r#"{{"b": [1, 1.0, 1e-05, true, null, {big}], "a": {{"é": "x", "items": NaN}}}}"#);
        let value = from_json(&json::Value::parse(&text).unwrap());
        assert_eq!(to_json(&value).unwrap().to_json_string(), text);
    }

    #[test]
    fn what_json_cannot_hold_is_refused() {
        assert!(to_json(&Value::UNDEFINED).is_err());
        assert!(to_json(&generator(vec![])).is_err());
        assert!(to_json(&dict([(tuple(vec![]), Value::from(1))].into_iter().collect())).is_err());
    }
}
