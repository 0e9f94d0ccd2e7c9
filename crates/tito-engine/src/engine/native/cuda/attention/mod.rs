//! Attention over gathered keys and values, with candle's operations, on any device. On a GPU in bf16, the engine's own
//! kernel attends in its place, straight from the blocks of the cache (`kernels/paged_attention.cu`).
//!
//! Scores and their softmax are in f32; keys are read in tiles, so that a long prompt over a long prefix takes no more
//! memory than a tile of scores. A tile that counts for no query of a row leaves the row's bits as they were.

mod dispatch;

use candle_core::{D, Result, Tensor};

use super::{
    cache::Cache,
    products::{batched, batched_transposed, padded_rows},
    shared::{MaskShape, SingleRows, StepShared},
};
use crate::engine::native::backend::{AttentionShape, BLOCK_TOKENS, Span};

/// Scores that are there at a time.
pub(super) const MOST_SCORES: usize = 1 << 26;
/// Keys of a tile.
const KEYS: usize = 4096;
/// Keys and queries of a tile where the shape of every product is to be the same.
const EQUAL_KEYS: usize = 256;
const EQUAL_QUERIES: usize = 16;

/// The most queries and keys that are computed at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tiles {
    queries: usize,
    keys: usize,
    /// Whether every tile is filled up to these numbers, and begins at a multiple of them.
    equal: bool,
}

impl Tiles {
    /// As few as memory allows.
    pub(super) fn large(heads: usize) -> Self {
        Self { queries: (MOST_SCORES / KEYS / heads).max(1), keys: KEYS, equal: false }
    }

    /// Tiles that all have one shape, so that a row has the same bits whatever other rows its sequence has in the step.
    pub(super) fn equal() -> Self {
        Self { queries: EQUAL_QUERIES, keys: EQUAL_KEYS, equal: true }
    }
}

/// How rows attend: the attention of their layer, and in which tiles it is computed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting<'a> {
    pub(super) shape: AttentionShape,
    /// For each head of queries a score that takes weight from the keys.
    pub(super) sinks: Option<&'a Tensor>,
    pub(super) tiles: Tiles,
    /// Whether every row of a span attends to all keys of the span, also to later ones.
    pub(super) both_ways: bool,
}

/// What a span attends to.
struct Context<'a> {
    cache: &'a Cache,
    /// The blocks of all positions.
    blocks: &'a [u32],
    /// Keys and values of all positions, `[kv_heads, positions, head_dim]`; `None` where each tile is gathered for itself, so that a
    /// short span after a long text takes no more memory than a tile.
    gathered: Option<[Tensor; 2]>,
    /// The first position.
    first: usize,
    /// The position after the last key that counts; zeros may follow it.
    end: usize,
    /// How many positions there are, those of zeros among them.
    positions: usize,
}

impl<'a> Context<'a> {
    fn new(span: &'a Span, cache: &'a Cache, Setting { shape, tiles, both_ways, .. }: Setting<'_>) -> Result<Self> {
        let end = span.first_position + span.tokens;
        let lowest = shape.reach.first_key(span.first_position);
        let step = if tiles.equal { tiles.keys } else { BLOCK_TOKENS };
        let first = lowest / step * step;
        let blocks = &span.blocks[first / BLOCK_TOKENS..end.div_ceil(BLOCK_TOKENS)];
        let positions = if tiles.equal { (end - first).next_multiple_of(tiles.keys) } else { end - first };
        let context = Self { cache, blocks, gathered: None, first, end, positions };
        let gathered = if both_ways { None } else { Some(context.gather(0, positions)?) };
        Ok(Self { gathered, ..context })
    }

    /// Keys and values of some positions, the first of which begins a block.
    fn gather(&self, first: usize, count: usize) -> Result<[Tensor; 2]> {
        let known = count.min(self.end - self.first - first);
        let blocks = &self.blocks[first / BLOCK_TOKENS..(first + known).div_ceil(BLOCK_TOKENS)];
        let (keys, values) = self.cache.gather(blocks, known)?;
        let by_head = |part: &Tensor| padded_rows(part, count)?.transpose(0, 1);
        Ok([by_head(&keys)?, by_head(&values)?])
    }

    /// Keys and values of a tile.
    fn tile(&self, first: usize, count: usize) -> Result<[Tensor; 2]> {
        match &self.gathered {
            Some([keys, values]) => Ok([keys.narrow(1, first, count)?, values.narrow(1, first, count)?]),
            None => self.gather(first, count),
        }
    }
}

/// Attention of one span, whose queries are `[tokens, heads, head_dim]`; the result is `[tokens, heads * head_dim]`.
pub(super) fn attend_span(
    queries: &Tensor,
    span: &Span,
    cache: &Cache,
    setting: Setting<'_>,
    shared: &StepShared,
) -> Result<Tensor> {
    let (tiles, context) = (setting.tiles, Context::new(span, cache, setting)?);
    let mut rows = Vec::new();
    for first in (0..span.tokens).step_by(tiles.queries) {
        let tokens = tiles.queries.min(span.tokens - first);
        let tile = queries.narrow(0, first, tokens)?;
        let tile = if tiles.equal { padded_rows(&tile, tiles.queries)? } else { tile };
        let attended = attend_tile(&tile, span.first_position + first, &context, setting, shared)?;
        rows.push(attended.narrow(0, 0, tokens)?);
    }
    Tensor::cat(&rows, 0)
}

/// Attends for rows that each end another sequence, or another part of one.
pub(super) fn attend_single_rows(
    queries: &Tensor,
    rows: &SingleRows,
    cache: &Cache,
    setting: Setting<'_>,
    shared: &StepShared,
) -> Result<Tensor> {
    let mut attended = Vec::with_capacity(rows.lengths.len());
    for (row, (length, span)) in rows.lengths.iter().zip(&rows.spans).enumerate() {
        let length = *length as usize;
        let blocks = shared.spans[*span].blocks[..length.div_ceil(BLOCK_TOKENS)].to_vec();
        let alone = Span {
            first_row: row,
            tokens: 1,
            first_position: length - 1,
            blocks,
            slot: 0,
            adapter: None,
            snapshots: Vec::new(),
        };
        attended.push(attend_span(&queries.narrow(0, row, 1)?, &alone, cache, setting, shared)?);
    }
    Tensor::cat(&attended, 0)
}

/// One tile of queries, of which the first is at `position`, over all tiles of keys that count for any of them.
fn attend_tile(
    queries: &Tensor,
    position: usize,
    context: &Context<'_>,
    Setting { shape: AttentionShape { scale, reach, cap, .. }, sinks, tiles, both_ways }: Setting<'_>,
    shared: &StepShared,
) -> Result<Tensor> {
    let (tokens, heads, head_dim) = queries.dims3()?;
    let kv_heads = context.cache.shape().heads;
    let group = heads / kv_heads;
    // The queries of all heads that share keys, as rows of one product.
    let by_head = queries.reshape((tokens, kv_heads, group, head_dim))?.transpose(0, 1)?.contiguous()?;
    let by_head = by_head.reshape((kv_heads, tokens * group, head_dim))?;
    let common_end = both_ways.then_some(context.end);
    let end = common_end.unwrap_or(context.end.min(position + tokens));
    let mut sums: Option<Sums> = None;
    for first in (0..end - context.first).step_by(tiles.keys) {
        let (keys, first_key) = (tiles.keys.min(context.positions - first), context.first + first);
        if first_key + keys <= reach.first_key(position) {
            continue;
        }
        let [own_keys, values] = context.tile(first, keys)?;
        let scores = batched_transposed(&by_head, &own_keys)?;
        let scores = capped((scores * f64::from(scale))?, cap)?;
        let mask = MaskShape { first_query: position, queries: tokens, first_key, keys, reach, common_end };
        let scores = match shared.mask(mask)? {
            None => scores,
            Some(mask) => {
                let scores = scores.reshape((kv_heads, tokens, group, keys))?;
                let mask = mask.reshape((1, tokens, 1, keys))?;
                scores.broadcast_add(&mask)?.reshape((kv_heads, tokens * group, keys))?
            }
        };
        sums = Some(Sums::add(sums, &scores, &values)?);
    }
    let Sums { max, total, weighted } = sums.expect("a query attends to itself");
    let total = match sinks {
        None => total,
        Some(sinks) => {
            let sinks = sinks.reshape((kv_heads, 1, group))?.broadcast_as((kv_heads, tokens, group))?;
            let sinks = sinks.contiguous()?.reshape((kv_heads, tokens * group, 1))?;
            (total + (sinks - max)?.exp()?)?
        }
    };
    let attended = weighted.broadcast_div(&total)?.reshape((kv_heads, tokens, group, head_dim))?;
    attended.transpose(0, 1)?.contiguous()?.reshape((tokens, heads * head_dim))
}

/// `cap * tanh(score / cap)` of each score.
fn capped(scores: Tensor, cap: Option<f32>) -> Result<Tensor> {
    let Some(cap) = cap.map(f64::from) else { return Ok(scores) };
    (scores / cap)?.tanh()? * cap
}

/// A softmax over the tiles so far.
struct Sums {
    max: Tensor,
    total: Tensor,
    weighted: Tensor,
}

impl Sums {
    fn add(before: Option<Self>, scores: &Tensor, values: &Tensor) -> Result<Self> {
        let max = scores.max_keepdim(D::Minus1)?;
        let max = match &before {
            None => max,
            Some(before) => before.max.maximum(&max)?,
        };
        let weights = scores.broadcast_sub(&max)?.exp()?;
        let total = weights.sum_keepdim(D::Minus1)?;
        let weighted = batched(&weights.to_dtype(values.dtype())?, values)?;
        let Some(before) = before else { return Ok(Self { max, total, weighted }) };
        let factor = (before.max - &max)?.exp()?;
        Ok(Self {
            total: ((before.total * &factor)? + total)?,
            weighted: (before.weighted.broadcast_mul(&factor)? + weighted)?,
            max,
        })
    }
}

#[cfg(test)]
mod tests;
