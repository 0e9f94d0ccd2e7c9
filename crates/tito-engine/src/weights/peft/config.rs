//! The settings of an adapter.
//!
//! Errors name settings, and never say their values: the file may be any, see [`fault`].

use std::borrow::Cow;

use regex::Regex;
use serde_json::{Map, Value};

use super::{PeftError, PeftOrigin, fault, pattern, quoted_excerpt, targets::Targets};

/// What of an adapter's settings its arithmetic depends on.
#[derive(Debug)]
pub(super) struct Config {
    rank: usize,
    alpha: f64,
    ranks: Vec<(Regex, usize)>,
    alphas: Vec<(Regex, f64)>,
    /// Whether a factor is divided by the root of the rank, and not by the rank.
    rank_stabilised: bool,
    pub(super) targets: Targets,
}

/// Settings that say how an adapter was made, trained or found, and nothing of what it computes.
const NEUTRAL: [&str; 16] = [
    "auto_mapping",
    "base_model_name_or_path",
    "corda_config",
    "eva_config",
    "inference_mode",
    "loftq_config",
    "lora_dropout",
    "lora_ga_config",
    "megatron_config",
    "megatron_core",
    "peft_type",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
    "task_type",
];

/// Settings that are read.
const READ: [&str; 12] = [
    "alpha_pattern",
    "bias",
    "exclude_modules",
    "init_lora_weights",
    "layers_pattern",
    "layers_to_transform",
    "lora_alpha",
    "r",
    "rank_pattern",
    "target_modules",
    "target_parameters",
    "use_rslora",
];

/// Lists that ask for nothing where they are empty.
const LISTS: [&str; 3] = ["alora_invocation_tokens", "layer_replication", "modules_to_save"];

/// What adapters are trained for, as PEFT spells it.
const TASKS: [&str; 6] = ["SEQ_CLS", "SEQ_2_SEQ_LM", "CAUSAL_LM", "TOKEN_CLS", "QUESTION_ANS", "FEATURE_EXTRACTION"];

/// Initial weights that leave the base model as it is. vLLM 0.33 has the same list.
const HARMLESS_INITS: [&str; 5] = ["gaussian", "eva", "orthogonal", "mica", "lora_ga"];

impl Config {
    /// Reads the text of `adapter_config.json`.
    pub(super) fn parse(text: &[u8]) -> Result<Self, PeftError> {
        Self::read(text).map_err(|reason| PeftError::Config(quoted_excerpt(&reason)))
    }

    fn read(text: &[u8]) -> Result<Self, String> {
        let config: Map<String, Value> = serde_json::from_slice(text).map_err(|error| fault(&error))?;
        match config.get("peft_type").and_then(Value::as_str) {
            Some("LORA") => {}
            Some(_) => return Err("`peft_type` is not LORA, which alone is served".to_owned()),
            None => return Err("`peft_type` is missing".to_owned()),
        }
        refuse_others(&config)?;
        let rank = positive_integer(&config, "r")?.ok_or("`r` is missing")?;
        let alpha = number(&config, "lora_alpha")?.ok_or("`lora_alpha` is missing")?;
        let rank_stabilised = match config.get("use_rslora") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(is_so)) => *is_so,
            Some(_) => return Err("`use_rslora` is neither true nor false".to_owned()),
        };
        Ok(Self {
            rank,
            alpha,
            ranks: patterns(&config, "rank_pattern", positive_integer)?,
            alphas: patterns(&config, "alpha_pattern", number)?,
            rank_stabilised,
            targets: Targets::read(&config)?,
        })
    }

    /// The rank of a module.
    pub(super) fn rank(&self, module: &str) -> usize {
        matching(&self.ranks, &self.key(module)).unwrap_or(self.rank)
    }

    /// What patterns of ranks and factors match.
    fn key<'a>(&self, module: &'a str) -> Cow<'a, str> {
        if self.targets.is_parameter(module) { format!("{module}.weight").into() } else { module.into() }
    }

    /// The factor of a module. As in PEFT it is computed in double precision, and applied in single precision.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "as PEFT computes it")]
    pub(super) fn scale(&self, module: &str) -> f32 {
        let alpha = matching(&self.alphas, &self.key(module)).unwrap_or(self.alpha);
        let rank = self.rank(module) as f64;
        (if self.rank_stabilised { alpha / rank.sqrt() } else { alpha / rank }) as f32
    }
}

/// Reads what the text of `adapter_config.json` says of an adapter's origin.
pub(super) fn origin(text: &[u8]) -> Result<PeftOrigin, PeftError> {
    let read = || {
        let config: Map<String, Value> = serde_json::from_slice(text).map_err(|error| fault(&error))?;
        let text = |name: &str| config.get(name).and_then(Value::as_str).map(str::to_owned);
        let peft_type = text("peft_type").ok_or("`peft_type` is missing")?;
        Ok(PeftOrigin { peft_type, base_model: text("base_model_name_or_path") })
    };
    read().map_err(|reason: String| PeftError::Config(quoted_excerpt(&reason)))
}

/// Refuses settings that change what an adapter computes, and those that nobody knows.
fn refuse_others(config: &Map<String, Value>) -> Result<(), String> {
    match config.get("bias").unwrap_or(&Value::Null) {
        Value::Null => {}
        Value::String(bias) if bias == "none" => {}
        _ => return Err("`bias` is not none; adapters that train biases are not served".to_owned()),
    }
    match config.get("task_type") {
        None | Some(Value::Null) => {}
        Some(Value::String(task)) if TASKS.contains(&task.as_str()) => {}
        Some(_) => return Err("`task_type` is none that PEFT knows".to_owned()),
    }
    match config.get("init_lora_weights") {
        None | Some(Value::Null | Value::Bool(_)) => {}
        Some(Value::String(init)) if HARMLESS_INITS.contains(&init.to_lowercase().as_str()) => {}
        Some(Value::String(_)) => {
            return Err("`init_lora_weights` is a way that changes the weights of the base model; convert the adapter with \
                        PEFT's path_initial_model_for_weight_conversion, or set it to true where the served model has the \
                        changed weights"
                .to_owned());
        }
        Some(_) => return Err("`init_lora_weights` is neither true, false nor the name of a way".to_owned()),
    }
    let known = |name: &str| NEUTRAL.contains(&name) || READ.contains(&name);
    match config.iter().find(|(name, value)| !known(name) && !is_off(name, value)) {
        None => Ok(()),
        Some((name, _)) if name == "use_dora" => Err("`use_dora` is set; DoRA is not served".to_owned()),
        Some((name, _)) => Err(format!("`{name}` is set, which is not served")),
    }
}

/// Whether a setting asks for nothing. An empty object switches a method on in PEFT, with its defaults.
fn is_off(name: &str, value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(all) => all.is_empty() && LISTS.contains(&name),
        Value::Bool(true) | Value::Number(_) | Value::String(_) | Value::Object(_) => false,
    }
}

/// A number of at least 1 that has no fraction.
fn positive_integer(config: &Map<String, Value>, name: &str) -> Result<Option<usize>, String> {
    let Some(value) = config.get(name) else { return Ok(None) };
    let whole = value.as_u64().and_then(|whole| usize::try_from(whole).ok()).filter(|whole| *whole > 0);
    whole.map(Some).ok_or_else(|| format!("`{name}` is not a whole number of at least 1"))
}

fn number(config: &Map<String, Value>, name: &str) -> Result<Option<f64>, String> {
    let Some(value) = config.get(name) else { return Ok(None) };
    let number = value.as_f64().filter(|number| number.is_finite());
    number.map(Some).ok_or_else(|| format!("`{name}` is not a number"))
}

/// Settings of modules by patterns of their names, in the order in which they are tried.
fn patterns<T>(
    config: &Map<String, Value>,
    name: &str,
    read: impl Fn(&Map<String, Value>, &str) -> Result<Option<T>, String>,
) -> Result<Vec<(Regex, T)>, String> {
    let all = match config.get(name) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(all)) => all,
        Some(_) => return Err(format!("`{name}` is not an object")),
    };
    let pattern = |(key, _): (&String, &Value)| {
        let regex = pattern::of_end(key).ok_or_else(|| {
            format!(
                "`{name}` has the pattern {key}, which is not a regular expression that is read here as Python reads it"
            )
        })?;
        let value = read(all, key).map_err(|reason| format!("`{name}`: {reason}"))?;
        Ok((regex, value.ok_or("a key has a value")?))
    };
    all.iter().map(pattern).collect()
}

/// The value of the first pattern that the end of a module's name matches, from a dot on.
fn matching<T: Copy>(patterns: &[(Regex, T)], module: &str) -> Option<T> {
    patterns.iter().find(|(pattern, _)| pattern.is_match(module)).map(|(_, value)| *value)
}
