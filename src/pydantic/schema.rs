//! What a field may be, in the terms of pydantic.

use crate::json::Node;

/// The type of a value. Scalars are lax: `"0.5"` is a number and `1.0` an integer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Schema {
    Any,
    Str,
    /// A string with at least and at most this many characters.
    Text(usize, usize),
    Bool,
    Int,
    /// An integer between a least and a most value.
    IntIn(i64, Option<i64>),
    Float,
    /// One of these strings.
    Literal(&'static [&'static str]),
    /// A member of an enumeration with these values.
    Member(&'static [&'static str]),
    Bytes,
    Nullable(&'static Self),
    List(&'static Self),
    /// A list with at most this many items.
    ShortList(&'static Self, usize),
    /// A list of such items, or a value that Python's `list` makes one of.
    Listed(&'static Self),
    /// Anything that Python can iterate over; the items are checked when they are used.
    Iterable,
    /// An object with values of one type.
    Dict(&'static Self),
    Object(Shape, &'static [Field]),
    Union(&'static [Branch]),
    /// One of several objects; the key `type` says which.
    Tagged(&'static [(&'static str, Schema)]),
    /// A value that passes and also keeps a rule.
    Checked(&'static Self, Rule),
}

/// A rule gives the reason why a value that passed is refused after all.
pub(crate) type Rule = fn(&Node<'_>) -> Option<&'static str>;

/// What an object becomes, which decides how a missing object is worded. Further keys are always allowed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    TypedDict,
    Model,
    Dataclass(&'static str),
}

/// A key of an object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) required: bool,
    pub(crate) schema: Schema,
}

/// One of several types; the label becomes part of the place that its complaints name.
#[derive(Debug, Clone, Copy)]
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

/// Puts lists of fields one after another; there are `N` in all.
pub(crate) const fn joined<const N: usize>(lists: &[&[Field]]) -> [Field; N] {
    let mut all = [optional("", Schema::Any); N];
    let (mut count, mut list) = (0, 0);
    while list < lists.len() {
        let mut at = 0;
        while at < lists[list].len() {
            all[count] = lists[list][at];
            count += 1;
            at += 1;
        }
        list += 1;
    }
    assert!(count == N, "a list of fields has another length");
    all
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
