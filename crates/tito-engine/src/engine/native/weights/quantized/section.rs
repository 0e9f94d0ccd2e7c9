//! Typed access to `quantization_config`, and what is said of a setting that cannot be honoured.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Characters of a value that are shown.
const SHOWN: usize = 60;

/// The settings of a quantised checkpoint, or those of a part of them.
pub(super) struct Section<'a> {
    /// The way to it, with a dot at its end, if it is a part.
    path: String,
    settings: &'a Map<String, Value>,
    /// Whether errors say values. They do not where whoever asks has named a file that may be any.
    quotes: bool,
}

/// Whether a value leaves its setting out, or switches something off.
fn is_off(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(values) => values.is_empty(),
        Value::Object(values) => values.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

impl<'a> Section<'a> {
    pub(super) fn new(settings: &'a Map<String, Value>, quotes: bool) -> Self {
        Self { path: String::new(), settings, quotes }
    }

    /// The value of a setting, if it has one.
    pub(super) fn value(&self, key: &str) -> Option<&'a Value> {
        self.settings.get(key).filter(|value| !value.is_null())
    }

    /// The value of a setting as a type of its own.
    pub(super) fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, String> {
        let refusal = |error: serde_json::Error| {
            let reason = if self.quotes { format!("cannot be read: {error}") } else { "cannot be read".to_owned() };
            self.refusal(key, &reason)
        };
        let read = |value| T::deserialize(value).map_err(refusal);
        self.value(key).map(read).transpose()
    }

    /// A setting that is there.
    pub(super) fn require<T: DeserializeOwned>(&self, key: &str) -> Result<T, String> {
        self.get(key)?.ok_or_else(|| format!("lacks `{}{key}`", self.path))
    }

    /// The settings below a key, unless it is left out or empty.
    pub(super) fn section(&self, key: &str) -> Result<Option<Section<'a>>, String> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Object(settings)) => {
                let path = format!("{}{key}.", self.path);
                Ok((!settings.is_empty()).then_some(Section { path, settings, quotes: self.quotes }))
            }
            Some(_) => Err(self.refusal(key, "is not an object")),
        }
    }

    /// All keys.
    pub(super) fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.settings.keys().map(String::as_str)
    }

    /// Refuses a setting that is none of these: it may change what the packed bytes mean.
    pub(super) fn knows_only(&self, keys: &[&str]) -> Result<(), String> {
        let unknown = self.settings.iter().find(|(key, value)| !keys.contains(&key.as_str()) && !is_off(value));
        unknown.map_or(Ok(()), |(key, _)| Err(self.refusal(key, "is not understood")))
    }

    /// Refuses a setting that has another value than one of these.
    pub(super) fn is_one_of(&self, key: &str, values: &[&str]) -> Result<(), String> {
        match self.value(key) {
            None => Ok(()),
            Some(Value::String(value)) if values.contains(&value.to_lowercase().as_str()) => Ok(()),
            Some(_) => Err(self.refusal(key, &format!("is not supported; {} is", values.join(" or ")))),
        }
    }

    /// Why a setting cannot be honoured, with its name and, where it may be said, its value.
    pub(super) fn refusal(&self, key: &str, reason: &str) -> String {
        if !self.quotes {
            return format!("has a value of `{}{key}` which {reason}", self.path);
        }
        let value = self.settings.get(key).map(Value::to_string).unwrap_or_default();
        let shown: String = value.chars().take(SHOWN).collect();
        let more = if shown.len() < value.len() { "…" } else { "" };
        format!("has `{}{key}` {shown}{more}, which {reason}", self.path)
    }
}
