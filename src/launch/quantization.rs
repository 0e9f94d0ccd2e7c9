//! Whether a checkpoint is quantised as `--quantization` says.

use anyhow::bail;

use crate::{
    engine::native,
    model::{ModelFiles, ModelSource},
};

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
        ModelSource::Gguf { .. } => Some("gguf".to_owned()),
        ModelSource::Directory { path } => native::quant_method(path, &files.config.raw),
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
