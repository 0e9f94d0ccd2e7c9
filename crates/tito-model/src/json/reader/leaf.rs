//! Values that have none within them, and the text of a value.

use std::borrow::Cow;

use serde::{
    de::{
        DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, Visitor,
        value::{BorrowedStrDeserializer, StrDeserializer, StringDeserializer},
    },
    forward_to_deserialize_any,
};
use serde_json::{Error, Number};

use crate::json::{Integer, Value, ids::Short, wire::VALUE};

/// What `serde_json` asks for where a type wants the text of a value.
pub(super) const RAW: &str = "$serde_json::private::RawValue";

/// An integer of any size, as the visitor of [`Value`] takes it.
pub(super) fn visit_integer<'de, V: Visitor<'de>>(value: &Integer, visitor: V) -> Result<V::Value, Error> {
    match value.to_i128() {
        Some(value) => visitor.visit_i128(value),
        // No text has bytes of any other meaning.
        None => visitor.visit_bytes(value.to_string().as_bytes()),
    }
}

/// A number as `serde_json` reads its literal.
pub(super) fn number<'de, V: Visitor<'de>>(literal: &str, visitor: V) -> Result<V::Value, Error> {
    // Most numbers are short integers.
    if literal.len() < 19 && literal.bytes().all(|byte| byte.is_ascii_digit()) {
        return visitor.visit_u64(literal.bytes().fold(0, |value, digit| value * 10 + u64::from(digit - b'0')));
    }
    let number: Number = serde_json::from_str(literal).map_err(|_| Error::custom("number out of range"))?;
    if let Some(value) = number.as_u64() {
        visitor.visit_u64(value)
    } else if let Some(value) = number.as_i64() {
        visitor.visit_i64(value)
    } else {
        visitor.visit_f64(number.as_f64().unwrap_or_default())
    }
}

/// `null`, `true`, `false` or a number, from its text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scalar<'de> {
    pub(super) text: &'de str,
}

impl<'de> Deserializer<'de> for Scalar<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.text {
            "null" => visitor.visit_unit(),
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            literal => number(literal, visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.text == "null" { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Error> {
        match name {
            RAW => visitor.visit_map(Raw { text: Some(Cow::Borrowed(self.text)) }),
            VALUE => match Value::parse(self.text) {
                Ok(Value::Int(value)) => visit_integer(&value, visitor),
                Ok(Value::Float(value)) => visitor.visit_f64(value),
                _ => self.deserialize_any(visitor),
            },
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Error> {
        Err(Error::custom("expected value"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

/// The ids that are left of a list, whose text has nothing but them and what separates them.
pub(super) struct Ids<'de> {
    text: &'de str,
    at: usize,
    pub(super) left: usize,
}

impl<'de> Ids<'de> {
    pub(super) fn new(text: &'de str, count: usize) -> Self {
        Self { text, at: 0, left: count }
    }

    pub(super) fn next(&mut self) -> Option<Id<'de>> {
        self.left = self.left.checked_sub(1)?;
        let (list, start) = (self.text, self.at);
        if let Some(short) = Short::at(list.as_bytes(), start) {
            self.at += short.length;
            return Some(Id { list, start, end: start + short.digits, value: u64::from(short.value()) });
        }
        self.next_of_any_length()
    }

    fn next_of_any_length(&mut self) -> Option<Id<'de>> {
        let count = |from: usize, are_digits: bool| {
            self.text.as_bytes()[from..].iter().take_while(|byte| byte.is_ascii_digit() == are_digits).count()
        };
        let start = self.at + count(self.at, false);
        let end = start + count(start, true);
        let number = self.text.get(start..end).filter(|number| !number.is_empty())?;
        let value = number.bytes().fold(0, |value, digit| value * 10 + u64::from(digit - b'0'));
        self.at = end + count(end, false);
        Some(Id { list: self.text, start, end, value })
    }
}

/// An item of a list of ids.
#[derive(Debug, Clone, Copy)]
pub(super) struct Id<'de> {
    list: &'de str,
    /// Where it stands in the list.
    start: usize,
    end: usize,
    value: u64,
}

impl<'de> Id<'de> {
    pub(super) fn text(self) -> &'de str {
        &self.list[self.start..self.end]
    }
}

impl<'de> Deserializer<'de> for Id<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_u64(self.value)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Error> {
        match name {
            RAW => visitor.visit_map(Raw { text: Some(Cow::Borrowed(self.text())) }),
            VALUE => visitor.visit_u64(self.value),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Error> {
        Err(Error::custom("expected value"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

/// The text of a value, in the form of a map that `serde_json` asks for.
pub(super) struct Raw<'de> {
    pub(super) text: Option<Cow<'de, str>>,
}

impl<'de> MapAccess<'de> for Raw<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        if self.text.is_none() {
            return Ok(None);
        }
        let key: StrDeserializer<'_, Error> = RAW.into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        match self.text.take() {
            Some(Cow::Borrowed(text)) => seed.deserialize(BorrowedStrDeserializer::new(text)),
            Some(Cow::Owned(text)) => seed.deserialize(StringDeserializer::new(text)),
            None => Err(Error::custom("a value without a key")),
        }
    }
}
