//! The control plane: who may use it, where it listens, and what it works with.

use std::sync::Arc;

use anyhow::ensure;

use super::{listen, policy, progress::Progress};
use crate::{
    admin::{Admin, Served},
    config::{AdminArgs, ServeArgs},
    control::Control,
    engine::Engine,
    generation::RunningRequests,
    server::ApiKeys,
};

/// What opens the control plane on the port of the API; `None` where it is not served there.
pub(super) fn main_port_keys(args: &ServeArgs, progress: &Progress) -> anyhow::Result<Option<ApiKeys>> {
    let (admin, own) = (&args.admin, ApiKeys::new(&args.admin.admin_api_key));
    if !admin.on_main_port() {
        return Ok(None);
    }
    if admin.is_insecure() {
        progress.say("whoever reaches this server can pause it and replace its weights");
        return Ok(Some(ApiKeys::default()));
    }
    let keys = if own.is_empty() { ApiKeys::new(&args.http.api_key) } else { own };
    ensure!(
        !keys.is_empty(),
        "--admin-on-main-port lets whoever reaches the server replace its weights: pass --admin-api-key or --api-key, or \
         --insecure-admin where that is meant"
    );
    Ok(Some(keys))
}

/// The port of the control plane, where it has one of its own.
pub(super) struct AdminPort {
    bound: listen::BoundTcp,
    keys: ApiKeys,
}

/// Binds the port of the control plane.
pub(super) fn bind(args: &AdminArgs) -> anyhow::Result<Option<AdminPort>> {
    let Some(port) = args.admin_port else { return Ok(None) };
    let bound = listen::bind_admin(&args.admin_host, port)?;
    let keys = ApiKeys::new(&args.admin_api_key);
    ensure!(
        !keys.is_empty() || args.is_insecure() || bound.is_local(),
        "--admin-host {} lets other machines replace the weights: pass --admin-api-key, or --insecure-admin where that is \
         meant",
        args.admin_host
    );
    Ok(Some(AdminPort { bound, keys }))
}

impl AdminPort {
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

/// The control plane of an engine.
pub(super) fn control(args: &ServeArgs, name: &str, engine: &Arc<dyn Engine>, requests: RunningRequests) -> Arc<Admin> {
    let control = Control::new(Arc::clone(engine), requests, policy::control(&args.admin));
    Arc::new(Admin { control, served: Served { model: args.model().to_owned(), name: name.to_owned() } })
}
