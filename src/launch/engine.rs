//! Which engine runs the model, and loading it.

use std::{sync::Arc, time::Duration};

use anyhow::bail;

#[cfg(feature = "mistralrs")]
use super::mistralrs::load as load_mistralrs;
use super::{
    compared,
    device::{self, Device},
    load_plan::LoadPlan,
    native,
    progress::Progress,
    quantization, script,
    settings::EngineSettings,
};
use crate::{
    config::EngineKind,
    engine::{Engine, EngineInfo, native::Drafting, scripted::ScriptedEngine},
    files::Silence,
};

/// How long a sequence of the scripted engine keeps a seat that another one waits for, while nobody reads it.
const UNREAD_SEAT: Duration = Duration::from_millis(100);

/// Why another engine is not started.
const SPECULATION: &str = "--speculative-config works only with the native engine";
const ROUTED_EXPERTS: &str = "--enable-return-routed-experts works only with the native engine";
const ACTIVATIONS: &str = "--activation-dtype float32 works only with the native engine";
const PART_DTYPES: &str = "--kv-cache-dtype and --lora-dtype are auto but with the native engine";
const KV_EVENTS: &str = "--kv-events-config works only with the native engine";
const ADAPTERS: &str = "only the native engine serves adapters; leave --enable-lora out, or pass --engine native";
const STEP_GATE: &str = "--step-gate works only with the native engine";

/// Where the engine computes that the command line asks for; one line says so if `auto` has to do without a GPU.
pub(super) fn device(settings: &EngineSettings, progress: &Progress) -> anyhow::Result<Device> {
    let (device, without) = decide_device(settings)?;
    if let Some(reason) = without {
        progress.say(&format!("no CUDA device: {reason}; computing on the CPU"));
    }
    if let Some(warning) = settings.idle_on(device) {
        tracing::warn!("{warning}");
    }
    Ok(device)
}

/// Where it computes, and the reason for which `auto` found no GPU.
pub(super) fn decide_device(settings: &EngineSettings) -> anyhow::Result<(Device, Option<String>)> {
    match settings.kind {
        EngineKind::Scripted => Ok((Device::Cpu, None)),
        _ => device::choose(settings.device),
    }
}

/// The engine that is to run a model, and what it is told.
pub(super) enum Choice {
    /// The one that plays scripts.
    Scripted,
    /// tito's own.
    Native(Box<native::Found>),
    /// mistral.rs.
    Mistralrs {
        /// Why the native engine is not taken, if it was asked.
        native_reason: Option<String>,
        /// Why mistral.rs has not been shown to compute this right, if it has not.
        unproven: Option<String>,
    },
}

/// Chooses the engine that the command line asks for; fails with one sentence if none of them may serve this.
pub(super) fn choose(load_plan: LoadPlan<'_>) -> anyhow::Result<Choice> {
    let LoadPlan { settings, files, .. } = load_plan;
    quantization::check(settings.quantization.as_deref(), files)?;
    if settings.script.is_some() && settings.kind != EngineKind::Scripted {
        bail!("--script works only with --engine scripted");
    }
    if settings.unproven_models && matches!(settings.kind, EngineKind::Native | EngineKind::Scripted) {
        bail!("--unproven-models works only with --engine mistralrs or auto");
    }
    let native_only = for_native_only(settings);
    if let Some(flag) = native_only.filter(|_| matches!(settings.kind, EngineKind::Mistralrs | EngineKind::Scripted)) {
        bail!("{flag}");
    }
    match settings.kind {
        EngineKind::Scripted => Ok(Choice::Scripted),
        EngineKind::Native => match native::find(load_plan)? {
            Ok(found) => Ok(Choice::Native(Box::new(found))),
            Err(reason) => bail!("the native engine cannot serve this model: {reason}"),
        },
        EngineKind::Mistralrs => mistralrs(load_plan, None),
        EngineKind::Auto => match native::find(load_plan)? {
            Ok(found) => Ok(Choice::Native(Box::new(found))),
            Err(reason) => match native_only {
                Some(flag) => bail!("{flag}, which cannot serve this model: {reason}"),
                None => mistralrs(load_plan, Some(reason)),
            },
        },
    }
}

/// mistral.rs, where it may serve this; `native_reason` is why the native engine does not, if it was asked.
fn mistralrs(load_plan: LoadPlan<'_>, native_reason: Option<String>) -> anyhow::Result<Choice> {
    let unproven = compared::unproven(load_plan, native_reason.as_deref())?;
    Ok(Choice::Mistralrs { native_reason, unproven })
}

/// Loads the engine that the command line asks for.
pub(super) async fn load(load_plan: LoadPlan<'_>, progress: &Progress) -> anyhow::Result<Arc<dyn Engine>> {
    let LoadPlan { settings, device, max_model_len, .. } = load_plan;
    // Whatever a thread that loads says when it panics is the reason of the one error that follows.
    let _silence = Silence::begin();
    match choose(load_plan)? {
        Choice::Scripted => scripted(load_plan),
        Choice::Native(found) => native::load(settings, device, *found, max_model_len, progress).await,
        Choice::Mistralrs { native_reason, unproven } => {
            if let Some(reason) = native_reason {
                progress.say(&format!("not with the native engine: {reason}"));
            }
            load_mistralrs(load_plan, unproven, progress).await
        }
    }
}

/// What is said of a flag that is given and that no other engine than the native one heeds.
fn for_native_only(settings: &EngineSettings) -> Option<&'static str> {
    let flags = [
        (settings.return_routed_experts, ROUTED_EXPERTS),
        (matches!(settings.drafting, Drafting::Required(_)), SPECULATION),
        (settings.f32_activations(), ACTIVATIONS),
        (settings.asks_for_part_dtypes(), PART_DTYPES),
        (settings.step_gate.is_some(), STEP_GATE),
        (settings.kv_events.is_some(), KV_EVENTS),
        (settings.adapters.is_some(), ADAPTERS),
    ];
    flags.into_iter().find_map(|(is_given, reason)| is_given.then_some(reason))
}

/// The engine that plays scripts.
pub(super) fn scripted(
    LoadPlan { settings, tokenizer, eos, max_model_len, .. }: LoadPlan<'_>,
) -> anyhow::Result<Arc<dyn Engine>> {
    let info = EngineInfo::scripted(tokenizer.vocab_size(), max_model_len);
    let engine = if let Some(path) = &settings.script {
        ScriptedEngine::playing(info, script::read(path, tokenizer, eos.primary)?)
    } else {
        let ends = eos.primary.into_iter().chain(eos.others.iter().copied()).collect();
        ScriptedEngine::hashed(info, ends)
    };
    let engine = engine.with_seats(settings.max_num_seqs, settings.max_waiting);
    Ok(Arc::new(engine.lending_seats_after(UNREAD_SEAT)))
}

/// Why mistral.rs cannot be loaded in this build.
#[cfg(not(feature = "mistralrs"))]
pub(super) const LEFT_OUT: Option<&str> =
    Some("this build has no mistralrs engine; install a build with the feature `mistralrs`");
#[cfg(feature = "mistralrs")]
pub(super) const LEFT_OUT: Option<&str> = None;

#[cfg(not(feature = "mistralrs"))]
#[expect(clippy::unused_async, reason = "stands in for the engine that this build leaves out")]
async fn load_mistralrs(_: LoadPlan<'_>, _: Option<String>, _: &Progress) -> anyhow::Result<Arc<dyn Engine>> {
    bail!("{}", LEFT_OUT.unwrap_or_default())
}
