//! Prompts that are texts or token ids already, and need no template.

use std::sync::Arc;

use super::{Truncation, TurnError, Turns, in_flight, noted::noted};
use crate::{
    TokenId,
    continuity::{TextRecorder, TextScope, Verdict},
    prompt::ChatPrompt,
    request_trace,
    tokenizer::Extent,
};

/// A prompt that came as a text, and how it becomes ids.
#[derive(Debug)]
pub struct PromptText {
    /// The text.
    pub text: String,
    /// Whether the tokenizer adds its special tokens.
    pub add_special_tokens: bool,
    /// How long the prompt may be.
    pub truncation: Option<Truncation>,
    /// Whose earlier texts it may go on from.
    pub scope: TextScope,
}

/// A text in ids.
#[derive(Debug)]
pub struct EncodedPrompt {
    /// The text, as it came.
    pub text: String,
    /// The ids.
    pub token_ids: Arc<[TokenId]>,
    /// What became of the ids of the answer that the text goes on from.
    pub verdict: Verdict,
    /// Remembers the answers.
    pub recorder: Option<Arc<TextRecorder>>,
}

impl Turns {
    /// Puts a text into ids that are to be continued, away from the threads that serve connections.
    ///
    /// # Errors
    ///
    /// If the text has more ids than fit, cannot be encoded, or has other ids than this server sampled and the server is
    /// strict about it.
    pub async fn prompt_text_into_ids(self: &Arc<Self>, prompt: PromptText) -> Result<EncodedPrompt, TurnError> {
        let turns = Arc::clone(self);
        let is_short = prompt.text.len() <= ChatPrompt::SHORT;
        let encoding = async move { in_flight::prompting(is_short, move || turns.encode_blocking(prompt)).await? };
        request_trace::prompting(encoding, |encoded| noted(&encoded.verdict)).await
    }

    fn encode_blocking(&self, prompt: PromptText) -> Result<EncodedPrompt, TurnError> {
        let PromptText { text, add_special_tokens, truncation, scope } = prompt;
        let extent = truncation.map_or(Extent::AtMost(self.max_model_len), Truncation::extent);
        let mut ids = self.tokenizer().encode_part(&text, add_special_tokens, extent)?;
        if matches!(extent, Extent::AtMost(_)) {
            self.check_encoded(&ids)?;
        }
        let cut = truncation.filter(|truncation| truncation.cuts(ids.len()));
        if let Some(truncation) = truncation {
            ids = truncation.of_encoded(ids, add_special_tokens, self.tokenizer())?;
        }
        let token_ids = ids.into();
        let (verdict, recorder) = self.continuity.judge_text(&scope, &text, &token_ids)?;
        // A later text has what was cut off.
        let recorder = recorder.filter(|_| cut.is_none()).map(Arc::new);
        Ok(EncodedPrompt { text, token_ids, verdict, recorder })
    }

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
        let is_short = text.len() <= ChatPrompt::SHORT;
        let encoding = move || tokenizer.encode_part(&text, add_special_tokens, extent);
        let encoded = in_flight::prompting(is_short, encoding).await??;
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
