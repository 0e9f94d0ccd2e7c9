//! Text to token ids and back.
//!
//! Owns the vocabulary, the special tokens and incremental decoding; the only module that names the `tokenizers` crate.
//! Refuses templates, and every tokenizer whose ids or text it could not reproduce exactly.

mod added_token;
mod byte_level;
mod byte_level_bpe;
mod decoding;
mod error;
mod incremental;

use std::{collections::HashSet, path::Path};

pub use added_token::AddedToken;
pub use byte_level_bpe::{ByteLevelBpe, Split};
pub use error::TokenizerError;
pub use incremental::IncrementalDecoder;
use serde::Deserialize;
use tokenizers::ModelWrapper;

use self::decoding::Decoding;
use crate::TokenId;

/// Where a token starts in a text, and where it ends.
pub type Offsets = (usize, usize);

/// A model's tokenizer.
#[derive(Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    decoding: Decoding,
    /// By id: whether a token has it.
    known: Vec<bool>,
    /// Sorted by id.
    added: Vec<AddedToken>,
    special: HashSet<TokenId>,
}

impl Tokenizer {
    /// Reads a tokenizer.json.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, TokenizerError> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|source| TokenizerError::Read { path: path.to_owned(), source })?;
        Self::from_bytes(&bytes)
    }

    /// Reads the content of a tokenizer.json. Truncation and padding in it are ignored.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TokenizerError> {
        /// The one part that the library reads without checking it.
        #[derive(Deserialize)]
        struct Declared {
            #[serde(default)]
            added_tokens: Vec<AddedToken>,
        }

        let inner = tokenizers::Tokenizer::from_bytes(bytes).map_err(|e| TokenizerError::Invalid(e.to_string()))?;
        let declared: Declared =
            serde_json::from_slice(bytes).map_err(|e| TokenizerError::Invalid(format!("added_tokens: {e}")))?;
        check_ids(&inner, &declared.added_tokens)?;
        Self::from_inner(inner)
    }

    fn from_inner(mut inner: tokenizers::Tokenizer) -> Result<Self, TokenizerError> {
        inner.with_padding(None);
        inner.with_truncation(None).map_err(|e| TokenizerError::Invalid(e.to_string()))?;
        if let ModelWrapper::BPE(bpe) = inner.get_model()
            && bpe.dropout.is_some_and(|dropout| dropout > 0.0)
        {
            return Err(TokenizerError::Unsupported("BPE dropout makes the ids random".to_owned()));
        }
        let mut known = Vec::new();
        for id in inner.get_vocab(true).into_values() {
            let index = id as usize;
            if known.len() <= index {
                known.resize(index + 1, false);
            }
            known[index] = true;
        }
        let mut added: Vec<AddedToken> = inner
            .get_added_tokens_decoder()
            .into_iter()
            .map(|(id, token)| AddedToken::from_library(id, token))
            .collect();
        added.sort_unstable_by_key(|token| token.id);
        // The library goes by the text, whatever attributes a token was added with later.
        let is_special = |token: &&AddedToken| inner.get_added_vocabulary().is_special_token(&token.content);
        let special = added.iter().filter(is_special).map(|token| token.id).collect();
        let decoding = Decoding::new(&inner)?;
        Ok(Self { inner, decoding, known, added, special })
    }

    /// Returns the tokenizer with more added tokens; a token that is there already takes the new attributes.
    ///
    /// Fails if a declared id is not the one that the vocabulary gives the token.
    pub fn with_added_tokens(self, tokens: &[AddedToken]) -> Result<Self, TokenizerError> {
        let Self { mut inner, .. } = self;
        inner.add_tokens(&tokens.iter().map(AddedToken::to_library).collect::<Vec<_>>());
        check_ids(&inner, tokens)?;
        Self::from_inner(inner)
    }

    /// Converts text to ids. `add_special_tokens` adds what the model family puts around a text, such as BOS.
    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<TokenId>, TokenizerError> {
        let encoding =
            self.inner.encode_fast(text, add_special_tokens).map_err(|e| TokenizerError::Encode(e.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Converts text to ids without adding any, and says where each token stands in the text, in characters.
    pub fn encode_with_offsets(&self, text: &str) -> Result<(Vec<TokenId>, Vec<Offsets>), TokenizerError> {
        let encoding =
            self.inner.encode_char_offsets(text, false).map_err(|e| TokenizerError::Encode(e.to_string()))?;
        Ok((encoding.get_ids().to_vec(), encoding.get_offsets().to_vec()))
    }

    /// Converts ids to text; bytes that are not UTF-8 become U+FFFD. An id without a token is an error.
    pub fn decode(&self, ids: &[TokenId], skip_special_tokens: bool) -> Result<String, TokenizerError> {
        if let Some(&id) = ids.iter().find(|&&id| !self.contains(id)) {
            return Err(TokenizerError::OutOfVocabulary(id));
        }
        self.inner.decode(ids, skip_special_tokens).map_err(|e| TokenizerError::Decode(e.to_string()))
    }

    /// Returns a token as the vocabulary spells it, such as `Ġhello`.
    pub fn token(&self, id: TokenId) -> Option<String> {
        if self.contains(id) { self.inner.id_to_token(id) } else { None }
    }

    /// Returns the id of a token as the vocabulary spells it.
    pub fn id_of(&self, token: &str) -> Option<TokenId> {
        self.inner.token_to_id(token)
    }

    /// Returns the bytes that a token stands for in the middle of a text.
    pub fn token_bytes(&self, id: TokenId) -> Result<Vec<u8>, TokenizerError> {
        let token = self.token(id).ok_or(TokenizerError::OutOfVocabulary(id))?;
        self.decoding.bytes(&self.inner, id, &token)
    }

    /// Returns the number of ids up to the largest one, added tokens included.
    pub fn vocab_size(&self) -> usize {
        self.known.len()
    }

    /// Returns whether a token has this id.
    pub fn contains(&self, id: TokenId) -> bool {
        self.known.get(id as usize).copied().unwrap_or(false)
    }

    /// Returns the added tokens, sorted by id.
    pub fn added_tokens(&self) -> &[AddedToken] {
        &self.added
    }

    /// Returns whether `skip_special_tokens` leaves this token out.
    pub fn is_special(&self, id: TokenId) -> bool {
        self.special.contains(&id)
    }

    /// Returns the tokenizer as the content of a tokenizer.json.
    pub fn to_json(&self) -> Result<String, TokenizerError> {
        self.inner.to_string(true).map_err(|e| TokenizerError::Invalid(e.to_string()))
    }
}

/// The library logs a token whose id differs from the declared one and goes on; ids would then be silently wrong.
fn check_ids(tokenizer: &tokenizers::Tokenizer, declared: &[AddedToken]) -> Result<(), TokenizerError> {
    for token in declared.iter().filter(|token| !token.content.is_empty()) {
        let actual = tokenizer
            .token_to_id(&token.content)
            .ok_or_else(|| TokenizerError::Invalid(format!("added token {:?} has no id", token.content)))?;
        if actual != token.id {
            return Err(TokenizerError::AddedTokenId { content: token.content.clone(), declared: token.id, actual });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
