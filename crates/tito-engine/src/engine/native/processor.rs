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
