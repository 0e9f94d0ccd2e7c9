//! The files of a model: where they are, and what they say about everything but its weights.
//!
//! Owns the resolution of the MODEL argument and the model's configuration. Refuses the weights, which are the
//! engine's, and the environment, which is `config`'s.

mod chat_template;
mod config;
mod error;
mod generation_config;
mod hub;
mod json;
mod processor_files;
mod source;
mod tokenizer_class;
mod tokenizer_config;
mod tokenizer_files;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

pub use chat_template::ChatTemplates;
pub use config::ModelConfig;
pub use error::ModelError;
use generation_config::GENERATION_CONFIG;
pub use generation_config::GenerationConfig;
pub use hub::{DownloadEvent, DownloadProgress, HubOptions};
use processor_files::{IMAGE_PROCESSOR_CONFIG, PROCESSOR_CONFIG};
pub use source::ModelSource;
use source::{locate, tokenizer_of};
pub use tokenizer_config::TokenizerConfig;
pub use tokenizer_files::TokenizerFiles;

use crate::{TokenId, gguf::GgufFile, tokenizer::Tokenizer};

/// The tokens that end a generation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EosTokens {
    /// The tokenizer's.
    pub primary: Option<TokenId>,
    /// The generation configuration's others, in its order.
    pub others: Vec<TokenId>,
}

/// A model's files, read but for weights and tokenizer.
#[derive(Debug, Clone)]
pub struct ModelFiles {
    /// Where the weights are.
    pub source: ModelSource,
    /// config.json.
    pub config: ModelConfig,
    /// `generation_config.json`; where it does not exist, its ends of generation are those of config.json.
    pub generation: GenerationConfig,
    /// `tokenizer_config.json`, with the directory's template files in place of its templates if there are any.
    pub tokenizer_config: TokenizerConfig,
    /// The settings of the image processor, where the model has one: the part of `processor_config.json` that newer checkpoints
    /// have, or else `preprocessor_config.json`.
    pub image_processor: Option<Map<String, Value>>,
    /// `processor_config.json`, empty where it does not exist.
    pub processor_config: Map<String, Value>,
    /// The file that `generation` is from.
    generation_file: PathBuf,
    /// Where the tokenizer is: with the weights, unless another one was asked for.
    tokenizer_source: ModelSource,
}

impl ModelFiles {
    /// Takes tokenizer and chat template from elsewhere.
    #[must_use]
    pub fn with_tokenizer_of(mut self, TokenizerFiles { config, source }: TokenizerFiles) -> Self {
        (self.tokenizer_config, self.tokenizer_source) = (config, source);
        self
    }

    /// Finds a model: an existing .gguf file, an existing directory, or else a hub id such as `Qwen/Qwen3-0.6B`.
    pub async fn resolve(model: &str, hub: &HubOptions) -> Result<Self, ModelError> {
        Self::open(&locate(model, hub).await?)
    }

    /// Reads a .gguf file or a directory.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        match ModelSource::at(path)? {
            ModelSource::Gguf { path } => Self::open_gguf(&path),
            ModelSource::Directory { path } => Self::open_directory(&path),
        }
    }

    fn open_gguf(path: &Path) -> Result<Self, ModelError> {
        let file = GgufFile::open(path)?;
        let wrong = |reason| ModelError::InGguf { path: path.to_owned(), reason };
        let TokenizerFiles { config: tokenizer_config, source } = TokenizerFiles::of_gguf(&file)?;
        let config = ModelConfig::parse(file.config().map_err(wrong)?, path)?;
        let generation = GenerationConfig::parse(file.generation_config().map_err(wrong)?, path)?;
        config.check_ends(&generation.eos_token_ids, path)?;
        Ok(Self {
            tokenizer_source: source.clone(),
            source,
            config,
            generation,
            image_processor: None,
            processor_config: Map::new(),
            generation_file: path.to_owned(),
            tokenizer_config,
        })
    }

    /// Takes the defaults for generation of another directory.
    pub fn set_generation(&mut self, directory: &Path) -> Result<(), ModelError> {
        let generation = GenerationConfig::read(directory)?;
        let path = directory.join(GENERATION_CONFIG);
        self.config.check_ends(&generation.eos_token_ids, &path)?;
        (self.generation, self.generation_file) = (generation, path);
        Ok(())
    }

    fn open_directory(directory: &Path) -> Result<Self, ModelError> {
        let path = directory.join("config.json");
        let raw = json::read_object(&path)?
            .ok_or_else(|| ModelError::Missing { path: path.clone(), next: instead_of_config(directory) })?;
        let config = ModelConfig::parse(raw, &path)?;
        config.check_ends(&config.eos_token_ids, &path)?;
        let own = directory.join(GENERATION_CONFIG);
        let (generation, generation_file) = if let Some(raw) = json::read_object(&own)? {
            (GenerationConfig::parse(raw, &own)?, own)
        } else {
            let eos_token_ids = config.eos_token_ids.clone();
            (GenerationConfig { eos_token_ids, ..GenerationConfig::default() }, path)
        };
        config.check_ends(&generation.eos_token_ids, &generation_file)?;
        let TokenizerFiles { config: tokenizer_config, source } = TokenizerFiles::of_directory(directory)?;
        let processor_config = json::read_object(&directory.join(PROCESSOR_CONFIG))?.unwrap_or_default();
        Ok(Self {
            tokenizer_source: source.clone(),
            source,
            config,
            generation,
            image_processor: image_processor(directory, &processor_config)?,
            processor_config,
            generation_file,
            tokenizer_config,
        })
    }

    /// Returns the path of the file or directory.
    pub fn path(&self) -> &Path {
        match &self.source {
            ModelSource::Gguf { path } | ModelSource::Directory { path } => path,
        }
    }

    /// Reads the tokenizer, with the added tokens that only its configuration lists.
    pub fn tokenizer(&self) -> Result<Tokenizer, ModelError> {
        tokenizer_of(&self.tokenizer_source, &self.tokenizer_config)
    }

    /// Returns the tokens that end a generation.
    pub fn eos(&self, tokenizer: &Tokenizer) -> Result<EosTokens, ModelError> {
        let role = "eos_token";
        let primary = match self.tokenizer_config.special_token(role) {
            Some(token) => Some(
                tokenizer
                    .id_of(token)
                    .ok_or_else(|| ModelError::UnknownSpecialToken { role, token: token.to_owned() })?,
            ),
            None => None,
        };
        // A model that does not say how many tokens it has has those of its tokenizer.
        let tokens = self.config.vocab_size.unwrap_or(tokenizer.vocab_size());
        if let Some(id) = primary.filter(|id| *id as usize >= tokens) {
            let path = match &self.tokenizer_source {
                ModelSource::Gguf { path } => path.clone(),
                ModelSource::Directory { path } => path.join("tokenizer_config.json"),
            };
            return Err(ModelError::EndOutOfVocabulary { path, field: role, id, tokens });
        }
        config::check_ends(&self.generation.eos_token_ids, tokens, &self.generation_file)?;
        let others = self.generation.eos_token_ids.iter().copied().filter(|id| Some(*id) != primary).collect();
        Ok(EosTokens { primary, others })
    }

    /// Returns the longest sequence that the model is made for, prompt and output together, in tokens.
    ///
    /// Unlike in vLLM, `rope_scaling` does not lengthen it.
    pub fn max_model_len(&self) -> Option<usize> {
        self.config.max_position_embeddings
    }
}

/// Reads the settings of the image processor of a directory. Where there are both, transformers takes those of
/// `processor_config.json`.
fn image_processor(
    directory: &Path,
    processor_config: &Map<String, Value>,
) -> Result<Option<Map<String, Value>>, ModelError> {
    const KEY: &str = "image_processor";
    if let Some(own) = processor_config.get(KEY).filter(|own| !own.is_null()) {
        return json::value(own, KEY, &directory.join(PROCESSOR_CONFIG)).map(Some);
    }
    json::read_object(&directory.join(IMAGE_PROCESSOR_CONFIG))
}

/// What to do about a directory without config.json.
fn instead_of_config(directory: &Path) -> &'static str {
    let is_gguf = |path: PathBuf| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    let mut entries = directory.read_dir().into_iter().flatten().flatten();
    if entries.any(|entry| is_gguf(entry.path())) {
        "the directory has GGUF files: pass the path of one of them"
    } else {
        "pass a directory as Transformers' save_pretrained writes it"
    }
}

/// Finds the directory of an adapter: a path that exists, or else a hub id, fetched as a model would be. A path that is
/// neither stays as it is, for its reader to refuse.
///
/// # Errors
///
/// If the hub does not give it.
pub async fn adapter_directory(adapter: &str, hub: &HubOptions) -> Result<PathBuf, ModelError> {
    let path = Path::new(adapter);
    if path.exists() || !hub::is_id(adapter) {
        return Ok(path.to_owned());
    }
    hub::adapter_directory(adapter, hub).await
}

#[cfg(test)]
mod tests;
