//! `thinking_token_budget`: no budget is kept, as on a vLLM server without a reasoning configuration.

use serde_json::Value;

use super::error::ApiError;

/// Refuses every budget but -1, which is none, in vLLM's words.
pub(super) fn refuse_thinking_budget(budget: Option<&Value>) -> Result<(), ApiError> {
    match budget.map(|budget| (budget, budget.as_i64())) {
        None | Some((Value::Null, _) | (_, Some(-1))) => Ok(()),
        Some((_, Some(0..))) => Err(ApiError::invalid_request(
            "thinking_token_budget is set but reasoning_config is not configured. Please set --reasoning-parser and/or \
             --reasoning-config to use thinking_token_budget.",
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
