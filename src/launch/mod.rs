//! From a command line to a running server: everything is read, checked and announced here.
//!
//! Owns the order of start-up and what a person sees of it. Refuses to know what any part does.

mod adapters;
mod admin;
mod capture;
mod compared;
mod device;
mod doctor;
mod draft_model;
mod engine;
mod harmony;
mod images;
mod inspect;
mod kernels;
mod kv_events;
mod listen;
mod load_plan;
mod loaded;
mod memory;
#[cfg(feature = "mistralrs")]
mod mistralrs;
mod model;
mod native;
mod native_weights;
mod parsers;
mod progress;
mod quantization;
mod replay;
mod script;
mod settings;
mod step_gate;
mod store;
mod text;
mod traces;
mod weights;

use std::{error::Error, fmt, path::Path, sync::Arc};

use anyhow::{Context, anyhow};
use time::UtcOffset;

use crate::{
    admin::{Admin, Served},
    config::ServeArgs,
    control::Control,
    engine::{Engine, EngineInfo, native::BLOCK_SIZE},
    files::without_panics,
    gguf::{GgufFile, convert},
    server::{self, Port, Ports, Work},
    state::Api,
};
pub use adapters::merge;
pub use inspect::inspect;
pub use kernels::try_kernels;
use loaded::Loaded;
use progress::Progress;
pub use replay::Proven;
use settings::{PortSettings, Settings};

/// Flags that make no sense together, whatever the machine and the model: nobody need start the server with them again.
#[derive(Debug)]
pub struct SenselessFlags(anyhow::Error);

impl fmt::Display for SenselessFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Error for SenselessFlags {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

/// Loads a model and serves it until the process is asked to stop; `utc_offset` is the time zone of its templates.
pub async fn serve(args: ServeArgs, utc_offset: UtcOffset) -> anyhow::Result<()> {
    let PortSettings { listener, server: mut config, control_plane, traces } =
        PortSettings::of(&args).map_err(SenselessFlags)?;
    let settings = Settings::of(&args).map_err(SenselessFlags)?;
    let main_port = listen::bind(listener, &["--host", "--port"]).await?;
    let admin_port = admin::bind(control_plane.own_port).await?;
    let progress = Progress::new();
    admin::say_who(&control_plane.main_port, &progress);
    let prepared = traces::prepare(traces, &progress)?;
    let loaded = Loaded::load(&settings, &progress).await?;
    let exporter = prepared.map(|prepared| {
        let (tracer, exporter) = prepared.start(loaded.models.name());
        config.tracer = Some(tracer);
        exporter
    });
    let (engine, adapters, metrics) =
        (Arc::clone(&loaded.engine), Arc::clone(&loaded.adapters), loaded.metrics.clone());
    let announcement = announce(&settings.model.name, engine.info(), &loaded.text.template_source, &main_port.shown);
    if settings.log_statistics {
        tokio::spawn(metrics.clone().log_statistics(Arc::clone(&engine)));
    }
    let served = Served {
        model: settings.model.name.clone(),
        name: loaded.models.name().to_owned(),
        weights: Some(loaded.weights.clone()),
        kv_block_size: settings.engine.kv_events.as_ref().map(|_| BLOCK_SIZE),
    };
    let api = Arc::new(loaded.into_api(settings, config.stream_stall_timeout, utc_offset)?);
    let control = Control::new(Arc::clone(&engine), api.turns.generator.running().clone(), control_plane.policy);
    let admin = Arc::new(Admin { control, served, adapters });
    let work = work(engine, &api, &admin);
    let app = server::app(api, admin::on_main_port(control_plane.main_port, &admin), &config, metrics);
    server::raise_open_files();
    server::survive_full_files()?;
    let admin = admin_port.map(|port| port.listen(&admin, &config, &progress)).transpose()?;
    let (endpoint, _file) = main_port.listen()?;
    progress.banner(&announcement);
    let stop = server::stop_signal()?;
    let ports = Ports { main: Port { endpoint, app }, admin };
    let served = server::serve(ports, work, &config, stop).await.context("the server failed");
    if let Some(exporter) = exporter {
        exporter.finish().await;
    }
    served
}

/// Prints what [`serve`] would do with the same command line on this machine.
///
/// # Errors
///
/// What it would fail with, as far as that shows without weights, adapters and stores.
pub async fn doctor(args: ServeArgs) -> anyhow::Result<()> {
    let PortSettings { listener, control_plane, .. } = PortSettings::of(&args)?;
    doctor::examine((listener, control_plane.own_port), &Settings::of(&args)?).await
}

/// Samples the turns of a capture again, or those of one trajectory, and prints which of them come out as they are kept;
/// `args` say which model is tried, and how it is computed.
///
/// # Errors
///
/// If a turn came out differently or could not be sampled again, or if there is nothing to replay.
pub async fn replay(capture: &Path, trajectory: Option<&str>, args: ServeArgs) -> anyhow::Result<Proven> {
    replay::replay(capture, trajectory, Settings::of(&args)?).await
}

/// What has to end before the process does.
fn work(engine: Arc<dyn Engine>, api: &Api, admin: &Admin) -> Work {
    let (control, running) = (Arc::clone(&admin.control), api.turns.generator.running().clone());
    let (responses, captures) = (api.responses.settled(), api.turns.captures_settled());
    Work {
        engine: Some(engine),
        settled: Box::pin(async move {
            responses.await;
            captures.await;
        }),
        readiness: api.readiness.clone(),
        calls: Box::pin(admin.control.writing_calls_ended()),
        stands_still: Box::new(move || control.stands_still()),
        turn_away: Box::new(move || running.stop_queueing()),
    }
}

/// Widens a GGUF file to a Hugging Face directory.
pub fn convert(model: &Path, directory: &Path) -> anyhow::Result<()> {
    let progress = Progress::new();
    let step = progress.step("widening the weights");
    let widen = || {
        let file = GgufFile::open(model)?;
        convert::to_hugging_face(&file, directory, &mut |done, all| step.count(done, all))
            .with_context(|| format!("cannot convert {}", model.display()))
    };
    without_panics(widen).unwrap_or_else(|reason| Err(anyhow!("{} cannot be converted: {reason}", model.display())))?;
    step.done();
    progress.banner(&format!("wrote {}", directory.display()));
    Ok(())
}

fn announce(model: &str, engine: &EngineInfo, template_source: &str, address: &str) -> String {
    let parts = [
        format!("tito {}", env!("CARGO_PKG_VERSION")),
        model.to_owned(),
        format!("engine {} on {}", engine.engine, engine.device),
        engine.dtype.clone(),
        format!("context {}", engine.max_model_len),
        format!("chat template: {template_source}"),
        address.to_owned(),
    ];
    parts.join(" | ")
}
