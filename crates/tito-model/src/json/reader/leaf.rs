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

use crate::json::{Integer, Value, wire::VALUE};

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

/// The ids that are left of a list.
pub(super) struct Ids<'de> {
    pub(super) text: &'de str,
    pub(super) left: usize,
}

impl<'de> Ids<'de> {
    pub(super) fn next(&mut self) -> Option<Id<'de>> {
        self.left = self.left.checked_sub(1)?;
        let bytes = self.text.as_bytes();
        let start = bytes.iter().position(u8::is_ascii_digit)?;
        let (mut end, mut value) = (start, 0);
        while let Some(digit) = bytes.get(end).filter(|byte| byte.is_ascii_digit()) {
            value = value * 10 + u64::from(digit - b'0');
            end += 1;
        }
        let text = &self.text[start..end];
        self.text = &self.text[end..];
        Some(Id { text, value })
    }
}

/// An item of a list of ids.
#[derive(Debug, Clone, Copy)]
pub(super) struct Id<'de> {
    pub(super) text: &'de str,
    value: u64,
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
            RAW => visitor.visit_map(Raw { text: Some(Cow::Borrowed(self.text)) }),
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
