//! `prompt_logprob_token_ids` and `prompt_logprob_start`: the tokens that a teacher scores at positions of a prompt.
//!
//! Shapes and limits are vLLM's (`docs/training/prompt_token_id_logprobs.md`): a list of ids for every position, or a list
//! of lists with one for each, where -1 is no candidate.

use serde::Deserialize;

use super::generate::SamplingParamsFields;
use crate::{
    TokenId,
    sampling::Candidates,
    wire::{error::ApiError, fields::sampling::known_id},
};

const IDS: &str = "prompt_logprob_token_ids";
const START: &str = "prompt_logprob_start";

/// The field in its two forms.
#[derive(Deserialize)]
#[serde(untagged)]
enum CandidatesField {
    Same(Vec<i64>),
    Rows(Vec<Vec<i64>>),
}

/// The prompt that candidates are for, and the limits of the server.
pub(crate) struct Prompt {
    pub(crate) len: usize,
    pub(crate) vocab_size: usize,
    /// How many candidates a position may have.
    pub(crate) most: Option<usize>,
}

impl SamplingParamsFields {
    /// Reads the candidates for the tokens of `prompt`.
    pub(crate) fn candidates(&mut self, prompt: &Prompt) -> Result<Option<Candidates>, ApiError> {
        let Some(value) = self.prompt_logprob_token_ids.take().filter(|value| !value.is_null()) else {
            return Ok(None);
        };
        let given = serde_json::from_value(value).map_err(|_| {
            ApiError::refused(IDS, format!("{IDS} must be a list of integers, or a list of such lists."), None)
        })?;
        let asked = self.prompt_logprob_start.unwrap_or(0);
        let first = usize::try_from(asked)
            .map_err(|_| ApiError::refused(START, format!("{START} must be non-negative."), Some(asked.to_string())))?;
        let positions = prompt.len.saturating_sub(1).saturating_sub(first);
        if positions == 0 {
            let len = prompt.len;
            let message = format!("{START} leaves no position of a prompt of {len} tokens to score.");
            return Err(ApiError::refused(START, message, Some(asked.to_string())));
        }
        match given {
            CandidatesField::Same(ids) => {
                prompt.check_width(ids.len())?;
                let ids = ids.into_iter().map(|id| prompt.known_id(id)).collect::<Result<_, _>>()?;
                Ok(Some(Candidates::same(first, ids)))
            }
            CandidatesField::Rows(rows) => {
                if rows.len() != positions {
                    let count = rows.len();
                    let message = format!(
                        "{IDS} has {count} rows, but the prompt has {positions} scored rows (prompt_len - 1 - {START})."
                    );
                    return Err(ApiError::refused(IDS, message, Some(count.to_string())));
                }
                let width = rows.iter().map(Vec::len).max().unwrap_or(0);
                prompt.check_width(width)?;
                let candidate = |id| if id == -1 { Ok(None) } else { prompt.known_id(id).map(Some) };
                let rows = rows.into_iter().map(|row| row.into_iter().map(candidate).collect());
                Ok(Some(Candidates::of_rows(first, width, rows.collect::<Result<Vec<Vec<_>>, _>>()?)))
            }
        }
    }
}

impl Prompt {
    fn check_width(&self, width: usize) -> Result<(), ApiError> {
        if width == 0 {
            return Err(ApiError::refused(IDS, format!("{IDS} must not be empty."), Some(width.to_string())));
        }
        match self.most {
            Some(most) if width > most => {
                let message = format!(
                    "Requested {IDS} of length {width}, which is greater than max allowed: {most}. Set max_logprobs \
                     (--max-logprobs) to at least {width}."
                );
                Err(ApiError::refused(IDS, message, Some(width.to_string())))
            }
            _ => Ok(()),
        }
    }

    fn known_id(&self, id: i64) -> Result<TokenId, ApiError> {
        known_id(id, self.vocab_size).ok_or_else(|| {
            let message = format!(
                "token_id(s) [{id}] in {IDS} contain out-of-vocab token ids. Vocabulary size: {}",
                self.vocab_size
            );
            ApiError::refused(IDS, message, Some(format!("[{id}]")))
        })
    }
}
