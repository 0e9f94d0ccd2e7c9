//! Which engine runs the model, and loading it.

use std::sync::Arc;

use anyhow::bail;

use super::{
    logits_width, native,
    progress::Progress,
    script,
    weights::{self, Weights},
};
use crate::{
    config::{EngineKind, ServeArgs},
    engine::{Engine, EngineInfo, scripted::ScriptedEngine},
    model::{EosTokens, ModelFiles},
    tokenizer::Tokenizer,
};

/// Loads the engine that the command line asks for.
#[expect(clippy::too_many_arguments, reason = "an engine needs a bit of everything that was read")]
pub(super) async fn load(
    args: &ServeArgs,
    files: &ModelFiles,
    tokenizer: &Tokenizer,
    eos: &EosTokens,
    max_model_len: usize,
    progress: &Progress,
) -> anyhow::Result<Arc<dyn Engine>> {
    if args.script.is_some() && args.engine != EngineKind::Scripted {
        bail!("--script is for --engine scripted");
    }
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
        EngineKind::Native => {
            let weights = prepare(args, files, progress)?;
            let config = native::config(files, &weights)?;
            native::load(args, config, weights, max_model_len, progress).await
        }
        EngineKind::Mistralrs => {
            let weights = prepare(args, files, progress)?;
            let vocab_size = logits_width(files, tokenizer);
            mistralrs(args, weights, vocab_size, max_model_len, progress).await
        }
        EngineKind::Auto => {
            let weights = prepare(args, files, progress)?;
            let config = native::config(files, &weights)?;
            match native::supports(args, &weights, &config) {
                Ok(()) => native::load(args, config, weights, max_model_len, progress).await,
                Err(reason) => {
                    progress.say(&format!("not the native engine: {reason}"));
                    let vocab_size = logits_width(files, tokenizer);
                    mistralrs(args, weights, vocab_size, max_model_len, progress).await
                }
            }
        }
    }
}

fn prepare(args: &ServeArgs, files: &ModelFiles, progress: &Progress) -> anyhow::Result<Weights> {
    let step = progress.step("preparing the weights");
    let weights = weights::prepare(&files.source, args.gguf_weights)?;
    step.done();
    Ok(weights)
}

#[cfg(feature = "mistralrs")]
async fn mistralrs(
    args: &ServeArgs,
    weights: Weights,
    vocab_size: usize,
    max_model_len: usize,
    progress: &Progress,
) -> anyhow::Result<Arc<dyn Engine>> {
    use crate::{
        config::Dtype as Asked,
        engine::mistralrs::{Dtype, LoadSpec, MistralRsEngine, WeightsSource},
        model::ModelSource,
    };

    let spec = LoadSpec {
        source: match &weights.source {
            ModelSource::Gguf { path } => WeightsSource::Gguf(path.clone()),
            ModelSource::Directory { path } => WeightsSource::Directory(path.clone()),
        },
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
    let step = progress.step("loading the model into mistral.rs");
    let engine = MistralRsEngine::load(spec).await?;
    step.done();
    Ok(Arc::new(engine))
}

#[cfg(not(feature = "mistralrs"))]
#[expect(clippy::unused_async, reason = "stands in for the engine that this build leaves out")]
async fn mistralrs(_: &ServeArgs, _: Weights, _: usize, _: usize, _: &Progress) -> anyhow::Result<Arc<dyn Engine>> {
    bail!("this build leaves the mistralrs engine out; build it with the feature `mistralrs`")
}
