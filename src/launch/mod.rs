//! From a command line to a running server: everything is read, checked and announced here.
//!
//! Owns the order of start-up and what a person sees of it. Refuses to know what any part does.

mod adapters;
mod admin;
mod checksums;
mod compared;
mod device;
mod engine;
mod harmony;
mod inspect;
mod kernels;
mod listen;
mod memory;
#[cfg(feature = "mistralrs")]
mod mistralrs;
mod model;
mod native;
mod parsers;
mod progress;
mod quantization;
mod replay;
mod script;
mod settings;
mod step_gate;
mod store;
mod wanted;
mod weights;

use std::{path::Path, sync::Arc};

use anyhow::{Context, anyhow};
use time::UtcOffset;

use crate::{
    adapters::Adapters,
    admin::{Admin, Served},
    api::{Api, ServedModels, ServerLoad, TokenizerInfo},
    config::ServeArgs,
    continuity::Continuity,
    control::{Control, ControlPolicy},
    engine::{Engine, EngineInfo},
    files::without_panics,
    generation::Generator,
    gguf::{GgufFile, convert},
    prompt::PromptRenderer,
    records::Responses,
    server::{self, Port, Ports, Work},
    telemetry::Metrics,
    turn::{Policies, RequestTemplates, StructuredOutputCompiler, Turns},
};
pub use adapters::merge;
pub use inspect::inspect;
pub use kernels::try_kernels;
use progress::Progress;
pub use replay::Proven;
use settings::Settings;
use wanted::Wanted;

/// Loads a model and serves it until the process is asked to stop; `utc_offset` is the time zone of its templates.
pub async fn serve(args: ServeArgs, utc_offset: UtcOffset) -> anyhow::Result<()> {
    let settings = Settings::of(&args)?;
    let bound = listen::bind(settings.listener, &["--host", "--port"]).await?;
    let admin_port = admin::bind(settings.control_plane.own_port).await?;
    let progress = Progress::new();
    admin::say_who(&settings.control_plane.main_port, &progress);
    let device = engine::device(&settings.engine, &progress)?;
    let model = settings.model;
    let mut files = model::files(&model, &progress).await?;
    settings.sampling.take_over(&mut files)?;
    let store = store::open(&settings.store, &progress)?;
    let capture = store::capture(settings.capture.as_ref(), &progress)?;
    let reading = progress.step("reading the tokenizer");
    let tokenizer = Arc::new(model::tokenizer(&model, &files)?);
    let eos = files.eos(&tokenizer)?;
    let given = model::given_template(&model)?;
    let tools = parsers::chosen(settings.parsers, model::template_texts(&files, given.as_ref()), &progress)?;
    parsers::check(tools, &tokenizer, &model.name)?;
    let (templates, template_source) = model::templates(&model, &files, given.as_ref())?;
    let (harmony, template_source) = harmony::of_model(&model, &files, &tokenizer, template_source);
    let tokenizer_info = settings.tokenizer_info.then(|| {
        let template = given.as_ref().map(|(source, _)| source.as_str());
        TokenizerInfo::new(&files.tokenizer_config.raw, &tokenizer, &model.name, template)
    });
    reading.done();
    let max_model_len = model::max_model_len(&model, &files)?;
    let models = ServedModels::new(model.name.clone(), model.served_names);
    // Before the engine, which makes its handles while it loads.
    let metrics = Metrics::install(models.name(), max_model_len)?;
    let wanted =
        Wanted { settings: &settings.engine, device, files: &files, tokenizer: &tokenizer, eos: &eos, max_model_len };
    let engine = engine::load(wanted, &progress).await?;
    let adapters = adapters::load(&engine, settings.adapters, &models, &progress).await?;
    let models = models.with_adapters(Arc::clone(&adapters));
    let announcement = announce(&model.name, engine.info(), &template_source, &bound.shown);
    if settings.log_statistics {
        tokio::spawn(metrics.clone().log_statistics(Arc::clone(&engine)));
    }
    let sampling = settings.sampling.policy(&files, &eos)?;
    let renderer = PromptRenderer::new(templates, Arc::clone(&tokenizer), &eos, settings.on_unprovable);
    let end = sampling.eos_token_id.into_iter().chain(sampling.extra_eos_token_ids.iter().copied());
    let structured = StructuredOutputCompiler::new(Arc::clone(&tokenizer), end).with_json(settings.json);
    let config = settings.server;
    let capture = capture.map(|trajectories| checksums::capture(trajectories, &engine, models.name()));
    let turns = Turns {
        renderer: renderer.with_harmony(harmony),
        generator: Generator::new(Arc::clone(&engine), tokenizer)
            .with_seed(settings.seed)
            .logging(settings.request_log)
            .with_patience(config.stream_stall_timeout),
        continuity: Continuity::new(settings.continuity, engine.info().vocab_size),
        structured,
        policies: Policies { sampling, tools, requests: settings.requests },
        max_model_len,
        utc_offset,
        request_templates: RequestTemplates::default(),
        capture,
    };
    let api = Arc::new(Api {
        turns: Arc::new(turns),
        models,
        prompt_tokens_details: settings.prompt_tokens_details,
        server_load: ServerLoad::new(settings.server_load),
        tokenizer_info,
        responses: Responses::new(store),
    });
    let served = Served { model: model.name, name: api.models.name().to_owned() };
    let admin = control_plane(&engine, &api, settings.control_plane.policy, (served, adapters));
    let work = work(engine, &api, &admin);
    let control = admin::on_main_port(settings.control_plane.main_port, &admin);
    let app = server::app(api, control, &config, metrics);
    server::raise_open_files();
    server::survive_full_files()?;
    let admin = admin_port.map(|port| port.listen(&admin, &config, &progress)).transpose()?;
    let (endpoint, _file) = bound.listen()?;
    progress.banner(&announcement);
    let stop = server::stop_signal()?;
    let ports = Ports { main: Port { endpoint, app }, admin };
    server::serve(ports, work, &config, stop).await.context("the server failed")
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

/// Makes the control plane of an engine and of the requests that an API has under way.
fn control_plane(
    engine: &Arc<dyn Engine>,
    api: &Api,
    policy: ControlPolicy,
    (served, adapters): (Served, Arc<Adapters>),
) -> Arc<Admin> {
    let control = Control::new(Arc::clone(engine), api.turns.generator.running().clone(), policy);
    Arc::new(Admin { control, served, adapters })
}

/// What has to end before the process does.
fn work(engine: Arc<dyn Engine>, api: &Api, admin: &Admin) -> Work {
    let control = Arc::clone(&admin.control);
    Work {
        engine: Some(engine),
        settled: Box::pin(api.responses.settled()),
        stands_still: Box::new(move || control.shown().stands_still()),
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
