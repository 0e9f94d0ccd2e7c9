//! The two types that are computed with, and what each asks of a layout.

/// The type of weights, of what they are multiplied with, and of keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Precision {
    /// bfloat16, accumulated in f32.
    Bf16,
    /// float32.
    F32,
}

/// Weights in bf16 that lie side by side.
pub(super) const PAIR: usize = 2;

impl Precision {
    /// Rows of the inner dimension that are read at once; the inner dimension is padded to a multiple of it.
    pub(super) fn step(self) -> usize {
        match self {
            Self::Bf16 => 32,
            Self::F32 => 1,
        }
    }

    /// Numbers from one row of activations to the next. Rows of bf16 that are an odd number of cache lines apart do not
    /// compete for the same places of a cache. Rows of f32 are whole pairs, as weights in bf16 are.
    pub(super) fn row_stride(self, columns: usize) -> usize {
        let padded = columns.next_multiple_of(self.step());
        match self {
            Self::Bf16 if (padded / 32).is_multiple_of(2) => padded + 32,
            Self::Bf16 => padded,
            Self::F32 => columns.next_multiple_of(PAIR),
        }
    }
}
