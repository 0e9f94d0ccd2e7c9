//! From a command line to a running server: everything is read, checked and announced here.
//!
//! Owns the order of start-up and what a person sees of it. Refuses to know what any part does.

mod admin;
mod compared;
mod device;
mod engine;
mod kernels;
mod listen;
mod memory;
#[cfg(feature = "mistralrs")]
mod mistralrs;
mod native;
mod parsers;
mod policy;
mod progress;
mod quantization;
mod script;
mod store;
mod wanted;
mod weights;

use std::{path::Path, sync::Arc};

use anyhow::{Context, anyhow, bail};
use time::UtcOffset;

use crate::{
    admin::Admin,
    api::{Api, ServedModels, ServerLoad, TokenizerInfo},
    config::{EngineKind, ModelLength, ServeArgs},
    continuity::Continuity,
    engine::{Engine, EngineInfo},
    files::without_panics,
    generation::Generator,
    gguf::{GgufFile, MOST_POSITIONS, convert},
    model::{HubOptions, ModelFiles},
    prompt::{PromptRenderer, Templates, template::ChatTemplate},
    records::Responses,
    server::{self, ControlPlane, Work},
    telemetry::Metrics,
    turn::{Policies, RequestTemplates, StructuredOutputCompiler, Turns},
};
use device::Device;
pub use kernels::try_kernels;
use progress::Progress;
use wanted::Wanted;

/// Loads a model and serves it until the process is asked to stop; `utc_offset` is the time zone of its templates.
pub async fn serve(args: ServeArgs, utc_offset: UtcOffset) -> anyhow::Result<()> {
    let bound = listen::bind(&args.http).await?;
    let admin_port = admin::bind(&args.admin)?;
    let progress = Progress::new();
    let admin_keys = admin::main_port_keys(&args, &progress)?;
    let device = match args.engine {
        EngineKind::Scripted => Device::Cpu,
        _ => device::choose(args.device, &progress)?,
    };
    let mut files = files(&args, &progress).await?;
    policy::take_generation_config(&args, &mut files)?;
    let store = store::open(policy::store(&args), &progress)?;
    let reading = progress.step("reading the tokenizer");
    let tokenizer = files.tokenizer().with_context(|| format!("the tokenizer of {} cannot be used", args.model()))?;
    // Some models come with a tokenizer that knows more ids than they have; one that was chosen must fit.
    let width = files.config.vocab_size.filter(|width| args.tokenizer.is_some() && tokenizer.vocab_size() > *width);
    if let Some(width) = width {
        bail!("the tokenizer has {} ids, and the model {width}: they do not belong together", tokenizer.vocab_size());
    }
    let tokenizer = Arc::new(tokenizer);
    let eos = files.eos(&tokenizer)?;
    let tools = parsers::policy(&args, &tokenizer)?;
    let given = given_template(&args)?;
    let (templates, template_source) = templates(&args, &files, given.as_ref())?;
    let tokenizer_info = args.enable_tokenizer_info_endpoint.then(|| {
        let template = given.as_ref().map(|(source, _)| source.as_str());
        TokenizerInfo::new(&files.tokenizer_config.raw, &tokenizer, args.model(), template)
    });
    reading.done();
    let max_model_len = max_model_len(&args, &files)?;
    let models = ServedModels::new(args.model().to_owned(), args.served_model_name.clone());
    // Before the engine, which makes its handles while it loads.
    let metrics = Metrics::install(models.name(), max_model_len)?;
    let wanted = Wanted { args: &args, device, files: &files, tokenizer: &tokenizer, eos: &eos, max_model_len };
    let engine = engine::load(wanted, &progress).await?;
    let announcement = announce(&args, engine.info(), &template_source, &bound.shown);
    if !args.logs.disable_log_stats {
        tokio::spawn(metrics.clone().log_statistics(Arc::clone(&engine)));
    }
    let policy = policy::sampling(&args, &files, &eos)?;
    let renderer = PromptRenderer::new(templates, Arc::clone(&tokenizer), &eos, args.on_unprovable);
    let end = policy.eos_token_id.into_iter().chain(policy.extra_eos_token_ids.iter().copied());
    let structured = StructuredOutputCompiler::new(Arc::clone(&tokenizer), end).with_json(policy::json(&args));
    let config = policy::server(&args);
    let turns = Turns {
        renderer,
        generator: Generator::new(Arc::clone(&engine), tokenizer)
            .logging(policy::request_log(&args))
            .with_patience(config.stream_stall_timeout),
        continuity: Continuity::new(policy::continuity(&args), engine.info().vocab_size),
        structured,
        policies: Policies { sampling: policy, tools, requests: policy::requests(&args) },
        max_model_len,
        utc_offset,
        request_templates: RequestTemplates::default(),
    };
    let api = Arc::new(Api {
        turns: Arc::new(turns),
        models,
        prompt_tokens_details: args.enable_prompt_tokens_details,
        server_load: ServerLoad::new(args.enable_server_load_tracking),
        tokenizer_info,
        responses: Responses::new(store),
    });
    let admin = admin::control(&args, api.models.name(), &engine, api.turns.generator.running().clone());
    let work = work(engine, &api, &admin);
    let control = match admin_keys {
        None => ControlPlane::Closed,
        Some(keys) => ControlPlane::Open { admin: Arc::clone(&admin), keys },
    };
    let app = server::app(api, control, &config, metrics);
    server::raise_open_files();
    if let Some(port) = admin_port {
        port.serve(&admin, &progress)?;
    }
    let (endpoint, _file) = bound.listen()?;
    progress.banner(&announcement);
    let stop = server::stop_signal()?;
    server::serve(endpoint, app, work, &config, stop).await.context("the server failed")
}

/// What has to end before the process does.
fn work(engine: Arc<dyn Engine>, api: &Api, admin: &Admin) -> Work {
    let control = Arc::clone(&admin.control);
    Work {
        engine,
        settled: Box::pin(api.responses.settled()),
        stands_still: Box::new(move || control.shown().stands_still()),
    }
}

/// The model's files, with the tokenizer that was asked for.
async fn files(args: &ServeArgs, progress: &Progress) -> anyhow::Result<ModelFiles> {
    let hub = hub_options(args, progress);
    let files = ModelFiles::resolve(args.model(), &hub).await?;
    let Some(tokenizer) = args.tokenizer.as_deref().filter(|tokenizer| *tokenizer != args.model()) else {
        return Ok(files);
    };
    let other = ModelFiles::resolve(tokenizer, &HubOptions { revision: None, without_weights: true, ..hub }).await;
    Ok(files.with_tokenizer_of(other.with_context(|| format!("--tokenizer {tokenizer} cannot be used"))?))
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

fn hub_options(args: &ServeArgs, progress: &Progress) -> HubOptions {
    HubOptions {
        offline: args.hub_offline,
        cache_dir: args.hub_cache_dir(),
        token: args.hub_token.clone().filter(|token| !token.is_empty()),
        endpoint: args.hub_endpoint.clone(),
        revision: args.revision.clone(),
        without_weights: false,
        progress: progress.downloads(),
    }
}

/// The templates, and where they come from.
fn templates(
    args: &ServeArgs,
    files: &ModelFiles,
    given: Option<&(String, String)>,
) -> anyhow::Result<(Templates, String)> {
    let special_tokens = &files.tokenizer_config.special_tokens;
    let compile = |source: &str, name: &str| {
        let template = ChatTemplate::new(source, special_tokens.clone());
        let template = template.with_context(|| format!("{name} cannot be used"))?;
        anyhow::Ok(template.with_content_format(args.chat_template_content_format.into()))
    };
    if let Some((source, name)) = given {
        return Ok((Templates { default: Some(compile(source, name)?), tool_use: None }, name.clone()));
    }
    let chosen = &files.tokenizer_config.chat_templates;
    let of_file = |name: &str| {
        let path = chosen.path(name).map(|path| path.display().to_string()).unwrap_or_default();
        let what = format!("the {name} chat template of {path}");
        chosen.get(name).map(|source| compile(source, &what)).transpose()
    };
    let (default, tool_use) = (of_file("default")?, of_file("tool_use")?);
    let name = if default.is_some() || tool_use.is_some() { "the model's" } else { "none" };
    Ok((Templates { default, tool_use }, name.to_owned()))
}

/// The template of the command line, and what to call it.
fn given_template(args: &ServeArgs) -> anyhow::Result<Option<(String, String)>> {
    let Some(given) = &args.chat_template else { return Ok(None) };
    if Path::new(given).is_file() {
        let source = std::fs::read_to_string(given).with_context(|| format!("cannot read {given}"))?;
        return Ok(Some((source, given.clone())));
    }
    if given.contains(['{', '\n']) {
        return Ok(Some((given.clone(), "the template given by --chat-template".to_owned())));
    }
    bail!("--chat-template {given} is neither a file nor a template");
}

fn max_model_len(args: &ServeArgs, files: &ModelFiles) -> anyhow::Result<usize> {
    match (args.max_model_len, files.max_model_len()) {
        (ModelLength::Tokens(asked), Some(longest)) if asked > longest => {
            bail!("--max-model-len {asked} is more than the {longest} tokens that the model is made for");
        }
        (ModelLength::Tokens(asked), _) if asked > MOST_POSITIONS => {
            bail!("--max-model-len {asked} is more than the {MOST_POSITIONS} tokens that any model is made for");
        }
        (ModelLength::Tokens(asked), _) => Ok(asked),
        (ModelLength::Auto, Some(longest)) => Ok(longest),
        (ModelLength::Auto, None) => bail!("the model does not say how long its context is; pass --max-model-len"),
    }
}

fn announce(args: &ServeArgs, engine: &EngineInfo, template_source: &str, address: &str) -> String {
    let parts = [
        format!("tito {}", env!("CARGO_PKG_VERSION")),
        args.model().to_owned(),
        format!("engine {} on {}", engine.engine, engine.device),
        engine.dtype.clone(),
        format!("context {}", engine.max_model_len),
        format!("chat template: {template_source}"),
        address.to_owned(),
    ];
    parts.join(" | ")
}
