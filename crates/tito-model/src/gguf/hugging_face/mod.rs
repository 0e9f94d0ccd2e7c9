//! What a Hugging Face directory would say: its JSON files, and the names of its tensors.

mod config;
mod ends;
mod families;
mod lines;
mod model;
mod order;
mod rope;
mod settings;
mod tables;
mod tensors;

#[cfg(test)]
pub(crate) use order::{ByKeyHead, Order};
use serde_json::{Map, Value, json};
pub(crate) use tensors::{Groups, Layout, NamedTensor, Source, TablePart};

use super::{GgufError, GgufFile, MOST_POSITIONS};
use crate::TokenId;

impl GgufFile {
    /// Returns the part of config.json that every architecture has.
    pub fn config(&self) -> Result<Map<String, Value>, GgufError> {
        let architecture = self.architecture()?;
        let mut config = Map::new();
        let mut model_type = architecture;
        if let Some(family) = families::find(architecture) {
            config.insert("architectures".to_owned(), json!([family.class]));
            model_type = family.model_type;
        }
        config.insert("model_type".to_owned(), json!(model_type));
        let context_length = self.context_length(architecture)?;
        config.insert("max_position_embeddings".to_owned(), json!(context_length));
        config.insert("vocab_size".to_owned(), json!(self.vocab_size()?));
        for (name, id) in [("bos_token_id", self.token_id("bos")?), ("eos_token_id", self.token_id("eos")?)] {
            if let Some(id) = id {
                config.insert(name.to_owned(), json!(id));
            }
        }
        Ok(config)
    }

    /// Returns `generation_config.json`: the ids that end a generation, the main one first.
    pub fn generation_config(&self) -> Result<Map<String, Value>, GgufError> {
        let mut config = Map::new();
        if let Some(bos) = self.token_id("bos")? {
            config.insert("bos_token_id".to_owned(), json!(bos));
        }
        let ends = match self.ends()?[..] {
            [] => None,
            [end] => Some(json!(end)),
            ref ends => Some(json!(ends)),
        };
        config.extend(ends.map(|ends| ("eos_token_id".to_owned(), ends)));
        Ok(config)
    }

    /// Returns `tokenizer_config.json`: special tokens by role, and the chat templates.
    pub fn tokenizer_config(&self) -> Result<Map<String, Value>, GgufError> {
        let metadata = self.metadata();
        let tokens = metadata.required_texts("tokenizer.ggml.tokens")?;
        let mut config = Map::new();
        config.insert("tokenizer_class".to_owned(), json!("PreTrainedTokenizerFast"));
        for (name, role) in
            [("bos_token", "bos"), ("eos_token", "eos"), ("pad_token", "padding"), ("unk_token", "unknown")]
        {
            let Some(id) = self.token_id(role)? else { continue };
            let token = tokens.get(id as usize).ok_or_else(|| GgufError::Invalid {
                key: format!("tokenizer.ggml.{role}_token_id"),
                expected: "the id of a token",
            })?;
            config.insert(name.to_owned(), json!(token));
        }
        config.insert("clean_up_tokenization_spaces".to_owned(), json!(false));
        let context_length = self.context_length(self.architecture()?)?;
        config.insert("model_max_length".to_owned(), json!(context_length));
        if let Some(template) = self.chat_template()? {
            config.insert("chat_template".to_owned(), template);
        }
        Ok(config)
    }

    /// Returns the width of the embeddings' table: one row for each token id, unused ones included.
    pub(super) fn vocab_size(&self) -> Result<usize, GgufError> {
        match self.content.tensors.get("token_embd.weight").map(|info| &info.shape[..]) {
            Some([rows, _]) => Ok(*rows),
            _ => Ok(self.metadata().required_texts("tokenizer.ggml.tokens")?.len()),
        }
    }

    fn context_length(&self, architecture: &str) -> Result<usize, GgufError> {
        let key = format!("{architecture}.context_length");
        match self.metadata().required_size(&key)? {
            length if (1..=MOST_POSITIONS).contains(&length) => Ok(length),
            _ => Err(GgufError::Invalid { key, expected: "the length of a context: 1 to 16777216 tokens" }),
        }
    }

    fn token_id(&self, role: &str) -> Result<Option<TokenId>, GgufError> {
        self.metadata().token_id(&format!("tokenizer.ggml.{role}_token_id"))
    }

    /// One template is a text; several are a list, as in `tokenizer_config.json`.
    fn chat_template(&self) -> Result<Option<Value>, GgufError> {
        let metadata = self.metadata();
        let default = metadata.text("tokenizer.chat_template")?;
        let named = metadata.texts_below("tokenizer.chat_template.");
        if named.is_empty() {
            return Ok(default.map(|template| json!(template)));
        }
        // No converter writes both, and which of them is meant shows nowhere.
        if default.is_some() && named.iter().any(|(name, _)| *name == "default") {
            return Err(GgufError::Invalid {
                key: "tokenizer.chat_template.default".to_owned(),
                expected: "the only default template: `tokenizer.chat_template` is one, too",
            });
        }
        let all = default.map(|template| ("default", template)).into_iter().chain(named);
        Ok(Some(all.map(|(name, template)| json!({"name": name, "template": template})).collect()))
    }
}
