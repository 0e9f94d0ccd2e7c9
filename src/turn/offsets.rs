//! Where the tokens of a prompt stand in its text.

use std::sync::Arc;

use super::{Truncation, TurnError, Turns, in_flight};
use crate::{
    TokenId,
    tokenizer::{Offsets, Tokenizer},
};

/// All of a prompt, before anything is cut off.
#[derive(Debug, Clone)]
pub enum WholePrompt {
    /// A text that is encoded.
    Text {
        /// The text.
        text: String,
        /// Whether the tokenizer adds its own special tokens; these stand nowhere in the text, and have `(0, 0)`.
        add_special_tokens: bool,
    },
    /// Ids; the text is what they decode to.
    Ids(Arc<[TokenId]>),
}

impl Turns {
    /// Returns where each of `ids`, which is what `truncation` leaves of a prompt, stands in the text of the whole
    /// prompt, in characters; `None` if that text does not encode to exactly these ids.
    ///
    /// # Errors
    ///
    /// If the work cannot be done now.
    pub async fn offsets(
        &self,
        prompt: WholePrompt,
        truncation: Option<Truncation>,
        ids: &Arc<[TokenId]>,
    ) -> Result<Option<Vec<Offsets>>, TurnError> {
        let (tokenizer, ids) = (Arc::clone(self.tokenizer()), Arc::clone(ids));
        in_flight::blocking(move || of_part(&tokenizer, prompt, truncation, &ids)).await
    }
}

fn of_part(
    tokenizer: &Tokenizer,
    prompt: WholePrompt,
    truncation: Option<Truncation>,
    ids: &[TokenId],
) -> Option<Vec<Offsets>> {
    let (text, adds, given) = match prompt {
        WholePrompt::Text { text, add_special_tokens } => (text, add_special_tokens, None),
        WholePrompt::Ids(ids) => (tokenizer.decode(&ids, false).ok()?, false, Some(ids)),
    };
    let (encoded, offsets) = tokenizer.encode_with_offsets(&text, adds).ok()?;
    if given.is_some_and(|given| *given != *encoded) {
        return None;
    }
    let whole: Vec<(TokenId, Offsets)> = encoded.into_iter().zip(offsets).collect();
    let kept = match truncation {
        Some(truncation) => truncation.of_encoded(whole, adds, tokenizer).ok()?,
        None => whole,
    };
    let (encoded, offsets): (Vec<TokenId>, Vec<Offsets>) = kept.into_iter().unzip();
    (*encoded == *ids).then_some(offsets)
}
