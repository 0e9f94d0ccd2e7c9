//! `truncate_prompt_tokens` and `truncation_side`: which tokens of a prompt are kept (vLLM `renderers/params.py`).

use crate::{
    json::Path,
    turn::{Side, Truncation},
    wire::{error::ApiError, fields::sampling::TruncationSide},
};

/// The fields of a request that limit its prompt.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TruncationFields {
    /// Keep this many tokens of a prompt that is longer; -1 keeps what the context holds.
    pub truncate_prompt_tokens: Option<i64>,
    /// Which end is cut off: `left` (the default) or `right`.
    pub truncation_side: Option<TruncationSide>,
}

impl TruncationFields {
    /// Checks the fields against a context of `max_model_len` tokens, of which some are wanted for output.
    pub(crate) fn resolve(self, max_model_len: usize, max_tokens: Option<i64>) -> Result<Option<Truncation>, ApiError> {
        let Some(asked) = self.truncate_prompt_tokens else { return Ok(None) };
        let limit = match asked {
            // As in vLLM 0.33, there is room for a token unless the request wants none.
            -1 if max_tokens != Some(0) => max_model_len.saturating_sub(1),
            -1 => max_model_len,
            asked => usize::try_from(asked).map_err(|_| {
                let message = "1 validation error:\n  body.truncate_prompt_tokens: Input should be greater than or \
                               equal to -1";
                ApiError::malformed(Some(Path::from("body").then("truncate_prompt_tokens")), message)
            })?,
        };
        if limit > max_model_len {
            let message = format!(
                "truncate_prompt_tokens={asked} cannot be greater than max_model_len = {max_model_len}. Please request \
                 a smaller truncation size. (parameter=truncate_prompt_tokens, value={asked})"
            );
            return Err(ApiError::invalid("truncate_prompt_tokens", message));
        }
        Ok(Some(Truncation { limit, side: self.truncation_side.map(Side::from) }))
    }
}

impl From<TruncationSide> for Side {
    fn from(side: TruncationSide) -> Self {
        match side {
            TruncationSide::Left => Self::Left,
            TruncationSide::Right => Self::Right,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minus_one_leaves_room_for_a_token_where_tokens_are_asked_for() {
        let limit = |asked, max_tokens| {
            let fields = TruncationFields { truncate_prompt_tokens: Some(asked), truncation_side: None };
            fields.resolve(10, max_tokens).map(|truncation| truncation.map(|truncation| truncation.limit))
        };
        assert_eq!(limit(-1, Some(3)), Ok(Some(9)));
        assert_eq!(limit(-1, None), Ok(Some(9)));
        assert_eq!(limit(-1, Some(0)), Ok(Some(10)));
        assert_eq!(limit(10, None), Ok(Some(10)));
        assert_eq!(limit(11, None).unwrap_err().body().error.param.as_deref(), Some("truncate_prompt_tokens"));
        assert!(limit(-2, None).is_err());
    }
}
