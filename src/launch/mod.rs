//! From a command line to a running server: everything is read, checked and announced here.
//!
//! Owns the order of start-up and what a person sees of it. Refuses to know what any part does.

mod engine;
#[cfg(feature = "mistralrs")]
mod mistralrs;
mod native;
mod parsers;
mod progress;
mod script;
mod weights;

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use time::UtcOffset;
use tokio::net::{TcpListener, TcpSocket};

use crate::{
    api::{Api, RequestPolicy, SamplingPolicy, ServedModels, ServerLoad, StructuredOutputCompiler},
    config::ServeArgs,
    continuity::Continuity,
    engine::EngineInfo,
    generation::Generator,
    gguf::convert,
    model::{EosTokens, GenerationConfig, HubOptions, ModelFiles},
    prompt::{PromptRenderer, Templates, template::ChatTemplate},
    server::{self, ApiKeys, ServerConfig},
    telemetry::Metrics,
};
use progress::Progress;

/// Loads a model and serves it until the process is asked to stop; `utc_offset` is the time zone of its templates.
pub async fn serve(args: ServeArgs, utc_offset: UtcOffset) -> anyhow::Result<()> {
    let address = SocketAddr::new(args.host, args.port);
    // Bound first, so that a taken port is known before minutes of loading; listening only when ready.
    let socket = bind(address)?;
    // With port 0 the system has chosen one.
    let address = socket.local_addr().unwrap_or(address);
    let progress = Progress::new();
    let mut files = ModelFiles::resolve(&args.model, &hub_options(&args, &progress)).await?;
    if let Some(generation) = generation_config(&args)? {
        files.generation = generation;
    }
    let reading = progress.step("reading the tokenizer");
    let tokenizer = files.tokenizer().with_context(|| format!("the tokenizer of {} cannot be used", args.model))?;
    let tokenizer = Arc::new(tokenizer);
    let eos = files.eos(&tokenizer)?;
    let tools = parsers::policy(&args, &tokenizer)?;
    let (templates, template_source) = templates(&args, &files)?;
    reading.done();
    let max_model_len = max_model_len(&args, &files)?;
    let models = ServedModels::new(args.model.clone(), args.served_model_name.clone());
    // Before the engine, which makes its handles while it loads.
    let metrics = Metrics::install(models.name())?;
    tokio::spawn(metrics.clone().upkeep());
    let engine = engine::load(&args, &files, &tokenizer, &eos, max_model_len, &progress).await?;
    let announcement = announce(&args, engine.info(), &template_source, address);
    let policy = sampling_policy(&args, &files, &eos);
    let renderer = PromptRenderer::new(templates, Arc::clone(&tokenizer), &eos, args.on_unprovable);
    let end = policy.eos_token_id.into_iter().chain(policy.extra_eos_token_ids.iter().copied());
    let structured = StructuredOutputCompiler::new(Arc::clone(&tokenizer), end);
    let api = Arc::new(Api {
        renderer,
        generator: Generator::new(Arc::clone(&engine), tokenizer),
        models,
        continuity: Continuity::new(args.continuity(), engine.info().vocab_size),
        sampling: policy,
        structured,
        tools,
        requests: RequestPolicy::default(),
        prompt_tokens_details: args.enable_prompt_tokens_details,
        max_model_len,
        utc_offset,
        server_load: ServerLoad::default(),
        tokenizer_info: None,
    });
    let config = ServerConfig {
        api_keys: ApiKeys::new(args.api_key.into_iter().filter(|key| !key.is_empty())),
        shutdown_timeout: Duration::from_secs(args.shutdown_timeout),
    };
    let app = server::app(api, config.api_keys.clone(), metrics);
    let listener = listen(socket).with_context(|| format!("cannot listen on {address}"))?;
    progress.banner(&announcement);
    server::serve(listener, app, engine, &config, server::stop_signal()?).await.context("the server failed")
}

/// Widens a GGUF file to a Hugging Face directory.
pub fn convert(model: &Path, directory: &Path) -> anyhow::Result<()> {
    let progress = Progress::new();
    let step = progress.step("widening the weights");
    convert::to_hugging_face(model, directory, &mut |done, all| step.count(done, all))?;
    step.done();
    progress.banner(&format!("wrote {}", directory.display()));
    Ok(())
}

fn bind(address: SocketAddr) -> anyhow::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let bound = socket.and_then(|socket| {
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(socket)
    });
    bound.with_context(|| format!("cannot use {address}; choose another address with --host and --port"))
}

/// Another process may have begun to listen since `bind`: `SO_REUSEADDR` lets two sockets bind, but one listen.
fn listen(socket: TcpSocket) -> std::io::Result<TcpListener> {
    const BACKLOG: u32 = 4096;
    socket.listen(BACKLOG)
}

fn hub_options(args: &ServeArgs, progress: &Progress) -> HubOptions {
    HubOptions {
        offline: args.hub_offline,
        cache_dir: args.hub_cache_dir(),
        token: args.hub_token.clone().filter(|token| !token.is_empty()),
        endpoint: args.hub_endpoint.clone(),
        revision: args.revision.clone(),
        progress: progress.downloads(),
    }
}

/// The templates, and where they come from.
fn templates(args: &ServeArgs, files: &ModelFiles) -> anyhow::Result<(Templates, String)> {
    let special_tokens = &files.tokenizer_config.special_tokens;
    let compile = |source: &str, name: &str| {
        ChatTemplate::new(source, special_tokens.clone()).with_context(|| format!("{name} cannot be used"))
    };
    if let Some(given) = &args.chat_template {
        let (source, name) = if Path::new(given).is_file() {
            let source = std::fs::read_to_string(given).with_context(|| format!("cannot read {given}"))?;
            (source, given.clone())
        } else if given.contains(['{', '\n']) {
            (given.clone(), "the template given by --chat-template".to_owned())
        } else {
            bail!("--chat-template {given} is neither a file nor a template");
        };
        return Ok((Templates { default: Some(compile(&source, &name)?), tool_use: None }, name));
    }
    let chosen = &files.tokenizer_config.chat_templates;
    let default = chosen.select(false).map(|source| compile(source, "the model's chat template")).transpose()?;
    let tool_use = chosen.get("tool_use").map(|source| compile(source, "the model's tool template")).transpose()?;
    let name = if default.is_some() || tool_use.is_some() { "the model's" } else { "none" };
    Ok((Templates { default, tool_use }, name.to_owned()))
}

fn max_model_len(args: &ServeArgs, files: &ModelFiles) -> anyhow::Result<usize> {
    match (args.max_model_len, files.max_model_len()) {
        (Some(asked), Some(longest)) if asked > longest => {
            bail!("--max-model-len {asked} is more than the {longest} tokens that the model is made for");
        }
        (Some(asked), _) => Ok(asked),
        (None, Some(longest)) => Ok(longest),
        (None, None) => bail!("the model does not say how long its context is; pass --max-model-len"),
    }
}

/// What `--generation-config` says instead of the model, its end tokens included.
fn generation_config(args: &ServeArgs) -> anyhow::Result<Option<GenerationConfig>> {
    match args.generation_config.as_str() {
        "auto" | "vllm" => Ok(None),
        directory => GenerationConfig::read(Path::new(directory))
            .map(Some)
            .with_context(|| format!("--generation-config {directory} is neither auto, vllm nor a usable directory")),
    }
}

fn sampling_policy(args: &ServeArgs, files: &ModelFiles, eos: &EosTokens) -> SamplingPolicy {
    let (defaults, most_tokens) = match args.generation_config.as_str() {
        "auto" => (files.generation.clone(), None),
        "vllm" => (GenerationConfig::default(), None),
        // As in vLLM, the tokens of a file that was named are no default but a limit.
        _ => (files.generation.clone(), files.generation.max_new_tokens),
    };
    SamplingPolicy {
        defaults,
        eos_token_id: eos.primary,
        extra_eos_token_ids: eos.others.clone(),
        max_logprobs: usize::try_from(args.max_logprobs).ok(),
        logprobs_mode: args.logprobs_mode.into(),
        return_tokens_as_token_ids: args.return_tokens_as_token_ids,
        most_tokens,
    }
}

fn announce(args: &ServeArgs, engine: &EngineInfo, template_source: &str, address: SocketAddr) -> String {
    let parts = [
        format!("tito {}", env!("CARGO_PKG_VERSION")),
        args.model.clone(),
        format!("engine {} on {}", engine.engine, engine.device),
        engine.dtype.clone(),
        format!("context {}", engine.max_model_len),
        format!("chat template: {template_source}"),
        format!("http://{address}"),
    ];
    parts.join(" | ")
}
