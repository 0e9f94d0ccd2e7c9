//! What flags say of adapters.

use crate::{
    adapters::{AdapterPolicy, AdapterSource, Load},
    config::AdapterArgs,
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
}

/// The bounds of adapters; `None` where none are served.
pub(super) fn limits(args: &AdapterArgs) -> Option<AdapterLimits> {
    let AdapterArgs { enable_lora, max_loras, max_lora_rank, .. } = *args;
    enable_lora.then_some(AdapterLimits { max_loras, max_lora_rank })
}

/// Fails with one sentence where flags do not go together.
pub(super) fn settings(args: &AdapterArgs) -> anyhow::Result<AdapterSettings> {
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
    Ok(AdapterSettings {
        is_on: args.enable_lora,
        modules: modules.collect(),
        policy: AdapterPolicy { base_names: Vec::new(), root: args.lora_root.clone(), most: args.max_cpu_loras },
    })
}
