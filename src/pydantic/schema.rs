//! What a field may be, in the terms of pydantic.

use crate::json::Node;

/// The type of a value. Scalars are lax: `"0.5"` is a number and `1.0` an integer.
#[derive(Debug)]
pub(crate) enum Schema {
    Any,
    Str,
    /// A string of so many characters, at least and at most.
    Text(usize, usize),
    Bool,
    Int,
    /// An integer of at least and at most so much.
    IntIn(i64, Option<i64>),
    Float,
    /// One of these strings.
    Literal(&'static [&'static str]),
    /// A member of an enumeration with these values.
    Member(&'static [&'static str]),
    Bytes,
    Nullable(&'static Self),
    List(&'static Self),
    /// A list of so many items at most.
    ShortList(&'static Self, usize),
    /// A list of these, or what Python's `list` makes one of.
    Listed(&'static Self),
    /// Anything that Python can iterate over; the items are checked when they are used.
    Iterable,
    /// An object with values of one type.
    Dict(&'static Self),
    Object(Shape, &'static [Field]),
    Union(&'static [Branch]),
    /// One of several objects; the key `type` says which.
    Tagged(&'static [(&'static str, Schema)]),
    /// What passes and keeps a rule besides.
    Checked(&'static Self, Rule),
}

/// The reason why a value that passed is refused after all.
pub(crate) type Rule = fn(&Node<'_>) -> Option<&'static str>;

/// What an object becomes, which decides how its absence is worded. Further keys are always welcome.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    TypedDict,
    Model,
    Dataclass(&'static str),
}

/// A key of an object.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) required: bool,
    pub(crate) schema: Schema,
}

/// One of several types; a label becomes part of the place of its complaints.
#[derive(Debug)]
pub(crate) struct Branch {
    pub(crate) label: Option<&'static str>,
    pub(crate) schema: Schema,
}

pub(crate) const fn required(name: &'static str, schema: Schema) -> Field {
    Field { name, required: true, schema }
}

pub(crate) const fn optional(name: &'static str, schema: Schema) -> Field {
    Field { name, required: false, schema }
}

pub(crate) const fn branch(schema: Schema) -> Branch {
    Branch { label: None, schema }
}

pub(crate) const fn labelled(label: &'static str, schema: Schema) -> Branch {
    Branch { label: Some(label), schema }
}

/// Scalars that may be null, and integers of 64 bits.
pub(crate) mod scalars {
    use super::Schema::{self, Any, Bool, Dict, Float, Int, IntIn, List, Nullable, Str};

    pub(crate) const NULLABLE_BOOL: Schema = Nullable(&Bool);
    pub(crate) const NULLABLE_FLOAT: Schema = Nullable(&Float);
    pub(crate) const NULLABLE_INT: Schema = Nullable(&Int);
    pub(crate) const NULLABLE_STR: Schema = Nullable(&Str);
    pub(crate) const NULLABLE_IDS: Schema = Nullable(&List(&Int));
    pub(crate) const NULLABLE_DICT: Schema = Nullable(&Dict(&Any));
    pub(crate) const INT64: Schema = IntIn(i64::MIN, Some(i64::MAX));
}
