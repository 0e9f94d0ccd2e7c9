//! `tito replay`: a capture, and the model that is said to have sampled it.

use std::{
    io::{Write, stdout},
    path::Path,
    sync::Arc,
};

use anyhow::{Context, bail};
use futures::StreamExt;

use super::{
    adapters, checksums, engine, model,
    progress::Progress,
    settings::{CaptureSettings, Settings},
    store,
    wanted::Wanted,
};
use crate::{
    api::ServedModels,
    replay::{Outcome, Replayed, Replayer},
    structured::Grammars,
    trajectory::{CapturePolicy, Trajectories},
};

/// Samples the turns of a capture again, or those of one trajectory, and says which of them come out as they are kept.
///
/// # Errors
///
/// If a turn came out differently or could not be sampled again, or if there is nothing to replay.
pub(super) async fn replay(capture: &Path, trajectory: Option<&str>, settings: Settings) -> anyhow::Result<()> {
    let progress = Progress::new();
    if !capture.is_file() {
        bail!("there is no capture at {}", capture.display());
    }
    let policy = CapturePolicy { bytes: u64::MAX, ttl: None, texts: true };
    let opened = store::capture(Some(&CaptureSettings { path: Some(capture.to_owned()), policy }), &progress)?;
    let trajectories = opened.context("a capture is a file")?;
    let replayer = replayer(settings, &progress).await?;
    let counted = counted(&replayer, &trajectories, trajectory).await;
    replayer.engine.shutdown(std::time::Duration::from_secs(5)).await;
    let Counted { equal, tokens, differ, unrepeatable } = counted?;
    if equal + differ + unrepeatable == 0 {
        match trajectory {
            Some(id) => bail!("there is no trajectory {id} in {}", capture.display()),
            None => bail!("there is nothing in {}", capture.display()),
        }
    }
    writeln!(
        stdout(),
        "{equal} turns equal to the bit ({tokens} tokens), {differ} differ, {unrepeatable} not repeatable"
    )?;
    if differ + unrepeatable > 0 {
        bail!("not every turn came out as it is kept");
    }
    Ok(())
}

/// The model, ready to sample.
async fn replayer(settings: Settings, progress: &Progress) -> anyhow::Result<Replayer> {
    let device = engine::device(&settings.engine, progress)?;
    let asked = settings.model;
    let files = model::files(&asked, progress).await?;
    let tokenizer = Arc::new(model::tokenizer(&asked, &files)?);
    let eos = files.eos(&tokenizer)?;
    let max_model_len = model::max_model_len(&asked, &files)?;
    let models = ServedModels::new(asked.name.clone(), asked.served_names);
    let wanted =
        Wanted { settings: &settings.engine, device, files: &files, tokenizer: &tokenizer, eos: &eos, max_model_len };
    let engine = engine::load(wanted, progress).await?;
    let loaded = adapters::load(&engine, settings.adapters, &models, progress).await?;
    let by_name = loaded.all().into_iter().filter_map(|(name, _)| Some((name.clone(), loaded.get(&name)?)));
    let adapters = by_name.collect();
    let step = progress.step("taking the checksum of the weights");
    let checksum = checksums::of(&engine).await?;
    step.done();
    // The tokens that may end an output, in the order in which the server names them.
    let ends = eos.primary.into_iter().chain(eos.others.iter().copied());
    let computed_by = checksums::computed_by(engine.info());
    Ok(Replayer { engine, grammars: Arc::new(Grammars::new(tokenizer, ends)), adapters, checksum, computed_by })
}

#[derive(Default)]
struct Counted {
    equal: usize,
    tokens: usize,
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
            Outcome::Equal { tokens, all } => {
                counted.equal += 1;
                counted.tokens += tokens;
                if tokens < all {
                    let rest = "weights were replaced then, and the rest is not proven";
                    writeln!(stdout(), "{place}: the first {tokens} of {all} tokens are equal to the bit; {rest}")?;
                }
            }
            Outcome::Differs { index, captured, again, reasons } => {
                counted.differ += 1;
                let told = |(id, logprob): (crate::TokenId, f32)| format!("id {id} with log-prob {logprob}");
                let again = again.map_or_else(|| "the end".to_owned(), told);
                let why = match &*reasons {
                    [] => "nothing else is known to be different".to_owned(),
                    reasons => reasons.join("; "),
                };
                let captured = told(captured);
                writeln!(stdout(), "{place}: token {index} was {captured}, and is {again} now ({why})")?;
            }
            Outcome::Unrepeatable(reason) => {
                counted.unrepeatable += 1;
                writeln!(stdout(), "{place}: not repeatable: {reason}")?;
            }
        }
    }
    Ok(counted)
}
