//! The control plane: who may use it, where it listens, and what it works with.

use std::sync::Arc;

use anyhow::ensure;

use super::{
    listen,
    progress::Progress,
    settings::{AdminPort, MainPort},
};
use crate::{admin::Admin, server::ApiKeys};

/// What opens the control plane on the port of the API; `None` where it is not served there.
pub(super) fn main_port_keys(main_port: MainPort, progress: &Progress) -> Option<ApiKeys> {
    match main_port {
        MainPort::Closed => None,
        MainPort::Guarded(keys) => Some(keys),
        MainPort::Insecure => {
            progress.say("whoever reaches this server can pause it and replace its weights");
            Some(ApiKeys::default())
        }
    }
}

/// The port of the control plane, where it has one of its own.
pub(super) struct BoundAdminPort {
    bound: listen::BoundTcp,
    keys: ApiKeys,
}

/// Binds the port of the control plane.
pub(super) fn bind(AdminPort { host, port, keys, is_insecure }: AdminPort) -> anyhow::Result<BoundAdminPort> {
    let bound = listen::bind_admin(&host, port)?;
    ensure!(
        !keys.is_empty() || is_insecure || bound.is_local(),
        "--admin-host {host} lets other machines replace the weights: pass --admin-api-key, or --insecure-admin where \
         that is meant"
    );
    Ok(BoundAdminPort { bound, keys })
}

impl BoundAdminPort {
    /// Serves the control plane until the process ends.
    pub(super) fn serve(self, admin: &Arc<Admin>, progress: &Progress) -> anyhow::Result<()> {
        let app = crate::server::admin_app(admin, self.keys);
        progress.say(&format!("the control plane is at http://{}", self.bound.address));
        let listener = self.bound.listen()?;
        tokio::spawn(async move {
            if let Err(error) = crate::server::serve_admin(listener, app).await {
                tracing::error!(%error, "the port of the control plane failed");
            }
        });
        Ok(())
    }
}
