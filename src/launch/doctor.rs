//! `tito doctor`: what `serve` would do with a model on this machine, and why, without its weights.
//!
//! Owns what is printed, and in which order. Refuses to decide anything: what decides for `serve` is asked.

use std::{
    io::{Write, stdout},
    path::Path,
};

use anyhow::bail;

use super::{
    adapters, admin,
    device::Device,
    draft_model,
    engine::{self, Choice},
    images, kv_events, listen,
    load_plan::LoadPlan,
    memory::{self, megabytes},
    model, native, native_weights,
    parsers::{self, Vocabulary},
    progress::Progress,
    settings::{AdminPort, Listener, Settings},
    text::TextSide,
    weights,
};
use crate::{
    config::{DeviceArg, Dtype},
    engine::native::{Dtype as NativeDtype, NativeSettings, Plan, plan},
    files::{Silence, without_panics},
    model::{ModelFiles, ModelSource},
};

/// Prints what `serve` would do, and fails as it would, in so far as that shows without weights, adapters and stores.
pub(super) async fn examine(
    (listener, admin_port): (Listener, Option<AdminPort>),
    settings: &Settings,
) -> anyhow::Result<()> {
    // A port that is taken is what `serve` fails with first; the rest is worth reading all the same.
    let port = listen::bind(listener, &["--host", "--port"]).await.map(drop);
    let admin_port = admin::bind(admin_port).await.map(drop);
    let examined = of_model(settings).await;
    port.and(admin_port).and(examined)?;
    say("start", "serve would start with these flags")
}

/// Prints a line about one thing.
fn say(what: &str, text: &str) -> anyhow::Result<()> {
    Ok(writeln!(stdout(), "{what}: {text}")?)
}

async fn of_model(settings: &Settings) -> anyhow::Result<()> {
    let progress = Progress::silent();
    adapters::check(&settings.adapters, &progress)?;
    let (device, without) = engine::decide_device(&settings.engine)?;
    say("device", &device_text(device, settings.engine.device, without))?;
    if let Some(warning) = settings.engine.idle_on(device) {
        tracing::warn!("{warning}");
    }
    let mut files = model::files_without_weights(&settings.model, &progress).await?;
    let draft = draft_model::files_without_weights(settings, &progress).await?;
    settings.sampling.take_over(&mut files)?;
    say("model", &files_text(&files))?;
    let text = TextSide::read(settings, &files, &progress)?;
    settings.sampling.policy(&files, &text.eos)?;
    say("chat template", &text.template_source)?;
    say_parsers(&files, &text)?;
    let max_model_len = model::max_model_len(&settings.model, &files)?;
    say("context", &of_context(max_model_len, files.max_model_len()))?;
    let of_draft = settings.engine.draft_model.as_ref().zip(draft.as_ref());
    let is_fetched = is_fetched(&settings.model.name, &files)
        && of_draft.is_none_or(|(config, files)| is_fetched(&config.model, files));
    of_engine(text.load_plan(settings, device, (&files, draft.as_ref()), max_model_len), is_fetched).await
}

fn device_text(device: Device, asked: DeviceArg, without: Option<String>) -> String {
    match (device, without) {
        (Device::Cuda(number), _) => format!("cuda:{number}"),
        (Device::Cpu, Some(reason)) => format!("cpu, because there is no CUDA device: {reason}"),
        (Device::Cpu, None) if asked == DeviceArg::Auto => {
            "cpu, because this build computes on the CPU only".to_owned()
        }
        (Device::Cpu, None) => "cpu".to_owned(),
    }
}

fn files_text(files: &ModelFiles) -> String {
    let kind = match &files.source {
        ModelSource::Gguf { .. } => "a GGUF file",
        ModelSource::Directory { .. } => "a directory",
    };
    let family = files.config.architectures.first().or(files.config.model_type.as_ref());
    format!("{} ({kind}), of the family {}", files.path().display(), family.map_or("unknown", String::as_str))
}

fn of_context(tokens: usize, longest: Option<usize>) -> String {
    match longest {
        Some(longest) if longest > tokens => format!("{tokens} tokens, of the {longest} that the model supports"),
        _ => format!("{tokens} tokens"),
    }
}

/// Says which parsers fit the chat template, whether or not the flags ask for them.
fn say_parsers(files: &ModelFiles, text: &TextSide) -> anyhow::Result<()> {
    let vocabulary = Vocabulary::new(&text.tokenizer, &files.tokenizer_config);
    for (flag, fitting) in parsers::fitting(model::template_texts(files, text.given.as_ref()), vocabulary) {
        match fitting {
            Ok(name) => say(flag, &format!("auto is {name}, by the chat template"))?,
            Err(reason) => say(flag, &format!("auto is none: {reason}"))?,
        }
    }
    Ok(())
}

/// Whether the weights of a model are here: those of a hub id may have to be fetched.
fn is_fetched(name: &str, files: &ModelFiles) -> bool {
    Path::new(name).exists() || weights::are_in(files.path())
}

async fn of_engine(load_plan: LoadPlan<'_>, is_fetched: bool) -> anyhow::Result<()> {
    let LoadPlan { settings, device, images, max_model_len, .. } = load_plan;
    let _silence = Silence::begin();
    let choice = engine::choose(load_plan)?;
    images::check_processor(images, matches!(&choice, Choice::Native(found) if found.reads_images()))?;
    match choice {
        Choice::Scripted => {
            engine::scripted(load_plan)?;
            say("engine", "scripted, which plays scripts and computes nothing")
        }
        Choice::Native(found) => {
            say("engine", "native")?;
            let native = native::settings(settings, device, *found, max_model_len).await?;
            kv_events::bind(settings.kv_events.as_ref()).await.map(drop)?;
            of_native(&native, load_plan, is_fetched)
        }
        Choice::Mistralrs { native_reason, unproven } => {
            let because = native_reason.map_or_else(String::new, |reason| format!(", not native: {reason}"));
            say("engine", &format!("mistralrs{because}"))?;
            if let Some(reason) = unproven {
                say("unproven", &reason)?;
            }
            engine::LEFT_OUT.map_or(Ok(()), |reason| bail!("{reason}"))
        }
    }
}

fn weights_text(bytes: Option<u64>, is_fetched: bool) -> String {
    let Some(bytes) = bytes else {
        return "those in FP8 or MXFP4 stay as they are; how large they are shows once serve has downloaded them"
            .to_owned();
    };
    let absent = if is_fetched { "" } else { ", which serve has to download first" };
    format!("{}{absent}", megabytes(bytes))
}

fn of_native(native: &NativeSettings, load_plan: LoadPlan<'_>, is_fetched: bool) -> anyhow::Result<()> {
    let why = match (load_plan.settings.dtype, native.dtype) {
        (Dtype::Auto, NativeDtype::Bf16) => "the type of the weights",
        (Dtype::Float16, _) => "because this engine does not compute in float16; every number of it is exact",
        (Dtype::Auto, NativeDtype::F32) => "because the weights are not in bfloat16; all of their numbers are exact",
        _ => "as --dtype says",
    };
    say("dtype", &format!("{}, {why}", native.dtype.name()))?;
    if native.f32_activations {
        say("activations", "f32, as --activation-dtype says; keys and values too")?;
    }
    say("weights", &weights_text(native_weights::weight_bytes(native)?, is_fetched))?;
    let planned = without_panics(|| plan(native, is_fetched));
    let Plan { device, cached_tokens, state_bytes, draft_tokens } =
        planned.map_err(|reason| anyhow::anyhow!("the model cannot be loaded: {reason}"))??;
    say("kernels", &device)?;
    let cache = megabytes(native.kv_cache_bytes);
    let room = match cached_tokens {
        Some(tokens) => format!("{cache}, room for {tokens} tokens over all sequences"),
        None => "what the weights leave of the GPU's memory, see --gpu-memory-utilization".to_owned(),
    };
    say("keys and values", &room)?;
    if let Some(line) = cached_tokens.and_then(|tokens| native::shorter_than_context(tokens, load_plan.max_model_len)) {
        say("limit", &line)?;
    }
    if let Some((draft, tokens)) = native.draft_model.as_ref().zip(draft_tokens) {
        let (path, weights) = (draft.path().display(), draft_model::weights_text(draft, native)?);
        let absent = if is_fetched { "" } else { ", which serve has to download first" };
        say("draft model", &format!("{path}, {weights}{absent}; room for {tokens} tokens, from the same memory"))?;
    }
    if state_bytes > 0 {
        say("recurrent states", &format!("{state_bytes} bytes for each sequence, from the same memory"))?;
    }
    let known = |bytes: Option<u64>| bytes.map_or_else(|| "an unknown amount".to_owned(), megabytes);
    say("memory", &format!("{} free of {}", known(crate::memory::available()), known(memory::all())))
}
