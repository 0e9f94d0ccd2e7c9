//! The control plane: who may use it, where it listens, and what it works with.

use std::sync::Arc;

use anyhow::ensure;

use super::{
    listen::{self, Bound},
    progress::Progress,
    settings::{Address, AdminPort, Listener, MainPort},
};
use crate::{
    admin::Admin,
    server::{self, AllowedHosts, ApiKeys, ControlPlane, Port, ServerConfig},
};

/// Tells who may use the control plane on the port of the API, where that is everybody.
pub(super) fn say_who(main_port: &MainPort, progress: &Progress) {
    match main_port {
        MainPort::Closed | MainPort::Guarded(_) => {}
        MainPort::AdaptersOnly(_) => progress.say("whoever may ask this server can load and unload its adapters"),
        MainPort::Insecure(_) => progress.say("whoever reaches this server can pause it and replace its weights"),
    }
}

/// The control plane on the port of the API.
pub(super) fn on_main_port(main_port: MainPort, admin: &Arc<Admin>) -> ControlPlane {
    let admin = Arc::clone(admin);
    match main_port {
        MainPort::Closed => ControlPlane::Closed,
        MainPort::AdaptersOnly(hosts) => ControlPlane::AdaptersOnly { admin, hosts },
        MainPort::Guarded(keys) => ControlPlane::Open { admin, keys, hosts: AllowedHosts::default() },
        MainPort::Insecure(hosts) => ControlPlane::Open { admin, keys: ApiKeys::default(), hosts },
    }
}

/// The port of the control plane, where it has one of its own.
pub(super) struct BoundAdminPort {
    bound: Bound,
    keys: ApiKeys,
    hosts: AllowedHosts,
}

/// Binds the port of the control plane, if it has one.
pub(super) async fn bind(port: Option<AdminPort>) -> anyhow::Result<Option<BoundAdminPort>> {
    let Some(AdminPort { host, port, tls, keys, hosts, is_insecure }) = port else { return Ok(None) };
    let listener = Listener { address: Address::Tcp { host: host.clone(), port }, tls };
    let bound = listen::bind(listener, &["--admin-host", "--admin-port"]).await?;
    ensure!(
        !keys.is_empty() || is_insecure || bound.is_local,
        "--admin-host {host} lets other machines replace the weights: pass --admin-api-key, or --insecure-admin where \
         that is meant"
    );
    Ok(Some(BoundAdminPort { bound, keys, hosts }))
}

impl BoundAdminPort {
    /// Listens, with the control plane to serve.
    pub(super) fn listen(self, admin: &Arc<Admin>, config: &ServerConfig, progress: &Progress) -> anyhow::Result<Port> {
        progress.say(&format!("the control plane is at {}", self.bound.shown));
        let (endpoint, _) = self.bound.listen()?;
        Ok(Port { endpoint, app: server::admin_app(admin, self.keys, self.hosts, config) })
    }
}
