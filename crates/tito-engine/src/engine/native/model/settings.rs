//! Typed access to `config.json`, and what is said where a setting is not what it should be.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Why a model is not one that this engine computes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConfigError {
    /// The architecture is none that this engine knows; a different engine may know it.
    #[error("the native engine does not know the architecture {0}")]
    Architecture(String),
    /// A setting is missing, of the wrong type or out of range.
    #[error("config.json: `{key}` {reason}")]
    Setting {
        /// Its key.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl ConfigError {
    pub(super) fn setting(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Setting { key: key.into(), reason: reason.into() }
    }

    pub(super) fn too_large(key: &str, size: usize) -> Self {
        Self::setting(key, format!("is {size}, more than any model has"))
    }
}

/// Typed access; `null` is how these files leave a value out.
pub(super) struct Settings<'a>(pub(super) &'a Map<String, Value>);

impl Settings<'_> {
    pub(super) fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, ConfigError> {
        let value = self.0.get(key).filter(|value| !value.is_null());
        let unreadable = |value: &Value, error: serde_json::Error| {
            // A number that is not finite, as it was written or as `json::read_python` writes it.
            let named = value.get("__float__").and_then(Value::as_str);
            ConfigError::setting(
                key,
                named.map_or_else(|| format!("cannot be read: {error}"), |name| format!("is {name}")),
            )
        };
        value.map(|value| T::deserialize(value).map_err(|error| unreadable(value, error))).transpose()
    }

    /// The settings in which these keys have what their other names say: the first of each pair is the other name. Both may
    /// be there if they say the same; transformers lets the other name win, and other readers do not look at it.
    pub(super) fn with_other_names(&self, pairs: &[(&str, &str)]) -> Result<Map<String, Value>, ConfigError> {
        let mut settings = self.0.clone();
        let said = |key: &str| self.0.get(key).filter(|value| !value.is_null());
        for &(other, own) in pairs {
            if self.is_null(other) {
                return Err(ConfigError::setting(
                    other,
                    format!("is null, where `{own}` is the same setting: leave it out"),
                ));
            }
            let Some(value) = said(other) else { continue };
            if let Some(own_value) = said(own).filter(|own_value| *own_value != value) {
                let reason = format!("is {value}, and `{own}`, which is the same setting, is {own_value}");
                return Err(ConfigError::setting(other, reason));
            }
            settings.insert(own.to_owned(), value.clone());
        }
        Ok(settings)
    }

    /// What is said, where `null` says that there is nothing; `default` where the key is left out.
    pub(super) fn or_left_out<T: DeserializeOwned>(
        &self,
        key: &str,
        default: Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        if self.0.contains_key(key) { self.get(key) } else { Ok(default) }
    }

    /// Whether something is on that is on where it is left out. `null` is refused: transformers takes it for off.
    pub(super) fn on_by_default(&self, key: &str) -> Result<bool, ConfigError> {
        if self.is_null(key) {
            return Err(ConfigError::setting(key, "is null: leave it out, or say true or false"));
        }
        Ok(self.get(key)?.unwrap_or(true))
    }

    /// The same of what is on or off by default.
    pub(super) fn is_on(&self, key: &str, default: bool) -> Result<bool, ConfigError> {
        if default { self.on_by_default(key) } else { Ok(self.get(key)?.unwrap_or(false)) }
    }

    /// Whether a key is there and says nothing.
    pub(super) fn is_null(&self, key: &str) -> bool {
        self.0.get(key).is_some_and(Value::is_null)
    }

    pub(super) fn require<T: DeserializeOwned>(&self, key: &str) -> Result<T, ConfigError> {
        self.get(key)?.ok_or_else(|| ConfigError::setting(key, "is missing"))
    }

    /// A number over 0, or this one where it is left out.
    pub(super) fn size_or(&self, key: &str, default: usize, most: usize) -> Result<usize, ConfigError> {
        if self.get::<usize>(key)?.is_none() { Ok(default) } else { self.size(key, most) }
    }

    /// A number over 0. Before anything is made of it that large: what no model has would take all memory, or no number
    /// would hold it, long before the weights could be compared with it.
    pub(super) fn size(&self, key: &str, most: usize) -> Result<usize, ConfigError> {
        match self.require(key)? {
            0 => Err(ConfigError::setting(key, "is 0")),
            size if size > most => Err(ConfigError::too_large(key, size)),
            size => Ok(size),
        }
    }
}
