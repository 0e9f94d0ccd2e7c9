//! The tokenizer of a GGUF file.

use super::{GgufError, GgufFile, pre_tokenizer};
use crate::{
    TokenId,
    tokenizer::{AddedToken, ByteLevelBpe, Tokenizer},
};

/// A token as the model writes it.
const NORMAL: i64 = 1;
/// A special token.
const CONTROL: i64 = 3;
/// A token that is matched in the text, but is not special.
const USER_DEFINED: i64 = 4;
/// A place in the embeddings that no token uses.
const UNUSED: i64 = 5;

impl GgufFile {
    /// Builds the tokenizer; its ids are those of the tokenizer.json that the file was converted from.
    ///
    /// Only byte-level BPE with a known pre-tokenizer is supported; anything else is an error.
    pub fn tokenizer(&self) -> Result<Tokenizer, GgufError> {
        let metadata = self.metadata();
        let model = metadata.required_text("tokenizer.ggml.model")?;
        if model != "gpt2" {
            return Err(GgufError::TokenizerModel(model.to_owned()));
        }
        if metadata.flag("tokenizer.ggml.add_space_prefix")? == Some(true) {
            return Err(GgufError::Invalid {
                key: "tokenizer.ggml.add_space_prefix".to_owned(),
                expected: "false, the only value that byte-level BPE defines",
            });
        }
        let name = metadata.required_text("tokenizer.ggml.pre")?;
        let pre = pre_tokenizer::lookup(name).ok_or_else(|| GgufError::PreTokenizer(name.to_owned()))?;
        let (vocab, added_tokens) = self.tokens()?;
        let parts = ByteLevelBpe {
            vocab,
            merges: self.merges()?,
            ignore_merges: pre.ignore_merges,
            nfc: pre.nfc,
            splits: pre.splits,
            added_tokens,
            bos: self.around_text("bos", pre.adds_bos)?,
            eos: self.around_text("eos", false)?,
        };
        Ok(parts.build()?)
    }

    /// Returns the token of `role` if encoding adds it.
    fn around_text(&self, role: &str, default: bool) -> Result<Option<TokenId>, GgufError> {
        if !self.metadata().flag(&format!("tokenizer.ggml.add_{role}_token"))?.unwrap_or(default) {
            return Ok(None);
        }
        let key = format!("tokenizer.ggml.{role}_token_id");
        self.metadata().token_id(&key)?.map(Some).ok_or(GgufError::Missing(key))
    }

    #[expect(clippy::type_complexity, reason = "the two parts of a vocabulary, used once")]
    fn tokens(&self) -> Result<(Vec<(String, TokenId)>, Vec<AddedToken>), GgufError> {
        let tokens = self.metadata().required_texts("tokenizer.ggml.tokens")?;
        let kinds = self.metadata().required_integers("tokenizer.ggml.token_type")?;
        if kinds.len() != tokens.len() {
            let key = "tokenizer.ggml.token_type".to_owned();
            return Err(GgufError::Invalid { key, expected: "as long as `tokenizer.ggml.tokens`" });
        }
        let (mut vocab, mut added) = (Vec::with_capacity(tokens.len()), Vec::new());
        for (index, (token, kind)) in tokens.into_iter().zip(kinds).enumerate() {
            let id = TokenId::try_from(index).map_err(|_| GgufError::TokenType { id: index, kind })?;
            match kind {
                NORMAL => {}
                CONTROL | USER_DEFINED => added.push(AddedToken::verbatim(id, token, kind == CONTROL)),
                UNUSED => continue,
                _ => return Err(GgufError::TokenType { id: index, kind }),
            }
            vocab.push((token.to_owned(), id));
        }
        Ok((vocab, added))
    }

    fn merges(&self) -> Result<Vec<(String, String)>, GgufError> {
        let key = "tokenizer.ggml.merges";
        let split = |merge: &str| match merge.split_once(' ') {
            Some((left, right)) if !right.contains(' ') => Ok((left.to_owned(), right.to_owned())),
            _ => Err(GgufError::Invalid { key: key.to_owned(), expected: "a list of pairs" }),
        };
        self.metadata().required_texts(key)?.into_iter().map(split).collect()
    }
}
