//! Which instructions compute: the fastest that this machine has, and that give what they should.

use super::{
    LoadError, NativeSettings,
    cpu::{KernelName, KernelSet, Pool, Processor, compare_with_portable},
};

/// How often a set is tried under signals: some ten milliseconds, in which hundreds of them arrive. Unoptimised, one round
/// takes longer than that.
#[cfg(target_os = "linux")]
const ROUNDS: usize = if cfg!(unoptimised) { 1 } else { 10 };

/// The fastest kernels that compute here what they should, or those that were asked for.
pub(super) fn choose(settings: &NativeSettings, pool: Pool) -> Result<Processor, LoadError> {
    let mut processor = Processor { set: KernelSet::PORTABLE, pool };
    if let Some(name) = settings.kernels {
        let asked = detect(name)?;
        processor.set = asked;
        compare_with_portable(&mut processor).map_err(|mismatch| LoadError::WrongKernels { asked, mismatch })?;
        return Ok(processor);
    }
    for set in KernelSet::available().into_iter().filter(|set| !settings.unusable_kernels.contains(set)) {
        processor.set = set;
        match compare_with_portable(&mut processor) {
            Ok(()) => return Ok(processor),
            Err(mismatch) => tracing::warn!("the kernels {set} are not used, they are wrong here: {mismatch}"),
        }
    }
    processor.set = KernelSet::PORTABLE;
    Ok(processor)
}

/// Whether a row of blocks of GGUF files takes no longer here than one of bfloat16. It does not where vectors have 512 bits;
/// with others, blocks are widened more slowly than bfloat16 is read. What is [chosen](choose) when a model is loaded may be
/// less, where kernels are wrong.
pub fn blocks_are_quick(asked: Option<KernelName>, unusable: &[KernelSet]) -> bool {
    let of_set = |set: KernelSet| set.name();
    let first = || KernelSet::available().into_iter().find(|set| !unusable.contains(set)).map(of_set);
    let name = asked.or_else(first).unwrap_or(KernelName::Portable);
    matches!(name, KernelName::Amx | KernelName::Avx512Bf16 | KernelName::Avx512)
}

/// Tries a set of kernels in a process that was started for nothing else: signals interrupt it meanwhile, and it ends by
/// one if the processor refuses an instruction.
pub fn try_kernels(name: KernelName) -> Result<(), LoadError> {
    let set = detect(name)?;
    #[cfg(target_os = "linux")]
    let outcome = super::cpu::try_under_signals(set, ROUNDS).map_err(LoadError::Thread)?;
    #[cfg(not(target_os = "linux"))]
    let outcome = {
        let pool = Pool::new(1).map_err(LoadError::Thread)?;
        compare_with_portable(&mut Processor { set, pool })
    };
    outcome.map_err(|mismatch| LoadError::WrongKernels { asked: set, mismatch })
}

/// The set of this name, if this machine has its instructions.
fn detect(asked: KernelName) -> Result<KernelSet, LoadError> {
    KernelSet::detect(asked).ok_or_else(|| {
        let names: Vec<&str> = KernelSet::available().into_iter().map(|set| set.name().as_str()).collect();
        LoadError::Kernels { asked, available: names.join(", ") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_quick_where_vectors_have_512_bits() {
        let quick = KernelName::ALL.into_iter().filter(|name| blocks_are_quick(Some(*name), &[]));
        assert_eq!(quick.map(KernelName::as_str).collect::<Vec<_>>(), ["amx", "avx512_bf16", "avx512"]);
        let all = KernelSet::available();
        assert!(!blocks_are_quick(None, &all), "none of them works");
        let quickest = all.first().map(|set| set.name());
        assert_eq!(blocks_are_quick(None, &[]), blocks_are_quick(quickest, &[]));
    }
}
