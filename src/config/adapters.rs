//! Adapters.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::Args;
use serde::Deserialize;

use super::number::positive;

const ADAPTERS: &str = "Adapters";
/// The name of vLLM's plugin that finds adapters by their names in a directory.
const RESOLVER: &str = "lora_filesystem_resolver";

/// Which LoRA adapters are served beside the model.
#[derive(Debug, Args)]
#[command(next_help_heading = ADAPTERS)]
pub struct AdapterArgs {
    /// Serve LoRA adapters beside the model.
    #[arg(long)]
    pub enable_lora: bool,

    /// The most adapters that compute at the same time.
    ///
    /// More adapters can be loaded. They take turns.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive)]
    pub max_loras: usize,

    /// The most adapters that are loaded at the same time [default: as many as memory holds]
    ///
    /// The next one replaces the one whose last request is the oldest.
    #[arg(long, value_name = "N", value_parser = positive)]
    pub max_cpu_loras: Option<usize>,

    /// The greatest rank that an adapter may have.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = positive)]
    pub max_lora_rank: usize,

    /// Adapters to load at the start, as NAME=DIR.
    ///
    /// A hub id may take the place of the directory. A JSON object with `name`, `path` and `base_model_name` works
    /// too.
    #[arg(long, value_name = "NAME=DIR", num_args = 1.., value_parser = module)]
    pub lora_modules: Vec<LoraModule>,

    /// Load adapters only from this directory and those in it [default: any directory]
    #[arg(long, value_name = "DIR")]
    pub lora_root: Option<PathBuf>,

    /// The directory in which requests find adapters by their names, if adapters may be loaded by whoever may use the API.
    #[arg(long, env = "VLLM_LORA_RESOLVER_CACHE_DIR", hide = true)]
    pub vllm_lora_resolver_cache_dir: Option<OsString>,

    /// The names of vLLM's plugins that are on, with commas between them; all of them where it is not set.
    #[arg(long, env = "VLLM_PLUGINS", hide = true)]
    pub vllm_plugins: Option<String>,
}

impl AdapterArgs {
    /// The directory in which vLLM's plugin would find adapters, were they allowed.
    pub fn resolver_directory(&self) -> Option<&Path> {
        let plugins = self.vllm_plugins.as_deref();
        let is_on = plugins.is_none_or(|plugins| plugins.split(',').any(|plugin| plugin == RESOLVER));
        self.vllm_lora_resolver_cache_dir.as_deref().filter(|directory| is_on && !directory.is_empty()).map(Path::new)
    }
}

/// An adapter to load at the start.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoraModule {
    /// The name under which requests ask for it.
    pub name: String,
    /// Its directory, or its hub id.
    pub path: String,
    /// The name of the base model.
    #[serde(default)]
    pub base_model_name: Option<String>,
    /// Whether experts are stored as one tensor; adapters of experts are refused in any case.
    #[serde(default, rename = "is_3d_lora_weight")]
    _is_3d_lora_weight: bool,
}

/// As vLLM reads it: with an equals sign and without a comma it is a pair, otherwise JSON.
fn module(text: &str) -> Result<LoraModule, String> {
    match text.split_once('=') {
        Some((name, path)) if !text.contains(',') && !name.is_empty() && !path.is_empty() => Ok(LoraModule {
            name: name.to_owned(),
            path: path.to_owned(),
            base_model_name: None,
            _is_3d_lora_weight: false,
        }),
        _ => serde_json::from_str(text).map_err(|error| format!("expected NAME=DIR or a JSON object: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_pairs_or_json() {
        let read = |text: &str| module(text).map(|module| (module.name, module.path, module.base_model_name));
        let named = |name: &str, path: &str, base: Option<&str>| {
            Ok((name.to_owned(), path.to_owned(), base.map(str::to_owned)))
        };
        assert_eq!(read("a=/b/c"), named("a", "/b/c", None));
        assert_eq!(read("a=b=c"), named("a", "b=c", None));
        let json = r#"{"name": "a", "path": "b", "base_model_name": "m", "is_3d_lora_weight": false}"#;
        assert_eq!(read(json), named("a", "b", Some("m")));
        for text in ["a", "=b", "a=", "{}", r#"{"name": "a", "path": "b", "other": 1}"#, "a=b,c=d"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
