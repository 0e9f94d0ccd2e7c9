//! The engine's own attention over the blocks of a cache, in `paged_attention.cu` and what it includes.

use candle_core::{DType, Result, Tensor, bail};

use super::{
    super::{
        attention::Setting,
        cache::Cache,
        schedule::{DeviceSchedule, PROMPT_ROWS, ScheduleKey, TILE_ROWS},
        shared::StepShared,
    },
    address,
    launch::{Argument, Kernels, Launch, narrow},
    rows_of, sums_of,
};
use crate::engine::native::backend::{AttentionShape, BLOCK_TOKENS, CacheShape, HeadPreparation, Reach};

/// The kernels for heads of one size.
macro_rules! kernels_of {
    ($head_dim:literal) => {
        Kernels {
            name: concat!("paged_attention_", $head_dim),
            ptx: include_str!(concat!(env!("OUT_DIR"), "/paged_attention_", $head_dim, ".ptx")),
        }
    };
}

/// The kernels for heads of some sizes, `HEAD_DIMS` in build.rs.
static ATTENTION: [(usize, Kernels); 7] = [
    (64, kernels_of!(64)),
    (80, kernels_of!(80)),
    (96, kernels_of!(96)),
    (112, kernels_of!(112)),
    (128, kernels_of!(128)),
    (192, kernels_of!(192)),
    (256, kernels_of!(256)),
];
/// Numbers of a key that lie together, and of a block that the kernels know.
const TOGETHER: usize = 8;
const TOKENS: usize = 32;
/// Threads of a block, 32 times `WARPS` in `tile_attention.cuh` and `prompt_attention.cuh`.
const THREADS: u32 = 128;
/// Blocks of keys and values that the kernel for prompts has in shared memory, `PROMPT_STAGES` there.
const STAGES: usize = 3;
/// Heads that a block prepares, each by a warp; `PREPARED` in `paged_attention.cu`.
const PREPARED_HEADS: usize = 4;
/// Threads that write the keys and values of a row.
const WRITERS: u32 = 256;
/// Threads that merge the parts of a head, two numbers each at a time.
const MERGERS: u32 = 64;
/// What kernels are told of how heads are made ready where they are.
const READY: [Argument; 9] = {
    let (none, zero, number) = (Argument::Address(0), Argument::Count(0), Argument::Number(0.0));
    [none, none, none, none, none, zero, zero, number, number]
};

/// The kernels for heads of this size.
fn kernels(head_dim: usize) -> Option<&'static Kernels> {
    ATTENTION.iter().find(|(served, _)| *served == head_dim).map(|(_, kernels)| kernels)
}

/// The kernels that read a cache.
fn kernels_for(cache: &Cache) -> Result<&'static Kernels> {
    let head_dim = cache.shape().head_dim;
    let Some(file) = kernels(head_dim).filter(|_| serve_paged(cache)) else { bail!("heads of {head_dim}") };
    Ok(file)
}

/// Whether the kernels read a cache.
pub(in super::super) fn serve_paged(cache: &Cache) -> bool {
    let keys = &cache.keys;
    let lies_as_read = keys.dims().last() == Some(&TOGETHER) && BLOCK_TOKENS == TOKENS;
    keys.device().is_cuda() && keys.dtype() == DType::BF16 && lies_as_read && kernels(cache.shape().head_dim).is_some()
}

/// Writes the keys and values of all rows, which begin at number `first` of each, and marks the rows of which one is not
/// finite.
pub(in super::super) fn write_paged(states: &Tensor, first: usize, cache: &Cache, shared: &StepShared) -> Result<()> {
    let CacheShape { heads, head_dim } = cache.shape();
    let (from, rows, columns) = sums_of(states)?;
    let slots = shared.slots()?;
    let file = kernels_for(cache)?;
    if first + 2 * heads * head_dim > columns || slots.dims1()? != rows {
        bail!("keys and values of {rows} rows of {columns}, {heads} heads of {head_dim} after {first}");
    }
    let arguments = [
        Argument::Address(from),
        Argument::Address(address(&slots)?),
        Argument::Address(address(&cache.keys)?),
        Argument::Address(address(&cache.values)?),
        Argument::Address(address(&shared.broken)?),
        Argument::count(columns)?,
        Argument::count(first)?,
        Argument::count(heads)?,
        Argument::count(head_dim)?,
    ];
    let launch = Launch { file, kernel: "write_cache", rows, parts: 1, threads: WRITERS };
    // SAFETY: each row has both, as was just compared; slots are places of blocks of the cache, and there is a mark for each row.
    unsafe { launch.run(super::device(states)?, &arguments) }
}

/// Makes queries, keys and values of all rows ready for attention. Keys and values go to the cache only, and rows of which one is
/// not finite are marked.
pub(in super::super) fn prepare_paged(
    states: &Tensor,
    preparation: &HeadPreparation<'_, Tensor>,
    cache: &Cache,
    shared: &StepShared,
) -> Result<()> {
    let (from, rows, columns) = sums_of(states)?;
    let slots = shared.slots()?;
    let file = kernels_for(cache)?;
    let told = told_of_heads(states, preparation, cache, shared)?;
    if slots.dims1()? != rows {
        bail!("{rows} rows go to {:?} slots", slots.shape());
    }
    let (heads, kv_heads) = (preparation.heads, cache.shape().heads);
    let arguments = [
        Argument::Address(from),
        Argument::Address(address(&slots)?),
        Argument::Address(address(&cache.keys)?),
        Argument::Address(address(&cache.values)?),
        Argument::count(columns)?,
        Argument::count(heads)?,
        Argument::count(kv_heads)?,
    ];
    let (parts, threads) = ((heads + 2 * kv_heads).div_ceil(PREPARED_HEADS), narrow(32 * PREPARED_HEADS)?);
    let launch = Launch { file, kernel: "prepare_heads", rows, parts, threads };
    // SAFETY: each row has all heads, as `told_of_heads` compared, and a slot; slots are places of blocks of the cache.
    unsafe { launch.run(super::device(states)?, &[&arguments[..], &told].concat()) }
}

/// What kernels are told of how heads are made ready: `PREPARATION` in `paged_attention.cu`. Each row has all heads, a mark, and a
/// cosine and a sine for each pair of a head; weights are those of a head.
fn told_of_heads(
    states: &Tensor,
    preparation: &HeadPreparation<'_, Tensor>,
    cache: &Cache,
    shared: &StepShared,
) -> Result<[Argument; 9]> {
    let HeadPreparation { heads, kept, norms, norm, rotation } = *preparation;
    let CacheShape { heads: kv_heads, head_dim } = cache.shape();
    let (_, rows, columns) = sums_of(states)?;
    let (cosines, sines) = &shared.angles[rotation.angles];
    let (cosines, angle_rows, pairs) = sums_of(cosines)?;
    let (sines, sine_rows, sine_pairs) = sums_of(sines)?;
    let all = heads + 2 * kv_heads;
    let fits = kept == cache.shape() && all * head_dim <= columns && 2 * pairs <= head_dim && !norm.centred;
    let turns_all = (rotation.first, rotation.heads, rotation.head_dim) == (0, heads + kv_heads, head_dim);
    let same_rows = [angle_rows, sine_rows, shared.broken.dims1()?] == [rows; 3];
    if !fits || !turns_all || !same_rows || pairs != sine_pairs {
        bail!("{heads} heads and {kv_heads} of {head_dim} in {rows} rows of {columns}, {pairs} pairs, {rotation:?}");
    }
    let weights = |weight: Option<&Tensor>| match weight {
        None => Ok(0),
        Some(weight) if weight.dims1()? == head_dim && weight.dtype() == DType::F32 => address(weight),
        Some(weight) => bail!("weights of {:?} for heads of {head_dim}", weight.shape()),
    };
    let [queries, keys] = norms;
    Ok([
        Argument::Address(weights(queries)?),
        Argument::Address(weights(keys)?),
        Argument::Address(cosines),
        Argument::Address(sines),
        Argument::Address(address(&shared.broken)?),
        Argument::count(pairs)?,
        Argument::count(usize::from(rotation.neighbours))?,
        Argument::Number(norm.epsilon),
        Argument::Number(norm.offset),
    ])
}

/// Whether the blocks of threads that attend can prepare their rows themselves: each has all rows of a sequence, so that nobody
/// else reads what it writes.
pub(in super::super) fn tiles_prepare(cache: &Cache, shape: AttentionShape, shared: &StepShared) -> Result<bool> {
    Ok(shared.schedule(ScheduleKey::of(shape, cache.shape()))?.whole_spans)
}

/// Attention of all rows of a step, whose queries are the first numbers of `states`; the result is
/// `[rows, heads * head_dim]` in bf16. Where a preparation is given, which asks for [`tiles_prepare`], heads are made ready first.
#[expect(clippy::too_many_arguments, reason = "an operation names all that it reads and writes")]
pub(in super::super) fn attend_paged(
    states: &Tensor,
    preparation: Option<&HeadPreparation<'_, Tensor>>,
    cache: &Cache,
    setting: Setting<'_>,
    shared: &StepShared,
    out: &Tensor,
) -> Result<()> {
    let CacheShape { heads: kv_heads, head_dim } = cache.shape();
    let (file, device, heads) = (kernels_for(cache)?, super::device(states)?, setting.shape.heads);
    let schedule = shared.schedule(ScheduleKey::of(setting.shape, cache.shape()))?;
    let preparation = match preparation {
        None => READY,
        Some(_) if !schedule.whole_spans => {
            bail!("rows of a sequence are apart, and cannot be prepared where they attend")
        }
        Some(preparation) => told_of_heads(states, preparation, cache, shared)?,
    };
    let told = |items: &Tensor| told_of_attention(states, cache, setting, &schedule, items, shared, out);
    let blocks = |most_rows: usize| kv_heads * (heads / kv_heads).div_ceil(most_rows);
    if let Some(items) = &schedule.narrow {
        let kernel = format!("attend_tile_{head_dim}");
        let (rows, parts) = (items.dim(0)?, blocks(TILE_ROWS));
        let launch = Launch { file, kernel: &kernel, rows, parts, threads: THREADS };
        // SAFETY: as both that tell compared.
        unsafe { launch.run(device, &[&told(items)?[..], &preparation].concat())? };
    }
    if let Some(items) = &schedule.wide {
        let kernel = format!("attend_prompt_{head_dim}");
        let (rows, parts) = (items.dim(0)?, blocks(PROMPT_ROWS));
        let launch = Launch { file, kernel: &kernel, rows, parts, threads: THREADS };
        // SAFETY: as `told_of_attention` compared; the kernel stays inside of the memory that it is given.
        unsafe { launch.run_with_memory(device, &told(items)?, memory_of_prompts(head_dim))? };
    }
    if let Some(merges) = &schedule.merges {
        let launch = Launch { file, kernel: "merge_attention", rows: merges.dim(0)?, parts: heads, threads: MERGERS };
        let merged = [Argument::Address(address(merges)?)];
        // SAFETY: the parts that merges name were written by the launches before this one, and their rows are rows of `out`. No
        // item is read.
        unsafe { launch.run(device, &[&merged[..], &told(merges)?].concat())? };
    }
    Ok(())
}

/// What kernels are told of attention: `ATTENDED` in `paged_attention.cu`. Items and tables are those of this step, whose rows
/// `states` and `out` have; each sequence's blocks are blocks of the cache and reach to its last position; there is a sink for each
/// head, and the schedule has room for all parts that items name.
#[expect(clippy::too_many_arguments, reason = "an operation names all that it reads and writes")]
fn told_of_attention(
    states: &Tensor,
    cache: &Cache,
    Setting { shape, sinks, .. }: Setting<'_>,
    schedule: &DeviceSchedule,
    items: &Tensor,
    shared: &StepShared,
    out: &Tensor,
) -> Result<[Argument; 16]> {
    let CacheShape { heads: kv_heads, head_dim } = cache.shape();
    let (from, rows, columns) = sums_of(states)?;
    let (to, out_rows, width) = rows_of(out)?;
    let fits = shape.heads * head_dim == width && width <= columns && shape.heads.is_multiple_of(kv_heads);
    if !fits || rows != out_rows || out.dtype() != DType::BF16 || rows != shared.rows() {
        bail!("attention of {rows} rows of {columns} to {out_rows} of {width}, heads of {head_dim}");
    }
    let sinks = match sinks {
        None => 0,
        Some(sinks) if sinks.dtype() == DType::F32 && sinks.dims1()? == shape.heads => address(sinks)?,
        Some(sinks) => bail!("sinks of {:?}", sinks.shape()),
    };
    let (window, chunk) = match shape.reach {
        Reach::All => (0, 0),
        Reach::Window(window) => (window, 0),
        Reach::Chunk(chunk) => (0, chunk),
    };
    if shape.scale.is_nan() || shape.scale <= 0.0 {
        bail!("scores are scaled by {}", shape.scale);
    }
    Ok([
        Argument::Address(from),
        Argument::Address(address(&cache.keys)?),
        Argument::Address(address(&cache.values)?),
        Argument::Address(address(items)?),
        Argument::Address(address(&shared.blocks()?)?),
        Argument::Address(sinks),
        Argument::Address(address(&schedule.parts)?),
        Argument::Address(address(&schedule.done)?),
        Argument::Address(to),
        Argument::count(columns)?,
        Argument::count(shape.heads)?,
        Argument::count(kv_heads)?,
        Argument::count(window)?,
        Argument::count(chunk)?,
        Argument::Number(shape.scale),
        Argument::Number(shape.cap.unwrap_or(0.0)),
    ])
}

/// The bytes of `Shared` in `prompt_attention.cuh`: some blocks of keys and values, and queries.
fn memory_of_prompts(head_dim: usize) -> u32 {
    let queries = PROMPT_ROWS * head_dim.next_multiple_of(32);
    let bytes = 2 * (STAGES * 2 * head_dim * TOKENS + queries);
    u32::try_from(bytes).expect("as much as a multiprocessor has")
}
