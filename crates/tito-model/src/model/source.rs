//! Where a model is, and its tokenizer there.

use std::path::{Path, PathBuf};

use super::{HubOptions, ModelError, TokenizerConfig, hub};
use crate::{
    gguf::GgufFile,
    tokenizer::{Tokenizer, TokenizerError},
};

/// Where a model's weights are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelSource {
    /// A GGUF file, which holds everything.
    Gguf {
        /// The file.
        path: PathBuf,
    },
    /// A Hugging Face directory.
    Directory {
        /// The directory.
        path: PathBuf,
    },
}

impl ModelSource {
    /// Tells by its name what a path is.
    pub(super) fn at(path: &Path) -> Result<Self, ModelError> {
        let is_gguf = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
        match (path.is_dir(), is_gguf) {
            (true, _) => Ok(Self::Directory { path: path.to_owned() }),
            (false, true) => Ok(Self::Gguf { path: path.to_owned() }),
            (false, false) => Err(ModelError::NotAModel(path.to_owned())),
        }
    }
}

/// Reads the tokenizer, with the added tokens that only its configuration lists.
pub(super) fn tokenizer_of(source: &ModelSource, config: &TokenizerConfig) -> Result<Tokenizer, ModelError> {
    let tokenizer = match source {
        ModelSource::Gguf { path } => {
            let wrong = |reason| ModelError::InGguf { path: path.clone(), reason };
            GgufFile::open(path)?.tokenizer().map_err(wrong)?
        }
        ModelSource::Directory { path: directory } => {
            let path = directory.join("tokenizer.json");
            if !path.exists() {
                let next = "no other tokenizer format is read; write it with Transformers' \
                            AutoTokenizer.from_pretrained(…).save_pretrained(…)";
                return Err(ModelError::Missing { path, next });
            }
            Tokenizer::from_file(&path).map_err(|error| match error {
                TokenizerError::Read { .. } => ModelError::Tokenizer(error),
                error => ModelError::Invalid { path, reason: error.to_string() },
            })?
        }
    };
    let tokens = config.tokens_to_add(&tokenizer);
    let tokenizer = if tokens.is_empty() { tokenizer } else { tokenizer.with_added_tokens(&tokens)? };
    tokenizer.prepare();
    Ok(tokenizer)
}

/// Finds what an existing path or a hub id stands for.
pub(super) async fn locate(model: &str, hub: &HubOptions) -> Result<PathBuf, ModelError> {
    let path = Path::new(model);
    if path.exists() {
        return Ok(path.to_owned());
    }
    if !hub::is_id(model) {
        return Err(ModelError::NotFound(model.to_owned()));
    }
    hub::directory(model, hub).await
}
