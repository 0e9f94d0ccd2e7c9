//! From a document's tree to the types of serde, as `serde_json` makes them of the text: the same numbers, the same words
//! for what does not fit, the same limit to nesting. What is rewritten is read as rewritten.

use std::borrow::Cow;

use serde::{
    de::{
        DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, MapAccess, SeqAccess, VariantAccess,
        Visitor,
        value::{BorrowedStrDeserializer, StrDeserializer, StringDeserializer},
    },
    forward_to_deserialize_any,
};
use serde_json::{Error, Number};

use super::{Integer, Items, Kind, Node, Rewrites, Value, wire::VALUE};

/// What `serde_json` asks for where a type wants the text of a value.
const RAW: &str = "$serde_json::private::RawValue";
/// How deeply `serde_json` reads lists and objects.
const MAX_DEPTH: u8 = 128;

/// Reads one value of a document.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'de, 'a> {
    node: &'de Node<'a>,
    rewrites: &'de Rewrites<'a>,
    /// How much deeper lists and objects may be nested.
    depth: u8,
}

impl<'de, 'a> Reader<'de, 'a> {
    /// Reads all of a value of the document that the rewrites are of.
    pub fn new(node: &'de Node<'a>, rewrites: &'de Rewrites<'a>) -> Self {
        Self { node, rewrites, depth: MAX_DEPTH }
    }

    fn scalar(self) -> Option<Scalar<'de>> {
        self.rewrites.of(self.node).map(|text| Scalar { text })
    }

    fn inner(self) -> Result<Self, Error> {
        match self.depth - 1 {
            0 => Err(Error::custom("recursion limit exceeded")),
            depth => Ok(Self { depth, ..self }),
        }
    }

    fn list<V: Visitor<'de>>(self, items: &'de Items<'a>, visitor: V) -> Result<V::Value, Error> {
        let mut list = match items {
            Items::Ids(text, count) => List { ids: Ids { text, left: *count }, nodes: [].iter(), reader: self },
            Items::Nodes(nodes) => List { ids: Ids { text: "", left: 0 }, nodes: nodes.iter(), reader: self },
        };
        let value = visitor.visit_seq(&mut list)?;
        match list.size_hint() {
            Some(0) => Ok(value),
            _ => Err(Error::custom("trailing characters")),
        }
    }

    fn object<V: Visitor<'de>>(self, entries: &'de Entries<'a>, visitor: V) -> Result<V::Value, Error> {
        let mut object = Object { entries: entries.iter(), value: None, reader: self };
        let value = visitor.visit_map(&mut object)?;
        match object.next_entry() {
            None => Ok(value),
            Some(_) => Err(Error::custom("trailing comma")),
        }
    }

    /// The value with numbers as Python has them, for [`super::Value`]; it may be nested as deeply as a document.
    fn exactly<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node.kind {
            Kind::Int(value) => whole(value, visitor),
            Kind::Float(value) => visitor.visit_f64(*value),
            Kind::List(items) => self.list(items, visitor),
            Kind::Object(entries) => self.object(entries, visitor),
            Kind::Null | Kind::Bool(_) | Kind::String(_) => self.deserialize_any(visitor),
        }
    }
}

type Entries<'a> = indexmap::IndexMap<String, Node<'a>>;

/// An integer of any size, as the visitor of [`super::Value`] takes it.
fn whole<'de, V: Visitor<'de>>(value: &Integer, visitor: V) -> Result<V::Value, Error> {
    match value.to_i128() {
        Some(value) => visitor.visit_i128(value),
        // No text has bytes of any other meaning.
        None => visitor.visit_bytes(value.to_string().as_bytes()),
    }
}

/// A number as `serde_json` reads its literal.
fn number<'de, V: Visitor<'de>>(literal: &str, visitor: V) -> Result<V::Value, Error> {
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

impl<'de> Deserializer<'de> for Reader<'de, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if let Some(scalar) = self.scalar() {
            return scalar.deserialize_any(visitor);
        }
        match &self.node.kind {
            Kind::Null => visitor.visit_unit(),
            Kind::Bool(value) => visitor.visit_bool(*value),
            Kind::Int(_) | Kind::Float(_) => number(self.node.text, visitor),
            Kind::String(text) => visitor.visit_borrowed_str(text),
            Kind::List(items) => self.inner()?.list(items, visitor),
            Kind::Object(entries) => self.inner()?.object(entries, visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if let Some(scalar) = self.scalar() {
            return scalar.deserialize_option(visitor);
        }
        if self.node.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Error> {
        match name {
            RAW => visitor.visit_map(Raw { text: Some(self.rewrites.spliced(self.node)) }),
            VALUE => match self.scalar() {
                Some(scalar) => scalar.deserialize_newtype_struct(name, visitor),
                None => self.exactly(visitor),
            },
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match (self.scalar(), &self.node.kind) {
            (None, Kind::String(text)) => visitor.visit_enum(BorrowedStrDeserializer::new(text)),
            (None, Kind::Object(entries)) if !entries.is_empty() => {
                let reader = self.inner()?;
                let value = visitor.visit_enum(Object { entries: entries.iter(), value: None, reader })?;
                if entries.len() == 1 { Ok(value) } else { Err(Error::custom("expected value")) }
            }
            _ => Err(Error::custom("expected value")),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier
    }
}

/// `null`, `true`, `false` or a number, from its text.
#[derive(Debug, Clone, Copy)]
struct Scalar<'de> {
    text: &'de str,
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
                Ok(Value::Int(value)) => whole(&value, visitor),
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
struct Ids<'de> {
    text: &'de str,
    left: usize,
}

impl<'de> Ids<'de> {
    fn next(&mut self) -> Option<&'de str> {
        self.left = self.left.checked_sub(1)?;
        let bytes = self.text.as_bytes();
        let start = bytes.iter().position(u8::is_ascii_digit)?;
        let digits = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let id = &self.text[start..start + digits];
        self.text = &self.text[start + digits..];
        Some(id)
    }
}

/// A list, from some item on; one of the two is empty.
struct List<'de, 'a> {
    ids: Ids<'de>,
    nodes: std::slice::Iter<'de, Node<'a>>,
    reader: Reader<'de, 'a>,
}

impl<'de> SeqAccess<'de> for List<'de, '_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        if let Some(node) = self.nodes.next() {
            return seed.deserialize(Reader { node, ..self.reader }).map(Some);
        }
        let Some(text) = self.ids.next() else { return Ok(None) };
        let text = self.reader.rewrites.of(&Node { text, kind: Kind::Null }).unwrap_or(text);
        seed.deserialize(Scalar { text }).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.ids.left + self.nodes.len())
    }
}

/// An object, from some entry on.
struct Object<'de, 'a> {
    entries: indexmap::map::Iter<'de, String, Node<'a>>,
    value: Option<&'de Node<'a>>,
    reader: Reader<'de, 'a>,
}

impl<'de, 'a> Object<'de, 'a> {
    /// The next entry that the client sent.
    fn next_entry(&mut self) -> Option<(&'de String, &'de Node<'a>)> {
        self.entries.find(|(_, node)| !node.text.is_empty())
    }

    fn value(&mut self) -> Result<Reader<'de, 'a>, Error> {
        let node = self.value.take().ok_or_else(|| Error::custom("a value without a key"))?;
        Ok(Reader { node, ..self.reader })
    }
}

impl<'de> MapAccess<'de> for Object<'de, '_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((key, node)) = self.next_entry() else { return Ok(None) };
        self.value = Some(node);
        seed.deserialize(BorrowedStrDeserializer::new(key)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(self.value()?)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.entries.len())
    }
}

impl<'de> EnumAccess<'de> for Object<'de, '_> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(mut self, seed: V) -> Result<(V::Value, Self), Error> {
        match self.next_key_seed(seed)? {
            Some(variant) => Ok((variant, self)),
            None => Err(Error::custom("expected value")),
        }
    }
}

impl<'de> VariantAccess<'de> for Object<'de, '_> {
    type Error = Error;

    fn unit_variant(mut self) -> Result<(), Error> {
        serde::Deserialize::deserialize(self.value()?)
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(mut self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self.value()?)
    }

    fn tuple_variant<V: Visitor<'de>>(mut self, _length: usize, visitor: V) -> Result<V::Value, Error> {
        self.value()?.deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        mut self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.value()?.deserialize_struct("", fields, visitor)
    }
}

/// The text of a value, in the form of a map that `serde_json` asks for.
struct Raw<'de> {
    text: Option<Cow<'de, str>>,
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
