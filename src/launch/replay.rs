//! `tito replay`: a capture, and the model that is said to have sampled it.

use std::{
    io::{Write, stdout},
    path::Path,
    sync::Arc,
};

use anyhow::{Context, bail};
use futures::StreamExt;

use super::{
    adapters, capture, engine,
    load_plan::LoadPlan,
    model,
    progress::Progress,
    settings::{CaptureSettings, Settings},
    store,
};
use crate::{
    control::model_checksum,
    replay::{Outcome, Replayed, Replayer, end_name},
    state::ServedModels,
    structured::Grammars,
    trajectory::{CapturePolicy, Trajectories},
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
    let policy = CapturePolicy { bytes: u64::MAX, ttl: None, texts: true };
    let opened = store::capture(Some(&CaptureSettings { path: Some(capture.to_owned()), policy }), &progress)?;
    let trajectories = opened.context("a capture is a file")?;
    let replayer = replayer(settings, &progress).await?;
    let counted = counted(&replayer, &trajectories, trajectory).await;
    replayer.engine.shutdown(std::time::Duration::from_secs(5)).await;
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
        tokenizer: &tokenizer,
        eos: &eos,
        max_model_len,
    };
    let engine = engine::load(load_plan, progress).await?;
    let loaded = adapters::load(&engine, &settings.adapters, modules, &models, progress).await?;
    let by_name = loaded.all().into_iter().filter_map(|(name, _)| Some((name.clone(), loaded.get(&name)?)));
    let adapters = by_name.collect();
    let step = progress.step("taking the checksum of the weights");
    let checksum = model_checksum(&*engine).await?.map(|checksum| checksum.to_string());
    step.done();
    // The tokens that may end an output, in the order in which the server names them.
    let ends = eos.primary.into_iter().chain(eos.others.iter().copied());
    let computed_by = capture::computed_by(engine.info());
    let grammars = Arc::new(Grammars::new(Arc::clone(&tokenizer), ends));
    Ok(Replayer { engine, tokenizer, grammars, adapters, checksum, computed_by })
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
        let place = format!("{trajectory} {turn}");
        match outcome {
            Outcome::Equal { tokens } => {
                counted.equal += 1;
                counted.equal_tokens += tokens;
            }
            Outcome::Partial { tokens, all, rest } => {
                counted.partial += 1;
                counted.partial_tokens += tokens;
                let which = if tokens < all { format!("the first {tokens} of {all}") } else { format!("all {all}") };
                writeln!(stdout(), "{place}: {which} tokens are equal to the bit; {rest}")?;
            }
            Outcome::Ends { captured, again, reasons } => {
                counted.differ += 1;
                let (captured, why) = (end_name(captured), why(&reasons));
                writeln!(
                    stdout(),
                    "{place}: all tokens are equal to the bit; the end was {captured}, and {again} ({why})"
                )?;
            }
            Outcome::Differs { index, captured, again, reasons } => {
                counted.differ += 1;
                let told = |(id, logprob): (crate::TokenId, f32)| format!("id {id} with log-prob {logprob}");
                let again = again.map_or_else(|| "the end".to_owned(), told);
                let (captured, why) = (told(captured), why(&reasons));
                writeln!(stdout(), "{place}: token {index} was {captured}, and is {again} now ({why})")?;
            }
            Outcome::MaskDiffers { index, captured, again, reasons } => {
                counted.differ += 1;
                let (then, now, why) = (some_of(&captured), some_of(&again), why(&reasons));
                writeln!(
                    stdout(),
                    "{place}: token {index} is the same, and its sampling mask is another one: only then it had {then}, and \
                     only now it has {now} ({why})"
                )?;
            }
            Outcome::Unrepeatable(reason) => {
                counted.unrepeatable += 1;
                writeln!(stdout(), "{place}: not repeatable: {reason}")?;
            }
        }
    }
    Ok(counted)
}

/// The first of some ids, and how many there are.
fn some_of(ids: &[crate::TokenId]) -> String {
    const SHOWN: usize = 5;
    let first: Vec<String> = ids.iter().take(SHOWN).map(ToString::to_string).collect();
    match ids.len() {
        0 => "none".to_owned(),
        count @ ..=SHOWN => format!("{count} (id {})", first.join(", ")),
        count => format!("{count} (id {}, …)", first.join(", ")),
    }
}

/// What may be why.
fn why(reasons: &[String]) -> String {
    match reasons {
        [] => "nothing else is known to be different".to_owned(),
        reasons => reasons.join("; "),
    }
}
