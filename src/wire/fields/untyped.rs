//! Helpers for checks that look at a body before the types of its fields are known, as vLLM 0.32 has them: there the
//! check that is declared last runs first.

use crate::{
    json::{Node, NodeKind},
    wire::error::{ApiError, wording::Sentence},
};

pub(crate) type Checked = Result<(), ApiError>;

/// Refuses a field with a message.
pub(crate) fn refuse(field: &'static str, message: impl Into<Sentence>) -> Checked {
    Err(ApiError::refused(field, message, None))
}

/// Whether Python counts a field as true.
pub(crate) fn is_true(body: &Node<'_>, key: &str) -> bool {
    body.get(key).is_some_and(Node::is_truthy)
}

/// Takes a field for another one that the body has not got, as clients of other dialects call it.
pub(crate) fn take_for(body: &mut Node<'_>, name: &str, other: &str) {
    let NodeKind::Object(fields) = &mut body.kind else { return };
    if let Some(value) = fields.shift_remove(other).filter(|value| !value.is_null())
        && fields.get(name).is_none_or(Node::is_null)
    {
        fields.insert(name.to_owned(), value);
    }
}

/// Takes a field for another one that means the same, as [`take_for`] does. Two that differ are refused with `message`, since
/// only one of them could be served. An empty list says nothing.
pub(crate) fn take_spelling(body: &mut Node<'_>, name: &'static str, other: &str, message: &str) -> Checked {
    let says = |value: &&Node<'_>| match &value.kind {
        NodeKind::Null => false,
        NodeKind::List(items) => !items.is_empty(),
        _ => true,
    };
    let NodeKind::Object(fields) = &mut body.kind else { return Ok(()) };
    let Some(value) = fields.shift_remove(other).filter(|value| says(&value)) else { return Ok(()) };
    match fields.get(name).filter(says) {
        None => _ = fields.insert(name.to_owned(), value),
        Some(own) if items_of(own) == items_of(&value) => {}
        Some(_) => return refuse(name, message),
    }
    Ok(())
}

/// The items of a list, or the value itself, which is the same as a list of it.
fn items_of(value: &Node<'_>) -> Vec<String> {
    match &value.kind {
        NodeKind::List(items) => items.nodes().map(|item| item.python_repr()).collect(),
        _ => vec![value.python_repr()],
    }
}

/// The refusal of two lists of stop strings.
pub(crate) const TWO_STOPS: &str = "`stop` and `stop_sequences` are the same: send one of them";

/// Returns the value, unless it is absent or null.
pub(crate) fn non_null<'n, 'a>(body: &'n Node<'a>, key: &str) -> Option<&'n Node<'a>> {
    body.get(key).filter(|value| !value.is_null())
}

/// Refuses a value that Python cannot iterate over.
pub(crate) fn iterable(value: &Node<'_>) -> Checked {
    if matches!(value.kind, NodeKind::List(_) | NodeKind::Object(_) | NodeKind::String(_)) {
        return Ok(());
    }
    Err(ApiError::invalid_request(format!("'{}' object is not iterable", value.type_name())))
}

/// Returns a number, which may be a boolean, before it is known to be an integer.
pub(crate) fn number(body: &Node<'_>, field: &'static str) -> Result<Option<f64>, ApiError> {
    let Some(value) = non_null(body, field) else { return Ok(None) };
    match &value.kind {
        NodeKind::Bool(value) => Ok(Some(f64::from(u8::from(*value)))),
        NodeKind::Float(value) => Ok(Some(*value)),
        NodeKind::Int(value) => Ok(value.to_string().parse().ok()),
        _ => {
            let message = format!("`{field}` must be an integer.");
            Err(ApiError::refused(field, message, Some(value.python_str())))
        }
    }
}

/// Whether a number is -1.
pub(crate) fn is_minus_one(value: f64) -> bool {
    value.to_bits() == (-1.0_f64).to_bits()
}

/// Returns the message that refuses a negative number.
pub(crate) fn not_positive(field: &str) -> String {
    format!("`{field}` must be a positive value or -1.")
}

/// Refuses negative numbers other than -1.
pub(crate) fn not_negative(body: &Node<'_>, field: &'static str, value: Option<f64>) -> Checked {
    if value.is_some_and(|value| value < 0.0 && !is_minus_one(value)) {
        return Err(ApiError::refused(field, not_positive(field), body.get(field).map(Node::python_str)));
    }
    Ok(())
}
