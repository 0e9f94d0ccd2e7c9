//! What flags say of adapters.

use std::path::{Path, PathBuf};

use crate::{
    adapters::{AdapterDirectory, AdapterPolicy, AdapterSource, Load},
    config::{AdapterArgs, ServeArgs},
    engine::AdapterLimits,
};

/// What is decided about adapters.
pub(in crate::launch) struct AdapterSettings {
    /// Whether any are served.
    pub(in crate::launch) is_on: bool,
    /// Which may be loaded.
    pub(in crate::launch) policy: AdapterPolicy,
    /// Those to load at the start.
    pub(in crate::launch) modules: Vec<Load>,
    /// The directory of vLLM's resolver, also where it is not allowed to load.
    pub(in crate::launch) resolver: Option<PathBuf>,
}

/// The bounds of adapters; `None` where none are served.
pub(super) fn limits(args: &AdapterArgs) -> Option<AdapterLimits> {
    let AdapterArgs { enable_lora, max_loras, max_lora_rank, .. } = *args;
    enable_lora.then_some(AdapterLimits { max_loras, max_lora_rank })
}

/// Fails with one sentence where flags do not go together.
pub(super) fn settings(serve: &ServeArgs) -> anyhow::Result<AdapterSettings> {
    let args = &serve.adapters;
    if !args.enable_lora && !args.lora_modules.is_empty() {
        anyhow::bail!("--lora-modules needs --enable-lora");
    }
    // As in vLLM.
    if let Some(most) = args.max_cpu_loras.filter(|most| *most < args.max_loras) {
        anyhow::bail!("max_cpu_loras ({most}) must be >= max_loras ({}).", args.max_loras);
    }
    let modules = args.lora_modules.iter().map(|module| Load {
        name: module.name.clone(),
        source: AdapterSource::Directory(module.path.clone()),
        replaces: false,
        base_model: module.base_model_name.clone(),
        stays: true,
    });
    let resolver = args.resolver_directory().map(Path::to_owned);
    let allowed = resolver.clone().filter(|_| serve.admin.vllm_allow_runtime_lora_updating);
    let found_in = allowed.map(|root| AdapterDirectory::new(root, serve.model().to_owned()));
    let (root, most) = (args.lora_root.clone(), args.max_cpu_loras);
    Ok(AdapterSettings {
        is_on: args.enable_lora,
        modules: modules.collect(),
        policy: AdapterPolicy { base_names: Vec::new(), root, most, found_in },
        resolver,
    })
}
