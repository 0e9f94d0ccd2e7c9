//! How the keys and values of a step come into a cache: by the kernels where they serve it, else by candle's operations.

use candle_core::{DType, Result, Tensor};

use super::{cache::Cache, shared::StepShared};
use crate::engine::native::backend::CacheShape;

impl Cache {
    /// Writes the keys and values of all rows of a step, which begin at number `first` of each; remembers in `shared` which
    /// are not finite.
    pub(super) fn write(&self, states: &Tensor, first: usize, shared: &mut StepShared) -> Result<()> {
        #[cfg(feature = "cuda")]
        if super::kernels::serve_paged(self) {
            return super::kernels::write_paged(states, first, self, shared);
        }
        #[cfg(feature = "cuda")]
        if super::kernels::serve(self) {
            return super::kernels::write_cache(states, first, self, shared);
        }
        let CacheShape { heads, head_dim } = self.shape();
        let (rows, width) = (states.dim(0)?, heads * head_dim);
        let new = states.narrow(1, first, 2 * width)?.to_dtype(self.keys.dtype())?.contiguous()?;
        // Zero times a number is zero, and zero times what is not finite is NaN.
        let zeros = (new.to_dtype(DType::F32)? * 0.0)?.sum(1)?;
        shared.broken = (&shared.broken + zeros)?;
        let new = new.reshape((rows, 2 * heads, head_dim))?;
        self.write_runs(&new.narrow(1, 0, heads)?, &new.narrow(1, heads, heads)?, shared.runs())
    }
}
