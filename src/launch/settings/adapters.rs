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

/// What no step has as many sequences as, and no adapter such a rank: room for them is made at the start.
const MOST: usize = 1 << 16;

fn within_bound(flag: &str, asked: usize) -> anyhow::Result<()> {
    anyhow::ensure!(asked <= MOST, "{flag} is at most {MOST}, and {asked} was asked for");
    Ok(())
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
    within_bound("--max-loras", args.max_loras)?;
    within_bound("--max-lora-rank", args.max_lora_rank)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_that_no_machine_has_is_not_asked_for() {
        assert!(within_bound("--max-loras", MOST).is_ok());
        let refused = within_bound("--max-loras", MOST + 1).unwrap_err().to_string();
        assert_eq!(refused, "--max-loras is at most 65536, and 65537 was asked for");
    }
}
