//! The tokenizer of a GGUF file.

use super::{GgufError, GgufFile, pre_tokenizer};
use crate::{
    TokenId,
    tokenizer::{AddedToken, ByteLevelBpe, Piece, SentencePieceBpe, Tokenizer},
};

/// A token as the model writes it.
const NORMAL: i64 = 1;
/// The token of what has no other.
const UNKNOWN: i64 = 2;
/// A special token.
pub(super) const CONTROL: i64 = 3;
/// A token that is matched in the text, but is not special.
const USER_DEFINED: i64 = 4;
/// A place in the embeddings that no token uses.
const UNUSED: i64 = 5;
/// A single byte.
const BYTE: i64 = 6;

/// Architectures of models whose added tokens swallow white space: Phi-4's do on both sides, Phi-4-mini's behind them.
const STRIPPING: [&str; 1] = ["phi3"];

/// A place in the embeddings.
struct Token {
    content: String,
    id: TokenId,
    kind: i64,
}

impl Token {
    /// The token if it is one that is matched in the text.
    fn added(&self) -> Option<AddedToken> {
        let is_added = [UNKNOWN, CONTROL, USER_DEFINED].contains(&self.kind);
        is_added.then(|| AddedToken::verbatim(self.id, &self.content, self.kind != USER_DEFINED))
    }
}

impl GgufFile {
    /// Builds the tokenizer; its ids are those of the tokenizer.json that the file was converted from.
    ///
    /// Only byte-level BPE with a known pre-tokenizer, and `SentencePiece`'s BPE that puts no space before a text, are
    /// supported; anything else is an error.
    pub fn tokenizer(&self) -> Result<Tokenizer, GgufError> {
        match self.metadata().required_text("tokenizer.ggml.model")? {
            "gpt2" => self.byte_level(),
            "llama" => self.sentence_piece(),
            model => Err(GgufError::TokenizerModel(model.to_owned())),
        }
    }

    fn byte_level(&self) -> Result<Tokenizer, GgufError> {
        let metadata = self.metadata();
        if metadata.flag("tokenizer.ggml.add_space_prefix")? == Some(true) {
            return Err(GgufError::Invalid {
                key: "tokenizer.ggml.add_space_prefix".to_owned(),
                expected: "false, the only value that byte-level BPE defines",
            });
        }
        // `lstrip` and `rstrip` of a tokenizer.json, for which files have no key.
        if STRIPPING.contains(&self.architecture()?) {
            return Err(GgufError::TokenizerRules("its added tokens may swallow the white space beside them"));
        }
        let name = metadata.required_text("tokenizer.ggml.pre")?;
        let pre = pre_tokenizer::lookup(name).ok_or_else(|| GgufError::PreTokenizer(name.to_owned()))?;
        let tokens = self.tokens(&[NORMAL, CONTROL, USER_DEFINED, UNUSED])?;
        let added_tokens = tokens.iter().filter_map(Token::added).collect();
        let used = tokens.into_iter().filter(|token| token.kind != UNUSED);
        let parts = ByteLevelBpe {
            vocab: used.map(|token| (token.content, token.id)).collect(),
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

    /// The tokenizer of Gemma, and of whatever else puts no space before a text. Where one does, `legacy` of
    /// `tokenizer_config.json` decides whether it also stands after special tokens within a text, which converters leave out.
    fn sentence_piece(&self) -> Result<Tokenizer, GgufError> {
        let metadata = self.metadata();
        let space = metadata.flag("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
        let trims = metadata.flag("tokenizer.ggml.remove_extra_whitespaces")?.unwrap_or(false);
        let rewrites = metadata.has("tokenizer.ggml.precompiled_charsmap");
        if let Some((_, what)) = [
            (space, "it puts a space before a text, and the file does not say whether also after special tokens"),
            (trims, "it removes spaces from a text"),
            (rewrites, "it replaces characters by a table"),
        ]
        .into_iter()
        .find(|(is, _)| *is)
        {
            return Err(GgufError::TokenizerRules(what));
        }
        let mut tokens = self.tokens(&[NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE])?;
        // Converters write both a space and the vocabulary's character for one as a space in tokens that users have defined.
        // Of nothing but spaces there are those of Gemma, whose tokenizer.json has that character.
        for token in tokens.iter_mut().filter(|token| token.kind == USER_DEFINED && token.content.contains(' ')) {
            if token.content.chars().any(|character| character != ' ') {
                return Err(GgufError::TokenizerRules(
                    "one of the tokens that users have defined has a space within, which the file writes in the same way \
                     whether a text has it or the vocabulary",
                ));
            }
            token.content = token.content.replace(' ', "\u{2581}");
        }
        let parts = SentencePieceBpe {
            added_tokens: tokens.iter().filter_map(Token::added).collect(),
            pieces: self.pieces(tokens)?,
            unknown: metadata.token_id("tokenizer.ggml.unknown_token_id")?,
            bos: self.around_text("bos", true)?,
            eos: self.around_text("eos", false)?,
        };
        Ok(parts.build()?)
    }

    /// Tokens with their scores. Converters write those of tokens that users have defined, which `SentencePiece` prefers to
    /// all others, as the least.
    fn pieces(&self, tokens: Vec<Token>) -> Result<Vec<Piece>, GgufError> {
        let key = "tokenizer.ggml.scores";
        let scores = self.metadata().required_floats(key)?;
        if scores.len() != tokens.len() || scores.iter().any(|score| !score.is_finite()) {
            return Err(GgufError::Invalid { key: key.to_owned(), expected: "a finite number for each token" });
        }
        let used = tokens.into_iter().zip(scores).filter(|(token, _)| token.kind != UNUSED);
        let piece = |(token, score): (Token, f32)| {
            let score = if token.kind == USER_DEFINED { 0.0 } else { score };
            Piece { token: token.content, id: token.id, score }
        };
        Ok(used.map(piece).collect())
    }

    /// Returns the token of `role` if encoding adds it.
    fn around_text(&self, role: &str, default: bool) -> Result<Option<TokenId>, GgufError> {
        if !self.metadata().flag(&format!("tokenizer.ggml.add_{role}_token"))?.unwrap_or(default) {
            return Ok(None);
        }
        let key = format!("tokenizer.ggml.{role}_token_id");
        self.metadata().token_id(&key)?.map(Some).ok_or(GgufError::Missing(key))
    }

    /// The tokens of a file in which only these kinds may be.
    fn tokens(&self, kinds_of_model: &[i64]) -> Result<Vec<Token>, GgufError> {
        let tokens = self.metadata().required_texts("tokenizer.ggml.tokens")?;
        let kinds = self.metadata().required_integers("tokenizer.ggml.token_type")?;
        if kinds.len() != tokens.len() {
            let key = "tokenizer.ggml.token_type".to_owned();
            return Err(GgufError::Invalid { key, expected: "as long as `tokenizer.ggml.tokens`" });
        }
        let token = |(index, (content, kind)): (usize, (&str, i64))| match TokenId::try_from(index) {
            Ok(id) if kinds_of_model.contains(&kind) => Ok(Token { content: content.to_owned(), id, kind }),
            _ => Err(GgufError::TokenType { id: index, kind }),
        };
        tokens.into_iter().zip(kinds).enumerate().map(token).collect()
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
