use std::path::PathBuf;

use crate::{files::Changed, tokenizer::TokenizerError};

/// Why a GGUF file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// The file cannot be opened.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// The file is of another format.
    #[error("{} is not a GGUF file", path.display())]
    NotGguf {
        /// The file.
        path: PathBuf,
    },
    /// The header or a tensor cannot be read.
    #[error("cannot read {}; it may be truncated or damaged: {reason}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the reader met.
        reason: String,
    },
    /// Somebody wrote to the file while it was read.
    #[error(transparent)]
    Changed(#[from] Changed),
    /// The file ends before its tensors do.
    #[error("{} is truncated: {missing_bytes} bytes are missing", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// How many bytes the tensors go beyond the end.
        missing_bytes: u64,
    },
    /// The file is one part of several.
    #[error("{} is one of {parts} parts; merge them first, for example with `llama-gguf-split --merge`", path.display())]
    Split {
        /// The file.
        path: PathBuf,
        /// How many parts there are.
        parts: i64,
    },
    /// The metadata lacks a key.
    #[error("GGUF metadata has no `{0}`")]
    Missing(String),
    /// The metadata has a key with a value that cannot be meant.
    #[error("GGUF metadata `{key}` is not {expected}")]
    Invalid {
        /// The key.
        key: String,
        /// What it should be.
        expected: &'static str,
    },
    /// The model is one whose arithmetic config.json could not say exactly.
    #[error("this GGUF file's model is not supported: {0}")]
    Unsupported(String),
    /// A tensor is missing, or cannot be used.
    #[error("tensor {name}: {reason}")]
    Tensor {
        /// Its name in the file.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The system has no memory for what is read.
    #[error("the system has no room for the file's weights")]
    NoRoom,
    /// The vocabulary is of another kind.
    #[error(
        "GGUF tokenizer model `{0}` is not supported, only byte-level BPE (`gpt2`) and SentencePiece's (`llama`); \
         pass a directory with its tokenizer.json as --tokenizer"
    )]
    TokenizerModel(String),
    /// The tokenizer has rules that the file does not say as a tokenizer.json does.
    #[error(
        "the tokenizer of this GGUF file is not supported: {0}, and guessing would give wrong token ids; \
         pass a directory with its tokenizer.json as --tokenizer"
    )]
    TokenizerRules(&'static str),
    /// It is not known how the tokenizer cuts a text into words.
    #[error(
        "GGUF pre-tokenizer `{0}` is not supported, and guessing would give wrong token ids; \
         pass a directory with its tokenizer.json as --tokenizer (supported: {supported})",
        supported = super::pre_tokenizer::SUPPORTED.join(", ")
    )]
    PreTokenizer(String),
    /// A token is of a kind that the tokenizer's model does not have.
    #[error("GGUF token {id} has type {kind}, which tokenizers of its kind do not have")]
    TokenType {
        /// The token's id.
        id: usize,
        /// Its `tokenizer.ggml.token_type`.
        kind: i64,
    },
    /// The vocabulary is not a tokenizer.
    #[error("GGUF tokenizer: {0}")]
    Tokenizer(#[from] TokenizerError),
}
