//! Typed access to the key-value part of a GGUF file.

use std::collections::HashMap;

use candle_core::quantized::gguf_file::Value;

use super::GgufError;
use crate::TokenId;

/// The key-value part of a GGUF file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Metadata<'a> {
    values: &'a HashMap<String, Value>,
}

impl<'a> Metadata<'a> {
    pub(super) fn new(values: &'a HashMap<String, Value>) -> Self {
        Self { values }
    }

    pub(super) fn text(self, key: &str) -> Result<Option<&'a str>, GgufError> {
        self.get(key, "a text", text)
    }

    pub(super) fn required_text(self, key: &str) -> Result<&'a str, GgufError> {
        self.text(key)?.ok_or_else(|| GgufError::Missing(key.to_owned()))
    }

    pub(super) fn flag(self, key: &str) -> Result<Option<bool>, GgufError> {
        self.get(key, "a boolean", |value| value.to_bool().ok())
    }

    pub(super) fn integer(self, key: &str) -> Result<Option<i64>, GgufError> {
        self.get(key, "an integer", integer)
    }

    pub(super) fn size(self, key: &str) -> Result<Option<usize>, GgufError> {
        self.get(key, "a size", |value| usize::try_from(integer(value)?).ok())
    }

    pub(super) fn required_size(self, key: &str) -> Result<usize, GgufError> {
        self.size(key)?.ok_or_else(|| GgufError::Missing(key.to_owned()))
    }

    /// The decimal number that was written as an `f32`: 1e-5 rather than 9.999999747378752e-6.
    pub(super) fn float(self, key: &str) -> Result<Option<f64>, GgufError> {
        self.get(key, "a finite 32-bit float", |value| {
            let number = value.to_f32().ok().filter(|number| number.is_finite())?;
            Some(number.to_string().parse().unwrap_or_else(|_| f64::from(number)))
        })
    }

    /// A number of any type; a flag is 0 or 1.
    pub(super) fn number(self, key: &str) -> Result<Option<f64>, GgufError> {
        self.get(key, "a number", |value| match *value {
            Value::F32(number) => Some(number.into()),
            Value::F64(number) => Some(number),
            Value::Bool(flag) => Some(f64::from(u8::from(flag))),
            _ => i32::try_from(integer(value)?).ok().map(f64::from),
        })
    }

    pub(super) fn token_id(self, key: &str) -> Result<Option<TokenId>, GgufError> {
        self.get(key, "a token id", |value| TokenId::try_from(integer(value)?).ok())
    }

    pub(super) fn texts(self, key: &str) -> Result<Option<Vec<&'a str>>, GgufError> {
        self.get(key, "a list of texts", |value| value.to_vec().ok()?.iter().map(text).collect())
    }

    pub(super) fn required_texts(self, key: &str) -> Result<Vec<&'a str>, GgufError> {
        self.texts(key)?.ok_or_else(|| GgufError::Missing(key.to_owned()))
    }

    pub(super) fn flags(self, key: &str) -> Result<Option<Vec<bool>>, GgufError> {
        self.get(key, "a list of booleans", |value| {
            value.to_vec().ok()?.iter().map(|value| value.to_bool().ok()).collect()
        })
    }

    pub(super) fn integers(self, key: &str) -> Result<Option<Vec<i64>>, GgufError> {
        self.get(key, "a list of integers", |value| value.to_vec().ok()?.iter().map(integer).collect())
    }

    pub(super) fn required_integers(self, key: &str) -> Result<Vec<i64>, GgufError> {
        self.integers(key)?.ok_or_else(|| GgufError::Missing(key.to_owned()))
    }

    pub(super) fn required_floats(self, key: &str) -> Result<Vec<f32>, GgufError> {
        self.get(key, "a list of 32-bit floats", |value| {
            value.to_vec().ok()?.iter().map(|value| value.to_f32().ok()).collect()
        })?
        .ok_or_else(|| GgufError::Missing(key.to_owned()))
    }

    /// Whether a key has a list.
    pub(super) fn is_list(self, key: &str) -> bool {
        matches!(self.values.get(key), Some(Value::Array(_)))
    }

    /// Whether there is a key, whatever its value.
    pub(super) fn has(self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// Returns every text whose key begins with `prefix`, by the rest of the key, sorted.
    pub(super) fn texts_below(self, prefix: &str) -> Vec<(&'a str, &'a str)> {
        let mut found: Vec<_> =
            self.values.iter().filter_map(|(key, value)| Some((key.strip_prefix(prefix)?, text(value)?))).collect();
        found.sort_unstable();
        found
    }

    /// Returns every key that begins with `prefix`, with its rest, sorted.
    pub(super) fn keys_below(self, prefix: &str) -> Vec<(&'a str, &'a str)> {
        let mut found: Vec<_> =
            self.values.keys().filter_map(|key| Some((key.as_str(), key.strip_prefix(prefix)?))).collect();
        found.sort_unstable();
        found
    }

    fn get<T>(
        self,
        key: &str,
        expected: &'static str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, GgufError> {
        let invalid = || GgufError::Invalid { key: key.to_owned(), expected };
        self.values.get(key).map(|value| convert(value).ok_or_else(invalid)).transpose()
    }
}

fn text(value: &Value) -> Option<&str> {
    value.to_string().ok().map(String::as_str)
}

fn integer(value: &Value) -> Option<i64> {
    match *value {
        Value::U8(v) => Some(v.into()),
        Value::I8(v) => Some(v.into()),
        Value::U16(v) => Some(v.into()),
        Value::I16(v) => Some(v.into()),
        Value::U32(v) => Some(v.into()),
        Value::I32(v) => Some(v.into()),
        Value::U64(v) => i64::try_from(v).ok(),
        Value::I64(v) => Some(v),
        _ => None,
    }
}
