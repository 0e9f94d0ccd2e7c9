//! Where a model is, and its tokenizer there.

use std::path::{Path, PathBuf};

use super::{HubOptions, ModelError, TokenizerConfig, hub, tokenizer_class::TokenizerClass};
use crate::{
    gguf::GgufFile,
    tokenizer::{AddedToken, Built, BuiltClass, BuiltKind, Tokenizer, TokenizerError},
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
    let (tokenizer, all_plain) = match source {
        ModelSource::Gguf { path } => {
            let wrong = |reason| ModelError::InGguf { path: path.clone(), reason };
            (GgufFile::open(path)?.tokenizer().map_err(wrong)?, false)
        }
        ModelSource::Directory { path: directory } => {
            let path = directory.join("tokenizer.json");
            if !path.exists() {
                let next = "no other tokenizer format is read; write it with Transformers' \
                            AutoTokenizer.from_pretrained(…).save_pretrained(…)";
                return Err(ModelError::Missing { path, next });
            }
            of_directory(&path, &config.class).map_err(|error| match error {
                TokenizerError::Read { .. } => ModelError::Tokenizer(error),
                error => ModelError::Invalid { path, reason: error.to_string() },
            })?
        }
    };
    let declared = config.tokens_to_add(&tokenizer);
    let tokenizer = with_more(tokenizer, &declared)?;
    let plain = if all_plain { config.tokens_to_make_plain(&tokenizer) } else { Vec::new() };
    let tokenizer = with_more(tokenizer, &plain)?;
    tokenizer.prepare();
    Ok(tokenizer)
}

fn with_more(tokenizer: Tokenizer, tokens: &[AddedToken]) -> Result<Tokenizer, TokenizerError> {
    if tokens.is_empty() { Ok(tokenizer) } else { tokenizer.with_added_tokens(tokens) }
}

/// Reads a tokenizer.json, or what its class makes of it, and whether the class makes special tokens plain.
fn of_directory(path: &Path, class: &TokenizerClass) -> Result<(Tokenizer, bool), TokenizerError> {
    let content = Tokenizer::read(path)?;
    let (content, all_plain) = match class {
        TokenizerClass::AsFile => (content, false),
        TokenizerClass::Unknown(class) => {
            tracing::warn!(
                "transformers 5 makes the tokenizer with its class {class}, which is not known here: token ids are those of \
                 {}, and may differ from those of vLLM",
                path.display()
            );
            (content, false)
        }
        TokenizerClass::Built(class) => of_class(content, class, path)?,
    };
    Ok((Tokenizer::from_bytes(&content)?, all_plain))
}

/// The tokenizer.json that a class makes, and whether it makes its special tokens plain.
fn of_class(content: Vec<u8>, class: &BuiltClass, path: &Path) -> Result<(Vec<u8>, bool), TokenizerError> {
    let all_plain = class.kind == BuiltKind::Qwen2;
    match class.build(&content)? {
        Built::AsFile => Ok((content, all_plain)),
        Built::Unfit => {
            tracing::warn!(
                class = ?class.kind,
                "the class of the tokenizer is for another kind of vocabulary than that of {}: token ids are those of this \
                 file. transformers 5 and vLLM may make others of it",
                path.display()
            );
            Ok((content, false))
        }
        Built::Differs { content, keys } => {
            tracing::warn!(
                class = ?class.kind,
                "the class of the tokenizer does not take these parts of {}: {}. They are what transformers 5 builds, and \
                 with it vLLM; transformers 4 takes them from the file",
                path.display(),
                keys.join(", ")
            );
            Ok((content, all_plain))
        }
    }
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
