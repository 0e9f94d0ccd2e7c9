//! Tokens that are matched in the text before the model sees it.

use serde::{Deserialize, Serialize};

use crate::TokenId;

/// A token of the added vocabulary.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "the fields of the file format")]
pub struct AddedToken {
    /// Its id.
    pub id: TokenId,
    /// Its text.
    pub content: String,
    /// Matches only where no word character is next to it.
    #[serde(default)]
    pub single_word: bool,
    /// Swallows the white space to its left.
    #[serde(default)]
    pub lstrip: bool,
    /// Swallows the white space to its right.
    #[serde(default)]
    pub rstrip: bool,
    /// Is matched in the normalised text.
    #[serde(default)]
    pub normalized: bool,
    /// Is left out by `skip_special_tokens`.
    #[serde(default)]
    pub special: bool,
}

impl AddedToken {
    /// Makes a token that is matched verbatim: neither stripped nor normalised.
    pub fn verbatim(id: TokenId, content: impl Into<String>, special: bool) -> Self {
        Self {
            id,
            content: content.into(),
            single_word: false,
            lstrip: false,
            rstrip: false,
            normalized: false,
            special,
        }
    }

    pub(super) fn from_library(id: TokenId, token: tokenizers::AddedToken) -> Self {
        let tokenizers::AddedToken { content, single_word, lstrip, rstrip, normalized, special } = token;
        Self { id, content, single_word, lstrip, rstrip, normalized, special }
    }

    pub(super) fn to_library(&self) -> tokenizers::AddedToken {
        tokenizers::AddedToken::from(self.content.clone(), self.special)
            .single_word(self.single_word)
            .lstrip(self.lstrip)
            .rstrip(self.rstrip)
            .normalized(self.normalized)
    }
}
