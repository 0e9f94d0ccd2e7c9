//! The kernels of mistralrs-paged-attn: writing a paged cache, and attention of single rows over it. They serve the
//! caches that the engine's own, in `paged_attention.rs`, do not: those of f32, and of heads of 512.

use candle_core::{
    Result, Tensor,
    cuda_backend::{WrapErr, cudarc::driver::sys::CUdevice_attribute},
};
use mistralrs_paged_attn::{paged_attention, reshape_and_cache};

use super::{
    super::{
        cache::Cache,
        shared::{StepShared, Tables},
    },
    device,
    memory::unwritten,
    rows::new_keys,
};
use crate::engine::native::backend::{BLOCK_TOKENS, CacheShape};

/// Heads that there are kernels for.
const HEAD_DIMS: [usize; 8] = [64, 80, 96, 112, 128, 192, 256, 512];
/// Rows times heads above which the kernel does not split a context into partitions.
const MOST_PARTITIONED: usize = 512;
/// Tokens of a partition.
const PARTITION: usize = 512;
/// The longest context that is not split, wherever its scores have room in the memory of one multiprocessor.
const LONGEST_WHOLE: usize = 32_768;
/// What the kernel has there beside the scores, in numbers of f32: a query and a few sums.
const BESIDE_SCORES: usize = 1024;
/// No soft cap of scores.
const NO_CAP: f32 = 1.0;

/// Whether there are kernels for a cache.
pub(in super::super) fn serve(cache: &Cache) -> bool {
    let sixteen_bytes = 16 / cache.keys.dtype().size_in_bytes();
    let x = cache.keys.dims().last().copied();
    cache.keys.device().is_cuda() && HEAD_DIMS.contains(&cache.shape().head_dim) && x == Some(sixteen_bytes)
}

/// Writes the keys and values of all rows, which begin at number `first` of each.
pub(in super::super) fn write_cache(states: &Tensor, first: usize, cache: &Cache, shared: &StepShared) -> Result<()> {
    let CacheShape { heads, head_dim } = cache.shape();
    let rows = states.dim(0)?;
    // SAFETY: `new_keys` writes all numbers of all rows.
    let new = unsafe { unwritten((rows, 2 * heads * head_dim), cache.keys.dtype(), states.device())? };
    new_keys(states, first, &new, &shared.broken)?;
    let new = new.reshape((rows, 2 * heads, head_dim))?;
    let (keys, values) = (new.narrow(1, 0, heads)?, new.narrow(1, heads, heads)?);
    reshape_and_cache(&keys, &values, None, None, &cache.keys, &cache.values, &shared.slots()?)
}

/// The longest context whose scores, in f32, have room in what a block of threads may have of a multiprocessor's memory: half
/// as much on some kinds of GPUs as on others.
fn longest_whole(queries: &Tensor) -> Result<usize> {
    let stream = device(queries)?.cuda_stream();
    let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
    let bytes = stream.context().attribute(attribute).w()?;
    let tokens = usize::try_from(bytes).unwrap_or_default() / size_of::<f32>();
    Ok((tokens.saturating_sub(BESIDE_SCORES) / BLOCK_TOKENS * BLOCK_TOKENS).min(LONGEST_WHOLE))
}

/// Attention of single rows, `[rows, heads, head_dim]`, over their blocks; the result is `[rows, heads * head_dim]`.
///
/// `invariant` asks for the way that does not depend on other rows: every context in partitions, however short.
pub(in super::super) fn attend(
    queries: &Tensor,
    Tables { blocks, lengths, longest }: &Tables,
    cache: &Cache,
    scale: f32,
    invariant: bool,
) -> Result<Tensor> {
    let (count, heads, _) = queries.dims3()?;
    let longest = if invariant { (*longest).max(PARTITION + 1) } else { *longest };
    let partitioned = invariant || longest > longest_whole(queries)?;
    let at_a_time = if partitioned { (MOST_PARTITIONED / heads).max(1) } else { count };
    let mut attended = Vec::new();
    for first in (0..count).step_by(at_a_time) {
        let some = at_a_time.min(count - first);
        attended.push(paged_attention(
            &queries.narrow(0, first, some)?,
            None,
            None,
            &cache.keys,
            &cache.values,
            &blocks.narrow(0, first, some)?,
            &lengths.narrow(0, first, some)?,
            None,
            longest,
            scale,
            NO_CAP,
            None,
        )?);
    }
    let attended = if let [all] = &attended[..] { all.clone() } else { Tensor::cat(&attended, 0)? };
    attended.reshape((count, heads * cache.shape().head_dim))
}
