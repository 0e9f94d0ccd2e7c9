//! `tito replay`: a capture, and the model that is said to have sampled it.

use std::{
    io::{Write, stdout},
    path::Path,
    sync::Arc,
};

use anyhow::{Context, bail};
use futures::StreamExt;

use super::{
    adapters, draft_model, engine, images,
    load_plan::LoadPlan,
    model,
    progress::Progress,
    settings::{CaptureSettings, Settings},
    store,
};
use crate::{
    control::model_checksum,
    generation::Generator,
    replay::{Outcome, Replayed, Replayer, computed_by},
    state::ServedModels,
    trajectory::{CapturePolicy, Trajectories},
    turn::StructuredOutputCompiler,
};

/// How much of a capture is proven, where nothing of it came out differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proven {
    /// Every turn, from its first token to its end.
    Whole,
    /// Of some turns only a part could be compared.
    InPart,
}

/// Samples the turns of a capture again, or those of one trajectory, and says which of them come out as they are kept.
///
/// # Errors
///
/// If a turn came out differently or could not be sampled again, or if there is nothing to replay.
pub(super) async fn replay(capture: &Path, trajectory: Option<&str>, settings: Settings) -> anyhow::Result<Proven> {
    let progress = Progress::new();
    if !capture.is_file() {
        bail!("{} does not exist; pass the file that serve --capture wrote", capture.display());
    }
    let policy = CapturePolicy { bytes: u64::MAX, ttl: None, texts: true, images: true };
    let opened = store::capture(Some(&CaptureSettings { path: Some(capture.to_owned()), policy }), &progress)?;
    let trajectories = opened.context("a capture is a file")?;
    let replayer = replayer(settings, &progress).await?;
    let counted = counted(&replayer, &trajectories, trajectory).await;
    replayer.generator.engine().shutdown(std::time::Duration::from_secs(5)).await;
    let Counted { equal, equal_tokens, partial, partial_tokens, differ, unrepeatable } = counted?;
    if equal + partial + differ + unrepeatable == 0 {
        match trajectory {
            Some(id) => bail!("there is no trajectory {id} in {}", capture.display()),
            None => bail!("{} has no trajectories", capture.display()),
        }
    }
    writeln!(
        stdout(),
        "{equal} turns equal to the bit ({equal_tokens} tokens), {partial} in part ({partial_tokens} tokens), \
         {differ} differ, {unrepeatable} not repeatable"
    )?;
    if differ + unrepeatable > 0 {
        bail!("some turns are not the same as in the file, or cannot be replayed");
    }
    Ok(if partial > 0 { Proven::InPart } else { Proven::Whole })
}

/// The model, ready to sample.
async fn replayer(settings: Settings, progress: &Progress) -> anyhow::Result<Replayer> {
    let device = engine::device(&settings.engine, progress)?;
    let draft = draft_model::files(&settings, progress).await?;
    let asked = settings.model;
    let files = model::files(&asked, progress).await?;
    let modules = adapters::find(&settings.adapters, &asked, progress).await?;
    let tokenizer = Arc::new(model::tokenizer(&asked, &files)?);
    let eos = files.eos(&tokenizer)?;
    let max_model_len = model::max_model_len(&asked, &files)?;
    let models = ServedModels::new(asked.name.clone(), asked.served_names);
    let load_plan = LoadPlan {
        settings: &settings.engine,
        images: &settings.images,
        device,
        files: &files,
        draft: draft.as_ref(),
        tokenizer: &tokenizer,
        eos: &eos,
        max_model_len,
    };
    let engine = engine::load(load_plan, progress).await?;
    let images = images::find(&*engine, &files, &tokenizer, settings.images.clone(), progress)?;
    let loaded = adapters::load(&engine, &settings.adapters, modules, &models, progress).await?;
    let by_name = loaded.all().into_iter().filter_map(|(name, _)| Some((name.clone(), loaded.get(&name)?)));
    let adapters = by_name.collect();
    let step = progress.step("taking the checksum of the weights");
    let checksum = model_checksum(&*engine).await?.map(|checksum| checksum.to_string());
    step.done();
    // The tokens that may end an output, in the order in which the server names them.
    let ends = eos.primary.into_iter().chain(eos.others.iter().copied());
    Ok(Replayer {
        compiler: Arc::new(StructuredOutputCompiler::new(Arc::clone(&tokenizer), ends)),
        media: images.ok().map(|images| images.media),
        adapters,
        weights: engine.current_weights().number,
        checksum,
        computed_by: computed_by(engine.info()),
        generator: Generator::new(engine, Arc::clone(&tokenizer)),
        tokenizer,
        owner: None,
        cache_salt: None,
    })
}

#[derive(Default)]
struct Counted {
    equal: usize,
    equal_tokens: usize,
    partial: usize,
    partial_tokens: usize,
    differ: usize,
    unrepeatable: usize,
}

/// Replays, and prints a line for each turn that is not equal as a whole.
async fn counted(
    replayer: &Replayer,
    trajectories: &Trajectories,
    trajectory: Option<&str>,
) -> anyhow::Result<Counted> {
    let mut counted = Counted::default();
    let mut all = std::pin::pin!(replayer.replay(trajectories, trajectory));
    while let Some(Replayed { trajectory, turn, outcome }) = all.next().await {
        match &outcome {
            Outcome::Equal { tokens } => {
                counted.equal += 1;
                counted.equal_tokens += tokens;
                continue;
            }
            Outcome::Partial { tokens, .. } => {
                counted.partial += 1;
                counted.partial_tokens += tokens;
            }
            Outcome::Ends { .. } | Outcome::Differs { .. } | Outcome::MaskDiffers { .. } => counted.differ += 1,
            Outcome::Unrepeatable(_) => counted.unrepeatable += 1,
        }
        writeln!(stdout(), "{trajectory} {turn}: {}{}", outcome.told(), why(&outcome))?;
    }
    Ok(counted)
}

/// What may be why a turn came out differently; empty for any other turn.
fn why(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Equal { .. } | Outcome::Partial { .. } | Outcome::Unrepeatable(_) => String::new(),
        _ if outcome.reasons().is_empty() => " (nothing else is known to be different)".to_owned(),
        _ => format!(" ({})", outcome.reasons().join("; ")),
    }
}
