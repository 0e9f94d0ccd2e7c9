//! Values with Python's types.

use indexmap::IndexMap;

use super::{Integer, KeyedHash};

/// A JSON object: keys in order of first appearance, the last value of each.
pub type Object = Members<Value>;

/// The members of an object, in order.
pub type Members<V> = IndexMap<String, V, KeyedHash>;

/// The member of that name. Most objects have a few members only, whose names are compared sooner than one is hashed.
pub fn member<'members, V>(members: &'members Members<V>, name: &str) -> Option<&'members V> {
    const FEW: usize = 8;
    if members.len() > FEW {
        return members.get(name);
    }
    members.iter().find(|(key, _)| key.as_str() == name).map(|(_, value)| value)
}

/// A JSON value with Python's types.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// `null`.
    #[default]
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number written without fraction or exponent.
    Int(Integer),
    /// A number written with fraction or exponent, `NaN` or an infinity.
    Float(f64),
    /// A number as JSON writes it, to the letter; only [`Value::parse_literally`] and its like give one.
    Literal(Box<str>),
    /// A string.
    String(String),
    /// An array.
    Array(Vec<Value>),
    /// An object.
    Object(Object),
}

impl Value {
    /// Whether the value is `null`.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Returns the boolean, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns the integer, if it is one that fits.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Int(value) => value.to_i128()?.try_into().ok(),
            _ => None,
        }
    }

    /// Returns the string, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the array's elements, if it is one.
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Self::Array(values) => Some(values),
            _ => None,
        }
    }

    /// Returns the object, if it is one.
    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Self::Object(object) => Some(object),
            _ => None,
        }
    }

    /// Returns the object for changing it, if it is one.
    pub fn as_object_mut(&mut self) -> Option<&mut Object> {
        match self {
            Self::Object(object) => Some(object),
            _ => None,
        }
    }

    /// Returns the value under a key; none if there is none, or the value is no object.
    pub fn get(&self, key: &str) -> Option<&Value> {
        member(self.as_object()?, key)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value.into())
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::String(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::String(value)
    }
}

impl From<Object> for Value {
    fn from(value: Object) -> Self {
        Self::Object(value)
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(values: Vec<T>) -> Self {
        Self::Array(values.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl<K: Into<String>, V: Into<Value>> FromIterator<(K, V)> for Value {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        Self::Object(entries.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::{Members, Value, member};

    #[test]
    fn a_member_is_found_among_few_and_among_many() {
        for count in [0, 1, 8, 9, 40] {
            let members: Members<usize> = (0..count).map(|index| (format!("name{index}"), index)).collect();
            for index in 0..count {
                assert_eq!(member(&members, &format!("name{index}")), Some(&index));
            }
            for absent in ["", "name", "name40", "Name0"] {
                assert_eq!(member(&members, absent), None, "{absent} among {count}");
            }
        }
    }

    #[test]
    fn accessors_answer_only_for_their_own_kind() {
        let value = Value::parse(r#"{"a": [1, true, "x", null]}"#).unwrap();
        let items = value.get("a").and_then(Value::as_array).unwrap();
        assert_eq!(items[0].as_i64(), Some(1));
        assert_eq!(items[1].as_bool(), Some(true));
        assert_eq!(items[1].as_i64(), None);
        assert_eq!(items[2].as_str(), Some("x"));
        assert!(items[3].is_null());
        assert_eq!(items[0].get("a"), None);
    }
}
