use std::path::PathBuf;

use crate::TokenId;

/// Why a tokenizer cannot be used, or a text or a sequence of ids cannot be converted.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The tokenizer.json.
        path: PathBuf,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// The definition is not a tokenizer, or contradicts itself.
    #[error("invalid tokenizer: {0}")]
    Invalid(String),
    /// The definition is valid, but its ids or its text could not be reproduced exactly.
    #[error("unsupported tokenizer: {0}")]
    Unsupported(String),
    /// A file declares an id for an added token that the vocabulary does not give it.
    #[error("added token {content:?} is declared with id {declared}, but the vocabulary gives it {actual}")]
    AddedTokenId {
        /// The token's text.
        content: String,
        /// The id in the file.
        declared: TokenId,
        /// The id in the vocabulary.
        actual: TokenId,
    },
    /// The text cannot be encoded.
    #[error("cannot encode the text: {0}")]
    Encode(String),
    /// The text has more bytes than the tokens that are allowed could stand for.
    #[error(
        "the text has {characters} characters in {bytes} bytes, and {most_tokens} tokens cannot stand for more than \
         {most_bytes} bytes"
    )]
    TooLong {
        /// The length of the text in bytes.
        bytes: usize,
        /// The length of the text in characters.
        characters: usize,
        /// What so many tokens can stand for.
        most_bytes: usize,
        /// What was allowed.
        most_tokens: usize,
    },
    /// A stretch of the text is longer than what is encoded at once.
    #[error(
        "the text has more than {most} bytes in a row that this tokenizer can only encode as one piece: put spaces or \
         line breaks into it, or send a shorter text"
    )]
    Uncuttable {
        /// What is encoded at once.
        most: usize,
    },
    /// The ids cannot be decoded.
    #[error("cannot decode the token ids: {0}")]
    Decode(String),
    /// No token has this id.
    #[error("token id {0} is out of vocabulary")]
    OutOfVocabulary(TokenId),
}
