//! What the parser builds: values that own what they hold, or nodes that point into the text.

use std::borrow::Cow;

use super::{Integer, Members, Object, Value};

/// What one document is read into. Both forms have one grammar.
pub(super) trait Tree<'a>: Sized {
    /// `null`, `true` or `false`.
    fn word(value: Option<bool>, text: &'a str) -> Self;
    /// An integer's literal.
    fn integer(text: &'a str) -> Option<Self>;
    /// A number with fraction or exponent, `NaN` or an infinity.
    fn float(value: f64, text: &'a str) -> Self;
    /// A string, and how it was written.
    fn string(value: Cow<'a, str>, text: &'a str) -> Self;
    /// A list.
    fn array(items: Vec<Self>, text: &'a str) -> Self;
    /// An object.
    fn object(entries: Members<Self>, text: &'a str) -> Self;
    /// A list that need not be read item by item, if the text starts with one; how long it is.
    fn whole_list(_text: &'a str) -> Option<(Self, usize)> {
        None
    }
}

impl<'a> Tree<'a> for Value {
    fn word(value: Option<bool>, _text: &'a str) -> Self {
        value.map_or(Self::Null, Self::Bool)
    }

    fn integer(text: &'a str) -> Option<Self> {
        Integer::from_decimal(text).map(Self::Int)
    }

    fn float(value: f64, _text: &'a str) -> Self {
        Self::Float(value)
    }

    fn string(value: Cow<'a, str>, _text: &'a str) -> Self {
        Self::String(value.into_owned())
    }

    fn array(items: Vec<Self>, _text: &'a str) -> Self {
        Self::Array(items)
    }

    fn object(entries: Object, _text: &'a str) -> Self {
        Self::Object(entries)
    }
}

/// A value whose numbers stay as they were written.
pub(super) struct Literally(pub(super) Value);

impl<'a> Tree<'a> for Literally {
    fn word(value: Option<bool>, text: &'a str) -> Self {
        Self(Value::word(value, text))
    }

    fn integer(text: &'a str) -> Option<Self> {
        // Every other integer is written back as it was read.
        if text == "-0" { Some(Self(Value::Literal(text.into()))) } else { Value::integer(text).map(Self) }
    }

    fn float(value: f64, text: &'a str) -> Self {
        // `NaN` and `Infinity` are words.
        let is_number = text.ends_with(|c: char| c.is_ascii_digit());
        Self(if is_number { Value::Literal(text.into()) } else { Value::Float(value) })
    }

    fn string(value: Cow<'a, str>, text: &'a str) -> Self {
        Self(Value::string(value, text))
    }

    fn array(items: Vec<Self>, _text: &'a str) -> Self {
        Self(Value::Array(items.into_iter().map(|Self(item)| item).collect()))
    }

    fn object(entries: Members<Self>, _text: &'a str) -> Self {
        Self(Value::Object(entries.into_iter().map(|(key, Self(value))| (key, value)).collect()))
    }
}
