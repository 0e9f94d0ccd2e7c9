//! Checks that a kernel set computes correctly on this machine, before the set is chosen.
//!
//! A processor may not do what it lists: a hypervisor may hide registers that it does not save, an emulator may round
//! in its own way, and some kernels have never met the processor that they are written for. So each set first computes
//! an example of every shape that its kernels tell apart, on the threads that will compute, and is compared with the
//! portable set. Products and attention sum in their own order and may differ by the error that is stated here;
//! everything else must be equal to the bit.
//!
//! Owns the examples and the errors that are allowed. Refuses to choose.

mod example;
mod examples;
mod kept;
mod recurrences;
#[cfg(target_os = "linux")]
mod signals;
#[cfg(test)]
mod tests;

use super::{KernelSet, Processor};
use example::Example;
pub use example::Mismatch;
#[cfg(target_os = "linux")]
pub(crate) use signals::try_under_signals;

/// Computes all examples with the processor's set and with the portable one; the first difference if there is one.
///
/// Takes milliseconds. The process ends by a signal if the processor refuses an instruction, see [`try_under_signals`].
pub(crate) fn compare_with_portable(processor: &mut Processor) -> Result<(), Mismatch> {
    let set = processor.set;
    if set == KernelSet::PORTABLE {
        return Ok(());
    }
    all().iter().try_for_each(|example| {
        let found = (example.compute)(processor);
        processor.set = KernelSet::PORTABLE;
        let expected = (example.compute)(processor);
        processor.set = set;
        example.compare(&found, &expected)
    })
}

/// All examples.
fn all() -> Vec<Example> {
    [examples::all(), kept::all(), recurrences::all()].into_iter().flatten().collect()
}
