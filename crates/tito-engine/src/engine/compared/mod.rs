//! Which models mistral.rs computes as transformers does, as far as a test has compared the two.
//!
//! Owns the list of architectures and settings that were compared (`families`), and decides by it whether a config.json
//! may be served. Refuses whatever is not on the list, by name, because a setting that mistral.rs skips changes every
//! answer without a word. `tests/clients/test_mistralrs.py` compares the models of `tests/golden/mistralrs`. Only
//! models that are compared there may be on the list.

mod config;
mod families;
mod setting;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

pub use self::config::adapted;
use self::{
    families::{FAMILIES, Family, KNOWN, NEUTRAL},
    setting::Model,
};

/// Characters of a value that are shown.
const SHOWN: usize = 60;

/// Why nothing is known about what mistral.rs makes of a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Uncompared {
    /// config.json contradicts itself, or cannot be put into words that mistral.rs knows.
    #[error("{0}")]
    Config(String),
    /// mistral.rs has no such model.
    #[error("mistral.rs does not know the architecture {0}")]
    Unknown(String),
    /// mistral.rs has it, and computes something else or fails.
    #[error("mistral.rs has not been shown to compute {0} as transformers does")]
    Architecture(String),
    /// The architecture was compared, with other values of this setting.
    #[error("mistral.rs has not been shown to compute {architecture} {setting} as transformers does{}", except(*.up_to))]
    Setting {
        /// The name in `architectures`.
        architecture: String,
        /// The setting and its value.
        setting: String,
        /// The longest sequences for which it was compared, where it is too many tokens that it was not compared for.
        up_to: Option<u64>,
    },
}

fn except(up_to: Option<u64>) -> String {
    up_to.map_or_else(String::new, |length| format!(", except for up to {length} tokens (--max-model-len {length})"))
}

impl Uncompared {
    /// Whether mistral.rs could be tried all the same.
    pub fn is_worth_a_try(&self) -> bool {
        matches!(self, Self::Architecture(_) | Self::Setting { .. })
    }
}

/// Whether sequences of up to `max_model_len` tokens of the model that `config`, a config.json, describes were compared.
pub fn check(config: &Map<String, Value>, max_model_len: usize) -> Result<(), Uncompared> {
    let config = config::adapted(config).map_err(Uncompared::Config)?;
    let architecture = config::architecture(&config).map_err(Uncompared::Config)?;
    if !KNOWN.contains(&architecture) {
        return Err(Uncompared::Unknown(architecture.to_owned()));
    }
    let family = FAMILIES.iter().find(|family| family.architecture == architecture);
    let family = family.ok_or_else(|| Uncompared::Architecture(architecture.to_owned()))?;
    family.check(Model { config: &config, max_model_len })
}

impl Family {
    fn check(&self, model: Model<'_>) -> Result<(), Uncompared> {
        let listed = |key: &str| self.settings.iter().any(|(name, _)| *name == key) || NEUTRAL.contains(&key);
        if let Some((key, value)) = model.config.iter().find(|(key, _)| !listed(key)) {
            return Err(self.uncompared(key, Some(value), None));
        }
        for (key, alternatives) in self.settings {
            let value = model.config.get(*key);
            if alternatives.iter().all(|allowed| !allowed.admits(value, model)) {
                return Err(self.uncompared(key, value, model.bound(key, alternatives)));
            }
        }
        Ok(())
    }

    fn uncompared(&self, key: &str, value: Option<&Value>, up_to: Option<u64>) -> Uncompared {
        let setting = match value {
            Some(value) => format!("with `{key}` {}", value_excerpt(value)),
            None => format!("without `{key}`"),
        };
        Uncompared::Setting { architecture: self.architecture.to_owned(), setting, up_to }
    }
}

fn value_excerpt(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
