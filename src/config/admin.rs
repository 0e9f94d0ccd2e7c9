//! The flags of `tito serve` that are about the control plane of a training loop.

use std::convert::Infallible;

use clap::{ArgAction, Args, ValueEnum};

/// Who may pause the server and replace its weights, and what happens then.
#[derive(Debug, Args)]
#[command(next_help_heading = "Control plane")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct AdminArgs {
    /// Serve /pause, /resume and the other calls of a training loop on this port [default: none]
    #[arg(long, value_name = "PORT")]
    pub admin_port: Option<u16>,

    /// The address or host name on which that port listens.
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    pub admin_host: String,

    /// A key that these calls must have; may be repeated.
    #[arg(long, num_args = 1.., value_name = "KEY", env = "TITO_ADMIN_API_KEY", hide_env_values = true)]
    pub admin_api_key: Vec<String>,

    /// A host name that calls without a key may use; may be repeated.
    ///
    /// For example `tito-0.svc`, or `*.svc.cluster.local` for all names with this ending. Addresses and `localhost`
    /// are always allowed.
    #[arg(long, num_args = 1.., value_name = "NAME")]
    pub admin_allowed_hosts: Vec<String>,

    /// Serve these calls on the main port too, as vLLM does.
    ///
    /// They need one of the keys of --admin-api-key, or of --api-key if there is none.
    #[arg(long)]
    pub admin_on_main_port: bool,

    /// Serve these calls without a key to everyone who can reach the port.
    #[arg(long)]
    pub insecure_admin: bool,

    /// Whether to do what vLLM does in its developer mode: serve these calls to everybody on the port of the API.
    #[arg(long, hide = true, value_name = "0|1", env = "VLLM_SERVER_DEV_MODE")]
    pub vllm_server_dev_mode: Option<i64>,

    /// Whether vLLM's calls that load and unload adapters are served on the port of the API, to whoever may ask it.
    #[arg(long, env = "VLLM_ALLOW_RUNTIME_LORA_UPDATING", hide = true, action = ArgAction::Set, default_value = "false",
          value_parser = switch)]
    pub vllm_allow_runtime_lora_updating: bool,

    /// Let all requests wait during a pause.
    ///
    /// Otherwise they get a 503 where vLLM sends one.
    #[arg(long)]
    pub queue_while_paused: bool,

    /// What happens to the keys and values of running requests when the weights change.
    #[arg(long, value_enum, default_value_t, value_name = "WAY")]
    pub on_weights_change: WeightsChange,

    /// What is kept of the old weights until an update is finished.
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    pub weights_undo: Undo,

    /// Undo an update of the weights if no call comes for this many seconds.
    #[arg(long, default_value_t = 300, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub weight_update_timeout: u64,
}

impl AdminArgs {
    /// Whether the calls are served on the port of the API.
    pub fn on_main_port(&self) -> bool {
        self.admin_on_main_port || self.dev_mode()
    }

    /// Whether they need no key.
    pub fn is_insecure(&self) -> bool {
        self.insecure_admin || self.dev_mode()
    }

    /// Whether vLLM's developer mode is asked for.
    pub fn dev_mode(&self) -> bool {
        self.vllm_server_dev_mode.is_some_and(|mode| mode != 0)
    }
}

/// Reads a switch of the environment as vLLM reads this one: what is neither `1` nor `true` is off.
#[expect(clippy::unnecessary_wraps, reason = "clap's shape of a reader")]
fn switch(text: &str) -> Result<bool, Infallible> {
    Ok(matches!(text.trim().to_ascii_lowercase().as_str(), "1" | "true"))
}

/// What becomes of keys and values when the weights change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum WeightsChange {
    /// They are computed again with the new weights before the next token.
    #[default]
    Recompute,
    /// They stay as they are, as in vLLM; responses say so.
    Reuse,
}

/// What an update keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Undo {
    /// All of them, in memory: if an update fails, the server goes on with the old weights.
    #[default]
    Memory,
    /// Nothing: if an update fails, the server refuses requests until it gets all weights.
    Nothing,
}
