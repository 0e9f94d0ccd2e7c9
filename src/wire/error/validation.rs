//! Errors of requests, in the form in which vLLM answers a pydantic error.

use std::fmt::Write as _;

use super::{ApiError, wording::place};
use crate::{
    json::{Path, Segment, string_repr},
    pydantic::{Complaint, Context, Issues},
};

impl From<Issues> for ApiError {
    fn from(issues: Issues) -> Self {
        let plural = if issues.len() == 1 { "" } else { "s" };
        let mut message = format!("{} validation error{plural}:", issues.len());
        for issue in issues.reported() {
            write!(message, "\n  {}", issue.line(&place(&in_body(&issue.path)))).expect("a string takes any text");
        }
        let unreported = issues.len() - issues.reported().len();
        if unreported > 0 {
            write!(message, "\n  ...and {unreported} more error{plural}").expect("a string takes any text");
        }
        Self::malformed(issues.reported().first().map(|issue| in_body(&issue.path)), message)
    }
}

fn in_body(path: &Path) -> Path {
    std::iter::once(Segment::Name("body")).chain(path.segments().iter().cloned()).collect()
}

/// Makes the error of a required field that is missing; without a path, the whole body is.
pub(crate) fn missing(path: impl Into<Path>) -> ApiError {
    single(path, Complaint::new("missing", "Field required"), "None")
}

/// Makes the error of a required field that is missing from an object of `count` fields.
pub(crate) fn missing_of(path: impl Into<Path>, count: usize) -> ApiError {
    single(path, Complaint::new("missing", "Field required"), &format!("<dict of {count} items>"))
}

/// Makes the error of a list without an item.
pub(crate) fn empty_list(path: impl Into<Path>) -> ApiError {
    let complaint = Complaint::new("too_short", "List should have at least 1 item after validation, not 0")
        .with("field_type", Context::Text("List".to_owned()))
        .with("min_length", Context::Int(1))
        .with("actual_length", Context::Int(0));
    single(path, complaint, "<list of 0 items>")
}

/// Makes the error of a value that is not a list; `input` is the value.
pub(crate) fn not_a_list(path: impl Into<Path>, input: &str) -> ApiError {
    single(path, Complaint::new("list_type", "Input should be a valid list"), input)
}

/// Makes the error of a list of `count` items that breaks a rule.
pub(crate) fn broken_rule(path: impl Into<Path>, rule: &'static str, count: usize) -> ApiError {
    single(path, Complaint::broken(rule), &format!("<list of {count} items>"))
}

/// Makes the error of a text that is not JSON from the character at `position` on, with the reason.
pub(crate) fn invalid_json(position: usize, reason: &str) -> ApiError {
    let complaint = Complaint::new("json_invalid", "JSON decode error").with("error", Context::Text(reason.to_owned()));
    single(Segment::from(position), complaint, "<dict of 0 items>")
}

fn single(path: impl Into<Path>, complaint: Complaint, input: &str) -> ApiError {
    Issues::single(path.into(), complaint, input).into()
}

/// Makes the error of a value that only this server refuses, with the reason.
pub(crate) fn value_error(path: &Path, reason: &str) -> ApiError {
    let (path, reason) = (in_body(path), string_repr(reason));
    let place = place(&path);
    let message = format!("1 validation error:\n  {{'type': 'value_error', 'loc': '{place}', 'msg': {reason}}}");
    ApiError::malformed(Some(path), message)
}
