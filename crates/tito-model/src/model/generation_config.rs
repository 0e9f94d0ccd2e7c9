//! `generation_config.json`.

use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::{ModelError, config::Ids, json};
use crate::TokenId;

/// The file of a directory in which it is.
pub(super) const GENERATION_CONFIG: &str = "generation_config.json";

/// The model's defaults for generation: the part of `generation_config.json` that vLLM reads, under the names that it has
/// there.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GenerationConfig {
    /// The tokens that end a generation.
    #[serde(rename = "eos_token_id", default, deserialize_with = "one_or_several")]
    pub eos_token_ids: Vec<TokenId>,
    /// 0 is greedy.
    pub temperature: Option<f64>,
    /// In (0, 1].
    pub top_p: Option<f64>,
    /// 0 and -1 are off.
    pub top_k: Option<i64>,
    /// In [0, 1].
    pub min_p: Option<f64>,
    /// 1 is off.
    pub repetition_penalty: Option<f64>,
    /// 0 is off.
    pub presence_penalty: Option<f64>,
    /// 0 is off.
    pub frequency_penalty: Option<f64>,
    /// In tokens.
    pub max_new_tokens: Option<usize>,
    /// Whether special tokens are left out of the text.
    pub skip_special_tokens: Option<bool>,
}

fn one_or_several<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<TokenId>, D::Error> {
    Ok(Option::<Ids>::deserialize(deserializer)?.map(Ids::into_vec).unwrap_or_default())
}

impl GenerationConfig {
    /// Reads `generation_config.json` of a directory.
    pub fn read(directory: &Path) -> Result<Self, ModelError> {
        let path = directory.join(GENERATION_CONFIG);
        let raw = json::read_object(&path)?;
        let next = "pass a directory that has one, or --generation-config auto or vllm";
        Self::parse(raw.ok_or_else(|| ModelError::Missing { path: path.clone(), next })?, &path)
    }

    /// The configuration with what `fields` says in place of its own values; `null` says nothing.
    pub fn overridden(&self, fields: &Map<String, Value>) -> Result<Self, ModelError> {
        let path = Path::new("the given fields");
        let own: Map<String, Value> = serde_json::to_value(self)
            .and_then(serde_json::from_value)
            .map_err(|error| ModelError::Invalid { path: path.to_owned(), reason: error.to_string() })?;
        let mut merged = fields.clone();
        for (name, value) in own {
            merged.entry(name).or_insert(value);
        }
        // As in vLLM, flags do not say where generations end.
        Ok(Self { eos_token_ids: self.eos_token_ids.clone(), ..Self::parse(merged, path)? })
    }

    /// Reads the content of `generation_config.json`; `path` is for error messages.
    pub(super) fn parse(raw: Map<String, Value>, path: &Path) -> Result<Self, ModelError> {
        serde_path_to_error::deserialize(Value::Object(raw))
            .map_err(|error| ModelError::Invalid { path: path.to_owned(), reason: error.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(value: Value) -> Result<GenerationConfig, ModelError> {
        let Value::Object(raw) = value else { unreachable!() };
        GenerationConfig::parse(raw, Path::new("generation_config.json"))
    }

    #[test]
    fn one_end_or_several_are_a_list() {
        assert_eq!(parse(json!({"eos_token_id": 2})).unwrap().eos_token_ids, [2]);
        assert_eq!(parse(json!({"eos_token_id": [7, 8]})).unwrap().eos_token_ids, [7, 8]);
        assert_eq!(parse(json!({"eos_token_id": null})).unwrap(), GenerationConfig::default());
    }

    #[test]
    fn only_what_the_file_says_is_set() {
        let config = parse(json!({"temperature": 0.6, "top_k": 20, "do_sample": true, "top_p": null})).unwrap();
        assert_eq!(config, GenerationConfig { temperature: Some(0.6), top_k: Some(20), ..GenerationConfig::default() });
    }

    #[test]
    fn given_fields_win_over_the_file() {
        let file = parse(json!({"temperature": 0.6, "top_k": 20, "top_p": 0.9})).unwrap();
        let Value::Object(fields) = json!({"temperature": 0.1, "top_k": null, "eos_token_id": 3}) else {
            unreachable!()
        };
        let expected = GenerationConfig { temperature: Some(0.1), top_p: Some(0.9), ..GenerationConfig::default() };
        assert_eq!(file.overridden(&fields).unwrap(), expected);
    }

    #[test]
    fn a_value_of_the_wrong_type_is_named() {
        let error = parse(json!({"top_p": "high"})).unwrap_err().to_string();
        assert!(error.contains("top_p"), "{error}");
    }
}
