//! From a document's tree to serde types, as `serde_json` reads them from the text: the same numbers, the same error
//! messages, the same limit of nesting. Values with a rewrite are read as rewritten.

mod leaf;
#[cfg(test)]
mod tests;

use serde::{
    de::{
        DeserializeSeed, Deserializer, EnumAccess, Error as _, MapAccess, SeqAccess, VariantAccess, Visitor,
        value::BorrowedStrDeserializer,
    },
    forward_to_deserialize_any,
};
use serde_json::Error;

use super::{Items, Members, Node, NodeKind, Rewrites, wire::VALUE};
use leaf::{Id, Ids, RAW, Raw, Scalar, number, visit_integer};

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

    /// What is read in the place of an item of a list of ids.
    fn rewritten(self, id: Id<'de>) -> Option<&'de str> {
        // Nearly always there are none, and a list is long.
        if self.rewrites.is_empty() {
            return None;
        }
        self.rewrites.replacement(&Node { text: id.text(), kind: NodeKind::Null })
    }

    fn scalar(self) -> Option<Scalar<'de>> {
        self.rewrites.replacement(self.node).map(|text| Scalar { text })
    }

    fn inner(self) -> Result<Self, Error> {
        match self.depth - 1 {
            0 => Err(Error::custom("recursion limit exceeded")),
            depth => Ok(Self { depth, ..self }),
        }
    }

    fn list<V: Visitor<'de>>(self, items: &'de Items<'a>, visitor: V) -> Result<V::Value, Error> {
        let mut list = match items {
            Items::Ids(text, count) => List { ids: Ids::new(text, *count), nodes: [].iter(), reader: self },
            Items::Nodes(nodes) => List { ids: Ids::new("", 0), nodes: nodes.iter(), reader: self },
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
            NodeKind::Int(value) => visit_integer(value, visitor),
            NodeKind::Float(value) => visitor.visit_f64(*value),
            NodeKind::List(items) => self.list(items, visitor),
            NodeKind::Object(entries) => self.object(entries, visitor),
            NodeKind::Null | NodeKind::Bool(_) | NodeKind::String(_) => self.deserialize_any(visitor),
        }
    }
}

type Entries<'a> = Members<Node<'a>>;

impl<'de> Deserializer<'de> for Reader<'de, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if let Some(scalar) = self.scalar() {
            return scalar.deserialize_any(visitor);
        }
        match &self.node.kind {
            NodeKind::Null => visitor.visit_unit(),
            NodeKind::Bool(value) => visitor.visit_bool(*value),
            NodeKind::Int(_) | NodeKind::Float(_) => number(self.node.text, visitor),
            NodeKind::String(text) => visitor.visit_borrowed_str(text),
            NodeKind::List(items) => self.inner()?.list(items, visitor),
            NodeKind::Object(entries) => self.inner()?.object(entries, visitor),
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
            (None, NodeKind::String(text)) => visitor.visit_enum(BorrowedStrDeserializer::new(text)),
            (None, NodeKind::Object(entries)) if !entries.is_empty() => {
                let reader = self.inner()?;
                let value = visitor.visit_enum(Object { entries: entries.iter(), value: None, reader })?;
                if entries.len() == 1 { Ok(value) } else { Err(Error::custom("expected value")) }
            }
            _ => Err(Error::custom("expected value")),
        }
    }

    /// serde would fill the fields in their order from a list, which no client means.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match (self.scalar(), &self.node.kind) {
            (None, NodeKind::List(_)) => Err(Error::custom("an object belongs here, not a list")),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier
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
        let Some(id) = self.ids.next() else { return Ok(None) };
        match self.reader.rewritten(id) {
            Some(text) => seed.deserialize(Scalar { text }).map(Some),
            None => seed.deserialize(id).map(Some),
        }
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
