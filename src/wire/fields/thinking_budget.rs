//! `thinking_token_budget`: this server keeps no budget, so it refuses them.

use serde_json::Value;

use super::before::{Checked, given};
use crate::{
    json::{Kind, Node},
    wire::error::ApiError,
};

const FIELD: &str = "thinking_token_budget";

/// Checks the field as it was sent.
pub(crate) fn check_budget(body: &Node<'_>) -> Checked {
    match given(body, FIELD) {
        None => Ok(()),
        Some(Node { kind: Kind::Int(value), .. }) if value.to_i128().is_none_or(|value| value >= -1) => Ok(()),
        Some(budget) => Err(no_budget(budget.python_str())),
    }
}

fn no_budget(value: String) -> ApiError {
    let message = "`thinking_token_budget` must be a non-negative integer or -1 for unlimited.";
    ApiError::refused(FIELD, message, Some(value))
}

/// Refuses every budget except -1, which stands for no budget. vLLM refuses them only without a reasoning parser, and
/// says so.
pub(crate) fn refuse_thinking_budget(budget: Option<&Value>) -> Result<(), ApiError> {
    match budget.map(|budget| (budget, budget.as_i64())) {
        None | Some((Value::Null, _) | (_, Some(-1))) => Ok(()),
        Some((_, Some(0..))) => Err(ApiError::invalid(
            FIELD,
            "thinking_token_budget is set but this server keeps no budget for thinking: leave it out, or set it to -1",
        )),
        Some((budget, _)) => {
            let value = budget.as_str().map_or_else(|| budget.to_string(), str::to_owned);
            Err(no_budget(value))
        }
    }
}
