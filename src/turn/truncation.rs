//! Which tokens of a prompt that is too long are kept (vLLM `renderers/params.py`).

use super::TurnError;
use crate::tokenizer::{Extent, Tokenizer};

/// Which end of a prompt is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The start is cut off: the last tokens are kept.
    Left,
    /// The end is cut off: the first tokens are kept.
    Right,
}

/// A limit on the length of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncation {
    /// The number of tokens that are kept.
    pub limit: usize,
    /// The end that is cut off. `None` does what the tokenizer does: it cuts off the start of the text and puts its
    /// special tokens around the rest.
    pub side: Option<Side>,
}

impl Truncation {
    /// Whether a prompt of `tokens` would be cut.
    pub fn cuts(self, tokens: usize) -> bool {
        tokens > self.limit
    }

    /// Returns how much of a text has to be encoded: one token more than is kept, which shows that it is cut.
    pub fn extent(self) -> Extent {
        let count = self.limit.saturating_add(1);
        match self.side {
            Some(Side::Right) => Extent::First(count),
            Some(Side::Left) | None => Extent::Last(count),
        }
    }

    /// Returns the part of a prompt that is kept, of its ids or of what is known of each of them.
    pub fn of_ids<T>(self, mut ids: Vec<T>) -> Vec<T> {
        let surplus = ids.len().saturating_sub(self.limit);
        match self.side {
            Some(Side::Right) => ids.truncate(self.limit),
            Some(Side::Left) | None => {
                ids.drain(..surplus);
            }
        }
        ids
    }

    /// Returns the part that is kept of a text's ids, or of what is known of each of them. The tokenizer may have put
    /// special tokens around the text.
    pub fn of_encoded<T: Clone>(
        self,
        ids: Vec<T>,
        adds_special_tokens: bool,
        tokenizer: &Tokenizer,
    ) -> Result<Vec<T>, TurnError> {
        if !self.cuts(ids.len()) || !adds_special_tokens || self.side.is_some() {
            return Ok(self.of_ids(ids));
        }
        let (before, after) = around_a_text(tokenizer)?;
        let Some(room) = self.limit.checked_sub(before + after) else {
            return Err(TurnError::CutsSpecialTokens { special_tokens: before + after });
        };
        let end = ids.len() - after;
        Ok([&ids[..before], &ids[end - room..end], &ids[end..]].concat())
    }
}

/// Returns how many special tokens the tokenizer puts before and after a text.
fn around_a_text(tokenizer: &Tokenizer) -> Result<(usize, usize), TurnError> {
    const TEXT: &str = "a";
    let (plain, full) = (tokenizer.encode(TEXT, false)?, tokenizer.encode(TEXT, true)?);
    let before = full.windows(plain.len().max(1)).position(|window| window == plain);
    let before = before.ok_or_else(|| TurnError::internal("the tokenizer changes a text that it adds tokens to"))?;
    Ok((before, full.len() - before - plain.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_cut_off_unless_the_request_says_the_end() {
        let truncation = |limit, side| Truncation { limit, side };
        let ids = vec![1, 2, 3, 4];
        assert_eq!(truncation(3, None).of_ids(ids.clone()), [2, 3, 4]);
        assert_eq!(truncation(3, Some(Side::Left)).of_ids(ids.clone()), [2, 3, 4]);
        assert_eq!(truncation(3, Some(Side::Right)).of_ids(ids.clone()), [1, 2, 3]);
        assert_eq!(truncation(4, None).of_ids(ids.clone()), ids);
        assert!(truncation(0, None).of_ids(ids).is_empty());
    }
}
