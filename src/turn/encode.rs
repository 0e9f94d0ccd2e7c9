//! Prompts that are texts or token ids already, and need no template.

use std::sync::Arc;

use super::{TurnError, Turns, in_flight};
use crate::{TokenId, tokenizer::Extent};

impl Turns {
    /// Encodes as much of a text as `extent` asks for, away from the threads that serve connections.
    ///
    /// # Errors
    ///
    /// If the text has more ids than `extent` lets it have, or cannot be encoded.
    pub async fn encode(
        &self,
        text: String,
        add_special_tokens: bool,
        extent: Extent,
    ) -> Result<Vec<TokenId>, TurnError> {
        let tokenizer = Arc::clone(self.tokenizer());
        let encoded = in_flight::blocking(move || tokenizer.encode_part(&text, add_special_tokens, extent)).await??;
        if matches!(extent, Extent::AtMost(_)) {
            self.check_encoded(&encoded)?;
        }
        Ok(encoded)
    }

    /// Refuses a text that has more ids than the context holds; some of its ids may have been left out.
    pub(super) fn check_encoded(&self, ids: &[TokenId]) -> Result<(), TurnError> {
        self.check_length(ids, true)
    }

    /// Refuses a client's own ids if they are more than the context holds; ids that are encoded here are checked later.
    pub fn check_given(&self, ids: &[TokenId]) -> Result<(), TurnError> {
        self.check_length(ids, false)
    }

    fn check_length(&self, ids: &[TokenId], encoded_here: bool) -> Result<(), TurnError> {
        let (tokens, max_model_len) = (ids.len(), self.max_model_len);
        if tokens > max_model_len {
            return Err(TurnError::PromptTooLong { tokens, max_model_len, encoded_here });
        }
        Ok(())
    }
}
