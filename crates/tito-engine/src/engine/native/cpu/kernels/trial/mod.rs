//! Checks that a kernel set computes correctly on this machine, before the set is chosen.
//!
//! A processor may not do what it lists: a hypervisor may hide registers that it does not save, an emulator may round
//! in its own way, and some kernels have never met the processor that they are written for. So each set first computes
//! an example of every shape that its kernels tell apart, on the threads that will compute, and is compared with the
//! portable set. Products and attention sum in their own order and may differ by the error that is stated here;
//! everything else must be equal to the bit.
//!
//! Owns the examples and the errors that are allowed. Refuses to choose. Weights in the blocks of a GGUF file are
//! computed by candle, which no set changes, and are not tried.

mod examples;
#[cfg(target_os = "linux")]
mod signals;
#[cfg(test)]
mod tests;

use super::{KernelSet, Processor};
#[cfg(target_os = "linux")]
pub(crate) use signals::try_under_signals;

/// A number that a set computes otherwise than it should.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{operation}: number {index} is {found}, and {expected} in the portable kernels")]
pub struct Mismatch {
    /// What was computed, and on which shape.
    operation: String,
    /// The index of the number that differs.
    index: usize,
    found: f32,
    expected: f32,
}

/// How far a number may be from the portable set's.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Tolerance {
    /// Not at all.
    SameBits,
    /// Numbers may differ by this much.
    Within(f32),
}

impl Tolerance {
    fn allows(self, found: f32, expected: f32) -> bool {
        if expected.is_nan() {
            return found.is_nan();
        }
        match self {
            Self::SameBits => found.to_bits() == expected.to_bits(),
            Self::Within(most) => (found - expected).abs() <= most,
        }
    }
}

/// Gives all numbers of a result.
type Compute = dyn Fn(&mut Processor) -> Vec<f32>;

/// Something to compute.
struct Example {
    operation: String,
    tolerance: Tolerance,
    compute: Box<Compute>,
}

impl Example {
    fn compare(&self, found: &[f32], expected: &[f32]) -> Result<(), Mismatch> {
        debug_assert_eq!(found.len(), expected.len(), "{}", self.operation);
        let mut pairs = found.iter().zip(expected).enumerate();
        match pairs.find(|(_, (found, expected))| !self.tolerance.allows(**found, **expected)) {
            Some((index, (&found, &expected))) => {
                Err(Mismatch { operation: self.operation.clone(), index, found, expected })
            }
            None => Ok(()),
        }
    }
}

/// Computes all examples with the processor's set and with the portable one; the first difference if there is one.
///
/// Takes milliseconds. The process ends by a signal if the processor refuses an instruction, see [`try_under_signals`].
pub(crate) fn compare_with_portable(processor: &mut Processor) -> Result<(), Mismatch> {
    let set = processor.set;
    if set == KernelSet::PORTABLE {
        return Ok(());
    }
    examples::all().iter().try_for_each(|example| {
        let found = (example.compute)(processor);
        processor.set = KernelSet::PORTABLE;
        let expected = (example.compute)(processor);
        processor.set = set;
        example.compare(&found, &expected)
    })
}
