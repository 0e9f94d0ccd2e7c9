//! A field that an endpoint does not serve, and which values of it ask for something.

use crate::json::{Node, NodeKind};

/// What there is instead of a field that has no other name here.
pub(super) const NOTHING_LIKE_IT: &str = "this server has nothing like it";

/// A field that an endpoint does not serve.
#[derive(Debug)]
pub(crate) struct ForeignField {
    /// What the field is called.
    pub(crate) name: &'static str,
    /// What to send instead.
    pub(crate) instead: &'static str,
    /// Whether a value of it, in a body, asks for something.
    pub(super) asks: fn(&Node<'_>, &Node<'_>) -> bool,
}

/// A field of which all that Python takes for true asks for something.
pub(super) const fn field(name: &'static str, instead: &'static str) -> ForeignField {
    ForeignField { name, instead, asks: |value, _| value.is_truthy() }
}

/// A field of which 0 asks for something too.
pub(super) const fn given(name: &'static str, instead: &'static str) -> ForeignField {
    ForeignField { name, instead, asks: |value, _| !value.is_null() }
}

/// A number of which 0 asks for something too, and which some clients send as `false` for nothing.
pub(super) const fn number_or_off(name: &'static str, instead: &'static str) -> ForeignField {
    ForeignField { name, instead, asks: |value, _| !matches!(value.kind, NodeKind::Null | NodeKind::Bool(false)) }
}

/// A position, of which -1 is none and 0 the first one.
pub(super) const fn position(name: &'static str, instead: &'static str) -> ForeignField {
    ForeignField {
        name,
        instead,
        asks: |value, _| match &value.kind {
            NodeKind::Int(position) => position.to_i128() != Some(-1),
            _ => value.is_truthy(),
        },
    }
}

/// A field that is true by default, so that only `false` asks for something.
pub(super) const fn switch(name: &'static str, instead: &'static str) -> ForeignField {
    ForeignField { name, instead, asks: |value, _| matches!(value.kind, NodeKind::Bool(false)) }
}

/// A number of which 1 asks for what is done anyway.
pub(super) const fn number_of_answers(name: &'static str, instead: &'static str) -> ForeignField {
    ForeignField {
        name,
        instead,
        asks: |value, _| match &value.kind {
            NodeKind::Int(count) => !matches!(count.to_i128(), Some(0 | 1)),
            _ => value.is_truthy(),
        },
    }
}
