//! Attention of new tokens to all tokens before them, over blocks of cached keys and values.
//!
//! Each query goes over its keys from the first to the last in strides of [`STRIDE`], at fixed positions of the
//! sequence, keeping a running maximum: how a prompt was cut, and what was cached, cannot show in the result.

mod both_ways;
mod weigh;

use std::cell::RefCell;

use super::{
    KernelName, KernelSet, KvLayout, KvStore, LANES, Operand, Processor, States,
    gemm::Product,
    kv::BLOCK_TOKENS,
    multiplier::Multiplier,
    packed::{NumberParts, Numbers},
    raw::Along,
};
use crate::engine::native::backend::{AttentionShape, Span};
use weigh::{Running, Scores, weigh};

pub(crate) use both_ways::BothWays;

/// How many keys there are between two looks at the running maximum.
const STRIDE: usize = 4 * BLOCK_TOKENS;
/// How many queries (tokens times the heads that share keys) are worked on together at most, where there is work for all threads:
/// the more, the less often keys and values are read.
const MOST_ROWS: usize = 96;
/// How many they are at least, in whole panels of tiles.
const PANEL: usize = 32;
/// How many shares each thread has at least, where there is so much work: whoever is late leaves some to the others.
const SHARES_OF_A_THREAD: usize = 8;

/// What all sequences of a batch share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attention<'a> {
    /// Rows that begin with the rotated queries: `heads * head_dim` numbers.
    pub(crate) states: &'a States,
    /// Keys and values, the new tokens' among them.
    pub(crate) store: &'a KvStore,
    /// Heads of queries, and what becomes of scores.
    pub(crate) shape: AttentionShape,
    /// For each head of queries a score that takes weight from the keys and adds no value.
    pub(crate) sinks: Option<&'a [f32]>,
    /// The images of which each token attends to all.
    pub(crate) both_ways: &'a BothWays,
}

impl Attention<'_> {
    /// The first key that a token attends to.
    fn first_key(&self, position: usize) -> usize {
        self.shape.reach.first_key(position)
    }
}

/// A share of the work: some tokens of a sequence, for one head of keys.
#[derive(Debug, Clone, Copy)]
struct Share {
    span: usize,
    head: usize,
    first: usize,
    tokens: usize,
}

/// Attends, and writes one row for each new token to `out`: `heads * head_dim` numbers.
pub(crate) fn attend(
    Processor { set, pool }: &mut Processor,
    attention: &Attention<'_>,
    spans: &[Span],
    out: &mut Operand,
) {
    let layout = attention.store.layout;
    out.reshape(attention.states.rows, attention.shape.heads * layout.head_dim);
    let group = attention.shape.heads / layout.heads;
    let rows = rows_of_a_share(spans, attention.shape.heads, pool.threads());
    let tokens_at_once = (rows / group).max(1);
    let mut shares = Vec::new();
    for (span, Span { tokens, first_position, blocks, .. }) in spans.iter().enumerate() {
        assert!(blocks.len() * BLOCK_TOKENS >= first_position + tokens, "every token has a block");
        for first in (0..*tokens).step_by(tokens_at_once).rev() {
            let tokens = tokens_at_once.min(tokens - first);
            shares.extend((0..layout.heads).map(|head| Share { span, head, first, tokens }));
        }
    }
    let stride = out.stride;
    let out = NumberParts::new(&mut out.numbers);
    let (set, threads) = (*set, pool.threads());
    pool.for_each(shares.len(), &|index| {
        let share = shares[index];
        // Most likely, this thread takes that one next.
        let next = shares.get(index + threads).map(|next| first_stride(attention, &spans[next.span], next));
        Buffers::with(|buffers| Tile::new(set, attention, &spans[share.span], share, buffers).run(next, &out, stride));
    });
}

/// How many queries are worked on together, if there are so many heads of them for each token.
fn rows_of_a_share(spans: &[Span], heads: usize, threads: usize) -> usize {
    let rows = spans.iter().map(|span| span.tokens).sum::<usize>() * heads;
    (rows / (threads * SHARES_OF_A_THREAD) / PANEL * PANEL).clamp(PANEL, MOST_ROWS)
}

/// Takes where the keys of a block begin and where its values do, and says which of them are meant.
type Part = fn((usize, usize)) -> usize;

/// The blocks of a stride, and the head of keys that is worked on.
#[derive(Debug, Clone, Copy, Default)]
struct Stride<'a> {
    blocks: &'a [u32],
    head: usize,
}

impl<'a> Stride<'a> {
    /// The one from the key `start` on, for a head of `span`; there are keys up to `end`.
    fn at(span: &'a Span, head: usize, start: usize, end: usize) -> Self {
        let (first, last) = (start / BLOCK_TOKENS, end.min(start + STRIDE).div_ceil(BLOCK_TOKENS));
        Self { blocks: &span.blocks[first..last], head }
    }
}

/// The stride that a share begins with.
fn first_stride<'a>(attention: &Attention<'_>, span: &'a Span, share: &Share) -> Stride<'a> {
    let position = span.first_position + share.first;
    let start = attention.first_key(position) / STRIDE * STRIDE;
    Stride::at(span, share.head, start, position + share.tokens)
}

/// One share, and the buffers that it is worked on in.
struct Tile<'a> {
    set: KernelSet,
    attention: &'a Attention<'a>,
    span: &'a Span,
    share: Share,
    /// Heads of queries to a head of keys.
    group: usize,
    rows: usize,
    multiplier: Multiplier,
    buffers: &'a mut Buffers,
}

/// What a share is worked on in. A thread keeps it: there are thousands of shares in a step.
struct Buffers {
    queries: Numbers,
    scores: Vec<f32>,
    weights: Numbers,
    sums: Vec<f32>,
    running: Vec<Running>,
}

impl Buffers {
    /// Calls `work` with those of this thread.
    fn with(work: impl FnOnce(&mut Self)) {
        thread_local! {
            static BUFFERS: RefCell<Buffers> = const { RefCell::new(Buffers::new()) };
        }
        BUFFERS.with_borrow_mut(work);
    }

    const fn new() -> Self {
        Self {
            queries: Numbers::F32(Vec::new()),
            scores: Vec::new(),
            weights: Numbers::F32(Vec::new()),
            sums: Vec::new(),
            running: Vec::new(),
        }
    }

    /// Makes room for so many rows. Queries and sums are zero; scores and weights hold whatever was left in them.
    fn reshape(&mut self, layout: KvLayout, rows: usize) {
        self.queries.refill(layout.precision, rows * layout.key_depth());
        self.weights.make_room(layout.precision, rows * STRIDE);
        if self.scores.len() < rows * STRIDE {
            self.scores.resize(rows * STRIDE, 0.0);
        }
        self.sums.clear();
        self.sums.resize(rows * layout.value_width(), 0.0);
        self.running.clear();
    }
}

impl<'a> Tile<'a> {
    fn new(
        set: KernelSet,
        attention: &'a Attention<'a>,
        span: &'a Span,
        share: Share,
        buffers: &'a mut Buffers,
    ) -> Self {
        let layout = attention.store.layout;
        let group = attention.shape.heads / layout.heads;
        let rows = share.tokens * group;
        let sink = |row| attention.sinks.map(|sinks| sinks[share.head * group + row % group]);
        buffers.reshape(layout, rows);
        buffers.running.extend((0..rows).map(|row| Running::new(sink(row))));
        let mut tile = Self { set, attention, span, share, group, rows, multiplier: Multiplier::new(set), buffers };
        tile.read_queries();
        tile
    }

    fn read_queries(&mut self) {
        let layout = self.attention.store.layout;
        let (head_dim, depth) = (layout.head_dim, layout.key_depth());
        for row in 0..self.rows {
            let token = self.span.first_row + self.share.first + row / self.group;
            let head = self.share.head * self.group + row % self.group;
            let from = &self.attention.states.row(token)[head * head_dim..][..head_dim];
            self.buffers.queries.write(self.set, row * depth, from);
        }
    }

    /// The position of a row's token.
    fn position(&self, row: usize) -> usize {
        self.span.first_position + self.share.first + row / self.group
    }

    /// The first key that a row attends to.
    fn first_key(&self, row: usize) -> usize {
        self.attention.first_key(self.position(row))
    }

    /// The key after the last one that a row attends to. Later rows have none before it.
    fn end(&self, row: usize) -> usize {
        self.attention.both_ways.end(self.share.span, self.position(row))
    }

    /// Works on all strides; `next` is what this thread does afterwards.
    fn run(mut self, next: Option<Stride<'_>>, out: &NumberParts<'_>, out_stride: usize) {
        let (span, head, end) = (self.span, self.share.head, self.end(self.rows - 1));
        let stride_at = |start: usize| Stride::at(span, head, start, end);
        let mut start = self.first_key(0) / STRIDE * STRIDE;
        while start < end {
            let stride = stride_at(start);
            let following = if start + STRIDE < end { stride_at(start + STRIDE) } else { next.unwrap_or_default() };
            self.score(stride, following);
            self.weigh(start, stride.blocks.len() * BLOCK_TOKENS);
            self.add_values(stride, following);
            start += STRIDE;
        }
        self.write(out, out_stride);
    }

    /// Where a part of a block begins, of those that a stride has; `part` takes where keys begin and where values do.
    fn place(&self, stride: Stride<'_>, index: usize, part: Part) -> usize {
        part(self.attention.store.layout.offsets(stride.blocks[index], stride.head))
    }

    /// Whether the parts of the following stride are fetched line by line while those of this one are multiplied. Tiles do not
    /// go line by line.
    fn fetches_by_lines(&self) -> bool {
        self.set.name() != KernelName::Amx
    }

    /// Has the parts fetched at once that are not fetched line by line: all of them, or what a shorter stride has no blocks for.
    fn fetch(&self, stride: Stride<'_>, following: Stride<'_>, part: Part) {
        let first = if self.fetches_by_lines() { stride.blocks.len() } else { 0 };
        let count = following.blocks.len().saturating_sub(first);
        let mut places = [0; STRIDE / BLOCK_TOKENS];
        for (index, place) in places.iter_mut().enumerate().take(count) {
            *place = self.place(following, first + index, part);
        }
        let len = BLOCK_TOKENS * self.attention.store.layout.head_dim;
        self.attention.store.numbers.prefetch_side_by_side(&places[..count], len);
    }

    /// How far behind a part of a block the same part begins in the following stride, so that it is fetched line by line
    /// while this one is multiplied. Blocks lie anywhere, so the processor cannot guess the next one; and it fetches twice as
    /// much in a given time if it is asked for a line with each that it reads, and not for many at once.
    fn soon(&self, stride: Stride<'_>, index: usize, following: Stride<'_>, part: Part) -> isize {
        if self.fetches_by_lines() && index < following.blocks.len() {
            self.place(following, index, part).cast_signed() - self.place(stride, index, part).cast_signed()
        } else {
            0
        }
    }

    /// The parts of a stride's blocks that are multiplied, and how far behind each of them lies what is fetched meanwhile.
    fn pieces(
        &self,
        stride: Stride<'_>,
        following: Stride<'_>,
        part: Part,
    ) -> ([(usize, isize); STRIDE / BLOCK_TOKENS], usize) {
        let mut pieces = [(0, 0); STRIDE / BLOCK_TOKENS];
        for (index, piece) in pieces.iter_mut().enumerate().take(stride.blocks.len()) {
            *piece = (self.place(stride, index, part), self.soon(stride, index, following, part));
        }
        (pieces, stride.blocks.len())
    }

    /// Queries times the keys of some blocks, into `scores`.
    fn score(&mut self, stride: Stride<'_>, following: Stride<'_>) {
        let depth = self.attention.store.layout.key_depth();
        let keys: Part = |(keys, _)| keys;
        self.fetch(stride, following, keys);
        let (pieces, count) = self.pieces(stride, following, keys);
        let product = Product {
            a: (&self.buffers.queries, 0),
            a_stride: depth,
            rows: self.rows,
            b: (&self.attention.store.numbers, pieces[0].0),
            b_block_stride: LANES * depth,
            blocks: BLOCK_TOKENS / LANES,
            following: 0,
            next: (0, 0),
            soon: 0,
            k: depth,
            c_stride: STRIDE,
            accumulate: false,
        };
        let scores = self.buffers.scores.as_mut_ptr();
        // SAFETY: `scores` has a stride for each row, and the blocks lie in it side by side; keys are padded to what their
        // precision reads at once.
        unsafe { product.compute_pieces(&mut self.multiplier, Along::Columns, &pieces[..count], scores) };
    }

    /// Makes weights of the scores of `keys` keys from `start` on, and takes back what the sums weigh too much.
    fn weigh(&mut self, start: usize, keys: usize) {
        let width = self.attention.store.layout.value_width();
        for row in 0..self.rows {
            let end = self.end(row).saturating_sub(start).min(keys);
            let first = self.first_key(row).saturating_sub(start).min(end);
            let Buffers { scores, weights, sums, running, .. } = &mut *self.buffers;
            let scores = Scores {
                numbers: &mut scores[row * STRIDE..][..keys],
                seen: (first, end),
                scale: self.attention.shape.scale,
                cap: self.attention.shape.cap,
                sums: &mut sums[row * width..][..width],
                running: &mut running[row],
            };
            weigh(self.set, scores, weights, row * STRIDE);
        }
    }

    /// Adds the weighed values of some blocks to the sums.
    fn add_values(&mut self, stride: Stride<'_>, following: Stride<'_>) {
        let layout = self.attention.store.layout;
        let width = layout.value_width();
        let values: Part = |(_, values)| values;
        self.fetch(stride, following, values);
        let (pieces, count) = self.pieces(stride, following, values);
        let product = Product {
            a: (&self.buffers.weights, 0),
            a_stride: STRIDE,
            rows: self.rows,
            b: (&self.attention.store.numbers, pieces[0].0),
            b_block_stride: LANES * BLOCK_TOKENS,
            blocks: width / LANES,
            following: 0,
            next: (0, 0),
            soon: 0,
            k: BLOCK_TOKENS,
            c_stride: width,
            accumulate: true,
        };
        let sums = self.buffers.sums.as_mut_ptr();
        // SAFETY: `sums` has a value's width for each row; a block's 32 tokens are what bf16 reads at once.
        unsafe { product.compute_pieces(&mut self.multiplier, Along::Depth, &pieces[..count], sums) };
    }

    fn write(self, out: &NumberParts<'_>, stride: usize) {
        let layout = self.attention.store.layout;
        let (width, head_dim) = (layout.value_width(), layout.head_dim);
        for row in 0..self.rows {
            let token = self.span.first_row + self.share.first + row / self.group;
            let column = (self.share.head * self.group + row % self.group) * head_dim;
            let factor = 1.0 / self.buffers.running[row].total;
            let sums = &mut self.buffers.sums[row * width..][..head_dim];
            for sum in &mut *sums {
                *sum *= factor;
            }
            // SAFETY: each token and head of queries belongs to one share.
            unsafe { out.write(self.set, token * stride + column, sums) };
        }
    }
}

#[cfg(test)]
mod tests;
