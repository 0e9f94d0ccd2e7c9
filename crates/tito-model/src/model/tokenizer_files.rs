//! Where a tokenizer is, and what its configuration says.

use std::path::Path;

use serde_json::Map;

use super::{
    ChatTemplates, HubOptions, ModelError, ModelSource, TokenizerConfig, json,
    source::{locate, tokenizer_of},
    tokenizer_class::class_of,
};
use crate::{gguf::GgufFile, tokenizer::Tokenizer};

/// The files of a tokenizer, read but for the tokenizer itself. They may be those of a model, or alone.
#[derive(Debug, Clone)]
pub struct TokenizerFiles {
    pub(super) config: TokenizerConfig,
    pub(super) source: ModelSource,
}

impl TokenizerFiles {
    /// Finds a tokenizer: in an existing .gguf file, an existing directory, or else under a hub id.
    pub async fn resolve(name: &str, hub: &HubOptions) -> Result<Self, ModelError> {
        Self::open(&locate(name, hub).await?)
    }

    /// Reads a .gguf file, or a directory that needs to have nothing but a tokenizer.json.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        match ModelSource::at(path)? {
            ModelSource::Gguf { path } => Self::of_gguf(&GgufFile::open(path)?),
            ModelSource::Directory { path } => Self::of_directory(&path),
        }
    }

    /// Reads the tokenizer, with the added tokens that only its configuration lists.
    pub fn tokenizer(&self) -> Result<Tokenizer, ModelError> {
        tokenizer_of(&self.source, &self.config)
    }

    pub(super) fn of_gguf(file: &GgufFile) -> Result<Self, ModelError> {
        let path = file.path();
        let raw = file.tokenizer_config().map_err(|reason| ModelError::InGguf { path: path.to_owned(), reason })?;
        let config = TokenizerConfig::parse(raw, None, path)?;
        Ok(Self { config, source: ModelSource::Gguf { path: path.to_owned() } })
    }

    pub(super) fn of_directory(directory: &Path) -> Result<Self, ModelError> {
        let path = directory.join("tokenizer_config.json");
        let raw = json::read_object(&path)?.unwrap_or_else(Map::new);
        let map = json::read_object(&directory.join("special_tokens_map.json"))?;
        let of_model = json::read_object(&directory.join("config.json"))?.unwrap_or_default();
        let mut config = TokenizerConfig::parse(raw, map, &path)?;
        config.class = class_of(&config.raw, &of_model);
        if let Some(templates) = ChatTemplates::read(directory)? {
            config.chat_templates = templates;
        }
        if let Some(of_processor) = ChatTemplates::of_processor(directory)? {
            config.chat_templates.put_before(of_processor);
        }
        Ok(Self { config, source: ModelSource::Directory { path: directory.to_owned() } })
    }
}
