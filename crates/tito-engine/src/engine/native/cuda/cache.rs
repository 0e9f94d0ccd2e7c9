//! Keys and values of one layer, in blocks, as the kernels of mistralrs-paged-attn read them.
//!
//! Keys are `[blocks, heads, head_dim / x, tokens, x]`, where `x` numbers are 16 bytes; values are
//! `[blocks, heads, head_dim, tokens]`. On any device candle's own operations write and read the same layout.

use candle_core::{DType, Result, Tensor};

use super::{buffer::TensorKind, failure::with_room, shared::Run};
use crate::engine::native::backend::{BLOCK_TOKENS, CacheShape, NoRoom};

/// Bytes that a thread reads of a key at a time.
const READ_BYTES: usize = 16;

/// A cache.
#[derive(Debug)]
pub(crate) struct Cache {
    pub(super) keys: Tensor,
    pub(super) values: Tensor,
}

impl Cache {
    pub(super) fn new(
        TensorKind { device, dtype, allocations }: TensorKind<'_>,
        CacheShape { heads, head_dim }: CacheShape,
        blocks: usize,
    ) -> std::result::Result<Self, NoRoom> {
        let bytes = [blocks, heads, head_dim, BLOCK_TOKENS, dtype.size_in_bytes()];
        let bytes = bytes.into_iter().try_fold(1_usize, usize::checked_mul);
        bytes.and_then(|bytes| isize::try_from(bytes).ok()).ok_or(NoRoom)?;
        allocations.count();
        let x = numbers_of_a_read(dtype, head_dim);
        let zeros = |shape: &[usize]| with_room(Tensor::zeros(shape, dtype, device));
        Ok(Self {
            keys: zeros(&[blocks, heads, head_dim / x, BLOCK_TOKENS, x])?,
            values: zeros(&[blocks, heads, head_dim, BLOCK_TOKENS])?,
        })
    }

    /// The memory of a block.
    pub(super) fn block_bytes(dtype: DType, CacheShape { heads, head_dim }: CacheShape) -> usize {
        2 * heads * head_dim * BLOCK_TOKENS * dtype.size_in_bytes()
    }

    /// Heads and the numbers of each.
    pub(super) fn shape(&self) -> CacheShape {
        let dims = self.values.dims();
        CacheShape { heads: dims[1], head_dim: dims[2] }
    }

    /// Copies a block.
    pub(super) fn copy_block(&self, from: u32, to: u32) -> Result<()> {
        for part in [&self.keys, &self.values] {
            part.slice_set(&part.narrow(0, from as usize, 1)?.copy()?, 0, to as usize)?;
        }
        Ok(())
    }

    /// Writes keys and values, each `[rows, heads, head_dim]`, a run at a time.
    pub(super) fn write_runs(&self, keys: &Tensor, values: &Tensor, runs: &[Run]) -> Result<()> {
        let (_, heads, parts, _, x) = self.keys.dims5()?;
        for run in runs {
            let new = keys.narrow(0, run.row, run.tokens)?.contiguous()?.reshape((run.tokens, heads, parts, x))?;
            let new = new.permute((1, 2, 0, 3))?.contiguous()?;
            self.keys.narrow(0, run.block, 1)?.squeeze(0)?.slice_set(&new, 2, run.slot)?;
            let new = values.narrow(0, run.row, run.tokens)?.permute((1, 2, 0))?.contiguous()?;
            self.values.narrow(0, run.block, 1)?.squeeze(0)?.slice_set(&new, 2, run.slot)?;
        }
        Ok(())
    }

    /// The keys and values of the first `tokens` tokens of some blocks, each `[tokens, heads, head_dim]`.
    pub(super) fn gather(&self, blocks: &[u32], tokens: usize) -> Result<(Tensor, Tensor)> {
        let CacheShape { heads, head_dim } = self.shape();
        let count = blocks.len();
        let blocks = Tensor::new(blocks, self.keys.device())?;
        let keys = self.keys.index_select(&blocks, 0)?.permute((0, 3, 1, 2, 4))?;
        let values = self.values.index_select(&blocks, 0)?.permute((0, 3, 1, 2))?;
        let shape = (count * BLOCK_TOKENS, heads, head_dim);
        // What the last block has after the last token may be another sequence's, or no numbers at all.
        let cut = |part: Tensor| part.reshape(shape)?.narrow(0, 0, tokens);
        Ok((cut(keys)?, cut(values)?))
    }
}

/// The `x` of the layout; it is 1 for heads that the kernels do not serve anyway.
fn numbers_of_a_read(dtype: DType, head_dim: usize) -> usize {
    let x = READ_BYTES / dtype.size_in_bytes();
    if head_dim.is_multiple_of(x) { x } else { 1 }
}
