//! The modules that the settings of an adapter name.
//!
//! Follows `check_target_module_exists` and `_maybe_include_all_linear_layers` of `peft/tuners/tuners_utils.py` of PEFT 0.21.
//! PEFT passes tensors of other modules over.

use regex::Regex;
use serde_json::{Map, Value};

use super::{
    PeftKind,
    pattern::{self, Pattern},
    quoted_excerpt,
};

/// All linear modules of a model but its head. PEFT reads it in any case of letters.
const ALL_LINEAR: &str = "all-linear";
/// The last part of the name of every head.
const HEAD: &str = "lm_head";
/// The parameter of a module that an adapter of the module changes.
const WEIGHT: &str = ".weight";

/// The modules that the settings of an adapter name.
#[derive(Debug)]
pub(super) struct Targets {
    modules: Modules,
    /// Parameters that are named each for itself, by the ends of their names.
    parameters: Vec<String>,
    excluded: Option<Names>,
    layers: Option<Layers>,
}

/// What `target_modules` is.
#[derive(Debug)]
enum Modules {
    /// The adapter is of parameters alone.
    None,
    /// Those that the adapter has tensors of.
    Any,
    AllLinear,
    Named(Names),
}

/// Modules by their names.
#[derive(Debug)]
enum Names {
    /// By the ends of their names, from a dot on.
    Listed(Vec<String>),
    Matching(Pattern),
}

/// The layers that an adapter has.
#[derive(Debug)]
struct Layers {
    numbers: Vec<u64>,
    /// What may stand before the number of a layer; none of them for anything.
    patterns: Vec<Regex>,
}

impl Targets {
    pub(super) fn read(config: &Map<String, Value>) -> Result<Self, String> {
        let parameters = parameters(config)?;
        let modules = modules(config, !parameters.is_empty())?;
        let excluded = match config.get("exclude_modules") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) if text.is_empty() => None,
            Some(value) => Some(Names::read("exclude_modules", value)?),
        };
        Ok(Self { modules, parameters, excluded, layers: layers(config)? })
    }

    /// Refuses a module that the settings leave out: PEFT passes its tensors over.
    pub(super) fn check(&self, module: &str, kind: Option<PeftKind>) -> Result<(), String> {
        let setting = self.leaves_out(module, kind)?;
        if self.is_parameter(module) {
            return match setting {
                Some(_) => Ok(()),
                None => Err(format!(
                    "both `target_modules` and `target_parameters` name {}, whose tensors are then of either",
                    quoted_excerpt(module)
                )),
            };
        }
        setting.map_or(Ok(()), |setting| Err(format!("`{setting}` leaves {} out", quoted_excerpt(module))))
    }

    /// Whether the weight of a module is named for itself. PEFT finds its rank and factor by the name of the weight then.
    pub(super) fn is_parameter(&self, module: &str) -> bool {
        !self.parameters.is_empty() && is_one_of(&format!("{module}{WEIGHT}"), &self.parameters)
    }

    fn leaves_out(&self, module: &str, kind: Option<PeftKind>) -> Result<Option<&'static str>, String> {
        if let Some(excluded) = &self.excluded
            && excluded.has("exclude_modules", module)?
        {
            return Ok(Some("exclude_modules"));
        }
        let is_named = match &self.modules {
            Modules::None => false,
            Modules::Any => true,
            Modules::AllLinear => kind != Some(PeftKind::Embedding) && module.rsplit('.').next() != Some(HEAD),
            Modules::Named(names) => names.has("target_modules", module)?,
        };
        if !is_named {
            return Ok(Some("target_modules"));
        }
        // A module that is named in full is one of the adapter, in whichever layer.
        let is_in_full =
            matches!(&self.modules, Modules::Named(Names::Listed(all)) if all.iter().any(|name| name == module));
        let is_in_layer = self.layers.as_ref().is_none_or(|layers| is_in_full || layers.have(module));
        Ok((!is_in_layer).then_some("layers_to_transform"))
    }
}

impl Names {
    fn read(setting: &str, value: &Value) -> Result<Self, String> {
        match value {
            Value::String(text) => Pattern::whole(text).map(Self::Matching).ok_or_else(|| {
                format!(
                    "`{setting}` is a regular expression that is not read here as Python reads it; send a list of names"
                )
            }),
            Value::Array(all) => list(setting, all).map(Self::Listed),
            _ => Err(format!("`{setting}` is neither a list of names nor a regular expression")),
        }
    }

    fn has(&self, setting: &str, module: &str) -> Result<bool, String> {
        match self {
            Self::Listed(names) => Ok(is_one_of(module, names)),
            Self::Matching(pattern) => pattern.is_match(module).ok_or_else(|| {
                format!("`{setting}` takes too long to match {}; send a list of names", quoted_excerpt(module))
            }),
        }
    }
}

impl Layers {
    /// Whether a module is in one of them. The first number of its name counts that stands where it may.
    fn have(&self, module: &str) -> bool {
        let number = if self.patterns.is_empty() {
            let parts: Vec<&str> = module.split('.').collect();
            let between = parts.get(2..parts.len().saturating_sub(1)).unwrap_or_default();
            let is_number = |part: &&&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            between.iter().find(is_number).map(|part| (*part).to_owned())
        } else {
            let captures = self.patterns.iter().find_map(|pattern| pattern.captures(module));
            captures.and_then(|captures| Some(captures.name("idx")?.as_str().to_owned()))
        };
        number.and_then(|number| number.parse().ok()).is_some_and(|number| self.numbers.contains(&number))
    }
}

/// Whether a list has a name, or the end of it from a dot on.
fn is_one_of(name: &str, names: &[String]) -> bool {
    let is_end =
        |end: &String| name.strip_suffix(end.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    names.iter().any(is_end)
}

fn list(setting: &str, all: &[Value]) -> Result<Vec<String>, String> {
    let name = |value: &Value| value.as_str().map(str::to_owned);
    let all = all.iter().map(name).collect::<Option<Vec<_>>>();
    all.ok_or_else(|| format!("`{setting}` has something else than names"))
}

/// Reads the modules, which an adapter of parameters need not have.
fn modules(config: &Map<String, Value>, has_parameters: bool) -> Result<Modules, String> {
    let value = match config.get("target_modules") {
        None | Some(Value::Null) if has_parameters => return Ok(Modules::None),
        // Trainers that are not PEFT save what they trained beside a config without names, as SkyRL does. PEFT would pass over what is
        // not in a list of its own.
        Some(Value::Null) => return Ok(Modules::Any),
        None => return Err("`target_modules` is missing".to_owned()),
        Some(value) => value,
    };
    let Value::String(text) = value else { return Names::read("target_modules", value).map(Modules::Named) };
    for setting in ["layers_to_transform", "layers_pattern"] {
        if config.get(setting).is_some_and(|value| !value.is_null()) {
            return Err(format!(
                "`{setting}` is set beside a `target_modules` that is no list, which PEFT refuses too"
            ));
        }
    }
    if text.eq_ignore_ascii_case(ALL_LINEAR) {
        return Ok(Modules::AllLinear);
    }
    Names::read("target_modules", value).map(Modules::Named)
}

/// The parameters that are named for themselves: those that are the weight of a module, such as a router's.
fn parameters(config: &Map<String, Value>) -> Result<Vec<String>, String> {
    let all = match config.get("target_parameters") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(all)) => list("target_parameters", all)?,
        Some(_) => return Err("`target_parameters` is no list of names".to_owned()),
    };
    if all.iter().all(|name| name.ends_with(WEIGHT)) {
        return Ok(all);
    }
    Err("`target_parameters` names other parameters than the weights of routers, such as `gate.weight`, which is not served"
        .to_owned())
}

/// The layers that an adapter has; `None` for all.
fn layers(config: &Map<String, Value>) -> Result<Option<Layers>, String> {
    let patterns = match config.get("layers_pattern") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(text)) if text.is_empty() => Vec::new(),
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(all)) => list("layers_pattern", all)?,
        Some(_) => return Err("`layers_pattern` is neither a name nor a list of names".to_owned()),
    };
    let numbers = match config.get("layers_to_transform") {
        None | Some(Value::Null) if patterns.is_empty() => return Ok(None),
        None | Some(Value::Null) => {
            return Err("`layers_pattern` is set without `layers_to_transform`, which PEFT refuses too".to_owned());
        }
        Some(Value::Array(all)) if all.is_empty() => return Ok(None),
        Some(Value::Array(all)) => all.iter().map(Value::as_u64).collect(),
        Some(one) => one.as_u64().map(|one| vec![one]),
    };
    let numbers = numbers.ok_or("`layers_to_transform` is neither a number nor a list of numbers")?;
    let patterns: Option<Vec<Regex>> = patterns.iter().map(|text| pattern::of_layers(text)).collect();
    let patterns =
        patterns.ok_or("`layers_pattern` has a regular expression that is not read here as Python reads it")?;
    Ok(Some(Layers { numbers, patterns }))
}
