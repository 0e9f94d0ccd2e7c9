//! `tokenizer_config.json`, and the older `special_tokens_map.json`.

use std::{collections::BTreeMap, path::Path};

use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{ChatTemplates, ModelError, json, tokenizer_class::TokenizerClass};
use crate::{
    TokenId,
    tokenizer::{AddedToken, Tokenizer},
};

/// The key with the added tokens by id.
const ADDED_TOKENS: &str = "added_tokens_decoder";

/// What the tokenizer's configuration says beyond the tokenizer itself.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TokenizerConfig {
    /// Special tokens by role, such as `bos_token`; chat templates see them as variables.
    pub special_tokens: IndexMap<String, String>,
    /// Special tokens without a role.
    pub additional_special_tokens: Vec<String>,
    /// The chat templates.
    pub chat_templates: ChatTemplates,
    /// The file, whole.
    pub raw: Map<String, Value>,
    /// What is made of a tokenizer.json beside it.
    pub(super) class: TokenizerClass,
    declared: Vec<Declared>,
}

/// A token that the configuration wants in the added vocabulary.
#[derive(Debug, Clone, PartialEq)]
struct Declared {
    id: Option<TokenId>,
    token: SpecialToken,
}

/// A special token: its text, or its text with attributes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
enum SpecialToken {
    Text(String),
    Described {
        content: String,
        #[serde(default)]
        single_word: bool,
        #[serde(default)]
        lstrip: bool,
        #[serde(default)]
        rstrip: bool,
        #[serde(default)]
        normalized: bool,
        #[serde(default)]
        special: bool,
    },
}

impl SpecialToken {
    fn content(&self) -> &str {
        match self {
            Self::Text(content) | Self::Described { content, .. } => content,
        }
    }

    fn with_id(&self, id: TokenId, has_role: bool) -> AddedToken {
        match self.clone() {
            Self::Text(content) => AddedToken::verbatim(id, content, true),
            Self::Described { content, single_word, lstrip, rstrip, normalized, special } => {
                AddedToken { id, content, single_word, lstrip, rstrip, normalized, special: special || has_role }
            }
        }
    }
}

impl TokenizerConfig {
    /// Reads the content of `tokenizer_config.json`; `path` is for error messages.
    ///
    /// `special_tokens_map.json`, where given, counts only if the first file does not list added tokens itself: such
    /// were the files of older releases of Transformers, which reads them so.
    pub(super) fn parse(
        raw: Map<String, Value>,
        special_tokens_map: Option<Map<String, Value>>,
        path: &Path,
    ) -> Result<Self, ModelError> {
        check_flags(&raw, path)?;
        let mut config = Self::default();
        if let Some(template) = raw.get("chat_template").filter(|template| !template.is_null()) {
            config.chat_templates = ChatTemplates::parse(template, path)?;
        }
        let by_id: Option<BTreeMap<TokenId, SpecialToken>> =
            raw.get(ADDED_TOKENS).map(|value| json::value(value, ADDED_TOKENS, path)).transpose()?;
        let mut merged = raw.clone();
        if by_id.is_none() {
            merged.extend(special_tokens_map.unwrap_or_default());
        }
        let by_id = by_id.unwrap_or_default().into_iter();
        config.declared = by_id.map(|(id, token)| Declared { id: Some(id), token }).collect();
        for (key, value) in &merged {
            config.add_key(key, value, path)?;
        }
        config.raw = raw;
        Ok(config)
    }

    /// Returns the token of a role, such as `eos_token`.
    pub fn special_token(&self, role: &str) -> Option<&str> {
        self.special_tokens.get(role).map(String::as_str)
    }

    /// Returns the tokens that the tokenizer lacks, or has with other attributes.
    pub(super) fn tokens_to_add(&self, tokenizer: &Tokenizer) -> Vec<AddedToken> {
        let mut next_id = TokenId::try_from(tokenizer.vocab_size()).unwrap_or(TokenId::MAX);
        let mut tokens: Vec<AddedToken> = Vec::new();
        for declared in &self.declared {
            let content = declared.token.content();
            let has_role = self.has_role(content);
            let same = |token: &AddedToken| token.content == content;
            let present = tokenizer.added_tokens().iter().find(|token| same(token));
            let id = declared.id.or_else(|| tokenizer.id_of(content));
            let token = declared.token.with_id(id.unwrap_or(next_id), has_role);
            // A role does not change a token that is there; a listing by id does.
            let settled = if declared.id.is_some() { present == Some(&token) } else { present.is_some() };
            if settled || tokens.iter().any(same) {
                continue;
            }
            if tokenizer.id_of(content).is_none() {
                next_id = next_id.saturating_add(1);
            }
            tokens.push(token);
        }
        tokens
    }

    /// Returns the special tokens that do not have the attributes which a class gives to all of them.
    pub(super) fn tokens_to_make_plain(&self, tokenizer: &Tokenizer) -> Vec<AddedToken> {
        let added = tokenizer.added_tokens().iter().filter(|token| self.has_role(&token.content));
        let plain = added.map(|token| (token, AddedToken::verbatim(token.id, token.content.clone(), true)));
        plain.filter(|(token, plain)| *token != plain).map(|(_, plain)| plain).collect()
    }

    fn has_role(&self, content: &str) -> bool {
        self.special_tokens.values().chain(&self.additional_special_tokens).any(|token| token == content)
    }

    fn add_key(&mut self, key: &str, value: &Value, path: &Path) -> Result<(), ModelError> {
        match key {
            "additional_special_tokens" | "extra_special_tokens" if value.is_array() => {
                for token in json::value::<Vec<SpecialToken>>(value, key, path)? {
                    self.additional_special_tokens.push(token.content().to_owned());
                    self.declared.push(Declared { id: None, token });
                }
            }
            "extra_special_tokens" if value.is_object() => {
                for (role, token) in json::value::<IndexMap<String, SpecialToken>>(value, key, path)? {
                    self.add_role(&role, token);
                }
            }
            // Flags such as `add_bos_token` have such a key, too.
            _ if key.ends_with("_token") && (value.is_string() || value.is_object()) => {
                self.add_role(key, json::value(value, key, path)?);
            }
            _ => {}
        }
        Ok(())
    }

    fn add_role(&mut self, role: &str, token: SpecialToken) {
        self.special_tokens.insert(role.to_owned(), token.content().to_owned());
        self.declared.push(Declared { id: None, token });
    }
}

/// Without its special tokens, a text has no places where known ids can be joined to it.
fn check_flags(raw: &Map<String, Value>, path: &Path) -> Result<(), ModelError> {
    match raw.get("split_special_tokens") {
        None | Some(Value::Null | Value::Bool(false)) => Ok(()),
        Some(other) => Err(ModelError::Invalid {
            path: path.to_owned(),
            reason: format!("`split_special_tokens` is {other}; only false is supported"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        let Value::Object(object) = value else { unreachable!() };
        object
    }

    fn parse(config: Value, map: Option<Value>) -> TokenizerConfig {
        TokenizerConfig::parse(object(config), map.map(object), Path::new("tokenizer_config.json")).unwrap()
    }

    fn tiny() -> Tokenizer {
        Tokenizer::from_bytes(include_bytes!("../../../../tests/fixtures/tiny-model/tokenizer.json")).unwrap()
    }

    #[test]
    fn special_tokens_are_texts_or_objects() {
        let config = parse(
            json!({
                "bos_token": null, "eos_token": {"content": "</s>", "lstrip": false}, "pad_token": "<pad>",
                "add_bos_token": true, "additional_special_tokens": ["<a>", {"content": "<b>"}],
                "extra_special_tokens": {"image_token": "<image>"}}),
            None,
        );
        assert_eq!(config.special_token("eos_token"), Some("</s>"));
        assert_eq!(config.special_token("bos_token"), None);
        assert_eq!(config.special_token("image_token"), Some("<image>"));
        assert_eq!(config.special_tokens.len(), 3);
        assert_eq!(config.additional_special_tokens, ["<a>", "<b>"]);
    }

    #[test]
    fn the_older_map_counts_only_without_a_listing() {
        let map = || Some(json!({"eos_token": "<new>"}));
        assert_eq!(parse(json!({"eos_token": "<old>"}), map()).special_token("eos_token"), Some("<new>"));
        let listed = json!({"eos_token": "<old>", "added_tokens_decoder": {}});
        assert_eq!(parse(listed, map()).special_token("eos_token"), Some("<old>"));
    }

    #[test]
    fn special_tokens_that_are_to_be_split_are_refused() {
        let read = |value: Value| {
            let raw = object(json!({"split_special_tokens": value}));
            TokenizerConfig::parse(raw, None, Path::new("tokenizer_config.json")).map_err(|error| error.to_string())
        };
        let error = read(json!(true)).unwrap_err();
        assert_eq!(error, "invalid tokenizer_config.json: `split_special_tokens` is true; only false is supported");
        assert!(read(json!(false)).is_ok() && read(Value::Null).is_ok());
    }

    #[test]
    fn a_role_makes_a_plain_token_special() {
        let tokenizer = tiny();
        let config = parse(json!({"eos_token": "<|im_end|>", "pad_token": "hello"}), None);
        let hello = tokenizer.id_of("hello").unwrap();
        assert_eq!(config.tokens_to_add(&tokenizer), [AddedToken::verbatim(hello, "hello", true)]);
    }

    #[test]
    fn tokens_listed_by_id_are_added_or_take_the_listed_attributes() {
        let tokenizer = tiny();
        let next = tokenizer.vocab_size();
        let described = |content: &str, special: bool| {
            json!({"content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
                   "special": special})
        };
        let listing: Map<String, Value> = [
            ("2".to_owned(), described("<|im_end|>", true)),
            (tokenizer.id_of("<think>").unwrap().to_string(), described("<think>", true)),
            (next.to_string(), described("<|new|>", false)),
        ]
        .into_iter()
        .collect();
        let config = parse(json!({"added_tokens_decoder": listing}), None);
        let contents: Vec<_> = config.tokens_to_add(&tokenizer).into_iter().map(|token| token.content).collect();
        assert_eq!(contents, ["<think>", "<|new|>"]);
        let tokenizer = tokenizer.with_added_tokens(&config.tokens_to_add(&tiny())).unwrap();
        assert_eq!(tokenizer.id_of("<|new|>").map(|id| id as usize), Some(next));
        assert!(tokenizer.is_special(tokenizer.id_of("<think>").unwrap()));
        assert!(config.tokens_to_add(&tokenizer).is_empty());
    }
}
