//! config.json.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{ModelError, json};
use crate::{TokenId, gguf::MOST_POSITIONS};

/// No model has a larger vocabulary.
const MOST_TOKENS: usize = 1 << 24;

/// The keys that bound a sequence, as vLLM looks for them.
const LENGTH_KEYS: [&str; 8] = [
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
];

/// What config.json says about a model.
///
/// Sizes of a model with several parts are those of its `text_config`.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// Such as `llama`.
    pub model_type: Option<String>,
    /// Such as `LlamaForCausalLM`.
    pub architectures: Vec<String>,
    /// The type of the weights, such as `bfloat16`.
    pub dtype: Option<String>,
    /// Rows of the embeddings, which may exceed the tokenizer's vocabulary.
    pub vocab_size: Option<usize>,
    /// The longest sequence, in tokens: the least of the lengths that the file names.
    ///
    /// Unlike in vLLM, `rope_scaling` does not lengthen it.
    pub max_position_embeddings: Option<usize>,
    /// The tokens that end a generation, if `generation_config.json` does not exist.
    pub eos_token_ids: Vec<TokenId>,
    /// The file, whole.
    pub raw: Map<String, Value>,
}

/// One id or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Ids {
    One(TokenId),
    Many(Vec<TokenId>),
}

impl Ids {
    pub(super) fn into_vec(self) -> Vec<TokenId> {
        match self {
            Self::One(id) => vec![id],
            Self::Many(ids) => ids,
        }
    }
}

impl ModelConfig {
    /// Reads the content of config.json; `path` is for error messages.
    pub(super) fn parse(raw: Map<String, Value>, path: &Path) -> Result<Self, ModelError> {
        let text = raw.get("text_config").and_then(Value::as_object);
        // `null` is how these files leave a value out.
        let find = |key: &str| {
            let nested = text.and_then(|text| text.get(key)).filter(|value| !value.is_null());
            nested.or_else(|| raw.get(key).filter(|value| !value.is_null()))
        };
        let mut lengths = Vec::new();
        for key in LENGTH_KEYS {
            lengths.extend(find(key).map(|value| size(value, key, MOST_POSITIONS, path)).transpose()?);
        }
        let dtype = find("dtype").or_else(|| find("torch_dtype"));
        let top = |key: &str| raw.get(key).filter(|value| !value.is_null());
        let optional = |value: Option<&Value>, key| value.map(|value| json::value(value, key, path)).transpose();
        let eos: Option<Ids> =
            find("eos_token_id").map(|value| json::value(value, "eos_token_id", path)).transpose()?;
        let architectures: Option<Vec<String>> =
            top("architectures").map(|value| json::value(value, "architectures", path)).transpose()?;
        Ok(Self {
            model_type: optional(top("model_type"), "model_type")?,
            architectures: architectures.unwrap_or_default(),
            dtype: optional(dtype, "dtype")?,
            vocab_size: find("vocab_size").map(|value| size(value, "vocab_size", MOST_TOKENS, path)).transpose()?,
            max_position_embeddings: lengths.into_iter().min(),
            eos_token_ids: eos.map(Ids::into_vec).unwrap_or_default(),
            raw,
        })
    }

    /// Compares ends of generations with the vocabulary, where it is known; `path` is where they are from.
    pub(super) fn check_ends(&self, ids: &[TokenId], path: &Path) -> Result<(), ModelError> {
        self.vocab_size.map_or(Ok(()), |tokens| check_ends(ids, tokens, path))
    }
}

/// Whether a model with so many tokens can sample those that are to end generations.
pub(super) fn check_ends(ids: &[TokenId], tokens: usize, path: &Path) -> Result<(), ModelError> {
    match ids.iter().find(|id| **id as usize >= tokens) {
        None => Ok(()),
        Some(&id) => Err(ModelError::EndOutOfVocabulary { path: path.to_owned(), field: "eos_token_id", id, tokens }),
    }
}

/// A number of 1 to `most`. What is made of it may be as large, so that it is compared before.
fn size(value: &Value, key: &str, most: usize, path: &Path) -> Result<usize, ModelError> {
    match json::value(value, key, path)? {
        size if (1..=most).contains(&size) => Ok(size),
        size => Err(ModelError::Invalid {
            path: path.to_owned(),
            reason: format!("{key} is {size}, and a model has from 1 to {most}"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(value: Value) -> Result<ModelConfig, ModelError> {
        let Value::Object(raw) = value else { unreachable!() };
        ModelConfig::parse(raw, Path::new("config.json"))
    }

    #[test]
    fn sizes_of_a_model_with_parts_are_those_of_its_text_part() {
        let config = parse(json!({
            "model_type": "gemma3", "eos_token_id": [1, 106], "dtype": "bfloat16",
            "text_config": {"vocab_size": 99, "max_position_embeddings": 77, "eos_token_id": null}}))
        .unwrap();
        assert_eq!((config.vocab_size, config.max_position_embeddings), (Some(99), Some(77)));
        assert_eq!(config.eos_token_ids, [1, 106]);
        assert_eq!(config.dtype.as_deref(), Some("bfloat16"));
    }

    #[test]
    fn the_shortest_length_counts() {
        let config = parse(json!({"max_position_embeddings": 4096, "max_seq_len": 2048})).unwrap();
        assert_eq!(config.max_position_embeddings, Some(2048));
        assert_eq!(parse(json!({"n_positions": 1024})).unwrap().max_position_embeddings, Some(1024));
        assert_eq!(parse(json!({})).unwrap().max_position_embeddings, None);
    }

    #[test]
    fn sizes_that_no_model_has_are_refused_by_name() {
        for (key, value, most) in [
            ("max_position_embeddings", 0_u64, 1 << 24),
            ("max_position_embeddings", 1_000_000_000_000_000, 1 << 24),
            ("n_positions", (1 << 24) + 1, 1 << 24),
            ("vocab_size", 0, 1 << 24),
            ("vocab_size", u64::MAX, 1 << 24),
        ] {
            let error = parse(json!({key: value})).unwrap_err().to_string();
            assert_eq!(error, format!("invalid config.json: {key} is {value}, and a model has from 1 to {most}"));
        }
        assert_eq!(parse(json!({"n_positions": 1 << 24})).unwrap().max_position_embeddings, Some(1 << 24));
    }

    #[test]
    fn a_value_of_the_wrong_type_is_named() {
        let error = parse(json!({"vocab_size": "many"})).unwrap_err().to_string();
        assert!(error.starts_with("invalid config.json: vocab_size: "), "{error}");
    }
}
