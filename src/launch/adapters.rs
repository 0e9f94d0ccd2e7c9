//! Adapters that are there from the start.

use std::sync::Arc;

use anyhow::{Context, bail};

use super::{progress::Progress, settings::AdapterSettings};
use crate::{
    adapters::{AdapterPolicy, Adapters},
    api::ServedModels,
    engine::Engine,
};

/// Loads the adapters that flags name.
pub(super) async fn load(
    engine: &Arc<dyn Engine>,
    AdapterSettings { is_on, policy, modules }: AdapterSettings,
    models: &ServedModels,
    progress: &Progress,
) -> anyhow::Result<Arc<Adapters>> {
    if is_on && engine.adapters().is_none() {
        bail!("adapters are served by the native engine only: --enable-lora needs --engine native");
    }
    let policy = AdapterPolicy { base_names: models.names().to_vec(), ..policy };
    let adapters = Arc::new(Adapters::new(Arc::clone(engine), policy));
    if modules.is_empty() {
        return Ok(adapters);
    }
    let step = progress.step("reading adapters");
    for module in modules {
        let name = module.name.clone();
        adapters.load(module).await.with_context(|| format!("the adapter {name} cannot be served"))?;
    }
    step.done();
    Ok(adapters)
}
