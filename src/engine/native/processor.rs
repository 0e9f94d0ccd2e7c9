//! Which instructions compute: the fastest that this machine has, and that give what they should.

use super::{
    LoadError, NativeSettings,
    cpu::{KernelSet, Pool, Processor, compare_with_portable},
};

/// How often a set is tried under signals: some ten milliseconds, in which hundreds of them arrive. Unoptimised, one round
/// takes longer than that.
#[cfg(target_os = "linux")]
const ROUNDS: usize = if cfg!(debug_assertions) { 1 } else { 10 };

/// The fastest kernels that compute here what they should, or those that were asked for.
pub(super) fn choose(settings: &NativeSettings, pool: Pool) -> Result<Processor, LoadError> {
    let available = KernelSet::available();
    let mut processor = Processor { set: KernelSet::Portable, pool };
    if let Some(asked) = settings.kernels {
        if !available.contains(&asked) {
            return Err(not_here(asked));
        }
        processor.set = asked;
        compare_with_portable(&mut processor).map_err(|mismatch| LoadError::WrongKernels { asked, mismatch })?;
        return Ok(processor);
    }
    for set in available.into_iter().filter(|set| !settings.unusable_kernels.contains(set)) {
        processor.set = set;
        match compare_with_portable(&mut processor) {
            Ok(()) => return Ok(processor),
            Err(mismatch) => tracing::warn!("the kernels {set} are not used, they are wrong here: {mismatch}"),
        }
    }
    processor.set = KernelSet::Portable;
    Ok(processor)
}

/// Tries a set of kernels in a process that was started for nothing else: signals interrupt it meanwhile, and it ends by
/// one if the processor refuses an instruction.
pub fn try_kernels(set: KernelSet) -> Result<(), LoadError> {
    if !KernelSet::available().contains(&set) {
        return Err(not_here(set));
    }
    #[cfg(target_os = "linux")]
    let outcome = super::cpu::try_under_signals(set, ROUNDS).map_err(LoadError::Thread)?;
    #[cfg(not(target_os = "linux"))]
    let outcome = {
        let pool = Pool::new(1).map_err(LoadError::Thread)?;
        compare_with_portable(&mut Processor { set, pool })
    };
    outcome.map_err(|mismatch| LoadError::WrongKernels { asked: set, mismatch })
}

fn not_here(asked: KernelSet) -> LoadError {
    let names: Vec<&str> = KernelSet::available().into_iter().map(KernelSet::name).collect();
    LoadError::Kernels { asked, available: names.join(", ") }
}
