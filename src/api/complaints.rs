//! Complaints about the shape of a body in pydantic's words, for endpoints that check by themselves.

use super::error::ApiError;

/// One complaint: its kind, its sentence, and what follows them.
fn complaint(place: &str, kind: &str, sentence: &str, rest: &str) -> ApiError {
    let message = format!("1 validation error:\n  {{'type': '{kind}', 'loc': '{place}', 'msg': '{sentence}', {rest}}}");
    ApiError::malformed(Some(place.to_owned()), message)
}

/// A list without an item.
pub(super) fn too_short(place: &str) -> ApiError {
    let sentence = "List should have at least 1 item after validation, not 0";
    let rest = "'input': '<list of 0 items>', 'ctx': {'field_type': 'List', 'min_length': 1, 'actual_length': 0}";
    complaint(place, "too_short", sentence, rest)
}

/// Not a list; `input` is what it is, in pydantic's words.
pub(super) fn not_a_list(place: &str, input: &str) -> ApiError {
    complaint(place, "list_type", "Input should be a valid list", &format!("'input': {input}"))
}

/// A field that is not there, of an object of `count` fields.
pub(super) fn missing(place: &str, count: usize) -> ApiError {
    complaint(place, "missing", "Field required", &format!("'input': '<dict of {count} items>'"))
}

/// A list of `count` items that breaks a rule.
pub(super) fn list_rule(place: &str, rule: &str, count: usize) -> ApiError {
    let rest = format!("'input': '<list of {count} items>', 'ctx': {{'error': ValueError('{rule}')}}");
    complaint(place, "value_error", &format!("Value error, {rule}"), &rest)
}
