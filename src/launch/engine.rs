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

/// What is loaded, and where it is to run.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) args: &'a ServeArgs,
    pub(super) device: Device,
    pub(super) files: &'a ModelFiles,
    pub(super) tokenizer: &'a Tokenizer,
    pub(super) eos: &'a EosTokens,
    pub(super) max_model_len: usize,
}

/// Loads the engine that the command line asks for.
pub(super) async fn load(wanted: Wanted<'_>, progress: &Progress) -> anyhow::Result<Arc<dyn Engine>> {
    let Wanted { args, device, files, max_model_len, .. } = wanted;
    if args.script.is_some() && args.engine != EngineKind::Scripted {
        bail!("--script is for --engine scripted");
    }
    match args.engine {
        EngineKind::Scripted => scripted(wanted),
        EngineKind::Native => match native::find(args, files)? {
            Ok(found) => native::load(args, device, found, max_model_len, progress).await,
            Err(reason) => bail!("the native engine does not serve this model: {reason}"),
        },
        EngineKind::Mistralrs => mistralrs(wanted, progress).await,
        EngineKind::Auto => match native::find(args, files)? {
            Ok(found) => native::load(args, device, found, max_model_len, progress).await,
            Err(reason) => {
                progress.say(&format!("not with the native engine: {reason}"));
                mistralrs(wanted, progress).await
            }
        },
    }
}

fn scripted(Wanted { args, tokenizer, eos, max_model_len, .. }: Wanted<'_>) -> anyhow::Result<Arc<dyn Engine>> {
    let info = EngineInfo::scripted(tokenizer.vocab_size(), max_model_len);
    let engine = if let Some(path) = &args.script {
        ScriptedEngine::playing(info, script::read(path, tokenizer, eos.primary)?)
    } else {
        let ends = eos.primary.into_iter().chain(eos.others.iter().copied()).collect();
        ScriptedEngine::hashed(info, ends)
    };
    Ok(Arc::new(engine.with_seed(args.seed).with_max_num_seqs(args.max_num_seqs)))
}

#[cfg(not(feature = "mistralrs"))]
#[expect(clippy::unused_async, reason = "stands in for the engine that this build leaves out")]
async fn mistralrs(_: Wanted<'_>, _: &Progress) -> anyhow::Result<Arc<dyn Engine>> {
    bail!("this build leaves the mistralrs engine out; build it with the feature `mistralrs`")
}
