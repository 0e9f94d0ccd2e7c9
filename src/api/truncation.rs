//! `truncate_prompt_tokens` and `truncation_side`: which tokens of a prompt are kept (vLLM `renderers/params.py`).

use serde::Deserialize;
use utoipa::ToSchema;

use super::error::ApiError;
use crate::{
    TokenId,
    tokenizer::{Extent, Tokenizer},
};

/// Which end of a prompt is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum TruncationSide {
    /// The start: the last tokens are kept.
    Left,
    /// The end: the first tokens are kept.
    Right,
}

/// The fields of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct TruncationFields {
    /// Keep this many tokens of a prompt that is longer; -1 keeps what the context holds.
    pub truncate_prompt_tokens: Option<i64>,
    /// Which end is cut off: `left` (the default) or `right`.
    pub truncation_side: Option<TruncationSide>,
}

/// A limit to the length of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Truncation {
    limit: usize,
    /// `None` is what the tokenizer does: it cuts the start off the text and puts its special tokens around the rest.
    side: Option<TruncationSide>,
}

impl TruncationFields {
    /// Checks the fields against a context of `max_model_len` tokens, of which some are wanted for output.
    pub(super) fn resolve(self, max_model_len: usize, max_tokens: Option<i64>) -> Result<Option<Truncation>, ApiError> {
        let Some(asked) = self.truncate_prompt_tokens else { return Ok(None) };
        let limit = match asked {
            // vLLM leaves room for a token only where the request says how many it wants.
            -1 if max_tokens.unwrap_or(0) != 0 => max_model_len.saturating_sub(1),
            -1 => max_model_len,
            asked => usize::try_from(asked).map_err(|_| {
                let message = "1 validation error:\n  body.truncate_prompt_tokens: Input should be greater than or \
                               equal to -1";
                ApiError::malformed(Some("body.truncate_prompt_tokens".to_owned()), message)
            })?,
        };
        if limit > max_model_len {
            let message = format!(
                "truncate_prompt_tokens={asked} cannot be greater than max_model_len = {max_model_len}. Please request \
                 a smaller truncation size. (parameter=truncate_prompt_tokens, value={asked})"
            );
            return Err(ApiError::invalid("truncate_prompt_tokens", message));
        }
        Ok(Some(Truncation { limit, side: self.truncation_side }))
    }
}

impl Truncation {
    /// Whether a prompt of `tokens` would be cut.
    pub(super) fn cuts(self, tokens: usize) -> bool {
        tokens > self.limit
    }

    /// What has to be encoded of a text: one token more than is kept, which shows that it is cut.
    pub(super) fn extent(self) -> Extent {
        let count = self.limit.saturating_add(1);
        match self.side {
            Some(TruncationSide::Right) => Extent::First(count),
            Some(TruncationSide::Left) | None => Extent::Last(count),
        }
    }

    /// The part of a prompt that is kept.
    pub(super) fn of_ids(self, mut ids: Vec<TokenId>) -> Vec<TokenId> {
        let surplus = ids.len().saturating_sub(self.limit);
        match self.side {
            Some(TruncationSide::Right) => ids.truncate(self.limit),
            Some(TruncationSide::Left) | None => {
                ids.drain(..surplus);
            }
        }
        ids
    }

    /// The part that is kept of a text's ids, around which the tokenizer may have put special tokens.
    pub(super) fn of_encoded(
        self,
        ids: Vec<TokenId>,
        adds_special_tokens: bool,
        tokenizer: &Tokenizer,
    ) -> Result<Vec<TokenId>, ApiError> {
        if !self.cuts(ids.len()) || !adds_special_tokens || self.side.is_some() {
            return Ok(self.of_ids(ids));
        }
        let (before, behind) = around_a_text(tokenizer)?;
        let Some(room) = self.limit.checked_sub(before + behind) else {
            let message = format!(
                "the tokenizer puts {} special tokens around the text, which `truncate_prompt_tokens` leaves no room for",
                before + behind
            );
            return Err(ApiError::invalid("truncate_prompt_tokens", message));
        };
        let end = ids.len() - behind;
        Ok([&ids[..before], &ids[end - room..end], &ids[end..]].concat())
    }
}

/// How many special tokens the tokenizer puts before and behind a text.
fn around_a_text(tokenizer: &Tokenizer) -> Result<(usize, usize), ApiError> {
    const TEXT: &str = "a";
    let (plain, full) = (tokenizer.encode(TEXT, false)?, tokenizer.encode(TEXT, true)?);
    let before = full.windows(plain.len().max(1)).position(|window| window == plain);
    let before = before.ok_or_else(|| ApiError::internal("the tokenizer changes a text that it adds tokens to"))?;
    Ok((before, full.len() - before - plain.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truncation(limit: usize, side: Option<TruncationSide>) -> Truncation {
        Truncation { limit, side }
    }

    #[test]
    fn the_start_is_cut_off_unless_the_request_says_the_end() {
        let ids = vec![1, 2, 3, 4];
        assert_eq!(truncation(3, None).of_ids(ids.clone()), [2, 3, 4]);
        assert_eq!(truncation(3, Some(TruncationSide::Left)).of_ids(ids.clone()), [2, 3, 4]);
        assert_eq!(truncation(3, Some(TruncationSide::Right)).of_ids(ids.clone()), [1, 2, 3]);
        assert_eq!(truncation(4, None).of_ids(ids.clone()), ids);
        assert!(truncation(0, None).of_ids(ids).is_empty());
    }

    #[test]
    fn minus_one_leaves_room_for_a_token_where_tokens_are_asked_for() {
        let limit = |asked, max_tokens| {
            let fields = TruncationFields { truncate_prompt_tokens: Some(asked), truncation_side: None };
            fields.resolve(10, max_tokens).map(|truncation| truncation.map(|truncation| truncation.limit))
        };
        assert_eq!(limit(-1, Some(3)), Ok(Some(9)));
        assert_eq!(limit(-1, None), Ok(Some(10)));
        assert_eq!(limit(10, None), Ok(Some(10)));
        assert_eq!(limit(11, None).unwrap_err().body().error.param.as_deref(), Some("truncate_prompt_tokens"));
        assert!(limit(-2, None).is_err());
    }
}
