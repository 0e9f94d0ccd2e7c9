//! Which block of threads attends for which rows, and to which keys: what `paged_attention.cu` is given.
//!
//! Rows of a sequence are computed in tiles, narrow ones by one kernel and wide ones by another, and contexts are read in
//! splits. Where tiles are few or some contexts are much longer than others, the splits of a tile are computed by several
//! blocks at once, and merged afterwards. That changes no bit: splits begin at multiples of [`SPLIT_TOKENS`] and are merged
//! in their order by either.

#[cfg(feature = "cuda")]
use candle_core::{DType, Result, Tensor};

#[cfg(feature = "cuda")]
use super::buffer::{Buffer, TensorKind};
#[cfg(feature = "cuda")]
use crate::engine::native::backend::{AttentionShape, CacheShape};
use crate::engine::native::backend::{Reach, Span};

/// Keys of a split, `SPLIT` in `attention.cuh`.
const SPLIT_TOKENS: usize = 1024;
/// Rows of a narrow tile, `TILE` there.
pub(super) const TILE_ROWS: usize = 16;
/// Rows of a wide tile, `ROWS` in `prompt_attention.cuh`.
pub(super) const PROMPT_ROWS: usize = 128;
/// Rows of a sequence that are computed by narrow tiles: a wide one with so few would leave most warps idle.
const MOST_NARROW_ROWS: usize = 48;
/// Heads that wide tiles serve: the sums of longer ones have no room in registers.
const LONGEST_PROMPT_HEAD: usize = 128;
/// How many blocks of threads there are to be: four for each multiprocessor of an H100, which has two at a time.
const BLOCKS_AT_WORK: usize = 4 * 132;
/// The most numbers of partial sums that are there at a time.
const MOST_PARTIAL_SUMS: usize = 1 << 26;
/// In place of a part: the block of threads computes a tile to its end.
const WHOLE: u32 = u32::MAX;

/// A tile of rows with some of its splits; `Item` in `attention.cuh`.
pub(super) type Item = [u32; ITEM_LEN];
const ITEM_LEN: usize = 8;
/// A row of a wide tile whose splits are merged: its number, its first part, and how many there are; `Merge` in
/// `paged_attention.cu`. The kernel for narrow tiles merges splits itself.
pub(super) type Merge = [u32; 3];

/// What a schedule depends on besides the spans: layers that agree in it share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ScheduleKey {
    reach: Reach,
    /// Heads of queries, and of keys.
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
}

/// What a layer's rows are computed by.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Schedule {
    /// Items of up to [`TILE_ROWS`] rows.
    pub(super) narrow: Vec<Item>,
    /// Items of up to [`PROMPT_ROWS`] rows.
    pub(super) wide: Vec<Item>,
    pub(super) merges: Vec<Merge>,
    /// How many partial sums there are for each head.
    pub(super) parts: usize,
    /// Whether every block of threads has all rows of a sequence, and of a head of keys.
    pub(super) whole_spans: bool,
}

/// A schedule on the device. Lists without items are not there. Others may end with items of no rows.
#[cfg(feature = "cuda")]
#[derive(Debug)]
pub(super) struct DeviceSchedule {
    pub(super) narrow: Option<Tensor>,
    pub(super) wide: Option<Tensor>,
    pub(super) merges: Option<Tensor>,
    /// Room for the partial sums of a layer: for each part and head a largest score, a sum of weights, and a head's numbers.
    pub(super) parts: Tensor,
    /// How many parts of each tile and head of keys are computed, at the tile's first part: zero between two layers.
    pub(super) done: Tensor,
    /// As in the schedule.
    pub(super) whole_spans: bool,
}

/// Memory of a schedule's lists, and for partial sums, which is kept from step to step.
#[cfg(feature = "cuda")]
#[derive(Debug, Default)]
pub(super) struct ScheduleMemory {
    narrow: Buffer,
    wide: Buffer,
    merges: Buffer,
    parts: Buffer,
    done: Buffer,
}

/// Consecutive rows of a span, and the splits that they attend to.
struct Tile {
    row: usize,
    tokens: usize,
    position: usize,
    table: usize,
    first_split: usize,
    splits: usize,
}

impl ScheduleKey {
    /// Of the attention of a layer.
    #[cfg(feature = "cuda")]
    pub(super) fn of(shape: AttentionShape, cache: CacheShape) -> Self {
        Self { reach: shape.reach, heads: shape.heads, kv_heads: cache.heads, head_dim: cache.head_dim }
    }

    /// By how many blocks of threads a narrow tile is computed, for each head of keys.
    #[cfg(feature = "cuda")]
    fn pieces(self) -> usize {
        (self.heads / self.kv_heads).div_ceil(TILE_ROWS)
    }

    /// How many numbers a part has: for each head a largest score, a sum of weights, and a head's numbers.
    fn part_len(self) -> usize {
        self.heads * (self.head_dim + 2)
    }
}

impl Schedule {
    /// The schedule of all spans; the blocks of each begin at its place of `tables` in the joined table of all blocks.
    pub(super) fn new(spans: &[Span], tables: &[usize], key: ScheduleKey) -> Self {
        let group = key.heads / key.kv_heads;
        let mut tiles = [Vec::new(), Vec::new()];
        for (span, table) in spans.iter().zip(tables) {
            let is_wide = span.tokens * group > MOST_NARROW_ROWS && key.head_dim <= LONGEST_PROMPT_HEAD;
            let rows = if is_wide { PROMPT_ROWS } else { TILE_ROWS };
            tiles[usize::from(is_wide)].extend(tiles_of(span, *table, (rows / group).max(1), key.reach));
        }
        let splits: usize = tiles.iter().flatten().map(|tile| tile.splits).sum();
        // A tile of no more splits than a block has to compute anyway is not divided.
        let longest = (splits * key.kv_heads).div_ceil(BLOCKS_AT_WORK).max(1);
        let most_parts = MOST_PARTIAL_SUMS / key.part_len();
        let are_whole = tiles[1].is_empty() && tiles[0].len() == spans.len() && group <= TILE_ROWS;
        let mut schedule = Self { whole_spans: are_whole, ..Self::default() };
        let [narrow, wide] = tiles;
        let narrow = schedule.divide(narrow, longest, most_parts);
        schedule.merges.clear();
        let wide = schedule.divide(wide, longest, most_parts);
        Self { narrow, wide, ..schedule }
    }

    /// Sends it, and makes room for partial sums.
    #[cfg(feature = "cuda")]
    pub(super) fn send(
        &self,
        kind: TensorKind<'_>,
        key: ScheduleKey,
        memory: &mut ScheduleMemory,
    ) -> Result<DeviceSchedule> {
        fn sent<const N: usize>(items: &[u32], kind: TensorKind<'_>, memory: &mut Buffer) -> Result<Option<Tensor>> {
            let mut write = |items: &[u32]| memory.write(kind, items, (items.len() / N, N));
            (!items.is_empty()).then(|| write(items)).transpose()
        }
        let ScheduleMemory { narrow, wide, merges, parts, done } = memory;
        let numbers = TensorKind { dtype: DType::U32, ..kind };
        let sums = (self.parts * key.part_len()).max(1);
        Ok(DeviceSchedule {
            narrow: sent::<ITEM_LEN>(&filled_up(&self.narrow), numbers, narrow)?,
            wide: sent::<ITEM_LEN>(self.wide.as_flattened(), numbers, wide)?,
            merges: sent::<3>(self.merges.as_flattened(), numbers, merges)?,
            parts: parts.room(TensorKind { dtype: DType::F32, ..kind }, sums)?,
            done: done.room(numbers, (self.parts * key.kv_heads * key.pieces()).max(1))?,
            whole_spans: self.whole_spans,
        })
    }

    /// The items of some tiles, those with the most splits first, as they take longest.
    fn divide(&mut self, tiles: Vec<Tile>, longest: usize, most_parts: usize) -> Vec<Item> {
        let mut items = Vec::new();
        for tile in tiles {
            let parts = tile.tokens * tile.splits;
            if tile.splits <= longest || self.parts + parts > most_parts {
                items.push(tile.item(0, tile.splits, WHOLE));
                continue;
            }
            items.extend((0..tile.splits).map(|split| tile.item(split, 1, narrow(self.parts + split))));
            self.merges.extend(
                (0..tile.tokens)
                    .map(|token| [tile.row + token, self.parts + token * tile.splits, tile.splits].map(narrow)),
            );
            self.parts += parts;
        }
        items.sort_by_key(|item| std::cmp::Reverse(item[5]));
        items
    }
}

impl Tile {
    /// Some of its splits, in the order of `Item`'s fields.
    fn item(&self, skipped: usize, splits: usize, part: u32) -> Item {
        let Self { row, tokens, position, table, first_split, splits: parts } = *self;
        let [row, tokens, position, table, first, splits, parts] =
            [row, tokens, position, table, first_split + skipped, splits, parts].map(narrow);
        [row, tokens, position, table, first, splits, part, parts]
    }
}

fn tiles_of(span: &Span, table: usize, most_tokens: usize, reach: Reach) -> impl Iterator<Item = Tile> {
    (0..span.tokens).step_by(most_tokens).map(move |first| {
        let (tokens, position) = (most_tokens.min(span.tokens - first), span.first_position + first);
        let first_split = reach.first_key(position) / SPLIT_TOKENS;
        let splits = (position + tokens).div_ceil(SPLIT_TOKENS) - first_split;
        Tile { row: span.first_row + first, tokens, position, table, first_split, splits }
    })
}

/// Items one after the other, and then some of no rows, which no block computes: so steps that differ a little launch as many
/// blocks.
#[cfg(feature = "cuda")]
fn filled_up(items: &[Item]) -> Vec<u32> {
    let step = match items.len() {
        0..=8 => 1,
        9..=64 => 8,
        _ => 32,
    };
    let mut filled = items.as_flattened().to_vec();
    filled.resize(items.len().next_multiple_of(step) * ITEM_LEN, 0);
    filled
}

/// A number as kernels count.
fn narrow(number: usize) -> u32 {
    u32::try_from(number).expect("rows, positions and blocks are 32 bits wide")
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    fn key(heads: usize, reach: Reach) -> ScheduleKey {
        ScheduleKey { heads, reach, kv_heads: 2, head_dim: 128 }
    }

    fn spans(sizes: &[(usize, usize)]) -> Vec<Span> {
        let mut first_row = 0;
        let spans = sizes.iter().map(|(first_position, tokens)| {
            first_row += tokens;
            Span {
                first_row: first_row - tokens,
                tokens: *tokens,
                first_position: *first_position,
                blocks: Vec::new(),
                slot: 0,
                adapter: None,
                snapshots: Vec::new(),
            }
        });
        spans.collect()
    }

    /// For each row its position, and the splits that some block computes, in order of parts.
    fn computed(schedule: &Schedule, reach: Reach) -> BTreeMap<u32, (u32, Vec<u32>)> {
        let mut rows: BTreeMap<u32, (u32, Vec<u32>)> = BTreeMap::new();
        let mut places = BTreeMap::new();
        for [row, tokens, position, _, first, splits, part, parts] in schedule.narrow.iter().chain(&schedule.wide) {
            for token in 0..*tokens {
                let of_row = rows.entry(row + token).or_insert((position + token, Vec::new()));
                assert_eq!(of_row.0, position + token);
                of_row.1.extend(*first..first + splits);
                if *part != WHOLE {
                    assert_eq!(*splits, 1);
                    assert!(
                        places.insert(part + token * parts, (row + token, *first)).is_none(),
                        "a part is written twice"
                    );
                }
            }
        }
        // The kernel for narrow tiles finds the first part of a tile by the first split that counts.
        let first_part = |[_, _, position, _, first, _, part, _]: &Item| {
            part - (first - narrow(reach.first_key(*position as usize) / SPLIT_TOKENS))
        };
        let narrow_merges = schedule.narrow.iter().filter(|item| item[6] != WHOLE).flat_map(|item| {
            let [row, tokens, _, _, _, _, _, parts] = *item;
            let first = first_part(item);
            (0..tokens).map(move |token| [row + token, first + token * parts, parts])
        });
        let all_merges: BTreeSet<Merge> = narrow_merges.chain(schedule.merges.iter().copied()).collect();
        let mut merged = 0;
        for [row, first, parts] in &all_merges {
            merged += parts;
            let splits: Vec<u32> = (*first..first + parts).map(|part| places[&part].1).collect();
            assert!((*first..first + parts).all(|part| places[&part].0 == *row));
            assert!(splits.is_sorted());
            rows.get_mut(row).unwrap().1.sort_unstable();
            assert_eq!(rows[row].1, splits);
        }
        assert_eq!((merged as usize, places.len()), (schedule.parts, schedule.parts));
        rows
    }

    #[test]
    fn every_row_attends_to_every_split_once_in_order() {
        let sizes = [(0, 1), (1023, 1), (1024, 1), (40_000, 1), (1000, 40), (0, 300), (30_000, 100)];
        for (heads, reach) in [(2, Reach::All), (8, Reach::Window(700)), (6, Reach::Chunk(600)), (80, Reach::All)] {
            for sizes in [&sizes[..], &sizes[..1], &sizes[3..4], &[(8191, 1); 100]] {
                let spans = spans(sizes);
                let tables = vec![0; spans.len()];
                let rows = computed(&Schedule::new(&spans, &tables, key(heads, reach)), reach);
                let positions: Vec<u32> =
                    sizes.iter().flat_map(|(first, tokens)| *first..first + tokens).map(narrow).collect();
                assert_eq!(rows.values().map(|(position, _)| *position).collect::<Vec<_>>(), positions);
                for (position, splits) in rows.values() {
                    // Other rows of a tile may begin earlier and end later.
                    let first = narrow(reach.first_key(*position as usize) / SPLIT_TOKENS);
                    let all: Vec<u32> = (splits[0]..=*splits.last().unwrap()).collect();
                    assert_eq!(splits, &all);
                    assert!(splits[0] <= first && (all.last().unwrap() + 1) * narrow(SPLIT_TOKENS) > *position);
                }
            }
        }
    }

    #[test]
    fn long_contexts_are_divided_where_blocks_would_be_idle() {
        let of = |sizes: &[(usize, usize)]| {
            let spans = spans(sizes);
            Schedule::new(&spans, &vec![0; spans.len()], key(8, Reach::All))
        };
        let alone = of(&[(8191, 1)]);
        assert_eq!((alone.narrow.len(), alone.wide.len(), alone.merges.len(), alone.parts), (8, 0, 0, 8));
        let many = of(&[(2047, 1); 512]);
        assert_eq!((many.narrow.len(), many.merges.len(), many.parts), (512, 0, 0));
        let uneven: Vec<_> = std::iter::once((32_767, 1)).chain([(1023, 1); 511]).collect();
        let uneven = of(&uneven);
        assert_eq!((uneven.narrow.len(), uneven.parts), (511 + 32, 32));
        let llama = ScheduleKey { kv_heads: 8, ..key(32, Reach::All) };
        let prompt = Schedule::new(&spans(&[(0, 8192)]), &[0], llama);
        assert_eq!((prompt.narrow.len(), prompt.wide.len()), (0, 256));
        assert_eq!((prompt.wide[0][2], prompt.wide[0][5]), (7 * 1024, 8));
    }
}
