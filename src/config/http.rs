//! The flags of `tito serve` that are about connections, and what is said about them.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::number::{human_readable_count, human_readable_int};

/// Where the server listens, and who may ask.
#[derive(Debug, Args)]
#[command(next_help_heading = "HTTP")]
#[expect(clippy::struct_excessive_bools, reason = "flags are independent")]
pub struct HttpArgs {
    /// The address or host name to listen on.
    #[arg(long, default_value = "0.0.0.0")]
    pub host: String,

    /// The port to listen on; 0 takes any free port.
    #[arg(long, default_value_t = 8000)]
    pub port: u16,

    /// Listen on this Unix socket instead of a port.
    #[arg(long, value_name = "PATH")]
    pub uds: Option<PathBuf>,

    /// A key that requests must have; may be repeated.
    ///
    /// Health, metrics and docs stay open without a key. Each key is a client of its own.
    #[arg(long, num_args = 1.., value_name = "KEY", env = "VLLM_API_KEY", hide_env_values = true)]
    pub api_key: Vec<String>,

    /// Treat all keys as one client.
    ///
    /// Otherwise no client gets anything back that the server remembers of another one.
    #[arg(long)]
    pub share_between_api_keys: bool,

    /// Serve HTTPS with this certificate chain, in PEM.
    #[arg(long, value_name = "FILE", requires = "ssl_keyfile")]
    pub ssl_certfile: Option<PathBuf>,

    /// The private key of the certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "ssl_certfile")]
    pub ssl_keyfile: Option<PathBuf>,

    /// The authorities that must have signed clients' certificates, in PEM.
    #[arg(long, value_name = "FILE", requires = "ssl_certfile")]
    pub ssl_ca_certs: Option<PathBuf>,

    /// Whether clients need a certificate: 0 for no, 1 for optional, 2 for required.
    #[arg(long, value_name = "0|1|2", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=2),
          requires_ifs = [("1", "ssl_certfile"), ("2", "ssl_certfile")])]
    pub ssl_cert_reqs: u8,

    /// Load the certificate again when its files change.
    #[arg(long)]
    pub enable_ssl_refresh: bool,

    /// The origins of web pages that may use the API, as a JSON list [default: none]
    ///
    /// `["*"]` allows all origins.
    #[arg(long, value_name = "JSON", value_parser = json_strings, default_value = "[]", hide_default_value = true)]
    pub allowed_origins: Strings,

    /// The methods that these pages may use, as a JSON list.
    #[arg(long, value_name = "JSON", value_parser = json_strings, default_value = r#"["*"]"#)]
    pub allowed_methods: Strings,

    /// The headers that these pages may send, as a JSON list.
    #[arg(long, value_name = "JSON", value_parser = json_strings, default_value = r#"["*"]"#)]
    pub allowed_headers: Strings,

    /// Let these pages send cookies and keys.
    #[arg(long)]
    pub allow_credentials: bool,

    /// The path prefix under which a proxy serves tito.
    #[arg(long, value_name = "PATH", default_value = "", hide_default_value = true)]
    pub root_path: String,

    /// Do not serve /docs, /redoc and /openapi.json.
    #[arg(long)]
    pub disable_fastapi_docs: bool,

    /// Send an X-Request-Id header with responses: the request's own, or a new one.
    #[arg(long)]
    pub enable_request_id_headers: bool,

    /// The longest body of a request, such as `1G`.
    ///
    /// A longer one gets a 413.
    #[arg(long, value_name = "BYTES", default_value = "512M", value_parser = human_readable_count)]
    pub max_request_bytes: usize,

    /// The most bytes of requests that are read and tokenized at the same time [default: 1/32 of the memory]
    ///
    /// A request for which there is no room gets a 503.
    #[arg(long, value_name = "BYTES", value_parser = human_readable_int)]
    pub max_bytes_in_flight: Option<usize>,

    /// Send a comment after this many seconds of silence in a stream; 0 sends none.
    ///
    /// This is for proxies that close silent connections.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub sse_keep_alive_interval: u64,

    /// End a response if its client reads nothing for this many seconds; 0 never does.
    ///
    /// Until then, its sequences pause as soon as too much output waits for the client.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(..=31_536_000))]
    pub stream_stall_timeout: u64,

    /// How many seconds the server still takes requests after it was told to stop.
    ///
    /// `/readyz` and `/health` say 503 meanwhile, so that routers and Kubernetes send no more of them.
    #[arg(long, default_value_t = 0, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=3_600))]
    pub shutdown_delay: u64,

    /// How many seconds running requests may take to finish after that.
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    pub shutdown_timeout: u64,
}

/// What the server says while it runs.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logs")]
pub struct LogArgs {
    /// Log a line for every request, with its id, its token counts and its times.
    ///
    /// The ids of its prompt are logged only at the level `debug`.
    #[arg(long)]
    pub enable_log_requests: bool,

    /// The most prompt ids in such a line [default: all]
    #[arg(long, value_name = "N")]
    pub max_log_len: Option<usize>,

    /// Send traces of requests to this collector of OpenTelemetry.
    ///
    /// The form is `http://HOST:4317` for OTLP over gRPC, or `http://HOST:4318/v1/traces` for OTLP over HTTP. The variables
    /// `OTEL_...` say more.
    #[arg(long, value_name = "URL")]
    pub otlp_traces_endpoint: Option<String>,

    /// Do not log the throughput every ten seconds.
    #[arg(long)]
    pub disable_log_stats: bool,

    /// Do not log a line for every response.
    #[arg(long)]
    pub disable_uvicorn_access_log: bool,

    /// Paths for which no such line is logged, separated by commas.
    #[arg(long, value_name = "PATHS")]
    pub disable_access_log_for_endpoints: Option<String>,

    /// The lowest level of log lines about connections and responses.
    ///
    /// The line for every response has the level `info`.
    #[arg(long, value_enum, default_value_t, value_name = "LEVEL")]
    pub uvicorn_log_level: Level,

    /// The lowest level of all other log lines.
    #[arg(long, value_enum, default_value_t, value_name = "LEVEL", env = "VLLM_LOGGING_LEVEL", ignore_case = true)]
    pub log_level: Level,
}

impl LogArgs {
    /// The filter that the flags ask for.
    pub(super) fn filter(&self) -> String {
        let (level, connections) = (self.log_level.name(), self.uvicorn_log_level.name());
        let own = env!("CARGO_PKG_NAME");
        // What mistral.rs says of requests that fail is in our own lines, without its backtraces.
        format!("warn,mistralrs_core::engine=off,{own}={level},{own}::access={connections},{own}::server={connections}")
    }

    /// Paths without lines of their own.
    pub fn silent_paths(&self) -> Vec<String> {
        let paths = self.disable_access_log_for_endpoints.iter().flat_map(|paths| paths.split(','));
        paths.map(str::trim).filter(|path| !path.is_empty()).map(str::to_owned).collect()
    }
}

/// A level of log lines, by the names of Python and uvicorn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Level {
    /// The same as `error`.
    Critical,
    /// What failed.
    Error,
    /// What may fail.
    #[value(alias = "warn")]
    Warning,
    /// What happens.
    #[default]
    Info,
    /// How it happens.
    Debug,
    /// Every step.
    Trace,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Critical | Self::Error => "error",
            Self::Warning => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// A list of strings in JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strings(pub Vec<String>);

fn json_strings(text: &str) -> Result<Strings, String> {
    let list = serde_json::from_str::<Vec<String>>(text).ok();
    let list = list.or_else(|| serde_json::from_str::<String>(text).ok().map(|one| vec![one]));
    list.map(Strings).ok_or_else(|| format!(r#"expected a JSON list of strings such as ["*"], got {text:?}"#))
}
