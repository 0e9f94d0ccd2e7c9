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

/// The most log-probs of one request, at all positions together: they are 256 MB before they are written as text.
const MOST_SCORES: usize = 1 << 26;

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
            return match self.prompt_logprob_start {
                None => Ok(None),
                Some(start) => {
                    Err(ApiError::refused(START, format!("{START} requires {IDS}."), Some(start.to_string())))
                }
            };
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
                prompt.check_width(ids.len(), positions)?;
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
                prompt.check_width(width, positions)?;
                let candidate = |id| if id == -1 { Ok(None) } else { prompt.known_id(id).map(Some) };
                let rows = rows.into_iter().map(|row| row.into_iter().map(candidate).collect());
                Ok(Some(Candidates::of_rows(first, width, rows.collect::<Result<Vec<Vec<_>>, _>>()?)))
            }
        }
    }
}

impl Prompt {
    fn check_width(&self, width: usize, positions: usize) -> Result<(), ApiError> {
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
            _ if width.saturating_mul(positions) > MOST_SCORES => {
                let message = format!(
                    "{IDS} of length {width} at {positions} positions asks for more than {MOST_SCORES} log-probs in one \
                     request: ask for some positions at a time, by {START} and shorter prompts."
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_probs_that_no_answer_has_room_for_are_refused_before_anything_is_made_of_them() {
        let prompt = Prompt { len: 8000, vocab_size: 1 << 20, most: None };
        assert!(prompt.check_width(8192, 8192).is_ok());
        assert!(prompt.check_width(8193, 8192).is_err());
        assert!(prompt.check_width(usize::MAX, 2).is_err());
        let mut rows = vec![serde_json::json!([]); 7999];
        rows[0] = serde_json::json!(vec![1; 100_000]);
        let body = serde_json::json!({ "prompt_logprob_token_ids": rows });
        let mut fields: SamplingParamsFields = serde_json::from_value(body).unwrap();
        assert!(fields.candidates(&prompt).is_err());
    }
}
