use std::path::PathBuf;

use crate::{TokenId, gguf::GgufError, tokenizer::TokenizerError};

/// Why a model's files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The argument is neither a path that exists nor a hub id.
    #[error("no such file or directory: {0}; pass a .gguf file, a model directory or a hub id such as Qwen/Qwen3-0.6B")]
    NotFound(String),
    /// The path is a file, but not a GGUF file.
    #[error("{} is neither a .gguf file nor a model directory; pass one of these, or a hub id", .0.display())]
    NotAModel(PathBuf),
    /// The hub's cache lacks it, and the network may not be used.
    #[error(
        "{name} is neither a directory here nor in the local Hugging Face cache, and HF_HUB_OFFLINE is set: unset it to download \
         the {what}, or pass a directory"
    )]
    NotCached {
        /// The hub id.
        name: String,
        /// What it should be: a model or an adapter.
        what: &'static str,
    },
    /// The hub refused or could not be reached.
    #[error("cannot download {model}: {reason}")]
    Hub {
        /// The hub id.
        model: String,
        /// What the hub's client met, and what to do about it.
        reason: String,
    },
    /// A directory lacks a file.
    #[error("{} does not exist; {next}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// What to do about it.
        next: &'static str,
    },
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// A file is not what its name says.
    #[error("invalid {}: {reason}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A special token is not in the vocabulary.
    #[error("the {role} {token:?} of the tokenizer configuration is not in the vocabulary")]
    UnknownSpecialToken {
        /// Such as `eos_token`.
        role: &'static str,
        /// Its text.
        token: String,
    },
    /// A token that is to end generations is none that the model can sample.
    #[error("invalid {}: {field} names the token {id}, and the model's vocabulary has {tokens}", path.display())]
    EndOutOfVocabulary {
        /// The file.
        path: PathBuf,
        /// Where the file says so.
        field: &'static str,
        /// The token's id.
        id: TokenId,
        /// The number of tokens.
        tokens: usize,
    },
    /// The GGUF file cannot be used.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// What a GGUF file says cannot be used.
    #[error("invalid {}: {reason}", path.display())]
    InGguf {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: GgufError,
    },
    /// The tokenizer cannot be used.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
}
