//! Which engine runs the model, and loading it.

use std::sync::Arc;

use anyhow::bail;

use super::{logits_width, script};
use crate::{
    config::{EngineKind, ServeArgs},
    engine::{Engine, EngineInfo, scripted::ScriptedEngine},
    model::{EosTokens, ModelFiles},
    tokenizer::Tokenizer,
};

/// Loads the engine that the command line asks for.
pub(super) async fn load(
    args: &ServeArgs,
    files: &ModelFiles,
    tokenizer: &Tokenizer,
    eos: &EosTokens,
    max_model_len: usize,
) -> anyhow::Result<Arc<dyn Engine>> {
    if args.script.is_some() && args.engine != EngineKind::Scripted {
        bail!("--script is for --engine scripted");
    }
    let vocab_size = logits_width(files, tokenizer);
    match args.engine {
        EngineKind::Scripted => {
            let info = EngineInfo {
                engine: "scripted",
                device: "cpu".to_owned(),
                dtype: "none".to_owned(),
                vocab_size: tokenizer.vocab_size(),
                max_model_len,
            };
            let engine = if let Some(path) = &args.script {
                ScriptedEngine::playing(info, script::read(path, tokenizer, eos.primary)?)
            } else {
                let ends = eos.primary.into_iter().chain(eos.others.iter().copied()).collect();
                ScriptedEngine::hashed(info, ends)
            };
            Ok(Arc::new(engine.with_seed(args.seed).with_max_num_seqs(args.max_num_seqs)))
        }
        EngineKind::Auto | EngineKind::Mistralrs => mistralrs(args, files, vocab_size, max_model_len).await,
    }
}

#[cfg(feature = "mistralrs")]
async fn mistralrs(
    args: &ServeArgs,
    files: &ModelFiles,
    vocab_size: usize,
    max_model_len: usize,
) -> anyhow::Result<Arc<dyn Engine>> {
    use crate::{
        config::Dtype as Asked,
        engine::mistralrs::{Dtype, LoadSpec, MistralRsEngine},
    };

    let weights = super::weights::prepare(&files.source, args.gguf_weights)?;
    let spec = LoadSpec {
        source: weights.source.clone(),
        dtype: match args.dtype {
            Asked::Auto => Dtype::Auto,
            Asked::Float16 => Dtype::F16,
            Asked::Bfloat16 => Dtype::Bf16,
            Asked::Float32 => Dtype::F32,
        },
        max_model_len,
        vocab_size,
        seed: args.seed,
    };
    Ok(Arc::new(MistralRsEngine::load(spec).await?))
}

#[cfg(not(feature = "mistralrs"))]
#[expect(clippy::unused_async, reason = "stands in for the engine that this build leaves out")]
async fn mistralrs(_: &ServeArgs, _: &ModelFiles, _: usize, _: usize) -> anyhow::Result<Arc<dyn Engine>> {
    anyhow::bail!(
        "this build has no engine for models; build it with the feature `mistralrs`, or pass --engine scripted"
    )
}
