//! Whether a checkpoint is quantised as `--quantization` says.

use anyhow::bail;
use serde_json::Value;

use crate::model::{ModelFiles, ModelSource};

/// What vLLM calls a method besides its name in `quantization_config`, where it is about its kernels.
const ALIASES: [(&str, &str); 5] = [
    ("gptq_marlin", "gptq"),
    ("awq_marlin", "awq"),
    ("auto_awq", "awq"),
    ("gpt_oss_mxfp4", "mxfp4"),
    ("modelopt_fp4", "modelopt"),
];

/// Refuses a method that is not the checkpoint's own: nothing is quantised here.
pub(super) fn check(asked: Option<&str>, files: &ModelFiles) -> anyhow::Result<()> {
    let Some(asked) = asked else { return Ok(()) };
    let own = match &files.source {
        ModelSource::Gguf { .. } => Some("gguf"),
        ModelSource::Directory { path } => {
            let config = &files.config.raw;
            let settings = ["quantization_config", "compression_config"].iter().find_map(|key| config.get(*key));
            let method = settings.and_then(|settings| settings.get("quant_method")).and_then(Value::as_str);
            // What modelopt used to write instead.
            method.or_else(|| path.join("hf_quant_config.json").exists().then_some("modelopt"))
        }
    };
    let lower = asked.to_lowercase();
    let method = ALIASES.iter().find(|(alias, _)| *alias == lower).map_or(&*lower, |(_, method)| method);
    match own {
        _ if ["", "none", "null"].contains(&method) => Ok(()),
        Some(own) if own == method => Ok(()),
        Some(own) => {
            bail!("--quantization {asked} does not fit the model, which is quantised with {own}; leave it out")
        }
        None => bail!(
            "--quantization {asked} does not fit the model, which is not quantised; tito quantises nothing, so leave it out"
        ),
    }
}
