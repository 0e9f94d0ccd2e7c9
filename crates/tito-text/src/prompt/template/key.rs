//! Which keys of dicts are equal: those that are equal in Python (`1`, `1.0` and `True` are one key).

use std::hash::{Hash, Hasher};

use indexmap::Equivalent;

use super::numbers;
use super::value::{Key, Value};

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        match (self.value(), other.value()) {
            (Value::Sequence(left), Value::Sequence(right)) => {
                left.items.len() == right.items.len()
                    && left.items.iter().zip(&right.items).all(|(left, right)| plainly_equal(left, right))
            }
            (left, right) => plainly_equal(left, right),
        }
    }
}

impl Eq for Key {}

/// Whether two values that contain no others are equal.
pub(super) fn plainly_equal(left: &Value, right: &Value) -> bool {
    use std::sync::Arc;

    match (left, right) {
        (Value::Undefined, Value::Undefined) | (Value::None, Value::None) => true,
        (Value::String(_), Value::String(_)) => left.as_str() == right.as_str(),
        (Value::Bool(_) | Value::Int(_) | Value::Float(_), Value::Bool(_) | Value::Int(_) | Value::Float(_)) => {
            numbers::compare(left, right) == Some(std::cmp::Ordering::Equal)
        }
        (Value::Big(left), Value::Big(right)) => left == right,
        (Value::Function(left), Value::Function(right)) => left == right,
        (Value::Macro(left), Value::Macro(right))
        | (Value::Namespace(left), Value::Namespace(right))
        | (Value::Loop(left), Value::Loop(right)) => left == right,
        (Value::Generator(left), Value::Generator(right)) => Arc::ptr_eq(left, right),
        (Value::Cycler(left), Value::Cycler(right)) => Arc::ptr_eq(left, right),
        (Value::Joiner(left), Value::Joiner(right)) => Arc::ptr_eq(left, right),
        _ => false,
    }
}

const STRING: u8 = 1;
const INTEGER: u8 = 2;
const FLOAT: u8 = 3;
const OTHER: u8 = 4;

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self.value() {
            Value::Sequence(tuple) => tuple.items.iter().for_each(|item| hash_plain(item, state)),
            value => hash_plain(value, state),
        }
    }
}

fn hash_plain<H: Hasher>(value: &Value, state: &mut H) {
    match value {
        Value::String(_) => (STRING, value.as_str()).hash(state),
        Value::Bool(flag) => (INTEGER, i128::from(*flag)).hash(state),
        Value::Int(integer) => (INTEGER, integer).hash(state),
        #[expect(clippy::cast_possible_truncation, reason = "equal numbers must hash alike; others may")]
        Value::Float(float) if float.fract() == 0.0 => (INTEGER, *float as i128).hash(state),
        Value::Float(float) => (FLOAT, float.to_bits()).hash(state),
        _ => OTHER.hash(state),
    }
}

/// Looks a string up without making a value of it.
#[derive(Clone, Copy)]
pub(super) struct Name<'n>(pub(super) &'n str);

impl Hash for Name<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (STRING, Some(self.0)).hash(state);
    }
}

impl Equivalent<Key> for Name<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        key.value().as_str() == Some(self.0)
    }
}

#[cfg(test)]
mod tests {
    use indexmap::IndexMap;

    use super::super::value::{list, tuple};
    use super::*;

    #[test]
    fn equal_values_are_one_key() {
        let key = |value: Value| Key::new(value).unwrap();
        let mut map = IndexMap::new();
        map.insert(key(Value::from(1_i64)), 'a');
        map.insert(key(Value::from(1.0)), 'b');
        map.insert(key(Value::from(true)), 'c');
        map.insert(key(Value::from("1")), 'd');
        map.insert(key(tuple(vec![Value::from(1_i64)])), 'e');
        map.insert(key(tuple(vec![Value::from(1.0)])), 'f');
        assert_eq!(map.values().collect::<String>(), "cdf");
        assert_eq!(map.get(&Name("1")), Some(&'d'));
        assert_eq!(map.get(&Name("2")), None);
    }

    #[test]
    fn what_python_does_not_hash_is_no_key() {
        for value in [list(vec![]), tuple(vec![list(vec![])]), tuple(vec![tuple(vec![])])] {
            assert!(Key::new(value).is_err());
        }
    }
}
