//! Who may pause the server and replace its weights, and what happens then.

use std::time::Duration;

use anyhow::ensure;

use super::{keys, server};
use crate::{
    config::{AdminArgs, ServeArgs, Undo, WeightsChange},
    control::ControlPolicy,
    engine::{OnWeightsChange, UndoPolicy},
    server::{AllowedHosts, ApiKeys, TlsFiles},
};

/// The doors of the control plane, and its rules.
pub(in crate::launch) struct ControlPlaneSettings {
    /// The port of its own.
    pub(in crate::launch) own_port: Option<AdminPort>,
    /// The port of the API.
    pub(in crate::launch) main_port: MainPort,
    /// What is decided about new weights, and about requests while they come.
    pub(in crate::launch) policy: ControlPolicy,
}

/// A port of the control plane's own.
pub(in crate::launch) struct AdminPort {
    /// An address or a name.
    pub(in crate::launch) host: String,
    /// 0 has the system choose one.
    pub(in crate::launch) port: u16,
    /// What HTTPS is spoken with, as on the port of the API; `None` for HTTP.
    pub(in crate::launch) tls: Option<TlsFiles>,
    /// What opens it; without any, it is open to all who reach it.
    pub(in crate::launch) keys: ApiKeys,
    /// The names by which it may be asked without one.
    pub(in crate::launch) hosts: AllowedHosts,
    /// Other machines may reach it without a key.
    pub(in crate::launch) is_insecure: bool,
}

/// Who may use the control plane on the port of the API.
pub(in crate::launch) enum MainPort {
    /// Nobody: it is not served there.
    Closed,
    /// Whoever may use the API may load and unload adapters; the rest is not served there. Without keys, they are
    /// asked by an address or one of these names.
    AdaptersOnly(AllowedHosts),
    /// Who has one of these keys.
    Guarded(ApiKeys),
    /// Everybody, by an address or one of these names.
    Insecure(AllowedHosts),
}

/// What flags say of the control plane; an error where they would open it to everybody without saying so.
pub(super) fn settings(args: &ServeArgs) -> anyhow::Result<ControlPlaneSettings> {
    let keys = keys::of_admin(args)?;
    ensure!(
        keys.is_empty() || !args.admin.insecure_admin,
        "--insecure-admin requires no key, and --admin-api-key is one: leave one of them out"
    );
    let main_port = main_port(args, &keys)?;
    let own_port = args.admin.admin_port.map(|port| AdminPort {
        host: args.admin.admin_host.clone(),
        port,
        tls: server::tls(&args.http),
        keys,
        hosts: hosts(&args.admin),
        is_insecure: args.admin.is_insecure(),
    });
    Ok(ControlPlaneSettings { own_port, main_port, policy: policy(&args.admin) })
}

fn hosts(args: &AdminArgs) -> AllowedHosts {
    AllowedHosts::new(args.admin_allowed_hosts.iter().cloned())
}

fn main_port(args: &ServeArgs, own: &ApiKeys) -> anyhow::Result<MainPort> {
    let admin = &args.admin;
    if !admin.on_main_port() {
        let adapters_only = admin.vllm_allow_runtime_lora_updating;
        return Ok(if adapters_only { MainPort::AdaptersOnly(hosts(admin)) } else { MainPort::Closed });
    }
    // A key that was given counts, also where `VLLM_SERVER_DEV_MODE` asks for none.
    if admin.is_insecure() && own.is_empty() {
        return Ok(MainPort::Insecure(hosts(admin)));
    }
    let keys = if own.is_empty() { keys::of_api(args)? } else { own.clone() };
    ensure!(
        !keys.is_empty(),
        "--admin-on-main-port lets whoever reaches the server replace its weights: pass --admin-api-key or --api-key, or \
         --insecure-admin where that is meant"
    );
    Ok(MainPort::Guarded(keys))
}

fn policy(args: &AdminArgs) -> ControlPolicy {
    ControlPolicy {
        queue_while_paused: args.queue_while_paused,
        on_weights_change: match args.on_weights_change {
            WeightsChange::Recompute => OnWeightsChange::Recompute,
            WeightsChange::Reuse => OnWeightsChange::Reuse,
        },
        undo: match args.weights_undo {
            Undo::Memory => UndoPolicy::Memory,
            Undo::Nothing => UndoPolicy::Nothing,
        },
        update_timeout: Duration::from_secs(args.weight_update_timeout),
    }
}
