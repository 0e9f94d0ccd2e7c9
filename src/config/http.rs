//! The flags of `tito serve` that are about connections, and what is said about them.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::number::{human_readable_count, human_readable_int};

/// Where the server listens, and who may ask.
#[derive(Debug, Args)]
#[command(next_help_heading = "HTTP")]
#[expect(clippy::struct_excessive_bools, reason = "flags are independent")]
pub struct HttpArgs {
    /// Address or name to listen on.
    #[arg(long, default_value = "0.0.0.0")]
    pub host: String,

    /// Port to listen on.
    #[arg(long, default_value_t = 8000)]
    pub port: u16,

    /// Unix socket to listen on instead.
    #[arg(long, value_name = "PATH")]
    pub uds: Option<PathBuf>,

    /// Key that opens everything but health, metrics and docs; repeatable. Each is a client of its own.
    #[arg(long, num_args = 1.., value_name = "KEY", env = "VLLM_API_KEY", hide_env_values = true)]
    pub api_key: Vec<String>,

    /// Take all keys for one client, which is given what any of them was answered.
    #[arg(long)]
    pub share_between_api_keys: bool,

    /// Certificate chain in PEM; serves HTTPS.
    #[arg(long, value_name = "FILE", requires = "ssl_keyfile")]
    pub ssl_certfile: Option<PathBuf>,

    /// Key of the certificate in PEM.
    #[arg(long, value_name = "FILE", requires = "ssl_certfile")]
    pub ssl_keyfile: Option<PathBuf>,

    /// Authorities in PEM that certificates of clients are checked against.
    #[arg(long, value_name = "FILE", requires = "ssl_certfile")]
    pub ssl_ca_certs: Option<PathBuf>,

    /// Certificates of clients: 0 does not ask for one, 1 checks one that is there, 2 wants one.
    #[arg(long, value_name = "0|1|2", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=2))]
    pub ssl_cert_reqs: u8,

    /// Read the certificate again when its files change.
    #[arg(long)]
    pub enable_ssl_refresh: bool,

    /// Origins that browsers may ask from, a JSON list; `["*"]` is all. [default: none]
    #[arg(long, value_name = "JSON", value_parser = json_strings, default_value = "[]", hide_default_value = true)]
    pub allowed_origins: Strings,

    /// Methods that they may use.
    #[arg(long, value_name = "JSON", value_parser = json_strings, default_value = r#"["*"]"#)]
    pub allowed_methods: Strings,

    /// Headers that they may send.
    #[arg(long, value_name = "JSON", value_parser = json_strings, default_value = r#"["*"]"#)]
    pub allowed_headers: Strings,

    /// They may send cookies and keys.
    #[arg(long)]
    pub allow_credentials: bool,

    /// Path that a proxy adds in front of all others.
    #[arg(long, value_name = "PATH", default_value = "", hide_default_value = true)]
    pub root_path: String,

    /// Leave /docs, /redoc and /openapi.json out.
    #[arg(long)]
    pub disable_fastapi_docs: bool,

    /// Answer with an X-Request-Id header: the client's own, or a fresh one.
    #[arg(long)]
    pub enable_request_id_headers: bool,

    /// Longest body of a request, such as `1G`; a longer one is answered with 413.
    #[arg(long, value_name = "BYTES", default_value = "512M", value_parser = human_readable_count)]
    pub max_request_bytes: usize,

    /// Bytes of requests that are read, rendered and put into ids at the same time, such as `1G`; a request for which
    /// there is no room is answered with 503. [default: 1/32 of the memory]
    #[arg(long, value_name = "BYTES", value_parser = human_readable_int)]
    pub max_bytes_in_flight: Option<usize>,

    /// Seconds without a token after which streams get a comment, for proxies that give up; 0 is never.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub sse_keep_alive_interval: u64,

    /// Seconds after which a stream, or an answer, that its client does not read is ended; 0 is never. Until then its
    /// sequences pause, once what waits for the client is too much.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(..=31_536_000))]
    pub stream_stall_timeout: u64,

    /// Seconds that requests may go on after the server was asked to stop.
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    pub shutdown_timeout: u64,
}

/// What the server says while it runs.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logs")]
pub struct LogArgs {
    /// Log a line for every request: its id, its numbers of tokens, its times; prompts at the level debug only.
    #[arg(long)]
    pub enable_log_requests: bool,

    /// Most ids of a prompt in such a line. [default: all]
    #[arg(long, value_name = "N")]
    pub max_log_len: Option<usize>,

    /// Do not log throughput every ten seconds.
    #[arg(long)]
    pub disable_log_stats: bool,

    /// Do not log a line for every response.
    #[arg(long)]
    pub disable_uvicorn_access_log: bool,

    /// Paths that are left out of these lines, with commas between them.
    #[arg(long, value_name = "PATHS")]
    pub disable_access_log_for_endpoints: Option<String>,

    /// Lowest level of lines about connections; those for every response are `info`.
    #[arg(long, value_enum, default_value_t, value_name = "LEVEL")]
    pub uvicorn_log_level: Level,

    /// Lowest level of all other lines.
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
    /// Says the same as `error`.
    Critical,
    /// What failed.
    Error,
    /// What may fail.
    #[value(alias = "warn")]
    Warning,
    /// What happens.
    #[default]
    Info,
    /// Shows also how it happens.
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
