//! `thinking_token_budget`: the most tokens that an answer may spend on thoughts.

use serde_json::Value;

use super::untyped::{Checked, non_null};
use crate::{
    json::{Node, NodeKind},
    wire::error::ApiError,
};

const FIELD: &str = "thinking_token_budget";

/// Checks the field as it was sent.
pub(crate) fn check_budget(body: &Node<'_>) -> Checked {
    match non_null(body, FIELD) {
        None => Ok(()),
        Some(Node { kind: NodeKind::Int(value), .. }) if value.to_i128().is_none_or(|value| value >= -1) => Ok(()),
        Some(budget) => Err(no_budget(budget.python_str())),
    }
}

fn no_budget(value: String) -> ApiError {
    let message = "`thinking_token_budget` must be a non-negative integer or -1 for unlimited.";
    ApiError::refused(FIELD, message, Some(value))
}

/// Returns the budget as it was sent; -1 and null stand for none. One that no answer could use up is as good as none.
pub(crate) fn thinking_budget(asked: Option<&Value>) -> Result<Option<usize>, ApiError> {
    /// Integers from here on are read as floats.
    const BEYOND_INTEGERS: f64 = 9e18;

    let Some(asked) = asked.filter(|asked| !asked.is_null()) else { return Ok(None) };
    match asked.as_i64() {
        Some(-1) => Ok(None),
        Some(budget @ 0..) => Ok(usize::try_from(budget).ok()),
        None if asked.as_f64().is_some_and(|budget| budget >= BEYOND_INTEGERS) => Ok(None),
        _ => Err(no_budget(asked.as_str().map_or_else(|| asked.to_string(), str::to_owned))),
    }
}
