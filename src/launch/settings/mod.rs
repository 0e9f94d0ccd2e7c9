//! From flags to settings: what each module needs to know, in the types of that module. No other file of start-up reads
//! a flag.
//!
//! Owns what flags mean together, and the defaults that depend on the machine. Refuses to open, bind or load anything.

mod adapters;
mod capture;
mod control_plane;
mod engine;
mod images;
mod keys;
mod model;
mod policies;
mod server;
mod traces;

pub(super) use adapters::AdapterSettings;
pub(super) use capture::CaptureSettings;
pub(super) use control_plane::{AdminPort, ControlPlaneSettings, MainPort};
pub(super) use engine::EngineSettings;
pub(super) use images::ImageSettings;
pub(super) use model::ModelSettings;
pub(super) use policies::{ParserSettings, SamplingSettings, Store};
pub(super) use server::{Address, Listener};

use crate::{
    config::ServeArgs, continuity::ContinuityPolicy, continuity_store::StoreSettings, generation::RequestLog,
    otlp::OtlpSettings, prompt::OnUnprovable, server::ServerConfig, structured::JsonOptions, turn::RequestPolicy,
};

/// What flags say of the ports, and of who may do what there.
pub(super) struct PortSettings {
    /// Where the API listens.
    pub(super) listener: Listener,
    /// What surrounds it.
    pub(super) server: ServerConfig,
    /// Who may pause the server and replace its weights, and what happens then.
    pub(super) control_plane: ControlPlaneSettings,
    /// Where traces of requests are sent, if they are.
    pub(super) traces: Option<OtlpSettings>,
}

impl PortSettings {
    /// Fails with one sentence where flags do not go together.
    pub(super) fn of(args: &ServeArgs) -> anyhow::Result<Self> {
        server::warn_of_idle_authorities(&args.http);
        Ok(Self {
            listener: server::listener(&args.http),
            server: server::config(args)?,
            control_plane: control_plane::settings(args)?,
            traces: traces::settings(args)?,
        })
    }
}

/// What flags say of the model and of all that is done with it.
#[expect(clippy::struct_excessive_bools, reason = "settings are independent")]
pub(super) struct Settings {
    /// What is served.
    pub(super) model: ModelSettings,
    /// What runs it.
    pub(super) engine: EngineSettings,
    /// What is decided about adapters.
    pub(super) adapters: AdapterSettings,
    /// What is decided about sampling, once the model's files are read.
    pub(super) sampling: SamplingSettings,
    /// What is decided about conversations and their answers.
    pub(super) requests: RequestPolicy,
    /// How answers are read, if the tokenizer and the chat template have what that takes.
    pub(super) parsers: ParserSettings,
    /// What is decided about the ids of earlier turns.
    pub(super) continuity: ContinuityPolicy,
    /// Where several servers share it.
    pub(super) continuity_store: Option<StoreSettings>,
    /// What those servers have in common and nobody else knows; empty for nothing.
    pub(super) continuity_store_secret: String,
    /// What happens where known ids cannot be provably continued.
    pub(super) on_unprovable: OnUnprovable,
    /// How JSON is written in structured outputs.
    pub(super) json: JsonOptions,
    /// Base of the seeds of requests that bring none.
    pub(super) seed: u64,
    /// Where responses are kept.
    pub(super) store: Store,
    /// Where generations are captured, if they are.
    pub(super) capture: Option<CaptureSettings>,
    /// Which images requests may have.
    pub(super) images: ImageSettings,
    /// What is logged of requests.
    pub(super) request_log: Option<RequestLog>,
    /// Throughput is logged.
    pub(super) log_statistics: bool,
    /// `/load` counts requests.
    pub(super) server_load: bool,
    /// `/tokenizer_info` shows the tokenizer.
    pub(super) tokenizer_info: bool,
    /// Tinker's clients are served.
    pub(super) tinker: bool,
    /// Usage tells how many tokens of a prompt were cached.
    pub(super) prompt_tokens_details: bool,
    /// Answers tell how long they took.
    pub(super) request_metrics: bool,
}

impl Settings {
    /// Fails with one sentence where flags do not go together.
    pub(super) fn of(args: &ServeArgs) -> anyhow::Result<Self> {
        Ok(Self {
            model: model::settings(args),
            engine: engine::settings(args),
            adapters: adapters::settings(args)?,
            sampling: policies::sampling(args),
            requests: policies::requests(args)?,
            parsers: policies::parsers(args),
            continuity: policies::continuity(args),
            continuity_store: policies::continuity_store(args)?,
            continuity_store_secret: args.continuity_store_secret.clone().unwrap_or_default(),
            on_unprovable: args.on_unprovable,
            json: policies::json(args),
            seed: args.seed,
            store: policies::store(args),
            capture: capture::settings(args),
            images: images::settings(args),
            request_log: policies::request_log(args),
            log_statistics: !args.logs.disable_log_stats,
            server_load: args.enable_server_load_tracking,
            tokenizer_info: args.enable_tokenizer_info_endpoint,
            tinker: args.tinker_api,
            prompt_tokens_details: args.enable_prompt_tokens_details,
            request_metrics: policies::request_metrics(args)?,
        })
    }
}
