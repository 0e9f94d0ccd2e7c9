//! The modules that the settings of an adapter name.
//!
//! Follows `check_target_module_exists` of `peft/tuners/tuners_utils.py` of PEFT 0.21. Where the settings name modules by a
//! regular expression or by what they are in the model, nothing is refused here.

use serde_json::{Map, Value};

use super::quoted_excerpt;

/// The modules that the settings of an adapter name, as far as they are lists.
#[derive(Debug, Default)]
pub(super) struct Targets {
    named: Option<Vec<String>>,
    excluded: Vec<String>,
    layers: Option<Vec<u64>>,
}

impl Targets {
    pub(super) fn read(config: &Map<String, Value>) -> Result<Self, String> {
        let has_pattern = config.get("layers_pattern").is_some_and(|pattern| match pattern {
            Value::Null => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(all) => !all.is_empty(),
            _ => true,
        });
        let layers = if has_pattern { None } else { layers(config)? };
        let excluded = names(config, "exclude_modules")?.unwrap_or_default();
        Ok(Self { named: names(config, "target_modules")?, excluded, layers })
    }

    /// Refuses a module that the settings leave out: PEFT passes its tensors over.
    pub(super) fn check(&self, module: &str) -> Result<(), String> {
        let setting = self.leaves_out(module);
        setting.map_or(Ok(()), |setting| Err(format!("`{setting}` leaves {} out", quoted_excerpt(module))))
    }

    fn leaves_out(&self, module: &str) -> Option<&'static str> {
        if is_one_of(module, &self.excluded) {
            return Some("exclude_modules");
        }
        let named = self.named.as_ref()?;
        if named.iter().any(|name| name == module) {
            return None;
        }
        if !is_one_of(module, named) {
            return Some("target_modules");
        }
        let layers = self.layers.as_ref()?;
        let is_one = layer(module).is_some_and(|layer| layers.contains(&layer));
        (!is_one).then_some("layers_to_transform")
    }
}

/// Whether a list has a module, or the end of its name from a dot on.
fn is_one_of(module: &str, names: &[String]) -> bool {
    let is_end =
        |name: &String| module.strip_suffix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    names.iter().any(is_end)
}

/// The last number in a module's name, with two names before it and one behind.
fn layer(module: &str) -> Option<u64> {
    let parts: Vec<&str> = module.split('.').collect();
    let between = parts.get(2..parts.len().checked_sub(1)?)?;
    between.iter().rev().find_map(|part| part.parse().ok())
}

/// A list of names; `None` where the setting is not there, or no list.
fn names(config: &Map<String, Value>, setting: &str) -> Result<Option<Vec<String>>, String> {
    let Some(Value::Array(all)) = config.get(setting) else { return Ok(None) };
    let name = |value: &Value| value.as_str().map(str::to_owned);
    let all = all.iter().map(name).collect::<Option<Vec<_>>>();
    all.map(Some).ok_or_else(|| format!("`{setting}` has something else than names"))
}

/// The layers that an adapter has; `None` for all.
fn layers(config: &Map<String, Value>) -> Result<Option<Vec<u64>>, String> {
    let all = match config.get("layers_to_transform") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(all)) if all.is_empty() => return Ok(None),
        Some(Value::Array(all)) => all.iter().map(Value::as_u64).collect(),
        Some(one) => one.as_u64().map(|one| vec![one]),
    };
    all.map(Some).ok_or_else(|| "`layers_to_transform` is neither a number nor a list of numbers".to_owned())
}
