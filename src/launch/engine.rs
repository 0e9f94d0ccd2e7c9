//! Which engine runs the model, and loading it.

use std::sync::Arc;

use anyhow::bail;

#[cfg(feature = "mistralrs")]
use super::mistralrs::load as mistralrs;
use super::{device::Device, native, progress::Progress, script};
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
    device: Device,
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
        EngineKind::Native => match native::find(args, files)? {
            Ok(found) => native::load(args, device, found, max_model_len, progress).await,
            Err(reason) => bail!("the native engine does not serve this model: {reason}"),
        },
        EngineKind::Mistralrs => mistralrs(args, device, files, tokenizer, max_model_len, progress).await,
        EngineKind::Auto => match native::find(args, files)? {
            Ok(found) => native::load(args, device, found, max_model_len, progress).await,
            Err(reason) => {
                progress.say(&format!("not with the native engine: {reason}"));
                mistralrs(args, device, files, tokenizer, max_model_len, progress).await
            }
        },
    }
}

#[cfg(not(feature = "mistralrs"))]
#[expect(clippy::unused_async, reason = "stands in for the engine that this build leaves out")]
async fn mistralrs(
    _: &ServeArgs,
    _: Device,
    _: &ModelFiles,
    _: &Tokenizer,
    _: usize,
    _: &Progress,
) -> anyhow::Result<Arc<dyn Engine>> {
    bail!("this build leaves the mistralrs engine out; build it with the feature `mistralrs`")
}
