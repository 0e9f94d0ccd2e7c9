//! What an example is, and how far its results may be from the portable set's.

use super::super::Processor;

/// A number that a set computes otherwise than it should.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{operation}: number {index} is {found}, and {expected} in the portable kernels")]
pub struct Mismatch {
    /// What was computed, and on which shape.
    pub(super) operation: String,
    /// The index of the number that differs.
    pub(super) index: usize,
    pub(super) found: f32,
    pub(super) expected: f32,
}

/// How far a number may be from the portable set's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Tolerance {
    /// Not at all.
    SameBits,
    /// Numbers may differ by this much.
    Within(f32),
}

impl Tolerance {
    pub(super) fn allows(self, found: f32, expected: f32) -> bool {
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
pub(super) type Compute = dyn Fn(&mut Processor) -> Vec<f32>;

/// Something to compute.
pub(super) struct Example {
    pub(super) operation: String,
    pub(super) tolerance: Tolerance,
    pub(super) compute: Box<Compute>,
}

impl Example {
    pub(super) fn compare(&self, found: &[f32], expected: &[f32]) -> Result<(), Mismatch> {
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
