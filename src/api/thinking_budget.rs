//! `thinking_token_budget`: no budget is kept.

use serde_json::Value;

use super::error::ApiError;

/// Refuses every budget but -1, which is none. vLLM refuses them without a reasoning parser only, and says so.
pub(super) fn refuse_thinking_budget(budget: Option<&Value>) -> Result<(), ApiError> {
    match budget.map(|budget| (budget, budget.as_i64())) {
        None | Some((Value::Null, _) | (_, Some(-1))) => Ok(()),
        Some((_, Some(0..))) => Err(ApiError::invalid(
            "thinking_token_budget",
            "thinking_token_budget is set but this server keeps no budget for thinking: leave it out, or set it to -1",
        )),
        Some((budget, _)) => {
            let value = budget.as_str().map_or_else(|| budget.to_string(), str::to_owned);
            let message = format!(
                "`thinking_token_budget` must be a non-negative integer or -1 for unlimited. \
                 (parameter=thinking_token_budget, value={value})"
            );
            Err(ApiError::invalid("thinking_token_budget", message))
        }
    }
}
