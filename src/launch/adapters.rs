//! Adapters that are there from the start, and adapters that are merged into a checkpoint.

use std::{path::Path, sync::Arc};

use anyhow::{Context, anyhow, bail};
use serde_json::{Map, Value};

use super::{
    progress::Progress,
    settings::{AdapterSettings, ModelSettings},
};
use crate::{
    adapters::{AdapterPolicy, AdapterSource, Adapters, Load},
    engine::{Engine, native},
    files, json,
    model::{self, HubOptions},
    state::ServedModels,
    weights::peft::{self, PeftAdapter},
};

/// No config.json is longer.
const MOST_CONFIG_BYTES: u64 = 16 << 20;

/// Writes the weights of a directory with an adapter merged into them.
pub fn merge(base: &Path, adapter: &Path, directory: &Path) -> anyhow::Result<()> {
    let progress = Progress::new();
    let step = progress.step("merging the adapter");
    let merge = || -> anyhow::Result<()> {
        let read = PeftAdapter::open(&files::Directory::anywhere(adapter))?;
        let text = files::read_text(&base.join("config.json"), MOST_CONFIG_BYTES).context("cannot read config.json")?;
        let config: Map<String, Value> = json::read_python(&text).context("config.json is not a JSON object")?;
        if native::quant_method(base, &config).is_some() {
            bail!("its weights are quantised, so the merged numbers could not be stored exactly");
        }
        let modules = native::adapted_tensors(&config, &read).map_err(anyhow::Error::msg)?;
        Ok(peft::merge(base, &modules, directory, &mut |done, all| step.count(done, all))?)
    };
    let merged = files::without_panics(merge).unwrap_or_else(|reason| Err(anyhow!(reason)));
    merged.with_context(|| format!("{} cannot be merged into {}", adapter.display(), base.display()))?;
    step.done();
    progress.banner(&format!("wrote {}", directory.display()));
    Ok(())
}

/// Fails with one sentence where adapters cannot be found by name as the environment says.
pub(super) fn check(settings: &AdapterSettings, progress: &Progress) -> anyhow::Result<()> {
    let Some(resolver) = &settings.resolver else { return Ok(()) };
    let shown = resolver.display();
    if !resolver.is_dir() {
        bail!("VLLM_LORA_RESOLVER_CACHE_DIR must name a directory, but {shown} is not one");
    }
    if settings.policy.found_in.is_none() {
        progress.say("VLLM_LORA_RESOLVER_CACHE_DIR has no effect without VLLM_ALLOW_RUNTIME_LORA_UPDATING=1");
        return Ok(());
    }
    match &settings.policy.root {
        Some(root) if files::Directory::within(root, &resolver.canonicalize()?).is_err() => {
            bail!("VLLM_LORA_RESOLVER_CACHE_DIR must name a directory within --lora-root, but {shown} is outside");
        }
        _ => Ok(()),
    }
}

/// Finds the directories of the adapters that flags name; those of the hub are fetched as the model is.
pub(super) async fn find(
    settings: &AdapterSettings,
    model: &ModelSettings,
    progress: &Progress,
) -> anyhow::Result<Vec<Load>> {
    // The revision is the model's.
    let hub = HubOptions { revision: None, ..model.hub(progress.downloads()) };
    let mut modules = settings.modules.clone();
    for Load { name, source, .. } in &mut modules {
        if let AdapterSource::Directory(path) = source {
            let found = model::adapter_directory(path, &hub).await;
            let found = found.with_context(|| format!("the adapter {name} cannot be served"))?;
            if let Ok(found) = found.into_os_string().into_string() {
                *path = found;
            }
        }
    }
    Ok(modules)
}

/// Loads the adapters that flags name.
pub(super) async fn load(
    engine: &Arc<dyn Engine>,
    AdapterSettings { is_on, policy, .. }: &AdapterSettings,
    modules: Vec<Load>,
    models: &ServedModels,
    progress: &Progress,
) -> anyhow::Result<Arc<Adapters>> {
    if *is_on && engine.adapters().is_none() {
        bail!("only the native engine serves adapters; leave --enable-lora out, or pass --engine native");
    }
    let policy = AdapterPolicy { base_names: models.names().to_vec(), ..policy.clone() };
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
