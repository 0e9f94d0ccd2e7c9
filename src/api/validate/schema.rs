//! What a request's fields may be, in the terms of pydantic, which vLLM's requests are declared with.

use crate::json::Node;

/// The type of a value. Scalars are lax: `"0.5"` is a number and `1.0` an integer.
#[derive(Debug)]
pub(super) enum Schema {
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
pub(super) type Rule = fn(&Node<'_>) -> Option<&'static str>;

/// What an object becomes, which decides how its absence is worded. Further keys are always welcome.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    TypedDict,
    Model,
    Dataclass(&'static str),
}

/// A key of an object.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) required: bool,
    pub(super) schema: Schema,
}

/// One of several types; a label becomes part of the place of its complaints.
#[derive(Debug)]
pub(super) struct Branch {
    pub(super) label: Option<&'static str>,
    pub(super) schema: Schema,
}

pub(super) const fn required(name: &'static str, schema: Schema) -> Field {
    Field { name, required: true, schema }
}

pub(super) const fn optional(name: &'static str, schema: Schema) -> Field {
    Field { name, required: false, schema }
}

pub(super) const fn branch(schema: Schema) -> Branch {
    Branch { label: None, schema }
}

pub(super) const fn labelled(label: &'static str, schema: Schema) -> Branch {
    Branch { label: Some(label), schema }
}
