//! What `/tokenizer_info` answers.
//!
//! Follows vLLM 0.32, `entrypoints/serve/tokenize/serving.py` (`TokenizerInfo`), whose answer is the arguments that
//! Transformers made its tokenizer with.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::tokenizer::Tokenizer;

/// Fields that are left out, because they are paths of files, or because the server adds them afterwards.
const LEFT_OUT: [&str; 5] = ["vocab_file", "merges_file", "tokenizer_class", "added_tokens_decoder", "auto_map"];

/// What the endpoint answers.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenizerInfo(pub(crate) Map<String, Value>);

impl TokenizerInfo {
    /// Reads the `tokenizer_config.json` of the model that was given as `name`; `chat_template` is the one of the
    /// command line.
    pub fn new(config: &Map<String, Value>, tokenizer: &Tokenizer, name: &str, chat_template: Option<&str>) -> Self {
        let shown = config.iter().filter(|(key, _)| !LEFT_OUT.contains(&key.as_str()));
        let mut info: Map<_, _> = shown.map(|(key, value)| (key.clone(), plain(value))).collect();
        let added = tokenizer.added_tokens().iter().map(|token| (token.id.to_string(), json!(token.content)));
        let told = [
            // vLLM chooses this side itself.
            ("truncation_side", json!("left")),
            ("name_or_path", json!(name)),
            ("is_local", json!(Path::new(name).exists())),
            ("local_files_only", json!(false)),
            ("added_tokens_decoder", added.collect::<Map<_, _>>().into()),
            ("backend", json!("tokenizers")),
            ("tokenizer_class", json!(class(config.get("tokenizer_class").and_then(Value::as_str)))),
        ];
        info.extend(told.into_iter().map(|(key, value)| (key.to_owned(), value)));
        if let Some(template) = chat_template {
            info.insert("chat_template".to_owned(), template.into());
        }
        Self(info)
    }
}

/// Returns the class that vLLM makes of the one in the file: since Transformers 5 the fast ones have no suffix.
fn class(name: Option<&str>) -> String {
    match name.map(|name| name.strip_suffix("Fast").unwrap_or(name)) {
        None | Some("PreTrainedTokenizer") => "CachedTokenizersBackend".to_owned(),
        Some(name) => format!("Cached{name}"),
    }
}

/// Returns a token's text where the file describes the token by an object.
fn plain(value: &Value) -> Value {
    match value {
        Value::Object(fields) => match fields.get("content") {
            Some(content) => content.clone(),
            None => Value::Object(fields.iter().map(|(key, value)| (key.clone(), plain(value))).collect()),
        },
        Value::Array(items) => items.iter().map(plain).collect(),
        other => other.clone(),
    }
}
